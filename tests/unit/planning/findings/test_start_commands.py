"""Commands of Kafka before a start, which the next release runs with the same options."""

from __future__ import annotations

import pytest

from kafka_rollout.model.host_state import HostState
from kafka_rollout.model.topology import NodeSpec, Role
from kafka_rollout.nodes.runtimes.hosts.option_sources import UnitOptions
from kafka_rollout.nodes.runtimes.hosts.unit_state import needed_commands
from kafka_rollout.planning.findings.start_commands import start_command_findings
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from tests.paths import ROOT

CATALOGUE = load_catalogue(ROOT / "include")
NODE = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}))
SHOWN = "ExecStartPre={{ path=/x ; argv[]={} ; ignore_errors={} ; start_time=[n/a] ; pid=0 }}"
FORMAT = "/opt/kafka/bin/kafka-storage.sh format -t ID -c /etc/kafka/x --ignore-formatted"


def found(command: str, release: str, *, ignored: bool = False, running: str = "4.3.1") -> list[tuple[str, str]]:
    shown = SHOWN.format(command, "yes" if ignored else "no")
    host = HostState(
        name="kafka-1",
        unit="kafka.service",
        symlink="/opt/kafka",
        folders={},
        releases=frozenset({Release.parse(running)}),
        symlink_can_switch=True,
        stop_timeout_s=300.0,
        start_commands=needed_commands(UnitOptions(commands=(shown,), variables={"LEVEL": "4.3-IV0"})),
    )
    findings = start_command_findings(CATALOGUE, NODE, host, [Release.parse(release)])
    return [(one.severity.value, one.sentence) for one in findings]


@pytest.mark.parametrize(
    ("options", "release", "why"),
    [
        ("--release-version 4.3-IV0", "4.2.1", "does not have the release version 4.3-IV0"),
        ("--release-version ${LEVEL}", "4.2.1", "does not have the release version 4.3-IV0"),
        ("-r 4.0-IV3", "3.9.1", "does not have the release version 4.0-IV3"),
        ("--release-version=4.3", "4.2.1", "does not have the release version 4.3"),
        ("--release-version 3.1", "4.0.1", "does not have the release version 3.1"),
        ("--standalone", "3.7.2", "does not have the option --standalone"),
        ("--release-version 4.2-IV1", "4.2.1", ""),
        ("--release-version 3.9.1", "4.2.1", ""),
        ("--standalone", "3.9.1", ""),
        ("", "3.4.1", ""),
    ],
)
def test_options_of_a_format_that_the_next_release_refuses_are_a_blocker(options: str, release: str, why: str) -> None:
    seen = found(f"{FORMAT} {options}", release)
    assert [severity for severity, _ in seen] == (["blocker"] if why else [])
    assert all(f"Kafka {release} {why}" in sentence for _, sentence in seen)
    assert found(f"/bin/sh -c {FORMAT} {options}; true", release) == seen
    assert found(f"{FORMAT} {options}", release, ignored=True) == []
    assert found(f"{FORMAT} {options}", release, running=release) == []


def test_another_command_of_the_release_is_a_warning() -> None:
    ((severity, sentence),) = found("/opt/kafka/bin/kafka-configs.sh --alter --entity-type users", "4.2.1")
    assert severity == "warning"
    assert "runs kafka-configs of Kafka 4.2.1 before the start of node 1" in sentence
    assert found("/usr/bin/mkdir -p /var/log/kafka-x /opt/kafka/logs", "4.2.1") == []
    assert len(found("/usr/bin/kafka-configs --alter --entity-type users", "4.2.1")) == 1
    for own in ("/usr/local/bin/kafka-wait-disks", "/usr/local/bin/kafka-wait.sh", "/srv/tools/bin/kafka-wait-disks"):
        assert found(f"{own} --all", "4.2.1") == []
