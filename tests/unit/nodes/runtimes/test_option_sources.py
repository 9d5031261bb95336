"""Which options of a process its next start has too: start scripts of two releases, run by a real shell."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest

from kafka_rollout.base.findings import Finding
from kafka_rollout.model.configs import environment_names
from kafka_rollout.model.host_state import HostFacts, HostState, PlaceState, StartFileKind, StartPath, StartPlace
from kafka_rollout.model.jvm_options import NextOptions
from kafka_rollout.model.starts import login_file
from kafka_rollout.model.topology import NodeSpec, PackageSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.nodes.runtimes.hosts.option_sources import UnitOptions, read_next_start
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.nodes.runtimes.hosts.text_files import _READ, TextFiles, text_of
from kafka_rollout.nodes.runtimes.hosts.unit_environment import jvm_words
from kafka_rollout.planning.findings.jvm_options import jvm_option_losses
from kafka_rollout.planning.findings.start_scripts import edited_script_findings
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.start_scripts import StartScripts, digest_of
from tools.testbed.start_scripts import RUN_CLASS, server_start

OLD, NEW, BROUGHT = Release(3, 9, 1), Release(4, 3, 1), Release(4, 4, 0)
RUN = RUN_CLASS.replace('mkdir -p "$LOG_DIR"', ":")
"""Without the folder of the logs, which the rights of root would make."""
# Kafka's own lines, of both releases.
SCRIPTS = StartScripts(
    frozenset(
        digest_of(line) for text in (RUN, *map(server_start, (OLD, NEW))) for line in text_of("bin/x.sh", text).lines
    ),
    frozenset({"3.9"}),
)
JAAS = "-Djava.security.auth.login.config=/etc/kafka/jaas.conf"
URLS = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=https://idp/token"
LOST, WARNED, GONE = ("JVM-OPTION-LOST", "blocker"), ("JVM-OPTION-LOST", "warning"), ("JVM-OPTION-GONE", "blocker")


@dataclass
class Host:
    """Two releases, whose scripts have `edit`, a link to the old one, and the unit's command and environment."""

    home: Path
    command: str = "HOME/kafka/bin/kafka-server-start.sh HOME/etc/server.properties"

    def __post_init__(self) -> None:
        for release in (OLD, NEW):
            self.edit(release, "")
            self.write(f"kafka_2.13-{release}/bin/kafka-run-class.sh", RUN)
            for jar in (f"kafka_2.13-{release}", "kafka-clients"):
                self.write(f"kafka_2.13-{release}/libs/{jar}.jar", "")
        self.write("java/bin/java", '#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')
        self.write("etc/server.properties", "node.id=1\n")
        (self.home / "kafka").symlink_to(f"kafka_2.13-{OLD}")

    def write(self, name: str, text: str) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(re.sub(r"(?<!_)HOME", str(self.home), text))
        path.chmod(0o755)
        return path

    def edit(self, release: Release, text: str) -> None:
        self.write(f"kafka_2.13-{release}/bin/kafka-server-start.sh", server_start(release, text))

    def start(self, environment: Mapping[str, str], release: Release = OLD) -> list[str]:
        """Return the command line of a start on a release."""
        (self.home / "kafka").unlink()
        (self.home / "kafka").symlink_to(f"kafka_2.13-{release}")
        set_ = {"PATH": "/usr/bin:/bin", "JAVA_HOME": f"{self.home}/java", **environment}
        command = self.command.replace("HOME", str(self.home)).split(" ", 2)
        words = command if command[1] == "-c" else " ".join(command).split()
        ran = subprocess.run(words, env=set_, capture_output=True, text=True, check=True)
        (self.home / "kafka").unlink()
        (self.home / "kafka").symlink_to(f"kafka_2.13-{OLD}")
        return ran.stdout.splitlines()

    @property
    def shell(self) -> Host:
        return self

    def run(self, node: object, command: str, *, text: str = "") -> Done:
        ran = subprocess.run(["sh", "-c", command], input=text.encode(), capture_output=True, check=False, timeout=20)
        return Done(ran.returncode, ran.stdout, ran.stderr.decode())

    def node(self, **service: object) -> NodeSpec:
        where = {"installation": f"{self.home}/kafka_2.13-{{release}}", "symlink": f"{self.home}/kafka"}
        spec = ServiceSpec(host="kafka-1", **{**where, **service})  # type: ignore[arg-type]
        return NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=spec)

    def read(
        self,
        process: Sequence[str],
        environment: Mapping[str, str],
        releases: Sequence[Release | None] = (NEW,),
        *,
        is_whole: bool = True,
        node: NodeSpec | None = None,
    ) -> dict[Release | None, NextOptions]:
        argv = self.command.replace("HOME", str(self.home))
        unit = UnitOptions(
            commands=(f"ExecStart={{ path=/x ; argv[]={argv} ; ignore_errors=no ; pid=5 }}",),
            process=tuple(process),
            variables=environment,
            environment=jvm_words(environment),
            is_whole=is_whole,
        )
        return {**read_next_start(cast(HostCommands, self), node or self.node(), releases, unit).options}

    def findings(
        self,
        options: Mapping[Release | None, NextOptions],
        node: NodeSpec | None = None,
        *,
        loaded: Sequence[str] = (),
        config: Mapping[str, str] | None = None,
        installed: Release = OLD,
    ) -> list[Finding]:
        """Those of options, or with `config` those of lines of scripts."""
        places = {
            release: StartPlace(path=f"{self.home}/kafka_2.13-{release}", state=PlaceState.FOLDER)
            for release in (OLD, NEW)
        }
        link = StartPath(kind=StartFileKind.LIBRARIES, path=f"{self.home}/kafka", now=places[OLD], after={**places})
        state = HostState(
            name="kafka-1",
            unit="kafka.service",
            symlink=f"{self.home}/kafka",
            folders={},
            releases=frozenset({OLD, NEW}),
            symlink_can_switch=True,
            stop_timeout_s=300.0,
            options=options,
            facts=HostFacts(loaded_jars=tuple(loaded)),
            link=None if node else link,
            environment_names=environment_names(config or {}),
            installed=installed,
        )
        releases = [release for release in options if release is not None]
        if config is not None:
            return list(edited_script_findings(SCRIPTS, node or self.node(), state, releases))
        return list(jvm_option_losses(node or self.node(), state, releases))


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    yield Host(tmp_path)
    for path in tmp_path.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755)


def shown(found: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(one.code, one.severity.value) for one in found]


