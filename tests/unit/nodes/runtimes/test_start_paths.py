"""Where the paths of a node's next start lead: on folders of this machine, before and after the link is switched."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, cast

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.findings import Finding
from kafka_rollout.model.host_state import HostFacts, HostPath, HostState, PlaceState, StartFileKind
from kafka_rollout.model.topology import NodeSpec, PackageSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.nodes.runtimes.hosts.start_paths import read_start_paths
from kafka_rollout.nodes.runtimes.hosts.user_access import read_unit_user
from kafka_rollout.nodes.runtimes.start_files import all_start_paths
from kafka_rollout.planning.findings.start_paths import start_path_findings
from kafka_rollout.releases.facts import Release
from tests.fakes.local_host import without_root

OLD, NEW = Release(3, 9, 1), Release(4, 3, 1)


@dataclass
class ShellOfThisMachine:
    """The host of one node. `unit`: what systemctl shows of it, `file`: its file, `user`: what it shows of its user.
    Commands do not run as root."""

    home: Path
    unit: str = ""
    file: str | None = ""
    user: str = "User=\nGroup=\nSupplementaryGroups="
    lines: list[str] = field(default_factory=list)

    @property
    def shell(self) -> ShellOfThisMachine:
        return self

    def run(self, node: object, command: str | Sequence[str], *, text: str = "", within_s: float = 30) -> Done:
        line = command if isinstance(command, str) else " ".join(command)
        self.lines.append(line)
        if "=User," in line:
            with TemporaryDirectory(prefix="systemctl-") as folder:
                Path(folder).chmod(0o755)
                program = Path(folder) / "systemctl"
                program.write_text(f"#!/bin/sh\necho '{self.user}'\n")
                program.chmod(0o755)
                return self._run(f"PATH={folder}:$PATH; {line}", text)
        if "systemctl show" in line:
            return Done(0, self.unit.encode(), "")
        if line.startswith("systemctl cat"):
            return Done(1, b"", "Permission denied") if self.file is None else Done(0, self.file.encode(), "")
        return self._run(line, text)

    def _run(self, line: str, text: str) -> Done:
        ran = subprocess.run(
            [*without_root(), "sh", "-c", line], input=text.encode(), capture_output=True, check=False, timeout=60
        )
        return Done(ran.returncode, ran.stdout, ran.stderr.decode())


@dataclass
class Host:
    """A folder with two releases, the link to the old one, and a folder `etc` outside."""

    home: Path

    def __post_init__(self) -> None:
        for release in (OLD, NEW):
            for name in ("bin/kafka-server-start.sh", f"libs/kafka_2.13-{release}.jar", "config/server.properties"):
                self.write(f"kafka_2.13-{release}/{name}", f"{name} of {release}")
        for name in ("etc/server.properties", "etc/x", "etc/y", "own/start.sh", "data/x"):
            self.write(name, "own")
        (self.home / "kafka").symlink_to(f"kafka_2.13-{OLD}")

    def write(self, name: str, text: str = "x") -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if name.endswith(".sh") else 0o644)
        return path

    def switch(self) -> None:
        (self.home / "draft").symlink_to(f"kafka_2.13-{NEW}")
        (self.home / "draft").rename(self.home / "kafka")

    def node(self, configuration_file: str = "etc/server.properties") -> NodeSpec:
        service = ServiceSpec(
            host="kafka-1",
            installation=f"{self.home}/kafka_2.13-{{release}}",
            symlink=f"{self.home}/kafka",
            configuration_file=f"{self.home}/{configuration_file}",
        )
        return NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=service)

    def read(
        self,
        config: dict[str, str],
        *arguments: str,
        planned: Sequence[Mapping[str, str]] = (),
        unit: str = "",
        environment: Sequence[str] = (),
        opened: Sequence[str] = (),
        releases: Sequence[Release] = (NEW,),
        node: NodeSpec | None = None,
        class_path: str = "HOME/kafka/bin/../libs/kafka_2.13-3.9.1.jar",
        file: str | None = "",
        user: str = "",
        wrapper: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        kept: Sequence[str] = (),
        lines: Sequence[str] = (),
    ) -> HostState:
        node = node or self.node()
        start = [*self.texts("java", "-cp", class_path), *self.texts(*arguments)]
        text = None if file is None else "".join(self.texts(file))
        link, paths, problem = read_start_paths(
            cast(HostCommands, self.shell("".join(self.texts(unit)), text, user)),
            node,
            releases,
            config=self.in_home(config),
            planned=[self.in_home(one) for one in planned],
            environment=self.texts(*environment),
            facts=HostFacts(arguments=tuple(start), opened=tuple(self.texts(*opened))),
            wrapper=self.texts(*wrapper),
            variables={name: self.texts(value)[0] for name, value in (variables or {}).items()},
            kept=self.texts(*kept),
            lines=self.texts(*lines),
        )
        return HostState(
            name="kafka-1",
            unit="kafka.service",
            symlink=f"{self.home}/kafka",
            folders={},
            releases=frozenset({OLD, NEW}),
            symlink_can_switch=True,
            stop_timeout_s=300.0,
            link=link,
            start_paths=paths,
            start_paths_problem=problem,
        )

    def shell(self, unit: str, file: str | None, user: str) -> ShellOfThisMachine:
        shown = f"User={user}\nGroup=\nSupplementaryGroups="
        return ShellOfThisMachine(self.home, unit, file, shown)

    def in_home(self, config: Mapping[str, str]) -> dict[str, str]:
        return {name: value.replace("HOME", str(self.home)) for name, value in config.items()}

    def texts(self, *texts: str) -> list[str]:
        return [text.replace("HOME", str(self.home)) for text in texts]

    def findings(self, state: HostState, releases: Sequence[Release] = (NEW,)) -> list[Finding]:
        return list(start_path_findings(self.node(), state, releases))


@pytest.fixture
def host() -> Iterator[Host]:
    home = Path(mkdtemp(prefix="start-paths-")).resolve()
    home.chmod(0o755)
    yield Host(home)
    for folder in home.rglob("hidden"):
        folder.chmod(0o755)
    shutil.rmtree(home)


def shown(found: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(one.code, one.severity.value) for one in found]


SWITCHED, WARNED = ("START-PATH-SWITCHED", "blocker"), ("START-PATH-SWITCHED", "warning")
CONFIGURATION = "kafka.Kafka HOME/etc/server.properties"
EXEC = "ExecStart={{ path=/x ; argv[]={} ; ignore_errors=no ; start_time=[n/a] ; pid=50 }}\n"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, [WARNED]),
        ({"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}, [WARNED]),
        (
            {"authorizer.class.name": "org.apache.ranger.authorization.kafka.authorizer.RangerKafkaAuthorizer"},
            [SWITCHED],
        ),
    ],
)
def test_a_file_of_the_site_in_a_folder_of_the_class_path_is_not_left_behind(
    host: Host, config: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    path = "HOME/kafka/config:HOME/kafka/bin/../libs/kafka_2.13-3.9.1.jar"
    host.write(f"kafka_2.13-{OLD}/config/log4j.properties")  # of the archive
    assert shown(host.findings(host.read(config, CONFIGURATION, class_path=path))) == []
    own = host.write(f"kafka_2.13-{OLD}/config/ranger-kafka-security.xml")
    (found,) = host.findings(host.read(config, CONFIGURATION, class_path=path))
    assert shown([found]) == expected
    assert f"{host.home}/kafka/config/ranger-kafka-security.xml" in found.sentence
    assert host.findings(host.read(config, CONFIGURATION)) == []  # it is not in the class path
    host.write(f"kafka_2.13-{NEW}/config/ranger-kafka-security.xml", own.read_text())
    assert host.findings(host.read(config, CONFIGURATION, class_path=path)) == []


@pytest.mark.parametrize(
    ("config", "arguments", "expected"),
    [
        ({}, "kafka.Kafka HOME/etc/server.properties", []),
        ({}, "kafka.Kafka HOME/kafka/config/server.properties", [SWITCHED]),
        ({}, "kafka.Kafka HOME/kafka/bin/../config/server.properties", [SWITCHED]),
        ({}, "-javaagent:HOME/kafka/jmx/agent.jar=8080:HOME/kafka/jmx/rules.yml", [SWITCHED, SWITCHED]),
        ({}, "-javaagent:HOME/kafka/libs/agent.jar=8080:HOME/etc/rules.yml", [SWITCHED]),
        ({}, "-agentpath:HOME/kafka/profiler.so=start,file=x", [SWITCHED]),
        ({}, "@HOME/kafka/jmx/jvm.options", [SWITCHED]),
        ({"sasl.jaas.config": "x required keyTab='HOME/kafka/ssl/k.jks' a=b;"}, "", [SWITCHED]),
        ({}, "-Dcom.sun.management.jmxremote.password.file=HOME/kafka/config/jmx.password", [SWITCHED]),
        ({}, "-Djavax.net.ssl.trustStore=HOME/kafka/secrets/trust.jks", [SWITCHED]),
        ({}, "-Djavax.net.ssl.trustStorePassword=HOME/kafka/secrets/trust.jks", []),
        ({}, "-Djava.security.krb5.conf=HOME/kafka/config/krb5.conf", [SWITCHED]),
        ({}, "-Xlog:gc*:file=HOME/kafka/logs/gc.log:time -Dkafka.logs.dir=HOME/kafka/logs", []),
        ({}, "-DlogDir=HOME/kafka/logs -Dkafka.log.dir=HOME/kafka/logs -Dlog4j.logs.path=HOME/kafka/logs", []),
        ({}, "-Dlog4j.configuration=file:HOME/kafka/bin/../config/log4j.properties", []),
        ({}, "-Dlog4j2.configurationFile=file:HOME/kafka/config/own.yaml", [WARNED]),
        ({}, "-cp HOME/kafka/plugins/*:HOME/kafka/bin/../libs/kafka_2.13-3.9.1.jar", [SWITCHED]),
        ({"log.dirs": "HOME/data,HOME/kafka/data"}, "", [SWITCHED]),
        ({"metadata.log.dir": "HOME/linked/data"}, "", [SWITCHED]),
        ({"listeners": "SSL://:9092", "ssl.keystore.location": "HOME/kafka/ssl/k.jks"}, "", [SWITCHED]),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:HOME/kafka/jwks.json"}, "", [SWITCHED]),
        ({"config.providers.file.param.allowed.paths": "HOME/kafka/secrets"}, "", [SWITCHED]),
        ({"ssl.key.password": "${file:HOME/kafka/secrets/pw:key}"}, "", [SWITCHED]),
        ({"ssl.key.password": "HOME/kafka/config"}, "", []),
        ({"remote.log.storage.manager.class.path": "HOME/kafka/rsm/*"}, "", [SWITCHED]),
        ({"zookeeper.connect": "zk:2181/kafka", "advertised.listeners": "PLAINTEXT://h:1"}, "", []),
    ],
)
def test_each_path_that_a_start_reads_is_followed_through_the_link(
    host: Host, config: dict[str, str], arguments: str, expected: list[tuple[str, str]]
) -> None:
    for name in (
        "jmx/agent.jar",
        "jmx/rules.yml",
        "jmx/jvm.options",
        "libs/agent.jar",
        "profiler.so",
        "config/krb5.conf",
        "config/own.yaml",
        "config/jmx.password",
        "secrets/trust.jks",
        "plugins/x.jar",
        "data/meta.properties",
        "ssl/k.jks",
        "jwks.json",
        "secrets/pw",
        "rsm/x.jar",
        "logs/server.log",
    ):
        host.write(f"kafka_2.13-{OLD}/{name}")
    (host.home / "linked").symlink_to(f"{host.home}/kafka")
    state = host.read(config, *arguments.split())
    assert shown(host.findings(state)) == expected
    before = {path.path: path for path in state.start_paths}
    assert all(path.now.path == os.path.realpath(path.path) for path in before.values() if path.path.startswith("/"))
    host.switch()
    for path in before.values():
        if path.path.startswith("/"):
            assert path.after[NEW].path == os.path.realpath(path.path)
            exists = path.after[NEW].state is not PlaceState.MISSING
            assert exists == Path(path.path).exists()


def test_a_pipe_in_the_place_of_a_file_is_not_read(host: Host) -> None:
    for release in (OLD, NEW):
        (host.home / f"kafka_2.13-{release}/jmx").mkdir()
        os.mkfifo(host.home / f"kafka_2.13-{release}/jmx/agent.jar")
    found = {one.path: one for one in host.read({}, "-javaagent:HOME/kafka/jmx/agent.jar").start_paths}
    assert found[f"{host.home}/kafka/jmx/agent.jar"].after[NEW].is_same is None


def test_a_rollback_to_the_older_folder_is_checked_in_the_same_way(host: Host) -> None:
    host.write(f"kafka_2.13-{NEW}/jmx/agent.jar")
    host.switch()
    start = ("-javaagent:HOME/kafka/jmx/agent.jar", *CONFIGURATION.split())
    (found,) = host.findings(host.read({}, *start, releases=(OLD,)), (OLD,))
    assert (found.code, found.severity.value) == SWITCHED
    assert (
        f"Copy {host.home}/kafka_2.13-{NEW}/jmx/agent.jar to {host.home}/kafka_2.13-{OLD}/jmx/agent.jar."
        in found.remedy
    )
    assert host.findings(host.read({}, *start)) == []  # the release that runs


def test_a_copy_in_the_folder_of_the_release_is_the_remedy_of_what_is_missing(host: Host) -> None:
    agent = host.write(f"kafka_2.13-{OLD}/jmx/agent.jar", "agent")
    key = host.write(f"kafka_2.13-{OLD}/ssl/k.jks", "key")
    config = {"listeners": "SSL://:9092", "ssl.keystore.location": "HOME/kafka/ssl/k.jks"}
    arguments = ("-javaagent:HOME/kafka/jmx/agent.jar=9404",)
    found = host.findings(host.read(config, *arguments))
    assert shown(found) == [SWITCHED, SWITCHED]
    for source, finding in zip((key, agent), found, strict=True):
        target = Path(str(source).replace(str(OLD), str(NEW)))
        assert f"Copy {source} to {target}." in finding.remedy
        target.parent.mkdir()
        shutil.copy(source, target)
    assert host.findings(host.read(config, *arguments)) == []
    host.write(f"kafka_2.13-{NEW}/jmx/agent.jar", "a newer agent")
    host.write(f"kafka_2.13-{NEW}/ssl/k.jks", "another key")
    assert shown(host.findings(host.read(config, *arguments))) == [WARNED]


def test_a_move_out_of_the_folders_of_releases_is_the_remedy_of_a_configuration(host: Host) -> None:
    unit = EXEC.format("HOME/kafka/bin/kafka-server-start.sh HOME/kafka/config/server.properties")
    state = host.read({}, "kafka.Kafka", "HOME/kafka/config/server.properties", unit=unit)
    (found,) = host.findings(state)
    assert (found.code, found.severity.value) == SWITCHED
    assert "another configuration" in found.sentence
    assert "/etc/kafka/server.properties" in found.remedy
    assert "inventory rights --cluster NAME --of hosts" in found.remedy
    moved = EXEC.format("HOME/kafka/bin/kafka-server-start.sh HOME/etc/server.properties")
    assert host.findings(host.read({}, *CONFIGURATION.split(), unit=moved)) == []


def test_a_folder_that_is_a_link_in_each_release_stays_and_in_one_only_does_not(host: Host) -> None:
    for release in (OLD, NEW):
        shutil.rmtree(host.home / f"kafka_2.13-{release}/config")
    (host.home / f"kafka_2.13-{OLD}/config").symlink_to("../etc")
    start = ("kafka.Kafka", "HOME/kafka/config/server.properties")
    assert shown(host.findings(host.read({}, *start))) == [SWITCHED]
    assert host.findings(host.read({}, *start, releases=()), ()) == []
    (host.home / f"kafka_2.13-{NEW}/config").symlink_to(host.home / "etc")
    assert host.findings(host.read({}, *start)) == []


def test_what_the_unit_names_is_read_too(host: Host) -> None:
    host.write(f"kafka_2.13-{OLD}/bin/own-start.sh")
    host.write(f"kafka_2.13-{OLD}/config/kafka.env")
    unit = (
        "EnvironmentFiles=HOME/kafka/config/kafka.env (ignore_errors=no)\nFragmentPath=/etc/kafka.service\n"
        f"WorkingDirectory=HOME/kafka\n{EXEC.format('HOME/kafka/bin/own-start.sh > HOME/kafka/kafka.log 2>&1')}"
    )
    found = host.findings(host.read({}, *CONFIGURATION.split(), unit=unit))
    assert shown(found) == [SWITCHED, SWITCHED]
    assert ["program of the unit" in one.subject or "environment" in one.subject for one in found] == [True, True]
    host.write(f"kafka_2.13-{OLD}/jmx/a.jar")
    host.write(f"kafka_2.13-{OLD}/jmx/c.yml")
    agent = host.read({}, "-javaagent:jmx/a.jar=7071:jmx/c.yml", unit="WorkingDirectory=HOME/kafka\n")
    assert shown(host.findings(agent)) == [SWITCHED, SWITCHED]
    relative = host.read({}, "kafka.Kafka", "config/server.properties", unit="WorkingDirectory=HOME/kafka\n")
    assert shown(host.findings(relative)) == [SWITCHED]
    options = ("-javaagent:HOME/kafka/jmx.jar", "-Dlog4j2.configurationFile=HOME/kafka/bin/../config/x.yaml")
    host.write(f"kafka_2.13-{OLD}/jmx.jar")
    host.write(f"kafka_2.13-{OLD}/config/x.yaml")
    found = host.findings(host.read({}, *CONFIGURATION.split(), environment=options))
    assert shown(found) == [SWITCHED, WARNED]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ReadWritePaths=/var/log HOME/kafka/logs", [SWITCHED]),
        ("ReadWritePaths=-HOME/kafka/logs HOME/kafka HOME/kafka/", []),
        ("ReadOnlyPaths=+HOME/kafka/logs", [SWITCHED]),
        ("BindPaths=HOME/kafka/logs:/logs:rbind", [SWITCHED]),
        ("BindPaths=HOME/data:HOME/kafka/logs", []),
        ("LoadCredential=token:HOME/kafka/logs/token", [SWITCHED]),
        ("LoadCredentialEncrypted=token:HOME/kafka/logs/token", [SWITCHED]),
        ("InaccessiblePaths=HOME/kafka/logs", [SWITCHED]),
    ],
)
def test_a_path_without_which_systemd_makes_no_sandbox_is_followed(
    host: Host, line: str, expected: list[tuple[str, str]]
) -> None:
    host.write(f"kafka_2.13-{OLD}/logs/token")
    found = host.findings(host.read({}, *CONFIGURATION.split(), unit=f"{line}\n"))
    assert shown(found) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ConditionPathExists=HOME/kafka/config/own.flag", [SWITCHED]),
        ("ConditionPathExists=HOME/kafka/config/server.properties", []),
        ("AssertFileIsExecutable = HOME/kafka/logs/kafka.log", [SWITCHED]),
        ("ConditionDirectoryNotEmpty=HOME/kafka/logs/", [SWITCHED]),
        ("ConditionPathExists=|HOME/kafka/logs", [SWITCHED]),
        ("ConditionPathExists=|HOME/kafka/logs\nConditionPathExists=|/etc", []),
        ("ConditionPathExists=|HOME/kafka/logs\nConditionVirtualization=|yes", []),
        ("ConditionPathExists=!HOME/kafka/logs", []),
        ("ConditionPathExists=HOME/kafka/logs\n# a drop-in\n[Unit]\nConditionUser=", []),
        ("AssertPathExists=HOME/kafka/logs\nConditionUser=", [SWITCHED]),
        ("# ConditionPathExists=HOME/kafka/logs", []),
        ("ConditionPathExists=HOME/kafka/logs-%i", []),
        ("StandardOutput=append:HOME/kafka/logs/kafka.log", [SWITCHED]),
        ("StandardError=file:HOME/kafka/kafka.log", []),
        ("StandardOutput=append:HOME/kafka/logs/kafka.log\nStandardOutput=journal", []),
        ("PIDFile=HOME/kafka/logs/kafka.pid", [SWITCHED]),
        ("PIDFile=/run/kafka.pid", []),
    ],
)
def test_what_only_the_file_of_the_unit_shows_is_followed(
    host: Host, line: str, expected: list[tuple[str, str]]
) -> None:
    """systemd skips the start without an error (conditions), or ends it before its first program."""
    host.write(f"kafka_2.13-{OLD}/logs/kafka.log")
    host.write(f"kafka_2.13-{OLD}/config/own.flag")
    file = f"# /etc/systemd/system/kafka.service\n[Unit]\n{line}\n"
    found = host.findings(host.read({}, *CONFIGURATION.split(), file=file))
    assert shown(found) == expected
    assert all("systemd does not start the node" in one.sentence for one in found)
    (unknown,) = host.findings(host.read({}, *CONFIGURATION.split(), file=None))
    assert (unknown.code, "`systemctl cat kafka.service` on host" in unknown.sentence) == ("START-PATH-UNKNOWN", True)


def test_a_program_without_which_systemd_starts_and_stops_the_node_is_a_warning(host: Host) -> None:
    for name in ("pre.sh", "stop.sh"):
        host.write(f"kafka_2.13-{OLD}/scripts/{name}")
    stop = EXEC.replace("ExecStart=", "ExecStop=").format("HOME/kafka/scripts/stop.sh")
    optional = EXEC.replace("ExecStart=", "ExecStartPre=").replace("errors=no", "errors=yes")
    pre = optional.format("HOME/kafka/scripts/pre.sh")
    assert shown(host.findings(host.read({}, *CONFIGURATION.split(), unit=stop + pre))) == [WARNED]
    needed = pre.replace("errors=yes", "errors=no")
    assert shown(host.findings(host.read({}, *CONFIGURATION.split(), unit=stop + needed))) == [WARNED, SWITCHED]


@pytest.mark.parametrize(
    ("script", "library", "expected"),
    [
        ("HOME/kafka/bin/kafka-server-start.sh", "HOME/kafka_2.13-3.9.1/bin/../libs/kafka_2.13-3.9.1.jar", []),
        ("HOME/kafka_2.13-3.9.1/bin/kafka-server-start.sh", "HOME/kafka/bin/../libs/x.jar", ["START-NOT-SWITCHED"]),
        ("HOME/own/start.sh", "HOME/kafka_2.13-3.9.1/bin/../libs/x.jar", ["START-NOT-SWITCHED"]),
        ("HOME/own/start.sh", "HOME/kafka_2.13-3.9.1/libs/*", ["START-NOT-SWITCHED"]),
        ("HOME/own/start.sh", "HOME/kafka/libs/*", []),
        ("HOME/linked/bin/kafka-server-start.sh", "HOME/linked/bin/../libs/x.jar", []),
        (
            "HOME/kafka/bin/kafka-server-start.sh",
            "HOME/kafka_2.13-3.9.1/libs/*:HOME/kafka/bin/../libs/x.jar",
            ["START-NOT-SWITCHED"],
        ),
        ("HOME/kafka/bin/kafka-server-start.sh", "HOME/plugins/*:HOME/kafka/bin/../libs/x.jar", []),
        ("HOME/kafka/bin/kafka-server-start.sh", "HOME/kafka/libs/*:HOME/kafka/bin/../libs/x.jar", []),
    ],
)
@pytest.mark.parametrize("releases", [(NEW,), ()])
def test_a_unit_that_does_not_start_through_the_link_is_a_blocker(
    host: Host, script: str, library: str, expected: list[str], releases: tuple[Release, ...]
) -> None:
    (host.home / "linked").symlink_to(f"{host.home}/kafka")
    unit = EXEC.format(f"{script} HOME/etc/server.properties") + EXEC.format(
        "HOME/kafka/bin/kafka-server-stop.sh"
    ).replace("Start", "Stop")
    for release in (OLD, NEW):
        host.write(f"kafka_2.13-{release}/bin/kafka-server-stop.sh")
    start = ("-cp", library, *CONFIGURATION.split())
    state = host.read({}, *start, unit=unit, releases=releases, class_path="/usr/share/none.jar")
    assert [one.code for one in host.findings(state, releases)] == expected
    installed = host.read({}, *start, unit=unit, releases=(OLD,), class_path="/usr/share/none.jar")
    assert host.findings(installed, (OLD,)) == []  # a restart switches nothing


@pytest.mark.parametrize(
    ("command", "directory", "expected"),
    [
        ("/bin/sh -c exec bin/kafka-server-start.sh HOME/etc/x", "HOME/kafka", []),
        ("/bin/bash bin/kafka-server-start.sh HOME/etc/x", "HOME/kafka", []),
        ("/bin/sh -c exec bin/kafka-server-start.sh HOME/etc/x", "HOME/kafka_2.13-3.9.1", ["START-NOT-SWITCHED"]),
        ("/bin/sh -c cd HOME/other && bin/kafka-server-start.sh HOME/etc/x", "HOME", ["START-NOT-SWITCHED"]),
    ],
)
def test_a_script_below_the_folder_in_which_the_unit_starts_is_switched_with_it(
    host: Host, command: str, directory: str, expected: list[str]
) -> None:
    """The process then has the class path of the folder itself."""
    unit = f"{EXEC.format(command)}WorkingDirectory={directory}\n"
    state = host.read({}, *CONFIGURATION.split(), unit=unit, class_path="HOME/kafka_2.13-3.9.1/bin/../libs/x.jar")
    assert [one.code for one in host.findings(state)] == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("H=$(readlink -f HOME/kafka)", 'exec "$H/bin/kafka-server-start.sh" HOME/etc/x'), "START-PATH-UNKNOWN"),
        (("L=HOME/kafka", "H=`realpath $L`", "exec $H/bin/kafka-server-start.sh HOME/etc/x"), "START-PATH-UNKNOWN"),
        (("cd -P HOME/kafka && exec ./bin/kafka-server-start.sh HOME/etc/x",), "START-PATH-UNKNOWN"),
        (("H=$(readlink -f HOME/kafka_2.13-3.9.1)", "exec $H/bin/x HOME/etc/x # HOME/kafka"), "START-NOT-SWITCHED"),
        (("H=$(cat HOME/etc/folder)", "exec $H/bin/kafka-server-start.sh HOME/etc/x"), "START-NOT-SWITCHED"),
    ],
)
def test_a_start_that_resolves_the_link_itself_can_follow_it(host: Host, lines: tuple[str, ...], expected: str) -> None:
    """The process has the class path of the folder itself, as one that does not start through the link."""
    unit = EXEC.format("HOME/own/start.sh")
    libraries = "HOME/kafka_2.13-3.9.1/bin/../libs/x.jar"
    state = host.read({}, *CONFIGURATION.split(), unit=unit, wrapper=lines, lines=lines, class_path=libraries)
    severity = "warning" if expected == "START-PATH-UNKNOWN" else "blocker"
    assert shown(host.findings(state)) == [(expected, severity)]


@pytest.mark.parametrize(
    ("lines", "configurations", "expected"),
    [
        (("exec HOME/kafka_2.13-3.9.1/bin/kafka-server-start.sh HOME/etc/x",), ["etc/x"], ["START-NOT-SWITCHED"]),
        (
            ("HOME/kafka_2.13-3.9.1/bin/kafka-server-start.sh 'HOME/etc/x' >>HOME/log",),
            ["etc/x"],
            ["START-NOT-SWITCHED"],
        ),
        (("exec HOME/kafka/bin/kafka-server-start.sh HOME/etc/x",), ["etc/x"], []),
        (("HOME/kafka_2.13-3.9.1/bin/x.sh", "HOME/kafka/bin/kafka-server-start.sh HOME/etc/x"), ["etc/x"], []),
        (("x kafka-server-start.sh -daemon HOME/etc/x", "y kafka-server-start.sh HOME/etc/y"), ["etc/x", "etc/y"], []),
        (('exec HOME/kafka/bin/kafka-server-start.sh "$@"', "exec $X/bin/kafka-server-start.sh $X/etc/x"), [], []),
        (("HOME/kafka/bin/kafka-server-start.sh etc/x",), [], []),
    ],
)
def test_what_a_script_of_the_unit_starts_now_counts_more_than_what_the_process_was_started_with(
    host: Host, lines: tuple[str, ...], configurations: list[str], expected: list[str]
) -> None:
    unit = EXEC.format("HOME/own/start.sh")
    start = ("-cp", "HOME/kafka/bin/../libs/x.jar", *CONFIGURATION.split())
    state = host.read({}, *start, unit=unit, wrapper=lines, class_path="/usr/share/none.jar")
    read = [path for path in state.start_paths if path.kind is StartFileKind.CONFIGURATION and path.is_of_unit]
    assert [path.path for path in read] == [f"{host.home}/{name}" for name in configurations]
    assert [one.code for one in host.findings(state)] == expected


@pytest.mark.parametrize(
    ("command", "variables", "configurations", "expected"),
    [
        ("HOME/kafka/bin/kafka-server-start.sh ${CONF}", {"CONF": "HOME/etc/x"}, ["etc/x"], []),
        ("HOME/kafka/bin/kafka-server-start.sh $CONF", {"CONF": "HOME/etc/x --override a=b"}, ["etc/x"], []),
        ("/bin/sh -c exec HOME/kafka/bin/kafka-server-start.sh $CONF", {"CONF": "HOME/etc/x"}, ["etc/x"], []),
        ("HOME/kafka/bin/kafka-server-start.sh ${FOLDER}/x", {"FOLDER": "HOME/etc"}, ["etc/x"], []),
        ("HOME/kafka/bin/kafka-server-start.sh ${FOLDER}/x", {}, [], []),
        (
            "${KAFKA}/bin/kafka-server-start.sh HOME/etc/x",
            {"KAFKA": "HOME/kafka_2.13-3.9.1"},
            ["etc/x"],
            ["START-NOT-SWITCHED"],
        ),
    ],
)
def test_variables_in_the_command_of_the_unit_have_the_values_of_the_next_start(
    host: Host, command: str, variables: dict[str, str], configurations: list[str], expected: list[str]
) -> None:
    start = ("-cp", "HOME/kafka/bin/../libs/x.jar", *CONFIGURATION.split())
    state = host.read({}, *start, unit=EXEC.format(command), variables=variables, class_path="/usr/share/none.jar")
    read = [path for path in state.start_paths if path.kind is StartFileKind.CONFIGURATION and path.is_of_unit]
    assert [path.path for path in read] == [f"{host.home}/{name}" for name in configurations]
    assert [one.code for one in host.findings(state)] == expected


def test_a_command_that_root_executes_through_a_variable_is_not_asked_for_the_user_of_the_unit(site: Host) -> None:
    for release in (OLD, NEW):
        site.write(f"kafka_2.13-{release}/pre.sh").chmod(0o744)
    pre = EXEC.replace("ExecStart=", "ExecStartPre=").format("${KAFKA}/pre.sh")
    file = "[Service]\nExecStartPre=+${KAFKA}/pre.sh\n"
    state = site.read(
        {}, *CONFIGURATION.split(), unit=START + pre, file=file, user="daemon", variables={"KAFKA": "HOME/kafka"}
    )
    assert site.findings(state) == []


def test_what_is_in_a_hidden_folder_is_unknown_unless_the_process_has_it_open(host: Host) -> None:
    data = host.write("hidden/data/meta.properties").parent
    data.parent.chmod(0o000)
    state = host.read({"log.dirs": "HOME/hidden/data"})
    (found,) = host.findings(state)
    assert (found.code, found.severity.value) == ("START-PATH-UNKNOWN", "info")
    assert f"cannot see where {data} of node 1 leads" in found.sentence
    assert host.findings(host.read({"log.dirs": "HOME/hidden/data"}, opened=["HOME/hidden/data/.lock"])) == []
    assert host.findings(host.read({"log.dirs": "HOME/hidden"})) == []
    with_rights = [HostPath(path=str(one), mode=0o40755, user_id=0, owner="root") for one in (data, *data.parents)]
    assert host.findings(replace(state, paths=tuple(with_rights))) == []
    a_link = replace(with_rights[0], mode=0o120777)
    assert host.findings(replace(state, paths=(a_link, *with_rights[1:]))) == [found]
    private = host.write(f"kafka_2.13-{OLD}/hidden/k.jks").parent
    private.chmod(0o000)
    config = {"listeners": "SSL://:9092", "ssl.keystore.location": "HOME/kafka/hidden/k.jks"}
    assert shown(host.findings(host.read(config))) == [SWITCHED]


def test_without_a_target_what_each_release_needs_is_a_warning_and_what_none_can_have_a_blocker(host: Host) -> None:
    host.write(f"kafka_2.13-{OLD}/jmx/agent.jar")
    start = ("-javaagent:HOME/kafka/jmx/agent.jar", "kafka.Kafka", "HOME/kafka/config/server.properties")
    found = host.findings(host.read({}, *start, releases=()), ())
    assert sorted(shown(found)) == [SWITCHED, WARNED]


MISSING_BLOCKS, MISSING_WARNS = ("START-PATH-MISSING", "blocker"), ("START-PATH-MISSING", "warning")
PRE = EXEC.replace("ExecStart=", "ExecStartPre=")
PROVIDERS = {
    "config.providers": "file",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
}


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ({"kept": ["-javaagent:HOME/gone.jar=7071:HOME/etc/rules.yml"]}, [MISSING_BLOCKS]),
        ({"kept": ["-javaagent:HOME/etc/a.jar=7071:HOME/gone.yml"]}, [MISSING_BLOCKS]),
        ({"kept": ["-javaagent:HOME/etc/a.jar=agentContext=/jolokia,log=HOME/gone.log"]}, []),
        ({"kept": ["-javaagent:HOME/etc/a.jar=policyLocation=classpath:/jolokia-access.xml"]}, []),
        ({"kept": ["-javaagent:HOME/etc/a.jar=port=8778,policyLocation=file:HOME/gone.xml"]}, [MISSING_WARNS]),
        ({"kept": ["-javaagent:HOME/etc/a.jar=config=HOME/gone.properties,host=*"]}, [MISSING_BLOCKS]),
        ({"kept": ["-Dlogging.config=classpath:/gone.xml"]}, []),
        ({"kept": ["-javaagent:$LIBS/gone.jar", "-javaagent:gone.jar"]}, []),
        ({"kept": ["-agentpath:HOME/gone.so"]}, [MISSING_BLOCKS]),
        ({"kept": ["@HOME/gone"]}, [MISSING_BLOCKS]),
        ({"kept": ["-Dlog4j2.configurationFile=file:HOME/gone.yaml"]}, [MISSING_WARNS]),
        ({"kept": ["-Djava.security.krb5.conf=HOME/gone.conf"]}, [MISSING_WARNS]),
        ({"kept": ["-Djava.io.tmpdir=HOME/gone", "-Dprometheus.path=/metrics", "-DlogFile=HOME/gone.log"]}, []),
        ({"config": {"remote.log.metadata.manager.impl.x": "HOME/gone.json"}}, [MISSING_WARNS]),
        ({"config": {**PROVIDERS, "x": "${file:HOME/gone:one}", "y": "${file:HOME/gone.b:two}"}}, [MISSING_BLOCKS]),
        (
            {"config": {**PROVIDERS, "x": "${file:HOME/gone:one}"}, "lines": ["/bin/install -m 600 /x HOME/gone"]},
            [],
        ),
        ({"unit": PRE.format("HOME/gone.sh")}, [MISSING_BLOCKS]),
        ({"unit": PRE.format("/bin/sh HOME/gone.sh")}, [MISSING_BLOCKS]),
        ({"unit": PRE.format("HOME/gone.sh").replace("errors=no", "errors=yes")}, []),
        ({"unit": PRE.format("/bin/rm -f HOME/gone HOME/bin/gone")}, []),
        ({"unit": EXEC.replace("ExecStart=", "ExecStop=").format("HOME/gone.sh")}, []),
        ({"unit": EXEC.format("HOME/kafka/bin/kafka-server-start.sh HOME/gone.properties")}, [MISSING_BLOCKS]),
        ({"unit": "EnvironmentFiles=HOME/gone.env (ignore_errors=no)\n"}, [MISSING_BLOCKS]),
        ({"unit": "EnvironmentFiles=HOME/gone.env (ignore_errors=yes)\n"}, []),
        ({"unit": "EnvironmentFiles=HOME/*.gone (ignore_errors=no)\n"}, []),
        ({"unit": "WorkingDirectory=HOME/gone\n"}, [MISSING_BLOCKS]),
        ({"unit": "WorkingDirectory=!HOME/gone\n"}, []),
        ({"unit": "ReadWritePaths=HOME/gone -HOME/other\n"}, [MISSING_BLOCKS]),
        ({"unit": "ReadWritePaths=/run/gone-x /var/lib/gone-y\nRuntimeDirectory=gone-x\nStateDirectory=gone-y\n"}, []),
        ({"unit": "ReadWritePaths=HOME/gone\n", "lines": ["/bin/test -e /x ; /bin/mkdir -p HOME/gone"]}, []),
        (
            {"unit": "WorkingDirectory=HOME/gone\n", "lines": ["HOME/gone/run ; /bin/mkdir -p HOME/other"]},
            [MISSING_BLOCKS],
        ),
        ({"unit": "BindPaths=HOME/etc:HOME/gone\n", "kept": ["-javaagent:HOME/gone/a.jar"]}, []),
        ({"unit": "RootDirectory=/\n", "kept": ["-javaagent:HOME/gone/a.jar"]}, [MISSING_BLOCKS]),
        ({"unit": "RootDirectory=HOME/etc\n", "kept": ["-javaagent:HOME/gone/a.jar"]}, []),
        ({"file": "[Unit]\nConditionPathExists=HOME/gone\n"}, [MISSING_BLOCKS]),
        ({"file": "[Unit]\nConditionPathExists=!HOME/gone\n"}, []),
        ({"file": "[Service]\nStandardOutput=append:HOME/gone/x.log\n"}, [MISSING_BLOCKS]),
        ({"file": "[Service]\nPIDFile=HOME/gone/x.pid\n"}, []),
        ({"kept": ["-javaagent:HOME/kafka/gone.jar"]}, [MISSING_BLOCKS]),
    ],
)
@pytest.mark.parametrize("releases", [(NEW,), (OLD,), ()])
def test_what_the_next_start_needs_and_does_not_exist_is_found_whether_it_moves_or_not(
    host: Host, missing: dict[str, Any], expected: list[tuple[str, str]], releases: tuple[Release, ...]
) -> None:
    """The process that runs has read it, and the start of a rollback needs it too."""
    host.write("etc/a.jar")
    host.write("etc/rules.yml")
    kept = missing.get("kept", ())
    state = host.read(
        missing.get("config", {}),
        *kept,
        *CONFIGURATION.split(),
        releases=releases,
        **{name: value for name, value in missing.items() if name != "config"},
    )
    found = [one for one in host.findings(state, releases) if one.code == "START-PATH-MISSING"]
    assert shown(found) == expected
    assert all("gone" in one.sentence and "gone" in one.remedy for one in found)
    only_of_process = host.read({}, *kept, *CONFIGURATION.split(), releases=releases)
    assert not [one for one in host.findings(only_of_process, releases) if one.code == "START-PATH-MISSING"]


@pytest.mark.parametrize("releases", [(NEW,), ()])
def test_a_provider_file_that_only_changed_lines_name_must_exist_unless_the_unit_makes_it(
    host: Host, releases: tuple[Release, ...]
) -> None:
    planned = [{**PROVIDERS, "x": "${file:HOME/gone:one}", "y": "${file:HOME/etc/x:two}"}]
    start = CONFIGURATION.split()
    (found,) = host.findings(host.read({}, *start, planned=planned, releases=releases), releases)
    assert shown([found]) == [MISSING_BLOCKS]
    assert (
        f"{host.home}/gone (file of a config provider in lines that the run changes) does not exist" in found.sentence
    )
    assert "rollback" not in found.sentence
    assert found.remedy.startswith(f"Create {host.home}/gone, or correct the path in release_overrides")
    made = host.read({}, *start, planned=planned, releases=releases, lines=["/bin/install -m 600 /x HOME/gone"])
    assert host.findings(made, releases) == []
    (found,) = host.findings(host.read(planned[0], *start, planned=planned, releases=releases), releases)
    assert "rollback" in found.sentence, "the file of now names it too"


def test_what_is_in_the_folder_of_a_release_that_the_run_brings_is_not_missing(host: Host) -> None:
    agent = "-javaagent:HOME/kafka/gone.jar"
    state = host.read({}, agent, *CONFIGURATION.split(), kept=[agent])
    folders = {NEW: f"{host.home}/kafka_2.13-{NEW}"}
    assert shown(host.findings(replace(state, folders=folders))) == [MISSING_BLOCKS]
    assert host.findings(replace(state, folders=folders, brought=frozenset({NEW}))) == []
    assert host.findings(replace(state, folders=folders, releases=frozenset({OLD}))) == []


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("kafka-server-start.sh", []),
        ("kafka-service.sh", [SWITCHED]),
        ("kafka-env.sh", [SWITCHED]),
        ("kafka-broker-start.sh", [SWITCHED]),
    ],
)
def test_an_archive_that_is_not_unpacked_yet_has_only_the_scripts_of_kafka(
    host: Host, script: str, expected: list[tuple[str, str]]
) -> None:
    host.write(f"kafka_2.13-{OLD}/bin/{script}")
    shutil.rmtree(host.home / f"kafka_2.13-{NEW}")
    state = host.read(
        {}, *CONFIGURATION.split(), unit=EXEC.format(f"HOME/kafka/bin/{script} HOME/etc/server.properties")
    )
    folders = {NEW: f"{host.home}/kafka_2.13-{NEW}"}
    found = host.findings(replace(state, folders=folders, brought=frozenset({NEW})))
    assert shown(found) == expected


def test_what_the_ssh_user_cannot_see_is_not_missing(host: Host) -> None:
    agent = host.write("hidden/a.jar")
    agent.parent.chmod(0o000)
    found = host.findings(
        host.read({}, *CONFIGURATION.split(), kept=[f"-javaagent:{agent}"], environment=(f"-javaagent:{agent}",))
    )
    assert shown(found) == [("START-PATH-UNKNOWN", "info")]


def test_a_word_after_the_class_path_of_the_script_is_no_class_path() -> None:
    for word in ("-javaagent:/a.jar", "@/etc/jvm.options", "kafka.Kafka"):
        process = (
            "java",
            "-cp",
            "/opt/kafka/bin/../libs/x.jar:/opt/plugins/*",
            word,
            "kafka.Kafka",
            "/etc/x.properties",
        )
        jars = [path for kind, path, _ in all_start_paths({}, process, ()) if kind is StartFileKind.JAR]
        assert jars == ["/opt/plugins"]


def test_links_in_a_circle_end_and_a_package_has_no_link(host: Host) -> None:
    (host.home / "a").symlink_to("b")
    (host.home / "b").symlink_to("a")
    (found,) = host.findings(host.read({}, "-Dx=HOME/a/file"))
    assert found.code == "START-PATH-UNKNOWN"
    (found,) = host.findings(replace(host.read({}), start_paths_problem="Why."))
    assert (found.sentence[-11:], found.severity.value) == ("known: Why.", "warning")
    service = ServiceSpec(host="kafka-1", package=PackageSpec(install=("/x", "{version}"), check=("/x", "{version}")))
    node = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=service)
    assert host.read({}, node=node).start_paths == ()


def test_a_host_without_a_posix_shell_is_unknown(host: Host) -> None:
    class Other(ShellOfThisMachine):
        def run(self, node: object, command: str | Sequence[str], *, text: str = "", within_s: float = 30) -> Done:
            return Done(0, b"", "fish: Unknown command")

    with pytest.raises(RefusedError, match="does not report where the paths of node kafka-1 lead"):
        read_start_paths(
            cast(HostCommands, Other(host.home)), host.node(), (NEW,), config={}, environment=(), facts=HostFacts()
        )


def test_paths_are_in_the_input_of_the_shell_and_values_of_secrets_are_not_sent(host: Host) -> None:
    shell = ShellOfThisMachine(host.home)
    config = {"ssl.keystore.password": "/secret/one", "sasl.jaas.config": 'x required keyTab="/a/kt" password="/b/p";'}
    _, paths, _ = read_start_paths(
        cast(HostCommands, shell), host.node(), (NEW,), config=config, environment=(), facts=HostFacts()
    )
    assert {path.path: path.kind for path in paths if path.kind is StartFileKind.NAMED} == {
        "/a/kt": StartFileKind.NAMED
    }
    assert not any("/a/kt" in line for line in shell.lines)


FORBIDDEN, DOUBTED = ("START-FILE-FORBIDDEN", "blocker"), ("START-FILE-FORBIDDEN", "warning")
SCRIPT = "kafka_2.13-4.3.1/bin/kafka-server-start.sh"
START = EXEC.format("HOME/kafka/bin/kafka-server-start.sh HOME/etc/server.properties")


@pytest.fixture
def site(host: Host) -> Host:
    """A host with both scripts of a start."""
    for release in (OLD, NEW):
        host.write(f"kafka_2.13-{release}/bin/kafka-run-class.sh")
    return host


@pytest.mark.parametrize(
    ("name", "mode", "unit", "arguments", "expected"),
    [
        (SCRIPT, 0o755, START, (), []),
        (SCRIPT, 0o644, START, (), [FORBIDDEN]),
        (SCRIPT, 0o644, START.replace("argv[]=", "argv[]=/bin/bash "), (), []),
        (SCRIPT, 0o600, START.replace("argv[]=", "argv[]=/bin/bash "), (), [FORBIDDEN]),
        (SCRIPT, 0o644, START.replace("argv[]=", "argv[]=/bin/sh -c exec "), (), [FORBIDDEN]),
        (SCRIPT, 0o644, START.replace("ExecStart", "ExecStop"), (), [DOUBTED]),
        ("kafka_2.13-4.3.1/bin/kafka-run-class.sh", 0o644, START, (), [FORBIDDEN]),
        ("kafka_2.13-4.3.1/bin", 0o750, START, (), [FORBIDDEN]),
        ("kafka_2.13-4.3.1/libs", 0o711, START, (), [FORBIDDEN]),
        ("etc", 0o700, START, (), [FORBIDDEN]),
        ("etc/server.properties", 0o640, START, (), [FORBIDDEN]),
        ("etc/x.properties", 0o640, START, ("-Dlog4j2.configurationFile=HOME/etc/x.properties",), [DOUBTED]),
        ("etc/jmx.jar", 0o640, START, ("-javaagent:HOME/etc/jmx.jar=1",), [FORBIDDEN]),
        ("etc/x", 0o640, START, ("-Dany=HOME/etc/x",), []),
        ("plugins", 0o711, START, ("-cp", "HOME/plugins/*"), [FORBIDDEN]),
        ("etc/x", 0o600, f"{START}EnvironmentFiles=HOME/etc/x (ignore_errors=no)\n", (), []),
        ("work", 0o700, f"{START}WorkingDirectory=HOME/work\n", (), [FORBIDDEN]),
    ],
)
def test_a_path_is_asked_for_the_user_of_the_unit_and_as_the_start_uses_it(  # noqa: PLR0917 - a table
    site: Host, name: str, mode: int, unit: str, arguments: tuple[str, ...], expected: list[tuple[str, str]]
) -> None:
    path = site.home / name
    if not path.exists():
        site.write(f"{name}/x" if "." not in name and name != "etc/x" else name)
    path.chmod(mode)
    arguments = (*arguments, *CONFIGURATION.split())
    state = site.read({}, *arguments, unit=unit, user="daemon")
    found = [one for one in site.findings(state) if one.code != "START-PATH-UNKNOWN"]
    assert shown(found) == expected
    assert all("user daemon of kafka.service" in one.sentence for one in found)
    assert all(f"{path} (mode {mode:04o}" in one.sentence for one in found)
    by_root = site.read({}, *arguments, unit=unit)
    executes_nothing = [one for one in site.findings(by_root) if one.code != "START-PATH-UNKNOWN"]
    assert shown(executes_nothing) == (expected if mode == 0o644 else [])


PROVIDER = "org.apache.kafka.common.config.provider"


@pytest.mark.parametrize(
    "config",
    [
        {"listeners": "SSL://:9092", "ssl.keystore.location": "HOME/etc/k.jks"},
        {"super.users": "${f:HOME/etc/k.jks:x}", "config.providers.f.class": f"{PROVIDER}.FileConfigProvider"},
        {"super.users": "${d:HOME/etc/:k.jks}", "config.providers.d.class": f"{PROVIDER}.DirectoryConfigProvider"},
    ],
    ids=["keystore", "file", "directory"],
)
def test_a_file_of_secrets_that_the_user_cannot_read_is_given_to_its_group_and_to_no_other_user(
    site: Host, config: dict[str, str]
) -> None:
    site.write("etc/k.jks").chmod(0o640)
    for releases in ((NEW,), ()):
        (found,) = site.findings(site.read(config, *CONFIGURATION.split(), user="daemon", releases=releases), releases)
        assert (found.code, found.severity.value) == FORBIDDEN
        assert f"cannot read {site.home}/etc/k.jks" in found.sentence
        assert "chgrp" in found.remedy
        assert "o+r" not in found.remedy
        assert "a+r" not in found.remedy


def test_the_remedy_for_a_folder_on_the_way_opens_no_file_in_it(site: Host) -> None:
    secret = site.write("agents/keys/id_rsa")
    secret.chmod(0o600)
    site.write("agents/jmx.jar")
    (site.home / "agents").chmod(0o700)
    arguments = (f"-javaagent:{site.home}/agents/jmx.jar=1", *CONFIGURATION.split())
    of_hidden, found = site.findings(site.read({}, *arguments, unit=START, user="daemon"))
    assert (of_hidden.code, found.code, found.severity.value) == ("START-PATH-UNKNOWN", *FORBIDDEN)
    subprocess.run(["sh", "-c", found.remedy.split("`")[1]], check=True)
    assert site.findings(site.read({}, *arguments, unit=START, user="daemon")) == []
    assert secret.stat().st_mode & 0o777 == 0o600
    assert (site.home / "agents/keys").stat().st_mode & 0o777 == 0o755


def test_what_root_executes_is_not_asked_for_the_user_of_the_unit(site: Host) -> None:
    site.write(f"kafka_2.13-{NEW}/pre.sh").chmod(0o744)
    site.write(f"kafka_2.13-{OLD}/pre.sh").chmod(0o744)
    pre = EXEC.replace("ExecStart=", "ExecStartPre=").format("HOME/kafka/pre.sh")
    for file, expected in (
        ("[Service]\nExecStartPre=HOME/kafka/pre.sh\n", [FORBIDDEN]),
        ("[Service]\nExecStartPre=-+HOME/kafka/pre.sh\n", []),
        ("[Service]\nPermissionsStartOnly=true\nExecStartPre=HOME/kafka/pre.sh\n", []),
    ):
        state = site.read({}, *CONFIGURATION.split(), unit=START + pre, file=file, user="daemon")
        assert shown(site.findings(state)) == expected


@pytest.mark.parametrize(
    ("protect", "bound"),
    [
        ("tmpfs", ("/run/user/1", "/run/user/2", "/run/user/3")),
        ("yes", ()),
    ],  # an inaccessible folder hides what is bound below it
)
def test_what_is_bound_below_a_hidden_home_is_seen(host: Host, protect: str, bound: tuple[str, ...]) -> None:
    lines = (
        "BindPaths=/run/user/1:/run/user/1:rbind\nBindPaths=-/run/user/2:/run/user/2\nBindReadOnlyPaths=/x:/run/user/3"
    )
    shell = ShellOfThisMachine(
        host.home, user=f"User=daemon\nGroup=\nSupplementaryGroups=\nProtectHome={protect}\n{lines}"
    )
    user = read_unit_user(cast(HostCommands, shell), host.node())
    assert (user.unknown, user.hidden, user.bound) == ("", ("/home", "/root", "/run/user"), bound)


def test_the_paths_of_the_sandbox_are_those_of_the_next_release(host: Host) -> None:
    (host.home / "real").mkdir()
    (host.home / "alias").symlink_to(host.home / "real")
    executable = f"/usr {host.home}/kafka {host.home}/kafka/bin"
    lines = f"InaccessiblePaths=-+{host.home}/alias /x\nNoExecPaths=/\nExecPaths={executable}"
    shell = ShellOfThisMachine(host.home, user=f"User=daemon\nGroup=\nSupplementaryGroups=\n{lines}")
    user = read_unit_user(cast(HostCommands, shell), host.node())
    assert (user.inaccessible, user.unexecutable) == ((f"{host.home}/real", "/x"), ("/",))
    assert user.executable == ("/usr", *[f"{host.home}/kafka_2.13-*"] * 2)


def test_a_user_that_the_host_does_not_know_makes_unknown_and_refuses_nothing(site: Host) -> None:
    (site.home / SCRIPT).chmod(0o600)
    found = site.findings(site.read({}, *CONFIGURATION.split(), unit=START, user="no-such-user"))
    assert {(one.code, one.severity.value) for one in found} == {
        ("START-PATH-UNKNOWN", "warning"),
        ("START-PATH-UNKNOWN", "info"),
    }
    assert all("does not know the user of kafka" in one.sentence for one in found)


def test_a_release_that_is_not_installed_for_the_user_is_named_once(site: Host) -> None:
    (site.home / SCRIPT).chmod(0o644)
    state = site.read({}, *CONFIGURATION.split(), unit=START, user="daemon")
    folder = f"{site.home}/kafka_2.13-{NEW}"
    assert site.findings(replace(state, releases=frozenset({OLD}), folders={NEW: folder})) == []


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("path=test ; argv[]=test -r HOME/etc/secret.conf", []),
        ("path=/usr/bin/test ; argv[]=test -r HOME/etc/secret.conf", []),
        ("path=bash ; argv[]=bash -c [ -f HOME/etc/secret.conf ]", []),
        ("path=bash ; argv[]=bash HOME/etc/secret.conf", ["cannot read "]),
        ("path=HOME/etc/secret.conf ; argv[]=pre", ["cannot execute "]),
    ],
)
def test_the_program_of_a_command_is_its_path_and_no_argument(site: Host, command: str, expected: list[str]) -> None:
    site.write("etc/secret.conf").chmod(0o640)
    pre = f"ExecStartPre={{ {command} ; ignore_errors=no ; start_time=[n/a] }}\n"
    state = site.read({}, *CONFIGURATION.split(), unit=START + pre, user="daemon")
    found = [one for one in site.findings(state) if one.code == "START-FILE-FORBIDDEN"]
    assert [text for one in found for text in expected if text in one.sentence] == expected
    assert len(found) == len(expected)


def test_a_start_with_another_name_of_its_program_reads_its_configuration_and_executes_its_script(site: Host) -> None:
    site.write("etc/server.properties").chmod(0o640)
    start = "ExecStart={ path=HOME/kafka/bin/kafka-server-start.sh ; argv[]=kafka HOME/etc/server.properties ; "
    unit = f"{start}ignore_errors=no ; start_time=[n/a] }}\n"
    state = site.read({}, *CONFIGURATION.split(), unit=unit, user="daemon")
    (found,) = (one for one in site.findings(state) if one.code == "START-FILE-FORBIDDEN")
    assert "cannot read " in found.sentence
    assert "chgrp" in found.remedy
    assert "a+r" not in found.remedy
    (site.home / SCRIPT).chmod(0o644)
    found_too = site.findings(site.read({}, *CONFIGURATION.split(), unit=unit, user="daemon"))
    assert any("chmod a+rx" in one.remedy and "kafka-server-start.sh" in one.remedy for one in found_too)


def test_the_folder_of_a_pattern_of_environment_files_is_switched_with_the_link(host: Host) -> None:
    for release in (OLD, NEW):
        host.write(f"kafka_2.13-{release}/bin/kafka-run-class.sh")
    host.write(f"kafka_2.13-{OLD}/env.d/a.conf")
    unit = f"{START}EnvironmentFiles=HOME/kafka/env.d/*.conf (ignore_errors=yes)\n"
    state = host.read({}, *CONFIGURATION.split(), unit=unit)
    assert any("kafka/env.d" in one.sentence for one in host.findings(state))
    outside = unit.replace("HOME/kafka/env.d", "HOME/etc/env.d")
    assert host.findings(host.read({}, *CONFIGURATION.split(), unit=outside)) == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("ConditionPathExists=!HOME/etc/maintenance", [("START-PATH-PRESENT", "blocker")]),
        ("AssertPathExists = ! HOME/etc/maintenance", [("START-PATH-PRESENT", "blocker")]),
        ("ConditionPathExists=!HOME/etc", [("START-PATH-PRESENT", "blocker")]),
        ("ConditionPathExists=!HOME/etc/none", []),
        ("ConditionPathExists=!HOME/etc/maintenance\nConditionPathExists=", []),
        ("ConditionPathExists=|!HOME/etc/maintenance\nConditionPathExists=|/etc", []),
        ("ConditionFileNotEmpty=!HOME/etc/maintenance", []),
        ("ConditionPathExists=!HOME/etc/maintenance\nExecStopPost=/bin/rm -f HOME/etc/maintenance", []),
        *(
            (f"ConditionPathExists=!HOME/etc/maintenance\n{line}", [("START-PATH-PRESENT", "blocker")])
            for line in (
                "ExecStartPre=/bin/sh -c 'test ! -e HOME/etc/maintenance'",
                "ExecStartPre=/bin/rm -f HOME/etc/maintenance",
                "ExecStop=/bin/rm -f HOME/etc/maintenances",
                "ExecStop=/bin/rm -f HOME/etc/maintenance.d/x",
                "ExecStop=/bin/sh -c 'test -e HOME/etc/maintenance && rm -f HOME/etc/other'",
            )
        ),
    ],
)
def test_a_path_that_must_not_exist_for_a_start_blocks(site: Host, lines: str, expected: list[tuple[str, str]]) -> None:
    site.write("etc/maintenance")
    file = f"[Unit]\n{lines}\n"
    for releases in ((NEW,), ()):
        state = site.read({}, *CONFIGURATION.split(), unit=START, file=file, releases=releases)
        assert shown(site.findings(state, releases)) == expected


def test_a_lock_that_the_start_itself_makes_does_not_block(site: Host) -> None:
    """The node runs with it, and its end removes it."""
    site.write("etc/kafka.lock")
    file = "[Unit]\nConditionPathExists=!HOME/etc/kafka.lock\n"
    of_script = [("touch HOME/etc/kafka.lock",), ("touch $DIRECTORY/kafka.lock",)]
    for lines in of_script:
        state = site.read({}, *CONFIGURATION.split(), unit=START, file=file, lines=lines)
        assert site.findings(state) == []
    state = site.read({}, *CONFIGURATION.split(), unit=START, file=file, opened=["HOME/etc/kafka.lock"])
    assert site.findings(state) == []
    asks = ("touch HOME/etc/other.lock",), ("LOCK=$D/kafka.lock", "[ -e $LOCK ] && exit 1"), ("test -e $D/kafka.lock",)
    for lines in asks:
        state = site.read({}, *CONFIGURATION.split(), unit=START, file=file, lines=lines)
        assert shown(site.findings(state)) == [("START-PATH-PRESENT", "blocker")]


@pytest.mark.parametrize("folder", ["/run", "/var/run"])
def test_a_maintenance_flag_in_run_blocks_too(site: Host, folder: str) -> None:
    """A boot removes it, so it is the usual place of one. A file of /run that each machine has stands for it."""
    flag = next(path for path in sorted(Path("/run").iterdir()) if path.is_file() or path.is_dir())
    file = f"[Unit]\nConditionPathExists=!{folder}/{flag.name}\n"
    state = site.read({}, *CONFIGURATION.split(), unit=START, file=file)
    assert ("START-PATH-PRESENT", "blocker") in shown(site.findings(state))
    state = site.read({}, *CONFIGURATION.split(), unit=START, file=file, opened=[f"{folder}/{flag.name}"])
    assert site.findings(state) == [], "a lock of the process"


@pytest.mark.parametrize(
    ("option", "text", "expected"),
    [
        (
            "-Dcom.sun.management.config.file=HOME/etc/x",
            "com.sun.management.jmxremote.password.file=HOME/kafka/config/jmx.password\n",
            "blocker",
        ),
        (
            "-javaagent:HOME/own/a.jar=9404:HOME/etc/x",
            'keyStore:\n  filename: "HOME/kafka/config/jmx.password"\n',
            "warning",
        ),
        ("-Dlog4j2.configurationFile=file:HOME/etc/x", "<A uri='file://HOME/kafka/config/jmx.password'/>\n", "warning"),
        ("-Djava.security.properties=HOME/etc/x", "# HOME/kafka/config/jmx.password\nsecure=/dev/urandom\n", ""),
        ("-Dlog4j2.configurationFile=HOME/etc/x", "appender.a.fileName = HOME/kafka/config/jmx.password\n", ""),
        ("-Dcom.sun.management.config.file=HOME/etc/x", "a.password.file=HOME/etc/y\nb=HOME/kafka/config/both\n", ""),
    ],
)
def test_a_file_that_a_file_of_an_option_names_is_looked_at_too(
    host: Host, option: str, text: str, expected: str
) -> None:
    for name in (
        f"kafka_2.13-{OLD}/config/jmx.password",
        "own/a.jar",
        *(f"kafka_2.13-{one}/config/both" for one in (OLD, NEW)),
    ):
        host.write(name)
    assert host.findings(host.read({}, option, *CONFIGURATION.split(), unit=START)) == []
    host.write("etc/x", text.replace("HOME", str(host.home)))
    state = host.read({}, option, *CONFIGURATION.split(), unit=START)
    found = [(one.code, one.severity.value) for one in host.findings(state)]
    assert found == ([("START-PATH-SWITCHED", expected)] if expected else [])
    host.write(f"kafka_2.13-{NEW}/config/jmx.password")
    state = host.read({}, option, *CONFIGURATION.split(), unit=START)
    assert host.findings(state) == []


REMOVED_BLOCKS, REMOVED_WARNS = ("START-PATH-REMOVED", "blocker"), ("START-PATH-REMOVED", "warning")
RUNTIME = "RuntimeDirectory=kafka\nRuntimeDirectoryPreserve=restart\n"  # as systemd 252 shows them
KEYS = {"listeners": "SSL://:9092", "ssl.keystore.location": "HOME/run/kafka/k.p12"}


@pytest.mark.parametrize(
    ("config", "option", "unit", "expected"),
    [
        (KEYS, "", RUNTIME, [REMOVED_BLOCKS]),
        (KEYS, "", "RuntimeDirectory=other kafka:link\n", [REMOVED_BLOCKS]),
        (KEYS, "", RUNTIME.replace("restart", "yes"), []),
        (KEYS, "", RUNTIME.replace("=kafka", "=kafka2"), []),
        ({}, "", f"{RUNTIME}EnvironmentFiles=HOME/run/kafka/env (ignore_errors=yes)\n", [REMOVED_BLOCKS]),
        ({}, "-javaagent:HOME/run/kafka/k.p12", RUNTIME, [REMOVED_BLOCKS]),
        ({}, "-Djavax.net.ssl.keyStore=HOME/run/kafka/k.p12", RUNTIME, [REMOVED_WARNS]),
        ({}, "-Djava.io.tmpdir=HOME/run/kafka", RUNTIME, []),
        ({}, "-Xlog:gc*:file=HOME/run/kafka/gc.log", RUNTIME, []),
        ({}, "", f"{RUNTIME}WorkingDirectory=HOME/run/kafka\n", []),
    ],
)
def test_what_the_stop_removes_is_not_there_for_the_next_start(
    site: Host,
    monkeypatch: pytest.MonkeyPatch,
    *,
    config: dict[str, str],
    option: str,
    unit: str,
    expected: list[tuple[str, str]],
) -> None:
    monkeypatch.setattr("kafka_rollout.nodes.runtimes.hosts.absences._RUN", f"{site.home}/run")
    for name in ("k.p12", "env", "gc.log"):
        site.write(f"run/kafka/{name}")
    kept = option.split()
    state = site.read(config, *kept, *CONFIGURATION.split(), unit=f"{START}\n{unit}", kept=kept)
    assert shown(site.findings(state)) == expected
    makes = ["/usr/bin/install -m 600 /etc/keys/k.p12 HOME/run/kafka/k.p12", "cp /etc/env HOME/run/kafka/env"]
    state = site.read(config, *kept, *CONFIGURATION.split(), unit=f"{START}\n{unit}", kept=kept, lines=makes)
    assert site.findings(state) == [], "the start makes it"


@pytest.mark.parametrize("name", ["run/kafka/data", "run/kafka"])
def test_a_command_that_makes_a_log_directory_does_not_bring_its_data_back(
    site: Host, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("kafka_rollout.nodes.runtimes.hosts.absences._RUN", f"{site.home}/run")
    site.write("run/kafka/data/meta.properties")
    config, unit = {"log.dirs": f"HOME/{name}"}, f"{START}\n{RUNTIME}"
    makes = ["mkdir -p HOME/run/kafka/data", "install -d -o kafka HOME/run/kafka"]
    state = site.read(config, *CONFIGURATION.split(), unit=unit, lines=makes)
    (found,) = [one for one in site.findings(state) if one.code == "START-PATH-REMOVED"]
    assert (found.severity.value, "RuntimeDirectoryPreserve=yes" in found.remedy) == ("blocker", True)
    assert f"systemd deletes {site.home}/{name} (log directory)" in found.sentence
    assert not any(one in found.remedy for one in ("/etc/kafka", "ExecStartPre"))
    unit += f"BindPaths=/var/lib/kafka:{site.home}/run/kafka:rbind\n"
    state = site.read(config, *CONFIGURATION.split(), unit=unit, lines=makes)
    assert "START-PATH-REMOVED" not in {one.code for one in site.findings(state)}


def test_what_is_missing_in_a_folder_of_the_unit_is_not_made_by_systemd(
    site: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the stop, in a repetition of the step."""
    monkeypatch.setattr("kafka_rollout.nodes.runtimes.hosts.absences._RUN", f"{site.home}/run")
    agent = "-javaagent:HOME/run/kafka/agent.jar"
    state = site.read({}, agent, *CONFIGURATION.split(), unit=f"{START}\n{RUNTIME}", kept=[agent])
    assert shown(site.findings(state)) == [MISSING_BLOCKS]


