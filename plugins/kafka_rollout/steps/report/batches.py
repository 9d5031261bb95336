"""The batches of a run in its report, of a plan that restarts several nodes together."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.gates.check import GateKind
from kafka_rollout.model.plan import Batch, Plan, ReleaseStep
from kafka_rollout.report.run_report import BatchReport
from kafka_rollout.run.events import Event, events_of
from kafka_rollout.run.projections.nodes import GateHistory, node_times
from kafka_rollout.run.step_events import BatchSplit


def find_batches(plan: Plan, events: Sequence[Event], gates: Sequence[GateHistory]) -> tuple[BatchReport, ...]:
    """Return the batches of the plan, then those of a rollback that have begun; none for a plan without batches."""
    if not plan.has_batches:
        return ()
    forth = [_report(step, batch, events, gates) for step in plan.release_steps for batch in step.batches]
    back = [
        _report(step, batch, events, gates)
        for step in map(ReleaseStep.reversed, reversed(plan.release_steps))
        for batch in step.batches
    ]
    return (*forth, *(batch for batch in back if batch.began_at is not None))


def _report(step: ReleaseStep, batch: Batch, events: Sequence[Event], gates: Sequence[GateHistory]) -> BatchReport:
    times = [found for one in batch.node_ids if (found := node_times(events, one).get(step.key)) is not None]
    began = min((one.began_at for one in times if one.began_at is not None), default=None)
    ends = [
        gate.ended_at
        for gate in gates
        if (gate.ref.kind, gate.ref.release_step) == (GateKind.AFTER_START, step.key)
        and gate.ref.node_id in batch.node_ids
        and gate.is_passed
        and gate.ended_at is not None
    ]
    ended = max(ends) if len(ends) == len(batch.node_ids) else None
    splits = [
        split
        for split in events_of(events, BatchSplit)
        if split.release_step in {step.key, ""} and set(batch.node_ids) >= {one for part in split.parts for one in part}
    ]
    return BatchReport(
        release_step=step.key,
        node_ids=batch.node_ids,
        rack=batch.rack,
        ends=batch.ends,
        parts=splits[0].parts if splits else (batch.node_ids,),
        split=splits[0].sentence if splits else "",
        began_at=began,
        ended_at=ended,
        duration_s=round(ended - began, 3) if began is not None and ended is not None else None,
    )
