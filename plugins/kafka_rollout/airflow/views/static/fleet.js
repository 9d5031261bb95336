import { ask, follow } from "./common.js";
import { h, patch } from "./dom.js";

const REFRESH_S = 10;
const TYPING_MS = 250;
const FILES = ["csv", "json"];
const LINKS = { waits: "Answer", state: "Open the run", downgrade: "Options" };
const form = document.getElementById("filter");
const state = document.getElementById("state");
let timer = 0;
let asked = 0; // number of the newest request: an older answer is not shown

function query() {
  const chosen = new FormData(form);
  return new URLSearchParams({ show: chosen.get("show"), text: chosen.get("text") }).toString();
}

function cell(row, column, at) {
  const text = row.cells[at];
  if (!at) return h("th", { scope: "row", role: "rowheader" },
    h("a", { href: `./?cluster=${encodeURIComponent(row.cluster)}` }, text), row.needs_human && h("span", { class: "unseen" }, " needs a human"));
  const unknown = text === "unknown" || text === "never";
  const tone = unknown ? "unknown" : column.id === "health" && text !== "healthy" ? "bad" : null;
  const href = column.id in LINKS && row.links[column.id];
  const outside = href && href.startsWith("../");
  return h("td", { role: "cell", "data-column": column.id, "data-title": column.title, class: tone },
    h("span", {}, text), href && h("a", outside ? { href, target: "_top", on: { click: follow } } : { href }, LINKS[column.id]));
}

function show(found) {
  const line = (row) => h("tr", { key: row.cluster, role: "row", "data-tone": row.tone, class: row.needs_human ? "needs-human" : row.running ? "running" : null },
    found.columns.map((column, at) => cell(row, column, at)));
  patch(document.querySelector("table"), [
    h("thead", { role: "rowgroup" },
      h("tr", { role: "row" }, found.columns.map((column) => h("th", { scope: "col", role: "columnheader" }, column.title)))),
    h("tbody", { role: "rowgroup" }, found.rows.map(line)),
  ]);
  for (const total of document.querySelectorAll("[data-total]")) total.textContent = `(${found.totals[total.dataset.total]})`;
  patch(document.getElementById("problems"), found.problems.map((problem) => h("li", {}, problem)));
  state.textContent = `${found.rows.length} of ${found.totals.all} clusters, as of ${found.as_of}, refreshed every ${REFRESH_S} s.`;
}

// No request while the tab is hidden: the next refresh is planned only after an answer in a visible tab.
async function refresh() {
  clearTimeout(timer);
  timer = -1;
  const number = ++asked;
  for (const kind of FILES) document.getElementById(kind).href = `fleet/rows.${kind}?${query()}`;
  try {
    const found = await ask(`fleet/rows?${query()}`);
    if (number === asked) show(found);
  } catch (error) {
    if (number === asked) state.textContent = `Cannot refresh: ${error.message}.`;
  }
  if (number === asked) timer = document.hidden ? 0 : setTimeout(refresh, REFRESH_S * 1000);
}

function filterChanged() {
  const where = new URL(location.href);
  where.search = query();
  history.replaceState(null, "", where);
  clearTimeout(timer);
  timer = setTimeout(refresh, TYPING_MS);
}

const wanted = new URLSearchParams(location.search);
for (const one of form.elements.show) one.checked = one.value === (wanted.get("show") ?? "all");
form.elements.text.value = wanted.get("text") ?? "";
form.addEventListener("input", filterChanged);
form.addEventListener("submit", (event) => event.preventDefault());
for (const kind of FILES) document.getElementById(kind).addEventListener("click", follow);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && timer === 0) refresh();
  if (!document.hidden) return;
  clearTimeout(timer);
  timer = 0;
});
if (!document.hidden) refresh();
