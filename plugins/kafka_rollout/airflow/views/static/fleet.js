import { ask, duration, follow, now, plural, time, withCommands } from "./common.js";
import { h, patch } from "./dom.js";

const REFRESH_S = 10;
const TYPING_MS = 250;
const FILES = ["csv", "json"];
const COLUMNS = ["Cluster", "State", "Why, and since when", "Release", "Health"];
const form = document.getElementById("filter");
const state = document.getElementById("state");
let timer = 0;
let asked = 0; // number of the newest request: an older answer is not shown

function query() {
  const chosen = new FormData(form);
  return new URLSearchParams({ show: chosen.get("show"), text: chosen.get("text") }).toString();
}

const age = (iso) => duration(now() - Date.parse(iso) / 1000);
const soft = (key, ...content) => h("span", { key, class: "soft" }, ...content);

function line(row) {
  const cell = (name, at, ...content) => h("td", { key: name, role: "cell", "data-column": name, "data-title": COLUMNS[at] }, ...content);
  return h("tr", { key: row.cluster, role: "row" },
    h("th", { scope: "row", role: "rowheader" }, h("a", { href: `./?cluster=${encodeURIComponent(row.cluster)}` }, row.cluster), row.needs_human && h("span", { class: "unseen" }, " needs a human")),
    cell("state", 1, row.is_open ? h("span", { key: "pill", class: `pill ${row.tone}` }, row.state) : soft("state", row.state || "–")),
    cell("why", 2, row.is_open ? h("span", { key: "why" }, row.why) : soft("why", withCommands(row.why)), row.since && soft("since", ` · ${age(row.since)}`)),
    cell("release", 3, row.release === "unknown" ? soft("unknown", "?") : row.release, row.is_open && row.done > 0 && h("div", { key: "bar", class: "bar", "aria-hidden": "true" }, h("i", { class: "good", "data-grow": String(row.done) }), h("i", { "data-grow": String(1 - row.done) }))),
    cell("health", 4, h("span", { class: row.health_tone }, row.health), row.observed && soft("observed", ` · ${age(row.observed)} ago`)));
}

function show(found) {
  time.offset = found.now - Date.now() / 1000;
  patch(document.querySelector("table"), [
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, COLUMNS.map((title) => h("th", { scope: "col", role: "columnheader" }, title)))),
    h("tbody", { role: "rowgroup" }, found.rows.map(line)),
  ]);
  for (const part of document.querySelectorAll("[data-grow]")) part.style.flexGrow = part.dataset.grow;
  for (const total of document.querySelectorAll("[data-total]")) total.textContent = `(${found.totals[total.dataset.total]})`;
  patch(document.getElementById("problems"), found.problems.map((problem) => h("li", {}, problem)));
  const { all, "needs-human": waiting, running } = found.totals;
  const shown = found.rows.length === all ? "" : `${found.rows.length} of `;
  state.textContent = `${shown}${plural(all, "cluster")} · ${waiting} ${waiting === 1 ? "needs" : "need"} a human · ${running} running · refreshed every ${REFRESH_S} s`;
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
