// The images that a network is least sure of, or got wrong: to look at, to rotate and to label.

import { paintImage } from "./paint.js";

// Images of one look.
const PIECE = 6;

export class Review {
  // about: what run.json says; look(number, how) shows an image of it.
  constructor(place, about, images, look) {
    Object.assign(this, { place, about, images, look });
    this.labels = new Map();
    this.gallery = document.getElementById("gallery");
    this.shown = "unsure";
    place.hidden = !images.length;
    this.buttons = { unsure: document.getElementById("show-unsure"), wrong: document.getElementById("show-wrong") };
    for (const [name, button] of Object.entries(this.buttons)) {
      button.addEventListener("click", () => this.show(name));
      button.textContent += ` (${about[name].length})`;
    }
    this.buttons.wrong.disabled = !about.wrong.length;
    this.save = document.getElementById("save-labels");
    this.save.hidden = !about.images.some((image) => image.file);
    this.save.addEventListener("click", () => this.download());
    this.more = document.getElementById("show-more");
    this.more.addEventListener("click", () => this.#append());
    this.show("unsure");
  }

  show(name) {
    this.shown = name;
    for (const [other, button] of Object.entries(this.buttons)) button.setAttribute("aria-pressed", other === name);
    this.gallery.replaceChildren();
    this.#append();
    this.#count();
  }

  // The next images of the list.
  #append() {
    const numbers = this.about[this.shown];
    const start = this.gallery.children.length;
    this.gallery.append(...numbers.slice(start, start + PIECE).map((number) => this.#item(number)));
    this.more.hidden = start + PIECE >= numbers.length;
  }

  // Show the first image.
  first() {
    return this.#choose(this.about[this.shown][0], "look");
  }

  #item(number) {
    const { name, label, answer, probability, file } = this.about.images[number];
    const classes = this.about.classes;
    const item = document.getElementById("review-parts").content.cloneNode(true).firstElementChild;
    item.dataset.number = number;
    item.classList.toggle("chosen", number === this.chosen);
    const canvas = item.querySelector("canvas");
    paintImage(canvas, this.images[number]);
    canvas.setAttribute("aria-label", name);
    canvas.addEventListener("click", () => this.#choose(number, "look"));
    const said = `${classes[answer]} ${Math.round(100 * probability)}%`;
    const truth = label === null || label === answer ? "" : `, is ${classes[label]}`;
    item.querySelector(".said").textContent = said + truth;
    item.querySelector(".said").title = name;
    item.querySelector(".look").addEventListener("click", () => this.#choose(number, "explain"));
    item.querySelector(".turn").addEventListener("click", () => this.#choose(number, "rotate"));
    item.querySelector(".label").hidden = !file;
    const select = item.querySelector("select");
    select.append(new Option("–", ""), ...classes.map((each, i) => new Option(each, i)));
    select.value = this.labels.get(number) ?? label ?? "";
    select.addEventListener("change", () => {
      if (select.value === "") this.labels.delete(number);
      else this.labels.set(number, Number(select.value));
      this.#count();
    });
    return item;
  }

  #choose(number, how) {
    this.chosen = number;
    for (const item of this.gallery.children) {
      item.classList.toggle("chosen", Number(item.dataset.number) === number);
    }
    return this.look(number, how);
  }

  #count() {
    const what = this.shown === "wrong" ? "Wrong answers, the surest first." : "The two best answers are close.";
    const labelled = this.labels.size ? ` ${this.labels.size} labelled.` : "";
    document.getElementById("review-note").textContent = `${this.about.source}. ${what}${labelled}`;
    this.save.disabled = !this.labels.size;
  }

  // The labels as a table that `besselnet train` reads from the folder of the images.
  table() {
    const rows = [...this.labels].map(([number, label]) => {
      const { file } = this.about.images[number];
      return [`./${file}`, this.about.classes[label]].map(cell).join(",");
    });
    return ["file,label", ...rows, ""].join("\n");
  }

  download() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([this.table()], { type: "text/csv" }));
    link.download = "labels.csv";
    link.click();
    URL.revokeObjectURL(link.href);
  }
}

// Text as a cell of CSV, which no spreadsheet takes for a formula.
function cell(text) {
  const safe = /^[=+\-@\t\r\n]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
