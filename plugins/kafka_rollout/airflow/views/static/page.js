import { VERDICTS, ask, clock, duration, follow, link, now, plural, reportOfScan, state, time, when } from "./common.js";
import { h, patch } from "./dom.js";

const ACTIVE_S = 2; // between two refreshes while a run is in progress
const QUIET_S = 15;
const SCANS_S = 60; // scans change once a day
const KAFKA_S = 10; // between two questions for the state of a cluster
const TRAFFIC_S = 15; // between two plots of a run in progress
const OLD_S = 60; // a state of the cluster that is older says nothing about its clients now
const ANSWER_AFTER_S = 6; // Airflow can lose an answer that comes before the asking process has ended
const SHOWN_OPEN = 12; // nodes of a rack that is not folded

const wanted = new URLSearchParams(location.search);
const page = { clusters: [], consoles: new Map(), kafka: new Map(), scans: [], scansAt: 0, problem: "", readAt: 0 };
const drafts = new Map(); // record id → answer that the user prepares
const seconds = (iso) => Date.parse(iso) / 1000;

// Each state: symbol and color. Red is for damage, amber for what waits for a person.
const STEP = {
  done: ["✔", "good"], begun: ["▶", "now"], failed: ["✖", "bad"], waiting: ["‖", "fair"], skipped: ["–", "soft"], open: ["○", "soft"],
};
const NODE = {
  "waiting": ["○", "soft"], "waiting for its gate": ["◔", "now"], "preparing its stop": ["▽", "now"], "stopping": ["▼", "now"], "stopped": ["■", "fair"],
  "starting": ["▲", "now"], "catching up": ["↻", "now"], "done": ["✔", "good"], "failed": ["✖", "bad"],
  "rolled back": ["↩", "fair"], "unchanged": ["–", "soft"],
};
// The color of a phase is `tone` of the status.
const PHASE = {
  "idle": "○", "planning": "▶", "waiting-for-approval": "‖", "rolling": "▶", "rolling-back": "↩", "waiting-for-decision": "‖",
  "finalizing": "▶", "paused": "‖", "finished": "✔", "failed": "✖", "rolled-back": "↩", "refused": "–", "dry-run": "–", "unknown": "?",
};
const OUTCOME = {
  finished: ["✔", "good"], rolled_not_finalized: ["✔", "fair"], rolled_back: ["↩", "fair"], stopped: ["✖", "bad"],
  refused: ["–", "fair"], dry_run: ["–", "soft"],
};
const TRENDS = { falls: "↓ it decreases", rises: "↑ it increases", stays: "→ it does not decrease" };

// ---- links ----

const runLink = (run) => run.dag_id && link("run in Airflow", `../dags/${encodeURIComponent(run.dag_id)}/runs/${encodeURIComponent(run.run_id)}`);
const reportLink = (run) => run.has_report && link("report", `dags/${encodeURIComponent(run.dag_id)}/report?run_id=${encodeURIComponent(run.run_id)}`, "_blank");
const optionsLink = (cluster) => h("a", { key: "options", href: `downgrade?cluster=${encodeURIComponent(cluster)}` }, "downgrade options");
const clusterLink = (text, cluster) => h("a", { key: text, href: `?cluster=${encodeURIComponent(cluster)}` }, text);

// ---- the console of a cluster ----

function consoleOf(found) {
  const run = found.run;
  const { phase, tone } = found.status;
  const symbol = PHASE[phase] ?? PHASE.unknown;
  const stopped = found.status.phase === "rolling" && run?.stop; // of all nodes or controllers, not of one after the other
  return h("article", { key: `console ${found.cluster}`, class: run?.needs_human ? "cluster needs" : "cluster", "data-tone": tone, "aria-label": `Cluster ${found.cluster}` },
    h("div", { class: "head" },
      h("h2", null, found.cluster),
      run && h("strong", { key: "title" }, run.title),
      stopped ? state(NODE.stopped, stopped.serves ? "controllers stopped" : "all nodes stopped") : state([symbol, tone], found.status.phase.replaceAll("-", " ")),
      run?.began_at && h("span", { key: "began", class: "soft" }, "began ", when(run.began_at)),
      run && runLink(run), run && reportLink(run), optionsLink(found.cluster),
      run && h("span", { key: "id", class: "soft" }, `run ${run.number}`)),
    found.problem && h("p", { key: "problem", class: "bad" }, found.problem),
    lockLine(found),
    found.other && h("p", { key: "other", class: "fair" }, "Another run of this cluster needs attention: ", clusterLink("show it", found.cluster), "."),
    run && attention(found, run),
    run && !run.needs_human && endOrNow(found, run),
    run && progress(run),
    run && requested(found),
    run && controls(found, run),
    kafkaNow(found),
    run && h("div", { key: "work", class: "columns" },
      h("div", null, batches(run), gates(run), logLines(run), racks(run), traffic(run), findings(run), events(run)),
      h("div", null, steps(run))),
    !run && h("p", { key: "idle" }, found.status.next_action),
    otherRuns(found));
}

