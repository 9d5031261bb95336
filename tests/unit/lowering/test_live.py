"""The live downgrade over a fake cluster: what it refuses, kills at each change, and the return to the old logs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import FatalError, LockHeldError, RefusedError, TransientError
from kafka_rollout.control import lock
from kafka_rollout.control.approval import record_approval
from kafka_rollout.control.holds import HeldError
from kafka_rollout.lowering import live
from kafka_rollout.lowering.lowered_snapshot import install_on, quorum_lacks
from kafka_rollout.lowering.outage_facts import shown_live_facts
from kafka_rollout.metadata_log.losses import Loss
from kafka_rollout.model.claims import Claim, Claims
from kafka_rollout.model.plan import Lowering, Plan
from kafka_rollout.model.state import Movements, NodeFeatures
from kafka_rollout.model.topology import HostCommand, NodeSpec, ServiceSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.releases.facts import METADATA_VERSION, VersionRange
from kafka_rollout.run.events import ApprovalOf, Decision, events_of, has, newest
from kafka_rollout.run.step_events import (
    LiveLowered,
    OfflineLogChosen,
    OfflineStopping,
    OfflineUndoing,
    OfflineUndone,
)
from tests.fakes.cluster import R431, FakeCluster, make_spec
from tests.fakes.dying_files import KilledError
from tests.fakes.metadata_logs import FakeMetadataLogs, FakePrepared
from tests.fakes.ports import FakeAdmin, fake_ports
from tests.fakes.runtime import FakeRuntime
from tests.plans import plan_downgrade
from tests.unit.lowering.test_offline import R421

BROKERS, CONTROLLERS = {11, 12, 13}, {1, 2, 3}


def approved(ports: ClusterPorts, *, unsafe: bool = False) -> Plan:
    plan = plan_downgrade(ports, R421, lowering=Lowering.LIVE, unsafe=unsafe)
    assert plan.lowering is Lowering.LIVE
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "a test")
    return plan


def is_lowered(world: FakeCluster) -> bool:
    assert all(node.running == R431 for node in world.nodes.values()), "every node runs, on the same release"
    assert not set(world.stops) & BROKERS, "no broker is stopped"
    return world.finalized[METADATA_VERSION] == 29


def test_only_the_controllers_stop_and_start_again_on_the_same_release_at_the_lower_level(
    world: FakeCluster, ports: ClusterPorts
) -> None:
    plan = approved(ports)
    assert "metadata.version is 29 on the controllers" in live.lower_live(Run(ports, plan))
    assert is_lowered(world)
    assert world.replaced.keys() == CONTROLLERS
    chosen = newest(ports.run.events(), OfflineLogChosen)
    assert chosen is not None
    assert (chosen.log.end_offset, chosen.log.snapshot_offset) == (50, 1050), "beyond the log of every node"
    assert has(ports.run.events(), LiveLowered)
    world.stop(3)  # by the roll that follows
    live.lower_live(Run(ports, plan))
    assert (sorted(world.stops), world.runs(3)) == ([1, 2, 3, 3], False), "a repeated call stops and starts nothing"
    assert len(events_of(ports.run.events(), LiveLowered)) == 1


def test_no_controller_stops_while_a_run_of_another_database_changes_a_broker(
    world: FakeCluster, ports: ClusterPorts
) -> None:
    plan = approved(ports)
    theirs = Claim(cluster_id="x", node_id=12, run_id="theirs", nonce="ab" * 16, at=1.0, database="theirs.db")
    world.claims[12] = Claims(open=(theirs,))
    with pytest.raises(LockHeldError, match=r"Run theirs of another database \(theirs\.db\) has claimed node 12"):
        live.lower_live(Run(ports, plan))
    assert world.stops == []
    assert {node_id: claims for node_id, claims in world.claims.items() if claims.open} == {
        12: Claims(open=(theirs,))
    }, "its own claims are withdrawn"
    world.claims[12] = Claims()
    live.lower_live(Run(ports, plan))
    assert {node_id for node_id, claims in world.claims.items() if claims.open} == CONTROLLERS
    lock.release_lock(ports)
    assert not any(claims.open for claims in world.claims.values())


@pytest.mark.parametrize(
    ("stage", "why"),
    [
        (lambda world: setattr(world, "movements", Movements(reassigned=("orders-1",))), "no reassignment: orders-1"),
        (lambda world: setattr(world, "movements", Movements(directories=("a-0 on broker 11",))), "no directory move"),
        (lambda world: world.stop(3), "node 3 is down"),
        (lambda world: world.start(11), "node 11 was started 0 s ago"),
        (lambda world: setattr(world.nodes[12], "behind", 90), "broker 12 is fenced"),
        (
            lambda world: world.topics.update({"orders-0": replace(world.topics["orders-0"], isr=(11, 12))}),
            "all replicas are in sync: orders-0",
        ),
    ],
)
def test_nothing_is_stopped_while_a_broker_can_need_a_controller(
    world: FakeCluster,
    ports: ClusterPorts,
    monkeypatch: pytest.MonkeyPatch,
    stage: Callable[[FakeCluster], object],
    why: str,
) -> None:
    plan = approved(ports)
    monkeypatch.setattr(live, "refuse_new_blockers", lambda *given: None)
    monkeypatch.setattr(FakeCluster, "advance", lambda world: None)
    stage(world)
    stops = list(world.stops)
    with pytest.raises(TransientError, match=why):
        live.lower_live(Run(ports, plan))
    assert world.stops == stops


KILLS: tuple[tuple[Any, str], ...] = (
    (FakeRuntime, "stop"),
    (FakeMetadataLogs, "node_log"),
    (FakePrepared, "write"),
    (FakeMetadataLogs, "install"),
    (FakeRuntime, "start"),
)


@pytest.mark.usefixtures("each_database")
@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("change", KILLS)
def test_killed_at_any_change_the_next_call_lowers_the_level(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, change: tuple[Any, str], at: int
) -> None:
    """A killed process does not start the controllers again, so the reaction to a failure dies too."""
    plan, (owner, name) = approved(ports), change
    act, seen = getattr(owner, name), []

    def acts_or_dies(*given: Any, **more: Any) -> Any:
        seen.append(given)
        if len(seen) == at:
            raise KilledError
        return act(*given, **more)

    def dies(*given: Any) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, acts_or_dies)
        patched.setattr(live, "undo_or_continue", dies)
        if (name, at) in {("write", 2), ("write", 3)}:
            live.lower_live(Run(ports, plan))
        else:
            with pytest.raises(KilledError):
                live.lower_live(Run(ports, plan))
    if name == "stop":
        with suppress(HeldError):  # while a majority still runs, the stop begins anew
            live.lower_live(Run(ports, plan))
        world.clock.sleep(1000)
    live.lower_live(Run(ports, plan))
    assert is_lowered(world)


@pytest.mark.usefixtures("each_database")
@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("change", [*KILLS[2:4], (FakeMetadataLogs, "undo_install"), (FakeRuntime, "start")])
def test_after_a_failure_the_controllers_run_on_their_old_logs_also_if_the_return_is_killed(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, change: tuple[Any, str], at: int
) -> None:
    plan, (owner, name) = approved(ports), change
    act, seen = getattr(owner, name), []

    def two_fail(run: Run, node: Any, *more: Any) -> Any:
        if node.node_id != 1:
            raise FatalError("The disk does not respond.")
        return install_on(run, node, *more)

    def acts_or_dies(*given: Any, **more: Any) -> Any:
        seen.append(given)
        if len(seen) == at:
            raise KilledError
        return act(*given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(live, "install_on", two_fail)
        patched.setattr(owner, name, acts_or_dies)
        with pytest.raises((RefusedError, KilledError)):
            live.lower_live(Run(ports, plan))
    if has(ports.run.events(), OfflineUndoing) and not has(ports.run.events(), OfflineUndone):
        with pytest.raises(TransientError, match="was started 0 s ago"):  # the return is finished first
            live.lower_live(Run(ports, plan))
        assert not is_lowered(world)
    world.clock.sleep(1000)
    live.lower_live(Run(ports, plan))
    assert is_lowered(world)


def test_a_failure_before_the_start_ends_with_every_controller_on_its_old_log(
    world: FakeCluster, ports: ClusterPorts
) -> None:
    plan = approved(ports)
    world.late_losses = [
        Loss(kind="cordoned log directories", subject="broker 11", sentence="Broker 11 loses /data/2.")
    ]
    with pytest.raises(RefusedError, match=r"Broker 11 loses /data/2\. The controllers run on their old logs again"):
        live.lower_live(Run(ports, plan))
    assert not is_lowered(world)
    assert has(ports.run.events(), OfflineUndone)
    assert world.leader is not None
    world.late_losses = []
    world.clock.sleep(1000)
    live.lower_live(Run(ports, plan))
    assert is_lowered(world)


def test_controllers_that_do_not_start_on_the_snapshot_start_on_their_old_logs(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, start = approved(ports), FakeCluster.start

    def starts_on_its_old_log(world: FakeCluster, node_id: int) -> None:
        world.cannot_start = {(node_id, R431)} if node_id in world.replaced else set()
        start(world, node_id)

    monkeypatch.setattr(FakeCluster, "start", starts_on_its_old_log)
    with pytest.raises(RefusedError, match="The controllers run on their old logs again"):
        live.lower_live(Run(ports, plan))
    assert not is_lowered(world)
    assert world.replaced == {}


def test_the_third_controller_starts_at_once_when_one_of_the_first_two_exits(
    world: FakeCluster, ports: ClusterPorts
) -> None:
    plan = approved(ports)
    world.cannot_start = {(2, R431)}
    live.lower_live(Run(ports, plan))
    assert (world.runs(2), world.runs(3)) == (False, True)
    lowered = newest(ports.run.events(), LiveLowered)
    assert lowered is not None
    assert lowered.without_controller_s < live.OTHERS_AFTER_S


def test_a_majority_of_the_voters_starts_first_and_standbys_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of the five controllers have a vote: two of them can elect a leader, and a standby cannot."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    world = FakeCluster(R431, spec=make_spec(controllers=5))
    world.standbys, world.leader = {1, 2}, 3
    world.clock.sleep(1000)
    ports, begun, start = fake_ports(world, tmp_path), [], FakeCluster.start
    plan = approved(ports)

    def recorded(world: FakeCluster, node_id: int) -> None:
        begun.append(node_id)
        start(world, node_id)

    monkeypatch.setattr(FakeCluster, "start", recorded)
    live.lower_live(Run(ports, plan))
    assert is_lowered(world)
    assert set(begun[:2]) < {3, 4, 5}
    lowered = newest(ports.run.events(), LiveLowered)
    assert lowered is not None
    assert lowered.without_controller_s < live.OTHERS_AFTER_S


def test_once_a_leader_was_elected_on_the_snapshot_the_old_logs_are_not_used_again(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = approved(ports)
    with monkeypatch.context() as patched:
        patched.setattr(live, "quorum_lacks", lambda *given: "the quorum has no leader.")
        patched.setattr(live, "serves_at_level", lambda *given: False)
        with pytest.raises(TransientError, match=r"but the controllers do not serve yet: .* after 60 s"):
            live.lower_live(Run(ports, plan))
    assert world.replaced.keys() == CONTROLLERS
    assert not has(ports.run.events(), OfflineUndone)
    live.lower_live(Run(ports, plan))
    assert is_lowered(world)
    lowered = newest(ports.run.events(), LiveLowered)
    assert lowered is not None
    assert lowered.without_controller_s >= 60, "since the first stop, in an earlier call"


def test_a_broker_whose_log_end_is_unknown_stops_it(world: FakeCluster, ports: ClusterPorts) -> None:
    plan = approved(ports)
    world.no_log = {12}
    with pytest.raises(RefusedError, match="The end of a running broker's metadata log is unknown"):
        live.lower_live(Run(ports, plan))
    assert not is_lowered(world)


@pytest.mark.parametrize(
    ("features", "lacks"),
    [
        (NodeFeatures(supported={METADATA_VERSION: VersionRange(7, 30)}, finalized={}, epoch=None), True),
        (NodeFeatures(supported={}, finalized={}, epoch=None, without_quorum=True), True),
        (NodeFeatures(supported={}, finalized={}, epoch=None), True),
        (NodeFeatures(supported={}, finalized={METADATA_VERSION: 29}, epoch=7), False),
        (NodeFeatures(supported={}, finalized={METADATA_VERSION: 30}, epoch=7), True),
    ],
    ids=["just elected", "without an epoch", "no level at all", "lowered", "not lowered"],
)
def test_a_controller_that_does_not_report_the_level_yet_does_not_serve_at_it(
    ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, features: NodeFeatures, *, lacks: bool
) -> None:
    plan = approved(ports)
    monkeypatch.setattr(FakeAdmin, "features", lambda admin, node: features)
    assert bool(quorum_lacks(Run(ports, plan))) is lacks


def test_the_backups_of_an_earlier_downgrade_stay_and_the_controllers_start_again(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node keeps its backup, and its brokers have registered since."""
    plan = approved(ports)
    world.backups = dict.fromkeys(world.nodes, f"{7:020}-{101:010}.checkpoint")
    world.replaced = dict.fromkeys(world.nodes, -1)

    def fails(*given: object, **more: object) -> None:
        raise FatalError("The new log cannot be read.")

    monkeypatch.setattr(FakePrepared, "write", fails)
    with pytest.raises(RefusedError, match=r"The new log cannot be read.*run on their old logs again"):
        live.lower_live(Run(ports, plan))
    assert not is_lowered(world)
    assert len(world.backups) == len(world.nodes)


