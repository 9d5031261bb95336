"""The Java of the next start, which need not be that of the process: a real shell with folders of Java and scripts."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from kafka_rollout.base.errors import NotObservableError, TransientError
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.nodes.runtimes.hosts.next_java import NextJava, find_next_java
from kafka_rollout.nodes.runtimes.hosts.rights import HostRight
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.nodes.runtimes.hosts.unit_state import ARGUMENTS, read_java_version, read_start, read_unit_options
from kafka_rollout.planning.findings.hosts import host_problems
from kafka_rollout.releases.facts import Release
from tests.unit.builders import SEPARATE, catalogue, host_state
from tests.unit.nodes.runtimes.test_option_sources import NEW, OLD, Host

_FIND = """\
if [ -z "$JAVA_HOME" ]; then
  JAVA="java"
else
  JAVA="$JAVA_HOME/bin/java"
fi
"""


@dataclass
class Machine(Host):
    """`exe`: /proc/PID/exe of the process. `fails`: it cannot be read. `environment`: lines of the unit's
    environment, as ARGUMENTS prints them. `java_of`: what /proc/PID/status of the process shows."""

    exe: str = ""
    fails: bool = False
    java_of: str = ""
    environment: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        Host.__post_init__(self)
        for release in (OLD, NEW):
            self.run_class(release, _FIND)

    def run_class(self, release: Release, text: str) -> None:
        self.write(f"kafka_2.13-{release}/bin/kafka-run-class.sh", f'#!/bin/bash\n{text}exec "$JAVA" "$@"\n')

    def java(self, name: str, version: int = 0) -> str:
        path = self.write(f"{name}/bin/java", "#!/bin/sh\n")
        if version:
            (self.home / name / "release").write_text(f'JAVA_VERSION="{version}.0.1"\n')
        return str(path)

    def run(self, node: object, command: object, *, text: str = "") -> Done:
        if isinstance(command, list):
            return super().run(node, " ".join(map(str, command)), text=text)
        line = str(command)
        if "systemctl show" in line:
            argv = self.command.replace("HOME", str(self.home))
            start = f"show ExecStart={{ path=/x ; argv[]={argv} ; ignore_errors=no ; pid=5 }}"
            return Done(0, "\n".join(["arg java", start, *self.environment, ""]).encode(), "")
        of_test = f"sudo() {{ echo '{self.exe}'; return {int(self.fails)}; }}; "
        of_test += "stat() { command stat \"$@\" | sed 's,^[0-9a-f]*/[0-9]*/[^/]*/,41ed/0/root/,'; }; "
        if self.java_of:
            status = self.write("status", f"{self.java_of}\n")
            line = re.sub(r"/proc/\d+/status", str(status), line)
        return super().run(node, of_test + line, text=text)

    def expect(self, node: object, right: HostRight, done: Done) -> Done:
        assert done.code == 0, done.err
        return done

    def find(self, pid: int | None = 50, *releases: Release) -> NextJava:
        commands = cast(HostCommands, self)
        return find_next_java(commands, self.node(), pid, *read_start(commands, self.node(), releases or (NEW,)))

    def version(self) -> int:
        return read_java_version(cast(HostCommands, self), self.node(), self.find())

    def in_path(self, java: str) -> None:
        """Let `java` of the unit's PATH be a link, as alternatives make it."""
        (self.home / "path").mkdir(exist_ok=True)
        (self.home / "path" / "java").unlink(missing_ok=True)
        (self.home / "path" / "java").symlink_to(java)
        path = f"all PATH=/nonexistent:{self.home}/path"
        self.environment = [*(one for one in self.environment if one != path), path]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_link_that_was_changed_since_the_start_counts_and_not_the_process(machine: Machine) -> None:
    machine.exe = machine.java("jdk-17", 17)
    old = machine.java("jdk-11", 11)
    machine.in_path(machine.exe)
    assert machine.find() == NextJava(paths=(machine.exe,), of_process=machine.exe, why=machine.find().why)
    assert not machine.find().has_changed
    machine.in_path(old)
    found = machine.find()
    assert (found.paths, found.of_process, found.has_changed) == ((old,), machine.exe, True)
    assert machine.version() == 11
    machine.exe = ""
    assert machine.find(None).paths == (old,)


