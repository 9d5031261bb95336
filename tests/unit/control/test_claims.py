"""Two runs of two databases on one cluster: the hosts show each run what its own database does not have."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_rollout.base.errors import LockHeldError, RefusedError
from kafka_rollout.control.claims import refuse_claims_on_hosts
from kafka_rollout.control.lock import acquire_lock, release_lock
from kafka_rollout.gates.gate import GateKind
from kafka_rollout.model.claims import Claim, Claims
from kafka_rollout.model.pace import Pace
from kafka_rollout.model.plan import BatchStep
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.roll import loop
from kafka_rollout.roll.gate_checks import policy_of
from kafka_rollout.roll.loop import Roll
from kafka_rollout.roll.walk import wait_until_back
from kafka_rollout.run.events import Approval, ApprovalOf, Channel, Decision, LockedOut, Responder, events_of
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.fakes.runtime import FakeRuntime
from tests.plans import upgrade_request
from tests.records import FILE, change_lock

RESTART = Request(nodes=("13",))


def open_run(cluster: FakeCluster, home: Path, run_id: str) -> ClusterPorts:
    home.mkdir(exist_ok=True)
    ports = fake_ports(cluster, home, run_id=run_id)
    with ports.lock.calling("fake", run_id):
        acquire_lock(ports, run_id)
    return ports


def plan(ports: ClusterPorts, what: RunOf, request: Request) -> Roll:
    made = plan_change(ports, request, what, terms=request.terms(ports.cluster))
    responder = Responder(channel=Channel.SHELL, user="alice", record_id="")
    ports.run.record(
        Approval(
            what=ApprovalOf.ROLL,
            decision=Decision.APPROVED,
            at=0.0,
            by="alice",
            reason="x",
            plan_hash=made.hash,
            responder=responder,
        )
    )
    return loop.roll_of(Run(ports, made))


def upgrade_in(cluster: FakeCluster, home: Path) -> Roll:
    return plan(open_run(cluster, home, "upgrade"), RunOf.UPGRADE, upgrade_request(R431, finalize=False))


def restart_in(cluster: FakeCluster, home: Path) -> Roll:
    return plan(open_run(cluster, home, "restart"), RunOf.RESTART, RESTART)


def finish(roll: Roll, batch: BatchStep) -> None:
    loop.replace(roll, batch)
    policy = policy_of(roll.run.ports, GateKind.AFTER_START, Request(target=R431, pace=Pace.FAST))
    wait_until_back(roll, batch, policy, lambda gate, seen, message: None)


def at_stop(cluster: FakeCluster, act: Callable[[int], None]) -> None:
    """Act when the stop of a node arrives, once."""
    stop = cluster.stop

    def and_act(node_id: int) -> None:
        cluster.stop = stop  # type: ignore[method-assign]
        act(node_id)
        stop(node_id)

    cluster.stop = and_act  # type: ignore[method-assign]


def test_a_run_of_another_database_stops_no_node_while_one_is_about_to_be_stopped(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ours, theirs = upgrade_in(cluster, tmp_path / "a"), restart_in(cluster, tmp_path / "b")
    refused: list[LockHeldError] = []

    def other(node_id: int) -> None:
        with pytest.raises(LockHeldError) as error:
            loop.replace(theirs, theirs.batches[0])
        refused.append(error.value)

    at_stop(cluster, other)
    first = ours.batches[0].node_ids[0]
    finish(ours, ours.batches[0])
    assert cluster.stops == [first]
    (error,) = refused
    assert f"Run upgrade of another database ({tmp_path}/a/{FILE}) has claimed node {first} since " in error.sentence
    assert "set KAFKA_ROLLOUT_DATABASE" in error.remedy
    assert "kafka-rollout unlock --claims --cluster fake --as NAME" in error.remedy
    (recorded,) = events_of(theirs.run.history.events(), LockedOut)
    assert recorded.sentence == error.sentence
    assert cluster.claims[13] == Claims()  # it has withdrawn its own


def test_of_two_runs_that_claim_nodes_at_the_same_time_each_sees_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster(R391)
    ours, theirs = upgrade_in(cluster, tmp_path / "a"), restart_in(cluster, tmp_path / "b")
    claim, written = FakeRuntime.claim, list[str]()

    def and_then(self: FakeRuntime, node: NodeSpec, one: Claim) -> Claims:
        found = claim(self, node, one)
        written.append(one.run_id)
        if written == ["upgrade"]:
            with pytest.raises(LockHeldError, match="Run upgrade of another"):
                loop.replace(theirs, theirs.batches[0])
        elif written == ["upgrade", "restart"]:
            with pytest.raises(LockHeldError, match="Run restart of another"):
                refuse_claims_on_hosts(ours.run.ports)
        return found

    monkeypatch.setattr(FakeRuntime, "claim", and_then)
    finish(ours, ours.batches[0])  # the other has withdrawn
    assert cluster.stops == [*ours.batches[0].node_ids]
    assert written == ["upgrade", "restart"]


def test_a_change_that_the_plan_does_not_know_needs_a_new_plan_and_an_approver_reads_it(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ours = upgrade_in(cluster, tmp_path / "a")
    theirs = restart_in(cluster, tmp_path / "b")
    finish(theirs, theirs.batches[0])
    with pytest.raises(LockHeldError, match="has claimed node 13"):  # it has not released the cluster
        loop.replace(ours, ours.batches[0])
    release_lock(theirs.run.ports)
    with pytest.raises(RefusedError, match=r"changed node 13 at .* does not know this change") as error:
        loop.replace(ours, ours.batches[0])
    assert error.value.remedy.startswith("Start a new run, which plans from the current state.")
    assert cluster.stops == [13]
    ours.run.ports.lock.break_("fake", "alice")
    again = plan(open_run(cluster, tmp_path / "a", "again"), RunOf.UPGRADE, upgrade_request(R431, finalize=False))
    assert [(one.code, one.severity) for one in again.run.plan.findings if "DATABASE" in one.code] == [
        ("OTHER-DATABASE", "warning")
    ]
    finish(again, again.batches[0])


def test_a_plan_is_blocked_while_a_run_of_another_database_has_not_ended(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ours = upgrade_in(cluster, tmp_path / "a")
    finish(ours, ours.batches[0])
    (found,) = upgrade_in(cluster, tmp_path / "b").run.plan.blockers
    assert (found.code, found.subject) == ("OTHER-DATABASE", "run upgrade")
    assert "set KAFKA_ROLLOUT_DATABASE" in found.remedy


def continued(cluster: FakeCluster, home: Path, run_id: str = "upgrade") -> Roll:
    ports = open_run(cluster, home, run_id)
    return loop.roll_of(Run(ports, ports.run.load_plan()))


def copy_database(home: Path, to: Path) -> None:
    shutil.copytree(home, to)


def test_a_copy_of_a_database_that_goes_on_is_refused_by_what_the_original_did_since(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ours = upgrade_in(cluster, tmp_path / "a")
    finish(ours, ours.batches[0])
    copy_database(tmp_path / "a", tmp_path / "copy")
    theirs, refused = continued(cluster, tmp_path / "copy"), list[int]()

    def other(node_id: int) -> None:
        with pytest.raises(LockHeldError, match="Run upgrade of another database"):
            loop.replace(theirs, theirs.batches[1])
        refused.append(node_id)

    at_stop(cluster, other)
    finish(ours, ours.batches[1])
    assert refused == [*ours.batches[1].node_ids]
    finish(theirs, theirs.batches[1])  # only its gate is left
    with pytest.raises(LockHeldError, match="Run upgrade of another database"):
        loop.replace(theirs, theirs.batches[2])
    finish(ours, ours.batches[2])


def test_a_database_from_an_older_backup_goes_on_when_an_approver_has_taken_over(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ours = upgrade_in(cluster, tmp_path / "a")
    copy_database(tmp_path / "a", tmp_path / "backup")
    finish(ours, ours.batches[0])
    release_lock(ours.run.ports)  # its claims are closed
    restored = continued(cluster, tmp_path / "backup")
    finish(restored, restored.batches[0])  # only its gate is left
    with pytest.raises(RefusedError, match="does not know this change") as error:
        loop.replace(restored, restored.batches[1])
    assert "this one was restored from a backup, an approver takes its nodes over" in error.value.remedy
    assert cluster.stops == [*ours.batches[0].node_ids]
    nonces = frozenset().union(*(one.nonces for one in cluster.claims.values()))
    lock = change_lock(tmp_path / "backup")
    assert lock.take_over_claims("fake", nonces, "alice") == nonces
    assert lock.take_over_claims("fake", nonces, "alice") == frozenset()
    assert lock.history("fake")[-1]["by"] == "alice"
    finish(restored, restored.batches[1])


class KilledError(BaseException):
    """What a kill -9 looks like from inside."""


def test_a_run_that_was_killed_between_its_claim_and_the_stop_continues_and_blocks_only_other_databases(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster(R391)
    ours = upgrade_in(cluster, tmp_path / "a")

    def kill(node_id: int) -> None:
        raise KilledError

    at_stop(cluster, kill)
    with pytest.raises(KilledError):
        loop.replace(ours, ours.batches[0])
    first = ours.batches[0].node_ids[0]
    assert len(cluster.claims[first].open) == 1
    assert restart_in(cluster, tmp_path / "b").run.plan.blockers[0].code == "OTHER-DATABASE"
    ours.run.ports.lock.break_("fake", "alice")
    next_run = restart_in(cluster, tmp_path / "a")
    assert next_run.run.plan.blockers == ()
    finish(next_run, next_run.batches[0])
    release_lock(next_run.run.ports)
    finish(continued(cluster, tmp_path / "a"), ours.batches[0])
    assert cluster.stops == [13, first]


def test_the_release_of_the_lock_ends_the_claims_of_all_nodes_but_those_whose_gate_has_not_passed(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster(R391)
    ours = upgrade_in(cluster, tmp_path / "a")
    finish(ours, ours.batches[0])
    loop.replace(ours, ours.batches[1])  # and no gate
    (first,), (second,) = (one.node_ids for one in ours.batches[:2])
    release_lock(ours.run.ports)
    assert (cluster.claims[first].open, len(cluster.claims[second].open)) == ((), 1)
    assert cluster.claims[first].closed is not None
    roll = continued(cluster, tmp_path / "a")
    finish(roll, roll.batches[1])
    release_lock(roll.run.ports)
    assert [one.open for one in cluster.claims.values()] == [(), ()]


def test_claims_that_cannot_be_read_refuse_a_stop(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ours = upgrade_in(cluster, tmp_path / "a")
    cluster.claims[13] = Claims(problem="find: ‘.kafka-rollout’: Permission denied")
    for _ in range(2):
        with pytest.raises(RefusedError, match="Whether another run changes node 13 is unknown"):
            loop.replace(ours, ours.batches[0])
    assert cluster.stops == []
    (recorded,) = events_of(ours.run.history.events(), LockedOut)
    assert "Whether another run changes node 13 is unknown" in recorded.sentence