def options_of(words: Sequence[str]) -> set[str]:
    """Without Java, the class path, Kafka's own arguments, and the logging of each release."""
    own = list(words[1 : words.index("kafka.Kafka")] if "kafka.Kafka" in words else words[1:])
    return {word for word in own if word.startswith("-") and "log4j" not in word and word != "-cp"}


EDITS = [
    ('export KAFKA_HEAP_OPTS="-Xmx10G -Xms10G"', {"-Xmx10G", "-Xms10G"}, [LOST]),
    (f'export KAFKA_OPTS="{JAAS} {URLS}"', {JAAS, URLS}, [LOST]),
    ("export JMX_PORT=9999", {"-Dcom.sun.management.jmxremote.port=9999"}, [WARNED]),
    (
        "export KAFKA_OPTS=-javaagent:HOME/jmx.jar=9404:HOME/jmx.yml",
        {"-javaagent:HOME/jmx.jar=9404:HOME/jmx.yml"},
        [LOST],
    ),
    ("LOG_DIR=/var/log/kafka; export LOG_DIR", {"-Dkafka.logs.dir=/var/log/kafka", "GC"}, [WARNED]),
    ("HEAP=$(expr 2 + 4)g\nexport KAFKA_HEAP_OPTS=-Xmx$HEAP", {"-Xmx6g"}, [LOST]),
    (". HOME/etc/kafka-env.sh", {"-Xmx7g", "-Dx=y"}, [LOST, WARNED]),
    ('KAFKA_OPTS="$KAFKA_OPTS -Djavax.net.ssl.trustStorePassword=S3CRET"\nexport KAFKA_OPTS', {"PASSWORD"}, [LOST]),
    ('export KAFKA_OPTS=-Djava.security.auth.login.config="/etc/kafka/jaas.conf"', {JAAS}, [LOST]),
    ("AGENT='HOME/jmx.jar'; export KAFKA_OPTS=-javaagent:\"$AGENT\"='9404'", {"-javaagent:HOME/jmx.jar=9404"}, [LOST]),
    ('HEAP=9; export KAFKA_HEAP_OPTS="-Xmx"$HEAP"g"', {"-Xmx9g"}, [LOST]),
    ("# export KAFKA_HEAP_OPTS=-Xmx3G", set(), []),
    ("", set(), []),
]


@pytest.mark.parametrize(("edit", "lost", "expected"), EDITS, ids=[edit[0][:24] for edit in EDITS])
def test_an_option_that_only_the_script_of_the_running_release_sets_is_lost(
    host: Host, edit: str, lost: set[str], expected: list[tuple[str, str]]
) -> None:
    special = {
        "GC": "-Xlog:gc*:file=/var/log/kafka/kafkaServer-gc.log:time,tags:filecount=10,filesize=100M",
        "PASSWORD": "-Djavax.net.ssl.trustStorePassword=S3CRET",
    }
    wanted = {special.get(one, one).replace("HOME", str(host.home)) for one in lost}
    host.write("etc/kafka-env.sh", "export KAFKA_HEAP_OPTS=-Xmx7g KAFKA_OPTS=-Dx=y\n")
    host.edit(OLD, edit)
    environment = {"KAFKA_JVM_PERFORMANCE_OPTS": "-XX:+UseSerialGC"}
    process, after = host.start(environment), host.start(environment, NEW)
    assert options_of(process) - options_of(after) == wanted
    read = host.read(process, environment, (OLD, NEW, BROUGHT))
    of_release = {word for word in process if "log4j" in word}  # by default: the other release has its own
    assert set(read[NEW].arguments) == set(process[: process.index("kafka.Kafka")]) - wanted - of_release
    assert {key: shown(host.findings({key: options})) for key, options in read.items()} == {
        OLD: [],
        NEW: expected,
        BROUGHT: expected,  # its folder is not there yet
    }
    found = host.findings({NEW: read[NEW]})
    assert "S3CRET" not in str(found)
    if found:
        place = "kafka-env.sh: export KAFKA_HEAP_OPTS" if "kafka-env" in edit else "bin/kafka-server-start.sh: "
        assert place in found[0].sentence
    # No line is reported twice.
    assert [one for options in read.values() for one in host.findings({NEW: options}, config={})] == []
    # The remedies: the same edit in the script of the next release, or the options in the unit.
    host.edit(NEW, edit)
    assert host.findings(host.read(process, environment)) == []
    host.edit(NEW, "")
    heap = " ".join(one for one in wanted if one.startswith("-X"))
    others = " ".join(one for one in wanted if not one.startswith("-X"))
    in_unit = {**environment, "KAFKA_HEAP_OPTS": heap, "KAFKA_OPTS": others} if wanted else environment
    assert host.findings(host.read(process, in_unit)) == []


LINES = [
    "ulimit -n 100000",
    "umask 027",
    "export LD_PRELOAD=/usr/lib/libjemalloc.so",
    "export LD_LIBRARY_PATH=/opt/native",
    'exec numactl --interleave=all $base_dir/kafka-run-class.sh $EXTRA_ARGS kafka.Kafka "$@"',
    "[ -e /etc/kafka/limits ] && ulimit -l unlimited",
    "/usr/local/bin/mount-disks || exit 1",
    ". HOME/etc/kafka-env.sh",
    ". $(dirname $0)/kafka-env.sh",
    '. "$(dirname "${BASH_SOURCE[0]}")"/kafka-env.sh',
]


@pytest.mark.parametrize("line", LINES)
def test_what_an_edited_script_does_beyond_options_is_a_decision(host: Host, line: str) -> None:
    for place in ("etc", f"kafka_2.13-{OLD}/bin"):
        host.write(f"{place}/kafka-env.sh", "ulimit -n 100000\nexport KAFKA_HEAP_OPTS=-Xmx7g\n")
    host.edit(OLD, line)
    process = ["java", "-Xmx7g", "-cp", f"{host.home}/kafka/bin/../libs/kafka_2.13-{OLD}.jar", "kafka.Kafka"]
    read = host.read(process, {}, (OLD, NEW, BROUGHT))
    assert host.findings({OLD: read[OLD]}, config={}) == []
    for release in (NEW, BROUGHT):
        (found,) = host.findings({release: read[release]}, config={})
        assert (found.code, found.severity.value) == ("START-SCRIPT-EDITED", "warning")
        wanted = {f"{host.home}/kafka/bin/kafka-server-start.sh: {line.replace('HOME', str(host.home))}"}
        if "kafka-env" in line:
            folder = f"{host.home}/{'etc' if 'HOME' in line else 'kafka/bin'}"
            wanted |= {f"{folder}/kafka-env.sh: ulimit -n 100000"}
        assert {*found.covers} == wanted
        assert all(one in found.sentence for one in wanted)
    # The remedies: the same edit in the script of the next release, or none in that of the running one.
    for each in (NEW, OLD):
        host.write(f"kafka_2.13-{NEW}/bin/kafka-env.sh", "ulimit -n 100000\nexport KAFKA_HEAP_OPTS=-Xmx7g\n")
        host.edit(each, line if each is NEW else "")
        assert host.findings(host.read(process, {}), config={}) == []
        host.edit(NEW, "")


