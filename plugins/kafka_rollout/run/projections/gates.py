"""Gates of a run: which were passed, and every recorded check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kafka_rollout.gates.check import GateCheck, GateKind, GateRef
from kafka_rollout.run.events import Approval, ApprovalOf, Decision, Event
from kafka_rollout.run.step_events import GateChecked, GateFailed, GatePassed, Started, Stopping


def gate_is_passed(events: Sequence[Event], ref: GateRef) -> bool:
    """Return whether the run has passed the gate since it last stopped or started the gate's node."""
    passed = False
    for event in events:
        match event:
            case Stopping() | Started() if event.node_id == ref.node_id:
                passed = False
            case GatePassed() if event.ref == ref:
                passed = True
    return passed


def times_passed(events: Sequence[Event], ref: GateRef) -> int:
    """Return how often the run has passed the gate since it last stopped or started the gate's node, or since an
    approver decided.
    """
    passed = 0
    for event in events:
        match event:
            case Approval():
                passed = 0
            case Stopping() | Started() if event.node_id == ref.node_id:
                passed = 0
            case GatePassed() if event.ref == ref:
                passed += 1
    return passed


class GateState(StrEnum):
    """The values are those of the report."""

    WAITS = "waits"
    PASSES = "passes"  # the newest check passed; the gate is still being watched
    PASSED = "passed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateHistory:
    """A gate and its recorded checks, oldest first. Times in epoch seconds."""

    ref: GateRef
    gate: str
    state: GateState = GateState.WAITS
    message: str = ""
    checks: tuple[GateCheck, ...] = ()
    passed_or_failed_at: float | None = None

    @property
    def began_at(self) -> float | None:
        return self.checks[0].at if self.checks else None

    @property
    def ended_at(self) -> float | None:
        """When the gate passed, failed or was last checked, whichever is later."""
        checked_at = self.checks[-1].at if self.checks else None
        return max((at for at in (self.passed_or_failed_at, checked_at) if at is not None), default=None)

    @property
    def waited_s(self) -> float | None:
        began, ended = self.began_at, self.ended_at
        return None if began is None or ended is None else ended - began

    @property
    def is_passed(self) -> bool:
        return self.state in {GateState.PASSED, GateState.PASSES}


def gate_histories(events: Sequence[Event]) -> tuple[GateHistory, ...]:
    """Return every gate that was checked, in the order of the first checks."""
    found: dict[GateRef, GateHistory] = {}
    for event in events:
        match event:
            case GateChecked(ref=ref, check=check):
                gate = found.get(ref, GateHistory(ref=ref, gate=check.gate))
                state = GateState.PASSES if check.passes else GateState.WAITS
                if check.passes and gate.state is GateState.PASSED:  # checked once more right before the act
                    state = GateState.PASSED
                found[ref] = replace(gate, checks=(*gate.checks, check), state=state)
            case GatePassed(ref=ref) | GateFailed(ref=ref):
                gate = found.get(ref, GateHistory(ref=ref, gate=event.gate))
                state = GateState.PASSED if isinstance(event, GatePassed) else GateState.FAILED
                found[ref] = replace(gate, state=state, message=event.message, passed_or_failed_at=event.at)
    return tuple(found.values())


def open_gates(events: Sequence[Event]) -> tuple[GateHistory, ...]:
    """Return the gates that have not passed and that the run has not left by a rollback, the newest check first.

    A history has the checks since the node was stopped or started last.
    """
    begins: dict[GateRef, int] = {}
    passed = set[GateRef]()
    for at, event in enumerate(events):
        match event:
            case GateChecked(ref=ref) if event.check.passes and ref in passed:  # once more right before the act
                continue
            case GateChecked(ref=ref) | GateFailed(ref=ref):
                passed.discard(ref)
                begins.setdefault(ref, at)
            case GatePassed(ref=ref):
                begins.pop(ref, None)
                passed.add(ref)
            case Stopping() | Started():
                begins = {ref: begin for ref, begin in begins.items() if ref.node_id != event.node_id}
                passed = {ref for ref in passed if ref.node_id != event.node_id}
            case (
                Approval(decision=Decision.ROLL_BACK) | Approval(what=ApprovalOf.ROLL_BACK, decision=Decision.APPROVED)
            ):
                begins = {}
    found = [
        gate_histories([one for one in events[begin:] if getattr(one, "ref", None) == ref])[0]
        for ref, begin in begins.items()
    ]
    return tuple(sorted(found, key=lambda gate: gate.ended_at or 0.0, reverse=True))


def node_step_seconds(events: Sequence[Event]) -> dict[str, float]:
    """Return release step and node (`3.9.1-to-4.3.1 node 2`) → seconds from the stop until the gate passed."""
    began: dict[str, float] = {}
    found: dict[str, float] = {}
    for event in events:
        match event:
            case Stopping():
                began.setdefault(f"{event.release_step} node {event.node_id}", event.at)
            case GatePassed() if event.ref.kind is GateKind.AFTER_START:
                key = f"{event.ref.release_step} node {event.ref.node_id}"
                if key in began:
                    found[key] = round(event.at - began[key], 1)
    return found