def test_the_stop_removes_the_folders_of_private_tmp(site: Host) -> None:
    """The test has its files there."""
    unit = f"{START}\nPrivateTmp=yes\nEnvironmentFiles=HOME/etc/x (ignore_errors=no)\n"
    state = site.read({"log.dirs": "HOME/data"}, *CONFIGURATION.split(), unit=unit)
    data, others = [one for one in site.findings(state) if one.code == "START-PATH-REMOVED"]
    assert {data.severity.value, others.severity.value} == {"blocker"}
    assert f"{site.home}/data" in data.sentence
    assert "kafka-reassign-partitions.sh" in data.remedy
    assert f"{site.home}/etc/x" not in data.sentence + others.sentence, "systemd reads it outside"


def test_what_the_stop_removes_does_not_bar_the_start(site: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_rollout.nodes.runtimes.hosts.absences._RUN", f"{site.home}/run")
    site.write("run/kafka/lock")
    file = "[Unit]\nConditionPathExists=!HOME/run/kafka/lock\n"
    state = site.read({}, *CONFIGURATION.split(), unit=f"{START}\n{RUNTIME}", file=file)
    assert site.findings(state) == []


def test_a_path_that_must_not_exist_in_a_hidden_folder_is_unknown(host: Host) -> None:
    host.write("hidden/maintenance").parent.chmod(0o000)
    file = "[Unit]\nConditionPathExists=!HOME/hidden/maintenance\n"
    found = host.findings(host.read({}, *CONFIGURATION.split(), unit=START, file=file))
    assert ("START-PATH-UNKNOWN", "warning") in shown(found)
    assert any("hidden/maintenance exists on host kafka-1" in one.sentence for one in found)
