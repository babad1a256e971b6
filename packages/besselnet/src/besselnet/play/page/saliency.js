// Saliency by occlusion: how much the probability of the answer falls when a place is covered.

import { argmax } from "./network.js";

// Squares along a side; images that go through the network at a time.
const PLACES = 7;
const BATCH = 14;

// A share between 0 and 1 for each pixel of an image {data, channels, size}.
export async function saliencyOf(network, image) {
  const { data, channels, size } = image;
  const { probabilities: [shares] } = await network.run(data);
  const answer = argmax(shares);
  const side = Math.max(3, Math.round(size / 5));
  const starts = Array.from({ length: PLACES }, (_, i) => Math.round((i * (size - side)) / (PLACES - 1)));
  const places = starts.flatMap((top) => starts.map((left) => [top, left]));
  const cover = means(image);
  const sums = new Float64Array(size * size);
  const counts = new Float64Array(size * size);
  for (let start = 0; start < places.length; start += BATCH) {
    const some = places.slice(start, start + BATCH);
    const covered = new Float32Array(some.length * data.length);
    some.forEach((place, i) => {
      covered.set(data, i * data.length);
      for (let channel = 0; channel < channels; channel++) {
        inSquare(place, side, size, (pixel) => {
          covered[i * data.length + channel * size * size + pixel] = cover[channel];
        });
      }
    });
    const { probabilities } = await network.run(covered, { count: some.length });
    some.forEach((place, i) => {
      const fall = Math.max(0, shares[answer] - probabilities[i][answer]);
      inSquare(place, side, size, (pixel) => {
        sums[pixel] += fall;
        counts[pixel] += 1;
      });
    });
    await new Promise((resolve) => setTimeout(resolve));
  }
  const falls = sums.map((sum, pixel) => sum / counts[pixel]);
  const largest = falls.reduce((most, fall) => Math.max(most, fall), 1e-6);
  return falls.map((fall) => fall / largest);
}

function inSquare([top, left], side, size, visit) {
  for (let row = top; row < top + side; row++) {
    for (let column = left; column < left + side; column++) visit(row * size + column);
  }
}

// The colour to cover with: the mean of the edge pixels, of each channel.
function means({ data, channels, size }) {
  return Array.from({ length: channels }, (_, channel) => {
    const at = (row, column) => data[(channel * size + row) * size + column];
    let sum = 0;
    for (let i = 0; i < size; i++) sum += at(0, i) + at(size - 1, i) + at(i, 0) + at(i, size - 1);
    return sum / (4 * size);
  });
}
