"""What a start writes: start scripts of two releases in folders of this machine, for a user who owns none of them."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import cast

import pytest

from kafka_rollout.base.findings import Finding
from kafka_rollout.model.host_state import HostState
from kafka_rollout.model.topology import NodeSpec, PackageSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.nodes.runtimes.hosts.option_sources import UnitOptions, read_next_start
from kafka_rollout.nodes.runtimes.hosts.start_writes import read_start_writes
from kafka_rollout.nodes.runtimes.hosts.unit_environment import jvm_words
from kafka_rollout.planning.findings.start_writes import start_write_findings
from kafka_rollout.releases.facts import Release
from tests.unit.nodes.runtimes.test_option_sources import RUN
from tests.unit.nodes.runtimes.test_start_paths import ShellOfThisMachine

OLD, NEW = Release(3, 9, 1), Release(4, 3, 1)
USER = "daemon"
START = """\
#!/bin/bash
base_dir=$(dirname $0)
EXTRA_ARGS=${EXTRA_ARGS-'-name kafkaServer -loggc'}
exec $base_dir/kafka-run-class.sh $EXTRA_ARGS kafka.Kafka "$@"
"""
FORBIDDEN, WARNED = ("START-FILE-FORBIDDEN", "blocker"), ("START-FILE-FORBIDDEN", "warning")
SCRIPT = "HOME/kafka/bin/kafka-server-start.sh HOME/etc/server.properties"


@dataclass
class Host:
    """Two releases and the link to the old one. All folders belong to another user than USER."""

    home: Path
    command: str = SCRIPT
    before: str = ""
    """The words of ExecStartPre=, with its prefixes."""
    unit: str = ""
    """What systemctl shows of it."""
    environment: dict[str, str] = field(default_factory=dict)
    data: str = ""
    """Its log.dirs."""

    def __post_init__(self) -> None:
        for release in (OLD, NEW):
            self.write(f"kafka_2.13-{release}/bin/kafka-server-start.sh", START)
            self.write(f"kafka_2.13-{release}/bin/kafka-run-class.sh", RUN)
        self.write("java/bin/java", '#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')
        self.write("etc/server.properties", "node.id=1\n")
        (self.home / "kafka").symlink_to(f"kafka_2.13-{OLD}")

    def text(self, text: str) -> str:
        return re.sub(r"(?<!_)HOME", str(self.home), text)

    def write(self, name: str, text: str = "") -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text(text))
        path.chmod(0o755)
        return path

    def writable(self, name: str) -> Path:
        path = self.home / name
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o777)
        return path

    def start(self) -> list[str]:
        """Return the command line of the process."""
        command = self.text(self.command)
        words = command.split(" ", 2) if " -c " in command else command.split()
        environment = {name: self.text(value) for name, value in self.environment.items()}
        variables = {"PATH": "/usr/bin:/bin", "JAVA_HOME": f"{self.home}/java", **environment}
        ran = subprocess.run(words, env=variables, capture_output=True, text=True, check=True)
        return ran.stdout.splitlines()

    def node(self, **service: object) -> NodeSpec:
        where = {"installation": f"{self.home}/kafka_2.13-{{release}}", "symlink": f"{self.home}/kafka"}
        spec = ServiceSpec(host="kafka-1", **{**where, **service})  # type: ignore[arg-type]
        return NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=spec)

    def findings(
        self,
        process: Sequence[str] | None = None,
        releases: Sequence[Release] = (NEW,),
        *,
        user: str = USER,
        brought: Sequence[Release] = (),
        **service: object,
    ) -> list[Finding]:
        process = self.start() if process is None else [self.text(word) for word in process]
        shown = "{}={{ path=/x ; argv[]={} ; ignore_errors=no ; pid=5 }}"
        before = [("ExecStartPre", self.before.lstrip("-+!@:"))] if self.before else []
        commands = (("ExecStart", self.command), *before)
        environment = {name: self.text(value) for name, value in self.environment.items()}
        unit = UnitOptions(
            commands=tuple(shown.format(name, self.text(words)) for name, words in commands),
            process=tuple(process),
            variables=environment,
            environment=jvm_words(environment),
        )
        file = self.text(f"ExecStartPre={self.before}\n{self.unit}")
        shell = ShellOfThisMachine(
            self.home, self.text(self.unit), file, user=f"User={user}\nGroup=\nSupplementaryGroups="
        )
        node = self.node(**service)
        start = read_next_start(cast(HostCommands, shell), node, releases, unit)
        writes = read_start_writes(
            cast(HostCommands, shell),
            node,
            releases,
            process=process,
            unit=unit,
            start=start,
            brought=brought,
            login="rollout",
            directories=[self.text(self.data)] if self.data else [],
        )
        state = HostState(
            name="kafka-1",
            unit="kafka.service",
            symlink=f"{self.home}/kafka",
            folders={},
            releases=frozenset({OLD, NEW}),
            brought=frozenset(brought),
            symlink_can_switch=True,
            stop_timeout_s=300.0,
            writes=writes,
        )
        return list(start_write_findings(node, state, releases))


@pytest.fixture
def host() -> Iterator[Host]:
    home = Path(mkdtemp(prefix="start-writes-")).resolve()
    home.chmod(0o755)
    host = Host(home)
    host.writable(f"kafka_2.13-{OLD}/logs")
    yield host
    shutil.rmtree(home)


def shown(found: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(one.code, one.severity.value) for one in found]


def test_the_folder_of_logs_moves_with_the_release_and_a_start_that_cannot_write_it_is_a_blocker(host: Host) -> None:
    (found,) = host.findings()
    assert (found.code, found.severity.value) == FORBIDDEN
    folder = f"{host.home}/kafka_2.13-{NEW}"
    assert f"{host.home}/kafka/bin/../logs/kafkaServer-gc.log" in found.sentence
    assert f"user daemon of kafka.service on host kafka-1 cannot create files in {folder} (mode 0755" in found.sentence
    assert "`Environment=LOG_DIR=/var/log/kafka`" in found.remedy
    assert f"`install -d -o daemon {folder}/logs`" in found.remedy
    assert host.findings(releases=(OLD,)) == []  # also of a rollback
    assert host.findings(user="root") == []


@pytest.mark.parametrize("mode", [0o777, 0o755])
def test_a_folder_of_logs_in_the_next_release_must_be_writable(host: Host, mode: int) -> None:
    host.writable(f"kafka_2.13-{NEW}/logs").chmod(mode)
    assert shown(host.findings()) == ([] if mode == 0o777 else [FORBIDDEN])


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the owner of files")
@pytest.mark.parametrize("name", ["", "logs"])
def test_a_release_or_a_folder_of_logs_that_belongs_to_the_user_is_no_finding(host: Host, name: str) -> None:
    owned = host.home / f"kafka_2.13-{NEW}" / name
    owned.mkdir(exist_ok=True)
    user = pwd.getpwnam(USER)
    os.chown(owned, user.pw_uid, user.pw_gid)
    assert host.findings() == []


def test_a_script_below_the_folder_in_which_the_unit_starts_writes_to_the_next_release(host: Host) -> None:
    process = [word.replace("/kafka/bin/../logs", f"/kafka_2.13-{OLD}/bin/../logs") for word in host.start()]
    assert host.findings(process) == []
    host.command = "/bin/sh -c exec bin/kafka-server-start.sh HOME/etc/server.properties"
    assert shown(host.findings(process)) == [FORBIDDEN]


def test_the_remedy_in_the_unit_needs_no_restart_before_the_run(host: Host) -> None:
    process = host.start()
    host.environment["LOG_DIR"] = "HOME/var/kafka"
    assert shown(host.findings(process)) == [FORBIDDEN]
    host.writable("var/kafka")
    assert host.findings(process) == []
    assert host.findings() == []


@pytest.mark.parametrize(
    ("wrapper", "expected"),
    [
        ("export LOG_DIR=HOME/var/kafka", []),
        ("KAFKA_HOME=HOME/kafka\nexport LOG_DIR=$KAFKA_HOME/logs", [FORBIDDEN]),
        ("", [FORBIDDEN]),
    ],
)
def test_what_a_script_of_the_unit_sets_counts_more_than_what_the_process_has(
    host: Host, wrapper: str, expected: list[tuple[str, str]]
) -> None:
    host.writable("var/kafka")
    process = host.start()
    host.write("start.sh", f"#!/bin/sh\n{wrapper}\nexec {SCRIPT}\n")
    host.command = "HOME/start.sh"
    assert shown(host.findings(process)) == expected
    assert shown(host.findings()) == expected


@pytest.mark.parametrize(
    "line",
    [
        "export LOG_DIR=${LOG_DIR:-HOME/kafka/logs}",
        'if [ -z "$LOG_DIR" ]; then\nexport LOG_DIR=HOME/kafka/logs\nfi',
        'if [ "x$LOG_DIR" = "x" ]; then\nexport LOG_DIR=HOME/kafka/logs\nfi',
        ": ${LOG_DIR:=HOME/kafka/logs}\nexport LOG_DIR=$LOG_DIR",
    ],
)
def test_a_script_that_asks_for_the_variable_sets_only_what_the_unit_does_not(host: Host, line: str) -> None:
    host.writable("var/kafka")
    host.write("start.sh", f"#!/bin/sh\n{line}\nexec {SCRIPT}\n")
    host.command = "HOME/start.sh"
    assert shown(host.findings()) == [FORBIDDEN]
    process = host.start()
    host.environment["LOG_DIR"] = "HOME/var/kafka"
    assert host.findings(process) == []
    assert host.findings() == []


def test_a_folder_of_logs_that_only_a_script_of_the_running_release_sets_is_not_that_of_the_next_start(
    host: Host,
) -> None:
    host.writable("var/kafka")
    script = START.replace("EXTRA", "export LOG_DIR=HOME/var/kafka\nEXTRA", 1)
    host.write(f"kafka_2.13-{OLD}/bin/kafka-server-start.sh", script)
    assert shown(host.findings()) == [FORBIDDEN]
    host.write(f"kafka_2.13-{NEW}/bin/kafka-server-start.sh", script)
    assert host.findings() == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-Xlog:gc*:file=HOME/kafka/gc.log:time", [FORBIDDEN]),
        ("-Xlog:gc*:HOME/kafka/gc.log", [FORBIDDEN]),
        ('-Xlog:gc:file="HOME/kafka/gc.log"', [FORBIDDEN]),
        ("-Xloggc:HOME/kafka/gc/x.log", [FORBIDDEN]),
        ("-Xlog:gc*:file=HOME/free/gc.log", []),
        ("-Xlog:gc*:file=HOME/free/gc/gc.log", [FORBIDDEN]),  # only the scripts make their own folder
        ("-Xlog:gc*:stdout:time -Xlog:disable", []),
        ("-Djava.io.tmpdir=HOME/kafka/libs", [FORBIDDEN]),
        ("-Djava.io.tmpdir=/tmp", []),
    ],
)
def test_a_file_that_the_jvm_writes_is_asked_for_the_user_of_the_unit(
    host: Host, words: str, expected: list[tuple[str, str]]
) -> None:
    host.writable("free")
    host.writable("var/kafka")
    for release, mode in ((OLD, 0o777), (NEW, 0o755)):
        host.writable(f"kafka_2.13-{release}/libs").chmod(mode)
        host.writable(f"kafka_2.13-{release}/gc").chmod(mode)
    host.environment = {"LOG_DIR": "HOME/var/kafka", "KAFKA_GC_LOG_OPTS": words}
    process = host.start()
    assert shown(host.findings(process)) == expected
    host.environment.pop("KAFKA_GC_LOG_OPTS")
    host.environment["KAFKA_OPTS"] = words
    assert shown(host.findings(process)) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (f"/bin/sh -c exec {SCRIPT} > HOME/kafka/kafka.log 2>&1", [FORBIDDEN]),
        (f"/bin/sh -c exec {SCRIPT} >>HOME/kafka/kafka.log", [FORBIDDEN]),
        (f"/bin/sh -c exec {SCRIPT} > ${{LOG_DIR}}/kafka.log 2>&1", []),
        (f"/bin/sh -c exec {SCRIPT} > /dev/null 2>&1", []),
        (f"{SCRIPT} > HOME/kafka/kafka.log", []),  # an argument of the script
    ],
)
def test_the_output_of_the_command_is_written_by_its_shell(
    host: Host, command: str, expected: list[tuple[str, str]]
) -> None:
    host.writable("var/kafka")
    host.environment["LOG_DIR"] = "HOME/var/kafka"
    process = host.start()
    host.command = command
    found = host.findings(process)
    assert shown(found) == expected
    for one in found:
        assert "Name a path in the unit" in one.remedy
    host.write(f"kafka_2.13-{NEW}/kafka.log").chmod(0o666)
    assert host.findings(process) == []


def test_the_output_of_a_script_of_the_unit_is_written_too(host: Host) -> None:
    host.writable("var/kafka")
    host.environment["LOG_DIR"] = "HOME/var/kafka"
    process = host.start()
    host.command = "HOME/start.sh"
    host.write("start.sh", f"echo x > HOME/kafka/state\nexec {SCRIPT} >> HOME/kafka/kafka.log 2>&1\n")
    assert shown(host.findings(process)) == [FORBIDDEN]
    host.write("start.sh", f"echo x > HOME/kafka/state\nexec {SCRIPT} >> HOME/var/kafka/kafka.log 2>&1\n")
    assert host.findings(process) == []


def test_without_a_log_of_the_garbage_collection_the_node_starts_and_does_not_log(host: Host) -> None:
    host.environment["EXTRA_ARGS"] = "-name kafkaServer"
    assert shown(host.findings()) == [WARNED]
    log_file = f"{host.home}/kafka/logs/server.log"
    (found,) = host.findings(log_file=log_file)  # gates read it
    assert (found.code, found.severity.value) == FORBIDDEN
    assert "Correct log_file in the inventory" in found.remedy
    assert shown(host.findings(log_file="/var/log/kafka/server.log")) == [WARNED]


def test_a_release_that_the_run_unpacks_belongs_to_the_ssh_user(host: Host) -> None:
    process = host.start()
    shutil.rmtree(host.home / f"kafka_2.13-{NEW}")
    (found,) = host.findings(process, brought=(NEW,))
    assert (found.code, found.severity.value) == FORBIDDEN
    assert "which the run unpacks as user rollout" in found.sentence
    assert "install -d -o daemon /var/log/kafka" in found.remedy
    assert "/logs" not in found.remedy
    host.environment["LOG_DIR"] = "HOME/var/kafka"
    host.writable("var/kafka")
    assert host.findings(process, brought=(NEW,)) == []


@pytest.mark.parametrize(
    ("before", "unit", "log_folder"),
    [
        ("+/usr/bin/install -d -o daemon HOME/kafka/logs", "", ""),
        ("/bin/true ; +/usr/bin/install -d -o daemon HOME/kafka/logs", "", ""),
        ("+/bin/sh -c 'sleep 0 ; mkdir -p HOME/kafka/logs'", "", ""),
        ("!!/bin/sh -c mkdir -p HOME/kafka/logs && chown daemon HOME/kafka/logs", "PermissionsStartOnly=yes\n", ""),
        ("", "LogsDirectory=kafka-x\n", "/var/log/kafka-x"),
        ("", "RuntimeDirectory=kafka-x:y other\n", "/run/kafka-x/logs"),
    ],
)
def test_a_folder_that_the_unit_prepares_for_its_user_is_no_finding(
    host: Host, before: str, unit: str, log_folder: str
) -> None:
    process = host.start()
    host.before, host.unit = before, unit
    if log_folder:
        host.environment["LOG_DIR"] = log_folder
    assert host.findings(process) == []


@pytest.mark.parametrize("prefix", ["", "-", "@", "+/bin/true ; "])
def test_a_command_that_runs_as_the_user_of_the_unit_prepares_nothing_that_the_user_cannot_write(
    host: Host, prefix: str
) -> None:
    host.before = f"{prefix}/bin/mkdir -p HOME/kafka/logs"
    assert shown(host.findings()) == [FORBIDDEN]


@pytest.mark.parametrize("service", [{}, {"installation": "", "symlink": ""}], ids=["archive", "package"])
def test_a_log_directory_that_the_next_start_cannot_write_is_a_blocker(host: Host, service: dict[str, str]) -> None:
    package = PackageSpec(install=("/x", "{version}"), check=("/x", "{version}"))
    options: dict[str, object] = {**service, "package": package} if service else {}
    host.environment["LOG_DIR"] = "HOME/var/kafka"
    host.writable("var/kafka")
    host.data = "HOME/data/kafka"
    process, data = host.start(), host.writable("data/kafka")
    assert host.findings(process, **options) == []
    data.chmod(0o755)  # another owner, or another User=
    (found,) = host.findings(process, **options)
    assert (found.code, found.severity.value) == FORBIDDEN
    assert f"Let daemon write {data} on the host" in found.remedy
    data.chmod(0o777)
    host.unit = "ProtectSystem=strict\nReadWritePaths=HOME/var/kafka\n"
    (found,) = host.findings(process, **options)
    assert "`ReadWritePaths=` with the folder" in found.remedy
    host.unit = "ProtectSystem=strict\nReadWritePaths=HOME/var/kafka HOME/data\n"
    assert host.findings(process, **options) == []


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("ProtectSystem=strict\n", [FORBIDDEN]),
        ("ProtectSystem=strict\nReadWritePaths=/data HOME/var/kafka\n", []),
        ("ProtectSystem=strict\nReadWritePaths=-HOME/linked\n", []),
        ("ProtectSystem=strict\nReadWritePaths=/data\nReadWritePaths=HOME\n", []),
        ("ProtectSystem=strict\nReadWritePaths=HOME\nReadOnlyPaths=HOME/var\n", [FORBIDDEN]),
        ("ReadOnlyPaths=HOME/var\nReadWritePaths=HOME/var/kafka\n", []),
        ("ProtectSystem=full\nProtectHome=yes\nReadWritePaths=\nPrivateTmp=no\n", []),
        ("ProtectSystem=strict\nBindPaths=/data:HOME/var/kafka:rbind\n", []),
        ("ProtectSystem=strict\nReadWritePaths=HOME/kafka_2.13-3.9.1/logs\n", [FORBIDDEN]),
    ],
)
def test_what_the_unit_makes_read_only_cannot_be_written(
    host: Host, unit: str, expected: list[tuple[str, str]]
) -> None:
    host.writable("var/kafka")
    (host.home / "linked").symlink_to("var")
    host.environment["LOG_DIR"] = "HOME/var/kafka"
    host.unit = unit
    found = host.findings()
    assert shown(found) == expected
    for one in found:
        assert "is read-only for the unit" in one.sentence
        assert "`ReadWritePaths=`" in one.remedy


def test_a_log_directory_that_leads_to_what_systemd_makes_for_the_unit_can_be_written(host: Host) -> None:
    host.environment["LOG_DIR"] = "HOME/var/kafka"
    host.writable("var/kafka")
    (host.home / "data").symlink_to("/var/lib/kafka-x")
    host.data = "HOME/data"
    host.unit = "ProtectSystem=strict\nReadWritePaths=HOME/var/kafka\n"
    assert shown(host.findings()) == [FORBIDDEN]
    host.unit += "StateDirectory=kafka-x\n"
    assert host.findings() == []


def test_a_folder_of_one_release_that_the_unit_can_write_is_not_that_of_another(host: Host) -> None:
    host.writable(f"kafka_2.13-{NEW}/logs")
    host.unit = "ProtectSystem=strict\nReadWritePaths=HOME/kafka/logs\n"
    assert host.findings() == []
    host.unit = f"ProtectSystem=strict\nReadWritePaths=HOME/kafka_2.13-{OLD}/logs\n"
    assert shown(host.findings()) == [FORBIDDEN]
    assert host.findings(releases=(OLD,)) == []


def test_a_start_without_the_scripts_and_a_package_write_nothing_that_moves(host: Host) -> None:
    assert host.findings(["java", "-cp", "HOME/kafka/libs/*", "kafka.Kafka", "HOME/etc/server.properties"]) == []
    package = PackageSpec(install=("/x", "{version}"), check=("/x", "{version}"))
    assert host.findings(host.start(), installation="", symlink="", package=package) == []


def test_without_a_process_the_scripts_of_the_release_show_the_folder(host: Host) -> None:
    assert shown(host.findings([])) == [FORBIDDEN]
    host.write(f"kafka_2.13-{NEW}/bin/kafka-run-class.sh", "exec java kafka.Kafka\n")
    assert host.findings([]) == []


def test_a_folder_that_the_ssh_user_cannot_enter_is_unknown_only_if_it_is_not_itself_the_answer(host: Host) -> None:
    logs = host.writable("var/kafka")
    logs.chmod(0o733)
    host.environment["LOG_DIR"] = "HOME/var/kafka"
    assert host.findings() == []
    hidden = host.writable("hidden/kafka")
    host.environment["LOG_DIR"] = "HOME/hidden/kafka"
    process = host.start()
    hidden.parent.chmod(0o700)
    found = host.findings(process)
    assert {one.code for one in found} <= {"START-PATH-UNKNOWN", "START-FILE-FORBIDDEN"}
    assert found


def test_a_user_that_the_host_does_not_know_is_unknown(host: Host) -> None:
    (found,) = host.findings(user="no-such-user")
    assert (found.code, found.severity.value) == ("START-PATH-UNKNOWN", "warning")
