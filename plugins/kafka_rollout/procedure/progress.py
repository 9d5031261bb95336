"""The progress of a run in lines: each event says its own, and a node that is done also the remaining time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from kafka_rollout.base.durations import duration
from kafka_rollout.base.wording import count, without_counts
from kafka_rollout.gates.gate import GateKind, GateRef
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.node_steps import rollback_release_steps
from kafka_rollout.procedure.kinds import procedure_of
from kafka_rollout.procedure.parts import GATE_AFTER, GATE_BEFORE
from kafka_rollout.procedure.step import EachBatch, EachNode, GateStep, Procedure
from kafka_rollout.procedure.step_lines import list_shown
from kafka_rollout.run.estimates import estimate_of
from kafka_rollout.run.events import Event, Words
from kafka_rollout.run.step_events import GatePassed
from kafka_rollout.run.view import RunView


@dataclass(slots=True)
class Progress:
    """Progress lines of a run. Call `lines` repeatedly with the whole history; it returns the new lines.

    `procedure` is the run's; without it the run's history says which one it is.
    """

    procedure: Procedure | None = None
    view: RunView = field(default_factory=RunView)
    _shown: str = ""

    def lines(self, plan: Plan | None, events: Sequence[Event]) -> Iterator[str]:
        """Return the new lines since the last call. `events`: all of the run."""
        for _, line in self.timed_lines(plan, events):
            yield line

    def timed_lines(self, plan: Plan | None, events: Sequence[Event]) -> Iterator[tuple[float, str]]:
        """Return the new lines since the last call, with their times (epoch seconds)."""
        words = _words(self.procedure or procedure_of(events), plan)
        for event in events[len(self.view.events) :]:
            is_known = isinstance(event, GatePassed) and event.ref in self.view.passed
            self.view.apply(event)
            line = "" if is_known else event.line(words) + self._time_of(event, plan)
            if line and without_counts(line) != self._shown:
                self._shown = without_counts(line)
                yield event.at, line

    def estimate(self, plan: Plan | None) -> str:
        """Return the time for the other nodes; empty if it is unknown, or if none is left."""
        found = None if plan is None else estimate_of(self.view, plan)
        if found is None or not found.left:
            return ""
        return f"about {duration(found.remaining_s)} for the {count(found.left, 'node')} left"

    def _time_of(self, event: Event, plan: Plan | None) -> str:
        """Return how long a node took that is done now, and the time for the others."""
        if not isinstance(event, GatePassed) or event.ref.kind is not GateKind.AFTER_START:
            return ""
        node = self.view.nodes.get(
            (event.ref.release_step or "", -1 if event.ref.node_id is None else event.ref.node_id)
        )
        took = f" in {duration(node.took_s)}" if node is not None and node.took_s is not None else ""
        estimate = self.estimate(plan)
        return took + (f", {estimate}" if estimate else "")


def _words(procedure: Procedure, plan: Plan | None) -> Words:
    """Return the names of a plan and a procedure, for the lines of events."""

    def label(step: str) -> str:
        found = next((part for one, part, _ in list_shown(procedure.parts) if one == step), None)
        return step if found is None else "Nodes" if isinstance(found, EachBatch | EachNode) else found.label

    def begins(step: str) -> str:
        found = procedure.find(step)
        return "" if found is None or isinstance(found, GateStep) else found.progress

    def gate(ref: GateRef) -> str:
        if ref.release_step is None or ref.node_id is None:
            name = ref.kind.value.replace("-", " ")
            gates = (step for _, step in procedure if isinstance(step, GateStep))
            return f"waiting for {next((step.progress for step in gates if step.gate is ref.kind), name)}"
        of_node = next(step.progress for step in (GATE_BEFORE, GATE_AFTER) if step.gate is ref.kind)
        return f"{place(plan, ref.release_step, ref.node_id)} {of_node}"

    return Words(plan=plan, place=partial(place, plan), label=label, begins=begins, gate=gate)


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