def test_a_variable_of_the_script_that_the_configuration_reads_blocks_until_the_unit_has_it(host: Host) -> None:
    host.edit(OLD, 'export KEYSTORE_PASSWORD="S3CRET" OTHER=x')
    config = {
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "ssl.keystore.password": "${env:KEYSTORE_PASSWORD}",
    }
    process = host.start({})
    (found,) = host.findings(host.read(process, {}), config=config)
    assert (found.code, found.severity.value) == ("START-SCRIPT-EDITED", "blocker")
    assert "KEYSTORE_PASSWORD=[hidden]" in found.sentence
    assert "S3CRET" not in str(found)
    (other,) = host.findings(host.read(process, {"KEYSTORE_PASSWORD": "x"}), config=config)
    assert other.severity.value == "warning"  # another value, and OTHER
    in_unit = {"KEYSTORE_PASSWORD": "S3CRET", "OTHER": "x"}
    assert host.findings(host.read(process, in_unit), config=config) == []
    host.edit(NEW, "export KEYSTORE_PASSWORD=other")
    (other,) = host.findings(host.read(process, {}), config=config)
    assert other.severity.value == "warning"


def test_a_release_whose_scripts_the_catalogue_does_not_have_is_named(host: Host) -> None:
    host.edit(OLD, "ulimit -n 100000")
    read = host.read(host.start({}), {})
    for installed, named in ((OLD, False), (BROUGHT, True)):
        (found,) = host.findings(read, config={}, installed=installed)
        assert (f"does not have the scripts of {installed}" in found.sentence) == named


def test_lines_of_scripts_that_cannot_be_read_are_unknown(host: Host) -> None:
    process = host.start({})
    read = host.read(process, {})
    unread = replace(read[NEW], unread=("/opt/kafka/bin/kafka-server-start.sh",))
    (found,) = host.findings({NEW: unread}, config={})
    assert "cannot read /opt/kafka/bin/kafka-server-start.sh" in found.sentence
    assert host.findings({OLD: unread}, config={}) == []


@pytest.mark.parametrize("release", [NEW, BROUGHT])
@pytest.mark.parametrize(
    ("name", "value", "log_file"),
    [
        ("LOG_DIR", "/var/log/kafka", "/var/log/kafka/server.log"),
        ("KAFKA_LOG4J_OPTS", "-Dlog4j.configuration=file:/etc/kafka/log4j.properties", "/logs/server.log"),
        ("KAFKA_LOG4J_OPTS", "-Dlog4j2.configurationFile=/etc/kafka/log4j2.yaml", "/logs/server.log"),
    ],
)
def test_the_paths_of_packages_are_no_defaults_of_an_archive(
    host: Host, release: Release, name: str, value: str, log_file: str
) -> None:
    """A package sets them in its own scripts, and a site in those of an archive, or in the environment until now."""
    node = host.node(log_file=log_file)
    process = host.start({name: value})
    gone = host.findings(host.read(process, {}, (release,), node=node), node)
    assert ("JVM-OPTION-GONE", "node 1, needed options") in {(one.code, one.subject) for one in gone}
    host.edit(OLD, f"export {name}={value}")
    lost = host.findings(host.read(host.start({}), {}, (release,), node=node), node)
    assert LOST in shown(lost)
    package = PackageSpec(install=("/x", "{version}"), check=("/x", "{version}"))
    other = replace(node, service=ServiceSpec(host="kafka-1", package=package))
    assert host.findings(host.read(process, {}, (release,), node=other), other) == []


def test_another_value_in_the_unit_is_a_decision_and_only_a_warning(host: Host) -> None:
    host.edit(OLD, "export KAFKA_HEAP_OPTS=-Xmx10G")
    process = host.start({})
    (found,) = host.findings(host.read(process, {"KAFKA_HEAP_OPTS": "-Xmx6G"}))
    assert ((found.code, found.severity.value), "-Xmx10G (then -Xmx6G)" in found.sentence) == (WARNED, True)


def test_an_option_that_was_removed_from_the_environment_is_gone(host: Host) -> None:
    before = {"KAFKA_OPTS": URLS, "KAFKA_HEAP_OPTS": "-Xmx6G", "JMX_PORT": "9999", "LOG_DIR": "/logs"}
    process = host.start(before)
    assert host.findings(host.read(process, before)) == []
    for release in (OLD, NEW):
        read = host.read(process, {"KAFKA_HEAP_OPTS": "-Xmx6G"}, (release,))
        assert URLS not in read[release].arguments
        needed, other = host.findings(read)
        warned = ("JVM-OPTION-GONE", "warning")
        expected = GONE if release == NEW else warned  # the restart alone can be approved
        assert (shown([needed, other]), URLS in needed.sentence) == ([expected, warned], True)
        assert ("restart it" in needed.remedy, "approve" in needed.remedy) == (release == NEW, release == OLD)
        assert "jmxremote.port=9999" in other.sentence
        assert "-Dkafka.logs.dir=/logs" in other.sentence
    changed = host.read(process, {**before, "KAFKA_HEAP_OPTS": "-Xmx9G"})
    assert host.findings(changed) == [], "the new value counts"
    assert "-Xmx6G" not in changed[NEW].arguments
    unread = host.read(process, {}, is_whole=False)  # a file that the SSH user cannot read, and that did not change
    assert (host.findings(unread), URLS in unread[NEW].arguments) == ([], True)


