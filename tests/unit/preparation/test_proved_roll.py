"""Levels are raised after what the history has seen of the roll, whatever a task was marked as."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.control.approval import record_approval
from kafka_rollout.model.counters import OFFLINE_LOG_DIRECTORIES
from kafka_rollout.model.state import NodeMetrics
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.proved_roll import (
    NODES,
    check_running_nodes,
    refuse_unproved_nodes,
    refuse_unproved_roll,
)
from kafka_rollout.procedure.actions import record_rolled
from kafka_rollout.procedure.step import StepCall
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import ApprovalOf, Decision
from kafka_rollout.run.projections.approvals import find_doubts_of_nodes
from kafka_rollout.run.step_events import Started, TrafficCompared
from kafka_rollout.run.view import GateState, RunView
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.log_directories import JBOD, with_directories
from tests.fakes.ports import FakeMetrics, fake_ports
from tests.fakes.runtime import FakeRuntime
from tests.plans import compare, pass_gates, plan_downgrade, plan_upgrade, upgrade_request
from tests.traffic import LOST, traffic_of_run

R391_LEVELS = {"metadata.version": 21}
LOADED = f"Finished loading offsets and group metadata from {GROUPS_TOPIC}-0 in 5 milliseconds for epoch 3"
MANAGER = "(kafka.coordinator.group.GroupMetadataManager)"


def test_no_level_is_raised_by_a_run_whose_test_traffic_lost_records(tmp_path: Path) -> None:
    ports = fake_ports(FakeCluster(R391), tmp_path)
    run = Run(ports, plan_upgrade(ports, R431, finalize=True))
    pass_gates(ports, run.plan)
    ports.run.record(TrafficCompared(verdict=traffic_of_run(ports.run.events())))
    refuse_unproved_roll(run)
    ports.run.record(TrafficCompared(verdict=traffic_of_run(ports.run.events(), LOST)))
    with pytest.raises(RefusedError, match="No level is raised: the check of the test traffic did not pass: log: 40"):
        refuse_unproved_roll(run)


def test_each_gate_must_have_passed_and_the_cluster_be_compared_since_the_last_start(tmp_path: Path) -> None:
    ports = fake_ports(FakeCluster(R391), tmp_path)
    plan = plan_upgrade(ports, R431, finalize=True)
    run, last = Run(ports, plan), plan.batch_steps[-1]
    with pytest.raises(RefusedError, match=r"gate after the start has not passed for batch 1 of 6") as refused:
        refuse_unproved_roll(run)
    assert "roll.gate_after" in refused.value.remedy
    pass_gates(ports, plan)
    refuse_unproved_roll(run)  # each node ran the target before
    started = Started(release_step=last.release_step.key, node_id=last.node_ids[0], release=R431, pid=1, seconds=1.0)
    ports.run.record(started)
    with pytest.raises(RefusedError, match="has not passed for batch 6 of 6"):
        refuse_unproved_roll(run)
    pass_gates(ports, plan)
    with pytest.raises(RefusedError, match="was not compared with its state before the run") as refused:
        refuse_unproved_roll(run)
    assert "compare_after_roll" in refused.value.remedy
    compare(ports)
    refuse_unproved_roll(run)


def test_a_downgrade_lowers_levels_before_its_roll(tmp_path: Path) -> None:
    ports = fake_ports(FakeCluster(R431), tmp_path)
    refuse_unproved_nodes(Run(ports, plan_downgrade(ports, Release(4, 2, 1))))


def finalizing(tmp_path: Path, cluster: FakeCluster | None = None, run_id: str = "run-1") -> Run:
    """A run that finds every node on the target, and only finalizes."""
    ports = fake_ports(cluster or FakeCluster(R431, finalized=R391_LEVELS), tmp_path, run_id=run_id)
    plan = plan_upgrade(ports, R431, finalize=True)
    assert plan.feature_changes
    assert not plan.release_steps
    return Run(ports, plan)


def test_a_run_that_only_finalizes_sees_what_the_gate_of_an_earlier_run_would_have_seen(tmp_path: Path) -> None:
    cluster = FakeCluster(R431, finalized=R391_LEVELS)
    run = finalizing(tmp_path, cluster)
    refuse_unproved_nodes(run)
    failed = f"Error loading offsets from {GROUPS_TOPIC}-0 {MANAGER}"
    cluster.add_partition(GROUPS_TOPIC, 0, [12, 11])
    cluster.nodes[12].log.append(f"[2026-11-25 09:38:28,002] ERROR {failed}")
    with pytest.raises(RefusedError, match=f"node 12: the log shows that the broker could not load .*{GROUPS_TOPIC}-0"):
        refuse_unproved_nodes(run)
    refuse_unproved_nodes(run, asks=True)  # the approval lists it
    doubts = find_doubts_of_nodes(run.history.events())
    assert len(doubts) == 1
    text = f"- {doubts[0]}"
    record_approval(run.ports, ApprovalOf.FINALIZE, "alice", Decision.APPROVED, "known", text=text, doubts=doubts)
    refuse_unproved_nodes(run)
    cluster.add_partition(GROUPS_TOPIC, 1, [13, 11])
    with pytest.raises(RefusedError, match=f"node 13: the log does not show the load of {GROUPS_TOPIC}-1"):
        refuse_unproved_nodes(run)  # not approved


def leave_isr(cluster: FakeCluster, broker: int) -> None:
    cluster.nodes[broker].behind = 10_000
    for name, one in cluster.topics.items():
        cluster.topics[name] = replace(one, isr=tuple(node_id for node_id in one.isr if node_id != broker))


@pytest.mark.parametrize(
    ("broken", "names"),
    [
        (lambda cluster: cluster.stop(12), "process: node 12: no process"),
        (lambda cluster: leave_isr(cluster, 12), "every replica is in sync: not in sync: "),
    ],
    ids=["down", "out of sync"],
)
def test_a_node_that_does_not_serve_now_holds_the_levels_until_a_later_try(
    tmp_path: Path, broken: Callable[[FakeCluster], None], names: str
) -> None:
    cluster = FakeCluster(R431, finalized=R391_LEVELS)
    run = finalizing(tmp_path, cluster)
    broken(cluster)
    with pytest.raises(TransientError, match=names):
        refuse_unproved_nodes(run, asks=True)


def downgraded(cluster: FakeCluster, _: pytest.MonkeyPatch) -> None:
    cluster.nodes[12].running = cluster.nodes[12].installed = R391


def switched_back(cluster: FakeCluster, _: pytest.MonkeyPatch) -> None:
    cluster.nodes[12].installed = R391


def lose_directory(_: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    read = FakeMetrics.read

    def with_counter(metrics: FakeMetrics, node: NodeSpec) -> NodeMetrics:
        counters = {OFFLINE_LOG_DIRECTORIES: 1.0} if node.node_id == 12 else {}
        return replace(read(metrics, node), counters=counters)

    monkeypatch.setattr(FakeMetrics, "read", with_counter)


@pytest.mark.parametrize(
    ("broken", "names"),
    [
        (downgraded, "release: node 12: app-info reports 3.9.1"),
        (switched_back, "next start: node 12: on 3.9.1: switch the link"),
        (lose_directory, "all log directories are online: node 12: node 12 reports OfflineLogDirectoryCount 1"),
    ],
)
@pytest.mark.parametrize("is_behind", [False, True])
def test_what_no_later_try_finds_otherwise_is_refused_at_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[FakeCluster, pytest.MonkeyPatch], None],
    names: str,
    is_behind: bool,
) -> None:
    cluster = FakeCluster(R431, finalized=R391_LEVELS)
    run = finalizing(tmp_path, cluster)
    began = run.ports.clock.now()
    broken(cluster, monkeypatch)
    if is_behind:
        leave_isr(cluster, 13)
    with pytest.raises(RefusedError, match=names):
        refuse_unproved_nodes(run, asks=True)
    assert run.ports.clock.now() - began < 5


def test_what_is_in_flight_has_the_gate_timeout_of_the_cluster(tmp_path: Path) -> None:
    cluster = FakeCluster(R431, finalized=R391_LEVELS)
    cluster.spec = replace(cluster.spec, gate_timeout_s=300.0)
    ports = fake_ports(cluster, tmp_path)
    request = upgrade_request(R431, finalize=True)
    run = Run(ports, replace(plan_upgrade(ports, R431, finalize=True), terms=request.terms(ports.cluster)))
    leave_isr(cluster, 12)
    began = ports.clock.now()
    for _ in range(6):
        with pytest.raises(TransientError, match="not in sync"):
            refuse_unproved_nodes(run, asks=True)
        ports.clock.sleep(30)
    with pytest.raises(RefusedError, match=r"not in sync: .* \(for 5 min \d\d s: the gate timeout\)"):
        refuse_unproved_nodes(run, asks=True)
    assert ports.clock.now() - began > 300
    ports.clock.sleep(3600)  # an operator clears the task the next hour
    with pytest.raises(TransientError, match="not in sync"):
        refuse_unproved_nodes(run, asks=True)


@pytest.mark.parametrize(("errors", "passes"), [(1, True), (2, False)])
def test_the_error_that_plan_and_log_explain_holds_no_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errors: int, passes: bool
) -> None:
    """A broker with several log directories counts it at each start until this level is raised."""
    cluster = FakeCluster(R431)
    with_directories(cluster, monkeypatch, errors=errors)
    cluster.nodes[12].log.extend(JBOD)
    seen = check_running_nodes(finalizing(tmp_path, cluster))
    assert seen.passes is passes, seen.waits_for


def test_what_an_earlier_run_has_read_of_the_log_of_a_process_counts_after_its_rotation(tmp_path: Path) -> None:
    cluster = FakeCluster(R431, finalized=R391_LEVELS)
    cluster.add_partition(GROUPS_TOPIC, 0, [12, 11])
    cluster.nodes[12].log.append(f"[2026-11-25 09:38:28,002] INFO {LOADED} {MANAGER}")
    earlier = finalizing(tmp_path, cluster, "run-1")
    refuse_unproved_nodes(earlier)
    cluster.nodes[12].log[:] = []  # rotated
    refuse_unproved_nodes(finalizing(tmp_path, cluster, "run-2"))
    cluster.stop(12)
    cluster.start(12)
    cluster.advance()
    with pytest.raises(RefusedError, match=f"does not show the load of {GROUPS_TOPIC}-0"):
        refuse_unproved_nodes(finalizing(tmp_path, cluster, "run-3"))


def test_what_this_run_has_read_itself_is_not_searched_in_the_histories_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finalizing(tmp_path)
    refuse_unproved_nodes(run)

    def search(*_: object) -> tuple[object, ...]:
        raise AssertionError("the histories of all runs are read again")

    monkeypatch.setattr(type(run.ports.run), "events_of_other_runs", search)
    refuse_unproved_nodes(run)


def test_a_run_that_leaves_the_levels_to_a_later_one_reads_the_logs_at_its_end(tmp_path: Path) -> None:
    """A later move of a leadership is loaded after the gate of the broker."""
    cluster = FakeCluster(R391)
    ports = fake_ports(cluster, tmp_path, run_id="run-1")
    plan = plan_upgrade(ports, R431, finalize=True)
    run_fake_upgrade(cluster)
    record_rolled(StepCall(ports=ports, request=Request(), plan_or_none=plan, log=logging.getLogger()))
    cluster.nodes[12].log[:] = []  # rotated
    refuse_unproved_nodes(finalizing(tmp_path, cluster, "run-2"))


def run_fake_upgrade(cluster: FakeCluster) -> None:
    for node_id, node in cluster.nodes.items():
        cluster.stop(node_id)
        node.installed = R431
        cluster.start(node_id)
        cluster.advance()
    cluster.add_partition(GROUPS_TOPIC, 0, [12, 11])
    cluster.nodes[12].log.append(f"[2026-11-25 09:38:28,002] INFO {LOADED} {MANAGER}")


def test_the_brokers_are_asked_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of hundreds of brokers, one after the other would take minutes over SSH."""
    run, together = finalizing(tmp_path), Barrier(3, timeout=20)
    for name in ("config", "process_log"):
        real = getattr(FakeRuntime, name)

        def call(self: FakeRuntime, node: NodeSpec, *more: str, real: Callable[..., object] = real) -> object:
            together.wait()  # raises unless all three brokers are asked
            return real(self, node, *more)

        monkeypatch.setattr(FakeRuntime, name, call)
    assert check_running_nodes(run).passes


def test_the_check_of_the_nodes_is_shown_as_passed_and_not_as_a_gate_that_still_watches(tmp_path: Path) -> None:
    cluster = FakeCluster(R431, finalized=R391_LEVELS)
    run = finalizing(tmp_path, cluster)
    leave_isr(cluster, 12)
    with pytest.raises(TransientError):
        refuse_unproved_nodes(run)
    assert RunView.of(run.history.events()).gates[NODES].state is GateState.WAITS
    cluster.nodes[12].behind = 1
    for _ in range(2):
        refuse_unproved_nodes(run)
        assert RunView.of(run.history.events()).gates[NODES].state is GateState.PASSED
