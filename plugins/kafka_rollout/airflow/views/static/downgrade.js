import { VERDICTS, ask, link, plural, reportOfScan, state, time, when } from "./common.js";
import { h, patch } from "./dom.js";

const REFRESH_S = 60; // scans change once a day
const LOGS = { __consumer_offsets: "group coordinator", __transaction_state: "transaction coordinator" };
const STATES = { open: ["✔", "good"], closed: ["–", "soft"], unknown: ["?", "fair"] };
const POSSIBLE = { true: ["possible", ["✔", "good"]], false: ["not possible", ["–", "soft"]], null: ["unknown", ["?", "fair"]] };
const TITLES = { online: "Rolling", live: "Live", offline: "Offline" };
const cluster = new URLSearchParams(location.search).get("cluster") ?? "";
const page = { found: null, problem: "" };
const started = new Map(); // release and method → what became of the request

// ---- one option ----

const verdictOf = (log) => VERDICTS[log.verdict ?? "unknown"];

// A row with the answer, and one below it with everything that is known.
function optionOf(found, option) {
  const possible = option.methods.filter((one) => one.is_possible).map((one) => TITLES[one.name].toLowerCase());
  const short = option.logs.filter((log) => log.log in LOGS).map((log) => {
    const [word, sign] = verdictOf(log);
    return h("span", { key: log.log, class: "verdict" }, state(sign, word), h("span", { class: "soft" }, ` ${LOGS[log.log]}`));
  });
  return h("tbody", { key: `option ${option.release}`, role: "rowgroup", "aria-label": `Downgrade to ${option.release}` },
    h("tr", { role: "row" },
      h("th", { scope: "row", role: "rowheader" }, option.release, option.is_origin && h("span", { key: "origin", class: "soft" }, " the cluster came from it")),
      h("td", { role: "cell" }, state(STATES[option.state], option.state)), h("td", { role: "cell" }, short),
      h("td", { role: "cell" }, possible.join(", ") || "–"),
      h("td", { role: "cell" }, scanNow(found, option))),
    h("tr", { role: "row", class: "more" }, h("td", { role: "cell", colspan: "5" }, h("details", { class: "option" },
      h("summary", null, option.reasons[0]?.sentence ?? "Levels, logs, methods and history"),
      option.path.length > 1 && h("p", { key: "path" }, `Through ${option.path.join(" → ")} (KIP-915).`),
      option.reasons.length > 0 && h("ul", { key: "reasons", class: "reasons", "aria-label": "Why it is not open" }, option.reasons.map((one) =>
        h("li", { key: one.code + one.sentence }, one.code && h("strong", null, `${one.code} `), one.sentence, one.remedy && h("span", { class: "soft" }, ` ${one.remedy}`)))),
      h("h3", null, "Coordinator logs"), option.logs.map((log) => logOf(found, log)),
      h("h3", null, "Levels"),
      option.lowered.length ? h("ul", { key: "lowered", class: "reasons" }, option.lowered.map((one) => h("li", { key: one }, one))) : h("p", { key: "level" }, option.path.length ? "No level must be lowered." : "Unknown."),
      option.methods.length > 0 && [h("h3", { key: "title" }, "Methods"), h("div", { key: "methods", class: "methods" }, option.methods.map((method) => methodOf(found, option, method)))],
      option.last_plan && h("p", { key: "plan" }, "Last plan: ", when(option.last_plan.at), `, ${plural(option.last_plan.blockers.length, "blocker")}. `,
        h("a", { key: "run", href: `./?cluster=${encodeURIComponent(found.cluster)}&run=${option.last_plan.run}` }, `run ${option.last_plan.run}`),
        option.last_plan.blockers.length > 0 && h("ul", { class: "reasons" }, option.last_plan.blockers.map((one) => h("li", { key: one }, one)))),
      h("h3", null, "History"), past(found, option.history, "No stored scan or run has changed this option.")))));
}

// A scan evaluates the releases that it is given: those of this row, and of the other rows that are shown.
function scanNow(found, option) {
  if (!found.can_scan || option.state === "closed" || !option.path.length) return null;
  const key = `scan ${option.release}`;
  const asked = started.get(key) ?? {};
  const wanted = found.options.filter((one) => one === option || one.is_newest_patch || one.is_origin).flatMap((one) => one.path);
  const scan = () => startRun(found.scan_dag_id, { releases: [...new Set([...found.releases, ...wanted])] }, key);
  return [h("button", { key: "scan", type: "button", class: "plain", disabled: asked.sending || !!asked.run, on: { click: scan } }, asked.run ? "Scanning" : "Scan now"),
    asked.run && [" ", link("Open the scan", `../dags/${encodeURIComponent(found.scan_dag_id)}/runs/${encodeURIComponent(asked.run)}`)],
    asked.problem && h("p", { key: "problem", class: "bad", role: "alert" }, asked.problem)];
}

function logOf(found, log) {
  const [word, sign] = verdictOf(log);
  return h("div", { key: `log ${log.log}` },
    h("p", null, h("strong", null, log.log), ` (${LOGS[log.log] ?? "coordinator of share groups"}): `, state(sign, word), ` ${log.sentence}`),
    log.records.length > 0 && h("ul", { class: "records" }, log.records.map((one) =>
      h("li", { key: one.title }, h("strong", null, plural(one.count, "record")), one.current !== null && ` (${one.current.toLocaleString("en")} current)`, ` of ${one.title}: `,
        h("span", { class: one.stops ? "bad" : "fair" }, one.stops ? "they prevent it. " : "they are ignored. "), h("span", { class: "soft" }, `${one.reason}. First: ${one.first.join("; ")}`)))),
    log.kinds > log.records.length && h("p", { key: "more" }, `${log.kinds - log.records.length} more kinds. `, fullList(found)),
    log.records.length > 0 && log.kinds <= log.records.length && h("p", { key: "all" }, fullList(found)));
}

