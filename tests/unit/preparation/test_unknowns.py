"""What a check cannot observe blocks, or is accepted by its subject, and the exit code shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import (
    FatalError,
    NotObservableError,
    RefusedError,
    RolloutError,
    SkippedStepError,
    TransientError,
)
from kafka_rollout.base.findings import UnknownKind, UnknownValue
from kafka_rollout.control.approval import record_approval, require_approval
from kafka_rollout.control.lock import acquire_lock
from kafka_rollout.model.acls import AUTHORIZER, STANDARD_AUTHORIZER
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.state import UNKNOWN_MIN_ISR
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts, observe
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.changes_on_disk import unapproved_changes
from kafka_rollout.preparation.frozen_plan import recheck
from kafka_rollout.preparation.lost_metadata import refuse_new_in_metadata
from kafka_rollout.preparation.plan_making import rehearse_plan
from kafka_rollout.preparation.replayed_metadata import unkept_metadata
from kafka_rollout.procedure.approval_requests import approval_body, kept_rollback_part, rollback_part
from kafka_rollout.report.check_registry import verify
from kafka_rollout.roll.stop import files_once, prepare_stop, refuse_closed
from kafka_rollout.run.events import ApprovalOf, Asked, AskingEnded, Decision, RollbackUnread, Voided, events_of
from kafka_rollout.run.step_events import Stopping
from tests.acls import read_acl
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.metadata_logs import FakeMetadataLogs
from tests.fakes.ports import FakeAdmin, fake_ports
from tests.fakes.runtime import FakeRuntime
from tests.plans import plan_upgrade

DOWN = TransientError("The JVM did not start.")
NOT_REHEARSED = "It was requested and did not take place: The nodes have no files."
CANNOT_LIST = "Node 1 cannot list the ACLs (UNKNOWN_SERVER_ERROR)."


def fails(error: RolloutError) -> Callable[..., object]:
    def call(*args: object, **options: object) -> object:
        raise error

    return call


def cluster_with_acls() -> FakeCluster:
    cluster = FakeCluster(R391)
    cluster.acls = {read_acl("User:alice", host="10.0.0.0/8")}
    for node in cluster.nodes.values():
        node.config[AUTHORIZER] = STANDARD_AUTHORIZER
    return cluster


def unknowns(plan: Plan, check: str) -> dict[str, UnknownKind]:
    return {what.subject: what.kind for one in plan.checks if one.id == check for what in one.unknowns}


def test_the_exit_code_of_a_plan_is_that_of_a_check(tmp_path: Path) -> None:
    cluster = cluster_with_acls()
    complete = plan_upgrade(fake_ports(cluster, tmp_path / "1"), R431, finalize=False)
    assert unknowns(complete, "coordinator-logs") == {"scan": UnknownKind.LEFT_OUT}
    assert complete.exit_code == 0, "what the request leaves out by name does not count"
    cluster.acls_problem = CANNOT_LIST
    hiding = plan_upgrade(fake_ports(cluster, tmp_path / "2"), R431, finalize=False)
    assert (hiding.blockers, hiding.exit_code) == ((), 5)
    cluster.find_unlisted_controllers = {99}
    blocked = plan_upgrade(fake_ports(cluster, tmp_path / "3"), R431, finalize=False)
    assert blocked.blockers
    assert blocked.exit_code == 3


@pytest.mark.parametrize("error", [DOWN, FatalError("No Java was found.", remedy="Install it.")])
def test_a_check_that_failed_blocks_and_one_that_the_cluster_hides_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: RolloutError
) -> None:
    cluster = cluster_with_acls()
    ports = fake_ports(cluster, tmp_path / "1")
    monkeypatch.setattr(type(ports.classes), "acl_differences", fails(error))
    plan = plan_upgrade(ports, R431, finalize=False)
    (blocker,) = plan.blockers
    assert (blocker.code, blocker.subject) == ("CHECK-FAILED", "acl-meaning, ACLs")
    assert error.sentence in blocker.sentence
    assert blocker.remedy == (error.remedy or "Remove the cause, then plan again.")
    monkeypatch.setattr(type(ports.classes), "acl_differences", fails(RefusedError("No right.")))
    plan = plan_upgrade(fake_ports(cluster, tmp_path / "2"), R431, finalize=False)
    assert (plan.blockers, unknowns(plan, "acl-meaning")) == ((), {"ACLs": UnknownKind.HIDDEN})


def accepting(plan: Plan, subject: str) -> Plan:
    """Return the plan with another subject of the ACLs' check that its approvers read as unknown."""
    checks = [
        replace(one, unknowns=(UnknownValue(subject, "It is unknown."),)) if one.id == "acl-meaning" else one
        for one in plan.checks
    ]
    return replace(plan, checks=tuple(checks))


