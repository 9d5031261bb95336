"""Pauses of a run between its node steps: the maintenance window, over a fake cluster and its clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.gates.check import GatePolicy
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.planning.request import Request
from kafka_rollout.run.events import ApprovalOf, Decision, events_of
from kafka_rollout.run.step_events import GateChecked, Stopping
from kafka_rollout.steps.common.approval import approval_body, record_approval
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.procedures import actions
from kafka_rollout.steps.roll.walk import Progress, roll_back, roll_release_steps
from kafka_rollout.steps.step import StepCall
from tests.fakes.cluster import R391, R431, FakeCluster

SOAKS = GatePolicy(checks=2, interval_s=1, timeout_s=60, soak_s=30)
NIGHTS = "Mo-Fr 22:00-04:00 Europe/Berlin; Tu 04:10-06:00 Europe/Berlin"  # a short pause has few checks
ORDER = [2, 3, 1, 11, 12, 13]


class KilledError(BaseException):
    """The process of the run ends, wherever it is."""


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin")).timestamp()


@pytest.fixture
def approved(ports: ClusterPorts, cluster: FakeCluster) -> Callable[..., Plan]:
    """Plan at a time of the fake clock, and approve."""

    def plan(now: str, **fields: Any) -> Plan:
        cluster.clock.set(at(now), reading_s=0.001)
        request = Request(target=R431, scan=False, soak_s=30.0, **fields)
        actions.plan_change(StepCall(ports=ports, request=request), RunOf.UPGRADE)
        record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
        return ports.run.load_plan()

    return plan


def killed_when(message: str) -> Callable[[Progress], None]:
    def on_progress(progress: Progress) -> None:
        if message in progress.message:
            raise KilledError

    return on_progress


def stopped_between(ports: ClusterPorts, begin: str, end: str) -> list[int]:
    found = events_of(ports.run.events(), Stopping)
    return [event.node_id for event in found if at(begin) <= event.at < at(end)]


def test_a_run_pauses_at_the_end_of_the_window_keeps_its_lock_and_continues_in_the_next_one(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 03:57", window=NIGHTS)  # three minutes for node steps of half a minute
    held: list[str] = []

    def on_progress(progress: Progress) -> None:
        if "maintenance window" in progress.message and "waits for" in progress.message:
            held.append(progress.message)
            lock = ports.lock.holder("fake")
            assert lock is not None
            assert lock.holder == ports.run_id

    assert roll_release_steps(ports, plan, SOAKS, on_progress=on_progress)
    assert cluster.stops == ORDER
    before = stopped_between(ports, "2026-12-01 03:57", "2026-12-01 04:00")
    after = stopped_between(ports, "2026-12-01 04:10", "2026-12-01 04:20")
    assert before
    assert after
    assert before + after == ORDER
    assert "left; a node step takes about 3" in held[0]
    assert held[-1].endswith("maintenance window: closed until Tu 2026-12-01 04:10 CET")
    recorded = [event for event in events_of(ports.run.events(), GateChecked) if event.check.is_held]
    assert len(recorded) < 5  # of two checks per node and 120 in ten minutes


def test_a_run_that_is_killed_during_the_pause_continues_at_the_same_node(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 03:57", window=NIGHTS)
    with pytest.raises(KilledError):
        roll_release_steps(ports, plan, SOAKS, on_progress=killed_when("closed until"))
    before = list(cluster.stops)
    assert 0 < len(before) < 6
    cluster.clock.set(at("2026-12-01 04:01"), reading_s=0.001)
    assert roll_release_steps(ports, plan, SOAKS)
    assert cluster.stops == ORDER
    assert stopped_between(ports, "2026-12-01 04:00", "2026-12-01 04:10") == []


def test_a_node_step_that_has_begun_ends_after_the_window(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 03:57", window=NIGHTS)
    with pytest.raises(KilledError):
        roll_release_steps(ports, plan, SOAKS, on_progress=killed_when("gate after node 2"))
    cluster.clock.set(at("2026-12-01 04:01"), reading_s=0.001)
    with pytest.raises(KilledError):
        roll_release_steps(ports, plan, SOAKS, on_progress=killed_when("closed until"))
    assert cluster.stops == [2]
    assert cluster.nodes[2].running == R431


def test_a_stop_that_was_asked_for_is_not_held(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = approved("2026-12-01 03:57", window=NIGHTS)
    with monkeypatch.context() as patch:
        patch.setattr("kafka_rollout.steps.roll.node.stop_node", _stop_and_die)
        with pytest.raises(KilledError):
            roll_release_steps(ports, plan, SOAKS)
    assert cluster.nodes[2].running == R391
    cluster.clock.set(at("2026-12-01 04:01"), reading_s=0.001)
    with pytest.raises(KilledError):
        roll_release_steps(ports, plan, SOAKS, on_progress=killed_when("closed until"))
    assert cluster.nodes[2].running == R431


def _stop_and_die(ports: ClusterPorts, release_step: Any, node: Any, **_: object) -> float:
    ports.run.record(Stopping(node_id=node.node_id, release_step=release_step.key))
    raise KilledError


def test_a_window_that_closes_between_the_gate_and_the_stop_holds_the_stop(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 03:30", window=NIGHTS)

    def on_progress(progress: Progress) -> None:
        if "gate before node 3: passed" in progress.message and cluster.clock.now() < at("2026-12-01 04:00"):
            cluster.clock.set(at("2026-12-01 04:01"), reading_s=0.001)

    assert roll_release_steps(ports, plan, SOAKS, on_progress=on_progress)
    assert stopped_between(ports, "2026-12-01 03:30", "2026-12-01 04:10") == [2]
    assert cluster.stops == ORDER


def test_a_rollback_does_not_wait_for_the_window(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 03:57", window=NIGHTS)
    with pytest.raises(KilledError):
        roll_release_steps(ports, plan, SOAKS, on_progress=killed_when("closed until"))
    cluster.clock.set(at("2026-12-01 04:01"), reading_s=0.001)
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "errors of clients")
    assert roll_back(ports, plan, SOAKS)
    assert {node.running for node in cluster.nodes.values()} == {R391}
    assert cluster.clock.now() < at("2026-12-01 04:10")


def test_the_plan_and_its_approval_show_window_number_and_end(approved: Callable[..., Plan]) -> None:
    plan = approved("2026-12-01 12:00", window="22:00-22:05 UTC", freeze_days=("2026-12-02..2026-12-03",))
    (found,) = [finding for finding in plan.findings if finding.code == "MAINTENANCE-WINDOWS"]
    assert "needs 2 maintenance windows for 6 node steps of about 1 min 30 s" in found.sentence
    assert "earliest end is Fr 2026-12-04 22:04 UTC" in found.sentence
    body = approval_body(plan).replace("\\", "")
    assert "- Nodes are stopped only in the maintenance window `22:00-22:05 UTC`." in body
    assert "- No node is stopped on the freeze days `2026-12-02..2026-12-03`." in body
    assert found.sentence in body


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"window": "22:00-22:01 UTC"}, "no maintenance window of the next 400 days is that long"),
        ({"freeze_days": ("2026-01-01..2030-01-01",)}, "freeze days cover every"),
    ],
)
def test_a_plan_that_no_window_fits_is_refused_before_it_is_frozen(
    ports: ClusterPorts, approved: Callable[..., Plan], fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        approved("2026-12-01 12:00", **fields)
    assert ports.run.events() == ()


def test_an_invalid_window_is_refused_with_the_request() -> None:
    with pytest.raises(UserError, match="is not a maintenance window"):
        Request(window="at night")


def test_a_plan_without_window_keeps_the_hash_of_earlier_versions(approved: Callable[..., Plan]) -> None:
    assert approved("2026-12-01 12:00").hash != approved("2026-12-01 12:00", window=NIGHTS).hash
