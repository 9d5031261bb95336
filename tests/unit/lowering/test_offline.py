"""The steps of an offline downgrade over a fake cluster: their order, what they refuse, resuming, and the undo."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import FatalError, RefusedError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.feature_updates.open_gates import check_open_gates
from kafka_rollout.gates.gate import GateKind, GatePolicy
from kafka_rollout.lowering import offline
from kafka_rollout.lowering.offline import undo_offline
from kafka_rollout.lowering.outage_facts import estimate_outage, offline_facts
from kafka_rollout.metadata_log.log_choice import EPOCHS_ABOVE
from kafka_rollout.metadata_log.losses import Loss
from kafka_rollout.model.claims import Claim, Claims
from kafka_rollout.model.plan import Lowering, Plan
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.lost_metadata import report_losses
from kafka_rollout.preparation.state_comparison import record_state
from kafka_rollout.procedure.kinds import DOWNGRADE, build_report_of_run
from kafka_rollout.procedure.parts import COMPARE_AFTER_ROLLBACK, UNDO
from kafka_rollout.procedure.step import StepCall
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.report.run_report import Outcome
from kafka_rollout.roll.gate_checks import check_gate
from kafka_rollout.roll.loop import roll_of
from kafka_rollout.roll.node import replace_node
from kafka_rollout.roll.walk import wait_until_back
from kafka_rollout.run.events import ApprovalOf, Decision, events_of
from kafka_rollout.run.projections.offline import can_be_undone
from kafka_rollout.run.projections.open_batches import RollOf
from kafka_rollout.run.step_events import OfflineLeftBehind, OfflineSnapshotWritten
from kafka_rollout.run.store.artifacts import Artifacts
from kafka_rollout.run.store.history import SqlRunStore
from tests.fakes.cluster import COMBINED, R431, FakeCluster
from tests.fakes.dying_files import KilledError
from tests.fakes.metadata_logs import FakeMetadataLogs
from tests.fakes.ports import fake_ports, gate_of, in_step
from tests.fakes.runtime import FakeRuntime
from tests.integration.harness.faults.without_live import stage_no_live
from tests.plans import plan_downgrade
from tests.records import database_of

R421 = Release(4, 2, 1)
RELEASE_STEP = "4.3.1-to-4.2.1"
Step = Callable[[Run], Any]
FORWARD: tuple[Step, ...] = (
    offline.stop_all,
    offline.choose,
    offline.write_snapshot,
    offline.install_snapshot,
    offline.install_binaries,
    offline.start_controllers,
    offline.start_brokers,
)


def test_all_nodes_are_claimed_before_the_first_stops_and_their_claims_are_read_once_more(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, stop = approved(ports), world.stop
    seen: list[int] = []

    def count(node_id: int) -> None:
        seen.append(sum(len(claims.open) for claims in world.claims.values()))
        stop(node_id)

    monkeypatch.setattr(world, "stop", count)
    theirs = Claim(cluster_id="x", node_id=12, run_id="theirs", nonce="ab" * 16, at=1.0, database="theirs.db")
    world.claims[12] = Claims(closed=theirs)
    with pytest.raises(RefusedError, match="does not know this change"):
        offline.stop_all(Run(ports, plan))
    assert seen == []
    world.claims.clear()
    offline.stop_all(Run(ports, plan))
    assert set(seen) == {len(world.spec.nodes)}


@pytest.fixture
def ports(world: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterPorts:
    stage_no_live(monkeypatch)
    return fake_ports(world, tmp_path)


def approved(ports: ClusterPorts, *, unsafe: bool = False) -> Plan:
    plan = plan_downgrade(ports, R421, lowering=Lowering.OFFLINE, unsafe=unsafe)
    assert plan.lowering is Lowering.OFFLINE
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "a test")
    return plan


def go(ports: ClusterPorts, plan: Plan, steps: tuple[Step, ...] = FORWARD) -> None:
    for step in steps:
        step(Run(ports, plan))


def take_back(ports: ClusterPorts, plan: Plan) -> tuple[int, ...]:
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "a test")
    return undo_offline(Run(ports, plan))


def releases(world: FakeCluster) -> set[str]:
    return {str(node.running) for node in world.nodes.values()}


def test_brokers_stop_first_and_start_last_and_all_run_the_target_at_the_level(
    world: FakeCluster, ports: ClusterPorts
) -> None:
    plan = approved(ports)
    go(ports, plan)
    assert set(world.stops[:3]) == {11, 12, 13}
    assert releases(world) == {"4.2.1"}
    assert world.finalized[METADATA_VERSION] == 29
    starts = {node_id: node.starts[-1].started_at for node_id, node in world.nodes.items()}
    assert max(starts[i] for i in (1, 2, 3)) <= min(starts[i] for i in (11, 12, 13))
    assert all(ports.run.load_before_stop(RELEASE_STEP, node_id) is not None for node_id in world.nodes)


@pytest.mark.usefixtures("each_database")
@pytest.mark.parametrize("dies_after", range(len(FORWARD)))
def test_run_again_from_the_start_after_a_kill_it_ends_right_and_stops_and_starts_once(
    world: FakeCluster, ports: ClusterPorts, dies_after: int
) -> None:
    plan = approved(ports)
    go(ports, plan, FORWARD[: dies_after + 1])
    go(ports, plan)
    assert releases(world) == {"4.2.1"}
    assert sorted(world.stops) == [1, 2, 3, 11, 12, 13]
    assert all(len(node.starts) == 1 for node in world.nodes.values())


@pytest.mark.usefixtures("each_database")
def test_killed_in_the_middle_of_the_nodes_the_others_follow(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = approved(ports)
    offline.stop_all(Run(ports, plan))
    install = FakeMetadataLogs.install

    def dies_at_2(logs: Any, node: NodeSpec, snapshot: Path, **options: Any) -> str:
        if node.node_id == 2:
            raise KeyboardInterrupt
        return install(logs, node, snapshot, **options)

    monkeypatch.setattr(FakeMetadataLogs, "install", dies_at_2)
    with pytest.raises(KeyboardInterrupt):
        offline.install_snapshot(Run(ports, plan))
    with pytest.raises(RefusedError, match=r"is not installed on nodes? 2"):
        offline.start_controllers(Run(ports, plan))
    monkeypatch.setattr(FakeMetadataLogs, "install", install)
    go(ports, plan)
    assert releases(world) == {"4.2.1"}


def test_another_worker_writes_the_snapshot_again_and_after_the_first_installation_names_the_host_that_has_it(
    world: FakeCluster, ports: ClusterPorts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot holds password verifiers, so it stays in a private folder of its host."""
    plan = approved(ports)
    go(ports, plan, FORWARD[:3])
    store = SqlRunStore(database_of(tmp_path), Artifacts(str(tmp_path)), tmp_path / "b", "fake", ports.run_id)
    other = replace(ports, run=store)
    install, installed = FakeMetadataLogs.install, []

    def dies_at_2(logs: Any, node: NodeSpec, snapshot: Path, **options: Any) -> str:
        installed.append(snapshot.is_relative_to(tmp_path / "b"))
        if node.node_id == 2:
            raise KeyboardInterrupt
        return install(logs, node, snapshot, **options)

    monkeypatch.setattr(FakeMetadataLogs, "install", dies_at_2)
    with pytest.raises(KeyboardInterrupt):
        offline.install_snapshot(Run(other, plan))
    assert set(installed) == {True}
    monkeypatch.setattr(FakeMetadataLogs, "install", install)
    for path in (tmp_path / "private").rglob("*.checkpoint"):
        path.unlink()
    with pytest.raises(FatalError, match=f"It was written on host {socket.gethostname()} and holds password") as error:
        offline.install_snapshot(Run(ports, plan))
    assert "Repeat the step on that host" in error.value.remedy
    go(other, plan)
    assert releases(world) == {"4.2.1"}


