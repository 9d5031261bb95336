"""What a run is doing, told from its record: node k of n, the gate that it waits at and why, how long still.

Pure: events, plan and task states in, lines out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from kafka_rollout.domain.model.plan import Plan

# Tasks of the DAG outside its node groups that a person wants to hear of.
_STEPS = {
    "observe": "observing the cluster",
    "scan_before_roll": "scanning the coordinator logs with Spark",
    "plan": "planning",
    "start_ledger": "starting the live-traffic ledger",
    "check_features": "asking every node for the features it supports",
    "scan_coordinator_logs": "scanning the coordinator logs with Spark",
    "finalize": "finalizing the features",
    "scan_metadata_logs": "replaying every node's metadata log with the older release's classes",
    "report_losses": "writing the metadata at the lower level, to see what it loses",
    "lower_features": "lowering the features, metadata.version last",
    "inventory_after": "comparing everything that is in the cluster with what was there before",
    "prove_snapshot": "loading a snapshot with the target's own classes",
    "stop_ledger": "comparing acknowledged with consumed records",
    "report": "writing the report",
}
_GATES = {"before": "waits to be stopped", "after": "is started, waits to be passed"}
_WHOLE_CLUSTER = {
    "finalized": "every node to report the new levels",
    "snapshot": "a snapshot of every node with the new metadata.version",
    "metadata-version": "CurrentMetadataVersion of every node",
    "metadata-log": "metadata logs that the older release can read",
    "levels": "the planned levels of every node",
    "final-metadata-version": "CurrentMetadataVersion of every node, on the older release",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A node's place in the whole run: `number` counts from 1 over all release steps, the way back included."""

    number: int
    total: int
    name: str
    release: str

    def __str__(self) -> str:
        return f"node {self.number} of {self.total} ({self.name} to {self.release})"


@dataclass(slots=True)
class Progress:
    """Feed it with everything known, again and again; it answers with what is new."""

    _events_seen: int = 0
    _told: str = ""
    _steps_told: set[str] = field(default_factory=set)
    _stopped_at: dict[tuple[str, int], float] = field(default_factory=dict)
    _last_passed_at: float | None = None
    _seconds: list[float] = field(default_factory=list)
    _passed: set[tuple[str, int]] = field(default_factory=set)

    def lines(
        self, plan: Plan | None, events: Iterable[Mapping[str, Any]], tasks: Mapping[str, str | None]
    ) -> Iterator[str]:
        """New lines since the last call. `events` are all of the run, `tasks` the states by task id."""
        fresh = list(events)[self._events_seen :]
        self._events_seen += len(fresh)
        for event in fresh:
            line = self._line(plan, event)
            if line and _without_counts(line) != self._told:
                self._told = _without_counts(line)
                yield line
        for task, state in tasks.items():
            if task in _STEPS and state == "running" and task not in self._steps_told:
                self._steps_told.add(task)
                yield _STEPS[task]
            elif state == "failed" and f"failed {task}" not in self._steps_told:
                self._steps_told.add(f"failed {task}")
                yield f"task {task} failed"

    def estimate(self, plan: Plan | None) -> str:
        """What the nodes done so far say about the others; approvals and finalizing come on top."""
        if plan is None or not self._seconds:
            return ""
        left = sum(len(release_step.order) for release_step in plan.release_steps) - len(self._passed)
        if left <= 0:
            return ""
        seconds = left * median(self._seconds)  # a question that a person thought about is no measure
        return f"about {duration(seconds)} for the {left} node{'s' if left > 1 else ''} left"

    def _line(self, plan: Plan | None, event: Mapping[str, Any]) -> str:
        match event.get("kind"):
            case "plan" if plan is not None:
                return _plan_line(plan)
            case "scan-tail":
                new = f": {'; '.join(event['findings'])}" if event["findings"] else ""
                return f"coordinator logs: {event['offsets']} offsets came since the scan{new}"
            case "losses":
                lost = f"{event['losses']} real losses" if event["losses"] else "nothing real is lost"
                return f"metadata.version {event['from_level']} → {event['to_level']}: {lost}"
            case "trimmed":
                return f"node {event['node_id']}: {event['sentence']}"
            case "inventory" if event["when"] == "after":
                return f"compared with before: {event['differences'] or 'no'} differences"
            case "stopping":
                self._stopped_at[_key(event)] = float(event["at"])
                return f"{place(plan, event)}: stopping"
            case "started":
                return f"{place(plan, event)}: started"
            case "gate" if not event.get("holds", True):
                return self._waiting(plan, event)
            case "gate-held":
                return self._held(plan, event)
            case "gate-failed":
                return f"{_subject(plan, event)}: the gate failed: {event['message']}"
            case "approval":
                return f"{event['by']} {event['decision']}: {event['what']} ({event['reason']})"
            case "finalized":
                return f"finalized: {', '.join(f'{name} {level}' for name, level in event['levels'].items())}"
            case "feature-results" if not all(text.startswith("OK") for text in event["results"].values()):
                return "; ".join(f"{name}: {text}" for name, text in event["results"].items())
            case "task-failed":
                self._steps_told.add(f"failed {event['task']}")
                return f"task {event['task']} failed: {event['sentence']}"
            case "void":
                return f"the approval is void: {'; '.join(event['blockers'])}"
            case _:
                return ""

    def _waiting(self, plan: Plan | None, event: Mapping[str, Any]) -> str:
        details = event.get("details") or {}
        gate = {"kind_of_gate": details.get("kind"), "hop": details.get("hop"), "node_id": details.get("node_id")}
        first, *more = str(event.get("waits_for", "")).split("; ")
        return f"{_subject(plan, gate)}: {first}" + (f" (and {len(more)} more)" if more else "")

    def _held(self, plan: Plan | None, event: Mapping[str, Any]) -> str:
        if event.get("node_id") is None:
            return f"{_subject(plan, event)}: {event['message']}"
        if event.get("kind_of_gate") != "after-start":
            return ""  # the stop that follows says as much
        key = _key(event)
        if key in self._passed:
            return ""
        self._passed.add(key)
        took = ""
        if key in self._stopped_at:
            at = float(event["at"])
            took = f" in {duration(at - self._stopped_at[key])}"
            # From one node's end to the next one's: what Airflow needs in between counts as well.
            self._seconds.append(at - (self._last_passed_at or self._stopped_at[key]))
            self._last_passed_at = at
        estimate = self.estimate(plan)
        return f"{place(plan, event)}: done{took}" + (f", {estimate}" if estimate else "")


