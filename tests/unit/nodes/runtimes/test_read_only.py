"""A file system that is mounted read-only is found before the stop, and no repetition is asked for."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.model.host_state import HostState
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, unusable
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.nodes.runtimes.hosts.unit_state import look
from kafka_rollout.planning.findings.hosts import host_problems
from kafka_rollout.releases.facts import Release
from tests.unit.builders import catalogue

R431 = Release(4, 3, 1)


@dataclass
class Shell:
    """`read_only`: a folder for which findmnt reports it."""

    read_only: Path

    def run(self, node: object, command: str) -> Done:
        findmnt = f"findmnt() {{ case $5 in {self.read_only}) echo ro,relatime;; *) echo rw,errors=ro-x;; esac; }}; "
        ran = subprocess.run(["sh", "-c", findmnt + command], capture_output=True, check=False, timeout=20)
        return Done(ran.returncode, ran.stdout, ran.stderr.decode())


@pytest.mark.parametrize("which", ["link", "releases", "etc"])
def test_each_folder_in_which_a_run_writes_is_asked(tmp_path: Path, which: str) -> None:
    service = ServiceSpec(
        host="kafka-1",
        symlink=f"{tmp_path}/link/kafka",
        installation=f"{tmp_path}/releases/kafka-{{release}}",
        configuration_file=f"{tmp_path}/etc/server.properties",
    )
    node = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=service)
    found = look(cast(HostCommands, Shell(tmp_path / which)), node)
    assert [line for line in found if line.startswith("ro ")] == [f"ro {tmp_path}/{which}"]


def test_a_read_only_folder_blocks() -> None:
    node = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=ServiceSpec(host="kafka-1"))
    host = HostState(
        name="kafka-1",
        unit="kafka.service",
        symlink="/opt/kafka",
        folders={R431: "/opt/kafka_2.13-4.3.1"},
        releases=frozenset({R431}),
        symlink_can_switch=True,
        stop_timeout_s=300.0,
        read_only=("/opt", "/etc/kafka"),
    )
    cluster = ClusterSpec(name="far", runtime="ssh_service", nodes=(node,))
    (found,) = (one for one in host_problems(cluster, catalogue(), {1: host}, (R431,)) if one.code == "HOST-READ-ONLY")
    assert found.severity.value == "blocker"
    assert "of /opt and /etc/kafka on host kafka-1 is mounted read-only" in found.sentence


@pytest.mark.parametrize("problem", ["Read-only file system", "No space left on device", "Disk quota exceeded"])
def test_a_file_system_that_takes_nothing_is_not_repeated(problem: str) -> None:
    error = unusable(Done(1, b"", f"ln: failed to create symbolic link '/opt/kafka': {problem}"), "x", remedy="y")
    assert isinstance(error, RefusedError)
    assert problem in error.remedy
    assert isinstance(unusable(Done(1, b"", "ln: Input/output error"), "x", remedy="y"), TransientError)