function lockLine(found) {
  const lock = found.lock;
  if (!lock || (found.run && lock.holder === found.run.run_id)) return null;
  const text = lock.holder ? `The lock is held by run ${lock.number}: ${lock.purpose}` : "The lock is held by a run that you cannot read.";
  return h("p", { key: "lock", class: "fair" }, text);
}

const fact = (name, ...value) => h("div", { key: name, class: "fact" }, h("dt", null, name), h("dd", null, ...value));

function attention(found, run) {
  const status = found.status;
  const waits = status.waits_for;
  const needs = status.conditions.find((one) => one.type === "NeedsHuman");
  const title = { "waiting-for-approval": "An approval is needed", "waiting-for-decision": "A decision is needed", "paused": "The run is paused", "failed": "The run failed" }[run.phase];
  if (!run.needs_human) return null;
  // The reason is in `why`. Of a cause that is counted, the number and how it changes.
  const blocking = run.gates.flatMap((gate) => gate.conditions.filter((one) => !one.is_met && !one.needs_others && one.left));
  return h("section", { key: "attention", class: "attention", "data-tone": status.tone, "aria-label": "What needs a human" },
    h("h3", null, h("span", { "aria-hidden": "true" }, `${PHASE[run.phase] ?? PHASE.unknown} `), title ?? "The state is unknown"),
    h("p", { class: "why" }, run.why),
    h("dl", { class: "facts" },
      needs?.since && fact("Since", when(seconds(needs.since))),
      blocking.map((one) => fact(`Not met: ${one.name}`, `${one.left.toLocaleString("en")} left`, one.trend && trend(one))),
      run.stopped && fact("Nodes", run.stopped),
      fact("Clients", clients(found)),
      waits && fact("Who can answer", waits.who.join(", ")),
      waits?.until && fact("Answer until", when(seconds(waits.until)), " Then the task fails. A timeout is never an approval."),
      fact("Notified", notified(run)),
      !run.request && fact("What to do", status.next_action)),
    run.request && answer(found, run, waits));
}

function trend(condition) {
  const { way, before, over_s } = condition.trend;
  return h("span", { key: "trend", class: way === "falls" ? "good" : "fair" }, `; ${duration(over_s)} before: ${before.toLocaleString("en")} ${TRENDS[way]}`);
}

function notified(run) {
  if (!run.notified.length) return "No notification was sent on a channel.";
  return run.notified.flatMap((one, at) => [at ? "; " : "", `${one.channel} (${one.kind}): `, one.is_sent ? "sent " : "not sent ", when(one.at), one.problem && ` ${one.problem}`]);
}

// ---- the answer, by Airflow's own API and with the rights of the user ----

const api = (run) => `../api/v2/dags/${encodeURIComponent(run.dag_id)}/dagRuns/${encodeURIComponent(run.run_id)}`;

function answer(found, run, waits) {
  const request = run.request;
  const instance = request.map_index < 0 ? "" : `/mapped/${request.map_index}`;
  const form = link("Airflow's form", `../dags/${encodeURIComponent(run.dag_id)}/runs/${encodeURIComponent(run.run_id)}/tasks/${encodeURIComponent(request.task_id)}${instance}/required_actions`);
  if (!run.can_answer) {
    return h("p", { key: "cannot", class: "why" }, `You cannot answer this request. It can be answered by ${waits.who.join(", ")}.`);
  }
  const id = `${request.record_id} ${request.asked_at}`; // a repeated request has the same record
  if (!drafts.has(id)) {
    drafts.set(id, { option: "", reason: "", sending: false, sent: "", problem: "", body: null, name: "" });
    readRequest(run, request, drafts.get(id));
  }
  const draft = drafts.get(id);
  if (draft.sent) return h("p", { key: "sent", class: "why", role: "status" }, draft.sent);
  const early = now() < request.asked_at + ANSWER_AFTER_S;
  const ready = draft.option && draft.reason.trim() && draft.body !== null && !page.problem && !draft.sending && !early;
  return h("form", { key: `answer ${id}`, class: "answer", on: { submit: (event) => { event.preventDefault(); send(run, request, draft); } } },
    draft.body && h("details", { key: "body", open: run.phase === "waiting-for-approval" || !run.gates.length }, h("summary", null, "Text of the request"), h("div", { class: "request", tabindex: "0", role: "region", "aria-label": "Text of the request" }, markdown(draft.body))),
    h("fieldset", null, h("legend", null, "Your answer"),
      request.choices.map((choice) => h("label", { key: choice.option, class: choice.undoes ? "choice undoes" : "choice" },
        h("input", { type: "radio", name: `answer ${id}`, value: choice.option, on: { change: () => { draft.option = choice.option; draw(); } } }),
        h("span", null, h("strong", null, choice.option), choice.consequence && `: ${choice.consequence}`))),
      h("p", { key: "nothing", class: "soft" }, "Without an answer the run waits, holds the lock, and changes nothing."),
      reasonField(draft),
      h("div", { class: "head" },
        h("button", { type: "submit", disabled: !ready }, draft.sending ? "Sending…" : draft.option ? `Answer: ${draft.option}` : "Answer"),
        h("span", { class: "soft" }, early ? "Airflow still parks the task: you can answer in a few seconds." : page.problem ? "The page has no newer state." : !draft.option ? "Choose an answer." : !draft.reason.trim() ? "Write a reason." : ""),
        h("span", { class: "soft" }, "or use ", form)),
      draft.problem && h("p", { key: "problem", class: "bad", role: "alert" }, draft.problem)));
}

