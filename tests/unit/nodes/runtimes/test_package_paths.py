"""Files of a start that belong to the package of Kafka, with the real apt and dpkg of this machine."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest

from kafka_rollout.base.findings import Finding
from kafka_rollout.model.host_state import HostFacts, HostState, StartFileKind
from kafka_rollout.model.package_managers import print_files
from kafka_rollout.model.topology import NodeSpec, PackageSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.nodes.runtimes.hosts.package_paths import NamedPath, find_edited
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.nodes.runtimes.hosts.start_paths import read_start_paths
from kafka_rollout.planning.findings.start_paths import start_path_findings
from kafka_rollout.releases.facts import Release
from tools.testbed.packages import PACKAGE

OLD, NEW = Release(3, 9, 1), Release(4, 3, 1)
AGENT, JAAS, JAR = "kafka/agent-0.20.0.jar", "etc/jaas-3.9.1.conf", "kafka/kafka_2.13-{}.jar"
OLD_FILES = (AGENT, "kafka/agent.jar", JAAS, "lib/kafka.service", JAR.format("3.9.1"))
NEW_FILES = ("kafka/agent-1.5.0.jar", "kafka/agent.jar", "lib/kafka.service", JAR.format("4.3.1"))
SWITCHED, UNKNOWN = ("START-PATH-SWITCHED", "blocker"), ("START-PATH-UNKNOWN", "warning")


LISTS = "user/.kafka-rollout"
ENTRY = "Package: kafka\nVersion: {}-1\nArchitecture: all\nMaintainer: k <k@example.com>\nDescription: Kafka\n"


@dataclass
class Machine:
    """An apt and a dpkg of its own, which know the files below `home`: kafka 3.9.1 is installed, 4.3.1 is offered."""

    home: Path

    def __post_init__(self) -> None:
        for name in (*OLD_FILES, "own/agent.jar"):
            self.write(name)
        for folder in ("lists/partial", "cache/archives/partial", "apt", "dpkg/info"):
            (self.home / folder).mkdir(parents=True)
        listed = "".join(f"{self.home}/{name}\n" for name in OLD_FILES)
        self.write("dpkg/info/kafka.list", f"/.\n{listed}/bin/env\n/lib/os-release\n")
        self.sums = ""
        for name in OLD_FILES:
            self.brings(name)
        for path in ("/bin/env", "/lib/os-release"):
            self.knows(path)
        self.write(
            "dpkg/status", ENTRY.format("3.9.1").replace("Architecture", "Status: install ok installed\nArchitecture")
        )
        for name in NEW_FILES:
            self.write(f"deb{self.home}/{name}")
        self.write("deb/lib/os-release")
        self.write("deb/DEBIAN/control", ENTRY.format("4.3.1"))
        (self.home / "repository").mkdir()
        self.write("apt/sources.list", f"deb [trusted=yes] file:{self.home}/repository ./\n")
        self.write(
            "apt.conf",
            f'Dir::Etc "{self.home}/apt";\nDir::State::status "{self.home}/dpkg/status";\nDir::State "{self.home}";\n'
            f'Dir::Cache "{self.home}/cache";\nDebug::NoLocking "1";\nAPT::Architecture "all";\n'
            'APT::Sandbox::User "root";\n',
        )
        self.unit = self.limits = self.file = ""
        self.temporary = self.home / "tmp"
        self.temporary.mkdir()
        self.offer()

    def offer(self, *, build: bool = True) -> None:
        """Put the package into the repository."""
        package = self.home / "repository/kafka_4.3.1-1_all.deb"
        if build:
            made = ["dpkg-deb", "-Znone", "--build", self.home / "deb", package]
            subprocess.run(made, check=True, capture_output=True)
        digest = hashlib.sha256(package.read_bytes()).hexdigest()
        index = f"Filename: ./{package.name}\nSize: {package.stat().st_size}\nSHA256: {digest}\n\n"
        self.write("repository/Packages", ENTRY.format("4.3.1") + index)
        assert self.run(None, "apt-get update --quiet").code == 0

    def write(self, name: str, text: str = "x") -> None:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def brings(self, name: str, text: str = "x") -> None:
        """Let the installed package have a file with a content."""
        self.write(name, text)
        self.knows(f"{self.home}/{name}")

    def knows(self, path: str) -> None:
        self.sums += f"{hashlib.md5(Path(path).read_bytes(), usedforsecurity=False).hexdigest()}  {path[1:]}\n"
        self.write("dpkg/info/kafka.md5sums", self.sums)

    @property
    def shell(self) -> Machine:
        return self

    def run(self, node: object, command: str | Sequence[str], *, text: str = "", within_s: float = 30) -> Done:
        line = command if isinstance(command, str) else " ".join(command)
        if "systemctl show" in line:
            files = f"FragmentPath={self.home}/lib/kafka.service\nDropInPaths={self.home}/own/drop-in.conf\n"
            return Done(0, f"{files}{self.unit}".encode(), "")
        if line.startswith("systemctl cat"):
            return Done(0, self.file.encode(), "")
        env = {
            **os.environ,
            "APT_CONFIG": f"{self.home}/apt.conf",
            "DPKG_ADMINDIR": f"{self.home}/dpkg",
            "LC_ALL": "C",
            "TMPDIR": str(self.temporary),
        }
        user = self.home / "user"
        user.mkdir(exist_ok=True)
        ran = subprocess.run(
            ["sh", "-c", self.limits + line], input=text.encode(), capture_output=True, env=env, cwd=user, check=False
        )
        return Done(ran.returncode, ran.stdout, ran.stderr.decode())

    def node(self, package: PackageSpec | None = None) -> NodeSpec:
        own = replace(package or PACKAGE, jars=f"{self.home}/kafka")
        service = ServiceSpec(host="kafka-1", package=own)
        return NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=service)

    def findings(
        self, *arguments: str, package: PackageSpec | None = None, release: Release | None = NEW
    ) -> list[Finding]:
        """Of a process with these arguments, in which HOME is the folder. `release`: None restarts."""
        node = self.node(package)
        told = tuple(one.replace("HOME", str(self.home)) for one in arguments)
        _, paths, problem = read_start_paths(
            cast(HostCommands, self),
            node,
            (release or OLD,),
            config={},
            environment=(),
            facts=HostFacts(arguments=told),
            kept=told,
        )
        host = HostState(
            name="kafka-1",
            unit="kafka.service",
            symlink="",
            folders={},
            releases=frozenset({OLD, NEW}),
            symlink_can_switch=True,
            stop_timeout_s=300.0,
            start_paths=paths,
            start_paths_problem=problem,
        )
        return list(start_path_findings(node, replace(host, installed=OLD), (release or OLD,)))


NODE = NodeSpec(
    node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=ServiceSpec(host="kafka-1", package=PACKAGE)
)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


OPTIONS = (
    f"-javaagent:HOME/{AGENT}=9404",
    f"-Djava.security.auth.login.config=HOME/{JAAS}",
    "-cp",
    f"HOME/{JAR.format('3.9.1')}",
    "kafka.Kafka",
    "/etc/kafka/server.properties",
)


def shown(found: Sequence[Finding]) -> list[tuple[str, str]]:
    return sorted((one.code, one.severity.value) for one in found)


def test_a_file_of_the_package_that_the_next_release_lacks_blocks_if_the_site_names_it(machine: Machine) -> None:
    machine.write(
        "own/drop-in.conf", f"[Service]\nEnvironment=KAFKA_OPTS={machine.home}/{AGENT} {machine.home}/{JAAS}\n"
    )
    found = machine.findings(*OPTIONS)
    assert shown(found) == [SWITCHED, SWITCHED]
    assert any(
        f"reads {machine.home}/{AGENT} (Java agent) at its start. This belongs to the package of Kafka on host "
        "kafka-1, and the package of 4.3.1 does not have it." in one.sentence
        for one in found
    )


def test_what_the_packages_of_both_releases_have_or_none_has_is_right(machine: Machine) -> None:
    machine.write("own/drop-in.conf", f"KAFKA_OPTS={machine.home}/kafka/agent.jar {machine.home}/own/agent.jar")
    assert machine.findings("-javaagent:HOME/kafka/agent.jar", "-javaagent:HOME/own/agent.jar") == []


def test_what_no_package_has_and_does_not_exist_is_missing_unless_the_next_package_brings_it(machine: Machine) -> None:
    agent = "-javaagent:HOME/own/gone.jar=9404:HOME/own/gone.yml"
    new = f"-javaagent:HOME/{NEW_FILES[0]}"

    def missing(option: str, release: Release | None) -> list[Finding]:
        return [one for one in machine.findings(option, release=release) if one.code == "START-PATH-MISSING"]

    for release in (NEW, None):
        found = missing(agent, release)
        assert [one.severity.value for one in found] == ["blocker", "blocker"]
        assert all(f"{machine.home}/own/gone." in one.sentence for one in found)
    assert missing(new, NEW) == []
    assert len(missing(new, None)) == 1, "a restart installs nothing"


def test_a_path_that_must_not_exist_blocks_also_a_start_of_a_package(machine: Machine) -> None:
    machine.file = f"[Unit]\nConditionPathExists=!{machine.home}/own/maintenance\n"
    assert machine.findings(*OPTIONS[-2:]) == []
    machine.write("own/maintenance")
    for release in (NEW, None):
        found = shown(machine.findings(*OPTIONS[-2:], release=release))
        assert ("START-PATH-PRESENT", "blocker") in found


def test_what_a_stop_removes_blocks_also_a_start_of_a_package(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_rollout.nodes.runtimes.hosts.absences._RUN", str(machine.home))
    machine.unit = "RuntimeDirectory=own\nRuntimeDirectoryPreserve=no\n"
    for release in (NEW, None):
        found = shown(machine.findings(*OPTIONS[-2:], "-javaagent:HOME/own/agent.jar", release=release))
        assert ("START-PATH-REMOVED", "blocker") in found


def test_what_only_a_file_of_the_package_names_is_replaced_with_it(machine: Machine) -> None:
    machine.brings("lib/kafka.service", f"KAFKA_OPTS={machine.home}/{AGENT}")
    assert machine.findings(*OPTIONS[:1]) == []


def edit(machine: Machine, name: str, text: str = "edited") -> None:
    (machine.home / name).write_text(text)


def test_a_file_of_the_package_that_the_site_has_edited_is_replaced_also_by_a_rollback(machine: Machine) -> None:
    agent = f"-javaagent:HOME/{AGENT}"
    machine.brings("lib/kafka.service", f"KAFKA_OPTS={machine.home}/{AGENT}")
    os.utime(machine.home / "lib/kafka.service", (0, 0))
    (machine.home / "lib/kafka.service").chmod(0o640)
    assert machine.findings(agent) == [], "other rights and times are no other content"
    edit(machine, "lib/kafka.service", f"KAFKA_OPTS=-Dedited=1 {machine.home}/{AGENT}")
    edit(machine, AGENT)
    unit, program = sorted(machine.findings(agent), key=lambda one: "agent" in one.subject)
    assert shown([unit, program]) == [SWITCHED, SWITCHED]
    assert f"{machine.home}/lib/kafka.service (the unit and its environment) at its start." in unit.sentence
    assert "was edited there. Each installation, also that of a rollback, replaces it" in unit.sentence
    assert unit.remedy.startswith("Before the run, write the changes into a drop-in (`systemctl edit kafka.service`)")
    assert "dpkg-divert --local --no-rename --add FILE" in unit.remedy
    restarts = machine.findings(agent, release=None)
    assert shown(restarts) == [UNKNOWN], "it installs nothing; the repository does not have the release"


def test_an_edited_configuration_file_of_the_package_stays_unless_an_installation_replaces_it(machine: Machine) -> None:
    status = machine.home / "dpkg/status"
    sum_of_x = "9dd4e461268c8034f5c8564e155c67a6"
    status.write_text(f"{status.read_text().strip()}\nConffiles:\n {machine.home}/{JAAS} {sum_of_x}\n\n")
    machine.write("own/drop-in.conf", f"KAFKA_OPTS={machine.home}/{JAAS}")
    edit(machine, JAAS)
    assert machine.findings(OPTIONS[1]) == []
    words = ["Dpkg::Options::=--force-confnew" if "confold" in word else word for word in PACKAGE.install]
    new = replace(PACKAGE, install=tuple(words), download=())
    assert [one.subject for one in machine.findings(OPTIONS[1], package=new)] == ["node 1, options of the JVM, edited"]


def test_a_file_whose_content_in_the_package_is_unknown_is_a_warning(machine: Machine) -> None:
    (machine.home / "dpkg/info/kafka.md5sums").unlink()
    (found,) = machine.findings()
    assert shown([found]) == [UNKNOWN]
    assert f"whether {machine.home}/lib/kafka.service on host kafka-1 still has the content" in found.sentence


def test_a_file_that_a_diversion_keeps_is_that_of_the_site(machine: Machine) -> None:
    edit(machine, "lib/kafka.service")
    assert shown(machine.findings()) == [SWITCHED]
    unit = f"{machine.home}/lib/kafka.service"
    machine.write("dpkg/diversions", f"{unit}\n{unit}.distrib\n:\n")
    assert machine.findings() == []


RPM = """\
listed /lib/systemd/system/kafka.service
listed /etc/sysconfig/kafka
listed /etc/kafka/jaas.conf
kept /etc/kafka/jaas.conf
listed /usr/bin/kafka-run-class
S.5....T.    /lib/systemd/system/kafka.service
S.5....T.  c /etc/sysconfig/kafka
S.5....T.  c /etc/kafka/jaas.conf
.M.....T.    /usr/bin/kafka-run-class
..?......    /usr/bin/kafka-server-start
verified
"""


def test_what_rpm_4_18_prints_of_edited_files_is_read() -> None:
    """Of a package with %config, %config(noreplace) and no configuration files."""
    expected = {
        "/usr/lib/systemd/system/kafka.service": True,
        "/etc/sysconfig/kafka": True,
        "/etc/kafka/jaas.conf": False,
        "/usr/bin/kafka-run-class": False,
        "/usr/bin/kafka-server-start": None,
    }

    class Printed:
        def run(self, node: object, line: str, *, within_s: float = 30) -> Done:
            return Done(0, RPM.encode(), "")

    named = {NamedPath(StartFileKind.UNIT, path, is_needed=True): path for path in expected}
    found = find_edited(cast(HostCommands, Printed()), NODE, named, ["kafka"])
    assert {one.path: is_edited for one, is_edited in found.items()} == expected


def test_a_path_in_usr_is_that_of_a_package_that_lists_it_without_usr(machine: Machine) -> None:
    """Of the same file, systemd can name the path in /usr/lib, and a package the one in /lib, which is a link."""
    (found,) = machine.findings("-javaagent:/usr/bin/env", "-javaagent:/usr/lib/os-release")
    assert shown([found]) == [(SWITCHED[0], "warning")]
    assert "reads /usr/bin/env (Java agent)" in found.sentence, "the next package has /lib/os-release"


def test_what_no_file_names_is_a_warning_and_a_configuration_file_of_the_package_stays(machine: Machine) -> None:
    assert shown(machine.findings(*OPTIONS)) == [(SWITCHED[0], "warning")] * 2
    status = machine.home / "dpkg/status"
    status.write_text(f"{status.read_text().strip()}\nConffiles:\n {machine.home}/{JAAS} {'0' * 32}\n\n")
    assert shown(machine.findings(*OPTIONS)) == [(SWITCHED[0], "warning")]


def test_without_a_list_of_the_next_release_it_is_unknown(machine: Machine) -> None:
    (machine.home / "repository/kafka_4.3.1-1_all.deb").unlink()
    (found,) = machine.findings(*OPTIONS)
    assert shown([found]) == [UNKNOWN]
    assert f"{machine.home}/{AGENT}" in found.sentence
    script = PackageSpec(install=("/usr/local/bin/install", "{version}"), check=("/usr/bin/true", "{version}"))
    assert shown(machine.findings(*OPTIONS, package=script)) == [UNKNOWN]


def test_a_package_that_a_download_has_left_is_not_downloaded_again(machine: Machine) -> None:
    name = "kafka_4.3.1-1_all.deb"
    kept = machine.home / "cache/archives" / name
    (machine.home / "repository" / name).rename(kept)
    content = kept.read_bytes()
    assert shown(machine.findings(*OPTIONS)) == [(SWITCHED[0], "warning")] * 2
    assert kept.read_bytes() == content
    shutil.rmtree(machine.home / LISTS)
    kept.write_bytes(content[:-1])  # not that of the repository
    assert shown(machine.findings(*OPTIONS)) == [UNKNOWN]
    assert kept.read_bytes() == content[:-1]


def test_the_list_of_a_package_is_kept_so_that_it_is_downloaded_once(machine: Machine) -> None:
    package = machine.home / "repository/kafka_4.3.1-1_all.deb"
    expected = [(SWITCHED[0], "warning")] * 2
    assert shown(machine.findings(*OPTIONS)) == expected
    assert list(machine.temporary.iterdir()) == [], "the package is removed"
    (kept,) = (machine.home / LISTS).iterdir()
    assert kept.stat().st_size < 10_000
    package.rename(machine.home / "gone")
    assert shown(machine.findings(*OPTIONS)) == expected, "of the kept list"
    kept.write_bytes(b"")  # a loss of power
    assert shown(machine.findings(*OPTIONS)) == [UNKNOWN]
    (machine.home / "gone").rename(package)
    assert shown(machine.findings(*OPTIONS)) == expected


def test_a_kept_list_is_that_of_what_the_repository_has_now(machine: Machine) -> None:
    machine.findings(*OPTIONS)
    (kept,) = (machine.home / LISTS).iterdir()
    os.utime(kept, (0, 0))
    machine.write(f"deb{machine.home}/{JAAS}")
    machine.offer()
    assert shown(machine.findings(*OPTIONS)) == [(SWITCHED[0], "warning")], "the other build has this file"
    (other,) = (machine.home / LISTS).iterdir()
    assert other != kept, "an old list is removed"


def test_a_list_that_was_not_read_whole_is_not_kept(machine: Machine) -> None:
    package = machine.home / "repository/kafka_4.3.1-1_all.deb"
    whole = package.read_bytes()
    package.write_bytes(whole[:-1024])
    machine.offer(build=False)
    machine.findings(*OPTIONS)
    assert not (machine.home / LISTS).exists()
    assert list(machine.temporary.iterdir()) == []


def test_a_host_without_space_for_the_package_reports_no_files_and_keeps_nothing(machine: Machine) -> None:
    machine.limits = "ulimit -f 1; "
    assert shown(machine.findings(*OPTIONS)) == [UNKNOWN]
    assert list(machine.temporary.iterdir()) == []
    assert not (machine.home / LISTS).exists()


def test_a_home_that_takes_nothing_does_not_hide_the_files(machine: Machine) -> None:
    machine.write("user/.kafka-rollout")
    assert shown(machine.findings(*OPTIONS)) == [(SWITCHED[0], "warning")] * 2


def test_the_packages_of_an_installation_from_files_are_listed(machine: Machine) -> None:
    install = (*PACKAGE.install[:-1], f"{machine.home}/repository/kafka_{{version}}-1_all.deb")
    package = PackageSpec(install=install, versions={"4.3.1": "4.3.1"})
    assert shown(machine.findings(*OPTIONS, package=package)) == [(SWITCHED[0], "warning")] * 2


ZYPPER = """#!/bin/sh
echo "$@" >> "$0.ran"
case " $* " in *" --dry-run "*) echo "(1/1) kafka-$(cat "$0.build").noarch.rpm"; exit;; esac
touch "${1#--pkg-cache-dir=}/kafka.rpm"
"""


def test_zypper_and_dnf_load_a_package_once_too(machine: Machine) -> None:
    """With programs of this test in their place: this machine has none of them."""
    programs = {
        "zypper": ZYPPER,
        "dnf": f'#!/bin/sh\necho "$@" >> "$0.ran"\nprintf "%s\\n" {machine.home}/{NEW_FILES[-1]}\n',
        "rpm": f"#!/bin/sh\ntest -f \"$2\" && printf '%s\\n' {machine.home}/{NEW_FILES[-1]}\n",
    }
    for name, text in programs.items():
        machine.write(f"bin/{name}", text)
        (machine.home / "bin" / name).chmod(0o755)
    machine.write("bin/zypper.build", "4.3.1-1")
    machine.limits = f"PATH={machine.home}/bin:$PATH; "

    def list_of(program: str, *options: str) -> str:
        install = (f"{machine.home}/bin/{program}", *options, "install", "kafka={version}")
        return machine.run(None, print_files(install, "4.3.1", ".kafka-rollout")).out

    def ran(program: str) -> int:
        return len((machine.home / f"bin/{program}.ran").read_text().splitlines())

    assert list_of("zypper", "--non-interactive") == f"{machine.home}/{NEW_FILES[-1]}\n"
    assert ran("zypper") == 2, "the question and the package"
    assert list_of("zypper", "--non-interactive") == f"{machine.home}/{NEW_FILES[-1]}\n"
    assert ran("zypper") == 3
    machine.write("bin/zypper.build", "4.3.1-2")
    assert list_of("zypper", "--non-interactive") != ""
    assert ran("zypper") == 5
    assert list_of("dnf") == f"{machine.home}/{NEW_FILES[-1]}\n"
    assert len(list((machine.home / LISTS).iterdir())) == 2, "dnf keeps its own lists"
    assert list(machine.temporary.iterdir()) == []
