"""The records in the home folder of the SSH user: hosts can share it, and it can be closed to this user."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.records import TRY_RECORDS, find_full, read_try
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.releases.facts import Release
from tests.fakes.clock import FakeClock
from tests.fakes.host import CONFIGURATION, FakeHost

RELEASE = Release(4, 2, 1)


def node(node_id: int) -> NodeSpec:
    service = ServiceSpec(host=f"kafka-{node_id}")
    return NodeSpec(node_id=node_id, name=f"kafka-{node_id}", roles=frozenset({Role.BROKER}), service=service)


def runtime_on(host: FakeHost, name: str = "far") -> SshServiceRuntime:
    clock = FakeClock()
    cluster = ClusterSpec(name=name, runtime="ssh_service", nodes=(node(1), node(2)))
    return SshServiceRuntime(cluster, host, Release.parse, sleep=clock.sleep, monotonic=clock.monotonic)


def test_nodes_of_hosts_with_one_home_have_records_of_their_own() -> None:
    host = FakeHost(files={CONFIGURATION: ""})
    runtime = runtime_on(host)
    runtime.start(node(2))
    assert [start.pid for start in runtime.starts(node(2))] == [50]
    assert runtime.starts(node(1)) == ()
    assert runtime_on(host, "near").starts(node(2)) == ()


DENIED = "mkdir: cannot create directory '.kafka-rollout': Permission denied"
FULL = "head: error writing 'standard output': {}"


def test_a_home_that_cannot_be_written_is_found_before_the_first_stop() -> None:
    host = FakeHost()
    assert runtime_on(host).host(node(1), [RELEASE]).unknown == ()
    host = replace(host, home_problem=DENIED)
    (unknown,) = runtime_on(host).host(node(1), [RELEASE]).unknown
    assert unknown == f"a home folder of the SSH user that it can write, for .kafka-rollout ({DENIED})"


@pytest.mark.parametrize("problem", ["No space left on device", "Disk quota exceeded"])
def test_a_home_that_is_full_is_found_by_writing_there_before_each_stop(problem: str) -> None:
    """Of a quota and of the number of files, `df` shows no missing byte."""
    host = FakeHost(home_problem=FULL.format(problem))
    state = runtime_on(host).host(node(1), [RELEASE])
    assert (state.home_full, state.home_bytes, state.unknown) == (problem, 900_000_000, ())
    for back in (RELEASE, None):  # also before a stop for a rollback
        with pytest.raises(RefusedError, match=rf"its home folder: .+{problem}\. The node was not stopped") as refused:
            runtime_on(host).bring(node(1), RELEASE, back=back)
        assert refused.value.remedy.startswith("Free space, files (`df --inodes`) or the quota of the home folder of")
    assert host.pid == 50


def test_the_stopped_node_is_installed_without_another_try() -> None:
    host = FakeHost(pid=0, active="inactive", sub="dead", home_problem=FULL.format("No space left on device"))
    runtime_on(host).install(node(1), Release(4, 3, 1))
    assert host.link == "/opt/kafka_2.13-4.3.1", "it records nothing without a change of the configuration"


@pytest.mark.parametrize(
    ("free_files", "few"),
    [
        ("     19   100000", {"/opt": 19}),
        ("     20   100000", {}),
        ("      0        0", {}),
        ("      -        -", {}),
    ],
)
def test_a_file_system_that_takes_few_more_files_is_found(free_files: str, few: dict[str, int]) -> None:
    state = runtime_on(FakeHost(free_files=free_files)).host(node(1), [Release(4, 3, 1)])
    assert state.few_files == few


def test_what_is_tried_is_what_a_shell_finds(tmp_path: Path) -> None:
    def try_there() -> list[str]:
        line = ["sh", "-c", TRY_RECORDS]
        return subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()

    assert read_try(try_there()) == ""
    folder = tmp_path / ".kafka-rollout"
    assert list(folder.iterdir()) == []
    folder.rmdir()
    folder.write_text("a file")
    assert "File exists" in (read_try(try_there()) or "")
    assert read_try(["records of a login"]) is None
    line = ["sh", "-c", f"ulimit -f 8; {TRY_RECORDS}"]
    folder.unlink()
    shown = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
    assert find_full(read_try(shown) or "")
    assert list(folder.iterdir()) == []


def test_the_claims_of_a_node_are_read_in_the_command_that_reads_its_unit() -> None:
    host, lines = FakeHost(), list[str]()
    host.on_command = lines.append
    runtime_on(host).process(node(1))
    reading = [line for line in lines if "claims" in line]
    assert len(reading) == 1
    assert reading[0].startswith("LC_ALL=C TZ=UTC systemctl show ")
    assert len(lines) == 2  # and the jars that the process has opened, once for each process
