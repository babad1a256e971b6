// One image, rotated, and what networks make of it: answers, feature maps, and a plot against the angle.

import { argmax } from "./network.js";
import { paintImage, paintKernel, paintMap, paintSaliency } from "./paint.js";
import { PolarPlot } from "./polar.js";
import { saliencyOf } from "./saliency.js";
import { rotated, splineOf } from "./spline.js";

const BINS = 72;
const MOST_LAYERS = 4;
const MAPS_PER_LAYER = 4;
const MOST_BARS = 10;
// Degrees in a second.
const SPEED = 60;

export class Viewer {
  // networks: one or two; test: {images, labels} to measure accuracy on, or null.
  constructor(place, networks, test = null) {
    this.networks = networks;
    this.test = test;
    place.replaceChildren(document.getElementById("viewer-parts").content.cloneNode(true));
    this.place = place;
    this.panels = networks.map((network, i) => new Panel(this.#find(".networks"), network, i));
    this.plot = new PolarPlot(this.#find(".polar"), networks.length);
    this.angle = 0;
    this.image = null;
    this.times = [];
    this.spinning = false;
    this.accuracy = null;
    this.shown = "image";
    this.#connect();
  }

  #find(selector) {
    return this.place.querySelector(selector);
  }

  #connect() {
    this.#find(".angle").addEventListener("input", (event) => {
      this.spin(false);
      this.rotate(Number(event.target.value));
    });
    this.#find(".spin").addEventListener("click", () => this.spin(!this.spinning));
    this.#find(".upright").addEventListener("click", () => {
      this.spin(false);
      this.rotate(0);
    });
    this.#find(".back").addEventListener("change", () => this.refresh());
    this.#find(".explain").addEventListener("change", (event) => this.explain(event.target.checked));
    const legend = this.networks.map((network, i) => {
      const item = document.createElement("li");
      item.className = `network-${i}`;
      item.textContent = network.name;
      return item;
    });
    this.#find(".legend").replaceChildren(...legend);
    if (this.test) {
      this.#find(".choices").hidden = false;
      this.#find(".plot-accuracy").textContent = `Accuracy on ${this.test.labels.length} digits`;
      this.#find(".plot-image").addEventListener("click", () => this.#choosePlot("image"));
      this.#find(".plot-accuracy").addEventListener("click", () => this.#choosePlot("accuracy"));
    }
  }

  // image: {data, channels, size}; label: its class if that is known; border: what rotation brings in.
  async setImage(image, { label = null, border = "zeros" } = {}) {
    this.image = image;
    this.label = label;
    this.spline = splineOf(image, border);
    const upright = await Promise.all(this.networks.map((network) => network.run(image.data, { maps: true })));
    if (this.image !== image) return;
    this.panels.forEach((panel, i) => panel.setUpright(upright[i]));
    // What is followed around the circle: the right class, or what each network says upright.
    this.followed = upright.map((result) => label ?? argmax(result.probabilities[0]));
    this.shares = this.networks.map(() => Array(BINS).fill(null));
    this.same = this.networks.map(() => Array(BINS).fill(null));
    await this.refresh();
  }

  // Rotate to an angle in degrees; resolves when it is shown.
  rotate(degrees) {
    this.angle = degrees;
    this.#find(".angle").value = degrees;
    this.#find(".degrees").textContent = `${Math.round(degrees)}°`;
    return this.refresh();
  }

  // Show the present angle. Calls while a frame is under way are one frame after it.
  refresh() {
    if (!this.image || !this.followed) return Promise.resolve();
    this.wanted = true;
    this.busy ??= this.#frames().finally(() => (this.busy = null));
    return this.busy;
  }

  async #frames() {
    while (this.wanted) {
      this.wanted = false;
      await this.#frame();
    }
    this.#explainSoon();
  }

  async #frame() {
    const start = performance.now();
    const { angle, image, label } = this;
    const input = rotated(this.spline, angle);
    const results = [];
    for (const network of this.networks) results.push(await network.run(input.data, { maps: true }));
    if (image !== this.image) return;
    paintImage(this.#find(".seen"), input);
    const back = this.#find(".back").checked;
    this.panels.forEach((panel, i) => panel.show(results[i], label, back ? angle : 0));
    const bin = Math.round(angle / (360 / BINS)) % BINS;
    results.forEach((result, i) => {
      const shares = result.probabilities[0];
      this.shares[i][bin] = shares[this.followed[i]];
      this.same[i][bin] = argmax(shares) === this.followed[i];
    });
    this.#drawPlot();
    const ms = performance.now() - start;
    // The first frames wait for the browser to get ready.
    this.times = [...this.times, ms].slice(-9);
    const usual = this.times.toSorted((a, b) => a - b)[Math.floor(this.times.length / 2)];
    this.#find(".frame-time").textContent = this.times.length < 5 ? "" : `${usual.toFixed(0)} ms per frame`;
    this.last = { angle, input, results, ms };
  }

  #drawPlot() {
    const svg = this.#find(".polar");
    if (this.shown === "accuracy") {
      this.plot.draw(this.accuracy, null);
      svg.setAttribute("aria-label", "Accuracy on rotated test images against the angle");
      this.#find(".meaning").textContent = "Distance from the centre: share of the test digits that are recognised.";
      return;
    }
    this.plot.draw(this.shares, this.angle);
    svg.setAttribute("aria-label", "Probability of the right class against the angle");
    const followed = this.label === null ? "its upright answer" : `“${this.networks[0].className(this.label)}”`;
    this.#find(".meaning").textContent = `Distance from the centre: the probability that a network gives to ${followed}.`;
    const seen = this.same[0].filter((value) => value !== null).length;
    const right = this.label === null ? "The upright answer" : "The right answer";
    const parts = this.networks.map((network, i) => `${network.name} at ${this.same[i].filter(Boolean).length}`);
    // While it spins, a screen reader would hear a sentence for each angle.
    if (this.spinning) return;
    const angles = seen === 1 ? "1 angle" : `${seen} angles`;
    this.#find(".summary").textContent = `${right} so far: ${parts.join(", ")} of ${angles}.`;
  }

  // Spin on, or for one turn only; false to stop.
  spin(on, { once = false } = {}) {
    this.spinning = on;
    this.#find(".spin").setAttribute("aria-pressed", on);
    this.#find(".spin").textContent = on ? "Stop" : "Spin";
    if (!on) return;
    this.#choosePlot("image");
    let before = null;
    let left = once ? 360 : Infinity;
    const step = async (now) => {
      if (!this.spinning) return;
      // After a pause, such as a hidden tab, it goes on where it was.
      const degrees = before === null ? 0 : Math.min((SPEED * (now - before)) / 1000, 360 / BINS, left);
      before = now;
      left -= degrees;
      if (left <= 0) this.spin(false);
      await this.rotate(left <= 0 ? 0 : (this.angle + degrees) % 360);
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  // Show filters and saliency, or hide them.
  explain(on) {
    this.#find(".explain").checked = on;
    for (const part of this.place.querySelectorAll(".explanation")) part.hidden = !on;
    this.#explainSoon();
  }

  // Saliency takes many answers: it is computed when the rotation rests.
  #explainSoon() {
    clearTimeout(this.timer);
    if (!this.#find(".explain").checked || !this.last) return;
    this.timer = setTimeout(async () => {
      const { last } = this;
      for (const panel of this.panels) {
        if (this.spinning || last !== this.last) return;
        await panel.showSaliency(last.input);
      }
      this.explained = last;
    }, 150);
  }

  #choosePlot(name) {
    this.shown = name;
    if (!this.test) return;
    this.#find(".plot-image").setAttribute("aria-pressed", name === "image");
    this.#find(".plot-accuracy").setAttribute("aria-pressed", name === "accuracy");
    if (name === "accuracy") {
      this.spin(false);
      this.measuring ??= this.#measure();
      this.#sayAccuracy();
    }
    if (this.followed) this.#drawPlot();
  }

  // Accuracy on the test images at 24 angles, all of them upright first.
  async #measure() {
    const angles = 24;
    const { images, labels } = this.test;
    const splines = images.map((image) => splineOf(image, "zeros"));
    const pixels = images[0].data.length;
    const piece = 20;
    this.accuracy = this.networks.map(() => Array(angles).fill(null));
    for (let bin = 0; bin < angles; bin++) {
      const right = this.networks.map(() => 0);
      for (let start = 0; start < images.length; start += piece) {
        const some = splines.slice(start, start + piece);
        const data = new Float32Array(some.length * pixels);
        some.forEach((spline, i) => data.set(rotated(spline, (bin * 360) / angles).data, i * pixels));
        for (const [i, network] of this.networks.entries()) {
          const { probabilities } = await network.run(data, { count: some.length });
          right[i] += probabilities.filter((shares, j) => argmax(shares) === labels[start + j]).length;
        }
        // Whatever else the page has to do comes in between.
        await new Promise((resolve) => setTimeout(resolve));
      }
      right.forEach((count, i) => (this.accuracy[i][bin] = count / images.length));
      if (this.shown === "accuracy") {
        this.#drawPlot();
        this.#sayAccuracy();
      }
    }
  }

  #sayAccuracy() {
    const parts = this.networks.map((network, i) => {
      const found = (this.accuracy?.[i] ?? []).filter((share) => share !== null);
      const mean = found.reduce((a, b) => a + b, 0) / Math.max(found.length, 1);
      return `${network.name} ${(100 * mean).toFixed(0)}%`;
    });
    const count = (this.accuracy?.[0] ?? []).filter((share) => share !== null).length;
    this.#find(".summary").textContent = `Mean accuracy at ${count} of 24 angles: ${parts.join(", ")}.`;
  }
}

