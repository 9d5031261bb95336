"""What the plan could not check stands in each text that an approver reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.findings import CheckState, Severity
from kafka_rollout.model.acls import AUTHORIZER, STANDARD_AUTHORIZER
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.run import Run
from kafka_rollout.procedure.approval_requests import approval_body, plan_body, roll_body
from tests.acls import read_acl
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import plan_downgrade, plan_upgrade

PROBLEM = "Node 1 cannot list the ACLs (UNKNOWN_SERVER_ERROR)."


def cluster_with(release: object, **fields: object) -> FakeCluster:
    cluster = FakeCluster(release, **fields)  # type: ignore[arg-type]
    cluster.acls = {read_acl("User:alice", host="10.0.0.0/8")}
    for node in cluster.nodes.values():
        node.config[AUTHORIZER] = STANDARD_AUTHORIZER
    return cluster


def assert_says(plan: Plan, text: str) -> None:
    unknown = [one for one in plan.checks if one.state is CheckState.NOT_OBSERVABLE]
    assert unknown
    assert f"Not checked completely: {len(plan.unknown_checks)}" in text
    for one in unknown:
        assert f"- **{one.check}**: " in text
    assert PROBLEM.split(" (", maxsplit=1)[0] in text
    assert text.index("Not checked completely") < text.index("Findings:")


def test_an_approval_of_an_upgrade_lists_what_could_not_be_checked(tmp_path: Path) -> None:
    cluster = cluster_with(R391)
    cluster.acls_problem = PROBLEM
    plan = plan_upgrade(fake_ports(cluster, tmp_path), R431, finalize=False)
    assert plan.blockers == ()
    assert_says(plan, approval_body(plan))


@pytest.mark.parametrize("body", [roll_body, plan_body])
def test_an_approval_of_a_downgrade_lists_what_could_not_be_checked(tmp_path: Path, body: object) -> None:
    cluster = cluster_with(R431, finalized={"metadata.version": 21})
    cluster.acls_problem = PROBLEM
    ports = fake_ports(cluster, tmp_path)
    plan = plan_downgrade(ports, R391)
    assert_says(plan, body(Run(ports, plan)))  # type: ignore[operator]


def test_what_is_unknown_beside_findings_is_listed_too(tmp_path: Path) -> None:
    cluster = cluster_with(R391)
    cluster.acls_problem = PROBLEM
    plan = plan_upgrade(fake_ports(cluster, tmp_path), R431, finalize=False)
    (acl,) = (one for one in plan.checks if one.id == "acl-meaning")
    found = replace(acl, state=CheckState.FINDINGS, findings=1, severity=Severity.WARNING)
    assert f"- **{acl.check}**: " in approval_body(replace(plan, checks=(found,)))
