"""The files of a node on a host are copied as those of this machine, with the commands of the sudoers file only."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError, UserError
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.nodes.runtimes.hosts.rights import NodeDirectories, RehearsalRights, sudoers_files
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.rehearsal.machine.local import real_directories
from kafka_rollout.rehearsal.machine.node_files import CopyLimit, FilesHere, HostFiles, NodeFiles, node_files
from kafka_rollout.releases.facts import Release
from tests.fakes.local_host import LocalHost, permitted
from tests.unit.rehearsal.machine.test_node_files import listed, make_node

SEGMENT = "__consumer_offsets-0/00000000000000000000.log"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def host(tmp_path: Path) -> LocalHost:
    host = LocalHost(tmp_path / "host")
    make_node(tmp_path / "made")
    (tmp_path / "made" / "node-1").rename(host.data)
    for folder in host.data.glob("*-0"):  # as Kafka writes it
        (folder / "partition.metadata").write_text("version: 0\ntopic_id: Zk9xQ2h4T3JkZXJz\n")
    return host


def files_on(host: LocalHost, clock: Callable[[], float] = lambda: 0.0, most: int = 1 << 30) -> NodeFiles:
    runtime = SshServiceRuntime(ClusterSpec(name="far", runtime="ssh_service", nodes=(host.node,)), host, Release.parse)
    limit = CopyLimit(most=most, within_s=60.0, monotonic=clock)
    source = HostFiles(commands=runtime, node=host.node, limit=limit)
    return node_files(host.node, {"log.dirs": str(host.data)}, source=source)


def content(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in listed(folder)}


def copy_of(files: NodeFiles, home: Path) -> dict[str, bytes]:
    (copy,) = map(Path, files.copy(home, lambda number: None).values())
    assert all(path.stat().st_mode & 0o077 == 0 for path in copy.rglob("*") if path.is_file())
    return {**content(copy), **{str(path.relative_to(copy)): b"" for path in copy.iterdir() if path.is_dir()}}


def test_the_copy_is_that_of_the_same_files_on_this_machine(host: LocalHost, tmp_path: Path) -> None:
    far, here = files_on(host), node_files(host.node, {"log.dirs": str(host.data)})
    copied = copy_of(far, tmp_path / "far")
    assert copied == copy_of(here, tmp_path / "here")
    assert SEGMENT in copied
    assert "orders-0" in copied
    assert (far.size(), far.cluster_id()) == (here.size(), here.cluster_id())
    directories = {1: NodeDirectories(metadata=str(host.data), log_dirs=(str(host.data),))}
    ((sudoers, _),) = sudoers_files("rollout", [host.node], directories).items()
    assert [words for words in host.commands() if not permitted(sudoers, words)] == []


def test_a_log_directory_that_is_a_link_is_copied_as_the_directory_behind_it(host: LocalHost, tmp_path: Path) -> None:
    copied = copy_of(files_on(host), tmp_path / "plain")
    host.data.rename(tmp_path / "mounted")
    host.data.symlink_to(tmp_path / "mounted")
    assert copy_of(files_on(host), tmp_path / "linked") == copied


def test_a_list_without_the_file_that_each_log_directory_has_is_refused(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = files_on(host)
    monkeypatch.setattr(host, "run", lambda *_, **__: Done(0, b"", ""))
    with pytest.raises(TransientError, match=r"does not contain meta\.properties"):
        files.size()


@pytest.mark.parametrize(
    ("folder", "reason", "is_whole"),
    [
        ("backup", "Permission denied", True),  # no release starts with it, which LOG-FOLDER-REFUSED says
        ("orders-0", "Permission denied", False),
        ("orders-0", "No such file or directory", True),  # deleted while it was read
        ("backup", "Input/output error", False),
    ],
)
def test_a_closed_folder_that_is_not_kafkas_is_left_out(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch, folder: str, reason: str, is_whole: bool
) -> None:
    files, run = files_on(host), LocalHost.run
    whole = files.size()

    def run_as_user(self: LocalHost, name: str, command: Any, **options: Any) -> Done:
        done = run(self, name, command, **options)
        return replace(done, code=1, err=f"/usr/bin/find: '{host.data}/{folder}': {reason}\n")

    monkeypatch.setattr(LocalHost, "run", run_as_user)
    if is_whole:
        assert files.size() == whole
        return
    with pytest.raises((TransientError, RefusedError), match=reason):
        files.size()


def test_a_directory_of_a_host_is_no_directory_of_this_machine(host: LocalHost, tmp_path: Path) -> None:
    """Both can have /data, in which the sandbox is here."""
    files = files_on(host)
    assert real_directories([files]) == (str(host.data),)  # a node of this machine that is reached over SSH
    (host.data / "meta.properties").unlink()
    assert real_directories([files]) == ()
    assert real_directories([replace(files, source=FilesHere())]) == (str(host.data),)


def test_other_files_of_the_user_are_not_permitted(host: LocalHost) -> None:
    from kafka_rollout.nodes.runtimes.hosts.rights import RehearsalRights

    directories = {1: NodeDirectories(metadata=str(host.data), log_dirs=(str(host.data),))}
    ((sudoers, _),) = sudoers_files("rollout", [host.node], directories).items()
    read = RehearsalRights("kafka", str(host.data)).read
    assert permitted(sudoers, read.command(log=SEGMENT))
    for name in ("orders-0/00000000000000000000.log", "__consumer_offsets-0/../../server.properties", "../x"):
        assert not permitted(sudoers, read.command(log=name)), name


@pytest.fixture
def removed_at_first(host: LocalHost, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The node replaces a segment after the first listing; the names of files that were fetched."""
    fetched: list[str] = []
    real = HostFiles.fetch

    def fetch(source: HostFiles, directory: Path, name: str, size: int, target: Path) -> None:
        if name == SEGMENT and SEGMENT not in fetched:
            (directory / name).rename(directory / "__consumer_offsets-0" / "00000000000000000005.log")
        fetched.append(name)
        real(source, directory, name, size, target)

    monkeypatch.setattr(HostFiles, "fetch", fetch)
    return fetched