// What one network says about the image.
class Panel {
  constructor(place, network, number) {
    const parts = document.getElementById("network-parts").content.cloneNode(true);
    this.element = parts.firstElementChild;
    this.element.classList.add(`network-${number}`);
    this.network = network;
    this.#find("h2").textContent = network.name;
    const size = network.parameters ? `${network.parameters.toLocaleString("en")} parameters` : "";
    this.#find(".size").textContent = size;
    const kernels = (network.kernels ?? []).map((kernel) => {
      const canvas = document.createElement("canvas");
      paintKernel(canvas, kernel);
      return canvas;
    });
    this.#find(".kernels").replaceChildren(...kernels);
    this.#find(".kernels-title").hidden = !kernels.length;
    place.append(this.element);
  }

  #find(selector) {
    return this.element.querySelector(selector);
  }

  // Choose what is shown of this image: its most probable classes, its strongest maps.
  setUpright(result) {
    const shares = result.probabilities[0];
    this.bars = shares.map((_, i) => i);
    if (shares.length > MOST_BARS) {
      this.bars.sort((a, b) => shares[b] - shares[a]);
      this.bars.length = MOST_BARS;
    }
    this.#find(".bars").replaceChildren(...this.bars.map((index) => this.#bar(index)));
    this.maps = result.maps.slice(0, MOST_LAYERS).map(strongest);
    const rows = this.maps.map((chosen, layer) => {
      const row = document.createElement("div");
      row.setAttribute("role", "img");
      row.setAttribute("aria-label", `Feature maps of ${result.maps[layer].width} by ${result.maps[layer].height} pixels`);
      row.append(...chosen.map(() => document.createElement("canvas")));
      return row;
    });
    this.#find(".maps").replaceChildren(...rows);
    this.#find(".inside").hidden = !rows.length;
  }

  #bar(index) {
    const item = document.createElement("li");
    const [name, bar, value] = ["name", "bar", "value"].map((kind) => {
      const part = document.createElement("span");
      part.className = kind;
      item.append(part);
      return part;
    });
    name.textContent = this.network.className(index);
    name.title = name.textContent;
    bar.append(document.createElement("i"));
    value.textContent = "0%";
    return item;
  }

  show(result, label, back) {
    const shares = result.probabilities[0];
    const best = argmax(shares);
    const percent = (share) => `${Math.round(100 * share)}%`;
    this.#find(".answer b").textContent = this.network.className(best);
    this.#find(".sure").textContent = percent(shares[best]);
    this.#find(".verdict").textContent = label === null ? "" : best === label ? "✓ right" : "✗ wrong";
    this.element.classList.toggle("wrong", label !== null && best !== label);
    [...this.#find(".bars").children].forEach((item, i) => {
      const share = shares[this.bars[i]];
      item.classList.toggle("best", this.bars[i] === best);
      item.querySelector("i").style.width = `${100 * share}%`;
      item.querySelector(".value").textContent = percent(share);
    });
    [...this.#find(".maps").children].forEach((row, layer) => {
      [...row.children].forEach((canvas, i) => {
        const { channel, largest } = this.maps[layer][i];
        paintMap(canvas, result.maps[layer], channel, largest);
        canvas.style.transform = back ? `rotate(${back}deg)` : "";
      });
    });
  }

  async showSaliency(image) {
    const shares = await saliencyOf(this.network, image);
    paintSaliency(this.#find(".saliency"), image, shares);
  }
}

// The maps that respond most: their channels, and the largest value of each.
function strongest(maps) {
  const pixels = maps.height * maps.width;
  const found = Array.from({ length: maps.channels }, (_, channel) => {
    const values = maps.data.subarray(channel * pixels, (channel + 1) * pixels);
    const energy = values.reduce((sum, value) => sum + value * value, 0);
    const largest = values.reduce((most, value) => Math.max(most, value), 1e-6);
    return { channel, energy, largest };
  });
  return found.sort((a, b) => b.energy - a.energy).slice(0, MAPS_PER_LAYER);
}