def test_a_newer_java_in_path_is_no_obstacle_while_the_process_runs_the_older_one(machine: Machine) -> None:
    machine.exe = machine.java("jdk-11", 11)
    machine.in_path(machine.java("jdk-17", 17))
    assert machine.version() == 17


def test_a_process_that_has_ended_since_has_no_java_and_the_next_start_has(machine: Machine) -> None:
    machine.exe = ""
    java = machine.java("jdk-17", 17)
    machine.in_path(java)
    machine.fails = True
    with subprocess.Popen(["true"]) as ended:
        pass
    assert machine.find(ended.pid) == NextJava(paths=(java,), why=machine.find(ended.pid).why)


def test_a_java_that_the_kernel_hides_is_unknown_only_if_the_next_start_does_not_show_it(machine: Machine) -> None:
    """A process of root has capabilities that the user of a node has not."""
    machine.fails, java = True, machine.java("jdk-17", 17)
    machine.in_path(java)
    machine.java_of = "CapPrm:\t0000000000000400"
    assert machine.find(os.getpid()).paths == (java,)
    machine.edit(NEW, "PATH=/opt/jdk/bin:$PATH\n")
    with pytest.raises(NotObservableError, match=r"because it has capabilities .*: .* sets PATH") as raised:
        machine.find(os.getpid())
    assert "Set JAVA_HOME in the unit" in raised.value.remedy
    machine.environment.append(f"env JAVA_HOME={machine.home}/jdk-17")
    machine.edit(NEW, "")
    assert machine.find(os.getpid()).paths == (java,)
    machine.java_of = "CapPrm:\t0000000000000000"
    with pytest.raises(TransientError, match="cannot see which Java its process runs"):
        machine.find(os.getpid())


def test_a_java_that_an_update_has_removed_or_replaced_is_that_of_the_units_path(machine: Machine) -> None:
    machine.exe = f"{machine.home}/jdk-17.0.16/bin/java (deleted)"
    new = machine.java("jdk-17.0.17")
    machine.in_path(new)
    assert machine.find().paths == (new,)
    machine.exe = f"{new} (deleted)"
    assert machine.find().paths == (new,)
    assert not machine.find().has_changed


def test_a_removed_java_without_a_known_successor_names_the_restart(machine: Machine) -> None:
    machine.exe = f"{machine.home}/jdk-17.0.16/bin/java (deleted)"
    machine.in_path(machine.java("jdk-17.0.17"))
    machine.environment += ["started 2000", "unread 1000 /etc/default/kafka"]  # it can have a JAVA_HOME
    with pytest.raises(NotObservableError, match=r"was removed from host kafka-1 .*jdk-17.0.16/bin/java\)") as raised:
        machine.find()
    assert "kafka-rollout restart" in raised.value.remedy


@pytest.mark.parametrize("pid", [50, None])
def test_the_java_home_of_the_unit_counts_more_than_path(machine: Machine, pid: int | None) -> None:
    machine.exe = machine.java("jdk-17")
    machine.in_path(machine.exe)
    (machine.home / "jdk").symlink_to(Path(machine.java("jdk-11")).parents[1])
    machine.environment.append(f"env JAVA_HOME={machine.home}/jdk/")
    assert machine.find(pid).paths == (f"{machine.home}/jdk-11/bin/java",)
    machine.environment[-1:] = [f"set JAVA_HOME={machine.home}/none", "end /etc/default/kafka"]
    with pytest.raises(NotObservableError, match=r"JAVA_HOME of kafka.service on host kafka-1 is .*/none, where"):
        machine.find(pid)


_DEFAULTS = (
    'if [ -z "$JAVA_HOME" ]; then\n  export JAVA_HOME="HOME/jdk-21"\nfi\n',
    "export JAVA_HOME=${JAVA_HOME:-HOME/jdk-21}\n",
)


@pytest.mark.parametrize("line", ["export JAVA_HOME=HOME/jdk-21\n", *_DEFAULTS])
def test_a_script_of_the_next_release_that_sets_java_home_counts(machine: Machine, line: str) -> None:
    machine.exe, other = machine.java("jdk-17"), machine.java("jdk-21")
    machine.in_path(machine.exe)
    machine.edit(NEW, line)
    assert machine.find().paths == (other,)
    machine.edit(NEW, "")
    machine.edit(OLD, line)  # it is lost with the release
    assert machine.find().paths == (machine.exe,)
    assert machine.find(50, OLD).paths == (other,)