def test_nothing_is_stopped_without_an_approval_nor_when_a_blocker_has_come(
    world: FakeCluster, ports: ClusterPorts
) -> None:
    plan = plan_downgrade(ports, R421, lowering=Lowering.OFFLINE)
    with pytest.raises(RefusedError, match="is not approved"):
        offline.stop_all(Run(ports, plan))
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "a test")
    world.find_unlisted_brokers = {99}
    with pytest.raises(RefusedError, match="The approval is no longer valid"):
        offline.stop_all(Run(ports, plan))
    assert world.stops == []


def test_what_a_release_that_was_brought_shows_is_checked_before_the_first_stop(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bring(runtime: FakeRuntime, node: NodeSpec, release: Release, *, back: Release) -> bool:
        world.find_unlisted_controllers.add(99)  # a blocker, as START-PATH-SWITCHED in the new folder
        return node.node_id == 1

    plan = approved(ports)
    monkeypatch.setattr(FakeRuntime, "bring", bring)
    with pytest.raises(RefusedError, match="UNLISTED-CONTROLLER"):
        offline.stop_all(Run(ports, plan))
    assert world.stops == []


def test_a_minority_without_a_log_is_left_as_it_is_and_a_majority_is_refused(
    world: FakeCluster, ports: ClusterPorts
) -> None:
    plan = approved(ports)
    offline.stop_all(Run(ports, plan))
    world.no_log = {1, 2}
    with pytest.raises(RefusedError, match=r"1 of 3 voters are available\. 2 are needed"):
        offline.choose(Run(ports, plan))
    world.no_log = {1}
    chosen = offline.choose(Run(ports, plan))
    assert (chosen.node_id, chosen.snapshot_epoch, chosen.read) == (2, 4 + EPOCHS_ABOVE, (2, 3, 11, 12, 13))
    assert chosen.not_read[0].startswith("node 1: ")


def test_a_controller_whose_disk_is_lost_is_left_behind_and_the_others_go_on(
    world: FakeCluster, ports: ClusterPorts
) -> None:
    plan = approved(ports)
    go(ports, plan, FORWARD[:1])
    world.no_log, world.cannot_start = {1}, {(1, R421)}
    go(ports, plan, FORWARD[1:])
    assert releases(world) == {"4.2.1", "None"}
    (left,) = events_of(ports.run.events(), OfflineLeftBehind)
    assert left.sentence.startswith("The quorum continues without controller 1, whose log was missing: its log shows")
    gates = {
        node: check_gate(
            Run(ports, plan),
            gate_of(ports, plan, GateKind.AFTER_START, RELEASE_STEP, node),
        )
        for node in (1, 11)
    }
    assert (
        f"Give it a new disk and format it on 4.2.1 (kafka-storage.sh format -t {plan.cluster_id} "
        in gates[1].waits_for
    )
    assert "new disk" not in str(gates[11].conditions)
    # Repaired, it is started by the same call.
    world.cannot_start = set()
    assert offline.start_controllers(Run(ports, plan)) == (1,)
    assert releases(world) == {"4.2.1"}


def test_taken_back_with_a_lost_disk_the_others_get_their_logs_back(world: FakeCluster, ports: ClusterPorts) -> None:
    plan = approved(ports)
    go(ports, plan, FORWARD[:1])
    world.no_log = {1}
    go(ports, plan, FORWARD[1:5])
    assert take_back(ports, plan) == (2, 3, 11, 12, 13)
    assert releases(world) == {"4.3.1"}


def test_a_loss_that_nobody_approved_stops_it_before_anything_is_installed(
    world: FakeCluster, ports: ClusterPorts
) -> None:
    plan = approved(ports)
    offline.stop_all(Run(ports, plan))
    world.losses = [Loss(kind="cordoned log directories", subject="broker 11", sentence="Broker 11 loses them.")]
    with pytest.raises(
        RefusedError, match="would lose metadata that the approved plan does not list: Broker 11 loses them"
    ):
        offline.install_snapshot(Run(ports, plan))
    assert world.replaced == {}
    assert list((ports.run.private_path("offline")).iterdir()) == []


def test_an_unsafe_one_goes_on_with_the_losses_of_its_report_and_records_them(
    world: FakeCluster, ports: ClusterPorts
) -> None:
    world.losses = [Loss(kind="cordoned log directories", subject="broker 11", sentence="Broker 11 loses them.")]
    plan = plan_downgrade(ports, R421, lowering=Lowering.OFFLINE, unsafe=True)
    plan, _ = report_losses(Run(ports, plan))
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "a test")
    go(ports, plan)
    (written,) = events_of(ports.run.events(), OfflineSnapshotWritten)
    assert written.lost == ("Broker 11 loses them.",)


