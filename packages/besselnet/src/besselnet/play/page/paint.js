// Numbers as pictures.

// Lightness rises all the way: cividis, at six places.
const CIVIDIS = [[0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [200, 184, 102], [254, 232, 56]];

// A pixel as it lies in memory: red first, in the lowest byte.
const packed = (red, green, blue) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;

// Colours of the shares 0, 1/255, ... 1.
const SEQUENTIAL = Uint32Array.from({ length: 256 }, (_, i) => {
  const place = (i / 255) * (CIVIDIS.length - 1);
  const low = Math.min(Math.floor(place), CIVIDIS.length - 2);
  return packed(...CIVIDIS[low].map((value, c) => Math.round(value + (place - low) * (CIVIDIS[low + 1][c] - value))));
});
const GREY = Uint32Array.from({ length: 256 }, (_, i) => packed(i, i, i));

const byte = (share) => (share <= 0 ? 0 : share >= 1 ? 255 : Math.round(255 * share));

function paint(canvas, width, height, colourAt) {
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  const picture = context.createImageData(width, height);
  const pixels = new Uint32Array(picture.data.buffer);
  for (let place = 0; place < pixels.length; place++) pixels[place] = colourAt(place);
  context.putImageData(picture, 0, 0);
}

// An image; of other than 1 or 3 channels the first one.
export function paintImage(canvas, { data, channels, size }) {
  const pixels = size * size;
  const colour = (place) => packed(byte(data[place]), byte(data[pixels + place]), byte(data[2 * pixels + place]));
  paint(canvas, size, size, channels === 3 ? colour : (place) => GREY[byte(data[place])]);
}

// One channel of feature maps, between 0 and a largest value.
export function paintMap(canvas, { data, width, height }, channel, largest) {
  const start = channel * height * width;
  paint(canvas, width, height, (place) => SEQUENTIAL[byte(data[start + place] / largest)]);
}

// A kernel, rows of numbers between -1 and 1.
export function paintKernel(canvas, kernel) {
  const values = kernel.flat();
  paint(canvas, kernel[0].length, kernel.length, (place) => GREY[byte((values[place] + 1) / 2)]);
}

// An image below its saliency, shares between 0 and 1.
export function paintSaliency(canvas, image, shares) {
  paintImage(canvas, image);
  const heat = new OffscreenCanvas(image.size, image.size);
  paint(heat, image.size, image.size, (place) => SEQUENTIAL[byte(shares[place])]);
  const context = canvas.getContext("2d");
  context.globalAlpha = 0.65;
  context.drawImage(heat, 0, 0);
  context.globalAlpha = 1;
}
