"""What each node reads at its next start."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.model.plan import Lowering
from kafka_rollout.model.starts import LOGIN_FILE
from kafka_rollout.preparation import next_starts
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.integration.harness.faults.without_live import stage_no_live
from tests.plans import plan_downgrade

R421 = Release(4, 2, 1)
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


@pytest.mark.parametrize(
    ("lowering", "judged"),
    [(Lowering.ONLINE, []), (Lowering.LIVE, [1, 2, 3]), (Lowering.OFFLINE, [1, 2, 3, 11, 12, 13])],
)
def test_the_file_of_now_is_judged_on_the_release_of_now_if_nodes_start_on_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lowering: Lowering, judged: list[int]
) -> None:
    """The controllers in a live downgrade, all nodes in the undo of an offline one."""
    if lowering is Lowering.OFFLINE:
        stage_no_live(monkeypatch)
    world = FakeCluster(R431)
    ports = fake_ports(world, tmp_path)
    world.config_problems[R431] = ("log.segment.bytes is too small",)
    world.finalized = (
        dict(world.finalized) if lowering is not Lowering.ONLINE else {**world.finalized, METADATA_VERSION: 29}
    )
    plan = plan_downgrade(ports, R421, lowering=lowering)
    assert plan.lowering is lowering
    found = [one for one in plan.findings if one.code == "CONFIG-REJECTED"]
    assert [one.subject for one in found] == [f"node {node_id}" for node_id in judged]
    assert all("4.3.1: log.segment.bytes is too small" in one.sentence for one in found)
