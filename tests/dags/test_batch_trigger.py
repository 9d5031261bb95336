"""The parts of batches in the triggerer: what waiting costs, and how they end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_rollout.airflow.gates import history_poll
from kafka_rollout.base.errors import TransientError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.observation.cluster_ports import ClusterPorts
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
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import plan_upgrade

pytestmark = pytest.mark.airflow


class CountedReads:
    """The history of a run, which counts how often it is read."""

    def __init__(self, run: Any) -> None:
        self.run, self.reads = run, 0

    def events(self) -> tuple[Event, ...]:
        self.reads += 1
        return tuple(self.run.events())

    def load_plan(self) -> Any:
        return self.run.load_plan()


@pytest.fixture
def ports(tmp_path: Path) -> ClusterPorts:
    ports = fake_ports(FakeCluster(R391), tmp_path)
    plan_upgrade(ports, R431, finalize=False)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    return ports


@pytest.fixture
def run(ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch) -> CountedReads:
    from kafka_rollout.airflow.gates import batch_trigger

    def connect(cluster: str) -> None:
        raise AssertionError("A gate that waits for its turn opens no connection.")

    counted = CountedReads(ports.run)
    monkeypatch.setattr(batch_trigger, "ClusterAccess", connect)
    monkeypatch.setattr("kafka_rollout.run.store.opening.open_run", lambda cluster, run_id: counted)
    return counted


def waiting(index: int, part: str = "gate_before") -> Any:
    from kafka_rollout.airflow.gates.batch_trigger import BatchTrigger

    place = {"dag_id": "kafka_upgrade_fake", "run_id": "run-1", "map_index": index, "clears": 0, "params": {}}
    return BatchTrigger(cluster="fake", of="plan", part=part, place=place)


async def wait_and_end(gates: Sequence[asyncio.Future[Any]], for_s: float) -> None:
    """Let all gates wait for a time, then end them."""
    _, pending = await asyncio.wait(gates, timeout=for_s)
    assert len(pending) == len(gates)
    for gate in pending:
        gate.cancel()
    await asyncio.gather(*gates, return_exceptions=True)


def test_all_gates_that_wait_for_their_turn_share_one_read_of_the_history(run: CountedReads) -> None:
    async def wait_together() -> None:
        gates = [asyncio.ensure_future(anext(waiting(2 + index % 4).run())) for index in range(200)]
        await wait_and_end(gates, 0.5)

    asyncio.run(wait_together())
    assert run.reads == 1


def test_only_the_gate_whose_turn_is_next_reads_the_history_often(
    run: CountedReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time until it sees that its turn has come is added to every batch."""
    pauses: dict[int, float] = {}

    async def pause(trigger: Any, seconds: float) -> None:
        pauses[trigger.place["map_index"]] = seconds
        raise TimeoutError

    async def wait(index: int) -> None:
        with pytest.raises(TimeoutError):
            await anext(waiting(index).run())

    monkeypatch.setattr(type(waiting(1)), "pause", pause)
    for index in (1, 2, 5):
        asyncio.run(wait(index))
    assert pauses == {1: 0.2, 2: 1.0, 5: 1.0}