const fullList = (found) => (found.scan_run
  ? link("Full list with groups and remedies", reportOfScan(found.scan_dag_id, found.scan_run), "_blank")
  : h("code", { key: "list" }, `kafka-rollout scans report --cluster ${found.cluster} --scan ${found.scan}`));

const fact = (name, value) => value && h("div", { key: name, class: "fact" }, h("dt", null, name), h("dd", null, value));

function methodOf(found, option, method) {
  const [word, sign] = POSSIBLE[method.is_possible];
  const key = `${option.release} ${method.name}`;
  const asked = started.get(key) ?? {};
  const start = () => startRun(found.dag_id, method.parameters, key);
  return h("section", { key: method.name, class: "method", "aria-label": `${TITLES[method.name]} downgrade to ${option.release}` },
    h("h4", null, `${TITLES[method.name]} `, state(sign, word)), h("p", null, method.why),
    method.command && h("dl", { key: "facts", class: "facts" },
      fact("Unavailable", method.outage), fact("Restarts", plural(method.restarts, "restart")), fact("Duration", method.takes), fact("Undo", method.undo)),
    method.command && h("pre", { key: "command" }, method.command),
    method.command && (found.can_start
      ? h("p", { key: "start" }, h("button", { type: "button", class: "start", disabled: asked.sending || !!asked.run, on: { click: start } }, "Start this dry run"), " ",
        asked.run && link("Open the run", `../dags/${encodeURIComponent(found.dag_id)}/runs/${encodeURIComponent(asked.run)}`))
      : h("p", { key: "no", class: "soft" }, `You cannot start runs of ${found.dag_id}.`)),
    asked.problem && h("p", { key: "problem", class: "bad", role: "alert" }, asked.problem));
}

// A dry run and a scan change nothing. Airflow checks the right of the user; its menu "Trigger again with config" then has the form filled.
async function startRun(dag, conf, key) {
  started.set(key, { sending: true });
  draw();
  try {
    const body = JSON.stringify({ logical_date: null, conf });
    const address = `../api/v2/dags/${encodeURIComponent(dag)}/dagRuns`;
    const run = await ask(address, { method: "POST", headers: { "Content-Type": "application/json" }, body });
    started.set(key, { run: run.dag_run_id });
  } catch (error) {
    started.set(key, { problem: `Nothing was started: ${error.message}.` });
  }
  draw();
}

function past(found, changes, none) {
  if (!changes.length) return h("p", { key: "none", class: "soft" }, none);
  return h("ol", { key: "past", class: "past" }, changes.map((one) => h("li", { key: `${one.at} ${one.sentence}` }, when(one.at), " ", one.state && state(STATES[one.state], one.state), ` ${one.sentence}`)));
}

// ---- the page ----

function draw() {
  const found = page.found;
  const line = document.getElementById("state");
  line.textContent = page.problem ? `Cannot refresh: ${page.problem}.` : "";
  line.className = page.problem ? "bad" : "soft";
  if (!found) return;
  const isShown = (one) => one.is_newest_patch || one.is_origin;
  const others = found.options.filter((one) => !isShown(one));
  const table = (some, key) => h("div", { key, class: "scroll card", role: "region", "aria-label": key, tabindex: "0" }, h("table", { role: "table" },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ["Release", "Downgrade", "Coordinator logs", "Possible methods", "Scan"].map((title) => h("th", { scope: "col", role: "columnheader" }, title)))),
    some.map((option) => optionOf(found, option))));
  const at = (name, seconds) => h("span", { key: name, class: "soft" }, `${name} `, seconds === null ? "never" : when(seconds));
  patch(document.getElementById("options"), [
    h("div", { key: "head", class: "head" }, h("strong", null, h("a", { href: `./?cluster=${encodeURIComponent(found.cluster)}` }, found.cluster)),
      h("span", null, `runs ${found.releases.join(", ") || "an unknown release"}`), at("observed", found.observed_at), at("scanned", found.scanned_at), at("checked", found.checked_at),
      found.scan && fullList(found), link("DAG", `../dags/${encodeURIComponent(found.dag_id)}`)),
    found.problem && h("p", { key: "problem", class: "fair" }, found.problem),
    h("p", { key: "rule", class: "soft" }, "Open: a fresh scan proves that the release loads both coordinator logs, and its levels can be reached. Metadata logs, losses and users of features are checked by the dry run."),
    found.options.length > 0 && table(found.options.filter(isShown), "Releases"),
    others.length > 0 && h("details", { key: "others" }, h("summary", null, h("h2", null, `Older patch releases (${others.length})`)), table(others, "Older patch releases")),
    found.of_methods.length > 0 && h("section", { key: "methods", "aria-label": "Changes of the methods" }, h("h2", null, "Changes of rolling and live"), past(found, found.of_methods, "")),
  ].filter(Boolean));
}

let timer = 0;

async function refresh() {
  timer = -1;
  try {
    page.found = await ask(`downgrade/options?${new URLSearchParams({ cluster })}`);
    time.offset = page.found.as_of - Date.now() / 1000;
    page.problem = "";
  } catch (error) {
    page.problem = error.message;
  }
  draw();
  timer = document.hidden ? 0 : setTimeout(refresh, REFRESH_S * 1000);
}

document.title = `Downgrade options: ${cluster}`;
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && timer === 0) refresh();
});
refresh();
