"""A plan that is made again, with the same hash: what no approver of the first one read makes the approval invalid."""

from __future__ import annotations

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.control.approval import record_approval, require_approval
from kafka_rollout.model.pace import Pace
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
from kafka_rollout.procedure import actions
from kafka_rollout.procedure.step import StepCall
from kafka_rollout.run.events import ApprovalOf, Decision
from tests.fakes.cluster import R431, FakeCluster

REQUEST = Request(target=R431, scan=False, pace=Pace.FAST)


def make_plan(ports: ClusterPorts) -> Run:
    actions.plan_change(StepCall(ports=ports, request=REQUEST), RunOf.UPGRADE)
    return Run(ports, ports.run.load_plan())


@pytest.fixture
def approved(cluster: FakeCluster, ports: ClusterPorts) -> Run:
    for node in cluster.nodes.values():
        node.in_use = dict(node.config)
    run = make_plan(ports)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "CHG-1", text="the text of the first plan")
    return run


@pytest.mark.parametrize(
    ("line", "code"),
    [(("super.users", "User:mallory"), "FILE-CHANGES-ACCESS"), (("log.retention.hours", "1"), "FILE-CHANGES-DATA")],
)
def test_a_new_warning_makes_the_approval_invalid(
    cluster: FakeCluster, ports: ClusterPorts, approved: Run, line: tuple[str, str], code: str
) -> None:
    for broker in cluster.spec.brokers:
        cluster.nodes[broker.node_id].config[line[0]] = line[1]
    again = make_plan(ports)
    assert again.plan.hash == approved.plan.hash
    with pytest.raises(RefusedError, match=f"by alice is invalid.*{code}"):
        require_approval(again, ApprovalOf.ROLL)


def test_the_same_plan_keeps_its_approval(ports: ClusterPorts, approved: Run) -> None:
    assert require_approval(make_plan(ports), ApprovalOf.ROLL).by == "alice"
