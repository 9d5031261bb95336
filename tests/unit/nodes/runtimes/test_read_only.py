"""A file system that is mounted read-only is found before the stop, and no repetition is asked for."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.findings import BLOCKER, Finding
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, PackageSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, unusable
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.nodes.runtimes.hosts.unit_state import look
from kafka_rollout.planning.findings.hosts import host_problems
from kafka_rollout.releases.facts import Release
from tests.unit.builders import catalogue, host_state

R431 = Release(4, 3, 1)


@dataclass
class Shell:
    """`read_only`: a folder for which findmnt reports it. `findmnt`: what it does otherwise."""

    read_only: Path
    findmnt: str = ""

    def run(self, node: object, command: str) -> Done:
        of_folder = f"case $5 in {self.read_only}) echo ro,relatime;; *) echo rw,errors=ro-x;; esac"
        findmnt = f"findmnt() {{ {self.findmnt or of_folder}; }}; "
        ran = subprocess.run(["sh", "-c", findmnt + command], capture_output=True, check=False, timeout=20)
        return Done(ran.returncode, ran.stdout, ran.stderr.decode())


INSTALL = ("/usr/bin/dnf", "install", "-y", "kafka-{version}")


@pytest.mark.parametrize(
    ("which", "changes", "is_asked"),
    [
        ("link", {}, True),
        ("etc", {}, True),
        ("etc", {"managed_elsewhere": True}, False),
        ("releases", {"archive": "/srv/kafka_2.13-{release}.tgz"}, True),
        ("releases", {}, False),  # such as a file system of the network, with the releases of all hosts
        ("jars", {"package": True}, True),
        ("link", {"package": True}, False),
    ],
)
def test_each_folder_in_which_a_run_writes_is_asked(
    tmp_path: Path, which: str, changes: dict[str, object], is_asked: bool
) -> None:
    service = ServiceSpec(
        host="kafka-1",
        symlink=f"{tmp_path}/link/kafka",
        installation=f"{tmp_path}/releases/kafka-{{release}}",
        configuration_file=f"{tmp_path}/etc/server.properties",
    )
    package = (
        {"package": PackageSpec(install=INSTALL, check=(), jars=f"{tmp_path}/jars")} if "package" in changes else {}
    )
    service = replace(service, **{**changes, **package})  # type: ignore[arg-type]
    node = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=service)
    found = look(cast(HostCommands, Shell(tmp_path / which)), node)
    assert [line for line in found if line.startswith("ro ")] == ([f"ro {tmp_path}/{which}"] if is_asked else [])
    silent = look(cast(HostCommands, Shell(tmp_path / which, findmnt="return 127")), node)
    assert not [line for line in silent if line.startswith(("ro ", "rw "))]


def _found(service: ServiceSpec, *read_only: str, overrides: Any = None, **changes: Any) -> Finding:
    node = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=service)
    host = host_state(name="kafka-1", read_only=read_only, **changes)
    cluster = ClusterSpec(name="far", runtime="ssh_service", nodes=(node,), release_overrides=overrides or {})
    (found,) = (one for one in host_problems(cluster, catalogue(), {1: host}, (R431,)) if one.code == "HOST-READ-ONLY")
    return found


def test_a_read_only_folder_blocks() -> None:
    found = _found(ServiceSpec(host="kafka-1"), "/opt", "/etc/kafka")
    assert found.severity.value == "blocker"
    assert "of /opt and /etc/kafka on host kafka-1 is mounted read-only" in found.sentence


def test_an_installation_can_mount_the_folder_of_its_package_read_write_itself() -> None:
    jars = "/usr/share/java/kafka"
    service = ServiceSpec(host="kafka-1", package=PackageSpec(install=INSTALL, check=(), jars=jars))
    found = _found(service, jars)
    assert found.severity.value == "warning"
    assert "unless the installation mounts it read-write" in found.sentence
    assert _found(service, jars, "/etc/kafka").severity.value == "blocker"


def test_a_restart_that_writes_nothing_is_not_blocked() -> None:
    found = _found(ServiceSpec(host="kafka-1"), "/opt", installed=R431)
    assert found.severity.value == "warning"
    assert "is on 4.3.1 already, and a restart writes nothing there" in found.sentence
    assert _found(ServiceSpec(host="kafka-1"), "/opt", installed=Release(4, 2, 1)).severity.value == "blocker"
    of_file = {"4.3.1": {"num.io.threads": "9"}}
    assert _found(ServiceSpec(host="kafka-1"), "/etc/kafka", installed=R431, overrides=of_file).severity is BLOCKER


@pytest.mark.parametrize("problem", ["Read-only file system", "No space left on device", "Disk quota exceeded"])
def test_a_file_system_that_takes_nothing_is_not_repeated(problem: str) -> None:
    error = unusable(Done(1, b"", f"ln: failed to create symbolic link '/opt/kafka': {problem}"), "x", remedy="y")
    assert isinstance(error, RefusedError)
    assert problem in error.remedy
    assert isinstance(unusable(Done(1, b"", "ln: Input/output error"), "x", remedy="y"), TransientError)
