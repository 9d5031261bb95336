"""The Java of the next start, which need not be that of the process: a real shell with folders of Java."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from kafka_rollout.base.errors import NotObservableError
from kafka_rollout.model.topology import NodeSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.nodes.runtimes.hosts.rights import HostRight
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.nodes.runtimes.hosts.unit_state import find_java

NODE = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=ServiceSpec(host="h1"))


@dataclass
class Machine:
    """`exe`: /proc/PID/exe of the process. `environment`: lines of the unit's environment, as ARGUMENTS prints them."""

    home: Path
    exe: str = ""
    environment: list[str] = field(default_factory=list)

    def java(self, name: str) -> str:
        path = self.home / name / "bin" / "java"
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return str(path)

    def run(self, node: object, command: str) -> Done:
        if "systemctl show --property=Environment" in command:
            return Done(0, "\n".join(["arg java", *self.environment, ""]).encode(), "")
        ran = subprocess.run(["sh", "-c", command], capture_output=True, check=False, timeout=20)
        return Done(ran.returncode, ran.stdout, ran.stderr.decode())

    def act(self, node: object, right: HostRight, **values: object) -> Done:
        return Done(0, f"{self.exe}\n".encode(), "")

    def find(self, pid: int | None = 50) -> str:
        return find_java(cast(HostCommands, self), NODE, pid)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def in_path(machine: Machine, java: str) -> None:
    """`java` of the unit's PATH is a link, as alternatives make it."""
    (machine.home / "path").mkdir()
    (machine.home / "path" / "java").symlink_to(java)
    machine.environment.append(f"all PATH=/nonexistent:{machine.home}/path")


def test_the_java_of_the_process_counts_without_a_java_home(machine: Machine) -> None:
    machine.exe = machine.java("jdk-17.0.16")
    in_path(machine, machine.java("jdk-11"))
    assert machine.find() == machine.exe


def test_a_java_that_an_update_has_removed_is_that_of_the_units_path(machine: Machine) -> None:
    machine.exe = f"{machine.home}/jdk-17.0.16/bin/java (deleted)"
    new = machine.java("jdk-17.0.17")
    in_path(machine, new)
    assert machine.find() == new


def test_a_java_that_was_replaced_at_its_place_is_the_new_one(machine: Machine) -> None:
    java = machine.java("jdk-17")
    machine.exe = f"{java} (deleted)"
    in_path(machine, machine.java("jdk-11"))
    assert machine.find() == java


@pytest.mark.parametrize("unread", [False, True])
def test_a_removed_java_without_a_known_successor_names_the_restart(machine: Machine, unread: bool) -> None:
    machine.exe = f"{machine.home}/jdk-17.0.16/bin/java (deleted)"
    machine.environment = [f"all PATH={machine.home}/none"]
    if unread:
        machine.environment = []
        in_path(machine, machine.java("jdk-17.0.17"))
        machine.environment += ["started 2000", "unread 1000 /etc/default/kafka"]  # it can have a JAVA_HOME
    with pytest.raises(NotObservableError, match=r"was removed from host h1 .*jdk-17.0.16/bin/java\)") as raised:
        machine.find()
    assert "kafka-rollout restart" in raised.value.remedy


@pytest.mark.parametrize("pid", [50, None])
def test_the_java_home_of_the_unit_counts_more_than_the_process(machine: Machine, pid: int | None) -> None:
    machine.exe = machine.java("jdk-17")
    in_path(machine, machine.exe)
    (machine.home / "jdk").symlink_to(Path(machine.java("jdk-11")).parents[1])
    machine.environment.append(f"env JAVA_HOME={machine.home}/jdk/")
    assert machine.find(pid) == f"{machine.home}/jdk-11/bin/java"
    machine.environment[-1:] = [f"set JAVA_HOME={machine.home}/none", "end /etc/default/kafka"]
    with pytest.raises(NotObservableError, match=r"JAVA_HOME of kafka.service on host h1 is .*/none, where"):
        machine.find(pid)


def test_a_stopped_node_has_the_java_of_the_units_path(machine: Machine) -> None:
    java = machine.java("jdk-17")
    in_path(machine, java)
    assert machine.find(None) == java
