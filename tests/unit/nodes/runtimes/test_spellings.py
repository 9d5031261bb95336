"""A directory has one spelling in the printed sudoers file, the check of the rights, and the commands of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.base.host_paths import one_spelling
from kafka_rollout.clusters.sudoers import directories_of, list_sudoers_files, same_directories
from kafka_rollout.model.log_directories import log_directories, metadata_directory
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostDirectory
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.rehearsal.machine.node_files import CopyLimit, HostFiles, node_files
from kafka_rollout.releases.facts import Release
from tests.fakes.host import CONFIGURATION, FakeHost
from tests.fakes.local_host import LocalHost, permitted
from tests.unit.nodes.runtimes.test_service import NODE, runtime_on
from tests.unit.rehearsal.machine.test_node_files import make_node

SPELLINGS = ["{}/data", "{}//data", "{}/./data", "{}/data/", "{}/.//data/."]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_printed_file_permits_every_command_for_a_directory(tmp_path: Path, spelling: str) -> None:
    host = LocalHost(tmp_path / "host")
    make_node(tmp_path / "made")
    (tmp_path / "made" / "node-1").rename(host.data)
    (host.home / "server.properties").write_text(f"log.dirs={spelling.format(host.home)}\n")
    runtime = SshServiceRuntime(ClusterSpec(name="far", runtime="ssh_service", nodes=(host.node,)), host, Release.parse)
    config = runtime.config(host.node)
    directories = directories_of(config)
    assert directories is not None
    (file,) = list_sudoers_files(runtime.cluster, "rollout", {1: directories})
    directory = HostDirectory(runtime, host.node, str(runtime.metadata_log_dir(host.node)))
    assert directory.entries()
    assert directory.free_bytes()
    directory.change((directory.rights.copy, {"file": "meta.properties", "to": "bootstrap.checkpoint"}))
    assert runtime.directory_formats(host.node, config)
    limit = CopyLimit(most=1 << 30, within_s=60.0, monotonic=lambda: 0.0)
    files = node_files(host.node, config, source=HostFiles(commands=runtime, node=host.node, limit=limit))
    assert files.copy(tmp_path / "copy", lambda number: None)
    assert [words for words in host.commands() if not permitted(file, words)] == []
    (given,) = list_sudoers_files(
        runtime.cluster, "rollout", same_directories(runtime.cluster, [spelling.format(host.home)], None)
    )
    assert given == file


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_missing_lines_are_lines_of_the_printed_file(spelling: str) -> None:
    host = FakeHost(refused={"find", "df", "cp"})
    host.files[CONFIGURATION] = f"node.id=1\nlog.dirs={spelling.format('/srv')}\n"
    runtime = runtime_on(host)
    directories = directories_of(runtime.config(NODE))
    assert directories is not None
    (file,) = list_sudoers_files(runtime.cluster, "rollout", {1: directories})
    denied = runtime.host(NODE, [Release(4, 3, 1)]).denied
    assert len(denied) > 4
    assert [line for line in denied if f"rollout ALL={line}\n" not in file] == []
    assert "/srv/data/meta.properties" in file


def test_directories_of_one_node_are_told_apart_by_their_place() -> None:
    config = {"log.dirs": "/a//b/, /a/./b,/c", "metadata.log.dir": "/c/"}
    assert log_directories(config) == ("/a/b", "/c")
    assert metadata_directory(config) == "/c"


@pytest.mark.parametrize(
    ("path", "spelling"),
    [
        ("/", "/"),
        ("//a", "/a"),
        ("/a/../b", "/a/../b"),
        ("./a/", "a"),
        (".", "."),
        ("", ""),
        ("/a/.b/..c", "/a/.b/..c"),
    ],
)
def test_a_spelling_keeps_its_place(path: str, spelling: str) -> None:
    assert one_spelling(path) == spelling
