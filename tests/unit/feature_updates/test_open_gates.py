"""A change of levels alone is planned only after the gates of the processes that runs have started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.feature_updates.open_gates import GATE_NOT_PASSED
from kafka_rollout.feature_updates.update import plan_features
from kafka_rollout.features.requests import FeatureAction, FeatureOrder, parse_requests
from kafka_rollout.gates.gate import GateKind, GatePolicy, GateRef
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.roll.gate_checks import wait_for_gate
from kafka_rollout.roll.node import replace_node
from kafka_rollout.run.events import ApprovalOf, Decision
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports, in_step
from tests.fakes.runtime import FakeRuntime
from tests.plans import plan_upgrade

STEP = "3.9.1-to-4.3.1"


def plan_levels(cluster: FakeCluster, home: Path, *, up: str = "metadata.version=21") -> Plan:
    ports = fake_ports(cluster, home, run_id="levels")
    order = FeatureOrder(action=FeatureAction.UPDATE, named=parse_requests([up]))
    return plan_features(ports, order, unsafe=False)


def codes(plan: Plan) -> list[tuple[str, str]]:
    return [(finding.code, finding.subject) for finding in plan.findings if finding.code == GATE_NOT_PASSED.code]


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(R391, finalized={"metadata.version": 20})


@pytest.fixture
def run(cluster: FakeCluster, tmp_path: Path) -> Run:
    """A run of before, which has started node 12, and whose gate waits."""
    ports = fake_ports(cluster, tmp_path, run_id="roll")
    run = Run(ports, plan_upgrade(ports, R431, finalize=False))
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "a test")
    replace_node(NodeRun(run, *in_step(ports, run.plan, STEP, 12)))
    return run


def test_the_node_whose_gate_has_not_passed_blocks_a_higher_level(
    cluster: FakeCluster, tmp_path: Path, run: Run
) -> None:
    assert codes(plan_levels(cluster, tmp_path)) == [(GATE_NOT_PASSED.code, "node 12")]
    gate = GateRef(kind=GateKind.AFTER_START, release_step=STEP, node_id=12).resolve(run.plan, run.cluster)
    wait_for_gate(run, gate, GatePolicy(checks=1, interval_s=1, timeout_s=60))
    assert codes(plan_levels(cluster, tmp_path)) == []


def test_another_process_is_not_the_one_of_the_run(cluster: FakeCluster, tmp_path: Path, run: Run) -> None:
    cluster.stop(12)
    cluster.start(12)
    assert codes(plan_levels(cluster, tmp_path)) == []


def test_a_process_that_cannot_be_read_is_unknown(
    cluster: FakeCluster, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka_rollout.feature_updates.open_gates import check_open_gates

    change = plan_levels(cluster, tmp_path).feature_changes[0]

    def process(*_: object) -> None:
        raise TransientError("The host does not respond.")

    monkeypatch.setattr(FakeRuntime, "process", process)
    ports = fake_ports(cluster, tmp_path, run_id="levels")
    checked = check_open_gates(ports, [change])
    assert [one.subject for one in checked.unknown] == ["process of node 12"]
    lowered = replace(change, target=change.current)
    assert check_open_gates(ports, [lowered]).not_applicable == "No level is raised."
