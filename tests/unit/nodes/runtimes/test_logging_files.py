"""A logging configuration in the folder of the running release, which the switch of the link replaces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from kafka_rollout.base.findings import Finding
from kafka_rollout.model.host_state import HostFacts, HostState
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.nodes.runtimes.hosts.logging_files import read_logging_files
from kafka_rollout.planning.findings.logging_files import logging_file_findings
from kafka_rollout.releases.facts import Release
from tests.unit.nodes.runtimes.test_option_sources import Host as HostWithScripts

R380, R391, R431 = Release(3, 8, 0), Release(3, 9, 1), Release(4, 3, 1)
OWN = """\
# A comment
log4j.rootLogger=INFO, kafkaAppender
log4j.appender.kafkaAppender=org.apache.log4j.DailyRollingFileAppender
log4j.appender.kafkaAppender.File=${kafka.logs.dir}/server.log
log4j.appender.kafkaAppender.layout=org.apache.log4j.PatternLayout
log4j.appender.kafkaAppender.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
OWN_OF_4 = """\
Configuration:
  Properties:
    Property:
      - name: "logPattern"
        value: "[%d] %p %m (%c)%n"
  Appenders:
    RollingFile:
      - name: KafkaAppender
        fileName: "${sys:kafka.logs.dir}/server.log"
        PatternLayout:
          pattern: "${logPattern}"
"""
WARNED, BLOCKED = ("LOG-CONFIG-REPLACED", "warning"), ("LOG-CONFIG-REPLACED", "blocker")


@dataclass
class Host:
    scripts: HostWithScripts

    def config(self, release: Release, text: str) -> None:
        name = "log4j2.yaml" if release.major >= 4 else "log4j.properties"
        self.scripts.write(f"kafka_2.13-{release}/config/{name}", text)

    def findings(self, release: Release | None, *, running: Release = R391, **service: object) -> list[Finding]:
        home = self.scripts.home
        name = "log4j2.configurationFile=" if running.major >= 4 else "log4j.configuration=file:"
        file = "log4j2.yaml" if running.major >= 4 else "log4j.properties"
        process = (
            "java",
            f"-Dkafka.logs.dir={home}/kafka/bin/../logs",
            f"-D{name}{home}/kafka/bin/../config/{file}",
        )
        node = self.scripts.node(**service)
        state = HostState(
            name="kafka-1",
            unit="kafka.service",
            symlink=f"{home}/kafka",
            folders={},
            releases=frozenset(),
            symlink_can_switch=True,
            stop_timeout_s=300.0,
            facts=HostFacts(arguments=process),
            logging=read_logging_files(cast(HostCommands, self.scripts), node, [release], process),
        )
        return list(logging_file_findings(node, state, [release] if release else []))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host(HostWithScripts(tmp_path))
    made.config(R391, OWN)
    made.config(R431, OWN_OF_4)
    made.config(R380, OWN)
    return made


def shown(found: list[Finding]) -> list[tuple[str, str]]:
    return [(one.code, one.severity.value) for one in found]


@pytest.mark.parametrize("release", [R380, R391, R431, Release(4, 4, 0), None])
def test_kafkas_own_configuration_is_no_finding(host: Host, release: Release | None) -> None:
    assert host.findings(release) == []
    assert host.findings(release, log_file=f"{host.scripts.home}/kafka/logs/server.log") == []


@pytest.mark.parametrize(
    ("before", "after", "of_4", "of_3"),
    [
        ("${kafka.logs.dir}/server.log", "/var/log/kafka/server.log", [WARNED], [WARNED]),
        ("[%d] %p %m", "[%d{ISO8601}] %-5p %m", [WARNED], [WARNED]),
        ("org.apache.log4j.PatternLayout", "net.logstash.log4j.JSONEventLayoutV1", [WARNED], [WARNED]),
        ("INFO", "WARN", [], [WARNED]),
        ("# A comment", "# Another one", [], []),
    ],
)
def test_what_the_next_file_does_not_have_is_a_warning(
    host: Host, before: str, after: str, of_4: list[tuple[str, str]], of_3: list[tuple[str, str]]
) -> None:
    host.config(R391, OWN.replace(before, after))
    assert shown(host.findings(R391)) == []
    for release in (R431, Release(4, 4, 0), None):
        found = host.findings(release)
        assert shown(found) == of_4
        assert all(after.rsplit(".", maxsplit=1)[-1] in one.sentence for one in found)
    assert shown(host.findings(R380)) == of_3
    host.config(R380, OWN.replace(before, after))
    assert host.findings(R380) == []


def test_a_log_file_that_only_the_changed_configuration_writes_is_a_blocker(host: Host) -> None:
    log = "/var/log/kafka/server.log"
    host.config(R391, OWN.replace("${kafka.logs.dir}/server.log", log))
    (found,) = host.findings(R431, log_file=log)
    assert ((found.code, found.severity.value), f"does not write {log}" in found.sentence) == (BLOCKED, True)
    assert host.findings(R391, log_file=log) == []
    host.config(R431, OWN_OF_4.replace("${sys:kafka.logs.dir}/server.log", log))
    assert host.findings(R431, log_file=log) == []
    assert shown(host.findings(None, log_file=log)) == [WARNED]


@pytest.mark.parametrize(
    ("release", "lines"),
    [
        (R391, "log4j.appender.remote=com.example.Appender\nlog4j.appender.remote.apiPin=S3CRET\n"),
        (R431, "      Property:\n        - name: ssl.keystore.password\n          value: S3CRET\n"),
        (R431, "      Property:\n        - name: X-API-Key\n          value: 'S3CRET'\n"),
    ],
)
def test_no_value_of_an_appender_is_shown(host: Host, release: Release, lines: str) -> None:
    own = OWN if release == R391 else OWN_OF_4
    host.config(release, own + lines)
    if release == R431:
        host.config(Release(4, 4, 0), own)
        (host.scripts.home / "kafka").unlink()
        (host.scripts.home / "kafka").symlink_to(f"kafka_2.13-{release}")
    (found,) = host.findings(R380 if release == R391 else Release(4, 4, 0), running=release)
    assert "[hidden]" in found.sentence
    assert "S3CRET" not in found.sentence
