"""Names in log directories that a release refuses are found before a node stops, whatever the release."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.findings import CheckOf, Finding
from kafka_rollout.base.internal_topics import METADATA_LOG
from kafka_rollout.control.approval import record_approval
from kafka_rollout.control.lock import acquire_lock
from kafka_rollout.formats.log_files import ORDINARY_FILE, can_parse_file, log_directory
from kafka_rollout.model.log_directories import LogDirectory
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.nodes.runtimes.local_process import LocalProcessRuntime
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.planning.findings.log_folders import log_folder_findings
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.frozen_plan import recheck
from kafka_rollout.preparation.node_checks import check_log_folders
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.check_registry import check_release, checks_of
from kafka_rollout.roll.stop import prepare_stop, unread_of_rollback
from kafka_rollout.run.events import ApprovalOf, Decision, RollbackUnread, events_of
from kafka_rollout.run.step_events import Stopping
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.local_host import LocalHost
from tests.fakes.ports import fake_ports
from tests.fakes.runtime import FakeRuntime

STRAY = "orders-0.0b5f8c1f5d6a4f1c8f6e0f7a3c1d2e3f-stray"
R341 = Release(3, 4, 1)
DATA = "/tmp/kafka-logs"  # noqa: S108  of Kafka's default
COPY = "__cluster_metadata-0.bak"
BROKER = NodeSpec(node_id=1, name="h", roles=frozenset({Role.BROKER}))
CONTROLLER = NodeSpec(node_id=2, name="h", roles=frozenset({Role.CONTROLLER}))


def listed(*names: str) -> LogDirectory:
    """A directory with these folders, and files as FOLDER/FILE."""
    return log_directory((folder, file, True) for folder, _, file in (name.partition("/") for name in names))


def runtime_on_local(host: LocalHost) -> SshServiceRuntime:
    return SshServiceRuntime(ClusterSpec(name="far", runtime="ssh_service", nodes=(host.node,)), host, Release.parse)


def refused(blockers: Sequence[Finding]) -> list[str]:
    return [one.sentence for one in blockers if one.code == "LOG-FOLDER-REFUSED"]


def found(node: NodeSpec, release: Release = R431, log_dirs: str = "/d1,/d2", **listings: LogDirectory) -> list[str]:
    config = {"log.dirs": log_dirs, "metadata.log.dir": "/d1"}
    directories = {f"/{name}": listing for name, listing in listings.items()}
    return [one.sentence for one in log_folder_findings(node, config, directories, [release])]


@pytest.mark.parametrize("target", [R431, R341, None], ids=["upgrade", "downgrade", "restart"])
def test_each_run_names_what_lies_there_since_the_start(tmp_path: Path, target: Release | None) -> None:
    cluster = FakeCluster(R391)
    ports = fake_ports(cluster, tmp_path)
    run_of = RunOf.RESTART if target is None else RunOf.UPGRADE if target > R391 else RunOf.DOWNGRADE
    request = Request(target=target, scan=False)
    cluster.log_folders = {(12, DATA): listed("orders-0", "orders-1.0b5f-delete", STRAY, COPY)}
    (sentence,) = refused(plan_change(ports, request, run_of).blockers)
    shown = f"{COPY}, {STRAY}" if target == R341 else COPY
    assert f"does not start with {shown} in {DATA} of node " in sentence
    checked = check_release(ports, target or R391, checks_of([*CheckOf]), complete_with="")
    assert "LOG-FOLDER-REFUSED" in [one.code for entry in checked.entries for one in entry.findings]

    cluster.log_folders = {}
    plan = plan_change(ports, request, run_of)
    assert refused(plan.blockers) == []
    stop = plan.release_steps[0], ports.cluster.node(12)
    assert refused(recheck(Run(ports, plan), stop).blockers) == []
    cluster.log_folders = {(12, DATA): listed(COPY)}
    assert len(refused(recheck(Run(ports, plan), stop).blockers)) == 1


@pytest.mark.parametrize("release", [R341, R391, R431], ids=str)
@pytest.mark.parametrize(
    "name",
    [COPY, "orders-0.bak", "orders-0_old", "backup", "lost+found", ".trash", "orders-3.orig", "orders-99999999999"],
)
def test_a_folder_that_is_not_a_partition_ends_a_broker_and_no_controller(name: str, release: Release) -> None:
    (sentence,) = found(BROKER, release, d1=listed(name, "orders-0"), d2=listed())
    assert f"{release} does not start with {name} in /d1" in sentence
    assert found(CONTROLLER, release, d1=listed(name), d2=listed()) == []


def test_what_kafka_makes_itself_starts() -> None:
    own = ("orders-0", "a.b-7", "orders-1.0b5f-delete", "orders-1.0b5f-future", STRAY, "remote-log-index-cache")
    files = (f"{0:020}.log", f"{0:020}.timeindex", f"{9:020}.snapshot", f"{0:020}.log.deleted", "partition.metadata")
    index = f"remote-log-index-cache/12_{'x' * 22}.index"
    inside = listed(*own, "__cluster_metadata-0", index, *(f"orders-0/{name}" for name in files))
    metadata = listed(*(f"__cluster_metadata-0/{name}" for name in (f"{5:020}-{1:010}.checkpoint", "quorum-state")))
    both = LogDirectory(folders=inside.folders, refused=inside.refused | metadata.refused)
    assert found(BROKER, d1=both, d2=listed("orders-1")) == []


@pytest.mark.parametrize("name", ["dump.log", "x.index", "copy.snapshot", "a.log.swap", "b.cleaned"])
def test_a_file_whose_name_is_not_an_offset_ends_each_node_that_loads_its_folder(name: str) -> None:
    file = f"__cluster_metadata-0/{name}"
    for node in (BROKER, CONTROLLER):
        (sentence,) = found(node, d1=listed("__cluster_metadata-0", file), d2=listed())
        assert f"does not start with {file} in /d1" in sentence
    partition = listed("orders-0", f"orders-0/{name}")
    assert len(found(BROKER, d1=listed(), d2=partition)) == 1
    assert found(CONTROLLER, d1=listed(), d2=partition) == []


def test_a_snapshot_with_another_name_ends_a_node_in_the_metadata_log_alone() -> None:
    assert len(found(CONTROLLER, d1=listed("__cluster_metadata-0/old.checkpoint"), d2=listed())) == 1
    assert found(BROKER, d1=listed(), d2=listed("orders-0", "orders-0/old.checkpoint")) == []


def test_a_file_that_the_user_of_the_node_cannot_read_is_named() -> None:
    closed = log_directory([("orders-0", "", True), ("orders-0", "dump.txt", False)])
    (sentence,) = found(BROKER, d1=closed, d2=listed())
    assert "does not start with orders-0/dump.txt in /d1" in sentence
    assert "cannot read" in sentence


def test_a_second_folder_of_a_partition_is_found_in_all_directories() -> None:
    for other in ("orders-0", "orders-00"):
        (sentence,) = found(BROKER, d1=listed("orders-0"), d2=listed(other))
        assert f"two folders are of one partition: /d1/orders-0 and /d2/{other}" in sentence
    for other in ("orders-0.5f-future", "orders-0.5f-delete", STRAY):
        assert found(BROKER, d1=listed("orders-0"), d2=listed(other)) == []
    assert found(CONTROLLER, d1=listed("orders-0"), d2=listed("orders-0")) == []


def test_a_metadata_log_in_another_directory_ends_each_node() -> None:
    for node in (BROKER, CONTROLLER):
        (sentence,) = found(node, d1=listed("__cluster_metadata-0"), d2=listed("__cluster_metadata-0"))
        assert "__cluster_metadata-0 in /d2 of node h: the metadata log is in /d1" in sentence


def test_a_replica_that_moves_between_two_directories_is_not_taken_for_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directories are read one after the other."""
    ports = fake_ports(FakeCluster(R391), tmp_path)
    before, after = listed("orders-0"), listed("orders-0.5f-delete")
    answers = [{"/d1": before, "/d2": listed("orders-0")}, {"/d1": after, "/d2": listed("orders-0")}]
    monkeypatch.setattr(FakeRuntime, "log_folders", lambda *_: answers.pop(0))
    seen = check_log_folders(ports, [R431], {12: {"log.dirs": "/d1,/d2"}})
    assert (seen.findings, seen.unknown, answers) == ((), (), [])


