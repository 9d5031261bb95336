import { VERDICTS, ask, clock, command, duration, follow, link, now, plural, reportOfScan, state, time, when, withCommands } from "./common.js";
import { h, patch } from "./dom.js";

const ACTIVE_S = 2; // between two refreshes while a run is in progress
const QUIET_S = 15;
const SCANS_S = 60; // scans change once a day
const KAFKA_S = 10; // between two questions for the state of a cluster
const TRAFFIC_S = 15; // between two plots of a run in progress
const OLD_S = 30; // a state of the cluster that is older is not shown as the one of now
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

const runLink = (run) => run.dag_id && link("Airflow ↗", `../dags/${encodeURIComponent(run.dag_id)}/runs/${encodeURIComponent(run.run_id)}`);
const reportLink = (run) => run.has_report && link("report", `dags/${encodeURIComponent(run.dag_id)}/report?run_id=${encodeURIComponent(run.run_id)}`, "_blank");
const optionsLink = (cluster) => h("a", { key: "options", href: `downgrade?cluster=${encodeURIComponent(cluster)}` }, "Downgrade options");
const clusterLink = (text, cluster) => h("a", { key: text, href: `?cluster=${encodeURIComponent(cluster)}` }, text);

// ---- the console of a cluster ----

function consoleOf(found) {
  const run = found.run;
  return h("article", { key: `console ${found.cluster}`, class: "cluster", "aria-label": `Cluster ${found.cluster}` },
    h("div", { class: "head" },
      h("h2", null, found.cluster), pill(found, run),
      run && h("span", { key: "about", class: "soft" }, `${run.title} · `, found.status.started_by && `started by ${found.status.started_by} `, run.began_at && when(run.began_at), ` · run ${run.number}`),
      h("span", { class: "right" }, run && reportLink(run), optionsLink(found.cluster), run && controls(run), run && runLink(run))),
    run && controlForm(found, run),
    found.problem && h("p", { key: "problem", class: "bad" }, found.problem),
    lockLine(found),
    found.other && h("p", { key: "other", class: "fair" }, "Another run of this cluster needs attention: ", clusterLink("show it", found.cluster), "."),
    run && progress(run),
    run && requested(found),
    h("div", { key: "work", class: "grid" },
      h("div", { class: "stack" }, run && attention(found, run), run && !run.needs_human && endOrNow(found, run), !run && h("section", { key: "idle", class: "card" }, withCommands(found.status.next_action)),
        kafkaNow(found), run && !run.needs_human && gates(run), run && [racks(run), events(run), findings(run)]),
      run && h("aside", { class: "stack" }, steps(run), planCard(run), traffic(run))),
    otherRuns(found));
}

function pill(found, run) {
  const { phase, tone, conditions } = found.status;
  const stopped = phase === "rolling" && run?.stop; // of all nodes or controllers, not of one after the other
  const since = conditions.find((one) => one.type === "NeedsHuman")?.since;
  const word = stopped ? (stopped.serves ? "controllers stopped" : "all nodes stopped") : phase.replaceAll("-", " ");
  return h("span", { key: "phase", class: `pill ${stopped ? "bad" : tone}` }, h("span", { "aria-hidden": "true" }, `${PHASE[phase] ?? PHASE.unknown} `), word, since && ` · ${duration(now() - seconds(since))}`);
}

function lockLine(found) {
  const lock = found.lock;
  if (!lock || (found.run && lock.holder === found.run.run_id)) return null;
  const text = lock.holder ? `The lock is held by run ${lock.number}: ${lock.purpose}` : "The lock is held by a run that you cannot read.";
  return h("p", { key: "lock", class: "fair" }, text);
}

const fact = (name, ...value) => h("div", { key: name, class: "fact" }, h("dt", null, name), h("dd", null, ...value));

