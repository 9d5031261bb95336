"""How far the batches of a roll are, by the view of its run: those before the open one are done, others wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_rollout.base.wording import nodes
from kafka_rollout.model.plan import BatchStep, Plan
from kafka_rollout.run.projections.open_batches import BatchPart, RollOf, batches_of
from kafka_rollout.run.view import RunView, StepState

_LABELS = {
    BatchPart.GATE_BEFORE: "gate before the stop",
    BatchPart.REPLACE: "replacement",
    BatchPart.GATE_AFTER: "gate after the start",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBatch:
    """A batch that has begun and is not done."""

    name: str
    """Its place and its nodes: `batch 4 of 6 (nodes 11, 12)`."""
    part: str
    """The part that began last: `gate before the stop`."""
    task: str
    """The instance of Airflow's task for this part: `roll.gate_before[3]`."""
    state: StepState
    at: float
    """When the part got this state (epoch seconds)."""
    reason: str = ""
    """Why it waits for an answer, or has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """The batches of a roll, or of its rollback."""

    total: int
    done: int
    open: tuple[OpenBatch, ...] = ()
    """Those that have begun; usually one, because each waits for those before it."""

    @property
    def sentence(self) -> str:
        """The open batches and what they do; empty if none is open."""
        return "; ".join(f"{one.name}: {one.part}" for one in self.open)


def batch_progress(view: RunView, plan: Plan | None, of: RollOf) -> BatchProgress | None:
    """Return how far the batches are; None if the plan has none of this kind, or before the rollback begins."""
    batches = () if plan is None else batches_of(of, view.events, plan)
    if not batches:
        return None
    done, found = 0, list[OpenBatch]()
    for batch in batches:
        part = next((one for one in reversed(BatchPart) if (of.step_of(one), batch.index) in view.parts), None)
        if part is None:
            continue
        seen = view.parts[of.step_of(part), batch.index]
        if seen.state is StepState.DONE and part is BatchPart.GATE_AFTER:
            done += 1
            continue
        found.append(
            OpenBatch(
                name=describe_batch(batches, batch.index),
                part=_LABELS[part],
                task=f"{of.step_of(part)}[{batch.index}]",
                state=StepState.BEGUN if seen.state is StepState.DONE else seen.state,
                at=seen.at,
                reason=seen.reason,
            )
        )
    return BatchProgress(total=len(batches), done=done, open=tuple(found))


def current_batches(view: RunView, plan: Plan | None) -> BatchProgress | None:
    """Return how far the batches are that the run works on: those of its newest part, or of the plan."""
    newest = max(view.parts, key=lambda key: view.parts[key].at, default=None)
    of = next((one for one in RollOf if newest and newest[0].rpartition(".")[0] == one.group), None)
    return None if of is None else batch_progress(view, plan, of)


def describe_batch(batches: Sequence[BatchStep], index: int) -> str:
    """Return the place of a batch with its nodes. Airflow names an instance that waits only by its index."""
    return f"batch {index + 1} of {len(batches)} ({nodes(batches[index].node_ids)})"
