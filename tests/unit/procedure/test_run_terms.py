"""The approver sees how the run carries out its plan, approves this with it, and the inventory sets minima."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.feature_updates.update import apply_features
from kafka_rollout.features.requests import FeatureAction
from kafka_rollout.gates.gate import GateKind
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import ApprovalPolicy, Request
from kafka_rollout.procedure import actions
from kafka_rollout.procedure.approval_requests import approval_body, roll_body
from kafka_rollout.procedure.step import StepCall
from kafka_rollout.roll.gate_checks import policy_of
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports


def ports_of(home: Path, **rules: Any) -> ClusterPorts:
    ports = fake_ports(FakeCluster(R391), home)
    return replace(ports, cluster=replace(ports.cluster, **rules))


def planned(ports: ClusterPorts, request: Request) -> Plan:
    actions.plan_change(StepCall(ports=ports, request=replace(request, target=R431, scan=False)), RunOf.UPGRADE)
    return ports.run.load_plan()


def test_the_approver_sees_gates_rehearsal_pause_and_traffic(tmp_path: Path) -> None:
    plan = planned(ports_of(tmp_path), Request(soak_s=30.0, checks=3, gate_timeout_s=900.0, pause_after="first-node"))
    for body in (approval_body(plan), roll_body(Run(ports_of(tmp_path), plan))):
        assert "3 consecutive checks after each start, then a soak of 30 s. The gate timeout is 900 s." in body
        assert "- Rehearsal on a copy requested: yes" in body
        assert "- Pause for an approver after the first node\n" in body
        assert "- Test traffic during the run: **no**" in body
    careless = approval_body(planned(ports_of(tmp_path / "b"), Request(soak_s=0.0, checks=1, rehearse=False)))
    assert "1 consecutive check after each start, **no soak** after that." in careless
    assert "- Rehearsal on a copy requested: **no**" in careless
    assert "Pause" not in careless


def test_an_approval_is_of_these_gates_and_of_no_others(tmp_path: Path) -> None:
    """The hash names what was approved."""
    hashes = {
        planned(ports_of(tmp_path / str(number)), request).hash
        for number, request in enumerate((Request(), Request(soak_s=1.0), Request(checks=2), Request(pause_after="1")))
    }
    assert len(hashes) == 4


def test_a_plan_of_an_earlier_version_keeps_its_hash(tmp_path: Path) -> None:
    plan = planned(ports_of(tmp_path), Request())
    stored = {key: value for key, value in to_json(plan).items() if key != "terms"}
    earlier = from_json(Plan, stored)
    assert earlier.terms is None
    assert earlier.hash == replace(plan, terms=None).hash != plan.hash
    assert "How the run proceeds" not in approval_body(earlier)
    stored["terms"] = {key: value for key, value in to_json(plan.terms).items() if key != "skip_conditions"}
    assert from_json(Plan, stored).hash == plan.hash


def test_the_inventory_sets_the_least_of_soak_and_checks(tmp_path: Path) -> None:
    ports = ports_of(tmp_path, min_soak_seconds=90.0, min_checks=5)
    plan = planned(ports, Request())
    assert plan.terms is not None
    assert (plan.terms.soak_s, plan.terms.checks) == (90.0, 5)
    for request, soak_s, checks in ((Request(), 90.0, 5), (Request(soak_s=95.0, checks=9), 95.0, 9)):
        policy = policy_of(ports, GateKind.AFTER_START, request)
        assert (policy.soak_s, policy.checks) == (soak_s, checks)


def test_a_continued_run_waits_no_shorter_than_approved(tmp_path: Path) -> None:
    ports = ports_of(tmp_path)
    plan = planned(ports, Request(soak_s=90.0, checks=5))
    policy = policy_of(ports, GateKind.AFTER_START, Request(), plan)
    assert (policy.soak_s, policy.checks) == (90.0, 5)


def feature_call(ports: ClusterPorts, policy: ApprovalPolicy) -> StepCall:
    request = Request(action=FeatureAction.UPDATE, upgrade=("streams.version:1",), approval=policy)
    return StepCall(ports=ports, request=request)


def feature_ports(home: Path, **rules: Any) -> ClusterPorts:
    ports = fake_ports(FakeCluster(R431, finalized={"metadata.version": 30, "group.version": 1}), home)
    return replace(ports, cluster=replace(ports.cluster, **rules))


@pytest.mark.parametrize("policy", list(ApprovalPolicy))
def test_the_approval_policy_of_a_feature_run_counts_at_the_action(tmp_path: Path, policy: ApprovalPolicy) -> None:
    """The task `approve` can be marked as successful in Airflow."""
    ports = feature_ports(tmp_path)
    actions.plan_features(feature_call(ports, policy))
    plan = ports.run.load_plan()
    if policy is ApprovalPolicy.WHERE_NEEDED:
        apply_features(Run(ports, plan))
        return
    with pytest.raises(RefusedError, match="is not approved"):
        apply_features(Run(ports, plan))


def test_the_inventory_can_forbid_changes_without_an_approval(tmp_path: Path) -> None:
    ports = feature_ports(tmp_path, feature_approval="always")
    with pytest.raises(UserError, match="requires an approval of every feature change"):
        actions.plan_features(feature_call(ports, ApprovalPolicy.WHERE_NEEDED))
    actions.plan_features(feature_call(ports, ApprovalPolicy.ALWAYS))
    assert asdict(ports.run.load_plan())["terms"]["every_change"]