// The request first, then its cause, then what it means for the cluster; what follows from the cause is folded.
function attention(found, run) {
  const status = found.status;
  const waits = status.waits_for;
  if (!run.needs_human) return null;
  const title = waits?.what.replace(`${found.cluster}: `, "") || { "paused": "The run is paused", "failed": "The run failed" }[run.phase] || "The state is unknown";
  const cause = waits ? run.why.replace(waits.what, "").trim() : run.why;
  const blocking = run.gates.flatMap((gate) => gate.conditions.filter((one) => !one.is_met && !one.needs_others && one.left));
  return h("section", { key: "attention", class: "card attention", "data-tone": status.tone, "aria-label": "What needs a human" },
    h("h3", null, title.replace(/^./, (first) => first.toUpperCase())),
    cause && h("p", { key: "cause", class: `cause ${status.tone}` }, cause),
    blocking.map((one) => h("p", { key: one.name }, `${one.name}: ${one.left.toLocaleString("en")} left`, one.trend && trend(one))),
    logLines(run),
    h("p", { class: "soft" }, run.stopped && `${run.stopped} `, clients(found)),
    run.gates.length > 0 && h("details", { key: "gates" }, h("summary", null, run.gates.length === 1 ? `Gate ${run.gates[0].gate}` : `${run.gates.length} gates`), gates(run)),
    !run.request && h("p", { key: "action" }, h("strong", null, "What to do: "), withCommands(status.next_action)),
    run.request && answer(found, run, waits),
    h("p", { class: "soft" }, waits && [`Can answer: ${waits.who.join(", ")}`, waits.until && [", until ", when(seconds(waits.until)), ". Then the task fails; a timeout is never an approval"], ". "], notified(run)));
}

function trend(condition) {
  const { way, before, over_s } = condition.trend;
  return h("span", { key: "trend", class: way === "falls" ? "good" : "fair" }, `; ${duration(over_s)} before: ${before.toLocaleString("en")} ${TRENDS[way]}`);
}

function notified(run) {
  if (!run.notified.length) return "No notification was sent on a channel.";
  return ["Notified: ", run.notified.flatMap((one, at) => [at ? "; " : "", `${one.channel} (${one.kind}): `, one.is_sent ? "sent " : "not sent ", when(one.at), one.problem && ` ${one.problem}`])];
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
      h("div", { class: "choices" }, request.choices.map((choice) => h("label", { key: choice.option, class: choice.undoes ? "choice undoes" : "choice" },
        h("input", { type: "radio", name: `answer ${id}`, value: choice.option, "aria-label": choice.consequence ? `${choice.option}: ${choice.consequence}` : choice.option, on: { change: () => { draft.option = choice.option; draw(); } } }),
        h("span", null, h("strong", null, choice.option), choice.consequence && h("span", { class: "soft" }, choice.consequence))))),
      reasonField(draft),
      h("div", { class: "head" },
        h("button", { type: "submit", disabled: !ready }, draft.sending ? "Sending…" : draft.option ? `Answer: ${draft.option}` : "Answer"),
        h("span", { class: "soft" }, early ? "Airflow still parks the task: you can answer in a few seconds." : page.problem ? "The page has no newer state." : !draft.option ? "Choose an answer." : !draft.reason.trim() ? "Write a reason." : ""),
        h("span", { class: "soft" }, "or use ", form)),
      inShell(request.choices.find((one) => one.option === draft.option)?.command, "In a shell, which takes the run over from Airflow: "),
      draft.problem && h("p", { key: "problem", class: "bad", role: "alert" }, draft.problem)));
}

const inShell = (words, text) => words && h("p", { key: "shell", class: "soft" }, text, command(words));

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
  const isNow = kafka && !problem && now() - kafka.observed_at <= OLD_S;
  const isOld = kafka && found.run?.stop && kafka.observed_at < found.run.stop.since; // from before the stop of all nodes
  const toneOf = ({ number, tone }) => (isNow && !isOld ? (number === 0 ? "" : tone) : "soft");
  const count = (name, counted) => h("div", { key: name, class: "tile" },
    h("b", { class: toneOf(counted) }, counted.number === null ? "?" : counted.number.toLocaleString("en")), h("span", { class: "unseen" }, counted.number === null ? "unknown " : ""), name,
    counted.number > 0 && counted.trend && h("small", { key: "trend" }, trend(counted)),
    listOf(counted.number, counted.objects));
  return h("section", { key: "kafka", class: "card kafka", "aria-label": `Kafka: ${found.cluster}` },
    h("h3", null, isNow && !isOld ? "Kafka now " : "Kafka ", h("span", { class: "soft" }, kafka && `· ${duration(now() - kafka.observed_at)} ago`, isOld && ", before the stop", !isNow && !problem && " · reading…")),
    problem && h("p", { key: "problem", class: "fair" }, kafka ? `There is no newer state: ${problem}` : `The state is unknown: ${problem}`),
    kafka && [
      !found.run?.needs_human && !found.run?.stop && h("p", { key: "clients" }, clients(found)),
      h("div", { key: "tiles", class: "tiles" }, Object.entries(kafka.counts).map(([name, counted]) => count(name, counted))),
      h("p", { key: "facts", class: "soft" }, kafka.controller === null ? h("strong", { class: isNow ? "fair" : "soft" }, "No active controller is known") : `Active controller ${kafka.controller}`,
        kafka.most_lag !== null && `, quorum lag at most ${plural(kafka.most_lag, "record")}`, kafka.partitions !== null && `, ${plural(kafka.partitions, "partition")}`,
        Object.keys(kafka.levels).length > 0 && `. Finalized levels: ${Object.entries(kafka.levels).sort().map(([name, level]) => `${name} ${level}`).join(", ")}.`),
      kafka.problems.map((text) => h("p", { key: text, class: "fair" }, text))]);
}

