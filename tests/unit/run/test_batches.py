"""Which batches of a roll have passed, by the history alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.gates.gate import GateKind, GateRef
from kafka_rollout.model.plan import Plan
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    Decision,
    Event,
    StepBegan,
    StepEnded,
    StepOutcome,
    StoppedByOperator,
)
from kafka_rollout.run.projections.open_batches import (
    RollOf,
    batches_of,
    find_cleared,
    find_end,
    find_part,
    first_open_batch,
    is_rollback_decided,
    passed_node_steps,
)
from kafka_rollout.run.step_events import BatchSplit, GatePassed, RollbackPlanned, Started, Stopping
from tests.unit.run.plans import two_steps

VIA, TARGET, BACK = "3.4.0-to-3.4.1", "3.4.1-to-4.3.1", "4.3.1-to-3.4.1"


def passed(node_id: int, key: str = VIA) -> GatePassed:
    ref = GateRef(kind=GateKind.AFTER_START, release_step=key, node_id=node_id)
    return GatePassed(ref=ref, gate=f"after node {node_id}", message="passed")


def stopping(node_id: int, key: str = VIA) -> Stopping:
    return Stopping(node_id=node_id, release_step=key)


def started(node_id: int, key: str = VIA) -> Started:
    release = Release.parse(key.rpartition("-")[2])
    return Started(node_id=node_id, release_step=key, release=release, pid=1, seconds=1.0)


def approval(what: ApprovalOf, decision: Decision = Decision.APPROVED) -> Approval:
    return Approval(what=what, by="alice", decision=decision, reason="why", plan_hash="x")


def plan() -> Plan:
    return two_steps((1, 2), (1, 2))


def test_a_node_stands_in_the_batches_once_for_each_release_step() -> None:
    assert [batch.key for batch in plan().batch_steps] == [((VIA, 1),), ((VIA, 2),), ((TARGET, 1),), ((TARGET, 2),)]
    assert [batch.index for batch in plan().batch_steps] == [0, 1, 2, 3]


def test_a_batch_has_passed_until_its_node_is_stopped_again_in_the_release_step_or_its_rollback() -> None:
    batches = plan().batch_steps
    done: list[Event] = [stopping(1), started(1), passed(1)]
    assert first_open_batch([], batches) == 0
    assert first_open_batch(done[:2], batches) == 0
    assert first_open_batch(done, batches) == 1
    done += [passed(2), stopping(1, TARGET)]
    assert first_open_batch(done, batches) == 2, "the next release step leaves the one before it as it is"
    assert first_open_batch([*done, started(1, TARGET), passed(1, TARGET), passed(2, TARGET)], batches) == 4
    assert first_open_batch([*done, stopping(1, "3.4.1-to-3.4.0")], batches) == 0
    assert (TARGET, 1) not in passed_node_steps([passed(1, TARGET), stopping(1, BACK)])


def test_the_batches_of_a_rollback_are_those_that_the_history_names_last() -> None:
    assert batches_of(RollOf.ROLLBACK, [], plan()) == ()
    begun = [RollbackPlanned(batches=((BACK, (9,)),)), RollbackPlanned(batches=((BACK, (2, 1)),))]
    (batch,) = batches_of(RollOf.ROLLBACK, begun, plan())
    assert batch.key == ((BACK, 2), (BACK, 1))
    assert batch.release_step.to_release == Release.parse("3.4.1")


def test_a_decision_to_roll_back_holds_until_the_plan_is_approved_again() -> None:
    back, roll = approval(ApprovalOf.ROLL_BACK), approval(ApprovalOf.ROLL)
    assert not is_rollback_decided([roll])
    assert is_rollback_decided([roll, back, passed(1)])
    assert not is_rollback_decided([roll, back, roll])
    assert is_rollback_decided([back, replace(roll, decision=Decision.REJECTED)])


def test_an_answer_or_an_operator_ends_the_roll() -> None:
    assert find_end([passed(1), approval(ApprovalOf.PAUSE)]) == ""
    assert find_end([StoppedByOperator(target=Release.parse("4.3.1"))]) == "The run was stopped before its next node."
    assert find_end([approval(ApprovalOf.FAILED_GATE, Decision.STOP_HERE)]) == "alice stopped the run: why."
    rejected = find_end([approval(ApprovalOf.PAUSE, Decision.REJECTED), passed(1)])
    assert rejected == "alice did not approve the end of the pause: why."


def test_the_newest_split_names_the_nodes_that_stop_together() -> None:
    batch = replace(plan().batch_steps[0], node_ids=(1, 2))
    assert find_part([], batch, 2) == (1, 2)
    alone = BatchSplit(parts=((1,), (2,)), sentence="shared", release_step=VIA)
    assert find_part([alone], batch, 2) == (2,)
    assert find_part([replace(alone, release_step=BACK)], batch, 2) == (1, 2)


def plan_with_a_batch() -> Plan:
    return two_steps((1, 2, 3, 4), (), batches=((1,), (2, 3), (4,)))


BEGAN = StepBegan(step="roll.gate_after", batch=2)
FAILED = StepEnded(step="roll.gate_after", batch=2, outcome=StepOutcome.FAILED, reason="x")
STOPPED = StoppedByOperator(target=Release.parse("4.3.1"))
STOP_HERE = approval(ApprovalOf.FAILED_GATE, Decision.STOP_HERE)
TRAFFIC = StepBegan(step="stop_traffic")
ALL = "the task roll.gate_before with all downstream tasks"
AFTER_OFFLINE = "offline.nodes.gate_after"  # all nodes start at once: their batches have no other part


@pytest.mark.parametrize(
    ("events", "cleared"),
    [
        ([BEGAN, STOPPED, FAILED, TRAFFIC], ALL),
        ([BEGAN, STOP_HERE, FAILED], ALL),
        ([BEGAN, STOPPED], ALL),
        ([replace(BEGAN, step="roll_back.replace"), STOPPED], ALL.replace("roll.", "roll_back.")),
        ([replace(BEGAN, step="offline.nodes.gate_after"), STOPPED], ALL.replace("roll.gate_before", AFTER_OFFLINE)),
        ([BEGAN, FAILED], "the failed task"),
        ([BEGAN, STOPPED, FAILED, replace(BEGAN, batch=1), FAILED], "the failed task"),
        ([BEGAN, StepBegan(step="finalize"), STOPPED], "the failed task"),
        ([StepBegan(step="plan"), STOPPED], "the failed task"),
    ],
)
def test_a_run_whose_waiting_batches_have_ended_is_continued_with_the_first_part_of_all(
    events: list[Event], cleared: str
) -> None:
    assert find_cleared(events) == cleared