@pytest.mark.parametrize(
    ("wrapper", "is_known"),
    [
        ('exec HOME/kafka/bin/kafka-server-start.sh "$@"', True),
        ('. HOME/etc/env\nHOME/kafka/bin/kafka-server-start.sh "$@"', True),
        ('KAFKA_OPTS="$KAFKA_OPTS $MORE" exec HOME/kafka/bin/kafka-server-start.sh "$@"', True),
        ('[ -z "$X" ] || ulimit -n 100000\nexec HOME/kafka/bin/kafka-server-start.sh "$@"', True),
        ('. HOME/etc/none\nexec HOME/kafka/bin/kafka-server-start.sh "$@"', True),  # this file does not exist
        ('. HOME/etc/*.env\nexec HOME/kafka/bin/kafka-server-start.sh "$@"', False),
        ('export $(cat HOME/etc/list)\nexec HOME/kafka/bin/kafka-server-start.sh "$@"', False),
        ('exec env $(cat HOME/etc/list) HOME/kafka/bin/kafka-server-start.sh "$@"', False),
        ('while read -r l; do export "$l"; done <HOME/etc/list\nexec HOME/kafka/bin/kafka-server-start.sh "$@"', False),
        ('eval "$X"\nexec HOME/kafka/bin/kafka-server-start.sh "$@"', False),
        ('exec su kafka -s /bin/sh -c "HOME/kafka/bin/kafka-server-start.sh $1"', False),
    ],
)
def test_what_was_removed_from_the_environment_is_gone_behind_a_wrapper_too(
    host: Host, wrapper: str, is_known: bool
) -> None:
    """Unless the wrapper takes options from where no text shows them: then the process is the only witness."""
    host.write("etc/env", "export X=y\n")
    host.write("etc/start-kafka", f"#!/bin/sh\n{wrapper}\n")
    before = {"KAFKA_OPTS": URLS, "CLASSPATH": f"{host.home}/plugins/a.jar"}
    process = host.start(before)  # the same command line
    host.command = "HOME/etc/start-kafka HOME/etc/server.properties"
    assert host.findings(host.read(process, before)) == []
    read = host.read(process, {})
    options = [f"CLASSPATH={host.home}/plugins/a.jar", URLS]
    assert [one.option for one in read[NEW].gone] == (options if is_known else [])
    assert (URLS in read[NEW].arguments) == (not is_known)
    if not is_known:
        assert URLS in [one.option for one in read[NEW].unsure]
        assert shown(host.findings(read)) == [("JVM-OPTION-UNKNOWN", "warning")]


EXPORTER = "-javaagent:/x.jar=7071:/x.yml"


@pytest.mark.parametrize(
    "edit",
    [
        'export KAFKA_HEAP_OPTS="${KAFKA_HEAP_OPTS:--Xmx6g -Xms6g}"',
        ': "${KAFKA_HEAP_OPTS:=-Xmx6g -Xms6g}"; export KAFKA_HEAP_OPTS',
        'export KAFKA_HEAP_OPTS="${HEAP:--Xmx${GB:-6}g -Xms${GB:-6}g}"',
        f'export KAFKA_OPTS="${{KAFKA_OPTS:+$KAFKA_OPTS }}{EXPORTER}"',
        'for o in $(cat HOME/etc/jvm.options); do KAFKA_OPTS="$KAFKA_OPTS $o"; done; export KAFKA_OPTS',
        'while read -r o; do KAFKA_OPTS="$KAFKA_OPTS $o"; done < HOME/etc/jvm.options; export KAFKA_OPTS',
        'for f in HOME/plugins/*.jar; do KAFKA_OPTS="$KAFKA_OPTS -javaagent:$f"; done; export KAFKA_OPTS',
        'V=6.0g; export KAFKA_HEAP_OPTS="-Xmx${V/.0/} -Xms${V/.0/}"',
        'CONF=HOME/etc\n. "${CONF}/kafka-env.sh"',
    ],
)
def test_no_form_in_which_a_wrapper_gives_an_option_is_a_finding(host: Host, edit: str) -> None:
    host.write("etc/jvm.options", f"-Xmx6g\n{EXPORTER}\n")
    host.write("etc/kafka-env.sh", f'export KAFKA_OPTS="{EXPORTER}"\n')
    host.write("plugins/a.jar", "")
    host.write("etc/start-kafka", f'#!/bin/bash\n{edit}\nexec HOME/kafka/bin/kafka-server-start.sh "$@"\n')
    host.command = "HOME/etc/start-kafka HOME/etc/server.properties"
    process = host.start({})
    assert any(word.startswith(("-Xmx6g", "-javaagent:")) for word in process)
    assert host.findings(host.read(process, {})) == []


TWICE = [("JVM-OPTION-TWICE", "blocker")]


@pytest.mark.parametrize(
    ("edit", "in_unit", "expected"),
    [
        (f'export KAFKA_OPTS="${{KAFKA_OPTS:+$KAFKA_OPTS }}{EXPORTER}"', EXPORTER, TWICE),
        (f'KAFKA_OPTS="$KAFKA_OPTS {EXPORTER}"; export KAFKA_OPTS', EXPORTER, TWICE),
        (f"export KAFKA_OPTS\nKAFKA_OPTS+=' {EXPORTER}'", EXPORTER.replace("/x.jar", "/y.jar"), TWICE),
        ('P=7071\nexport KAFKA_OPTS="-javaagent:/x.jar=$P:/x.yml $KAFKA_OPTS"', EXPORTER, TWICE),
        ('export KAFKA_OPTS="$KAFKA_OPTS -javaagent:/a.jar"', "-javaagent:/a.jar", [("JVM-OPTION-TWICE", "warning")]),
        (f'export KAFKA_OPTS="$KAFKA_OPTS {EXPORTER}"', "-javaagent:/x.jar=7072:/x.yml", []),
        (f'export KAFKA_OPTS="${{KAFKA_OPTS:-{EXPORTER}}}"', EXPORTER, []),
        (f'export KAFKA_OPTS="{EXPORTER}"', EXPORTER, []),
        (f'[ -n "$KAFKA_OPTS" ] || export KAFKA_OPTS="$KAFKA_OPTS {EXPORTER}"', EXPORTER, []),
        ("", f"{EXPORTER} -Dx=y {EXPORTER}", TWICE),
        ("", f"{EXPORTER} -Dx=y", []),
    ],
)
def test_an_agent_that_the_next_start_gets_twice_is_found(
    host: Host, edit: str, in_unit: str, expected: list[tuple[str, str]]
) -> None:
    """Java 17 with the JMX exporter twice on one port exits with 1 before Kafka starts."""
    host.write("etc/start-kafka", f'#!/bin/bash\n{edit}\nexec HOME/kafka/bin/kafka-server-start.sh "$@"\n')
    host.command = "HOME/etc/start-kafka HOME/etc/server.properties"
    process, environment = host.start({}), {"KAFKA_OPTS": in_unit}
    agents = [word for word in host.start(environment) if word.startswith("-javaagent:")]
    ports = [word.rpartition("=")[2] for word in agents]
    assert (len(ports) != len({*ports})) == (expected != [])
    found = host.findings(host.read(process, environment))
    assert [one for one in shown(found) if "TWICE" in one[0]] == expected
    if len(agents) != len({*agents}):
        assert host.findings(host.read(host.start(environment), environment)) == [], "a process runs with both"