def test_the_log_of_a_gate_that_waits_names_its_nodes_and_those_it_waits_for(
    run: CountedReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow names an instance that has not run in a worker only by its index, which begins with 0."""
    plan, said = run.load_plan(), list[str]()
    waits = waiting(2)
    log = SimpleNamespace(info=lambda text, *values: said.append(text % values))
    monkeypatch.setattr(type(waits), "log", log)

    async def wait() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(waits.run()), timeout=0.5)

    asyncio.run(wait())
    own, first = (plan.batch_steps[index].node_ids[0] for index in (2, 0))
    assert said == [
        f"This is the gate before the stop of batch 3 of 6 (node {own}).",
        f"It waits for the batches before it: batch 1 of 6 (node {first}) has not passed.",
    ]


@pytest.mark.parametrize(
    ("what", "decision", "ends"),
    [
        (ApprovalOf.ROLL_BACK, Decision.APPROVED, "skipped"),
        (ApprovalOf.FAILED_GATE, Decision.STOP_HERE, "alice stopped the run: why."),
        (ApprovalOf.PAUSE, Decision.REJECTED, "alice did not approve the end of the pause: why."),
    ],
)
def test_a_decision_ends_the_gates_of_later_batches_and_not_one_that_was_cleared_after_it(
    run: CountedReads, ports: ClusterPorts, what: ApprovalOf, decision: Decision, ends: str
) -> None:
    def decide() -> None:
        given = Approval(what=what, by="alice", decision=decision, reason="why", plan_hash=ports.run.load_plan().hash)
        ports.run.record(given)

    async def decide_while_waiting() -> Any:
        gate = asyncio.ensure_future(anext(waiting(3).run()))
        await asyncio.sleep(0.2)
        decide()
        return await asyncio.wait_for(gate, timeout=20)

    event = asyncio.run(decide_while_waiting())
    if ends == "skipped":
        assert event.payload == "skipped"
        return
    assert (event.payload["state"], event.payload["message"].startswith(ends)) == ("ended", True)

    async def wait_again() -> bool:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(waiting(3).run()), timeout=1.5)
        return True

    assert asyncio.run(wait_again())


BEGAN = StepBegan(step="roll.replace", batch=0)
DONE = StepEnded(step="roll.replace", batch=0, outcome=StepOutcome.DONE)
FAILED = StepEnded(step="roll.replace", batch=0, outcome=StepOutcome.FAILED, reason="The disk is full.")


def follow(
    ports: ClusterPorts,
    monkeypatch: pytest.MonkeyPatch,
    *,
    before: Sequence[Event] = (),
    later: Sequence[Event] = (),
    states: Sequence[str | Exception | None] = (None,),
    within_s: float = 2.0,
) -> Any:
    """What the gate after the start of the first batch yields: an event, `checks` if it is checked, None if it waits.

    `before`: in the history when it begins to wait; `later`: recorded while it waits. `states`: of its replacement in
    Airflow, one for each time that it is read; the last one stays.
    """
    left = list(states)

    def read_states(dag_id: str, run_id: str, task_id: str) -> dict[int, str]:
        assert (dag_id, run_id, task_id) == ("kafka_upgrade_fake", "run-1", "roll.replace")
        state = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(state, Exception):
            raise state
        return {1: "running"} if state is None else {0: state, 1: "failed"}

    async def check(trigger: Any, *_: Any) -> str:
        return "checks"

    async def wait() -> Any:
        gate = asyncio.ensure_future(anext(trigger.run()))
        await asyncio.sleep(0.1)
        for event in later:
            ports.run.record(event)
        done, _ = await asyncio.wait([gate], timeout=within_s)
        gate.cancel()
        return gate.result() if done else None

    trigger = waiting(0, part="gate_after")
    monkeypatch.setattr(type(trigger), "_watch", check)
    monkeypatch.setattr(history_poll, "read_states", read_states)
    for event in before:
        ports.run.record(event)
    return asyncio.run(wait())


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        # What Airflow shows, what the history has before the wait and during it.
        ({"states": [None]}, None),
        ({"states": ["running"], "later": [BEGAN]}, None),
        ({"states": ["running"], "later": [BEGAN, DONE]}, "checks"),  # before the end of the worker's process
        ({"states": ["running"], "before": [BEGAN], "later": [DONE]}, "checks"),
        # The gate alone was cleared, or the triggerer began again.
        ({"states": ["success"], "before": [BEGAN, DONE]}, "checks"),
        ({"states": [None], "before": [BEGAN, DONE]}, None),  # all parts of the batch were cleared
        ({"states": ["running"], "before": [BEGAN, DONE], "later": [BEGAN]}, None),
        ({"states": [None], "before": [BEGAN, FAILED]}, None),
        ({"states": ["up_for_retry"], "before": [BEGAN], "later": [FAILED]}, None),
        ({"states": ["success"]}, "checks"),  # a user marked it: the check sees the nodes
        # What has begun ends first.
        ({"states": ["running"], "before": [BEGAN], "later": [StoppedByOperator(target=R431)]}, None),
        ({"states": [OSError("no route"), "success"], "within_s": 8.0}, "checks"),
        ({"states": [OSError("no route")]}, None),
    ],
)
@pytest.mark.usefixtures("run")
def test_the_gate_after_the_start_is_checked_once_its_nodes_are_replaced(
    ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, case: Mapping[str, Any], expected: str | None
) -> None:
    assert follow(ports, monkeypatch, **case) == expected


@pytest.mark.parametrize("state", ["failed", "upstream_failed"])
def test_the_gate_after_the_start_fails_with_the_replacement(
    run: CountedReads, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """Otherwise a run whose last batch fails would never end. A worker that was killed has recorded no failure."""
    event = follow(ports, monkeypatch, states=["running", state], within_s=8.0)
    assert event.payload["state"] == "ended"
    assert event.payload["message"].startswith(
        f"The nodes were not replaced: Airflow shows roll.replace[0] as {state}. "
    )


def test_the_gate_after_the_start_is_skipped_with_the_replacement(
    run: CountedReads, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert follow(ports, monkeypatch, states=["skipped"]).payload == "skipped"


def test_a_state_that_was_read_before_a_gate_began_to_wait_does_not_end_it(
    run: CountedReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch can have been cleared since."""
    states = [{0: "failed"}, {}]
    monkeypatch.setattr(history_poll, "read_states", lambda *_: states.pop(0))

    async def clear_and_wait() -> None:
        other = asyncio.ensure_future(anext(waiting(1, part="gate_after").run()))  # its poll stays
        assert (await anext(waiting(0, part="gate_after").run())).payload["state"] == "ended"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(waiting(0, part="gate_after").run()), timeout=1.0)
        other.cancel()

    asyncio.run(clear_and_wait())


