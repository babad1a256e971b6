// The page: two tabs, what is opened or dropped, and what is said when something fails.

import { openDigits } from "./digits.js";
import { openFile, openRun } from "./model.js";

const status = document.getElementById("status");
const tabs = [...document.querySelectorAll("[role=tab]")];
const opened = {};
// To look at from the console.
globalThis.playground = opened;

function say(text) {
  status.textContent = text;
  status.hidden = !text;
}

// Do something for the user, and say why if it fails.
async function attempt(work, text = "") {
  say(text);
  try {
    await work();
    say("");
  } catch (error) {
    say(`${error.message ?? error}`);
  }
}

function choose(tab, focus = false) {
  for (const each of tabs) {
    const chosen = each === tab;
    each.setAttribute("aria-selected", chosen);
    each.tabIndex = chosen ? 0 : -1;
    document.getElementById(each.getAttribute("aria-controls")).hidden = !chosen;
    if (!chosen) opened[each.getAttribute("aria-controls")]?.viewer.spin(false);
  }
  if (focus) tab.focus();
}

function current() {
  return tabs.find((tab) => tab.getAttribute("aria-selected") === "true").getAttribute("aria-controls");
}

tabs.forEach((tab, i) => {
  tab.addEventListener("click", () => choose(tab));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) choose(tabs[(i + step + tabs.length) % tabs.length], true);
  });
});

async function openModel(file) {
  opened.model = await openFile(file);
  document.getElementById("review").hidden = true;
}

function openPicture(file) {
  const tab = opened[current()];
  if (!tab) throw new Error("Open a model first.");
  return tab.open(file);
}

function connect(id, open) {
  document.getElementById(id).addEventListener("change", (event) => {
    const [file] = event.target.files;
    event.target.value = "";
    if (file) attempt(() => open(file));
  });
}

connect("open-digit", openPicture);
connect("open-image", openPicture);
connect("open-onnx", openModel);
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  const [file] = event.dataTransfer.files;
  if (!file) return;
  attempt(() => {
    if (!file.name.endsWith(".onnx")) return openPicture(file);
    choose(document.getElementById("tab-model"));
    return openModel(file);
  });
});

const run = document.body.dataset.run;
choose(document.getElementById(run ? "tab-model" : "tab-digits"));
await attempt(async () => {
  if (run) opened.model = await openRun(run);
  opened.digits = await openDigits();
}, "Loading the networks …");
// Once around, to show what it is about.
const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
if (!still) opened[current()]?.viewer?.spin(true, { once: true });
document.body.dataset.ready = "true";
