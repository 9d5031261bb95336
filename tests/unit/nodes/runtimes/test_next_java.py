"""The Java of the next start, which need not be that of the process: a real shell with folders of Java and scripts."""

from __future__ import annotations

import os
import re
import subprocess
import time
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
        if "/etc/profile.d" in line:
            line = re.sub(r"(?<![\w])/etc/", f"{self.home}/etc/", line)
            return super().run(node, f"systemctl() {{ :; }}; getent() {{ echo :::::{self.home}/etc/user; }}; {line}")
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
    unread = ["started 2000", "unread 1000 /etc/default/kafka"]  # it can have a JAVA_HOME
    machine.environment += unread
    with pytest.raises(NotObservableError, match=r"because it has capabilities .*: its environment") as raised:
        machine.find(os.getpid())
    assert "Set JAVA_HOME in the unit" in raised.value.remedy
    machine.environment.append(f"env JAVA_HOME={machine.home}/jdk-17")
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


def test_a_value_of_a_script_replaces_the_java_home_of_the_unit(machine: Machine) -> None:
    machine.exe, java = machine.java("jdk-21"), machine.java("jdk-25")
    machine.edit(NEW, "export JAVA_HOME=HOME/jdk-21\n")
    machine.environment.append(f"env JAVA_HOME={machine.home}/jdk-25")
    assert machine.find().paths == (machine.exe,)
    machine.edit(NEW, "")
    assert machine.find().paths == (java,)


@pytest.mark.parametrize("line", _DEFAULTS)
def test_a_default_of_a_script_does_not_replace_the_java_home_of_the_unit(machine: Machine, line: str) -> None:
    machine.exe, java = machine.java("jdk-21"), machine.java("jdk-25")
    machine.edit(NEW, line)
    machine.environment.append(f"env JAVA_HOME={machine.home}/jdk-25")
    assert machine.find().paths == (java,)


@pytest.mark.parametrize(
    "line",
    ["JAVA_HOME=$(find-java)\n", "source /unknown/$USER\n", "PATH=$(find-java):$PATH\n", "JAVA=$(find-java)\n"],
)
def test_a_script_that_finds_java_in_its_own_way_can_find_another_one_than_at_the_last_start(
    machine: Machine, line: str
) -> None:
    machine.exe = machine.java("jdk-17", 17)
    machine.in_path(machine.exe)
    assert machine.version() == 17
    machine.edit(NEW, line)
    with pytest.raises(NotObservableError, match=r"next start of node kafka-1 .* is unknown: ") as raised:
        machine.version()
    assert "set JAVA_HOME to a folder" in raised.value.remedy


@pytest.mark.parametrize(
    "line",
    [
        "JAVA_HOME=$(dirname $(dirname $(readlink -f $(which java))))\n",
        'export JAVA_HOME="$(readlink -f $(command -v java) | sed "s:/bin/java::")"\n',
        'if [ -z "$JAVA_HOME" ]; then\n  JAVA_HOME=$(find-java)\nfi\n',
        "PATH=/nonexistent/bin:$PATH\n",
    ],
)
def test_a_script_that_shows_how_it_finds_java_leaves_no_doubt(machine: Machine, line: str) -> None:
    machine.exe = machine.java("jdk-17", 17)
    (machine.home / "jdk").symlink_to(machine.home / "jdk-17")
    machine.in_path(machine.exe)
    machine.edit(NEW, line)
    if "-z" in line:
        machine.environment.append(f"env JAVA_HOME={machine.home}/jdk")
    assert machine.find().paths[-1] == machine.exe
    machine.exe = machine.java("jdk-11", 11)
    assert machine.find().paths[-1] == f"{machine.home}/jdk-17/bin/java"


def test_each_folder_that_a_script_puts_before_path_counts(machine: Machine) -> None:
    machine.exe = machine.java("jdk-17", 17)
    machine.in_path(machine.exe)
    other = machine.java("jdk-21", 21)
    machine.edit(NEW, f"PATH={machine.home}/jdk-21/bin:$PATH\n")
    assert machine.find().paths == (other,)
    machine.edit(NEW, f"if [ -d /x ]; then\nPATH={machine.home}/jdk-21/bin:$PATH\nfi\n")
    with pytest.raises(NotObservableError, match=r"runs Java 21 .* or Java 17"):
        machine.version()


_LOGINS = ("/bin/bash -lc", "/bin/sh --login -c", "/bin/bash -l -c exec", "/usr/bin/nice -n 5 /bin/bash -ilc")