@pytest.mark.parametrize("subject", ["authorizer", "ACLs"])
def test_who_accepted_one_unknown_subject_has_not_accepted_another(tmp_path: Path, subject: str) -> None:
    cluster = cluster_with_acls()
    ports = fake_ports(cluster, tmp_path)
    run = Run(ports, accepting(plan_upgrade(ports, R431, finalize=False), subject))
    cluster.acls_problem = CANNOT_LIST
    if subject == "ACLs":
        refuse_new_in_metadata(run)
        return
    with pytest.raises(TransientError, match="cannot list the ACLs") as raised:
        refuse_new_in_metadata(run)
    assert raised.value.remedy.startswith("Delete that ACL. If the cluster hides it")


def ready(tmp_path: Path) -> tuple[FakeCluster, ClusterPorts, Run]:
    cluster = FakeCluster(R391)
    ports = fake_ports(cluster, tmp_path)
    return cluster, ports, Run(ports, plan_upgrade(ports, R431, finalize=False))


def test_a_node_that_does_not_report_its_values_has_not_no_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ports, run = ready(tmp_path)
    stop = run.plan.release_steps[0], ports.cluster.node(12)
    assert recheck(run, stop).ok
    monkeypatch.setattr(FakeAdmin, "settings_in_use", fails(TransientError("Node 12 does not respond.")))
    found = unapproved_changes(run, [stop[1]], observe(ports), {})
    assert [(one.subject, one.kind) for one in found.unknown] == [("values in use of node 12", UnknownKind.FAILED)]
    with pytest.raises(TransientError, match="Node 12 does not respond"):
        recheck(run, stop)


def test_a_host_that_hides_its_files_since_the_plan_stops_the_node_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ports, run = ready(tmp_path)
    stop = run.plan.release_steps[0], ports.cluster.node(12)
    monkeypatch.setattr(FakeRuntime, "host", fails(NotObservableError("sudo permits nothing any more.")))
    with pytest.raises(TransientError, match="sudo permits nothing"):
        recheck(run, stop)
    accepted = plan_upgrade(ports, R431, finalize=False)
    assert recheck(Run(ports, accepted), stop).ok, "these approvers read it"


@pytest.mark.parametrize("error", [DOWN, FatalError("The disk of the worker is full.")])
def test_a_rollback_takes_a_fault_of_the_worker_not_for_nothing_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: RolloutError
) -> None:
    *_, run = ready(tmp_path)
    back = run.plan.release_steps[0].reversed()
    monkeypatch.setattr(FakeMetadataLogs, "scan", fails(error))
    with pytest.raises(type(error), match=error.sentence):
        unkept_metadata(run, back)


