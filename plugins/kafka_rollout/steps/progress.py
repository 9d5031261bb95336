"""The progress of a run from its history: node k of n, the current gate with its unmet conditions, the remaining time.

Input: events, plan and task states. Output: lines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from kafka_rollout.base.durations import duration
from kafka_rollout.base.findings import Severity
from kafka_rollout.base.wording import count, few, nodes
from kafka_rollout.gates.gate import GateKind, GateRef
from kafka_rollout.model.plan import Lowering, Plan
from kafka_rollout.run.events import Approval, ControlAsked, Event, Planned, StepSkipped, TaskFailed, Voided
from kafka_rollout.run.step_events import (
    BatchSplit,
    ComparedAfter,
    ContentsCompared,
    DefaultSet,
    FeatureResults,
    Finalized,
    GateChecked,
    GateFailed,
    GatePassed,
    IncrementalScan,
    LossesReported,
    OfflineLogChosen,
    OfflineNodeEvent,
    OfflineSentence,
    OfflineSnapshotWritten,
    PreparingStop,
    RegistrationsRead,
    Rehearsed,
    Started,
    Stopping,
    StopPrepared,
    Trimmed,
)
from kafka_rollout.steps.common.node_steps import rollback_release_steps
from kafka_rollout.steps.procedures.kinds import procedure_of
from kafka_rollout.steps.procedures.parts import GATE_AFTER, GATE_BEFORE
from kafka_rollout.steps.step import Procedure, Step


@dataclass(slots=True)
class Progress:
    """Progress lines of a run. Call `lines` repeatedly with the whole history; it returns the new lines.

    `procedure` is the run's; without it the run's history says which one it is.
    """

    procedure: Procedure | None = None
    _events_seen: int = 0
    _shown: str = ""
    _steps_shown: set[str] = field(default_factory=set)
    _stopped_at: dict[tuple[str, int], float] = field(default_factory=dict)
    _last_passed_at: float | None = None
    _seconds: list[float] = field(default_factory=list)
    _rehearsed: list[float] = field(default_factory=list)
    _passed: set[tuple[str, int]] = field(default_factory=set)

    def lines(self, plan: Plan | None, events: Iterable[Event], tasks: Mapping[str, str | None]) -> Iterator[str]:
        """Return the new lines since the last call. `events`: all of the run. `tasks`: state by task id."""
        known = list(events)
        procedure = self.procedure or procedure_of(known)
        for _, line in self.timed_lines(plan, known):
            yield line
        for task, state in tasks.items():
            step = procedure.find(task)
            if step is not None and _acts(step) and state == "running" and task not in self._steps_shown:
                self._steps_shown.add(task)
                yield step.progress
            elif state == "failed" and f"failed {task}" not in self._steps_shown:
                self._steps_shown.add(f"failed {task}")
                yield f"task {task} failed"

    def timed_lines(self, plan: Plan | None, events: Sequence[Event]) -> Iterator[tuple[float, str]]:
        """Return the new lines of events since the last call, with their times (epoch seconds)."""
        procedure = self.procedure or procedure_of(events)
        fresh = events[self._events_seen :]
        self._events_seen += len(fresh)
        for event in fresh:
            line = self._line(procedure, plan, event)
            if line and _without_counts(line) != self._shown:
                self._shown = _without_counts(line)
                yield event.at, line

    def estimate(self, plan: Plan | None) -> str:
        """Estimate the time for the other nodes from the finished or rehearsed ones, without approvals."""
        times = self._seconds or self._rehearsed
        if plan is None or plan.lowering is Lowering.OFFLINE or not times:  # offline, all nodes start together
            return ""
        batches = [(one.key, ids) for one in plan.release_steps for ids in one.node_ids_together]
        left = [(key, [one for one in ids if (key, one) not in self._passed]) for key, ids in batches]
        nodes_left = sum(len(ids) for _, ids in left)
        if not nodes_left:
            return ""
        seconds = sum(bool(ids) for _, ids in left) * median(times)  # the time of a decision request does not count
        return f"about {duration(seconds)} for the {count(nodes_left, 'node')} left"

    def _line(self, procedure: Procedure, plan: Plan | None, event: Event) -> str:
        match event:
            case Planned() if plan is not None:
                return _plan_line(plan)
            case IncrementalScan():
                new = f": {'; '.join(event.findings)}" if event.findings else ""
                number = f"{event.offsets:,} new offsets" if event.offsets else "no new records"
                return f"coordinator logs: {number} since the scan{new}"
            case LossesReported():
                lost = f"{event.losses} losses" if event.losses else "no loss"
                return f"metadata.version {event.from_level} → {event.to_level}: {lost}"
            case Trimmed():
                return f"node {event.node_id}: {event.sentence}"
            case Rehearsed():
                self._rehearsed = list(event.node_seconds.values())
                return event.sentence
            case ContentsCompared():
                if event.after is ComparedAfter.DOWNGRADE:
                    return f"contents compared: {event.differences or 'no'} differences"
                counting = f", {event.failing} not in the plan: {few(event.first)}" if event.failing else ""
                return f"compared with the state before: {event.differences or 'no'} differences{counting}"
            case RegistrationsRead():
                return f"registrations with the levels to raise: {event.seen}"
            case PreparingStop():
                commands = f"{event.commands} command{'s' if event.commands > 1 else ''} before the stop"
                where = place(plan, event.release_step, event.node_id)
                return f"{where}: running {commands}, at most {duration(event.at_most_s)}"
            case StopPrepared():
                return f"{place(plan, event.release_step, event.node_id)}: ready to stop in {duration(event.seconds)}"
            case BatchSplit():
                parts = ", then ".join(nodes(part) for part in event.parts)
                return f"the batch is split into {parts}: {event.sentence}"
            case Stopping():
                self._stopped_at[(event.release_step, event.node_id)] = event.at
                return f"{place(plan, event.release_step, event.node_id)}: stopping"
            case Started():
                return f"{place(plan, event.release_step, event.node_id)}: started"
            case GateChecked() if not event.check.passes:
                first, *more = event.check.waits_for.split("; ")
                return f"{_subject(procedure, plan, event.ref)}: {first}" + (f" (and {len(more)} more)" if more else "")
            case GatePassed():
                return self._passed_gate(procedure, plan, event)
            case GateFailed():
                return f"{_subject(procedure, plan, event.ref)}: the gate failed: {event.message}"
            case Approval():
                return _decision_line(plan, event)
            case ControlAsked():
                return f"{event.text} (before the next node)"
            case DefaultSet():
                return f"cluster-wide default: {event.key} = {event.value}"
            case Finalized():
                return f"finalized: {', '.join(f'{name} {level}' for name, level in event.levels.items())}"
            case FeatureResults() if not all(outcome.result.ok for outcome in event.outcomes):
                return "; ".join(f"{one.feature}: {one.result} {one.sentence}".strip() for one in event.outcomes)
            case StepSkipped():
                skipped = procedure.find(event.step)
                return "" if skipped is None else f"{skipped.label} skipped: {event.reason}"
            case OfflineLogChosen():
                return f"the metadata log of node {event.log.node_id} is chosen"
            case OfflineSnapshotWritten():
                return f"the snapshot at metadata.version {event.to_level} is written: {count(event.records, 'record')}"
            case OfflineNodeEvent():
                is_named = f"ode {event.node_id}" in event.sentence
                return event.sentence if is_named else f"node {event.node_id}: {event.sentence}"
            case OfflineSentence():
                return event.sentence
            case TaskFailed():
                self._steps_shown.add(f"failed {event.task}")
                return f"task {event.task} failed: {event.sentence}"
            case Voided():
                return f"the approval is no longer valid: {'; '.join(event.blockers)}"
            case _:
                return ""

    def _passed_gate(self, procedure: Procedure, plan: Plan | None, event: GatePassed) -> str:
        ref = event.ref
        if ref.release_step is None or ref.node_id is None:
            return f"{_subject(procedure, plan, ref)}: {event.message}"
        if ref.kind is not GateKind.AFTER_START:
            return ""  # the following stop shows it too
        key = (ref.release_step, ref.node_id)
        if key in self._passed:
            return ""
        self._passed.add(key)
        took = ""
        if key in self._stopped_at:
            took = f" in {duration(event.at - self._stopped_at[key])}"
            batch = (ref.node_id,) if plan is None else plan.release_step(ref.release_step).batch_of(ref.node_id)
            if all((ref.release_step, node_id) in self._passed for node_id in batch):
                # From the end of a node or batch to the next one's, including Airflow's own time in between.
                self._seconds.append(event.at - (self._last_passed_at or self._stopped_at[key]))
                self._last_passed_at = event.at
        estimate = self.estimate(plan)
        return f"{place(plan, *key)}: done{took}" + (f", {estimate}" if estimate else "")


def _decision_line(plan: Plan | None, given: Approval) -> str:
    what = given.what.noun() if plan is None else given.what.noun(plan.direction)
    did = given.decision.value if given.decision.label in {"Approve", "Reject"} else f"answered '{given.decision}' to"
    return f"{given.by} {did} the {what}. Reason: {given.reason}"


def place(plan: Plan | None, release_step: str, node_id: int) -> str:
    """Return the position of a node in the plan, from 1 over all release steps.

    In a rollback nodes are counted from the first one rolled back.
    """
    if plan is None:
        return f"node {node_id}"
    for direction, steps in (("", plan.release_steps), ("back: ", rollback_release_steps(plan))):
        places = [(one, node_step) for one in steps for node_step in one.order]
        for number, (one, node_step) in enumerate(places, start=1):
            if (one.key, node_step.node_id) == (release_step, node_id):
                return f"{direction}node {number} of {len(places)} ({node_step.name} to {one.to_release})"
    return f"node {node_id}"


def _without_counts(line: str) -> str:
    """Drop the numbers, so that a line with other counts only is not shown again."""
    subject, colon, why = line.partition(": ")
    return subject + colon + re.sub(r"\d+", "#", why)


def _subject(procedure: Procedure, plan: Plan | None, ref: GateRef) -> str:
    if ref.release_step is None or ref.node_id is None:
        name = ref.kind.value.replace("-", " ")
        waits_for = next((step.progress for _, step in procedure if step.gate is ref.kind), name)
        return f"waiting for {waits_for}"
    of_node = next(step.progress for step in (GATE_BEFORE, GATE_AFTER) if step.gate is ref.kind)
    return f"{place(plan, ref.release_step, ref.node_id)} {of_node}"


def _acts(step: Step) -> bool:
    """Return whether the start of the step is shown; gates and approvals have events of their own."""
    return bool(step.progress) and (step.act is not None or step.scan is not None or step.service is not None)


def _plan_line(plan: Plan) -> str:
    release_steps = ", then ".join(
        f"restart of {count(len(release_step.order), 'node')} on {release_step.to_release}"
        if release_step.restarts
        else f"{len(release_step.order)} nodes {release_step.from_release} → {release_step.to_release}"
        for release_step in plan.release_steps
    )
    features = ", ".join(f"{c.feature} {c.current} → {c.target}" for c in plan.feature_changes)
    numbers = Counter(finding.severity for finding in plan.findings)
    findings = ", ".join(count(numbers[severity], severity.value) for severity in Severity)
    return f"planned: {release_steps or 'no release steps'}; {features or 'no features to finalize'}; {findings}"
