"""A release that refuses the name of a folder in log.dirs is found before a broker stops for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.control.lock import acquire_lock
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.planning.findings.log_folders import can_refuse_folders
from kafka_rollout.preparation.node_checks import check_log_folders_again
from kafka_rollout.releases.facts import Release
from kafka_rollout.roll.stop import prepare_stop, unread_of_rollback
from kafka_rollout.run.events import ApprovalOf, Decision, RollbackUnread, events_of
from kafka_rollout.run.step_events import Stopping
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.local_host import LocalHost
from tests.fakes.ports import fake_ports
from tests.fakes.runtime import FakeRuntime
from tests.plans import plan_downgrade, plan_upgrade

STRAY = "orders-0.0b5f8c1f5d6a4f1c8f6e0f7a3c1d2e3f-stray"
R352, R341 = Release(3, 5, 2), Release(3, 4, 1)


def runtime_on_local(host: LocalHost) -> SshServiceRuntime:
    return SshServiceRuntime(ClusterSpec(name="far", runtime="ssh_service", nodes=(host.node,)), host, Release.parse)


def codes(plan: object) -> list[str]:
    return [one.code for one in plan.blockers]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("source", "targets", "expected"),
    [
        (R391, [R341], True),
        (R391, [Release(3, 6, 0)], True),
        (R391, [Release(3, 6, 1)], False),
        (Release(3, 6, 0), [R341], True),
        (Release(3, 6, 0), [R352], False),
        (R341, [R391], False),
        (R431, [R391], False),
    ],
)
def test_folders_are_read_only_for_a_release_that_can_refuse_them(
    source: Release, targets: list[Release], expected: bool
) -> None:
    assert can_refuse_folders(source, targets) is expected


def test_a_downgrade_names_the_folders_and_the_way_out(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    cluster.log_folders = {12: ("orders-0", "orders-1.0b5f-delete", STRAY)}
    plan = plan_downgrade(fake_ports(cluster, tmp_path / "1"), R341)
    (found,) = [one for one in plan.blockers if one.code == "LOG-FOLDER-REFUSED"]
    assert found.subject == "node 12, /data"
    assert f"3.4.1 does not start with {STRAY} in /data" in found.sentence
    assert "Move them to a folder outside /data" in found.remedy
    cluster.log_folders = {}
    assert "LOG-FOLDER-REFUSED" not in codes(plan_downgrade(fake_ports(cluster, tmp_path / "2"), R341))


def test_a_topic_that_was_deleted_during_an_upgrade_does_not_end_the_rollback_with_a_node_down(tmp_path: Path) -> None:
    cluster = FakeCluster(R341)
    ports = fake_ports(cluster, tmp_path)
    run = Run(ports, plan_upgrade(ports, R391, finalize=False))
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    acquire_lock(ports, "test")
    at = NodeRun(run, run.plan.release_steps[-1].reversed(), ports.cluster.node(12))
    cluster.log_folders = {12: (STRAY,)}
    with ports.lock.acting(cluster.spec.name, ports.run_id, "Replacing node 12"):
        with pytest.raises(RefusedError, match=rf"Node 12 cannot be rolled back now\. .*{STRAY}"):
            prepare_stop(at)
        cluster.log_folders = {}
        prepare_stop(at)
    assert not events_of(ports.run.events(), RollbackUnread)


def test_no_file_is_read_for_a_release_that_starts_with_each_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = fake_ports(FakeCluster(R391), tmp_path)
    step = plan_upgrade(ports, R431, finalize=False).release_steps[0]
    monkeypatch.setattr(FakeRuntime, "config", lambda *_: pytest.fail("It is read at each stop."))
    assert check_log_folders_again(ports, step, ports.cluster.node(12), {}).not_applicable


def test_the_approver_of_a_rollback_reads_that_folders_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster(R341)
    ports = fake_ports(cluster, tmp_path)
    run = Run(ports, plan_upgrade(ports, R391, finalize=False))
    step = run.plan.release_steps[-1]
    ports.run.record(Stopping(at=ports.clock.now(), node_id=12, release_step=step.key))
    assert unread_of_rollback(run) == ()

    def fail(*_: object) -> None:
        raise TransientError("The host does not list them.")

    monkeypatch.setattr(FakeRuntime, "log_folders", fail)
    read = unread_of_rollback(run)
    acquire_lock(ports, "test")
    with ports.lock.acting(cluster.spec.name, ports.run_id, "Replacing node 12"):
        prepare_stop(NodeRun(run, step.reversed(), ports.cluster.node(12)))
    (recorded,) = events_of(ports.run.events(), RollbackUnread)
    assert read == recorded.sentences == ("The folders of node 12 are unknown: The host does not list them.",)


def test_the_folders_of_a_host_are_those_of_its_log_directory(tmp_path: Path) -> None:
    host = LocalHost(tmp_path / "host")
    for name in (STRAY, "orders-0", "lost+found"):
        (host.data / name / "deeper").mkdir(parents=True)
    runtime = runtime_on_local(host)
    found = runtime.log_folders(host.node, {"log.dirs": str(host.data)})
    assert {*found} == {str(host.data)}
    assert {STRAY, "orders-0", "lost+found"} <= {*found[str(host.data)]}
    assert "deeper" not in found[str(host.data)]


def test_a_host_without_an_answer_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = LocalHost(tmp_path / "host")
    runtime = runtime_on_local(host)
    monkeypatch.setattr(host, "run", lambda *_, **__: Done(1, b"", "/usr/bin/find: '/data/x-0': Input/output error"))
    with pytest.raises((TransientError, RefusedError), match="Input/output error"):
        runtime.log_folders(host.node, {"log.dirs": str(host.data)})