// ---- what happens ----

function endOrNow(found, run) {
  const last = run.lines.at(-1);
  return h("section", { key: "now", class: "card", "aria-label": "What the run does" }, h("p", null, run.why || (last && [last.text, " ", when(last.at)]) || withCommands(found.status.next_action)),
    batches(run), h("p", { class: "soft" }, run.stopped && !found.status.phase.startsWith("finished") && `${run.stopped} `, run.stop && clients(found)));
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
  const busy = all.filter((node) => AT_WORK.has(node.phase)).length;
  return h("div", { key: "progress", class: "soft" },
    h("div", { class: "bar", role: "progressbar", "aria-label": "Nodes that are done", "aria-valuemin": "0", "aria-valuemax": String(all.length), "aria-valuenow": String(done) },
      [["good", done], [run.phase === "failed" || run.needs_human ? "fair" : "now", busy], ["", all.length - done - busy]].map(([tone, number]) => h("i", { key: tone, class: tone, "data-grow": String(number) }))),
    h("span", null, `${done} of ${plural(all.length, "node")} done`),
    estimate && !run.needs_human && h("span", { key: "end" }, ` · The last node is expected ${between}, without approvals.`),
    run.way_back && h("span", { key: "back" }, ` · ${run.way_back}`));
}

// ---- pause, resume and stop ----

function requested(found) {
  const asked = found.status.conditions.find((one) => one.type === "Requested" && one.status === "True");
  return asked ? h("p", { key: "requested", class: "fair", role: "status" }, asked.message) : null;
}

const CONTROLS = {
  pause: ["Pause", "The run waits before its next node and keeps its lock."],
  resume: ["Resume", "The run continues."],
  stop: ["Stop", "A stop ends each wait. A node that was stopped is started first. The run can be continued or rolled back later."],
};

function controlDraft(run) {
  const key = `control ${run.run_id}`;
  if (!drafts.has(key)) drafts.set(key, { action: "", reason: "", sending: false, sent: "", problem: "" });
  return drafts.get(key);
}

function controls(run) {
  const draft = controlDraft(run);
  return run.controls.map((action) => h("button", { key: action, type: "button", class: "plain", "aria-expanded": String(draft.action === action),
    on: { click: () => { Object.assign(draft, { action: draft.action === action ? "" : action, sent: "", problem: "" }); draw(); } } }, `${CONTROLS[action][0]}…`));
}

function controlForm(found, run) {
  const draft = controlDraft(run);
  if (draft.sent) return h("p", { key: "sent", role: "status" }, draft.sent);
  if (!run.controls.includes(draft.action)) return null;
  const [word, effect] = CONTROLS[draft.action];
  return h("form", { key: `control ${draft.action}`, class: "card control", "aria-label": `${word} run ${run.number}`, on: { submit: (event) => { event.preventDefault(); sendControl(run, draft); } } },
    h("h3", null, `${word} run ${run.number}?`), h("p", { class: "soft" }, effect), reasonField(draft),
    h("div", { class: "head" }, h("button", { type: "submit", disabled: !draft.reason.trim() || draft.sending }, `${word} run ${run.number}`),
      h("button", { type: "button", class: "plain", on: { click: () => { draft.action = ""; draw(); } } }, "Cancel")),
    inShell(`kafka-rollout ${draft.action} --cluster ${found.cluster} --run ${run.number} --reason TEXT`, "In a shell: "),
    draft.problem && h("p", { key: "problem", class: "bad", role: "alert" }, draft.problem));
}