// Airflow's record of exactly this request: a cleared task asks again with another record.
async function recordOf(run, request) {
  const { hitl_details: details } = await ask(`${api(run)}/hitlDetails?limit=100`);
  return details.find((one) => one.task_instance.id === request.record_id);
}

function reasonField(draft) {
  return h("label", { key: "reason", class: "reason" }, "Reason, as a sentence. It is stored in the run history.",
    h("textarea", { rows: "2", required: true, maxlength: "2000", on: { input: (event) => { draft.reason = event.target.value; draw(); } } }));
}

// Airflow keeps the text of the first request. A later one begins with it, and adds what has changed since.
async function readRequest(run, request, draft) {
  try {
    const detail = await recordOf(run, request);
    const [first, newest] = [detail?.body ?? "", run.asked.lines.map((pieces) => pieces.join("")).join("\n")];
    const added = newest.startsWith(first) ? newest.slice(first.length) : "";
    if (detail) Object.assign(draft, { first, body: first + added, name: added ? run.asked.name : detail.params?.request?.value });
  } catch (error) {
    draft.problem = `Airflow does not show the text of the request: ${error.message}.`;
  }
  draw();
}

async function send(run, request, draft) {
  if (draft.sending || !draft.option || !draft.reason.trim()) return;
  Object.assign(draft, { sending: true, problem: "" });
  draw();
  try {
    const detail = await recordOf(run, request);
    if (!detail || (detail.body ?? "") !== draft.first) throw new Error("the task asks something else now. Read its new request");
    const address = `${api(run)}/taskInstances/${encodeURIComponent(request.task_id)}/${request.map_index}/hitlDetails`;
    const body = JSON.stringify({ chosen_options: [draft.option], params_input: { reason: draft.reason.trim(), request: draft.name } });
    await ask(address, { method: "PATCH", headers: { "Content-Type": "application/json" }, body });
    draft.sent = `You answered “${draft.option}” at ${clock(now())}. Airflow continues the task in a moment.`;
  } catch (error) {
    draft.problem = `The answer was not taken: ${error.message}. Check who has answered, or use Airflow's form.`;
  }
  draft.sending = false;
  draw();
  plan(ACTIVE_S);
}