@pytest.mark.parametrize("gone", ["each host of a controller", "the host of the leader"])
def test_a_rollback_stays_possible_without_the_hosts_and_records_what_it_did_not_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    cluster, ports, run = ready(tmp_path)
    back = run.plan.release_steps[0].reversed()
    silent = {1, 2, 3} if gone.startswith("each") else {1}
    assert cluster.leader == 1

    def of_host(read: Callable[..., object]) -> Callable[..., object]:
        def call(runtime: object, node: NodeSpec, *more: object) -> object:
            if node.node_id in silent:
                raise TransientError("The host does not respond.")
            return read(runtime, node, *more)

        return call

    for name in ("config", "java_version", "metadata_log_dir"):
        monkeypatch.setattr(FakeRuntime, name, of_host(getattr(FakeRuntime, name)))
    assert rollback_part(run) == [], "no node was stopped"
    ports.run.record(Stopping(at=ports.clock.now(), node_id=12, release_step=run.plan.release_steps[0].key))
    (title, listed, _) = rollback_part(run)
    assert title.startswith("### A rollback cannot compare")
    lines = listed.splitlines()
    assert [line for line in lines if "node 1 is unknown: The host does not respond." in line]
    assert len(lines) == len(silent) + (len(silent) > 1)
    kept = kept_rollback_part(run, ApprovalOf.FINALIZE)
    refuse_closed(run, back, files_once(run), reads_again=True)
    acquire_lock(ports, "test")
    with ports.lock.acting(cluster.spec.name, ports.run_id, "Replacing node 12"):
        prepare_stop(NodeRun(run, back, ports.cluster.node(12)))
    assert kept_rollback_part(run, ApprovalOf.FINALIZE) == kept
    recorded = [event.sentences for event in events_of(ports.run.events(), RollbackUnread)]
    unread = [f"The file of node {number} is unknown: The host does not respond." for number in sorted(silent)]
    assert recorded == [(*unread, *["The host does not respond."][: len(silent) - 1])]
    silent.add(13)
    assert kept_rollback_part(run, ApprovalOf.FINALIZE) == kept
    assert "node 13" in kept_rollback_part(run, "roll-4")[1], "another request shows what is so then"


def test_a_rehearsal_that_was_requested_and_did_not_take_place_is_in_the_approval(tmp_path: Path) -> None:
    _, ports, run = ready(tmp_path)
    with pytest.raises(SkippedStepError) as skipped:
        rehearse_plan(run, Request(target=R431), lambda line: None)
    plan = ports.run.load_plan()
    said = approval_body(plan).replace("\\", "")
    assert f"It was requested and did not take place: {skipped.value}" in said
    assert said.index("did not take place") < said.index("Findings:")
    assert (plan.blockers, plan.exit_code) == ((), 5)


@pytest.mark.parametrize("shown", ["approved", "asked", "declined", "not asked"])
def test_who_has_read_the_plan_has_not_read_what_it_lists_as_unknown_since(tmp_path: Path, shown: str) -> None:
    _, ports, run = ready(tmp_path)
    if shown != "not asked":
        ports.run.record(Asked(what=ApprovalOf.ROLL, task_id="", record_id="", text="Roll?\n\nplan", options=()))
    if shown == "approved":
        record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "a test", text="plan")
    if shown == "declined":
        ports.run.record(AskingEnded())
    for _ in range(2):
        with pytest.raises(SkippedStepError):
            rehearse_plan(run, Request(target=R431), lambda line: None)
    found = events_of(ports.run.events(), Voided)
    if shown in {"declined", "not asked"}:
        assert found == ()
        return
    assert [one.blockers for one in found] == [("unknown, rehearsal=rehearsal: " + NOT_REHEARSED,)], "once"
    if shown == "asked":
        record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "a test", text="plan")
    with pytest.raises(RefusedError, match=r"is invalid: .*did not take place"):
        require_approval(run, ApprovalOf.ROLL)


def test_a_min_isr_that_is_unknown_since_the_plan_stops_the_node_step(tmp_path: Path) -> None:
    cluster, ports, run = ready(tmp_path)
    stop = run.plan.release_steps[0], ports.cluster.node(12)
    cluster.topics["orders-0"] = replace(cluster.topics["orders-0"], min_insync_replicas=UNKNOWN_MIN_ISR)
    with pytest.raises(TransientError, match=r"min\.insync\.replicas of 1 topic is unknown"):
        recheck(run, stop)


def test_verify_says_what_it_could_not_exclude(tmp_path: Path) -> None:
    cluster, ports, _ = ready(tmp_path)
    assert (verify(ports).unknown, verify(ports).ok, verify(ports).exit_code) == ({}, True, 0)
    cluster.topics["orders-0"] = replace(cluster.topics["orders-0"], min_insync_replicas=UNKNOWN_MIN_ISR)
    seen = verify(ports)
    assert (list(seen.unknown), seen.ok, seen.exit_code) == (["partition-availability"], False, 5)
    assert "min.insync.replicas of 1 topic is unknown" in seen.unknown["partition-availability"]
    cluster.find_unlisted_controllers = {99}
    assert verify(ports).exit_code == 3
