"""What a package manager has recorded, with the real dpkg of this machine, and with what rpm 4.18 printed."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from kafka_rollout.model.package_managers import WantedPackage, wanted_packages
from kafka_rollout.model.topology import NodeSpec, PackageSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.nodes.runtimes.hosts.package_states import find_unfinished, why_not_installed
from kafka_rollout.nodes.runtimes.hosts.shells import Done

APT = ("/usr/bin/apt-get", "install", "--yes", "kafka={version}-1", "default-jre-headless")
DNF = ("/usr/bin/dnf", "install", "-y", "kafka-{version}-1")
ENTRY = "Package: {}\nStatus: {}\nVersion: {}\nArchitecture: all\nMaintainer: k <k@example.com>\nDescription: x\n\n"


@dataclass
class Machine:
    """A dpkg of its own."""

    home: Path

    def __post_init__(self) -> None:
        (self.home / "info").mkdir()
        self.has("kafka", "hold ok installed", "4.3.1-1")
        self.has("default-jre-headless", "install ok installed", "2:1.17-74")
        (self.home / "info/kafka.list").write_text("/.\n")
        (self.home / "info/default-jre-headless.list").write_text("/.\n")

    def has(self, name: str, state: str, version: str) -> None:
        with (self.home / "status").open("a") as status:
            status.write(ENTRY.format(name, state, version))

    def run(self, node: object, command: str | Sequence[str], *, within_s: float = 30) -> Done:
        line = command if isinstance(command, str) else shlex.join(command)
        env = {**os.environ, "DPKG_ADMINDIR": str(self.home), "LC_ALL": "C"}
        ran = subprocess.run(["sh", "-c", line], capture_output=True, env=env, check=False)
        return Done(ran.returncode, ran.stdout, ran.stderr.decode())


@dataclass
class Printed:
    """A host that prints one text for each program."""

    texts: dict[str, str]

    def run(self, node: object, command: Sequence[str], *, within_s: float = 30) -> Done:
        text = self.texts.get(" ".join(command[:2]), "")
        return Done(0 if text else 1, text.encode(), "")


def node_of(*install: str) -> NodeSpec:
    package = PackageSpec(install=install, check=())
    service = ServiceSpec(host="kafka-1", package=package)
    return NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=service)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def commands_of(machine: Machine | Printed) -> HostCommands:
    return cast(HostCommands, machine)


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("install ok half-configured", "half-configured"),
        ("install ok unpacked", "unpacked, but not configured"),
        ("install reinstreq half-installed", "must be installed again"),
        ("hold ok half-installed", "half-installed"),
        ("install ok installed", ""),
        ("deinstall ok config-files", ""),
        ("purge ok not-installed", ""),
    ],
)
def test_each_state_that_dpkg_leaves_is_read(machine: Machine, state: str, shown: str) -> None:
    machine.has("linux-image-6.1", state, "6.1.90-1")
    found = find_unfinished(commands_of(machine), node_of(*APT))
    assert found == ((f"linux-image-6.1 ({shown})",) if shown else ())


@pytest.mark.parametrize(("runs_for", "found"), [(3, ()), (99, ("agent (unpacked, but not configured)",))])
def test_what_a_running_dpkg_has_not_finished_yet_is_waited_for(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, runs_for: int, found: tuple[str, ...]
) -> None:
    """Without the waits: dpkg has unpacked a package, and configures it while it is looked for."""
    machine.has("agent", "install ok unpacked", "1")
    programs = machine.home / "bin"
    programs.mkdir()
    (programs / "sleep").write_text("#!/bin/sh\n")
    (programs / "pgrep").write_text(
        f"#!/bin/sh\necho >> {programs}/asked; test $(wc -l < {programs}/asked) -lt {runs_for} || "
        f"sed -i 's/ok unpacked/ok installed/' {machine.home}/status\n"
    )
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    assert find_unfinished(commands_of(machine), node_of(*APT)) == found
    assert len((programs / "asked").read_text()) == min(runs_for, 11)


def test_all_packages_of_an_installation_must_be_installed_as_it_names_them(machine: Machine) -> None:
    def why(version: str, *install: str) -> str:
        return why_not_installed(commands_of(machine), node_of(*(install or APT)), version)

    assert why("4.3.1") == ""
    assert why("3.9.1") == "kafka has version 4.3.1-1."
    assert why("4.3.1", *APT, "kafka-common={version}-1") == "No package kafka-common is installed."
    machine.has("kafka-common", "install ok half-configured", "4.3.1-1")
    assert why("4.3.1", *APT, "kafka-common={version}-1") == "kafka-common 4.3.1-1 is half-configured."


def test_a_file_of_a_package_that_is_missing_or_changed_is_no_whole_installation(machine: Machine) -> None:
    jars = machine.home / "jars"
    jars.mkdir()
    (jars / "a.jar").write_text("x")
    (machine.home / "info/kafka.list").write_text(f"/.\n{jars}\n{jars}/a.jar\n")
    (machine.home / "info/kafka.md5sums").write_text(
        f"9dd4e461268c8034f5c8564e155c67a6  {jars.relative_to('/')}/a.jar\n"
    )
    node = node_of(*APT)
    service = ServiceSpec(host="kafka-1", package=PackageSpec(install=APT, check=(), jars=str(jars)))
    node = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=service)
    assert why_not_installed(commands_of(machine), node, "4.3.1") == ""
    (jars / "a.jar").write_text("other")
    for _ in range(2):
        assert why_not_installed(commands_of(machine), node, "4.3.1").startswith(f"{jars}/a.jar is missing or not that")
        (jars / "a.jar").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("installed", "wanted", "is_wanted"),
    [
        ("4.3.1-1.noarch", "kafka-{version}-1", True),
        ("4.3.1-1.noarch", "kafka-{version}", True),
        ("4.3.1-1.noarch", "kafka-{version}-1.noarch", True),
        ("1:4.3.1-1.noarch", "kafka-{version}-1", True),
        ("1:4.3.1-1.noarch", "kafka-1:{version}-1", True),
        ("4.3.1-2.el9.noarch", "kafka-{version}-*", True),
        ("4.3.1-2.noarch", "kafka-{version}-1", False),
        ("4.3.10-1.noarch", "kafka-{version}", False),
    ],
)
def test_a_version_is_read_as_dnf_reads_it(installed: str, wanted: str, is_wanted: bool) -> None:
    host = Printed({"rpm --query": f"ii |{installed}\n"})
    why = why_not_installed(commands_of(host), node_of(*DNF[:-1], wanted), "4.3.1")
    assert why == ("" if is_wanted else f"kafka has version {installed}.")
    both = Printed({"rpm --query": "ii |3.9.1-1.noarch\nii |4.3.1-1.noarch\n"})
    assert why_not_installed(commands_of(both), node_of(*DNF), "4.3.1") == "More than one package kafka is installed."
    assert find_unfinished(commands_of(host), node_of(*DNF)) == ()


def test_what_an_installation_wants_is_read_from_its_words() -> None:
    words = ("/usr/bin/apt-get", "install", "kafka={version}-1", "jre/stable", "tools", "/srv/kafka_{version}.deb")
    assert wanted_packages(words, "4.3.1") == (
        WantedPackage("kafka", "4.3.1-1"),
        WantedPackage("jre", "*"),
        WantedPackage("tools", "*"),
        WantedPackage("", "*", "/srv/kafka_4.3.1.deb"),
    )
    assert wanted_packages(("/usr/local/bin/install", "{version}"), "4.3.1") == ()