// Headings, lists, emphasis and code of the project's own Markdown; everything else is shown as it is.
function markdown(text) {
  const plain = (part) => part.replace(/(?<!\\)([`*])([^\s`*\\][^`*\\]*)\1/g, "$2").replace(/\\([!-/:-@[-`{-~])/g, "$1");
  const inline = (line) => line.split(/(\*\*(?:[^*\\]|\\.)+\*\*)/).map((part) => (/^\*\*.+\*\*$/.test(part) ? h("strong", null, plain(part.slice(2, -2))) : plain(part)));
  return text.split("\n").filter((line) => line.trim() && line.trim() !== "---").map((line) => {
    const heading = /^#+ (.*)$/.exec(line);
    if (heading) return h("h4", null, inline(heading[1]));
    const item = /^\s*(?:[-*]|\d+\.) (.*)$/.exec(line);
    return item ? h("p", { class: "item" }, "• ", inline(item[1])) : h("p", null, inline(line));
  });
}

// ---- the cluster as Kafka shows it ----

const kafkaOf = (found) => page.kafka.get(found.cluster) ?? { state: null, problem: "" };

function clients(found) {
  const stop = found.run?.stop;
  if (stop) return h("span", { class: stop.serves ? "fair" : "bad" }, h("strong", null, stop.clients), " Since ", when(stop.since), ".");
  const { state: kafka, problem } = kafkaOf(found);
  if (kafka && (problem || now() - kafka.observed_at > OLD_S)) {
    return h("span", { class: "fair" }, "The effect on clients is unknown now. ", when(kafka.observed_at), `: ${kafka.clients}`);
  }
  return kafka ? h("span", { class: { true: "good", false: "bad", null: "fair" }[kafka.serves] }, kafka.clients) : "The effect on clients is unknown.";
}

function kafkaNow(found) {
  const { state: kafka, problem } = kafkaOf(found);
  const isOld = kafka && found.run?.stop && kafka.observed_at < found.run.stop.since; // from before the stop of all nodes
  const toneOf = ({ number, tone }) => (number === 0 && isOld ? "soft" : tone);
  const count = (name, { number, objects, trend: change, tone }) => h("div", { key: name, class: "count" },
    h("p", null, h("strong", { class: toneOf({ number, tone }) }, number === null ? "unknown" : number.toLocaleString("en")), ` ${name}`, number > 0 && change && trend({ trend: change })),
    listOf(number, objects));
  return h("section", { key: "kafka", class: "kafka", "aria-label": `Kafka now: ${found.cluster}` },
    h("h3", null, "Kafka now ", h("span", { class: "soft" }, kafka && when(kafka.observed_at), isOld && ", before the stop")),
    problem && h("p", { key: "problem", class: "fair" }, kafka ? `There is no newer state: ${problem}` : `The state is unknown: ${problem}`),
    !kafka && !problem && h("p", { key: "wait", class: "soft" }, "The cluster is being asked."),
    kafka && [
      h("p", { key: "clients" }, clients(found)),
      h("div", { key: "counts", class: "counts" }, Object.entries(kafka.counts).map(([name, counted]) => count(name, counted))),
      h("p", { key: "facts", class: "soft" }, kafka.controller === null ? h("strong", { class: "bad" }, "No active controller is known") : `Active controller ${kafka.controller}`,
        kafka.most_lag !== null && `, quorum lag at most ${plural(kafka.most_lag, "record")}`, kafka.partitions !== null && `, ${plural(kafka.partitions, "partition")}`,
        Object.keys(kafka.levels).length > 0 && `. Finalized levels: ${Object.entries(kafka.levels).sort().map(([name, level]) => `${name} ${level}`).join(", ")}.`),
      kafka.problems.map((text) => h("p", { key: text, class: "fair" }, text))]);
}

// ---- what happens ----

function endOrNow(found, run) {
  const last = run.lines.at(-1);
  return h("p", { key: "now", class: "why" }, run.why || (last && [last.text, " ", when(last.at)]) || found.status.next_action, run.stopped && !found.status.phase.startsWith("finished") && h("span", { class: "soft" }, ` ${run.stopped}`),
    run.stop && h("span", { key: "stop" }, " ", clients(found)));
}

function progress(run) {
  const all = run.nodes;
  if (!all.length) return null;
  const done = all.filter((node) => ["done", "rolled back"].includes(node.phase)).length;
  const estimate = run.estimate;
  // A batch that takes longer than those before it moves the end of all later ones.
  const end = (seconds) => Math.max(estimate.since + seconds, now() + seconds * (1 - 1 / estimate.batches));
  const from = estimate && end(estimate.at_least_s);
  const to = estimate && end(estimate.at_most_s);
  const between = estimate && (clock(from) === clock(to) ? `at ${clock(from)} (in ${duration(from - now())})` : `between ${clock(from)} and ${clock(to)} (${duration(from - now())} to ${duration(to - now())})`);
  return h("div", { key: "progress", class: "progress" },
    h("progress", { max: String(all.length), value: undefined, "aria-label": "Nodes that are done" , "data-done": String(done) }),
    h("span", null, `${done} of ${plural(all.length, "node")} done`),
    estimate && !run.needs_human && h("span", { key: "end", class: "soft" }, `The last node is expected ${between}, without approvals.`),
    run.way_back && h("span", { key: "back", class: "soft" }, run.way_back));
}

// ---- pause, resume and stop ----

function requested(found) {
  const asked = found.status.conditions.find((one) => one.type === "Requested" && one.status === "True");
  return asked ? h("p", { key: "requested", class: "fair", role: "status" }, asked.message) : null;
}

const CONTROLS = { pause: "Pause", resume: "Resume", stop: "Stop" };

function controls(found, run) {
  if (!run.controls.length) return null;
  const key = `control ${run.run_id}`;
  if (!drafts.has(key)) drafts.set(key, { reason: "", sending: false, sent: "", problem: "" });
  const draft = drafts.get(key);
  const ready = draft.reason.trim() && !draft.sending;
  return h("details", { key: "controls", class: "controls" }, h("summary", null, run.controls.map((action, at) => (at ? action : CONTROLS[action])).join(" or "), " this run"),
    h("p", { class: "soft" }, "A stop ends each wait. A node that was stopped is started first. A paused run waits before its next node and keeps its lock."),
    reasonField(draft),
    h("div", { class: "head" }, run.controls.map((action) => h("button", { key: action, type: "button", disabled: !ready, on: { click: () => sendControl(run, action, draft) } }, CONTROLS[action]))),
    draft.sent && h("p", { key: "sent", role: "status" }, draft.sent),
    draft.problem && h("p", { key: "problem", class: "bad", role: "alert" }, draft.problem));
}

async function sendControl(run, action, draft) {
  Object.assign(draft, { sending: true, sent: "", problem: "" });
  draw();
  try {
    const body = JSON.stringify({ run_id: run.run_id, action, reason: draft.reason.trim() });
    const said = await ask(`dags/${encodeURIComponent(run.dag_id)}/control`, { method: "POST", headers: { "Content-Type": "application/json" }, body });
    draft.sent = said.message;
  } catch (error) {
    draft.problem = `Nothing was asked of the run: ${error.message}.`;
  }
  draft.sending = false;
  draw();
  plan(ACTIVE_S);
}

// Before the first sample, and without matplotlib, there is no plot.
function showPlot(event) {
  event.target.closest("section").hidden = event.type === "error";
}

// The plot of the test traffic on the time axis of the node steps; the server draws it at most every 10 s.
function traffic(run) {
  if (!run.has_traffic || !run.nodes.length) return null;
  const at = run.has_report ? "end" : Math.floor(now() / TRAFFIC_S);
  const src = `dags/${encodeURIComponent(run.dag_id)}/traffic.svg?${new URLSearchParams({ run_id: run.run_id, at })}`;
  return h("section", { key: "traffic", "aria-label": "Test traffic" }, h("h3", null, "Test traffic and node steps"),
    h("a", { href: src, target: "_blank", rel: "noopener", on: { click: follow } }, h("img", { class: "plot", src, on: { load: showPlot, error: showPlot }, alt: "Records per second, latency, failed requests, under-replicated partitions and lag over the node steps. The report has them as numbers." })));
}

function steps(run) {
  return h("section", { key: "steps", "aria-label": "Steps of the run" }, h("h3", null, "Steps"),
    h("ol", { class: "steps" }, run.steps.map((step, at) => h("li", { key: step.id, class: `step ${STEP[step.state][1]}${step.id === run.current_step ? " current" : ""}`, "aria-current": step.id === run.current_step ? "step" : null },
      state(STEP[step.state], step.state), " ", h("span", { class: "label" }, step.label),
      (step.at || step.reason) && h("span", { class: "soft detail" }, step.at && clock(step.at), step.reason && step.reason !== run.steps[at - 1]?.reason && ` ${step.reason}`)))));
}

function batches(run) {
  if (!run.batches?.open.length) return null;
  const { done, total, open } = run.batches;
  const waiting = total - done - open.length;
  return h("section", { key: "batches", "aria-label": "Batches" },
    h("h3", null, `Batches ${done} of ${total} done`),
    h("ul", { class: "conditions" }, open.map((one) => h("li", { key: one.task },
      state(STEP[one.state], one.part), `: ${one.name}, task ${one.task}, since `, when(one.at), one.reason && `. ${one.reason}`))),
    waiting > 0 && h("p", { class: "soft" }, `${waiting.toLocaleString("en")} ${waiting === 1 ? "batch waits" : "batches wait"} for it.`));
}

function gates(run) {
  return run.gates.map((gate) => {
    const unmet = gate.conditions.filter((one) => !one.is_met);
    const causes = unmet.filter((one) => !one.needs_others);
    const others = unmet.filter((one) => one.needs_others);
    const met = gate.conditions.filter((one) => one.is_met);
    return h("section", { key: `gate ${gate.gate}`, class: "gate", "aria-label": `Gate ${gate.gate}` },
      h("h3", null, `Gate ${gate.gate} `, state(gate.state === "failed" ? STEP.failed : unmet.length ? STEP.waiting : STEP.begun, gate.state === "failed" ? "failed" : unmet.length ? `waits for ${plural(unmet.length, "condition")}` : "every condition is met, still watched")),
      h("p", { class: "soft" }, gate.checked_at && ["Checked ", when(gate.checked_at)], gate.began_at && [", first ", when(gate.began_at)], gate.message && `. ${gate.message}`),
      h("ul", { class: "conditions" }, causes.map((one) => condition(one, gate))),
      others.length > 0 && h("details", { key: "others" }, h("summary", null, `${others.length === 1 ? "1 more condition needs" : `${others.length} more conditions need`} ${causes.length === 1 ? "it" : "them"}`), h("ul", { class: "conditions" }, others.map((one) => condition(one, gate)))),
      met.length > 0 && h("details", { key: "met" }, h("summary", null, `${plural(met.length, "condition")} met`), h("ul", { class: "conditions" }, met.map((one) => condition(one, gate)))));
  });
}

function condition(one, gate) {
  const unmet = gate.state === "failed" ? STEP.failed : NODE["waiting for its gate"];
  return h("li", { key: one.name }, state(one.is_met ? STEP.done : unmet, one.name), `: ${one.evidence}`, one.trend && trend(one), listOf(one.left, one.objects));
}

function listOf(number, objects) {
  if (!objects.length) return null;
  const cut = number > objects.length ? `, the first ${objects.length}` : "";
  return h("details", { key: "all" }, h("summary", null, `all ${number.toLocaleString("en")}${cut}`), h("ul", { class: "objects", tabindex: "0", "aria-label": "Full list" }, objects.map((name) => h("li", null, name))));
}

function logLines(run) {
  return run.log.map((line) => h("section", { key: `log ${line.node_id}`, "aria-label": `Log of node ${line.node_id}` }, h("h3", null, `Last error in the log of node ${line.node_id} `, h("span", { class: "soft" }, "read ", when(line.at))), h("pre", { tabindex: "0" }, line.text)));
}

const AT_WORK = new Set(["waiting for its gate", "preparing its stop", "stopping", "stopped", "starting", "catching up", "failed"]);

function racks(run) {
  if (!run.racks.length) return null;
  const known = new Map(run.nodes.map((node) => [node.node_id, node]));
  return h("section", { key: "nodes", "aria-label": "Nodes" }, h("h3", null, "Nodes"), run.racks.map((rack) => {
    const nodes = rack.nodes.map((node) => ({ ...known.get(node.node_id), role: node.role }));
    const busy = nodes.filter((node) => AT_WORK.has(node.phase));
    const small = nodes.length <= SHOWN_OPEN;
    return h("div", { key: rack.name, class: "rack" },
      h("p", { class: "head" }, h("strong", null, rack.name), h("span", { class: "soft" }, plural(nodes.length, "node")), Object.entries(rack.counts).map(([phase, number]) => h("span", { key: phase }, state(NODE[phase], `${number} ${phase}`)))),
      small ? nodeTable(nodes, rack.name) : [busy.length > 0 && nodeTable(busy, `${rack.name}, at work`), h("details", { key: "all" }, h("summary", null, `All ${plural(nodes.length, "node")} of ${rack.name}`), nodeTable(nodes, rack.name))]);
  }));
}

function nodeTable(nodes, name) {
  return h("div", { key: `table ${name}`, class: "scroll", tabindex: "0", role: "region", "aria-label": `Nodes: ${name}` }, h("table", null,
    h("thead", null, h("tr", null, ["State", "Node", "Role", "Release", "Time"].map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", null, nodes.map((node) => h("tr", { key: String(node.node_id), class: NODE[node.phase][1] },
      h("td", null, state(NODE[node.phase], node.phase)),
      h("td", null, `${node.name} `, h("span", { class: "soft" }, `(${node.node_id})`)),
      h("td", null, node.role),
      h("td", null, node.target && node.target !== node.release ? `${node.release} → ${node.target}` : node.release),
      h("td", null, nodeTime(node), node.note && h("span", { class: "soft note" }, ` ${node.note}`)))))));
}