def place(plan: Plan | None, event: Mapping[str, Any]) -> str:
    """Where a node's event stands in the plan; on the way back nodes are counted from the first one taken back."""
    release_step, node_id = str(event["hop"]), int(event["node_id"])
    if plan is None:
        return f"node {node_id}"
    forth = [
        (one.key, node_step.node_id, node_step.name, str(one.to_release))
        for one in plan.release_steps
        for node_step in one.order
    ]
    ways_back = [one.reversed() for one in reversed(plan.release_steps)]
    back = [
        (one.key, node_step.node_id, node_step.name, str(one.to_release))
        for one in ways_back
        for node_step in one.order
    ]
    for direction, places in (("", forth), ("back: ", back)):
        for number, (key, known, name, release) in enumerate(places, start=1):
            if (key, known) == (release_step, node_id):
                return direction + str(Place(number=number, total=len(places), name=name, release=release))
    return f"node {node_id}"


def duration(seconds: float) -> str:
    """`8 s` or `2 min 05 s`."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


def _without_counts(line: str) -> str:
    """A gate that waits for 5 and then for 4 records has nothing new to say; another node has."""
    subject, colon, why = line.partition(": ")
    return subject + colon + re.sub(r"\d+", "#", why)


def _subject(plan: Plan | None, gate: Mapping[str, Any]) -> str:
    kind = str(gate.get("kind_of_gate", ""))
    if gate.get("node_id") is None:
        return f"waiting for {_WHOLE_CLUSTER.get(kind, kind)}"
    return f"{place(plan, gate)} {_GATES.get(kind.split('-', maxsplit=1)[0], kind)}"


def _key(event: Mapping[str, Any]) -> tuple[str, int]:
    return str(event["hop"]), int(event["node_id"])


def _plan_line(plan: Plan) -> str:
    release_steps = ", then ".join(
        f"{len(release_step.order)} nodes {release_step.from_release} → {release_step.to_release}"
        for release_step in plan.release_steps
    )
    features = ", ".join(f"{c.feature} {c.current} → {c.target}" for c in plan.feature_changes)
    findings = f"{len(plan.blockers)} blockers, {len(plan.findings) - len(plan.blockers)} other findings"
    return f"planned: {release_steps or 'nothing to roll'}; {features or 'no features to finalize'}; {findings}"