def test_a_topic_that_was_deleted_during_an_upgrade_does_not_end_the_rollback_with_a_node_down(tmp_path: Path) -> None:
    cluster = FakeCluster(R341)
    ports = fake_ports(cluster, tmp_path)
    run = Run(ports, plan_change(ports, Request(target=R391, scan=False), RunOf.UPGRADE))
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    acquire_lock(ports, "test")
    at = NodeRun(run, run.plan.release_steps[-1].reversed(), ports.cluster.node(12))
    cluster.log_folders = {(12, DATA): listed(STRAY)}
    with ports.lock.acting(cluster.spec.name, ports.run_id, "Replacing node 12"):
        with pytest.raises(RefusedError, match=rf"Node 12 cannot be rolled back now\. .*{STRAY}"):
            prepare_stop(at)
        cluster.log_folders = {}
        prepare_stop(at)
    assert not events_of(ports.run.events(), RollbackUnread)


def test_the_approver_of_a_rollback_reads_that_names_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster(R391)
    ports = fake_ports(cluster, tmp_path)
    run = Run(ports, plan_change(ports, Request(target=R431, scan=False), RunOf.UPGRADE))
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
    what = "The names in the log directories of node 12 are unknown: The host does not list them."
    assert read == recorded.sentences == (what,)


def make_files(data: Path) -> None:
    for name in (STRAY, "orders-0", "lost+found"):
        (data / name / "deeper").mkdir(parents=True)
    (data / "orders-0/dump.log").touch()
    (data / "orders-0/closed.txt").touch(mode=0)
    (data / "notes").touch()


