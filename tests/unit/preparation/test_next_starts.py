"""What each node reads at its next start."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.model.starts import LOGIN_FILE
from kafka_rollout.preparation import next_starts
from kafka_rollout.releases.facts import Release
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import fake_ports

_SASL = {"listeners": "SASL_PLAINTEXT://:9092", "process.roles": "broker"}
_NAMED = f"-D{LOGIN_FILE}=/etc/kafka/jaas.conf"


@pytest.mark.parametrize(
    ("runs", "arguments", "known"),
    [
        (True, ("java", "-Xmx1g"), ("java", "-Xmx1g")),
        (False, ("-Xmx1g",), None),
        (False, ("-Xmx1g", _NAMED), ("-Xmx1g", _NAMED)),
    ],
)
def test_the_arguments_of_a_node_that_is_down_are_not_all_known(
    tmp_path: Path, *, runs: bool, arguments: tuple[str, ...], known: tuple[str, ...] | None
) -> None:
    cluster = FakeCluster(Release(3, 9, 1))
    ports = fake_ports(cluster, tmp_path)
    node = ports.cluster.brokers[0]
    cluster.nodes[node.node_id].jvm_arguments = arguments
    if not runs:
        cluster.nodes[node.node_id].running = None
    next_starts.observe_starts(ports, Release(3, 9, 1), {node.node_id: _SASL}, down=False)
    assert [start.jvm_arguments for start in cluster.checked_starts] == [known]
