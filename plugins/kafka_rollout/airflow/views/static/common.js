import { h } from "./dom.js";

// Of the server, in seconds: the clock of the reader can be wrong.
export const time = { offset: 0 };
export const now = () => Date.now() / 1000 + time.offset;
export const plural = (number, noun, many = `${noun}s`) => `${number.toLocaleString("en")} ${number === 1 ? noun : many}`;

export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  const hours = Math.floor(whole / 3600);
  return hours < 48 ? `${hours} h ${String(Math.floor(whole / 60) % 60).padStart(2, "0")} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function clock(at) {
  const text = new Date(at * 1000).toISOString();
  const today = new Date(now() * 1000).toISOString().slice(0, 10);
  return `${text.startsWith(today) ? "" : `${text.slice(0, 10)} `}${text.slice(11, 19)} UTC`;
}

export function when(at, { relative = true } = {}) {
  const seconds = at - now();
  const distance = seconds > 0 ? `in ${duration(seconds)}` : `${duration(-seconds)} ago`;
  const iso = new Date(at * 1000).toISOString();
  return h("time", { datetime: iso, title: `${iso.slice(0, 10)} ${iso.slice(11, 19)} UTC` }, clock(at), relative && h("span", { class: "soft" }, ` (${distance})`));
}

export function state([symbol, tone], word) {
  return h("span", { class: `state ${tone}` }, h("span", { "aria-hidden": "true" }, `${symbol} `), word);
}

// Airflow's frame does not allow links to open pages or files, so the page around the frame follows the link.
export function follow(event) {
  if (window.parent === window) return;
  event.preventDefault();
  const outer = window.parent.document.createElement("a");
  for (const name of ["href", "target", "download"]) if (event.currentTarget.hasAttribute(name)) outer[name] = event.currentTarget[name];
  outer.rel = "noopener";
  outer.click();
}

// A line ends between two words of a command, and not inside of an option.
export const command = (words) => h("code", null, words.split(" ").map((word, at) => [at ? " " : "", h("span", null, word)]));
// A text of this project, whose commands stand between backticks.
export const withCommands = (text) => text.split(/`(kafka-rollout [^`]+)`/).map((part, at) => (at % 2 ? command(part) : part));

export const link = (text, href, target = "_top") => h("a", { key: `${text} ${href}`, href, target, rel: "noopener", on: { click: follow } }, text);
export const reportOfScan = (dag, run) => `dags/${encodeURIComponent(dag)}/scan?run_id=${encodeURIComponent(run)}&task_id=scan_coordinator_logs`;

// Verdicts of a release on a coordinator log: word, symbol and color.
export const VERDICTS = {
  loads: ["loads", ["✔", "good"]], loads_ignoring: ["loads, ignores some", ["!", "fair"]], fails: ["fails", ["✖", "bad"]], loses: ["loses ids", ["✖", "bad"]],
  not_loaded: ["not loaded", ["–", "soft"]], unknown: ["unknown", ["?", "fair"]],
};

export async function ask(what, options = {}) {
  const answer = await fetch(what, { ...options, headers: { Accept: "application/json", ...options.headers } });
  if (answer.ok) return answer.json();
  if (answer.status === 401) throw new Error("sign in to Airflow first");
  const said = await answer.json().catch(() => ({}));
  const detail = typeof said.detail === "string" ? `: ${said.detail.replace(/\.$/, "")}` : "";
  throw Object.assign(new Error(`Airflow responded with HTTP status ${answer.status}${detail}`), { status: answer.status });
}
