"""A file system that is mounted read-only is found before the stop, and no repetition is asked for."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.findings import BLOCKER, WARNING, Finding
from kafka_rollout.formats.files import server_properties
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, PackageSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, unusable
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.nodes.runtimes.hosts.unit_state import look
from kafka_rollout.planning.findings.hosts import host_problems, path_findings
from kafka_rollout.releases.facts import Release
from tests.fakes.host import FakeHost
from tests.unit.builders import catalogue, host_state
from tests.unit.nodes.runtimes.test_service import node_of, runtime_on


@dataclass
class Shell:
    """`read_only`: a folder for which findmnt reports it. `findmnt`: what it does otherwise."""

    read_only: Path
    findmnt: str = ""

    def run(self, node: object, command: str) -> Done:
        of_folder = f"case $5 in {self.read_only}) echo ro,relatime;; *) echo rw,errors=ro-x;; esac"
        findmnt = f"findmnt() {{ {self.findmnt or of_folder}; }}; "
        home, line = self.read_only.parent, findmnt + command
        ran = subprocess.run(["sh", "-c", line], cwd=home, capture_output=True, check=False, timeout=20)
        return Done(ran.returncode, ran.stdout, ran.stderr.decode())


R391, R421, R431 = Release(3, 9, 1), Release(4, 2, 1), Release(4, 3, 1)
BLOCK = server_properties.set_properties(b"", str(R421), {"num.io.threads": "9"}).decode()
JARS = "/usr/share/java/kafka"
INSTALL = ("/usr/bin/dnf", "install", "-y", "kafka-{version}")
PACKAGE = PackageSpec(install=INSTALL, check=(), jars=JARS)


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


LINES = {"num.io.threads": "9"}
ETC, OPT = "/etc/kafka", "/opt"


@pytest.mark.parametrize(
    ("kind", "releases", "file", "lines", "service", "written"),
    [
        ("a restart with lines for its release", [R421], "", LINES, {}, []),
        ("an upgrade", [R431], "", {}, {}, [OPT]),
        ("an upgrade of the file", [R431], "", LINES, {}, [OPT, ETC]),
        ("an upgrade of a file that has its lines", [R431], "num.io.threads=9\n", LINES, {}, [OPT]),
        ("an upgrade of a file of other software", [R431], "", LINES, {"managed_elsewhere": True}, [OPT]),
        ("a downgrade that keeps lines of an upgrade", [R391], BLOCK, {}, {}, [OPT]),
        ("a node that a killed call has switched", [R421], "", {}, {}, []),
        ("a node that a killed call has switched alone", [R421], "", LINES, {}, [ETC]),
        ("an archive that is there", [R431], "", {}, {"archive": "/srv/{release}.tgz"}, [OPT]),
        ("an unknown run", [], "", {}, {}, [OPT, ETC]),
    ],
)
def test_a_run_writes_where_it_switches_unpacks_or_changes_the_file(  # noqa: PLR0917
    kind: str, releases: list[Release], file: str, lines: dict[str, str], service: dict[str, Any], written: list[str]
) -> None:
    node = node_of(**service)
    host = FakeHost(mounted="ro", releases={"3.9.1", "4.2.1", "4.3.1"})
    host.files["/etc/kafka/server.properties"] += file
    runtime = runtime_on(host)
    runtime.cluster = replace(runtime.cluster, release_overrides={str(one): lines for one in (R391, R421, R431)})
    seen = runtime.host(node, releases, restarts="restart" in kind)
    assert list(seen.written) == written
    assert {*seen.read_only} >= {OPT}


@pytest.mark.parametrize(
    ("releases", "restarts", "written"),
    [([R431], False, [JARS, ETC]), ([R421], False, [JARS, ETC]), ([R421], True, [])],
    ids=["an upgrade", "an installation that is repeated", "a restart"],
)
def test_a_package_is_installed_in_each_run_but_a_restart(
    releases: list[Release], restarts: bool, written: list[str]
) -> None:
    node = replace(node_of(), service=ServiceSpec(host="kafka-1", package=PACKAGE))
    seen = runtime_on(FakeHost(package=["4.2.1"], mounted="ro")).host(node, releases, restarts=restarts)
    assert list(seen.written) == written


def test_what_a_run_does_not_write_need_not_be_known() -> None:
    host = FakeHost(mounted="", free="")
    assert runtime_on(host).host(node_of(), [R421], restarts=True).unknown == ()
    assert runtime_on(host).host(node_of(), [R431]).unknown == (
        "whether the file system of /opt is mounted read-only (`findmnt`)",
    )


def _found(service: ServiceSpec, *read_only: str, written: Sequence[str]) -> Finding:
    node = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=service)
    host = host_state(name="kafka-1", read_only=read_only, written=tuple(written))
    cluster = ClusterSpec(name="far", runtime="ssh_service", nodes=(node,))
    (found,) = host_problems(cluster, catalogue(), {1: host}, (R431,))
    assert found.code == "HOST-READ-ONLY"
    return found


def test_a_read_only_folder_in_which_the_run_writes_blocks() -> None:
    found = _found(ServiceSpec(host="kafka-1"), OPT, ETC, "/mnt", written=(OPT, ETC))
    assert found.severity is BLOCKER
    assert "of /opt and /etc/kafka on host kafka-1 is mounted read-only" in found.sentence


def test_an_installation_can_mount_the_folder_of_its_package_read_write_itself() -> None:
    service = ServiceSpec(host="kafka-1", package=PACKAGE)
    found = _found(service, JARS, written=(JARS, ETC))
    assert found.severity is WARNING
    assert "unless the installation mounts it read-write" in found.sentence
    assert _found(service, JARS, ETC, written=(JARS, ETC)).severity is BLOCKER


def test_a_folder_in_which_this_run_does_not_write_is_a_warning() -> None:
    found = _found(ServiceSpec(host="kafka-1"), OPT, ETC, written=(OPT,))
    assert found.severity is BLOCKER
    assert "of /opt on host" in found.sentence
    found = _found(ServiceSpec(host="kafka-1"), ETC, written=(OPT,))
    assert found.severity is WARNING
    assert "This run writes nothing there." in found.sentence


@pytest.mark.parametrize("problem", ["Read-only file system", "No space left on device", "Disk quota exceeded"])
def test_a_file_system_that_takes_nothing_is_not_repeated(problem: str) -> None:
    error = unusable(Done(1, b"", f"ln: failed to create symbolic link '/opt/kafka': {problem}"), "x", remedy="y")
    assert isinstance(error, RefusedError)
    assert problem in error.remedy
    assert isinstance(unusable(Done(1, b"", "ln: Input/output error"), "x", remedy="y"), TransientError)


# What lsattr 1.47 prints of a file after `chattr +i`; `mv` to it fails then, and with EBUSY to a mount point.
@pytest.mark.parametrize(
    ("host", "says"),
    [
        (FakeHost(), ""),
        (FakeHost(flags_error="Operation not supported"), ""),
        (FakeHost(flags_error="Inappropriate ioctl for device"), ""),
        (FakeHost(flags="i"), "/etc/kafka/server.properties has the attribute i (immutable)"),
        (FakeHost(flags="a"), "/etc/kafka/server.properties has the attribute a (append only)"),
        (FakeHost(has_mount=True), "/etc/kafka/server.properties is a mount point"),
    ],
)
def test_a_configuration_that_cannot_be_renamed_is_refused_before_the_stop(host: FakeHost, says: str) -> None:
    state = runtime_on(host).host(node_of(), [])
    found = [one for one in path_findings(node_of(), state) if one.code == "CONFIGURATION-FIXED"]
    assert [one.severity.value for one in found] == (["blocker"] if says else [])
    assert all(says in one.sentence and "chattr -i" in one.remedy for one in found)
    assert not any("lsattr" in one for one in state.unknown)


def test_attributes_that_cannot_be_read_are_unknown() -> None:
    state = runtime_on(FakeHost(flags_error="Permission denied")).host(node_of(), [])
    assert "the attributes of /etc/kafka/server.properties and of its folder (`lsattr`)" in state.unknown
    restarted = runtime_on(FakeHost(flags="i")).host(node_of(), [], restarts=True)
    assert restarted.fixed == (), "a restart writes nothing"