def test_an_unsafe_one_stops_at_a_loss_that_is_not_in_its_report(world: FakeCluster, ports: ClusterPorts) -> None:
    plan = approved(ports, unsafe=True)
    offline.stop_all(Run(ports, plan))
    world.late_losses = [Loss(kind="cordoned log directories", subject="broker 11", sentence="Broker 11 loses them.")]
    with pytest.raises(RefusedError, match="the approved plan does not list: Broker 11 loses them"):
        offline.install_snapshot(Run(ports, plan))
    assert world.replaced == {}


def test_a_node_that_something_started_in_between_is_not_touched(world: FakeCluster, ports: ClusterPorts) -> None:
    plan = approved(ports)
    go(ports, plan, FORWARD[:3])
    world.start(12)
    with pytest.raises(RefusedError, match=r"Node 12 \(broker-12\) is running"):
        offline.install_snapshot(Run(ports, plan))
    assert world.replaced == {}


def test_brokers_do_not_start_before_the_controllers_have_a_quorum_at_the_level(
    world: FakeCluster, ports: ClusterPorts
) -> None:
    plan = approved(ports)
    go(ports, plan, FORWARD[:5])
    world.cannot_start = {(1, R421), (2, R421)}
    with pytest.raises(FatalError, match=r"Controller 1 does not stay up: .*cannot start on 4.2.1"):
        offline.start_controllers(Run(ports, plan))
    assert can_be_undone(ports.run.events())
    assert take_back(ports, plan) == (1, 2, 3, 11, 12, 13)
    assert releases(world) == {"4.3.1"}


