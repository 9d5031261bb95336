"""What must have been seen before levels are raised, which Kafka may not undo.

A task of Airflow that was marked as successful proves nothing: the history has what each gate and the comparison saw.
"""

from __future__ import annotations

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.model.plan import Direction
from kafka_rollout.observation.run import ReadRun
from kafka_rollout.run.batch_progress import describe_batch
from kafka_rollout.run.projections.open_batches import RollOf, batches_of, first_open_batch
from kafka_rollout.run.step_events import ComparedAfter, ContentsCompared, Started


def refuse_unproved_roll(run: ReadRun) -> None:
    """Raise RefusedError unless the gate after the start of each node has passed, and the cluster was compared with its
    state before the run since the last start. A downgrade lowers levels before its roll, and needs neither.
    """
    events = run.history.events()
    batches = batches_of(RollOf.PLAN, events, run.plan)
    if run.plan.direction is not Direction.UPGRADE or not batches:
        return
    index = first_open_batch(events, batches)
    if index < len(batches):
        raise RefusedError(
            f"No level is raised: the gate after the start has not passed for {describe_batch(batches, index)}.",
            remedy="Clear roll.gate_after of this batch with all downstream tasks, or repeat the command of the run.",
        )
    last = max((number for number, event in enumerate(events) if isinstance(event, Started)), default=-1)
    is_compared = any(
        isinstance(event, ContentsCompared) and event.after is ComparedAfter.ROLL for event in events[last + 1 :]
    )
    if last >= 0 and not is_compared:
        raise RefusedError(
            "No level is raised: the cluster was not compared with its state before the run since the last start.",
            remedy="Clear compare_after_roll with all downstream tasks, or repeat the command of the run.",
        )
