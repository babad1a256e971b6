// The tab of digits: draw one or choose one, and compare two networks.

import { fetchBytes, Network } from "./network.js";
import { Pad } from "./pad.js";
import { paintImage } from "./paint.js";
import { Viewer } from "./viewer.js";

const SHOWN_FIRST = 3;

export async function openDigits() {
  const panel = document.getElementById("digits");
  const about = JSON.parse(new TextDecoder().decode(await fetchBytes("digits/digits.json")));
  const pixels = await fetchBytes("digits/digits.bin");
  const networks = await Promise.all(
    about.networks.map(async (each) => Network.open(await fetchBytes(`digits/${each.file}`), each)),
  );
  const size = about.image_size;
  const images = about.labels.map((_, i) => ({
    data: Float32Array.from(pixels.subarray(i * size * size, (i + 1) * size * size), (value) => value / 255),
    channels: 1,
    size,
  }));
  const viewer = new Viewer(panel.querySelector(".viewer"), networks, { images, labels: about.labels });
  const pad = new Pad(document.getElementById("pad"), async () => {
    choose(null);
    const digit = pad.digit();
    if (digit) await viewer.setImage(digit);
  });

  const buttons = [];
  const choose = (chosen) => buttons.forEach((button) => button.setAttribute("aria-pressed", button === chosen));
  const show = (button, digit) => {
    const numbers = about.labels.flatMap((label, i) => (label === digit ? [i] : []));
    // The next of its class with every click.
    const number = numbers[Number(button.dataset.clicks ?? 0) % numbers.length];
    button.dataset.clicks = Number(button.dataset.clicks ?? 0) + 1;
    choose(button);
    pad.show(images[number]);
    return viewer.setImage(images[number], { label: digit });
  };
  about.classes.forEach((name, digit) => {
    const button = document.createElement("button");
    button.setAttribute("aria-label", `Test digit ${name}; again for another one`);
    const canvas = document.createElement("canvas");
    paintImage(canvas, images[about.labels.indexOf(digit)]);
    button.append(canvas);
    button.addEventListener("click", () => show(button, digit));
    buttons.push(button);
  });
  document.getElementById("samples").replaceChildren(...buttons);
  document.getElementById("clear").addEventListener("click", () => {
    pad.clear();
    choose(null);
  });
  await show(buttons[SHOWN_FIRST], SHOWN_FIRST);
  return { viewer, pad, images, open: (file) => pad.open(file) };
}
