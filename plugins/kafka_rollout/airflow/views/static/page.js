"use strict";
// All contents are inserted as text, because names of a cluster and reasons of an approver are not markup.
const wanted = new URLSearchParams(location.search);
const opened = new Set();

function el(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function duration(seconds) {
  const whole = Math.round(seconds);
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
}

// Airflow's frame does not allow links to open pages, so the page around the frame follows the link.
function follow(event) {
  if (window.parent === window) return;
  event.preventDefault();
  const outer = window.parent.document.createElement("a");
  outer.href = event.currentTarget.href;
  outer.target = event.currentTarget.target;
  outer.rel = "noopener";
  outer.click();
}

function link(text, href, target = "_top") {
  const node = el("a", text);
  node.href = href;
  node.target = target;
  node.addEventListener("click", follow);
  return node;
}

function nodeChips(run) {
  const row = el("p", undefined, "nodes");
  for (const node of run.nodes) {
    const chip = el("span", node.name, `chip ${node.state.replace(" ", "-")}`);
    chip.title = `${node.name} to ${node.release}: ${node.state}`;
    row.append(chip);
  }
  const done = run.nodes.filter((node) => node.state === "done").length;
  row.append(el("span", `${done} of ${run.nodes.length} nodes done`, "soft"));
  return row;
}

function stepList(run) {
  const list = el("ol", undefined, "steps");
  for (const step of run.steps) {
    const at = step.at ? ` at ${new Date(step.at * 1000).toLocaleTimeString()}` : "";
    list.append(el("li", `${step.label}: ${step.state}${at}${step.reason ? ` (${step.reason})` : ""}`, step.state));
  }
  return list;
}

function runCard(run, lock) {
  const card = el("article");
  const head = el("div", undefined, "head");
  head.append(el("strong", run.way || "not planned yet"));
  head.append(el("span", (run.outcome || run.state).replaceAll("_", " "), run.outcome || ""));
  head.append(el("span", duration(run.elapsed_s), "soft"));
  const id = encodeURIComponent(run.run_id);
  if (run.dag_id) head.append(link("run", `../dags/${run.dag_id}/runs/${id}`));
  if (run.has_report) {
    head.append(link("report", `dags/${run.dag_id}/report?run_id=${id}`, "_blank"));
  }
  head.append(el("span", run.run_id, "soft"));
  card.append(head);
  if (run.nodes.length && !run.outcome) card.append(nodeChips(run));
  card.append(el("p", run.sentence || run.now, "now"));
  if (!run.outcome && lock && lock.holder === run.run_id && lock.purpose.includes("waits for")) {
    const asks = el("p", `It ${lock.purpose} `, "asks");
    asks.append(link("Answer", `../dags/${run.dag_id}/runs/${id}/required_actions`));
    card.append(asks);
  }
  if (run.estimate) card.append(el("p", `Remaining time: ${run.estimate}.`, "soft"));
  const details = el("details");
  details.open = opened.has(run.run_id) || wanted.get("run_id") === run.run_id;
  details.addEventListener("toggle", () => (details.open ? opened.add(run.run_id) : opened.delete(run.run_id)));
  details.append(el("summary", "Events"), el("pre", run.lines.join("\n")), stepList(run));
  card.append(details);
  return card;
}

const VERDICTS = {
  loads: ["loads", "done"], loads_ignoring: ["loads, ignores some", "now"], fails: ["fails", "bad"], loses: ["loses ids", "bad"],
  not_loaded: ["not loaded", ""], unknown: ["unknown", "bad"],
};

function age(seconds) {
  if (seconds < 120) return "just now";
  if (seconds < 7200) return `${Math.round(seconds / 60)} minutes ago`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} hours ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

// Verdict of each release in the newest scan.
function scanCard(found) {
  const card = el("article", undefined, "scan");
  const head = el("div", undefined, "head");
  head.append(el("strong", "Coordinator logs"));
  const scan = found.scan;
  if (scan) {
    head.append(el("span", `scanned ${age(Date.now() / 1000 - scan.scanned_at)}`, found.overdue ? "bad" : "soft"));
    const places = `${scan.partitions} partition${scan.partitions === 1 ? "" : "s"}`;
    head.append(el("span", `${scan.records.toLocaleString("en")} records in ${places}`, "soft"));
    const id = encodeURIComponent(scan.run_id);
    head.append(link("report", `dags/${found.dag_id}/scan?run_id=${id}&task_id=scan_coordinator_logs`, "_blank"));
  }
  head.append(link("scans", `../dags/${found.dag_id}/runs`));
  card.append(head);
  if (scan) {
    const row = el("p", undefined, "nodes");
    for (const [release, verdict] of Object.entries(scan.verdicts)) {
      const [words, tone] = VERDICTS[verdict];
      const chip = el("span", `${release} ${words}`, `chip ${tone}`);
      chip.title = `Result if the coordinators of ${release} load these logs`;
      row.append(chip);
    }
    card.append(row);
  }
  if (found.overdue) card.append(el("p", "Overdue: no scan in the last full schedule interval.", "asks bad"));
  if (found.failed) card.append(el("p", `${found.failed.headline} ${found.failed.sentences.join(" ")}`, "asks bad"));
  if (found.alerts.length) {
    const details = el("details");
    const key = `alerts of ${found.cluster}`;
    details.open = opened.has(key);
    details.addEventListener("toggle", () => (details.open ? opened.add(key) : opened.delete(key)));
    const lines = found.alerts.flatMap((alert) => [
      `${new Date(alert.at * 1000).toLocaleString()}  ${alert.headline}`, ...alert.sentences.map((text) => `    ${text}`)]);
    details.append(el("summary", "Alerts"), el("pre", lines.join("\n")));
    card.append(details);
  }
  return card;
}

function show(clusters, scans) {
  const main = document.getElementById("clusters");
  const parts = [];
  const idle = [];
  const scanOf = new Map(scans.map((found) => [found.cluster, found]));
  for (const found of scans) {
    if (!clusters.some((cluster) => cluster.cluster === found.cluster))
      clusters.push({ cluster: found.cluster, lock: null, runs: [] });
  }
  const began = (cluster) => Math.max(0, ...cluster.runs.map((run) => run.began_at));
  for (const cluster of clusters.sort((one, other) => began(other) - began(one))) {
    const runs = cluster.runs.filter(
      (run) => !wanted.get("run_id") || (run.run_id === wanted.get("run_id") && run.dag_id === wanted.get("dag_id")));
    const scan = scanOf.get(cluster.cluster);
    const scanWanted = scan && (!wanted.get("run_id") || scan.dag_id === wanted.get("dag_id"));
    if (wanted.get("run_id") && !runs.length && !scanWanted) continue;
    if (!runs.length && !cluster.lock && !scan && !cluster.problem) {
      idle.push(cluster.cluster);
      continue;
    }
    parts.push(el("h2", cluster.cluster));
    const lock = cluster.lock;
    if (lock && !runs.some((run) => run.run_id === lock.holder && !run.outcome))
      parts.push(el("p", lock.holder ? `Locked by ${lock.holder}: ${lock.purpose}` : "Locked by a run that you cannot read.", "soft"));
    if (cluster.problem) parts.push(el("p", cluster.problem, "asks bad"));
    if (scanWanted) parts.push(scanCard(scan));
    parts.push(...runs.map((run) => runCard(run, lock)));
  }
  if (idle.length) parts.push(el("p", `No runs yet: ${idle.join(", ")}`, "soft"));
  main.replaceChildren(...parts);
}

async function ask(what) {
  const answer = await fetch(what, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(answer.status === 401 ? "sign in to Airflow first" : `Airflow responded with HTTP status ${answer.status}`);
  return answer.json();
}

const ACTIVE_S = 2; // between two refreshes while a run is in progress
const QUIET_S = 15;
let timer = 0;

// One refresh at a time: the next one is planned after the answer, and none while the tab is hidden.
async function refresh() {
  const state = document.getElementById("state");
  timer = -1;
  let pause = QUIET_S;
  try {
    const [clusters, scans] = await Promise.all([ask("runs"), ask("scans")]);
    show(clusters, scans);
    if (clusters.some((cluster) => cluster.lock || cluster.runs.some((run) => run.state === "in progress"))) pause = ACTIVE_S;
    state.textContent = `As of ${new Date().toLocaleTimeString()}, refreshed every ${pause} s.`;
  } catch (error) {
    state.textContent = `Cannot refresh: ${error.message}.`;
  }
  timer = document.hidden ? 0 : setTimeout(refresh, pause * 1000);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && timer === 0) refresh();
});
refresh();