@pytest.mark.parametrize("steps", range(1, len(FORWARD)))
def test_taken_back_at_any_step_before_the_brokers_start_the_old_release_runs_at_the_old_level(
    world: FakeCluster, ports: ClusterPorts, tmp_path: Path, steps: int
) -> None:
    plan = approved(ports)
    go(ports, plan, FORWARD[:steps])
    take_back(ports, plan)
    assert releases(world) == {"4.3.1"}
    assert world.finalized[METADATA_VERSION] == 30
    assert world.replaced == {}
    assert undo_offline(Run(ports, plan)) == ()
    roll, others = roll_of(Run(ports, plan), RollOf.OFFLINE_UNDO), fake_ports(world, tmp_path, run_id="levels")
    raised = replace(plan.feature_changes[0], current=29, target=30)
    assert len(check_open_gates(others, [raised]).findings) == 6
    for batch in roll.batches:
        wait_until_back(roll, batch, GatePolicy(checks=1, interval_s=1, timeout_s=60), lambda *_: None)
    assert check_open_gates(others, [raised]).findings == ()
    # Going forward again needs its own approval, and then begins again.
    with pytest.raises(RefusedError, match="superseded"):
        offline.stop_all(Run(ports, plan))
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "again")
    go(ports, plan)
    assert releases(world) == {"4.2.1"}


@pytest.mark.usefixtures("each_database")
def test_killed_while_it_is_taken_back_it_is_not_gone_forward_and_the_next_call_finishes(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = approved(ports)
    go(ports, plan, FORWARD[:5])
    undo_install = FakeMetadataLogs.undo_install

    def dies_at_3(logs: Any, node: NodeSpec, snapshot: str, **options: Any) -> str | None:
        if node.node_id == 3:
            raise KeyboardInterrupt
        return undo_install(logs, node, snapshot, **options)

    monkeypatch.setattr(FakeMetadataLogs, "undo_install", dies_at_3)
    with pytest.raises(KeyboardInterrupt):
        take_back(ports, plan)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "forward after all")
    with pytest.raises(RefusedError, match="The undo of this downgrade has begun"):
        offline.start_controllers(Run(ports, plan))
    monkeypatch.setattr(FakeMetadataLogs, "undo_install", undo_install)
    assert take_back(ports, plan) == (1, 2, 3, 11, 12, 13)
    assert releases(world) == {"4.3.1"}