def test_a_restore_that_fails_on_one_controller_starts_the_others_and_names_it(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, undo = approved(ports), FakeMetadataLogs.undo_install

    def no_backup_at_1(logs: Any, node: NodeSpec, snapshot: str, **options: Any) -> str | None:
        if node.node_id == 1:
            raise FatalError("The backup file is missing.")
        return undo(logs, node, snapshot, **options)

    def fails(*given: object, **more: object) -> None:
        raise TransientError("The disk does not respond.")

    monkeypatch.setattr(FakeMetadataLogs, "undo_install", no_backup_at_1)
    monkeypatch.setattr(FakePrepared, "write", fails)
    with pytest.raises(FatalError, match="controller 1: The backup file is missing"):
        live.lower_live(Run(ports, plan))
    assert (world.runs(1), world.runs(2), world.runs(3)) == (False, True, True)


def test_the_approval_lists_what_is_unavailable_and_for_how_long(ports: ClusterPorts) -> None:
    plan = approved(ports)
    shown = " ".join(shown_live_facts(Run(ports, plan)))
    for part in ("Expected time without an active controller: about", "no partition leader is elected", "ACL"):
        assert part in shown
    assert "kafka_features can raise metadata.version to 30 again while every node runs 4.3.1" in shown
    assert shown_live_facts(Run(ports, plan)) == shown_live_facts(Run(ports, plan))


def test_killed_before_the_first_stop_the_next_call_checks_the_gate_again(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = approved(ports)

    def dies(*given: Any, **options: Any) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(FakeRuntime, "stop", dies)
        patched.setattr(live, "undo_or_continue", dies)
        with pytest.raises(KilledError):
            live.lower_live(Run(ports, plan))
    assert has(ports.run.events(), OfflineStopping)
    world.movements = Movements(reassigned=("orders-1",))
    with pytest.raises(TransientError, match="no reassignment: orders-1"):
        live.lower_live(Run(ports, plan))
    assert world.stops == []
    world.movements = Movements()
    live.lower_live(Run(ports, plan))
    assert is_lowered(world)


def test_the_commands_before_a_stop_run_before_the_gate_and_not_between_the_stops(tmp_path: Path) -> None:
    world = FakeCluster(R431)
    service = ServiceSpec(host="controller", before_stop=(HostCommand(command="drain", timeout_s=3600.0),))
    nodes = [replace(node, service=service) if node.is_controller else node for node in world.spec.nodes]
    world.spec = replace(world.spec, nodes=tuple(nodes))
    ports = fake_ports(world, tmp_path)
    plan = approved(ports)
    prepared: list[int] = []

    def drain(node_id: int) -> None:
        prepared.append(node_id)
        world.movements = Movements(reassigned=("orders-1",))

    world.on_prepare = drain
    with pytest.raises(TransientError, match="no reassignment: orders-1"):
        live.lower_live(Run(ports, plan))
    assert (set(prepared), world.stops) == (CONTROLLERS, [])
    world.movements, world.on_prepare = Movements(), lambda node_id: prepared.append(-len(world.stops))
    live.lower_live(Run(ports, plan))
    assert is_lowered(world)
    assert prepared[3:] == [0, 0, 0], "before the first stop"


@pytest.mark.parametrize("of_plan", [True, False], ids=["before the plan", "after the approval"])
def test_no_controller_stops_if_the_next_start_of_one_is_on_another_release(
    world: FakeCluster, ports: ClusterPorts, of_plan: bool
) -> None:
    """Links that a site has switched already: all controllers would start on it at once."""
    if of_plan:
        world.nodes[2].installed = R421
        plan = plan_downgrade(ports, R421, lowering=Lowering.LIVE)
        assert [one.subject for one in plan.blockers] == ["node 2, release 4.2.1"]
        return
    plan = approved(ports)
    world.nodes[2].installed = R421
    with pytest.raises(
        RefusedError, match=r"next start of node 2 would be on 4\.2\.1, and this step starts it on 4\.3\.1"
    ):
        live.lower_live(Run(ports, plan))
    assert not world.stops


def test_a_link_that_is_switched_while_the_controllers_are_down_starts_none_on_it(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others have a majority and serve; a repeated step starts it when its link leads back."""
    plan = approved(ports)
    stop = FakeRuntime.stop

    def stop_and_switch(runtime: FakeRuntime, node: NodeSpec, **limits: Any) -> None:
        stop(runtime, node, **limits)
        if node.node_id == 2:
            world.nodes[2].installed = R421

    monkeypatch.setattr(FakeRuntime, "stop", stop_and_switch)
    assert "controller 2" in live.lower_live(Run(ports, plan)).lower()
    assert world.nodes[2].running is None
    world.nodes[2].installed = R431
    live.lower_live(Run(ports, plan))
    assert is_lowered(world)
