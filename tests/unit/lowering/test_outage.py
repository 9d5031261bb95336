"""The measured outage of an offline downgrade: from the first stop to the check that saw service, also over kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.time_limits import WITHOUT_QUORUM_S
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.gate import GateKind, GatePolicy
from kafka_rollout.lowering import offline
from kafka_rollout.lowering.lowered_snapshot import quorum_lacks
from kafka_rollout.lowering.outage_facts import shown_facts
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.outage import check_service
from kafka_rollout.observation.run import Run
from kafka_rollout.procedure.kinds import DOWNGRADE, build_report_of_run
from kafka_rollout.report.run_report import DowngradeReport
from kafka_rollout.roll.gate_checks import wait_for_gate
from kafka_rollout.run.events import ApprovalOf, Decision, events_of
from kafka_rollout.run.step_events import Started
from kafka_rollout.run.view import RunView
from tests.fakes.cluster import COMBINED, R431, FakeCluster
from tests.fakes.ports import fake_ports, gate_of
from tests.integration.harness.faults.without_live import stage_no_live
from tests.unit.lowering.conftest import stop_in_turn
from tests.unit.lowering.test_offline import FORWARD, RELEASE_STEP, approved, go, take_back

SOON = GatePolicy(checks=1, interval_s=1, timeout_s=60)


@pytest.fixture
def world() -> FakeCluster:
    return FakeCluster(R431)


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    stage_no_live(monkeypatch)


@pytest.fixture
def ports(world: FakeCluster, tmp_path: Path) -> ClusterPorts:
    return fake_ports(world, tmp_path)


def kinds(ports: ClusterPorts) -> list[str]:
    return [event.kind for event in ports.run.events()]


def test_the_report_has_the_outage_that_was_beside_the_one_that_was_approved(
    world: FakeCluster, ports: ClusterPorts
) -> None:
    world.catch_up_rounds = 3
    plan = approved(ports)
    (expected,) = [line for line in shown_facts(Run(ports, plan)) if line.startswith("Expected outage")]
    began = world.clock.now()
    go(ports, plan)
    took = world.clock.now() - began
    report = build_report_of_run(Run(ports, plan), procedure=DOWNGRADE)
    assert isinstance(report, DowngradeReport)
    told = report.outage
    assert told is not None
    (measured,) = told.measured
    assert measured.writable_s is not None
    assert measured.seconds is not None
    assert 0 <= measured.writable_s <= measured.seconds <= took + 0.1
    assert told.expected_s is not None
    assert told.expected_at_most_s == told.expected_s + WITHOUT_QUORUM_S
    assert f"about {told.expected_s:.0f} s, up to 3 min. Stop" in expected
    assert "up to 60 s more if a controller does not stop by itself" in expected
    assert str(told.expected) in report.sentence
    assert "Measured outage: " in report.sentence
    assert "The approval showed about" in report.sentence


def test_a_partition_that_nobody_could_write_to_before_the_first_stop_is_not_waited_for(
    world: FakeCluster, ports: ClusterPorts
) -> None:
    world.add_partition("half", 0, [11], min_isr=2)
    plan = approved(ports)
    go(ports, plan)
    (measured,) = RunView.of(ports.run.events()).outages
    assert measured.seconds is not None


def test_before_the_first_stop_there_is_none_and_while_brokers_are_away_it_is_not_over(
    world: FakeCluster, ports: ClusterPorts
) -> None:
    plan = approved(ports)
    assert (RunView.of(ports.run.events()).outages, check_service(ports)) == ([], True)
    go(ports, plan, FORWARD[:6])
    world.silent = {12}
    go(ports, plan, FORWARD[6:])
    (measured,) = RunView.of(ports.run.events()).outages
    assert (measured.seconds, "offline-served" in kinds(ports)) == (None, False)
    assert "not over" in build_report_of_run(Run(ports, plan), procedure=DOWNGRADE).sentence


@pytest.mark.usefixtures("each_database")
def test_killed_before_anybody_looked_the_gate_sees_it_and_the_bounds_say_that_nobody_looked(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*given: object) -> None:
        raise KeyboardInterrupt

    plan = approved(ports)
    with monkeypatch.context() as patched:
        patched.setattr(offline, "watch_service", dies)
        with pytest.raises(KeyboardInterrupt):
            go(ports, plan)
    started = [event.at for event in events_of(ports.run.events(), Started)]
    for node in ports.cluster.nodes:
        wait_for_gate(
            Run(ports, plan),
            gate_of(ports, plan, GateKind.AFTER_START, RELEASE_STEP, node.node_id),
            SOON,
        )
    (measured,) = RunView.of(ports.run.events()).outages
    assert measured.unserved_at == started[-1]
    assert measured.served_at is not None
    assert kinds(ports).count("offline-served") == 1


def test_a_node_that_is_lost_is_not_waited_for_and_the_outage_goes_on(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_in_turn(world, monkeypatch, 13, 12, 11)
    plan = approved(ports)
    go(ports, plan, FORWARD[:6])
    world.cannot_start = {(13, plan.target)}
    go(ports, plan, FORWARD[6:])  # comes back long before READY_WITHIN_S
    (measured,) = RunView.of(ports.run.events()).outages
    assert measured.writable_s is not None
    assert measured.seconds is None


def test_taken_back_and_down_again_are_two_outages(world: FakeCluster, ports: ClusterPorts) -> None:
    world.add_partition("half", 0, [11], min_isr=2)  # nobody could write to it before either
    plan = approved(ports)
    go(ports, plan, FORWARD[:5])
    take_back(ports, plan)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "again")
    go(ports, plan)
    first, second = RunView.of(ports.run.events()).outages
    assert first.served_at is not None
    assert second.served_at is not None
    assert second.began_at >= first.served_at


def test_where_every_broker_is_a_controller_too_its_end_is_seen_by_the_step_that_starts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = FakeCluster(R431, spec=COMBINED, catch_up_rounds=0)
    stop_in_turn(world, monkeypatch, *sorted(world.nodes, reverse=True))
    ports = fake_ports(world, tmp_path)
    plan = approved(ports)
    go(ports, plan, FORWARD[:5])
    looked: list[float] = []

    def no_leader_at_first(*given: Any) -> str:
        looked.append(world.clock.now())
        return "the quorum has no leader." if len(looked) == 1 else quorum_lacks(*given)

    monkeypatch.setattr(offline, "quorum_lacks", no_leader_at_first)
    go(ports, plan, FORWARD[5:6])
    (measured,) = RunView.of(ports.run.events()).outages
    assert measured.served_at is not None
    started = [event.at for event in events_of(ports.run.events(), Started)]
    assert started[-1] < measured.unserved_at <= looked[0] < measured.served_at, "without a quorum nothing serves"


def test_partitions_of_a_node_that_is_lost_are_not_waited_for(world: FakeCluster, ports: ClusterPorts) -> None:
    world.add_partition("single", 0, [13])
    plan = approved(ports)
    go(ports, plan, FORWARD[:6])
    world.cannot_start = {(13, plan.target)}
    go(ports, plan, FORWARD[6:])
    (measured,) = RunView.of(ports.run.events()).outages
    assert (measured.writable_s, measured.seconds) == (None, None)