def test_once_a_broker_has_started_it_is_too_late(world: FakeCluster, ports: ClusterPorts) -> None:
    plan = approved(ports)
    go(ports, plan)
    assert not can_be_undone(ports.run.events())
    with pytest.raises(RefusedError, match=r"Broker 11 runs 4.2.1"):
        take_back(ports, plan)
    assert releases(world) == {"4.2.1"}


def test_no_node_takes_a_turn_of_its_own(ports: ClusterPorts) -> None:
    plan = approved(ports)
    with pytest.raises(RefusedError, match="nodes are not replaced one by one"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 11)))


def test_the_facts_name_the_outage_the_last_moment_for_an_undo_and_its_command(ports: ClusterPorts) -> None:
    estimated = estimate_outage(ports)
    assert 30 < estimated.total_s < 300
    outage, no_return, _, _, order, undo = offline_facts(Run(ports, approved(ports)), estimated)
    assert "for each of the 3 brokers" in order
    assert outage == estimated.sentence
    assert "the first broker starts at the new level" in no_return
    command = "kafka-rollout rollback --cluster fake --run 1 --as NAME --reason TEXT"
    assert undo.endswith(command)


def test_where_nodes_are_combined_the_controllers_start_is_the_point_of_no_return(tmp_path: Path) -> None:
    world = FakeCluster(R431, spec=COMBINED)
    ports = fake_ports(world, tmp_path)
    plan = approved(ports)
    assert "the controllers start at the new level" in offline_facts(Run(ports, plan), estimate_outage(ports))[1]
    go(ports, plan, FORWARD[:5])
    assert can_be_undone(ports.run.events())
    offline.start_controllers(Run(ports, plan))
    assert not can_be_undone(ports.run.events())


def test_a_broker_that_somebody_starts_while_it_is_taken_back_ends_that_and_forward_is_open(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = approved(ports)
    go(ports, plan, FORWARD[:6])
    stop = FakeRuntime.stop

    def a_broker_comes(runtime: Any, node: NodeSpec, **options: Any) -> None:
        world.start(11)
        stop(runtime, node, **options)

    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "a test")
    monkeypatch.setattr(FakeRuntime, "stop", a_broker_comes)
    with pytest.raises(RefusedError, match="a broker registered"):
        undo_offline(Run(ports, plan))
    assert world.replaced
    monkeypatch.setattr(FakeRuntime, "stop", stop)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "forward then")
    go(ports, plan, FORWARD[5:])
    assert releases(world) == {"4.2.1"}


def test_a_stop_that_was_killed_between_its_rounds_goes_on_if_the_controllers_were_started_again(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No broker runs, by this run: nothing is served that a check could ask."""
    plan = approved(ports)
    stop = world.stop

    def dies(node_id: int) -> None:
        if node_id in {1, 2, 3}:
            raise KilledError
        stop(node_id)

    monkeypatch.setattr(world, "stop", dies)
    with pytest.raises(KilledError):
        offline.stop_all(Run(ports, plan))
    monkeypatch.setattr(world, "stop", stop)
    for node_id in (1, 2, 3):
        stop(node_id)
        world.start(node_id)
    world.clock.sleep(60)
    go(ports, plan)
    assert releases(world) == {str(R421)}


def test_an_undo_is_compared_with_the_state_before(world: FakeCluster, ports: ClusterPorts) -> None:
    plan = approved(ports)
    record_state(ports)
    go(ports, plan, FORWARD[:5])
    take_back(ports, plan)
    roll = roll_of(Run(ports, plan), RollOf.OFFLINE_UNDO)
    for batch in roll.batches:
        wait_until_back(roll, batch, GatePolicy(checks=1, interval_s=1, timeout_s=60), lambda *_: None)
    assert UNDO.parts[2] is COMPARE_AFTER_ROLLBACK
    COMPARE_AFTER_ROLLBACK.act(StepCall(ports=ports, request=Request(), plan_or_none=plan))
    report = build_report_of_run(Run(ports, plan), procedure=DOWNGRADE)
    assert report is not None
    assert report.outcome is Outcome.ROLLED_BACK, report.sentence
