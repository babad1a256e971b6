// The tab of a model of one's own: a run that `besselnet play RUN` serves, or an .onnx file.

import { fetchBytes, Network } from "./network.js";
import { Review } from "./review.js";
import { Viewer } from "./viewer.js";

// The run at an address: its network, and images to look at.
export async function openRun(address) {
  const about = JSON.parse(new TextDecoder().decode(await fetchBytes(`${address}run.json`)));
  const network = await Network.open(await fetchBytes(`${address}model.onnx`), about);
  const images = imagesOf(about, await fetchBytes(`${address}images.bin`));
  const tab = new ModelTab(network, about.border);
  document.getElementById("open-model").hidden = true;
  tab.review = new Review(document.getElementById("review"), about, images, (number, how) => tab.look(number, how));
  tab.images = images;
  tab.about = about;
  if (images.length) await tab.review.first();
  return tab;
}

// An .onnx file: a Blob.
export async function openFile(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const network = await Network.open(bytes, { name: file.name });
  return new ModelTab(network, "reflect");
}

function imagesOf(about, bytes) {
  const { channels, image_size: size } = about;
  const pixels = channels * size * size;
  const values =
    about.dtype === "uint8" ? Float32Array.from(bytes, (value) => value / 255) : new Float32Array(bytes.buffer);
  return about.images.map((_, i) => ({ data: values.subarray(i * pixels, (i + 1) * pixels), channels, size }));
}

class ModelTab {
  constructor(network, border) {
    this.network = network;
    this.border = border;
    const columns = document.getElementById("model-columns");
    columns.hidden = false;
    this.viewer = new Viewer(columns.querySelector(".viewer"), [network]);
    const colours = { 1: "grey", 3: "colour" }[network.channels];
    document.getElementById("model-takes").textContent = colours
      ? `The network takes ${colours} images of ${network.size} x ${network.size} pixels; others are resized.`
      : `The network takes images of ${network.channels} channels, which a browser cannot open.`;
  }

  // An image of the review: how is "look", "explain" or "rotate".
  async look(number, how) {
    const label = this.about.images[number].label;
    this.viewer.spin(false);
    await this.viewer.setImage(this.images[number], { label, border: this.border });
    if (how === "explain") this.viewer.explain(true);
    if (how === "rotate") this.viewer.spin(true, { once: true });
    const part = { explain: ".explanation", rotate: ".rotation" }[how];
    if (part) this.viewer.place.querySelector(part).scrollIntoView({ block: "nearest" });
  }

  // A picture from a file, brought to the size of the network as its images were.
  async open(file) {
    const { channels, size, facts } = this.network;
    if (channels !== 1 && channels !== 3) throw new Error(`The network takes ${channels} channels.`);
    const picture = await createImageBitmap(file);
    const canvas = new OffscreenCanvas(size, size);
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    const [w, h] = scaled(picture, size, facts.resize);
    context.drawImage(picture, (size - w) / 2, (size - h) / 2, w, h);
    const pixels = context.getImageData(0, 0, size, size).data;
    const data = new Float32Array(channels * size * size);
    for (let place = 0; place < size * size; place++) {
      const [red, green, blue] = [0, 1, 2].map((channel) => pixels[4 * place + channel] / 255);
      if (channels === 3) [red, green, blue].forEach((value, channel) => (data[channel * size * size + place] = value));
      else data[place] = 0.299 * red + 0.587 * green + 0.114 * blue;
    }
    await this.viewer.setImage({ data, channels, size }, { border: this.border });
  }
}

// Width and height of a picture that fits into a square, fills it, or is stretched to it.
function scaled({ width, height }, size, how) {
  if (how === "stretch") return [size, size];
  const side = how === "fit" ? Math.max(width, height) : Math.min(width, height);
  return [(width * size) / side, (height * size) / side];
}