def test_two_agents_with_which_the_process_runs_are_not_found(host: Host) -> None:
    """An exporter opens the same port of two addresses."""
    two = [f"-javaagent:/x.jar={address}:7071:/etc/x.yml" for address in ("10.0.0.1", "127.0.0.1")]
    environment = {"KAFKA_OPTS": " ".join(two)}
    assert host.findings(host.read(host.start(environment), environment)) == []
    assert shown(host.findings(host.read(host.start({"KAFKA_OPTS": two[0]}), environment))) == TWICE


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('#!/bin/bash\nexport KAFKA_HEAP_OPTS="${KAFKA_HEAP_OPTS:--Xmx6g}"\nEND', [GONE]),
        (f'#!/bin/sh\n# export KAFKA_OPTS="{EXPORTER}"\nexport KAFKA_OPTS="-javaagent:/y.jar=1:/y"\nEND', [GONE]),
        ('#!/bin/sh\nKAFKA_OPTS="$KAFKA_OPTS $(cat HOME/etc/jvm.options)"\nEND', [("JVM-OPTION-UNKNOWN", "warning")]),
        ("#!/usr/bin/perl\n$ENV{'KAFKA_OPTS'} = '-javaagent' . ':/x';\nEND", [("JVM-OPTION-UNKNOWN", "warning")]),
        ("#!/bin/sh\n/usr/local/bin/prepare\nEND", [("JVM-OPTION-UNKNOWN", "warning")]),
    ],
)
def test_what_no_text_gives_any_more_is_gone_only_if_each_text_is_understood(
    host: Host, script: str, expected: list[tuple[str, str]]
) -> None:
    """`java` had it from the file of the wrapper, or from the unit, and it was removed there."""
    host.write("etc/jvm.options", "-Dother=x\n")
    process = host.start({"KAFKA_OPTS": EXPORTER})
    host.write("etc/start-kafka", script.replace("END", 'exec HOME/kafka/bin/kafka-server-start.sh "$@"\n'))
    host.command = "HOME/etc/start-kafka HOME/etc/server.properties"
    read = host.read(process, {})
    found = host.findings(read)
    assert shown(found) == expected
    assert EXPORTER in found[0].sentence
    assert (EXPORTER in read[NEW].arguments) == (expected != [GONE])
    if expected != [GONE]:
        assert f"{host.home}/etc/start-kafka: " in found[0].sentence
        assert "Do not write them into the unit as well" in found[0].remedy
    elif "export KAFKA" in script:
        assert f"into {host.home}/etc/start-kafka, which sets such variables itself" in found[0].remedy


def test_what_was_removed_from_the_environment_is_gone_if_the_unit_starts_java(host: Host) -> None:
    host.command = "/usr/bin/java $JVM_OPTS -cp HOME/kafka/libs/* kafka.Kafka HOME/etc/server.properties"
    process = ["/usr/bin/java", URLS, "-cp", f"{host.home}/kafka/libs/*", "kafka.Kafka"]
    assert host.read(process, {"JVM_OPTS": URLS})[NEW].gone == ()
    assert [one.option for one in host.read(process, {})[NEW].gone] == [URLS]


@pytest.mark.parametrize(
    ("command", "is_known"),
    [
        ("HOME/etc/start-kafka HOME/etc/server.properties", True),
        ("/bin/sh -c KAFKA_OPTS=URLS exec HOME/kafka/bin/kafka-server-start.sh HOME/etc/server.properties", True),
        ("/bin/bash -c . HOME/etc/env && exec HOME/kafka/bin/kafka-server-start.sh HOME/etc/server.properties", True),
        ("/usr/bin/env KAFKA_OPTS=URLS HOME/kafka/bin/kafka-server-start.sh HOME/etc/server.properties", True),
        ("/usr/bin/nice -n 5 HOME/kafka/bin/kafka-server-start.sh HOME/etc/server.properties", False),
    ],
)
def test_what_the_unit_itself_names_outside_the_release_stays(host: Host, command: str, is_known: bool) -> None:
    host.command = command.replace("URLS", URLS)
    host.write("etc/env", f"export KAFKA_OPTS={URLS}\n")
    host.write("etc/start-kafka", '#!/bin/sh\n. HOME/etc/env\nexec HOME/kafka/bin/kafka-server-start.sh "$@"\n')
    process = host.start({} if is_known else {"KAFKA_OPTS": URLS})
    assert URLS in process
    read = host.read(process, {})
    assert (shown(host.findings(read)), URLS in read[NEW].arguments) == (([], True) if is_known else ([GONE], False))
    host.edit(OLD, f"export KAFKA_OPTS={JAAS}")
    assert shown(host.findings(host.read(host.start({}), {}))) == [LOST], "also below a wrapper"


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("exec /opt/kafka_2.13-3.9.1/bin/kafka-server-start.sh /etc/x", None),
        ('K=/opt/kafka_2.13-3.9.1\nCONF="/etc/x"\nexec ${K}/bin/kafka-server-start.sh $CONF', None),
        ("R=3.9.1; D=/opt/kafka_2.13-$R; exec $D/bin/kafka-server-start.sh /etc/x", None),
        (". HOME/etc/env\nexec $D/bin/kafka-server-start.sh /etc/$OF_UNIT", None),
        ("A=/etc/y\nexec $B/bin/kafka-server-start.sh $A", "exec $B/bin/kafka-server-start.sh /etc/y"),
        ("A=/etc/y\ntest x && A=/etc/z\nexec x $A", "exec x $A"),
        ("OF_UNIT=y\nexec kafka-server-start.sh /etc/$OF_UNIT", "exec kafka-server-start.sh /etc/$OF_UNIT"),
        ("A=$A/b\nexec kafka-server-start.sh $A", "exec kafka-server-start.sh $A"),
        ('exec kafka-server-start.sh "$@" ${1:-/etc/x}', 'exec kafka-server-start.sh "$@" ${1:-/etc/x}'),
    ],
)
def test_a_variable_of_a_wrapper_is_known_if_it_has_one_value(host: Host, script: str, line: str | None) -> None:
    host.command = "HOME/etc/start-kafka HOME/etc/server.properties"
    host.write("etc/env", "D=/opt/kafka_2.13-3.9.1\n")
    host.write("etc/start-kafka", f"#!/bin/sh\n# kafka-server-start.sh /etc/none\n{script}\n")
    unit = UnitOptions(commands=(f"ExecStart={{ argv[]={host.home}/etc/start-kafka ; ignore_errors=no ; }}",))
    start = read_next_start(cast(HostCommands, host), host.node(), (NEW,), unit)
    lines = start.wrapper_lines({"OF_UNIT": "x"})
    expected = line or "exec /opt/kafka_2.13-3.9.1/bin/kafka-server-start.sh /etc/x"
    assert next(one for one in lines if "kafka-server-start.sh" in one or "exec" in one).endswith(expected)
    assert {text.path for text in start.wrappers} - {f"{host.home}/etc/env"} == {f"{host.home}/etc/start-kafka"}


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ('exec /opt/kafka/bin/kafka-server-start.sh "$@"', '"/etc/new --override x=y"'),
        ("exec /opt/kafka/bin/kafka-server-start.sh $1", "/etc/new"),
        ("exec /opt/kafka/bin/kafka-server-start.sh ${1:-/etc/old}", "/etc/new"),
        ('CONF="$1"\nexec /opt/kafka/bin/kafka-server-start.sh $CONF', "/etc/new"),
        ("shift\nexec /opt/kafka/bin/kafka-server-start.sh $1", "$1"),
        ("f() {\nexec /opt/kafka/bin/kafka-server-start.sh $1\n}\nf x", "$1"),
        ("exec /opt/kafka/bin/kafka-server-start.sh $4", "$4"),
    ],
)
@pytest.mark.parametrize("shell", ["", "/bin/bash "])
def test_the_arguments_of_a_wrapper_are_those_of_the_unit(host: Host, script: str, line: str, shell: str) -> None:
    host.write("etc/start-kafka", f"#!/bin/sh\n{script}\n")
    argv = f"{shell}{host.home}/etc/start-kafka /etc/new --override x=y"
    unit = UnitOptions(commands=(f"ExecStart={{ argv[]={argv} ; ignore_errors=no ; }}",))
    start = read_next_start(cast(HostCommands, host), host.node(), (NEW,), unit)
    (found,) = (one for one in start.wrapper_lines({}) if "kafka-server-start.sh" in one)
    assert found == f"exec /opt/kafka/bin/kafka-server-start.sh {line}"