@pytest.mark.parametrize("line", _DEFAULTS)
def test_a_default_of_a_script_does_not_replace_the_java_home_of_the_unit(machine: Machine, line: str) -> None:
    machine.exe, java = machine.java("jdk-21"), machine.java("jdk-25")
    machine.edit(NEW, line)
    machine.environment.append(f"env JAVA_HOME={machine.home}/jdk-25")
    assert machine.find().paths == (java,)


@pytest.mark.parametrize("line", ["PATH=/opt/jdk/bin:$PATH\n", "JAVA_HOME=$(find-java)\n", "source /unknown/$USER\n"])
def test_a_script_that_finds_java_in_its_own_way_leaves_one_version_or_none(machine: Machine, line: str) -> None:
    machine.exe = machine.java("jdk-17", 17)
    machine.in_path(machine.exe)
    machine.edit(NEW, line)
    assert machine.version() == 17
    machine.in_path(machine.java("jdk-17.0.2", 17))
    assert machine.version() == 17
    machine.in_path(machine.java("jdk-11", 11))
    with pytest.raises(NotObservableError, match=r"runs Java 17 .* or Java 11 ") as raised:
        machine.version()
    assert "Set JAVA_HOME in the unit" in raised.value.remedy


def test_a_login_in_the_command_of_the_unit_can_set_another_path(machine: Machine) -> None:
    machine.command = f"/bin/bash -lc {machine.command}"
    machine.exe = machine.java("jdk-17", 17)
    machine.in_path(machine.java("jdk-11", 11))
    with pytest.raises(NotObservableError, match="not all scripts of its start can be read"):
        machine.version()


def test_a_unit_that_starts_java_itself_names_it(machine: Machine) -> None:
    machine.exe = machine.java("jdk-17")
    other = machine.java("jdk-11")
    machine.in_path(other)
    machine.command = f"{machine.exe} -cp x kafka.Kafka /etc/kafka/server.properties"
    assert machine.find().paths == (machine.exe,)


def test_another_java_of_the_next_start_is_a_warning_with_both_paths() -> None:
    host = host_state(changed_java=("/usr/lib/jvm/17/bin/java", "/usr/lib/jvm/11/bin/java"))
    (found,) = (
        one
        for one in host_problems(SEPARATE, catalogue(), {SEPARATE.nodes[0].node_id: host}, (NEW,))
        if one.code == "JAVA-CHANGED"
    )
    assert found.severity.value == "warning"
    assert "runs /usr/lib/jvm/17/bin/java, and its next start runs /usr/lib/jvm/11/bin/java" in found.sentence
    assert "also the older one" in found.remedy


@pytest.mark.parametrize("clock", ["1700000000", "1700000000.0", ""])
def test_a_host_whose_clock_prints_something_else_still_reports_the_files_of_its_unit(
    tmp_path: Path, clock: str
) -> None:
    (tmp_path / "environment").write_text("JAVA_HOME=/opt/jdk\n")
    show = (
        f"case $* in *EnvironmentFiles*) echo '{tmp_path}/environment (ignore_errors=no)';; *MainPID*) echo $$;; esac"
    )
    line = f"systemctl() {{ {show}; }}; date() {{ echo '{clock}'; }}; {ARGUMENTS.format(unit='kafka')}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "set JAVA_HOME=/opt/jdk" in done.stdout.splitlines()
    commands = cast(HostCommands, _Printed(Done(0, done.stdout.encode(), "")))
    assert read_unit_options(commands, Machine(tmp_path).node()).variables["JAVA_HOME"] == "/opt/jdk"


def test_an_environment_that_was_printed_in_part_is_unknown(tmp_path: Path) -> None:
    commands = cast(HostCommands, _Printed(Done(2, b"arg java\nenv LANG=C\n", "sh: 1: arithmetic expression")))
    options = read_unit_options(commands, Machine(tmp_path).node())
    assert not options.is_whole
    assert options.unknown is not None
    assert "arithmetic expression" in options.unknown.sentence


@dataclass
class _Printed:
    done: Done

    def run(self, node: object, command: object) -> Done:
        return self.done