@pytest.mark.parametrize("login", _LOGINS)
def test_a_login_shell_takes_java_from_its_profiles_as_they_are_now(machine: Machine, login: str) -> None:
    """The process is a witness only for what has not changed since."""
    machine.command = f"{login} {machine.command}"
    machine.exe = machine.java("jdk-17", 17)
    machine.in_path(machine.exe)
    machine.write("etc/profile", 'if [ -d /etc/profile.d ]; then\nfor i in /etc/profile.d/*.sh; do\n. "$i"\ndone\nfi\n')
    (machine.home / "etc/profile.d").mkdir()
    machine.environment.append(f"started {time.time() + 5:.0f} 0")
    assert machine.version() == 17
    machine.write("etc/profile.d/java.sh", "export JAVA_HOME=HOME/jdk-11\nexport PATH=$JAVA_HOME/bin:$PATH\n")
    with pytest.raises(NotObservableError, match=r"JAVA_HOME in the profiles .* is .*/jdk-11, where"):
        machine.version()
    machine.java("jdk-11", 11)
    assert machine.version() == 11
    machine.write("etc/profile.d/java.sh", 'export JAVA_HOME="$(asdf where java)"\n')
    with pytest.raises(NotObservableError, match=r"etc/profile.d/java.sh sets JAVA_HOME"):
        machine.version()
    machine.write("etc/profile.d/java.sh", "export PATH=/opt/jdk/bin:$PATH\n")
    assert machine.version() == 17
    machine.environment[-1] = "started 2000 0"
    with pytest.raises(NotObservableError, match=r"profile.d, which its login shell reads, can have changed since"):
        machine.version()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[ -s ~/.sdkman/bin/init.sh ] && . ~/.sdkman/bin/init.sh\n", "reads ~/.sdkman/bin/init.sh"),
        ('eval "$(mise activate bash)"\n', "asks another program"),
    ],
)
def test_a_profile_of_the_user_that_asks_a_tool_for_java_is_unknown(machine: Machine, text: str, why: str) -> None:
    machine.command = f"/bin/bash -lc {machine.command}"
    machine.exe = machine.java("jdk-17", 17)
    machine.in_path(machine.exe)
    machine.environment.append(f"started {time.time() + 5:.0f} 0")
    machine.write("etc/user/.bash_profile", text)
    with pytest.raises(NotObservableError, match=why):
        machine.version()


@pytest.mark.parametrize(
    "command",
    [
        'su - kafka -c "{}"',
        "runuser -l kafka -c {}",
        "/usr/bin/sudo -i -u kafka {}",
        "sudo -u kafka {}",
        "env -i {}",
        "/usr/bin/env -u JAVA_HOME {}",
        "exec -c {}",
        "somewrapper --as kafka {}",
    ],
)
@pytest.mark.parametrize("is_script", [True, False])
def test_a_program_that_can_take_the_environment_away_leaves_java_unknown(
    machine: Machine, command: str, is_script: bool
) -> None:
    machine.exe = machine.java("jdk-17", 17)
    machine.in_path(machine.exe)
    line = command.format(machine.command)
    machine.write("start.sh", f"#!/bin/bash\nset -e\n{line}\n")
    machine.command = "HOME/start.sh" if is_script else line.replace('"', "")
    with pytest.raises(NotObservableError, match=r"can change its environment|next start of node"):
        machine.version()


@pytest.mark.parametrize(
    "line",
    [
        "export JAVA_HOME=HOME/jdk-17; exec {}",
        "su - kafka -c 'export JAVA_HOME=HOME/jdk-17; exec {}'",
        'bash -lc "JAVA_HOME=HOME/jdk-17 {}"',
        "env -i JAVA_HOME=HOME/jdk-17 {}",
        "nice -n 5 {}",
        "exec env KAFKA_OPTS=-Dx=y {} # x",
        'if [ -x /x ]; then echo "starts {}"; fi; exec {}',
    ],
)
def test_a_java_home_directly_before_the_start_is_known_whatever_a_login_does(machine: Machine, line: str) -> None:
    machine.exe = machine.java("jdk-17", 17)
    machine.in_path(machine.exe)
    machine.write("start.sh", f"#!/bin/bash\nset -e\n{line.format(machine.command, machine.command)}\n")
    machine.command = "HOME/start.sh"
    assert machine.version() == 17


@pytest.mark.parametrize("first", ["#!/bin/bash -l", "#!/bin/bash\nsource /etc/profile", "#!/bin/bash\n. ~/.profile"])
def test_a_script_that_logs_in_counts_as_a_login(machine: Machine, first: str) -> None:
    machine.exe = machine.java("jdk-17", 17)
    machine.in_path(machine.exe)
    machine.environment.append("started 2000 0")
    (machine.home / "etc/profile.d").mkdir()
    machine.write("start.sh", f"{first}\nexec {machine.command}\n")
    machine.command = "HOME/start.sh"
    with pytest.raises(NotObservableError, match=r"login shell reads|not all scripts"):
        machine.version()
    machine.write("start.sh", f"{first}\nexport JAVA_HOME=HOME/jdk-17\nexec {machine.command}\n")


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
