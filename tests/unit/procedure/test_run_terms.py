"""The approver sees how the run carries out its plan, approves this with it, and the inventory sets minima."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.feature_updates.update import apply_features
from kafka_rollout.features.requests import FeatureAction
from kafka_rollout.gates.gate import GateKind
from kafka_rollout.model.pace import PACES, Pace, PaceNumbers
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
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
    plan = planned(ports_of(tmp_path, gate_timeout_s=900.0), Request(pause_after="first-node"))
    for body in (approval_body(plan), roll_body(Run(ports_of(tmp_path), plan))):
        assert "- Pace after each start: **normal**, which means 3 consecutive checks, 1 s apart, then a soak" in body
        assert "- Gate timeout: 15 min 00 s" in body
        assert "- Rehearsal on a copy requested: yes" in body
        assert "- Pause for an approver after the first node\n" in body
        assert "- Test traffic during the run: **no**" in body
    careless = approval_body(planned(ports_of(tmp_path / "b"), Request(pace=Pace.FAST, rehearse=False)))
    assert "**fast**, which means 2 consecutive checks, 0.5 s apart, then no soak" in careless
    assert "- Rehearsal on a copy requested: **no**" in careless
    assert "Pause" not in careless


def test_an_approval_is_of_these_gates_and_of_no_others(tmp_path: Path) -> None:
    """The hash names what was approved."""
    hashes = {
        planned(ports_of(tmp_path / str(number)), request).hash
        for number, request in enumerate((Request(), Request(pace=Pace.CAREFUL), Request(pause_after="1")))
    }
    of_cluster = ports_of(tmp_path / "own", paces={Pace.NORMAL: replace(PACES[Pace.NORMAL], soak_s=61.0)})
    assert len({*hashes, planned(of_cluster, Request()).hash}) == 4


def test_a_plan_of_an_earlier_version_keeps_its_hash(tmp_path: Path) -> None:
    plan = planned(ports_of(tmp_path), Request())
    stored = {key: value for key, value in to_json(plan).items() if key != "terms"}
    earlier = from_json(Plan, stored)
    assert earlier.terms is None
    assert earlier.hash == replace(plan, terms=None).hash != plan.hash
    assert "How the run proceeds" not in approval_body(earlier)
    stored["terms"] = {key: value for key, value in to_json(plan.terms).items() if key != "skip_conditions"}
    assert from_json(Plan, stored).hash == plan.hash


def test_the_inventory_sets_the_numbers_of_a_pace(tmp_path: Path) -> None:
    own = PaceNumbers(soak_s=90.0, checks=5, interval_s=3.0)
    ports = ports_of(tmp_path, paces={Pace.FAST: own})
    plan = planned(ports, Request(pace=Pace.FAST))
    assert plan.terms is not None
    assert (plan.terms.pace, plan.terms.numbers) == (Pace.FAST, own)
    for pace, numbers in ((Pace.FAST, own), (Pace.NORMAL, PACES[Pace.NORMAL]), (Pace.CAREFUL, PACES[Pace.CAREFUL])):
        policy = policy_of(ports, GateKind.AFTER_START, Request(pace=pace))
        assert PaceNumbers(soak_s=policy.soak_s, checks=policy.checks, interval_s=policy.interval_s) == numbers


def test_a_continued_run_waits_no_shorter_than_approved(tmp_path: Path) -> None:
    ports = ports_of(tmp_path)
    plan = planned(ports, Request(pace=Pace.CAREFUL))
    policy = policy_of(ports, GateKind.AFTER_START, Request(pace=Pace.FAST), plan)
    assert (policy.soak_s, policy.checks, policy.interval_s) == (600.0, 5, 2.0)


def feature_call(ports: ClusterPorts) -> StepCall:
    return StepCall(ports=ports, request=Request(action=FeatureAction.UPDATE, upgrade=("streams.version:1",)))


def feature_ports(home: Path, **rules: Any) -> ClusterPorts:
    ports = fake_ports(FakeCluster(R431, finalized={"metadata.version": 30, "group.version": 1}), home)
    return replace(ports, cluster=replace(ports.cluster, **rules))


@pytest.mark.parametrize("policy", ["always", "where_needed"])
def test_the_approval_policy_of_the_inventory_counts_at_the_action(tmp_path: Path, policy: str) -> None:
    """The task `approve` can be marked as successful in Airflow."""
    ports = feature_ports(tmp_path, feature_approval=policy)
    actions.plan_features(feature_call(ports))
    plan = ports.run.load_plan()
    assert plan.terms is not None
    assert plan.terms.every_change == (policy == "always")
    if policy == "where_needed":
        apply_features(Run(ports, plan))
        return
    with pytest.raises(RefusedError, match="is not approved"):
        apply_features(Run(ports, plan))
