"""The plan names what the authorizer of another release decides otherwise, and the comparison after it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.findings import CheckState
from kafka_rollout.model.acls import AUTHORIZER, STANDARD_AUTHORIZER, AccessChange, AclDifferences, Action
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.preparation.acl_meaning import access_differences
from kafka_rollout.preparation.node_checks import node_configs
from tests.acls import read_acl
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import plan_downgrade, plan_upgrade

ALICE = read_acl("User:alice", host="10.0.0.0/8")
CHANGE = AccessChange(
    principal="User:alice", more=True, actions={Action(3, 2, "orders"): ("10.0.0.0",)}, causes=(ALICE,)
)
LESS = AccessChange(principal="User:bob", more=False, actions=CHANGE.actions, causes=(ALICE,))


def cluster_with(authorizer: str = STANDARD_AUTHORIZER, *, release: object = R391) -> FakeCluster:
    cluster = FakeCluster(release)  # type: ignore[arg-type]
    cluster.acls = {ALICE}
    for node in cluster.nodes.values():
        node.config[AUTHORIZER] = authorizer
    return cluster


def found(plan: Plan) -> dict[str, tuple[str, str]]:
    return {one.code: (one.severity, one.subject) for one in plan.findings if one.code.startswith("ACL-")}


def result(plan: Plan) -> tuple[CheckState, str]:
    (one,) = (one for one in plan.checks if one.id == "acl-meaning")
    return one.state, one.reason


def test_an_upgrade_is_blocked_by_more_access_and_warns_of_less(tmp_path: Path) -> None:
    cluster = cluster_with()
    cluster.acl_differences[R431] = AclDifferences(changes=(LESS, CHANGE))
    plan = plan_upgrade(fake_ports(cluster, tmp_path), R431, finalize=False)
    assert found(plan) == {
        "ACL-MEANS-MORE": ("blocker", "4.3.1, User:alice"),
        "ACL-MEANS-LESS": ("warning", "4.3.1, User:bob"),
    }


@pytest.mark.parametrize(("unsafe", "severity"), [(False, "blocker"), (True, "warning")])
def test_a_downgrade_loses_decisions_and_acls(tmp_path: Path, unsafe: bool, severity: str) -> None:
    cluster = cluster_with(release=R431)
    cluster.finalized = {"metadata.version": 25}
    cluster.acl_differences[R391] = AclDifferences(unknown=(ALICE,), changes=(LESS, CHANGE))
    plan = plan_downgrade(fake_ports(cluster, tmp_path), R391, unsafe=unsafe)
    assert {code: one for code, (one, _) in found(plan).items()} == dict.fromkeys(
        ("ACL-MEANS-MORE", "ACL-MEANS-LESS", "ACL-NOT-KEPT"), severity
    )


def test_an_authorizer_of_another_kind_and_acls_that_cannot_be_listed_are_unknown(
    tmp_path: Path,
) -> None:
    plan = plan_upgrade(fake_ports(cluster_with("com.example.Opa"), tmp_path / "1"), R431, finalize=False)
    state, reason = result(plan)
    assert (state, found(plan)) == (CheckState.NOT_OBSERVABLE, {})
    assert "The authorizer com.example.Opa is not Kafka's StandardAuthorizer" in reason
    cluster = cluster_with()
    cluster.acls_problem = "Node 1 cannot list the ACLs (UNKNOWN_SERVER_ERROR)."
    state, reason = result(plan_upgrade(fake_ports(cluster, tmp_path / "2"), R431, finalize=False))
    assert state is CheckState.NOT_OBSERVABLE
    assert cluster.acls_problem in reason


def test_a_cluster_without_an_authorizer_is_not_asked(tmp_path: Path) -> None:
    cluster = cluster_with(authorizer="")
    cluster.acl_differences[R431] = AclDifferences(changes=(CHANGE,))
    plan = plan_upgrade(fake_ports(cluster, tmp_path), R431, finalize=False)
    assert result(plan)[0] is CheckState.NOT_APPLICABLE


def compared(ports: ClusterPorts, plan: Plan) -> list[tuple[str, bool]]:
    return [(one.subject, one.fails) for one in access_differences(Run(ports, plan), (ALICE,), node_configs(ports))]


def test_the_comparison_after_a_run_needs_an_approver_for_decisions_that_the_plan_did_not_name(tmp_path: Path) -> None:
    cluster = cluster_with()
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    assert compared(ports, plan) == []
    cluster.acl_differences[R431] = AclDifferences(changes=(LESS,))
    assert compared(ports, plan) == [("4.3.1, User:bob", True)]
    assert compared(ports, plan_upgrade(ports, R431, finalize=False)) == [("4.3.1, User:bob", False)]


@pytest.mark.parametrize(
    "other",
    [replace(LESS, more=True), replace(LESS, actions={**LESS.actions, Action(4, 2, "orders"): ("10.0.0.0",)})],
    ids=["another direction", "one action more"],
)
def test_an_approved_difference_of_a_principal_does_not_cover_another_one(tmp_path: Path, other: AccessChange) -> None:
    cluster = cluster_with()
    ports = fake_ports(cluster, tmp_path)
    cluster.acl_differences[R431] = AclDifferences(changes=(LESS,))
    plan = plan_upgrade(ports, R431, finalize=False)
    cluster.acl_differences[R431] = AclDifferences(changes=(other,))
    assert compared(ports, plan) == [("4.3.1, User:bob", True)]