def jaas(name: str) -> str:
    return f"-Djava.security.auth.login.config=/etc/kafka/{name}.conf"


@pytest.mark.parametrize(
    ("environment", "edit", "expected"),
    [
        ({"KAFKA_OPTS": jaas("unit")}, "", "unit"),
        ({"KAFKA_OPTS": jaas("unit")}, f"export KAFKA_OPTS={jaas('script')}", "script"),
        ({"KAFKA_OPTS": jaas("unit")}, f'export KAFKA_OPTS="$KAFKA_OPTS {jaas("script")}"', "script"),
        ({"KAFKA_OPTS": jaas("unit")}, f'export KAFKA_OPTS="{jaas("script")} $KAFKA_OPTS"', "unit"),
        ({"KAFKA_OPTS": jaas("unit")}, f'[ -n "$KAFKA_OPTS" ] || export KAFKA_OPTS="{jaas("script")}"', "unit"),
        ({"KAFKA_OPTS": jaas("unit")}, f'if test -d /; then export KAFKA_OPTS="{jaas("script")}"; fi', "script"),
        ({"KAFKA_OPTS": jaas("unit"), "KAFKA_JMX_OPTS": jaas("jmx")}, "", "unit"),
        ({"KAFKA_JMX_OPTS": jaas("jmx"), "KAFKA_HEAP_OPTS": f"-Xmx1g {jaas('heap')}"}, "", "jmx"),
        ({"KAFKA_OPTS": jaas("unit"), "KAFKA_CONNECT_OPTS": jaas("connect")}, "", "unit"),
        ({"KAFKA_X_OPTS": jaas("unit")}, 'export KAFKA_OPTS="$KAFKA_X_OPTS"', "unit"),
    ],
)
@pytest.mark.parametrize("is_new", [False, True])
def test_the_last_value_of_an_option_is_the_one_that_java_gets_last(
    host: Host, environment: dict[str, str], edit: str, expected: str, is_new: bool
) -> None:
    """Also of an environment that has changed since the process started: `is_new`."""
    host.write("etc/start-kafka", f'#!/bin/bash\n{edit}\nexec HOME/kafka/bin/kafka-server-start.sh "$@"\n')
    host.command = "HOME/etc/start-kafka HOME/etc/server.properties"
    process = host.start({name: jaas("before") for name in environment} if is_new else environment)
    assert login_file(host.start(environment, NEW)) == f"/etc/kafka/{expected}.conf"
    found = host.read(process, environment)[NEW]
    assert login_file(found.arguments) == f"/etc/kafka/{expected}.conf"
    assert found.gone == found.lost == ()


def test_java_reads_its_own_variables_before_and_after_the_command_line(host: Host) -> None:
    """Java 17: JAVA_TOOL_OPTIONS, JDK_JAVA_OPTIONS, the command line, _JAVA_OPTIONS."""
    before = {"JAVA_TOOL_OPTIONS": jaas("tool"), "JDK_JAVA_OPTIONS": jaas("jdk")}
    for environment, expected in (
        ({**before, "KAFKA_OPTS": jaas("unit")}, "unit"),
        (before, "jdk"),
        ({"KAFKA_OPTS": jaas("unit"), "_JAVA_OPTIONS": jaas("last")}, "last"),
    ):
        found = host.read(host.start(environment), environment)[NEW]
        assert login_file(found.arguments) == f"/etc/kafka/{expected}.conf"


@pytest.mark.parametrize("place", ["a wrapper", "both releases"])
def test_an_option_of_the_unit_does_not_reach_java_if_a_script_sets_the_variable(host: Host, place: str) -> None:
    edit = "export KAFKA_OPTS=-javaagent:/opt/jmx.jar=9404:/etc/kafka/jmx.yml"
    if place == "a wrapper":
        host.write("etc/start-kafka", f'#!/bin/bash\n{edit}\nexec HOME/kafka/bin/kafka-server-start.sh "$@"\n')
        host.command = "HOME/etc/start-kafka HOME/etc/server.properties"
    else:
        host.edit(OLD, edit)
        host.edit(NEW, edit)
    environment = {"KAFKA_OPTS": URLS}
    assert URLS not in host.start(environment, NEW)
    found = host.read(host.start({}), environment)[NEW]
    assert (URLS in found.arguments, found.environment, found.gone, found.lost) == (False, (), (), ())
    # The process got it from a script that was without the line then.
    process = [*host.start({})[:1], URLS, *host.start({})[1:]]
    assert shown(host.findings(host.read(process, environment))) == [GONE]


