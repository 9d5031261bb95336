"""Units of others that start through the link of a node, as `systemctl show` names them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.model.host_state import HostState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.findings.stops import stop_findings
from kafka_rollout.releases.facts import Release
from tests.fakes.host import FakeHost
from tests.unit.nodes.runtimes.test_service import NODE, runtime_on

OWN = "Id=kafka.service\nNames=kafka.service\nExecStart={ path=/opt/kafka/bin/kafka-server-start.sh ; argv[]=x }"
UNKNOWN = "which other units start through /opt/kafka (`systemctl show`)"


def read(*shown: str) -> HostState:
    return runtime_on(FakeHost(services="\n\n".join(shown) + "\n")).host(NODE, [Release(4, 3, 1)])


@pytest.mark.parametrize(
    ("line", "is_user"),
    [
        (
            "ExecStart={ path=/opt/kafka/bin/connect-distributed.sh ; argv[]=/opt/kafka/bin/connect-distributed.sh }",
            True,
        ),
        ("ExecStart={ path=/bin/sh ; argv[]=/bin/sh -c exec /opt/kafka/bin/kafka-mirror-maker.sh ; ignore=no }", True),
        ("ExecStartPre={ path=/bin/cp ; argv[]=/bin/cp /opt/kafka/libs/x.jar /tmp ; ignore=no }", True),
        ("WorkingDirectory=/opt/kafka", True),
        ("Environment=KAFKA_HOME=/opt/kafka LANG=C", True),
        ("ExecStart={ path=/opt/kafka-exporter/run ; argv[]=/opt/kafka-exporter/run ; ignore=no }", False),
        ("ExecStart={ path=/opt/kafka_2.13-3.9.1/bin/connect-distributed.sh ; argv[]=x }", False),
        ("ExecStart={ path=/srv/opt/kafka/run ; argv[]=x }", False),
    ],
)
def test_a_unit_uses_the_link_if_its_command_folder_or_environment_names_it(line: str, is_user: bool) -> None:
    state = read(f"Id=connect.service\nNames=connect.service\n{line}", OWN)
    assert (state.link_users, UNKNOWN in state.unknown) == (("connect.service",) if is_user else (), False)


def test_a_unit_that_is_stopped_and_not_enabled_is_not_loaded_until_it_is_named() -> None:
    state = read("Id=connect.service\nNames=connect.service\nWorkingDirectory=/opt/kafka")
    assert (state.link_users, UNKNOWN in state.unknown) == (("connect.service",), False)


def test_if_systemd_does_not_show_all_units_the_others_are_unknown() -> None:
    connect = "Id=connect.service\nExecStart={ path=/opt/kafka/bin/connect-distributed.sh }"
    without = {"kafka.service": None}
    cut = FakeHost(services=connect, shows=False)
    for host in (cut, FakeHost(services=connect, depends=without), FakeHost(depends=without)):
        assert UNKNOWN in runtime_on(host).host(NODE, [Release(4, 3, 1)]).unknown


def test_they_are_named_with_the_way_out() -> None:
    state = read(
        OWN, "Id=connect.service\nWorkingDirectory=/opt/kafka", "Id=mm2.service\nWorkingDirectory=/opt/kafka/bin"
    )
    (found,) = stop_findings(ClusterSpec(name="far", runtime="ssh_service", nodes=(NODE,)), NODE, state)
    assert (found.code, found.severity.value) == ("LINK-SHARED", "warning")
    assert "connect.service, mm2.service start through /opt/kafka too" in found.sentence
    assert "a link of its own" in found.remedy
    assert found.remedy.endswith(
        "stop connect.service, mm2.service before the step of node 1, and start connect.service, mm2.service after it."
    )


def test_another_node_of_the_cluster_is_never_to_be_stopped_outside_the_run() -> None:
    state = read(OWN, "Id=other.service\nWorkingDirectory=/opt/kafka", "Id=mm2.service\nWorkingDirectory=/opt/kafka")
    assert NODE.service is not None
    other = replace(NODE, node_id=9, service=replace(NODE.service, unit="other.service"))
    far = ClusterSpec(name="far", runtime="ssh_service", nodes=(NODE, other))
    (both,) = stop_findings(far, NODE, state)
    assert "mm2.service, other.service start through" in both.sentence
    assert "`symlink` of node 9" in both.remedy
    assert both.remedy.endswith("Otherwise stop mm2.service before the step of node 1, and start mm2.service after it.")
    (alone,) = stop_findings(far, NODE, replace(state, link_users=("other.service",)))
    assert "stop" not in alone.remedy
