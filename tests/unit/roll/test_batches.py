"""A roll in batches over a fake cluster: together where it is safe, split where it is not, resumed, rolled back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from threading import Barrier
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.gate import GateKind, GatePolicy, GateWatch, WatchState, gates_of_nodes
from kafka_rollout.metadata_log.metadata_scan import MetadataScan
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.state import ClusterState, NodeMetrics, PartitionState
from kafka_rollout.model.topology import HostCommand, NodeSpec, ServiceSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts, observe_some
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
from kafka_rollout.procedure import actions
from kafka_rollout.procedure.approval_requests import approval_body
from kafka_rollout.procedure.kinds import build_report_of_run
from kafka_rollout.procedure.progress import Progress
from kafka_rollout.procedure.step import StepCall
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.builders import build_report
from kafka_rollout.report.page.pages import render_run
from kafka_rollout.roll.gate_checks import check_gates
from kafka_rollout.roll.node import replace_nodes
from kafka_rollout.roll.walk import RollProgress, roll_back, roll_release_steps
from kafka_rollout.run.estimates import estimate_of
from kafka_rollout.run.events import ApprovalOf, Decision, events_of
from kafka_rollout.run.projections.open_batches import first_open_batch
from kafka_rollout.run.step_events import BatchSplit, Started, Stopping
from kafka_rollout.run.view import RunView
from tests.fakes.cluster import R391, R431, FakeCluster, make_spec
from tests.fakes.metadata_logs import FakeMetadataLogs
from tests.fakes.ports import FakeAdmin, FakeMetrics, fake_ports
from tests.fakes.runtime import FakeRuntime
from tests.plans import plan_upgrade

QUICK = GatePolicy(checks=2, interval_s=1, timeout_s=120)


@pytest.fixture
def cluster() -> FakeCluster:
    """Racks: a with 11 and 14, b with 12 and 15, c with 13 and 16."""
    cluster = FakeCluster(R391, spec=make_spec(brokers=6))
    for node in cluster.spec.brokers:
        cluster.nodes[node.node_id].config["broker.rack"] = "abc"[(node.node_id - 11) % 3]
    return cluster


@pytest.fixture
def plan(ports: ClusterPorts) -> Plan:
    return approved(ports)


def approved(ports: ClusterPorts) -> Plan:
    plan = plan_upgrade(ports, R431, finalize=False, max_batch_size=3)
    assert plan.blockers == ()
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    return plan


def expect_together(cluster: FakeCluster, *node_ids: int) -> None:
    """Let the stop of each of them wait for the stops of the others; an error if they do not come."""
    met, stop = Barrier(len(node_ids)), cluster.stop

    def stop_with_the_others(node_id: int) -> None:
        if node_id in node_ids:
            met.wait(60)
        stop(node_id)

    cluster.stop = stop_with_the_others  # type: ignore[method-assign]


def test_the_brokers_of_a_rack_restart_together(ports: ClusterPorts, cluster: FakeCluster, plan: Plan) -> None:
    batches = [one.node_ids for one in plan.release_steps[0].batches]
    assert batches == [(2,), (3,), (1,), (11,), (14,), (12, 15), (13, 16)]
    expect_together(cluster, 12, 15)
    expect_together(cluster, 13, 16)
    assert roll_release_steps(Run(ports, plan), QUICK)
    assert sorted(cluster.stops) == [1, 2, 3, 11, 12, 13, 14, 15, 16]
    assert cluster.stops[:5] == [2, 3, 1, 11, 14]
    assert set(cluster.stops[5:7]) == {12, 15}
    assert {node.running for node in cluster.nodes.values()} == {R431}
    assert not events_of(ports.run.events(), BatchSplit)
    for node_id in (12, 15):
        assert ports.run.load_before_stop(plan.release_steps[0].key, node_id) is not None


def test_the_approval_names_each_batch_and_its_end(plan: Plan) -> None:
    body = approval_body(plan)
    assert "### 3.9.1 → 4.3.1, in 7 batches" in body
    assert "- 6: broker-12 (12), broker-15 (15). Ends here: no other node of rack b is left" in body
    assert "- Expected duration: 7 min 00 s, one node at a time 9 min 00 s (60 s for each restart, soak 0 s)" in body


def test_a_plan_of_one_node_at_a_time_keeps_its_hash(ports: ClusterPorts, plan: Plan) -> None:
    alone = plan_upgrade(ports, R431, finalize=False)
    assert alone.release_steps[0].batches == ()
    assert alone.hash != plan.hash
    back = plan.release_steps[0].reversed().batches
    assert [one.node_ids for one in back[:2]] == [(16, 13), (15, 12)]
    assert {one.ends for one in back} == {"the rollback keeps the batches of the plan"}
    ends = replace(plan.release_steps[0], batches=tuple(replace(one, ends="") for one in plan.release_steps[0].batches))
    assert replace(plan, release_steps=(ends,)).hash == plan.hash, "why a batch ends is an observation"


def test_an_approver_splits_a_batch_whose_replicas_were_moved_after_the_plan(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.add_partition("moved", 0, [12, 15, 11], min_isr=2)
    expect_together(cluster, 13, 16)
    with pytest.raises(RefusedError, match="Gates before node 12, before node 15 failed"):
        roll_release_steps(Run(ports, plan), QUICK)
    assert cluster.stops == [2, 3, 1, 11, 14], "no batch is split without an approver"
    asked: list[tuple[ApprovalOf, str]] = []

    def split(what: ApprovalOf, why: str, has_replaced: bool) -> bool:
        asked.append((what, why))
        return True

    assert roll_release_steps(Run(ports, plan), QUICK, continues=split)
    assert [what for what, _ in asked] == [ApprovalOf.SPLIT]
    assert "moved-0" in asked[0][1]
    assert {node.running for node in cluster.nodes.values()} == {R431}
    splits = events_of(ports.run.events(), BatchSplit)
    assert [split.parts for split in splits] == [((12,), (15,))]
    assert "node 15 has a replica of moved-0 too" in splits[0].sentence
    assert cluster.stops[5:7] == [12, 15]
    acts = [e for e in ports.run.events() if isinstance(e, Stopping | Started) and e.node_id in {12, 15}]
    assert [(type(act), act.node_id) for act in acts] == [(Stopping, 12), (Started, 12), (Stopping, 15), (Started, 15)]


def test_the_report_and_the_progress_show_a_split(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, tmp_path: Path
) -> None:
    cluster.add_partition("moved", 0, [12, 15, 11], min_isr=2)
    assert roll_release_steps(Run(ports, plan), QUICK, continues=lambda what, why, _: what is ApprovalOf.SPLIT)
    shown = {batch.node_ids: batch for batch in build_report(Run(ports, plan)).batches}
    assert [*shown] == [(2,), (3,), (1,), (11,), (14,), (12, 15), (13, 16)]
    split, together = shown[12, 15], shown[13, 16]
    assert (split.rack, split.parts) == ("b", ((12,), (15,)))
    assert split.split.startswith("node 15 has a replica of moved-0 too")
    assert (together.parts, together.split, together.ends) == (((13, 16),), "", "no other node of rack c is left")
    assert None not in {batch.duration_s for batch in shown.values()}
    page = render_run(build_report_of_run(Run(ports, plan)))
    assert "1 batch split" in page
    assert "12; then 15: node 15 has a replica of moved-0 too" in " ".join(page.split())
    lines = list(Progress().lines(plan, ports.run.events()))
    assert any(line.startswith("the batch is split into node 12, then node 15: node 15 has") for line in lines)


def test_the_remaining_time_counts_batches(ports: ClusterPorts, cluster: FakeCluster, plan: Plan) -> None:
    def has_passed() -> bool:
        return first_open_batch(ports.run.events(), plan.batch_steps) == 6

    assert not roll_release_steps(Run(ports, plan), QUICK, stop_asked=has_passed)
    events = ports.run.events()
    times = estimate_of(RunView.of(events), plan)
    slowest = [
        max(RunView.of(events).node_seconds[f"3.9.1-to-4.3.1 node {node_id}"] for node_id in batch)
        for batch in ((2,), (3,), (1,), (11,), (14,), (12, 15))
    ]
    assert times is not None
    assert times.remaining_s == median(slowest), "one batch of two nodes is left"


def test_the_gates_before_the_stops_of_a_batch_share_one_observation(
    ports: ClusterPorts, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed: list[int] = []

    def observe(ports: ClusterPorts, nodes: Sequence[NodeSpec], **options: bool) -> ClusterState:
        observed.append(len(nodes))
        return observe_some(ports, nodes, **options)

    monkeypatch.setattr("kafka_rollout.roll.gate_checks.observe_some", observe)
    nodes = [ports.cluster.node(node_id) for node_id in (12, 15)]
    gates = gates_of_nodes(GateKind.BEFORE_STOP, plan.release_steps[0], nodes)
    policy = replace(QUICK, checks=1)
    assert check_gates(Run(ports, plan), gates, [GateWatch(policy=policy) for _ in gates]).state is WatchState.PASSED
    assert observed == [9]


def test_the_nodes_of_a_batch_are_checked_by_one_observation_and_again_together_before_the_first_stop(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions, stops = FakeAdmin.partitions, list[int]()

    def read(admin: FakeAdmin, **options: Any) -> tuple[PartitionState, ...]:
        stops.append(len(cluster.stops))
        return partitions(admin, **options)

    monkeypatch.setattr(FakeAdmin, "partitions", read)
    ports.lock.acquire(ports.cluster.name, ports.run_id, "a test", for_s=600)
    replace_nodes(Run(ports, plan), plan.release_steps[0], [cluster.spec.node(12), cluster.spec.node(15)])
    assert stops == [0] * 4, "findings and gates, and both once more"


def _replace_two(ports: ClusterPorts, plan: Plan) -> None:
    ports.lock.acquire(ports.cluster.name, ports.run_id, "a test", for_s=600)
    replace_nodes(Run(ports, plan), plan.release_steps[0], [ports.cluster.node(12), ports.cluster.node(15)])


def test_the_recorded_states_are_those_after_the_releases_were_brought(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring = FakeRuntime.bring

    def create_a_topic(runtime: FakeRuntime, node: NodeSpec, release: Release, *, back: Release) -> bool:
        if node.node_id == 15:
            cluster.add_partition("created", 0, [12, 11, 13], min_isr=1)
        return bring(runtime, node, release, back=back)

    monkeypatch.setattr(FakeRuntime, "bring", create_a_topic)
    _replace_two(ports, plan)
    before = ports.run.load_before_stop(plan.release_steps[0].key, 12)
    assert before is not None
    assert {"created-0"} <= before.in_isr & before.leads


def test_a_blocker_that_is_new_while_releases_are_brought_refuses_the_batch(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring = FakeRuntime.bring

    def register_a_controller(runtime: FakeRuntime, node: NodeSpec, release: Release, *, back: Release) -> bool:
        if node.node_id == 15:
            cluster.find_unlisted_controllers.add(99)
        return bring(runtime, node, release, back=back)

    monkeypatch.setattr(FakeRuntime, "bring", register_a_controller)
    with pytest.raises(RefusedError, match="UNLISTED-CONTROLLER"):
        _replace_two(ports, plan)
    assert cluster.stops == []


def test_what_a_release_that_was_brought_shows_is_checked_before_the_stop(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bring(runtime: FakeRuntime, node: NodeSpec, release: Release, *, back: Release) -> bool:
        cluster.find_unlisted_controllers.add(99)  # a blocker, as START-PATH-SWITCHED in the new folder
        return True

    monkeypatch.setattr(FakeRuntime, "bring", bring)
    ports.lock.acquire(ports.cluster.name, ports.run_id, "a test", for_s=600)
    with pytest.raises(RefusedError, match="UNLISTED-CONTROLLER"):
        replace_nodes(Run(ports, plan), plan.release_steps[0], [ports.cluster.node(12)])
    assert cluster.stops == []


def test_the_gates_of_a_batch_do_not_need_the_metrics_agents_of_other_nodes(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollback must be possible while an agent is broken."""
    read = FakeMetrics.read

    def without_13(metrics: FakeMetrics, node: NodeSpec) -> NodeMetrics:
        if node.node_id == 13:
            raise TransientError("Neither agent of node 13 answers.")
        return read(metrics, node)

    _replace_two(ports, plan)
    for _ in range(5):
        cluster.advance()
    FakeAdmin(cluster).elect_preferred_leaders(cluster.partition_states())
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "slow")
    monkeypatch.setattr(FakeMetrics, "read", without_13)
    back = plan.release_steps[0].reversed()
    replace_nodes(Run(ports, plan), back, [ports.cluster.node(12), ports.cluster.node(15)])
    assert cluster.nodes[12].running == cluster.nodes[15].running == R391