def test_java_without_scripts_gets_the_variables_that_the_unit_names(host: Host) -> None:
    host.command = "HOME/java/bin/java -cp HOME/kafka/libs/* $KAFKA_HEAP_OPTS kafka.Kafka HOME/etc/server.properties"
    environment = {"KAFKA_HEAP_OPTS": "-Xmx6G", "KAFKA_OPTS": URLS}
    process = [f"{host.home}/java/bin/java", "-cp", f"{host.home}/kafka/libs/*", "-Xmx6G", "kafka.Kafka"]
    found = host.read(process, environment)[NEW]
    assert (found.arguments, found.gone, found.lost) == (tuple(process[:-1]), (), ())


@pytest.mark.parametrize(
    ("entry", "is_loaded"),
    [("HOME/plugins/*", True), ("HOME/plugins/a.jar", True), ("HOME/kafka/bin/../plugins/*", False), ("/a", False)],
)
def test_an_entry_of_the_class_path_is_lost_or_gone_as_an_option_is(host: Host, entry: str, is_loaded: bool) -> None:
    entry = entry.replace("HOME", str(host.home))
    jars = [f"{host.home}/plugins/a.jar"] if is_loaded else []
    host.edit(OLD, f'export CLASSPATH="{entry}"')
    process = host.start({})
    assert process[process.index("-cp") + 1].startswith(f"{entry}:")
    for release in (NEW, BROUGHT):
        read = host.read(process, {}, (release,))
        assert shown(host.findings(read, loaded=jars)) == [LOST if is_loaded else WARNED]
        assert read[release].lost_entries == (entry,)
        assert entry not in str(read[release].arguments)
        assert "kafka-server-start.sh: export CLASSPATH" in host.findings(read)[0].sentence
    assert host.findings(host.read(process, {"CLASSPATH": entry}), loaded=jars) == [], "the remedy"
    host.edit(NEW, f"CLASSPATH={entry}:$CLASSPATH")
    assert host.findings(host.read(process, {}), loaded=jars) == []


def test_a_class_path_of_the_environment_counts_if_the_next_start_has_it(host: Host) -> None:
    before = {"CLASSPATH": f"{host.home}/plugins/*:/opt/one.jar"}
    process, jars = host.start(before), [f"{host.home}/plugins/a.jar"]
    for release in (NEW, BROUGHT, None):
        assert host.findings(host.read(process, before, (release,)), loaded=jars) == []
    assert shown(host.findings(host.read(process, {}), loaded=jars)) == [GONE, ("JVM-OPTION-GONE", "warning")]
    changed = host.read(process, {"CLASSPATH": "/opt/one.jar"})
    assert (shown(host.findings(changed, loaded=jars)), changed[NEW].lost_entries) == (
        [GONE],
        (f"{host.home}/plugins/*",),
    )
    host.edit(NEW, "CLASSPATH=")
    assert shown(host.findings(host.read(process, before), loaded=jars))[0] == LOST


@pytest.mark.parametrize(
    "edit",
    [
        "export CLASSPATH=HOME/plugins/a.jar",
        "for jar in HOME/plugins/*.jar; do CLASSPATH=$CLASSPATH${CLASSPATH:+:}$jar; done; export CLASSPATH",
        "for d in HOME/none HOME/plugins; do\n  for f in $d/*.jar; do\n CLASSPATH=$f; done\ndone\nexport CLASSPATH",
        'DIR=HOME/plugins\nPLUGINS="$DIR/b.jar:$DIR/a.jar"\nexport CLASSPATH="$PLUGINS"',
        'export CLASSPATH="$(ls HOME/plugins/a.jar)"',
        'exec HOME/java/bin/java -cp "HOME/plugins/a.jar:HOME/kafka/libs/*" kafka.Kafka "$@"',
        'CP=HOME/plugins/a.jar:HOME/kafka/libs/*\nexec HOME/java/bin/java -classpath "$CP" kafka.Kafka "$@"',
    ],
)
def test_an_entry_that_a_script_outside_the_release_makes_stays(host: Host, edit: str) -> None:
    host.write("plugins/a.jar", "")
    host.write("etc/start-kafka", f'#!/bin/bash\n{edit}\nexec HOME/kafka/bin/kafka-server-start.sh "$@"\n')
    host.command = "HOME/etc/start-kafka HOME/etc/server.properties"
    process = host.start({})
    assert f"{host.home}/plugins/a.jar" in process[process.index("-cp" if "-cp" in process else "-classpath") + 1]
    read = host.read(process, {})
    assert (host.findings(read), read[NEW].lost_entries) == ([], ())
    if "exec" not in edit:
        host.command = "HOME/kafka/bin/kafka-server-start.sh HOME/etc/server.properties"
        host.edit(OLD, edit)
        read = host.read(host.start({}), {})
        assert (shown(host.findings(read)), f"{host.home}/plugins/a.jar" in read[NEW].lost_entries) == ([WARNED], True)


def test_the_class_path_of_a_package_is_that_of_its_scripts(host: Host) -> None:
    package = PackageSpec(install=("/x", "{version}"), check=("/x", "{version}"))
    node = replace(host.node(), service=ServiceSpec(host="kafka-1", package=package))
    own = "/usr/bin/../share/java/kafka/*:/usr/bin/../share/java/telemetry/*:/usr/share/java/support/*"
    start = [f"{host.home}/java/bin/java", "-cp", own, "kafka.Kafka"]
    assert host.findings(host.read(start, {}, node=node), node) == []


def test_a_wrapper_below_the_link_is_lost_with_the_folder(host: Host) -> None:
    host.command = "HOME/kafka/bin/own.sh HOME/etc/server.properties"
    text = f'#!/bin/sh\nexport KAFKA_OPTS={URLS}\nexec HOME/kafka/bin/kafka-server-start.sh "$@"\n'
    host.write(f"kafka_2.13-{OLD}/bin/own.sh", text)
    process = host.start({})
    (found,) = host.findings(host.read(process, {}))
    assert ((found.code, found.severity.value), "own.sh: export KAFKA_OPTS" in found.sentence) == (LOST, True)
    assert host.findings(host.read(process, {}), config={}) == [], "its path is missing, which is another finding"
    host.write(f"kafka_2.13-{NEW}/bin/own.sh", text)
    assert host.findings(host.read(process, {})) == []
    host.write(f"kafka_2.13-{OLD}/bin/own.sh", text.replace("exec", "umask 027\nexec"))
    (found,) = host.findings(host.read(process, {}), config={})
    assert found.covers == (f"{host.home}/kafka/bin/own.sh: umask 027",)