def test_the_names_on_a_host_are_those_of_its_log_directories(tmp_path: Path) -> None:
    host = LocalHost(tmp_path / "host")
    make_files(host.data)
    config = {"log.dirs": f"{host.data}, {tmp_path}/missing"}
    seen = runtime_on_local(host).log_folders(host.node, config)
    assert {*seen} == {str(host.data), f"{tmp_path}/missing"}
    assert seen[f"{tmp_path}/missing"] == LogDirectory()
    names = seen[str(host.data)]
    assert {STRAY, "orders-0", "lost+found"} <= names.folders
    assert not {"deeper", "notes"} & names.folders
    assert names.refused == {"orders-0/dump.log"}
    assert names.unreadable == (set() if os.geteuid() == 0 else {"orders-0/closed.txt"})
    here = replace(host.node, directory="/")
    assert LocalProcessRuntime.log_folders(None, here, config) == seen  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("out", "err"),
    [
        ("", "/usr/bin/find: '/data/x-0': Input/output error"),
        ("", "/usr/bin/find: '/data': Permission denied"),
        ("d/1/orders-0|bak|", ""),
        ("", "sudo: a password is required"),
    ],
)
def test_a_list_that_is_not_whole_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, err: str
) -> None:
    host = LocalHost(tmp_path / "host")
    runtime = runtime_on_local(host)
    monkeypatch.setattr(host, "run", lambda *_, **__: Done(1 if err else 0, out.encode(), err))
    with pytest.raises((TransientError, RefusedError)):
        runtime.log_folders(host.node, {"log.dirs": "/data"})


def test_what_the_user_cannot_read_follows_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = LocalHost(tmp_path / "host")
    out = b"d/1/orders-0|f/9/orders-0/dump.txt|-|f/9/orders-0/x|"
    monkeypatch.setattr(host, "run", lambda *_, **__: Done(0, out, ""))
    seen = runtime_on_local(host).log_folders(host.node, {"log.dirs": "/data"})
    assert seen["/data"].unreadable == {"orders-0/dump.txt"}


@given(st.from_regex(re.compile(ORDINARY_FILE), fullmatch=True))
def test_a_name_that_a_host_leaves_out_is_one_that_every_start_parses(name: str) -> None:
    assert all(can_parse_file(folder, name) for folder in ("orders-0", METADATA_LOG, "lost+found"))


OFFSETS = ("0" * 20, "00" + "9" * 18, "0" + "9" * 19, "9" * 20, "٠" * 20, "0" * 19 + "²", "0" * 19, "+5", "-7", "")
ENDINGS = (
    *(".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".swap", ".cleaned", ".deleted", ".log.deleted"),
    *(".checkpoint", "-0000000001.checkpoint", ".checkpoint.part", ".checkpoint.deleted", ".txt", "", "\n.log"),
)
OTHERS = ("leader-epoch-checkpoint", "partition.metadata", "partition.metadata.tmp", "quorum-state", ".log", "x.LOG")


def test_the_filter_of_a_host_changes_nothing_that_is_judged(tmp_path: Path) -> None:
    """With the find of this machine, all names of the lists and random ones, as files, folders and links."""
    host = LocalHost(tmp_path / "host")
    chosen = Random(7)
    letters = "0123456789.-+abcdefgilmnopstx ²٠é\n"
    random = ["".join(chosen.choices(letters, k=chosen.randint(1, 30))) for _ in range(300)]
    names = {*(start + end for start in OFFSETS for end in ENDINGS), *OTHERS, *random} - {"", ".", ".."}
    real = host.data / "orders-0"
    for folder in ("orders-0", METADATA_LOG, "00" + "0" * 18 + ".log"):
        (host.data / folder).mkdir(parents=True)
        for name in names:
            (host.data / folder / name).touch()
    (host.data / "linked-1").symlink_to(real)
    (host.data / "partition.metadata").mkdir()
    (host.data / "leader-epoch-checkpoint").touch()
    (real / ("0" * 19 + "7.log")).mkdir()
    (real / ("0" * 19 + "8.log")).symlink_to(real / "quorum-state")
    config = {"log.dirs": str(host.data)}
    seen = runtime_on_local(host).log_folders(host.node, config)
    here = replace(host.node, directory="/")
    assert LocalProcessRuntime.log_folders(None, here, config) == seen  # type: ignore[arg-type]
    assert seen[str(host.data)].refused


def test_ordinary_names_do_not_cross_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = LocalHost(tmp_path / "host")
    folder = host.data / "orders-0"
    folder.mkdir(parents=True)
    for name in ("0" * 20 + ".log", "0" * 20 + ".index", "partition.metadata", "leader-epoch-checkpoint"):
        (folder / name).touch()
    outs, run = list[bytes](), host.run

    def record(*words: Any, **named: Any) -> Done:
        done = run(*words, **named)
        outs.append(done.content)
        return done

    monkeypatch.setattr(host, "run", record)
    runtime_on_local(host).log_folders(host.node, {"log.dirs": str(host.data)})
    assert outs[-1].count(b"|") == 1
    assert outs[-1].endswith(b"/orders-0|")
