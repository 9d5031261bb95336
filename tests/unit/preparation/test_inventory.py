"""The check of an inventory, and the hosts of a plan, on a cluster in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import NotObservableError
from kafka_rollout.model.rights import ALTER_CLUSTER, PINNING, READING, MissingRight
from kafka_rollout.preparation.node_checks import check_inventory, readiness
from kafka_rollout.releases.facts import Release
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import fake_ports, hidden_bench
from tests.fakes.runtime import FakeRuntime
from tests.plans import plan_upgrade
from tests.unit.builders import host_state

R391, R431 = Release(3, 9, 1), Release(4, 3, 1)
NODE = 3
HOST = host_state(stop_timeout_s=5.0)


def test_a_plan_has_the_findings_of_the_hosts(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    cluster.hosts[NODE] = HOST
    plan = plan_upgrade(fake_ports(cluster, tmp_path), R431, finalize=False)
    assert [(found.code, found.subject) for found in plan.blockers] == [("STOP-TIMEOUT-SHORT", f"node {NODE}")]
    cluster.hosts[NODE] = replace(HOST, stop_timeout_s=None)
    assert plan_upgrade(fake_ports(cluster, tmp_path, run_id="run-2"), R431, finalize=False).blockers == ()


@pytest.mark.parametrize("silent", [False, True])
def test_the_check_of_an_inventory_lists_every_node_and_names_the_silent_one(tmp_path: Path, silent: bool) -> None:
    cluster = FakeCluster(R391)
    if silent:
        cluster.silent.add(NODE)
    nodes, verdict = check_inventory(fake_ports(cluster, tmp_path), [])
    assert [checked.node.node_id for checked in nodes] == [node.node_id for node in cluster.spec.nodes]
    assert [(found.code, found.subject) for found in verdict.blockers] == (
        [("NODE-DOWN", f"node {NODE}")] if silent else []
    )
    number = len(nodes)
    assert readiness(cluster.spec, nodes, verdict).sentence == (
        f"Not ready: 1 blocker. {number - 1} of {number} nodes without one."
        if silent
        else f"Ready: a run can observe and manage all {number} nodes."
    )


def test_the_check_of_an_inventory_does_not_pass_with_an_unknown_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(runtime: object, node: object, releases: object) -> int:
        raise NotObservableError("Java 17 or Java 11.", remedy="Set JAVA_HOME.")

    cluster = FakeCluster(R391)
    monkeypatch.setattr(FakeRuntime, "java_version", refuse)
    _, verdict = check_inventory(fake_ports(cluster, tmp_path), [R431])
    found = [one for one in verdict.blockers if one.code == "JAVA-UNKNOWN"]
    assert [(one.sentence, one.remedy) for one in found] == [("Java 17 or Java 11.", "Set JAVA_HOME.")] * len(
        cluster.spec.nodes
    )


def test_the_check_of_an_inventory_names_each_missing_right_of_a_run(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    cluster.missing_rights = [
        MissingRight(right=right, principal="User:rollout") for right in (READING[0], ALTER_CLUSTER, *PINNING)
    ]
    nodes, verdict = check_inventory(fake_ports(cluster, tmp_path), [])
    assert readiness(cluster.spec, nodes, verdict).commands == (
        "kafka-rollout inventory rights --cluster fake --of kafka",
    )
    assert [(found.code, found.severity, found.subject) for found in verdict.findings] == [
        ("RIGHT-MISSING", "blocker", "DESCRIBE on CLUSTER (broker listener)"),
        ("RIGHT-MISSING", "blocker", "ALTER on CLUSTER (broker listener)"),
        ("RIGHT-MISSING", "warning", "ALTER_CONFIGS on CLUSTER (broker listener)"),
    ]
    assert verdict.findings[-1].remedy.endswith("--allow-principal 'User:rollout' --operation AlterConfigs --cluster")
    _, verdict = check_inventory(hidden_bench(cluster, tmp_path), [])
    assert {found.severity for found in verdict.findings if found.code == "RIGHT-MISSING"} == {"info"}


def test_the_check_of_an_inventory_does_not_pass_without_an_answer_about_rights(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    cluster.silent.update(node.node_id for node in cluster.spec.nodes)
    _, verdict = check_inventory(fake_ports(cluster, tmp_path), [])
    assert ("NODE-DOWN", "brokers") in {(found.code, found.subject) for found in verdict.blockers}


def test_a_plan_that_pins_nothing_does_not_need_the_right_to_set_defaults(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    cluster.missing_rights = [MissingRight(right=PINNING[0], principal="User:rollout")]
    plan = plan_upgrade(fake_ports(cluster, tmp_path), R431, finalize=False)
    assert [found.code for found in plan.findings if found.code == "RIGHT-MISSING"] == []
