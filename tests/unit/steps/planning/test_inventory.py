"""The check of an inventory, and the hosts of a plan, on a cluster in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.domain.model.cluster.host_state import HostState
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.steps.planning.inventory import check_inventory
from kafka_rollout.steps.planning.plans import plan_upgrade
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import fake_bench

R391, R431 = Release(3, 9, 1), Release(4, 3, 1)
NODE = 3
HOST = HostState(
    name="kafka-4",
    unit="kafka.service",
    symlink="/opt/kafka",
    folders={R431: "/opt/kafka_2.13-4.3.1"},
    releases=frozenset({R431}),
    symlink_can_switch=True,
    stop_timeout_s=5.0,
)


def test_a_plan_has_the_findings_of_the_hosts(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    cluster.hosts[NODE] = HOST
    plan = plan_upgrade(fake_bench(cluster, tmp_path), R431, finalize=False)
    assert [(found.code, found.subject) for found in plan.blockers] == [("STOP-TIMEOUT-SHORT", f"node {NODE}")]
    cluster.hosts[NODE] = replace(HOST, stop_timeout_s=None)
    assert plan_upgrade(fake_bench(cluster, tmp_path, run_id="run-2"), R431, finalize=False).blockers == ()


@pytest.mark.parametrize("silent", [False, True])
def test_the_check_of_an_inventory_lists_every_node_and_names_the_silent_one(tmp_path: Path, silent: bool) -> None:
    cluster = FakeCluster(R391)
    if silent:
        cluster.silent.add(NODE)
    nodes, verdict = check_inventory(fake_bench(cluster, tmp_path), [])
    assert [checked.node.node_id for checked in nodes] == [node.node_id for node in cluster.spec.nodes]
    assert [(found.code, found.subject) for found in verdict.blockers] == (
        [("NODE-DOWN", f"node {NODE}")] if silent else []
    )