def test_all_gates_after_the_start_share_one_read_of_the_states(
    run: CountedReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []

    def read_states(*_: str) -> dict[int, str]:
        reads.append(time.monotonic())
        return {}

    monkeypatch.setattr(history_poll, "read_states", read_states)

    async def wait_together() -> None:
        gates = []
        for index in range(200):
            gates.append(asyncio.ensure_future(anext(waiting(1 + index % 5, part="gate_after").run())))
            await asyncio.sleep(0.005)
        await wait_and_end(gates, 8.0)

    asyncio.run(wait_together())
    assert len(reads) in {1, 2}
    assert run.reads < 20


def waiting_replacement(index: int) -> Any:
    from kafka_rollout.airflow.gates.replace_trigger import ReplaceTrigger

    place = {"dag_id": "kafka_upgrade_fake", "run_id": "run-1", "map_index": index, "params": {}}
    return ReplaceTrigger(cluster="fake", of="plan", place=place)


def wait_for_gate(states: dict[int, str], index: int, then: Any = None) -> Any:
    """Return the event of the trigger, or None if it still waits."""
    trigger = waiting_replacement(index)

    async def state(*_: Any, **__: Any) -> str:
        return states.get(index, "")

    async def wait() -> Any:
        task = asyncio.ensure_future(anext(trigger.run()))
        await asyncio.sleep(0.3)
        if then is not None:
            then()
        done, _ = await asyncio.wait([task], timeout=2.0)
        if not done:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return None
        return task.result()

    trigger.state = state
    return asyncio.run(wait())


def test_a_replacement_begins_when_airflow_shows_that_the_gate_has_passed(run: CountedReads) -> None:
    assert wait_for_gate({0: "deferred"}, 0) is None
    assert wait_for_gate({0: "success"}, 0).payload == {"records": {}}


def test_a_replacement_begins_when_the_gate_passes_in_the_history_while_it_waits(run: CountedReads) -> None:
    def passes() -> None:
        run.run.record(StepBegan(step="roll.gate_before", batch=0))
        run.run.record(StepEnded(step="roll.gate_before", batch=0, outcome=StepOutcome.DONE))

    assert wait_for_gate({}, 0, passes).payload == {"records": {}}
    assert wait_for_gate({}, 0) is None, "what passed before the wait can have been cleared"


def test_a_replacement_ends_as_its_gate(run: CountedReads) -> None:
    assert type(wait_for_gate({0: "skipped"}, 0)).__name__ == "TaskSkippedEvent"
    failed = wait_for_gate({0: "failed"}, 0).payload
    assert failed["state"] == "ended"
    assert failed["message"].startswith("The nodes were not stopped: Airflow shows roll.gate_before[0] as failed.")


def test_an_outage_of_the_database_ends_no_wait(run: CountedReads, monkeypatch: pytest.MonkeyPatch) -> None:
    events, left = run.events, [TransientError("the database does not respond")]

    def read() -> Any:
        if left:
            raise left.pop()
        return events()

    monkeypatch.setattr(run, "events", read)
    assert wait_for_gate({0: "success"}, 0).payload == {"records": {}}
    assert not left