def test_a_script_that_the_ssh_user_cannot_read_makes_other_options_unknown(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.edit(OLD, f"export KAFKA_OPTS={URLS}")
    process = host.start({})

    def denied(node: object, command: str, *, text: str = "") -> Done:
        done = Host.run(host, node, command, text=text)
        script = f"{host.home}/kafka_2.13-{NEW}/bin/kafka-server-start.sh"
        lines = done.out.split("\n")
        if f"file {script}" not in lines:
            return done
        begin = lines.index(f"file {script}")
        end = next(at for at in range(begin + 1, len(lines)) if not lines[at].startswith("text "))
        return Done(0, "\n".join([*lines[:begin], f"unread {script}", *lines[end:]]).encode(), "")

    monkeypatch.setattr(host, "run", denied)
    read = host.read(process, {})
    (found,) = host.findings(read)
    assert (found.code, found.severity.value) == ("JVM-OPTION-UNKNOWN", "warning")
    assert URLS in found.sentence
    assert URLS not in read[NEW].arguments
    assert host.findings(host.read(process, {"KAFKA_OPTS": URLS})) == []


def test_without_a_target_and_for_a_package_it_is_a_warning(host: Host) -> None:
    host.edit(OLD, f"export KAFKA_OPTS={URLS}")
    process = host.start({})
    assert shown(host.findings(host.read(process, {}, (None,)))) == [WARNED]
    package = PackageSpec(install=("/x", "{version}"), check=("/x", "{version}"))
    node = host.node(package=package, installation="", symlink="")
    node = replace(node, service=ServiceSpec(host="kafka-1", package=package))
    read = host.read(process, {}, node=node)
    (found,) = host.findings(read, node)
    assert ((found.code, found.severity.value), "A package can replace" in found.sentence) == (WARNED, True)
    assert URLS in read[NEW].arguments
    assert host.findings(host.read(host.start({"KAFKA_OPTS": URLS}), {"KAFKA_OPTS": URLS}, node=node), node) == []


@pytest.mark.parametrize(
    "part", [". $CONF_DIR/kafka-env.sh", ". kafka-env.sh", "source $(dirname $(readlink -f $0))/env.sh"]
)
def test_a_script_whose_parts_cannot_be_found_is_read_to_its_end_and_is_not_whole(host: Host, part: str) -> None:
    host.edit(OLD, f'if test -n "$NEVER"; then {part}; fi\nexport KAFKA_HEAP_OPTS=-Xmx3G')
    java, *words = host.start({})
    found = host.read([java, "-Dof=elsewhere", *words], {})[NEW]
    assert [one.option for one in found.lost] == ["-Xmx3G"]
    assert "-Dof=[hidden]" in [one.option for one in found.unclear], "the part can set it"


@pytest.mark.parametrize("line", ["grep -c . HOME/etc/server.properties", "ls -d .", "echo 'no . x'"])
def test_a_dot_among_the_words_of_a_command_reads_no_file(host: Host, line: str) -> None:
    host.edit(OLD, f"{line} >/dev/null")
    java, *words = host.start({})
    found = host.read([java, "-Dof=elsewhere", *words], {})[NEW]
    assert [one.option for one in found.gone] == ["-Dof=[hidden]"]


@pytest.mark.parametrize(
    "path", ["kafka-env.sh", "$CONF_DIR/env.sh", "-name", "~/.profile", "/none/env.sh", "/none", "/"]
)
def test_every_text_of_a_path_comes_to_an_end(host: Host, path: str) -> None:
    files = TextFiles(cast(HostCommands, host), host.node())
    assert files.read([path]) == []
    assert (path in files.asked) == path.startswith("/")
    assert host.shell.run("", _READ, text=f"{path}\n").code == 0


@pytest.mark.parametrize(
    ("command", "edit"),
    [
        ("/bin/bash -c 'KAFKA_OPTS=\"$(cat HOME/etc/jvm.options)\" exec HOME/kafka/bin/kafka-server-start.sh'", ""),
        (None, "export KAFKA_OPTS=$(cat HOME/etc/jvm.options)"),
        (None, 'KAFKA_OPTS="$KAFKA_OPTS `cat HOME/etc/jvm.options`"; export KAFKA_OPTS'),
        (None, "export $(grep -v '^#' HOME/etc/jvm.env)"),
        (None, "set -- $(cat HOME/etc/jvm.options)"),
    ],
)
def test_an_option_that_a_command_can_print_is_not_gone(host: Host, command: str | None, edit: str) -> None:
    host.command = command or host.command
    host.write("etc/jvm.options", "-Dof=elsewhere")
    host.write("etc/jvm.env", "KAFKA_OPTS=-Dof=elsewhere")
    java = str(host.home / "java/bin/java")
    host.edit(OLD, edit)
    host.edit(NEW, edit)
    found = host.read([java, "-Dof=elsewhere", "kafka.Kafka"], {})[NEW]
    assert found.gone == found.lost == ()


def test_an_option_in_quotes_is_read_as_the_shell_reads_it(host: Host) -> None:
    """`java` gets the blank too."""
    host.edit(OLD, f'exec {host.home}/java/bin/java -Dhttp.agent="a b" "-Djava.security.policy=/a b/c" kafka.Kafka')
    host.edit(NEW, "")
    found = host.read(host.start({}), {})[NEW]
    assert [one.option for one in found.lost] == ["-Dhttp.agent=[hidden]", "-Djava.security.policy=[hidden]"]


def test_kafkas_own_commands_print_no_option(host: Host) -> None:
    host.edit(OLD, 'exec $(dirname $0)/kafka-run-class.sh $EXTRA_ARGS kafka.Kafka "$@"\nCLASSPATH="$(ls x):$CLASSPATH"')
    java = str(host.home / "java/bin/java")
    (gone,) = host.read([java, "-Dof=elsewhere", "kafka.Kafka"], {})[NEW].gone
    assert gone.option == "-Dof=[hidden]"


@pytest.mark.parametrize(
    "edit",
    [
        "export " * 3000 + "X",
        'A="' + "OPTS" * 20_000 + '"',
        "A=" + "$(" * 20_000,
        "".join(f'A="$A,x{number}"\n' for number in range(30)) + "KAFKA_OPTS=-javaagent:/a.jar=$A",
        "".join(f'A="$B,x{number}"; B="$A,y{number}"\n' for number in range(30)) + "KAFKA_OPTS=-javaagent:/a.jar=$A",
        'A="' + " #" * 90_000,
    ],
    ids=["export", "names", "commands", "appended", "in a circle", "comments"],
)
def test_no_script_makes_a_plan_wait(host: Host, edit: str) -> None:
    """The user of the node can write such a file. The bound says only that reading ends: texts of this size would
    take hours in quadratic time, and the processor time of a loaded machine says no more."""
    host.edit(NEW, edit)
    began = time.process_time()
    host.read([str(host.home / "java/bin/java"), "-javaagent:/a.jar=,x1", "kafka.Kafka"], {})
    assert time.process_time() - began < 60
