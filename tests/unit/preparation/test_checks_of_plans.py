"""A plan keeps every check that belongs to it, with its result."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.findings import CheckOf, CheckState
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.feature_updates.update import plan_features
from kafka_rollout.features.requests import FeatureAction, FeatureOrder
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.preparation.frozen_plan import replace_coordinator_log_findings
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.check_registry import CHECKS
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.kafka_classes import asked_alone
from tests.fakes.ports import fake_ports, hidden_bench
from tests.plans import plan_downgrade, plan_upgrade

R381 = Release.parse("3.8.1")


@pytest.fixture
def ports(tmp_path: Path) -> ClusterPorts:
    return fake_ports(FakeCluster(R391), tmp_path)


def planned(ports: ClusterPorts, kind: CheckOf) -> Plan:
    if kind is CheckOf.UPGRADE:
        return plan_upgrade(ports, R431, finalize=True)
    if kind is CheckOf.DOWNGRADE:
        return plan_downgrade(ports, R381)
    return plan_features(ports, FeatureOrder(action=FeatureAction.UPGRADE_ALL), unsafe=False)


def results(plan: Plan) -> dict[str, str]:
    return {one.check: one.text for one in plan.checks}


@pytest.mark.parametrize("kind", [CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.FEATURES])
def test_a_plan_runs_every_check_that_belongs_to_it_once_and_keeps_the_results(
    ports: ClusterPorts, kind: CheckOf
) -> None:
    plan = planned(ports, kind)
    assert Counter(one.check for one in plan.checks) == Counter(c.title for c in CHECKS if kind in c.of)
    assert ports.run.load_plan().checks == plan.checks


@pytest.mark.parametrize("kind", [CheckOf.UPGRADE, CheckOf.DOWNGRADE])
def test_the_questions_of_a_plan_to_kafka_s_classes_share_processes(ports: ClusterPorts, kind: CheckOf) -> None:
    planned(ports, kind)
    assert asked_alone(ports) == []


@pytest.mark.parametrize("kind", [CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.FEATURES])
def test_the_results_count_the_findings_of_the_plan(ports: ClusterPorts, kind: CheckOf) -> None:
    plan = planned(ports, kind)
    assert plan.findings or kind is CheckOf.FEATURES
    assert sum(one.findings for one in plan.checks) == len([f for f in plan.findings if f.code != "NOT-OBSERVABLE"])
    codes = {code.code: check.title for check in CHECKS for code in check.codes}
    found = {one.check for one in plan.checks if one.findings}
    assert {codes[f.code] for f in plan.findings if f.code != "NOT-OBSERVABLE"} <= found


def test_results_are_no_part_of_the_hash_and_a_plan_of_an_earlier_version_has_none(ports: ClusterPorts) -> None:
    plan = planned(ports, CheckOf.UPGRADE)
    stored = to_json(plan)
    del stored["checks"]
    earlier = from_json(Plan, stored)
    assert (earlier.checks, earlier.hash) == ((), plan.hash)
    assert earlier == replace(plan, checks=())


def test_a_check_says_why_it_does_not_apply(ports: ClusterPorts) -> None:
    found = results(plan_upgrade(ports, R391, finalize=False))
    assert found["Java of each node"] == "not applicable: No node changes its release."
    assert found["Options and properties of each node's JVM"] == "not applicable: No node changes its release."
    assert found["Host of each node"].startswith("not applicable: The runtime ")


def test_nothing_that_a_read_only_cluster_hides_is_passed(cluster: FakeCluster, tmp_path: Path) -> None:
    plan = planned(hidden_bench(cluster, tmp_path), CheckOf.UPGRADE)
    states = {one.check: one.state for one in plan.checks}
    hidden = (
        "Configuration of each node, by the target's own classes",
        "Java of each node",
        "Host of each node",
        "Values that must agree between nodes",
        "Options and properties of each node's JVM",
        "Error counters of the nodes",
        "Connected clients and their request versions (KIP-896)",
        "Coordinator logs, compared with the releases of the path (KIP-915)",
    )
    assert {states[title] for title in hidden} == {CheckState.NOT_OBSERVABLE}
    assert all(one.reason for one in plan.checks if one.state is CheckState.NOT_OBSERVABLE)
    assert states["Controlled shutdown of the brokers"] is CheckState.PASSED  # only controllers are hidden


def test_a_node_without_an_answer_leaves_no_check_of_the_nodes_passed(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports = fake_ports(cluster, tmp_path)
    passed = {one.check for one in planned(ports, CheckOf.UPGRADE).checks if one.state is CheckState.PASSED}
    assert {"Metadata quorum", "Different releases in the cluster"} <= passed
    cluster.stop(ports.cluster.nodes[-1].node_id)
    checks = {one.check: one for one in planned(ports, CheckOf.UPGRADE).checks}
    assert checks["Different releases in the cluster"].state is CheckState.NOT_OBSERVABLE
    assert checks["Metadata quorum"].state is CheckState.PASSED, "no controller is missing"
    assert checks["Registration and release of each node"].findings


def test_a_later_scan_replaces_the_result_of_its_check(ports: ClusterPorts) -> None:
    plan = planned(ports, CheckOf.DOWNGRADE)
    title = "Coordinator logs, compared with the releases of the path (KIP-915)"
    assert results(plan)[title] == "not observable: It is checked later in the run, before the approval."
    for _ in range(2):
        plan = replace_coordinator_log_findings(Run(ports, plan))
    assert results(plan)[title] == "1 finding (blocker)"
    assert [f.code for f in plan.findings].count("LOGS-NOT-SCANNED") == 1  # type: ignore[arg-type]
    assert [one.check for one in plan.checks].count(title) == 1