function nodeTime(node) {
  if (node.ended_at && node.began_at) return `${duration(node.ended_at - node.began_at)}, until ${clock(node.ended_at)}`;
  return node.since && AT_WORK.has(node.phase) ? ["since ", when(node.since)] : "";
}

const SEVERITY = { blocker: ["✖", "bad"], warning: ["!", "fair"], info: ["i", "soft"] };

function findings(run) {
  const all = run.findings;
  if (!all.length) return null;
  const counts = Object.keys(SEVERITY).map((severity) => [severity, all.filter((one) => one.severity === severity).length]).filter(([, number]) => number);
  return h("details", { key: "findings", class: "findings", open: all.some((one) => one.severity === "blocker") },
    h("summary", null, h("h3", null, "Findings "), counts.map(([severity, number]) => [" ", state(SEVERITY[severity] ?? SEVERITY.info, plural(number, severity))])),
    h("ul", null, all.map((one, at) => h("li", { key: `${one.code} ${at}` },
      state(SEVERITY[one.severity] ?? SEVERITY.info, one.severity), " ", h("strong", null, one.code), one.subjects && ` ${one.subjects}`, h("p", null, one.sentence),
      one.remedy && h("p", { class: "soft" }, h("strong", null, "What to do: "), one.remedy), listOf(one.items.length, one.items)))));
}