async function sendControl(run, draft) {
  if (draft.sending || !draft.reason.trim()) return;
  Object.assign(draft, { sending: true, sent: "", problem: "" });
  draw();
  try {
    const body = JSON.stringify({ run_id: run.run_id, action: draft.action, reason: draft.reason.trim() });
    const said = await ask(`dags/${encodeURIComponent(run.dag_id)}/control`, { method: "POST", headers: { "Content-Type": "application/json" }, body });
    Object.assign(draft, { action: "", reason: "", sent: said.message });
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
  return h("section", { key: "traffic", class: "card", "aria-label": "Test traffic" }, h("h3", null, "Test traffic and node steps"),
    h("a", { href: src, target: "_blank", rel: "noopener", on: { click: follow } }, h("img", { class: "plot", src, on: { load: showPlot, error: showPlot }, alt: "Records per second, latency, failed requests, under-replicated partitions and lag over the node steps. The report has them as numbers." })));
}

// Those before the current step and the last done one are folded, and those after the next two.
function steps(run) {
  const all = run.steps;
  const at = all.findIndex((step) => step.id === run.current_step);
  const current = at < 0 ? all.length : at;
  const last = all.slice(0, current).findLastIndex((step) => step.state === "done");
  const before = all.slice(0, current).filter((step, number) => number !== last);
  const after = all.slice(current + 3);
  const total = (state) => before.filter((step) => step.state === state).length;
  const words = [[total("done"), "done"], [total("skipped"), "not needed"], [total("open"), "open"], [total("failed"), "failed"]].filter(([number]) => number).map(([number, word], first) => `${first ? number : plural(number, "step")} ${word}`);
  const list = (some, key) => h("ol", { key, class: "steps" }, some.map((step) => stepOf(run, step)));
  const folded = (some, text, key) => some.length > 0 && h("details", { key }, h("summary", null, text), list(some, "steps"));
  return h("section", { key: "steps", class: "card", "aria-label": "Steps of the run" }, h("h3", null, "Steps"),
    folded(before, words.join(", "), "before"), list([...all.slice(last < 0 ? current : last, last < 0 ? current : last + 1), ...all.slice(current, current + 3)], "now"), folded(after, plural(after.length, "more step"), "after"));
}

function stepOf(run, step) {
  const isCurrent = step.id === run.current_step;
  const [symbol, tone] = STEP[step.state];
  return h("li", { key: step.id, class: `step ${tone}${isCurrent ? " current" : ""}`, "aria-current": isCurrent ? "step" : null },
    h("span", { class: tone, "aria-hidden": "true" }, symbol), h("span", { class: "label" }, step.label, h("span", { class: "unseen" }, ` ${step.state}`)),
    h("span", { class: "soft" }, step.at && (isCurrent ? duration(now() - step.at) : clock(step.at).replace(/:\d\d UTC$/, ""))),
    step.reason && h("span", { class: "soft detail" }, step.reason));
}

function planCard(run) {
  const counts = countsOf(run.findings);
  if (!counts.length) return null;
  const open = () => { document.getElementById("findings").open = true; };
  return h("section", { key: "plan", class: "card", "aria-label": "Plan" }, h("h3", null, "Plan"), h("p", null, counts, " · ", h("a", { href: "#findings", on: { click: open } }, "read the findings")));
}

function batches(run) {
  if (!run.batches?.open.length) return null;
  const { done, total, open } = run.batches;
  const waiting = total - done - open.length;
  return h("div", { key: "batches", role: "group", "aria-label": "Batches" },
    h("ul", { class: "conditions" }, open.map((one) => h("li", { key: one.task },
      state(STEP[one.state], one.part), `: ${one.name}, task ${one.task}, since `, when(one.at), one.reason && `. ${one.reason}`))),
    h("p", { class: "soft" }, `${done} of ${plural(total, "batch", "batches")} done`, waiting > 0 && `, ${waiting.toLocaleString("en")} wait`, "."));
}

function gates(run) {
  return run.gates.map((gate) => {
    const unmet = gate.conditions.filter((one) => !one.is_met);
    const causes = unmet.filter((one) => !one.needs_others);
    const others = unmet.filter((one) => one.needs_others);
    const met = gate.conditions.filter((one) => one.is_met);
    return h("section", { key: `gate ${gate.gate}`, class: run.needs_human ? "gate" : "card gate", "aria-label": `Gate ${gate.gate}` },
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
  return run.log.map((line) => h("section", { key: `log ${line.node_id}`, "aria-label": `Log of node ${line.node_id}` }, h("h4", null, `Last error in the log of node ${line.node_id} `, h("span", { class: "soft" }, "read ", when(line.at))), h("pre", { tabindex: "0" }, line.text)));
}

const AT_WORK = new Set(["waiting for its gate", "preparing its stop", "stopping", "stopped", "starting", "catching up", "failed"]);

function racks(run) {
  if (!run.racks.length) return null;
  const known = new Map(run.nodes.map((node) => [node.node_id, node]));
  return h("section", { key: "nodes", class: "card", "aria-label": "Nodes" }, h("h3", null, "Nodes"), run.racks.map((rack) => {
    const nodes = rack.nodes.map((node) => ({ ...known.get(node.node_id), role: node.role }));
    const busy = nodes.filter((node) => AT_WORK.has(node.phase));
    return h("div", { key: rack.name, class: "rack" },
      h("h4", { class: "soft" }, rack.name),
      nodes.length <= SHOWN_OPEN ? nodeList(nodes, rack.name) : h("div", { key: "many" },
        h("p", null, Object.entries(rack.counts).map(([phase, number]) => h("span", { key: phase }, state(NODE[phase], `${number} ${phase}`), " "))),
        busy.length > 0 && nodeList(busy, `${rack.name}, at work`),
        h("details", { key: "all" }, h("summary", null, `All ${plural(nodes.length, "node")} of ${rack.name}`), nodeList(nodes, rack.name))));
  }));
}

const SELF_EVIDENT = new Set(["done", "waiting", "unchanged"]); // by symbol and color

function nodeList(nodes, name) {
  return h("ul", { key: `list ${name}`, class: "nodes", "aria-label": `Nodes: ${name}` }, nodes.map((node) => {
    const [symbol, tone] = NODE[node.phase];
    const facts = [SELF_EVIDENT.has(node.phase) ? "" : node.phase, node.release, nodeTime(node)].filter(Boolean).join(" · ");
    return h("li", { key: String(node.node_id), class: `node ${tone}`, title: `Node ${node.node_id}, ${node.role}${node.target && node.target !== node.release ? `, to ${node.target}` : ""}` },
      h("span", { "aria-hidden": "true" }, `${symbol} `), node.name, SELF_EVIDENT.has(node.phase) && h("span", { class: "unseen" }, ` ${node.phase}`),
      h("small", null, facts), node.note && h("small", { key: "note" }, node.note));
  }));
}

function nodeTime(node) {
  if (node.ended_at && node.began_at) return duration(node.ended_at - node.began_at);
  return node.since && AT_WORK.has(node.phase) ? duration(now() - node.since) : "";
}

const SEVERITY = { blocker: ["✖", "bad"], warning: ["!", "fair"], info: ["i", "soft"] };

function countsOf(all) {
  const counts = Object.keys(SEVERITY).map((severity) => [severity, all.filter((one) => one.severity === severity).length]).filter(([, number]) => number);
  return counts.map(([severity, number], at) => [at ? ", " : "", state(SEVERITY[severity], plural(number, severity))]);
}

function findings(run) {
  const all = run.findings;
  if (!all.length) return null;
  return h("details", { key: "findings", id: "findings", class: "card findings", open: all.some((one) => one.severity === "blocker") },
    h("summary", null, h("h3", null, "Findings "), countsOf(all)),
    h("ul", null, all.map((one, at) => h("li", { key: `${one.code} ${at}` },
      state(SEVERITY[one.severity] ?? SEVERITY.info, one.severity), " ", h("strong", null, one.code), one.subjects && ` ${one.subjects}`, h("p", null, one.sentence),
      one.remedy && h("p", { class: "soft" }, h("strong", null, "What to do: "), one.remedy), listOf(one.items.length, one.items)))));
}

function events(run) {
  if (!run.lines.length) return null;
  const lines = run.lines.map((line, at) => h("li", { key: `${line.at} ${at}` }, h("time", { class: "soft" }, clock(line.at).replace(" UTC", "")), h("span", null, line.text)));
  return h("section", { key: "events", class: "card", "aria-label": "What happened" }, h("h3", null, "What happened ", h("span", { class: "soft" }, "UTC, the newest first")),
    h("ol", { class: "events", tabindex: "0", "aria-label": "Events of the run" }, lines.reverse()));
}

function otherRuns(found) {
  const urgent = (run) => !run.outcome || run.outcome === "stopped";
  const shown = found.runs.filter((run) => !run.is_trial).sort((one, other) => urgent(other) - urgent(one));
  const trials = found.runs.filter((run) => run.is_trial);
  return [
    shown.length > 0 && h("details", { key: "runs", class: "card", open: shown.some(urgent) && !found.run?.needs_human }, h("summary", null, h("h3", null, `Other runs (${shown.length})`)), shown.map(card)),
    trials.length > 0 && h("details", { key: "trials", class: "card" }, h("summary", null, h("h3", null, `Plans and dry runs (${trials.length})`)), trials.map(card)),
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
  return h("article", { key: `scan ${found.cluster}`, class: "card scan", "aria-label": `Coordinator logs of ${found.cluster}` },
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
  for (const part of document.querySelectorAll("[data-grow]")) part.style.flexGrow = part.dataset.grow;
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
