"""The trigger behind a gate: what it is rebuilt from, and how each way of its ending reaches the task."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_rollout.base.json_forms import to_json
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.gate import (
    GateCheck,
    GateCondition,
    GateKind,
    GatePolicy,
    GateRef,
    GateWatch,
    WatchState,
    WatchStatus,
)
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.roll.node import replace_node
from kafka_rollout.run.events import ApprovalOf, Decision, events_of
from kafka_rollout.run.step_events import GatePassed
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports, in_step
from tests.plans import plan_upgrade

pytestmark = pytest.mark.airflow

GATE = GateRef(kind=GateKind.AFTER_START, release_step="3.9.1-to-4.3.1", node_id=2)


@pytest.fixture
def ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterPorts:
    """Node 2 was just replaced."""
    from kafka_rollout.airflow.common.cluster_access import ClusterAccess

    world = FakeCluster(R391, catch_up_rounds=3)
    ports = fake_ports(world, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=True)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "a quiet evening")
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, "3.9.1-to-4.3.1", 2)))

    @contextmanager
    def open_fake(*_: object, **_options: object) -> Iterator[ClusterPorts]:
        yield ports

    async def nothing(_: object) -> None:
        return None

    monkeypatch.setattr(ClusterAccess, "open", open_fake)
    monkeypatch.setattr(ClusterAccess, "asecurity", nothing)
    return ports


def trigger(ports: ClusterPorts, *, plan_hash: str | None = None, timeout_s: float = 60.0) -> Any:
    from kafka_rollout.airflow.gates.trigger import GateTrigger

    watch = GateWatch(policy=GatePolicy(checks=2, interval_s=0.0, timeout_s=timeout_s))
    return GateTrigger(
        cluster="fake",
        run_id="run-1",
        clears=0,
        plan_hash=plan_hash or ports.run.load_plan().hash,
        gate=to_json(GATE),
        watch=to_json(watch),
        records={"019a": {}},
    )


def first_event(trigger: Any) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        async for event in trigger.run():
            return dict(event.payload)
        raise AssertionError("the trigger ended without an event")

    return asyncio.run(run())


def test_it_is_rebuilt_from_what_it_serializes() -> None:
    from kafka_rollout.airflow.gates.trigger import GateTrigger

    arguments = {
        "cluster": "fake",
        "run_id": "run-1",
        "clears": 2,
        "plan_hash": "abc",
        "gate": {"kind": "after-start", "release_step": "3.9.1-to-4.3.1", "node_id": 2},
        "watch": {
            "policy": {"checks": 3, "interval_s": 1.0, "timeout_s": 600.0, "soak_s": 0.0},
            "started_at": None,
            "consecutive_passes": 0,
            "passed_since": None,
        },
        "records": {"019a": {"chosen_options": ["Approve"]}},
    }
    assert GateTrigger(**arguments).serialize() == ("kafka_rollout.airflow.gates.trigger.GateTrigger", arguments)


def test_a_long_soak_is_looked_at_every_ten_seconds_and_ends_on_time() -> None:
    from kafka_rollout.airflow.gates.trigger import pause_s

    policy = GatePolicy(checks=2, interval_s=1.0, soak_s=3600.0)
    assert pause_s([GateWatch(policy=policy)]) == 1.0
    soaking = GateWatch(policy=policy, seconds=110.0, consecutive_passes=2, passed_since=10.0)
    assert pause_s([soaking]) == 10.0
    assert pause_s([replace(soaking, seconds=3606.0)]) == 4.0


def test_it_waits_until_the_gate_holds_in_a_row_and_records_it(ports: ClusterPorts) -> None:
    event = first_event(trigger(ports))
    assert (event["state"], event["records"]) == ("passed", {"019a": {}})
    assert "2 checks" in event["message"]
    assert [event.ref.node_id for event in events_of(ports.run.events(), GatePassed)] == [2]


def test_it_gives_up_after_the_gates_time_and_says_what_it_waited_for(ports: ClusterPorts) -> None:
    event = first_event(trigger(ports, timeout_s=0.0))
    assert event["state"] == "failed"
    assert "quorum" in event["message"]


def test_a_plan_that_was_changed_is_an_error_and_no_gate(ports: ClusterPorts) -> None:
    event = first_event(trigger(ports, plan_hash="another"))
    assert event["state"] == "error"
    assert "not the approved plan" in event["message"]


def test_a_gate_that_waits_for_long_says_each_condition_in_a_line_and_again_after_a_minute(
    ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka_rollout.airflow.gates import trigger as module

    checks, said, began = iter(range(200, 100, -1)), list[str](), ports.clock.monotonic()

    def check(_: object, gates: Any, watches: Any, on_check: Any) -> WatchStatus:
        left = next(checks, 0)
        conditions = (
            GateCondition(name="quorum", is_met=not left, evidence=f"{left} records behind the leader"),
            GateCondition(name="unfenced", is_met=left < 150, evidence="broker 2 is fenced"),
        )
        seen = GateCheck(gate="after node 2", at=0.0, conditions=conditions)
        status = WatchStatus(state=WatchState.WAITING if left else WatchState.PASSED, message="passed after 100 s")
        on_check(gates[0], seen, status.message)
        return status

    monkeypatch.setattr(module, "check_gates", check)
    monkeypatch.setattr(
        module.GateTrigger, "log", SimpleNamespace(info=lambda text, *values: said.append(text % values))
    )
    one = trigger(ports)
    one.watch = {**one.watch, "policy": {**one.watch["policy"], "interval_s": 1.0}}
    assert first_event(one)["state"] == "passed"
    assert said[:2] == [
        "after node 2 waits for quorum: 200 records behind the leader",
        "after node 2 waits for unfenced: broker 2 is fenced",
    ]
    assert said[2].startswith("after node 2 waits for quorum: 1")
    assert said[3:] == ["passed after 100 s"]
    assert ports.clock.monotonic() - began >= 100