function events(run) {
  if (!run.lines.length) return null;
  return h("details", { key: "events", open: wanted.has("run") }, h("summary", null, h("h3", null, "Events")),
    h("ol", { class: "lines", tabindex: "0", "aria-label": "Events of the run" }, run.lines.map((line, at) => h("li", { key: `${line.at} ${at}` }, `${clock(line.at)}  ${line.text}`))));
}

function otherRuns(found) {
  const urgent = (run) => !run.outcome || run.outcome === "stopped";
  const shown = found.runs.filter((run) => !run.is_trial).sort((one, other) => urgent(other) - urgent(one));
  const trials = found.runs.filter((run) => run.is_trial);
  return [
    shown.length > 0 && h("details", { key: "runs", open: shown.some(urgent) && !found.run?.needs_human }, h("summary", null, h("h3", null, `Other runs (${shown.length})`)), shown.map(card)),
    trials.length > 0 && h("details", { key: "trials" }, h("summary", null, h("h3", null, `Plans and dry runs (${trials.length})`)), trials.map(card)),
  ];
}

function card(run) {
  const kind = OUTCOME[run.outcome] ?? (run.is_trial ? OUTCOME.dry_run : run.state === "in progress" ? STEP.begun : STEP.failed);
  return h("article", { key: `run ${run.run_id}`, class: "run" },
    h("div", { class: "head" }, h("strong", null, run.way || "not planned yet"), state(kind, (run.outcome ?? (run.is_trial ? "plan" : run.state)).replaceAll("_", " ")),
      run.began_at > 0 && h("span", { key: "began", class: "soft" }, when(run.began_at), `, ${duration(run.elapsed_s)}`),
      run.dag_id && h("a", { key: "details", href: `?cluster=${encodeURIComponent(run.cluster)}&run=${run.number}` }, "details"), runLink(run), reportLink(run),
      h("span", { class: "soft" }, `run ${run.number}`)),
    h("p", null, run.sentence || run.now));
}

