// Rotation of images, as besselnet.functional.rotate_images does it: the cubic spline through the pixels,
// read at the rotated pixel centres. An image is {data: Float32Array, channels, size}, square, channel by
// channel and row by row.

const MARGIN = 12;
const Z = Math.sqrt(3) - 2;

// The numbers c with image = c * (1, 4, 1)/6 in both directions. They are computed once for an image, and
// read for every angle. border: "zeros", or "reflect" for an image mirrored at its edges.
export function splineOf(image, border) {
  const { channels, size } = image;
  const padded = size + 2 * MARGIN;
  const filter = inverseFilter(size, border);
  const half = new Float64Array(size * padded);
  const data = new Float64Array(channels * padded * padded);
  for (let channel = 0; channel < channels; channel++) {
    multiply(filter, image.data.subarray(channel * size * size), half, padded, size, size);
    const place = data.subarray(channel * padded * padded);
    multiply(filter, half, place, padded, size, padded);
  }
  return { data, channels, size, padded, border };
}

// out = (filter @ pixels) transposed: filter (rows, inner), pixels (columns, inner) read row by row.
function multiply(filter, pixels, out, rows, inner, columns) {
  for (let column = 0; column < columns; column++) {
    for (let row = 0; row < rows; row++) {
      let sum = 0;
      for (let i = 0; i < inner; i++) sum += filter[row * inner + i] * pixels[column * inner + i];
      out[row * columns + column] = sum;
    }
  }
}

function inverseFilter(size, border) {
  const padded = size + 2 * MARGIN;
  const filter = new Float64Array(padded * size);
  const period = 2 * size;
  for (let row = 0; row < padded; row++) {
    for (let pixel = 0; pixel < size; pixel++) {
      const place = row - MARGIN;
      let value = 0;
      if (border === "zeros") {
        value = Z ** Math.abs(place - pixel);
      } else {
        // A pixel is seen again in the mirror, and both in every period: two geometric series each.
        for (const seen of [pixel, -1 - pixel]) {
          const distance = (((place - seen) % period) + period) % period;
          value += (Z ** distance + Z ** (period - distance)) / (1 - Z ** period);
        }
      }
      filter[row * size + pixel] = Math.sqrt(3) * value;
    }
  }
  return filter;
}

// The image rotated counter-clockwise by an angle in degrees.
export function rotated(spline, degrees) {
  const { channels, size, padded, border } = spline;
  const [cos, sin] = cosAndSin(degrees);
  const data = new Float32Array(channels * size * size);
  const centre = (size - 1) / 2;
  const across = new Float64Array(4);
  const down = new Float64Array(4);
  for (let row = 0; row < size; row++) {
    for (let column = 0; column < size; column++) {
      let x = cos * (column - centre) - sin * (row - centre) + centre;
      let y = sin * (column - centre) + cos * (row - centre) + centre;
      if (border === "reflect") {
        x = folded(x, size);
        y = folded(y, size);
      }
      const left = weights(x, across) + MARGIN;
      const top = weights(y, down) + MARGIN;
      for (let channel = 0; channel < channels; channel++) {
        const start = channel * padded * padded;
        let sum = 0;
        for (let i = 0; i < 4; i++) {
          const line = top + i;
          if (line < 0 || line >= padded) continue;
          for (let j = 0; j < 4; j++) {
            const place = left + j;
            if (place < 0 || place >= padded) continue;
            sum += down[i] * across[j] * spline.data[start + line * padded + place];
          }
        }
        data[(channel * size + row) * size + column] = sum;
      }
    }
  }
  return { data, channels, size };
}

// Quarter turns are split off, so that they are exact.
function cosAndSin(degrees) {
  const quarters = Math.round(degrees / 90);
  const rest = ((degrees - 90 * quarters) * Math.PI) / 180;
  const [cos, sin] = [Math.cos(rest), Math.sin(rest)];
  const turn = ((quarters % 4) + 4) % 4;
  return [[cos, sin], [-sin, cos], [-cos, -sin], [sin, -cos]][turn];
}

// The place in the frame, -1/2 to size - 1/2, that mirrors show at a position.
function folded(position, size) {
  const place = (((position + 0.5) % (2 * size)) + 2 * size) % (2 * size);
  return size - 0.5 - Math.abs(place - size);
}

// The four weights of the cubic B-spline at a position, and the first pixel that they belong to.
function weights(position, into) {
  const first = Math.floor(position);
  const t = position - first;
  into[0] = (1 - t) ** 3 / 6;
  into[1] = (3 * t ** 3 - 6 * t ** 2 + 4) / 6;
  into[2] = (-3 * t ** 3 + 3 * t ** 2 + 3 * t + 1) / 6;
  into[3] = t ** 3 / 6;
  return first - 1;
}
