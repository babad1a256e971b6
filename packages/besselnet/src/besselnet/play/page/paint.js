// Numbers as pictures.

// Lightness rises all the way: cividis, at six places.
const SEQUENTIAL = [[0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [200, 184, 102], [254, 232, 56]];

function sequential(share) {
  const place = Math.min(Math.max(share, 0), 1) * (SEQUENTIAL.length - 1);
  const low = Math.min(Math.floor(place), SEQUENTIAL.length - 2);
  return SEQUENTIAL[low].map((value, i) => value + (place - low) * (SEQUENTIAL[low + 1][i] - value));
}

function grey(share) {
  const value = 255 * Math.min(Math.max(share, 0), 1);
  return [value, value, value];
}

function paint(canvas, width, height, colourAt) {
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  const picture = context.createImageData(width, height);
  for (let place = 0; place < width * height; place++) {
    picture.data.set(colourAt(place), 4 * place);
    picture.data[4 * place + 3] = 255;
  }
  context.putImageData(picture, 0, 0);
}

function colourOf(image) {
  const pixels = image.size * image.size;
  if (image.channels === 3) {
    return (place) => [0, 1, 2].map((channel) => 255 * Math.min(Math.max(image.data[channel * pixels + place], 0), 1));
  }
  return (place) => grey(image.data[place]);
}

// An image; of other than 1 or 3 channels the first one.
export function paintImage(canvas, image) {
  paint(canvas, image.size, image.size, colourOf(image));
}

// One channel of feature maps, between 0 and a largest value.
export function paintMap(canvas, maps, channel, largest) {
  const start = channel * maps.height * maps.width;
  paint(canvas, maps.width, maps.height, (place) => sequential(maps.data[start + place] / largest));
}

// A kernel, rows of numbers between -1 and 1.
export function paintKernel(canvas, kernel) {
  const values = kernel.flat();
  paint(canvas, kernel[0].length, kernel.length, (place) => grey((values[place] + 1) / 2));
}

// An image in grey below its saliency, shares between 0 and 1.
export function paintSaliency(canvas, image, shares) {
  const colour = colourOf(image);
  paint(canvas, image.size, image.size, (place) => {
    const shade = colour(place).reduce((a, b) => a + b) / 3;
    const heat = sequential(shares[place]);
    return heat.map((value) => 0.35 * shade + 0.65 * value);
  });
}