// ---- coordinator logs ----

function age(seconds) {
  if (seconds < 120) return "just now";
  if (seconds < 7200) return `${Math.round(seconds / 60)} minutes ago`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} hours ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

function scanCard(found) {
  const scan = found.scan;
  const report = scan && link("report", reportOfScan(found.dag_id, scan.run_id), "_blank");
  return h("article", { key: `scan ${found.cluster}`, class: "scan", "aria-label": `Coordinator logs of ${found.cluster}` },
    h("div", { class: "head" }, h("strong", null, "Coordinator logs"), h("span", null, found.cluster),
      scan && [h("span", { key: "age", class: found.overdue ? "fair" : "soft" }, `scanned ${age(now() - scan.scanned_at)}`), h("span", { key: "records", class: "soft" }, `${plural(scan.records, "record")} in ${plural(scan.partitions, "partition")}`)],
      report, link("scans", `../dags/${encodeURIComponent(found.dag_id)}/runs`)),
    scan && h("p", { key: "verdicts", class: "chips" }, Object.entries(scan.verdicts).map(([release, verdict]) => h("span", { key: release, class: `chip ${VERDICTS[verdict][1][1]}`, title: `Result if the coordinators of ${release} load these logs` }, `${release} ${VERDICTS[verdict][0]}`))),
    found.check && h("p", { key: "check" }, `Check ${found.check.change} to ${found.check.target}: `,
      [["blocker", "bad"], ["warning", "fair"], ["unknown", "fair"]].map(([result, tone]) => {
        const number = found.check.totals[result] ?? 0;
        return h("span", { key: result, class: number ? tone : "soft" }, result === "unknown" ? `${number} unknown, ` : `${plural(number, result)}, `);
      }),
      when(found.check.checked_at), " ", link("check", `dags/${encodeURIComponent(found.dag_id)}/check?run_id=${encodeURIComponent(found.check.run_id)}`, "_blank")),
    found.overdue && h("p", { key: "overdue", class: "fair" }, "Overdue: no scan in the last full schedule interval."),
    found.failed && h("p", { key: "failed", class: "bad" }, `${found.failed.headline} ${found.failed.sentences.join(" ")}`),
    found.alerts.length > 0 && h("details", { key: "alerts" }, h("summary", null, "Alerts"),
      h("ul", { class: "lines" }, found.alerts.map((alert) => h("li", { key: String(alert.at) }, when(alert.at), ` ${alert.headline} ${alert.sentences.join(" ")}`)))));
}

// ---- the page ----