def test_a_folder_whose_segment_is_removed_is_copied_again(
    host: LocalHost, removed_at_first: list[str], tmp_path: Path
) -> None:
    copied = copy_of(files_on(host), tmp_path / "far")
    assert "__consumer_offsets-0/00000000000000000005.log" in copied
    assert SEGMENT not in copied
    assert sum(name.startswith("__cluster_metadata-0/") and name.endswith(".log") for name in removed_at_first) == 1


def test_a_folder_that_changes_all_the_time_is_given_up(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fetch(source: HostFiles, directory: Path, name: str, size: int, target: Path) -> None:
        raise FileNotFoundError(name)

    monkeypatch.setattr(HostFiles, "fetch", fetch)
    with pytest.raises(TransientError, match="changed during each of 5 attempts"):
        copy_of(files_on(host), tmp_path / "far")


def test_a_copy_ends_at_its_time_limit(host: LocalHost, tmp_path: Path) -> None:
    clock = Clock()
    files = files_on(host, clock)
    clock.now = 61.0
    with pytest.raises(RefusedError, match=r"kafka-1 were not copied within 1 min.*KAFKA_ROLLOUT_REHEARSE_MINUTES"):
        copy_of(files, tmp_path / "far")


@pytest.mark.parametrize(("growth", "is_refused"), [(100, True), (101, False)])
def test_a_file_can_be_longer_than_it_was_listed_up_to_a_limit(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, growth: int, is_refused: bool
) -> None:
    monkeypatch.setattr("kafka_rollout.nodes.runtimes.hosts.commands.GROWTH", growth)
    (host.data / SEGMENT).write_bytes(b"x" * 108)
    files, target = files_on(host), tmp_path / "copy"
    if not is_refused:
        files.source.fetch(host.data, SEGMENT, 7, target)
        assert target.read_bytes() == b"x" * 108
        return
    with pytest.raises(RefusedError, match=r"was listed with 7 B, and the host sent more than 107 B"):
        files.source.fetch(host.data, SEGMENT, 7, target)
    assert target.read_bytes() == b"", "nothing above the limit is written"


def test_the_files_of_all_nodes_count_for_one_limit(host: LocalHost, tmp_path: Path) -> None:
    _, size = files_on(host).size()
    copy_of(files_on(host, most=size), tmp_path / "whole")
    with pytest.raises(RefusedError, match=r"The hosts sent more than the limit of .*KAFKA_ROLLOUT_REHEARSE_GIB"):
        copy_of(files_on(host, most=size - 1), tmp_path / "cut")
    files = files_on(host, most=2 * size - 1)
    copy_of(files, tmp_path / "first")
    with pytest.raises(RefusedError, match="more than the limit"):
        copy_of(replace(files), tmp_path / "second")


def test_a_missing_right_is_named_with_its_line(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = LocalHost.run

    def run(self: LocalHost, name: str, command: Any, **options: Any) -> Done:
        if "partition.metadata" in command:
            return Done(1, b"", "sudo: a password is required")
        return real(self, name, command, **options)

    monkeypatch.setattr(LocalHost, "run", run)
    with pytest.raises(RefusedError, match="cannot read the topic ids that a rehearsal copies") as refused:
        copy_of(files_on(host), tmp_path / "far")
    assert "NOPASSWD: /usr/bin/find -L" in refused.value.remedy


def test_nothing_is_read_below_the_folders_of_partitions(host: LocalHost, tmp_path: Path) -> None:
    """Other folders can be mounts, with files without an end, or pipes."""
    for folder in ("snapshots/orders-7", "orders-0/deep"):
        (host.data / folder).mkdir(parents=True)
        (host.data / folder / "partition.metadata").write_text("version: 0\ntopic_id: Zk9xQ2h4T3JkZXJz\n")
    (host.data / "pipe-0").mkdir()
    os.mkfifo(host.data / "pipe-0/partition.metadata")
    right = RehearsalRights("kafka", str(host.data)).topic_ids
    found = host.run("kafka-1", right.command()).out.splitlines()
    assert {Path(line.partition(":")[0]).parent.parent for line in found} == {host.data}


def test_a_partition_whose_folder_is_a_link_is_copied(host: LocalHost, tmp_path: Path) -> None:
    moved = tmp_path / "other disk"
    for name in ("orders-0", "__consumer_offsets-0"):
        moved.mkdir(exist_ok=True)
        (host.data / name).rename(moved / name)
        (host.data / name).symlink_to(moved / name)
    copied = copy_of(files_on(host), tmp_path / "far")
    here = node_files(host.node, {"log.dirs": str(host.data)})
    assert copied == copy_of(here, tmp_path / "near")
    assert any(name.startswith("__consumer_offsets-0/") and name.endswith(".log") for name in copied)
    assert copied["orders-0/partition.metadata"]


def test_the_directory_of_another_node_is_refused(host: LocalHost) -> None:
    files = files_on(host)
    with pytest.raises(UserError, match="belongs to node 1, not to"):
        replace(files, node=replace(host.node, node_id=2)).cluster_id()