def test_no_node_of_a_batch_is_stopped_if_one_cannot_be_stopped(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    step = plan.release_steps[0]
    cluster.add_partition("moved", 0, [12, 15, 11], min_isr=2)
    ports.lock.acquire(ports.cluster.name, ports.run_id, "a test", for_s=600)
    with pytest.raises(TransientError, match=r"moved-0 \(1 of 2\)"):
        replace_nodes(Run(ports, plan), step, [cluster.spec.node(12), cluster.spec.node(15)])
    assert cluster.stops == []


def test_a_failed_node_stops_later_batches_and_the_rollback_goes_batch_by_batch(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.cannot_start.add((15, R431))
    with pytest.raises(RefusedError, match="after node 15 failed"):
        roll_release_steps(Run(ports, plan), QUICK)
    assert set(cluster.stops) == {2, 3, 1, 11, 14, 12, 15}
    assert cluster.nodes[12].running == R431
    cluster.stops.clear()
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "node 15 does not start")
    assert roll_back(Run(ports, plan), QUICK)
    assert {node.running for node in cluster.nodes.values()} == {R391}
    assert cluster.stops == [12, 14, 11, 1, 3, 2], "node 15 is down: it is started first"


def test_a_run_that_was_killed_in_a_batch_finishes_its_nodes_first(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    class KilledError(BaseException):
        pass

    started = cluster.start

    def start(node_id: int) -> None:
        if node_id == 15:
            raise KilledError
        started(node_id)

    cluster.start = start  # type: ignore[method-assign]
    with pytest.raises(KilledError):
        roll_release_steps(Run(ports, plan), QUICK)
    assert cluster.nodes[15].running is None
    cluster.start = started  # type: ignore[method-assign]
    assert roll_release_steps(Run(ports, plan), QUICK)
    assert sorted(cluster.stops) == [1, 2, 3, 11, 12, 13, 14, 15, 16]
    assert all([start.release for start in node.starts] == [R431] for node in cluster.nodes.values())


def test_the_run_can_be_stopped_between_batches(ports: ClusterPorts, cluster: FakeCluster, plan: Plan) -> None:
    assert not roll_release_steps(Run(ports, plan), QUICK, stop_asked=lambda: len(cluster.stops) == 5)
    assert cluster.stops == [2, 3, 1, 11, 14]
    assert roll_release_steps(Run(ports, plan), QUICK)
    assert len(cluster.stops) == 9


def test_a_broker_that_lags_holds_the_batch_until_it_is_back(tmp_path: Path, cluster: FakeCluster) -> None:
    ports = fake_ports(cluster, tmp_path, run_id=tmp_path.name)
    plan = approved(ports)
    assert not roll_release_steps(Run(ports, plan), QUICK, stop_asked=lambda: len(cluster.stops) == 5)
    name, partition = next((name, one) for name, one in cluster.topics.items() if 12 in one.replicas)
    cluster.topics[name] = replace(partition, isr=tuple(one for one in partition.isr if one != partition.replicas[-1]))
    cluster.nodes[partition.replicas[-1]].behind = 2
    expect_together(cluster, 12, 15)
    assert roll_release_steps(Run(ports, plan), QUICK)
    assert not events_of(ports.run.events(), BatchSplit)
    assert {node.running for node in cluster.nodes.values()} == {R431}


def test_a_pause_comes_before_a_batch_of_which_somebody_else_moved_a_node(
    ports: ClusterPorts, cluster: FakeCluster
) -> None:
    request = Request(target=R431, scan=False, max_batch_size=3, pause_after="first-batch")
    actions.plan_change(StepCall(ports=ports, request=request), RunOf.UPGRADE)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    cluster.nodes[13].running = cluster.nodes[13].installed = R431
    run, reasons = Run(ports, ports.run.load_plan()), list[str]()

    def refuses(what: ApprovalOf, why: str, has_replaced: bool) -> bool:
        reasons.append(why)
        return False

    for _ in range(2):
        assert not roll_release_steps(run, QUICK, continues=refuses)
    assert reasons == ["The first batch is done, nodes 12, 15, which restarted together."] * 2
    assert 16 not in cluster.stops


def test_a_batch_that_is_split_ends_before_the_plan_pauses(ports: ClusterPorts, cluster: FakeCluster) -> None:
    request = Request(target=R431, scan=False, max_batch_size=3, pause_after="node")
    actions.plan_change(StepCall(ports=ports, request=request), RunOf.UPGRADE)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    cluster.add_partition("moved", 0, [12, 15, 11], min_isr=2)
    reasons: list[str] = []

    def continues(what: ApprovalOf, why: str, has_replaced: bool) -> bool:
        if what is ApprovalOf.SPLIT:
            return True
        reasons.append(why)
        record_approval(ports, ApprovalOf.PAUSE, "alice", Decision.APPROVED, "looks good")
        return True

    def on_progress(line: RollProgress) -> None:
        assert "planned pause" not in line.message  # the gate would wait for an answer to which nobody was asked

    assert roll_release_steps(Run(ports, ports.run.load_plan()), QUICK, continues=continues, on_progress=on_progress)
    assert events_of(ports.run.events(), BatchSplit)
    assert reasons[-2:] == ["Since the last pause, node 14 is done.", "Since the last pause, nodes 12, 15 are done."]


@pytest.mark.parametrize("commands", [False, True])
@pytest.mark.parametrize("direction", ["upgrade after a pause", "rollback"])
def test_the_nodes_of_a_batch_share_one_reading_of_the_metadata_log(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direction: str, commands: bool
) -> None:
    ports = fake_ports(cluster, tmp_path)
    plan = approved(ports)
    run, step, nodes = Run(ports, plan), plan.release_steps[0], [cluster.spec.node(12), cluster.spec.node(15)]
    ports.lock.acquire(ports.cluster.name, ports.run_id, "a test", for_s=100_000)
    if direction == "rollback":
        replace_nodes(run, step, nodes)
        record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "errors of clients")
        step = step.reversed()
    if commands:
        drains = ServiceSpec(host="broker", before_stop=(HostCommand(command="drain", timeout_s=3600.0),))
        cluster.spec = replace(cluster.spec, nodes=tuple(replace(one, service=drains) for one in cluster.spec.nodes))
        ports, nodes = replace(ports, cluster=cluster.spec), [cluster.spec.node(12), cluster.spec.node(15)]
        run = Run(ports, plan)
    ports.clock.sleep(7200.0)
    scan, at_stop = FakeMetadataLogs.scan, list[int]()

    def read(logs: FakeMetadataLogs, *args: Any, **options: Any) -> MetadataScan:
        at_stop.append(len(cluster.stops))
        return scan(logs, *args, **options)

    monkeypatch.setattr(FakeMetadataLogs, "scan", read)
    cluster.stops.clear()
    replace_nodes(run, step, nodes)
    assert at_stop == [0] * (2 if commands else 1), "once, and again after the commands"
    assert sorted(cluster.stops) == [12, 15]