function draw() {
  const consoles = [...page.consoles.values()];
  const urgent = consoles.filter((one) => one.run?.needs_human);
  const isOne = wanted.has("cluster") || wanted.has("run_id");
  const idle = page.clusters.filter((cluster) => !page.consoles.has(cluster.cluster));
  const scans = page.scans.filter((scan) => !isOne || (page.consoles.has(scan.cluster) && !wanted.has("run_id")) || scan.dag_id === wanted.get("dag_id"));
  consoles.sort((one, other) => (other.run?.needs_human ?? false) - (one.run?.needs_human ?? false));
  patch(document.getElementById("clusters"), [
    ...consoles.map(consoleOf),
    ...(scans.length ? scans.map(scanCard) : []),
    ...(idle.length && !isOne ? [h("section", { key: "idle", "aria-label": "Other clusters" }, h("h2", null, "Other clusters"), h("ul", null, idle.map((cluster) => h("li", { key: cluster.cluster }, clusterLink(cluster.cluster, cluster.cluster), cluster.runs.length ? `: ${cluster.runs[0].sentence || cluster.runs[0].now || cluster.runs[0].state}` : ": no runs yet"))))] : []),
    ...(page.readAt && !consoles.length && !idle.length && !scans.length ? [h("p", { key: "none" }, "There is nothing that you can see here.")] : []),
  ]);
  for (const bar of document.querySelectorAll("progress")) bar.value = Number(bar.dataset.done);
  const news = urgent.map((one) => `${one.cluster} needs you: ${one.run.why}`).join(" ");
  const live = document.getElementById("news");
  if (live.textContent !== news) live.textContent = news; // a screen reader says it once
  document.title = urgent.length ? `(${urgent.length}) needs you – Kafka rollout` : "Kafka rollout";
  const as_of = page.readAt ? `As of ${clock(page.readAt)}. ` : "";
  const line = document.getElementById("state");
  const text = page.problem ? `${as_of}Cannot refresh: ${page.problem}.` : `${as_of}Refreshed every ${pause()} s while the page is visible.`;
  if (line.textContent !== text) line.textContent = text;
  line.className = page.problem ? "bad" : "soft";
}

const isActive = (found) => found.lock || found.runs.some((run) => run.state === "in progress") || ["planning", "rolling", "rolling-back", "finalizing"].includes(found.status?.phase);
const pause = () => ([...page.consoles.values(), ...page.clusters].some(isActive) ? ACTIVE_S : QUIET_S);
const isBusy = (cluster) => isActive(cluster) || cluster.problem || (cluster.runs[0] && !cluster.runs[0].is_trial && (!cluster.runs[0].outcome || cluster.runs[0].outcome === "stopped"));

const consoleAt = (parameters) => ask(`console?${new URLSearchParams(parameters)}`);

async function read() {
  let found;
  if (wanted.has("cluster") || wanted.has("run_id")) {
    const parameters = Object.fromEntries(["cluster", "run", "run_id", "dag_id"].filter((name) => wanted.has(name)).map((name) => [name, wanted.get(name)]));
    found = [await consoleAt(parameters).catch((error) => { if (error.status === 404) return null; throw error; })].filter(Boolean);
  } else {
    page.clusters = await ask("runs");
    const busy = page.clusters.length === 1 ? page.clusters : page.clusters.filter(isBusy);
    found = await Promise.all(busy.map((cluster) => consoleAt({ cluster: cluster.cluster })));
  }
  page.consoles = new Map(found.map((one) => [one.cluster, { ...one, runs: one.runs.map((run) => ({ ...run, cluster: one.cluster })) }]));
  if (found.length) time.offset = found[0].now - Date.now() / 1000;
  if (Date.now() / 1000 - page.scansAt > SCANS_S) {
    page.scans = await ask("scans");
    page.scansAt = Date.now() / 1000;
  }
}

let kafkaTimer = 0;

// Apart from the run: a cluster that does not respond delays nothing else.
async function refreshKafka() {
  kafkaTimer = -1;
  let pause = KAFKA_S;
  for (const cluster of page.consoles.keys()) {
    try {
      const found = await ask(`kafka?${new URLSearchParams({ cluster })}`);
      if (!found.state && !found.problem) pause = ACTIVE_S; // it is being asked for the first time
      page.kafka.set(cluster, found);
    } catch (error) {
      page.kafka.set(cluster, { state: page.kafka.get(cluster)?.state ?? null, problem: `${error.message}.` });
    }
  }
  draw();
  kafkaTimer = document.hidden ? 0 : setTimeout(refreshKafka, pause * 1000);
}

let timer = 0;

function plan(seconds) {
  if (timer > 0) clearTimeout(timer);
  if (timer >= 0) timer = document.hidden ? 0 : setTimeout(refresh, seconds * 1000);
}

// One refresh at a time: the next one is planned after the answer, and none while the tab is hidden.
async function refresh() {
  timer = -1;
  try {
    await read();
    Object.assign(page, { problem: "", readAt: now() });
  } catch (error) {
    page.problem = error.message;
  }
  timer = 0;
  try {
    draw();
  } catch (error) {
    document.getElementById("state").textContent = `The page cannot show the state: ${error.message}. Reload it.`;
  }
  plan(page.problem ? QUIET_S : pause());
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  if (timer === 0) refresh();
  if (kafkaTimer === 0) refreshKafka();
});
refresh().then(refreshKafka);
