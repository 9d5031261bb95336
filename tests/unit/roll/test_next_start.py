"""A node whose link or package leads to another release than its process: named in plans, and never done."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.findings import Finding, Severity
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.gate import GateKind, GatePolicy, GateRef
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.planning.findings.cluster_state import check_cluster
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.releases.facts import Release
from kafka_rollout.roll.gate_checks import check_gate
from kafka_rollout.roll.loop import Part, next_part
from kafka_rollout.roll.walk import roll_release_steps
from kafka_rollout.run.events import ApprovalOf, Decision
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports, in_step
from tests.plans import plan_upgrade
from tests.unit.builders import SEPARATE, catalogue, state

STEP, NODE = "3.9.1-to-4.3.1", 12
QUICK = GatePolicy(checks=1, interval_s=1, timeout_s=30)
AFTER = GateRef(kind=GateKind.AFTER_START, release_step=STEP, node_id=NODE)
CODE = "NEXT-START-DIFFERS"


def continued(home: Path, *, installed: Release) -> tuple[FakeCluster, ClusterPorts, Plan]:
    """An earlier run has upgraded the node, and its link is switched."""
    cluster = FakeCluster(R391)
    cluster.nodes[NODE].running, cluster.nodes[NODE].installed = R431, installed
    ports = fake_ports(cluster, home)
    plan = plan_upgrade(ports, R431, finalize=False)
    assert plan.blockers == ()
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    return cluster, ports, plan


def of_code(plan: Plan) -> list[Finding]:
    return [one for one in plan.findings if one.code == CODE]


def test_a_continued_upgrade_does_not_count_a_node_as_done_that_starts_on_the_old_release(tmp_path: Path) -> None:
    cluster, ports, plan = continued(tmp_path, installed=R391)
    (found,) = of_code(plan)
    assert (found.severity, found.subject) == (Severity.WARNING, "node 12, release 3.9.1")
    assert "The next start of node 12 is on Kafka 3.9.1" in found.sentence
    with pytest.raises(RefusedError, match=r"next start: on 3.9.1: switch the link, or install the package, of 4.3.1"):
        roll_release_steps(Run(ports, plan), QUICK)
    cluster.nodes[NODE].installed = R431  # by an operator
    assert check_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster)).passes
    at = NodeRun(Run(ports, plan), *in_step(ports, plan, STEP, NODE))
    assert next_part(at, ports.run.events()) is Part.GATE_AFTER


def test_a_continued_upgrade_goes_on_where_the_link_is_right(tmp_path: Path) -> None:
    cluster, ports, plan = continued(tmp_path, installed=R431)
    assert of_code(plan) == []
    assert roll_release_steps(Run(ports, plan), QUICK)
    assert cluster.nodes[NODE].starts == []


def test_a_restart_and_an_upgrade_of_running_nodes_name_the_release_of_the_next_start(tmp_path: Path) -> None:
    cluster = FakeCluster(R431)
    for node_id in (NODE, 13):
        cluster.nodes[node_id].installed = R391
    ports = fake_ports(cluster, tmp_path)
    for plan in (plan_change(ports, Request(), RunOf.RESTART), plan_upgrade(ports, R431, finalize=False)):
        (found,) = of_code(plan)
        assert "nodes 12, 13 is on Kafka 3.9.1" in found.sentence
        assert "link" in found.remedy
        assert "package" in found.remedy


@pytest.mark.parametrize(
    ("change", "is_found"),
    [({"installed": R431}, True), ({"installed": R391}, False), ({"installed": None}, False), ({"pid": None}, False)],
)
def test_only_a_running_process_with_a_known_release_is_compared(change: dict[str, object], is_found: bool) -> None:
    seen = state()
    process = replace(seen.nodes[4].process, **{"installed": R431, **change})  # type: ignore[arg-type]
    seen = replace(seen, nodes={**seen.nodes, 4: replace(seen.nodes[4], process=process)})
    checks = check_cluster(SEPARATE, catalogue(), seen)
    assert (CODE in [one.code for check in checks for one in check.findings]) is is_found
