// Sorting and filtering. The state lives in the address: #method=B-CNN*&regime=low&sort=cells:here:desc
"use strict";
const FIELDS = ["method", "data_set", "augmentation", "regime"];
const form = document.getElementById("filters");
const marked = document.querySelectorAll(FIELDS.map(f => `[data-${f}]`).join(","));

function distinct(field) {
  const found = new Set();
  for (const element of marked) {
    const value = element.getAttribute(`data-${field}`);
    if (value) found.add(value);
  }
  return [...found];
}

// As in --only: * stands for anything, ? for a letter, everything else for itself.
function matcher(pattern) {
  const escaped = pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*/g, ".*").replace(/\?/g, ".");
  return new RegExp(`^${escaped}$`, "i");
}

function isEmpty(table) {
  const columns = [...table.tHead.rows[0].cells].filter(head => head.dataset.data_set);
  return [...table.tBodies[0].rows].every(row => row.hidden)
    || (columns.length > 0 && columns.every(head => head.hidden));
}

function applyFilters(state) {
  const wanted = FIELDS.filter(f => state.get(f)).map(f => [f, matcher(state.get(f))]);
  for (const element of marked) {
    const fits = wanted.every(([field, regex]) => {
      const value = element.getAttribute(`data-${field}`);
      return !value || regex.test(value);
    });
    const ran = state.get("run") !== "1" || element.getAttribute("data-run") !== "0";
    element.hidden = !(fits && ran);
  }
  for (const section of document.querySelectorAll("section")) {
    // Leave out what the filters have emptied: tables without rows or columns, and then whole sections.
    const tables = [...section.querySelectorAll("table")];
    tables.forEach(table => { table.parentElement.hidden = isEmpty(table); });
    const figures = [...section.querySelectorAll("figure")];
    const parts = [...tables.map(table => table.parentElement), ...figures];
    section.hidden = parts.length > 0 && parts.every(part => part.hidden);
    document.querySelector(`nav a[href="#${section.id}"]`).parentElement.hidden = section.hidden;
  }
  const rows = [...document.querySelectorAll("#cells tbody tr")];
  document.getElementById("count").textContent =
    rows.length ? `${rows.filter(row => !row.hidden).length} of ${rows.length} cells` : "";
}

// The order in which the page was written.
for (const row of document.querySelectorAll("tbody tr")) row.dataset.place = row.rowIndex;

function unsortTable(table) {
  [...table.tHead.rows[0].cells].forEach(head => head.removeAttribute("aria-sort"));
  const body = table.tBodies[0];
  [...body.rows].sort((a, b) => a.dataset.place - b.dataset.place).forEach(row => body.append(row));
}

function sortTable(table, name, direction) {
  const heads = [...table.tHead.rows[0].cells];
  const index = heads.findIndex(head => head.dataset.sort === name);
  if (index < 0) return;
  heads.forEach(head => head.removeAttribute("aria-sort"));
  heads[index].setAttribute("aria-sort", direction === "desc" ? "descending" : "ascending");
  const key = row => row.cells[index].dataset.value ?? row.cells[index].textContent.trim();
  const sign = direction === "desc" ? -1 : 1;
  const compare = (a, b) => {
    const [x, y] = [key(a), key(b)];
    // Missing values come last in both directions.
    if (x === "" || y === "") return (x === "") - (y === "");
    const [p, q] = [Number(x), Number(y)];
    return sign * (Number.isNaN(p) || Number.isNaN(q) ? x.localeCompare(y) : p - q);
  };
  const body = table.tBodies[0];
  [...body.rows].sort(compare).forEach(row => body.append(row));
}

function readState() {
  return new URLSearchParams(location.hash.slice(1));
}

function writeState(state) {
  for (const key of [...state.keys()]) if (!state.get(key)) state.delete(key);
  history.replaceState(null, "", `#${state}`);
}

function show() {
  const state = readState();
  for (const field of FIELDS) {
    const [element, value] = [form.elements[field], state.get(field) ?? ""];
    element.value = value;
    if (element.value !== value) {  // a pattern from the address that is no choice of the list yet
      element.append(new Option(value, value));
      element.value = value;
    }
  }
  form.elements.run.checked = state.get("run") === "1";
  applyFilters(state);
  document.querySelectorAll("table").forEach(unsortTable);
  const [table, name, direction] = (state.get("sort") ?? "").split(":");
  const element = table && document.getElementById(table);
  if (element) sortTable(element, name, direction);
}

for (const field of ["data_set", "augmentation", "regime"]) {
  form.elements[field].append(new Option("all", ""), ...distinct(field).map(v => new Option(v, v)));
}
document.getElementById("methods").append(...distinct("method").map(v => new Option(v, v)));

form.addEventListener("input", () => {
  const state = readState();
  for (const field of FIELDS) state.set(field, form.elements[field].value.trim());
  state.set("run", form.elements.run.checked ? "1" : "");
  writeState(state);
  applyFilters(state);
});
form.addEventListener("reset", event => {
  event.preventDefault();
  history.replaceState(null, "", "#");
  show();
});
function clickHead(table, head) {
  // Numbers from the highest, names from the first.
  const index = head.cellIndex;
  const numbers = [...table.tBodies[0].rows].some(row => row.cells[index].dataset.value);
  const now = head.getAttribute("aria-sort");
  const direction = now ? (now === "descending" ? "asc" : "desc") : (numbers ? "desc" : "asc");
  const state = readState();
  state.set("sort", `${table.id}:${head.dataset.sort}:${direction}`);
  writeState(state);
  sortTable(table, head.dataset.sort, direction);
}

for (const table of document.querySelectorAll("table")) {
  for (const head of table.tHead.rows[0].cells) {
    head.addEventListener("click", () => clickHead(table, head));
    head.addEventListener("keydown", event => { if (event.key === "Enter") clickHead(table, head); });
  }
}
// The address is taken by the state, so places in the page are reached without it.
for (const link of document.querySelectorAll("nav a")) {
  link.addEventListener("click", event => {
    event.preventDefault();
    document.getElementById(link.hash.slice(1)).scrollIntoView();
  });
}
window.addEventListener("hashchange", show);
show();
