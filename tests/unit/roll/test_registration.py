"""Nodes that an old controller registered without ranges restart once more, if they still lack them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.feature_updates.levels import check_support, finalize
from kafka_rollout.gates.gate import GatePolicy
from kafka_rollout.metadata_log.record_types import MetadataRegistrations
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.procedure.approval_requests import approval_body
from kafka_rollout.procedure.kinds import UPGRADE, build_report_of_run
from kafka_rollout.procedure.step_lines import step_lines
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.roll.walk import roll_back, roll_release_steps
from kafka_rollout.run.estimates import estimate_of
from kafka_rollout.run.events import ApprovalOf, Decision, events_of
from kafka_rollout.run.metrics import Metric, run_gauges
from kafka_rollout.run.step_events import RegistrationsRead
from kafka_rollout.run.view import RunView
from tests.fakes.cluster import COMBINED, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import compare, plan_upgrade
from tests.unit.roll.test_node import Killed, count_calls, killed_after

R381 = Release(3, 8, 1)
QUICK = GatePolicy(checks=1, interval_s=1, timeout_s=60)


def fresh(tmp_path: Path, run_id: str = "run-1", *, readable: bool = True) -> tuple[FakeCluster, ClusterPorts, Plan]:
    """Combined nodes on 3.8.1; node 1 is the active controller, so nodes 2 and 3 restart first."""
    cluster = FakeCluster(R381, spec=COMBINED)
    cluster.registrations = MetadataRegistrations() if readable else None
    ports = fake_ports(cluster, tmp_path, run_id=run_id)
    ports.lock.break_("fake", "the run before")
    return cluster, ports, approved(ports)


def approved(ports: ClusterPorts) -> Plan:
    plan = plan_upgrade(ports, R431, finalize=True)
    assert plan.blockers == ()
    for what in (ApprovalOf.ROLL, ApprovalOf.FINALIZE):
        record_approval(ports, what, "alice", Decision.APPROVED, "planned maintenance")
    return plan


def starts(cluster: FakeCluster) -> dict[int, int]:
    return {node_id: len(node.starts) for node_id, node in cluster.nodes.items()}


def test_the_nodes_that_lack_ranges_restart_twice_and_the_levels_are_raised(tmp_path: Path) -> None:
    cluster, ports, plan = fresh(tmp_path)
    assert roll_release_steps(Run(ports, plan), QUICK)
    assert cluster.stops == [2, 3, 1, 2, 3]
    assert cluster.dropped == {1: frozenset(), 2: frozenset(), 3: frozenset()}
    assert check_support(Run(ports, plan)).ok
    compare(ports)
    finalize(Run(ports, plan))
    assert cluster.finalized["group.version"] == 1
    report = build_report_of_run(Run(ports, plan))
    assert report.outcome != "rolled_back", report.sentence
    assert [step.key for step in report.release_steps] == ["3.8.1-to-4.3.1", "4.3.1-to-4.3.1"]


def test_without_the_second_restarts_the_controller_refuses_the_levels(tmp_path: Path) -> None:
    cluster, ports, plan = fresh(tmp_path)
    assert not roll_release_steps(Run(ports, plan), QUICK, stop_asked=lambda: _is_rolled(cluster))
    (found,) = check_support(Run(ports, plan)).blockers
    assert found.code == "REGISTRATION-DROPPED-RANGES"
    assert found.sentence.startswith("The registrations of nodes 2, 3 lack ")
    assert found.sentence.count("KAFKA-17492") == 1
    assert found.remedy == ("Run `kafka-rollout restart --cluster fake --node 2 --node 3`. Then repeat this command.")


def _is_rolled(cluster: FakeCluster) -> bool:
    """Whether every node runs the target and is back in its ISRs."""
    return all(node.running == R431 and node.behind == 0 for node in cluster.nodes.values())


def test_a_node_that_is_registered_right_is_not_restarted(tmp_path: Path) -> None:
    """An operator restarted node 2 before the run came to it."""
    cluster, ports, plan = fresh(tmp_path)
    assert not roll_release_steps(Run(ports, plan), QUICK, stop_asked=lambda: _is_rolled(cluster))
    cluster.dropped[2] = frozenset()
    before = len(cluster.stops)
    assert roll_release_steps(Run(ports, plan), QUICK)
    assert cluster.stops[before:] == [3]
    (read, *_) = events_of(ports.run.events(), RegistrationsRead)
    assert (read.seen.complete, tuple(read.seen.lacking)) == ((2,), (3,))
    view = RunView.of(ports.run.events())
    assert run_gauges(plan, view, is_parked=False)[Metric.NODES_LEFT] == 0
    assert estimate_of(view, plan) is not None
    lines = {line.id: line for line in step_lines(UPGRADE, view, plan)}
    assert (lines["roll"].state.value, lines["roll"].reason) == ("done", "5 of 5 node steps")


def test_nothing_restarts_twice_if_the_controller_accepts_the_levels(tmp_path: Path) -> None:
    cluster, ports, plan = fresh(tmp_path, readable=False)
    assert not roll_release_steps(Run(ports, plan), QUICK, stop_asked=lambda: _is_rolled(cluster))
    cluster.dropped.clear()
    assert roll_release_steps(Run(ports, plan), QUICK)
    assert starts(cluster) == {1: 1, 2: 1, 3: 1}


def test_a_registration_that_cannot_be_read_is_not_right(tmp_path: Path) -> None:
    cluster, ports, plan = fresh(tmp_path, readable=False)
    assert not roll_release_steps(Run(ports, plan), QUICK, stop_asked=lambda: _is_rolled(cluster))
    cluster.dropped[2] = frozenset()
    assert roll_release_steps(Run(ports, plan), QUICK)
    assert starts(cluster) == {1: 1, 2: 2, 3: 2}


@pytest.mark.parametrize("every", [29, pytest.param(11, marks=pytest.mark.full)])
def test_a_kill_in_the_second_restarts_ends_with_one_more_start_of_each_node(tmp_path: Path, every: int) -> None:
    def at_the_second_restarts(number: int) -> tuple[FakeCluster, ClusterPorts, Plan]:
        cluster, ports, plan = fresh(tmp_path, f"run-{number}")
        assert not roll_release_steps(Run(ports, plan), QUICK, stop_asked=lambda: _is_rolled(cluster))
        assert starts(cluster) == {1: 1, 2: 1, 3: 1}
        return cluster, ports, plan

    _, ports, plan = at_the_second_restarts(0)
    total = count_calls(ports, lambda counted: roll_release_steps(Run(counted, plan), QUICK))
    assert total > 50
    for calls in range(1, total, every):
        cluster, ports, plan = at_the_second_restarts(calls)
        with pytest.raises(Killed):
            roll_release_steps(Run(killed_after(ports, calls), plan), QUICK)
        assert roll_release_steps(Run(ports, plan), QUICK), calls
        assert starts(cluster) == {1: 1, 2: 2, 3: 2}, calls
        assert not any(cluster.dropped.values()), calls


@pytest.mark.parametrize("is_done", [lambda cluster: len(cluster.stops) == 4, lambda cluster: False])
def test_a_rollback_from_the_second_restarts_returns_every_node_once(
    tmp_path: Path, is_done: Callable[[FakeCluster], bool]
) -> None:
    cluster, ports, plan = fresh(tmp_path)
    roll_release_steps(Run(ports, plan), QUICK, stop_asked=lambda: is_done(cluster))
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "the clients do not like it")
    before = len(cluster.stops)
    assert roll_back(Run(ports, plan), QUICK)
    assert sorted(cluster.stops[before:]) == [1, 2, 3]
    assert {node.running for node in cluster.nodes.values()} == {R381}
    compare(ports)
    assert build_report_of_run(Run(ports, plan)).outcome == "rolled_back"


def test_a_node_that_was_stopped_for_its_second_restart_is_rolled_back(tmp_path: Path) -> None:
    cluster, ports, plan = fresh(tmp_path)
    assert not roll_release_steps(Run(ports, plan), QUICK, stop_asked=lambda: _is_rolled(cluster))
    cluster.cannot_start.add((2, R431))
    with pytest.raises(RefusedError):
        roll_release_steps(Run(ports, plan), QUICK)
    assert cluster.nodes[2].running is None
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "it does not start")
    assert roll_back(Run(ports, plan), QUICK)
    assert {node.running for node in cluster.nodes.values()} == {R381}


def test_a_later_run_finalizes_a_cluster_that_runs_the_target(tmp_path: Path) -> None:
    cluster, ports, _ = fresh(tmp_path)
    first = plan_upgrade(ports, R431, finalize=False)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    assert roll_release_steps(Run(ports, first), QUICK)
    assert starts(cluster) == {1: 1, 2: 1, 3: 1}
    compare(ports)
    ports.lock.break_("fake", "the run before")

    ports = fake_ports(cluster, tmp_path, run_id="run-2")
    plan = approved(ports)
    assert [step.key for step in plan.release_steps] == ["4.3.1-to-4.3.1"]
    assert not plan.changes_release
    body = approval_body(plan)
    assert "Restart on 4.3.1, one node at a time" in body
    assert "Nodes 2, 3 must register again before levels are raised" in body
    assert "At most 2 more restarts" in body
    assert roll_release_steps(Run(ports, plan), QUICK)
    assert starts(cluster) == {1: 1, 2: 2, 3: 2}
    compare(ports)
    finalize(Run(ports, plan))
    assert cluster.finalized[METADATA_VERSION] == 30
    with pytest.raises(RefusedError, match="no release to return to"):
        roll_back(Run(ports, plan), QUICK)


def test_the_approval_counts_and_names_the_second_restarts(tmp_path: Path) -> None:
    _, ports, plan = fresh(tmp_path)
    body = approval_body(plan)
    assert "Second restart on 4.3.1, one node at a time" in body
    assert "At most 2 more restarts" in body
    assert RunView.of(ports.run.events()).nodes == {}
