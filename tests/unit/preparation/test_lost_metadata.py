"""Metadata that appears after the report of the losses: no step loses it before an approver has read it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.control.approval import record_approval, require_approval
from kafka_rollout.feature_updates.levels import finalize
from kafka_rollout.lowering import offline
from kafka_rollout.lowering.live import lower_live
from kafka_rollout.metadata_log.losses import ACCESS, Loss
from kafka_rollout.model.acls import AUTHORIZER, STANDARD_AUTHORIZER, AccessChange, AclDifferences, Action
from kafka_rollout.model.configs import DynamicConfigs
from kafka_rollout.model.plan import Lowering, Plan
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.preparation.lost_metadata import refuse_new_losses, report_losses
from kafka_rollout.procedure.approval_requests import losses_part
from kafka_rollout.procedure.kinds import DOWNGRADE, build_report_of_run
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.page.pages import render_run
from kafka_rollout.roll.node import replace_node
from kafka_rollout.run.events import ApprovalOf, Decision, Voided, events_of
from tests.acls import read_acl
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.kafka_classes import asked_alone
from tests.fakes.metadata_logs import FakeMetadataLogs
from tests.fakes.ports import fake_ports, in_step
from tests.integration.harness.faults.without_live import stage_no_live
from tests.plans import plan_downgrade, plan_upgrade

R421 = Release.parse("4.2.1")
ACL = Loss("ACL", "User:bob on orders (a)", "The ACL of User:bob on orders (a) is lost.")
LATER = Loss("ACL", "User:eve on orders (b)", "The ACL of User:eve on orders (b) is lost.")
DIRECTORIES = Loss("directory assignment", "orders-0", "orders-0 loses its directory assignment: a.")
NEW_PARTITION = Loss("directory assignment", "orders-1", "orders-1 loses its directory assignment: b.")
GROUPS = {"billing": {"consumer.session.timeout.ms": "50000"}}


def approved(ports: ClusterPorts, target: str = "3.9.1", *, unsafe: bool = False, **options: Any) -> Plan:
    plan = plan_downgrade(ports, {"3.9.1": R391, "4.2.1": R421}[target], unsafe=unsafe, **options)
    plan, _ = report_losses(Run(ports, plan))
    assert plan.blockers == ()
    for what in (ApprovalOf.FINALIZE, ApprovalOf.ROLL):
        record_approval(ports, what, "alice", Decision.APPROVED, "a test")
    return plan


@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize("appears", ["an ACL", "group configurations"])
def test_no_node_is_stopped_for_an_older_release_while_something_new_would_be_lost(
    tmp_path: Path, appears: str, unsafe: bool
) -> None:
    cluster = FakeCluster(R431, finalized={"metadata.version": 21})
    known = [ACL] if unsafe else []
    cluster.losses = list(known)
    ports = fake_ports(cluster, tmp_path)
    plan = approved(ports, unsafe=unsafe)
    if appears == "an ACL":
        cluster.losses.append(LATER)
    else:
        cluster.group_configs, cluster.dynamic_configs = GROUPS, DynamicConfigs(groups=GROUPS)
    step, node = in_step(ports, plan, "4.3.1-to-3.9.1", 11)
    with pytest.raises(RefusedError, match="no longer valid") as refused:
        replace_node(NodeRun(Run(ports, plan), step, node))
    assert ("eve" if appears == "an ACL" else "billing") in refused.value.sentence
    assert "bob" not in refused.value.sentence
    assert "Remove it. Or start a new run" in str(refused.value.remedy)
    assert cluster.release_of(11) == R431
    assert events_of(ports.run.events(), Voided)
    cluster.losses, cluster.group_configs, cluster.dynamic_configs = known, {}, DynamicConfigs()
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "again")
    assert replace_node(NodeRun(Run(ports, plan), step, node))
    assert cluster.release_of(11) == R391


def test_an_accepted_group_configuration_and_an_accepted_decision_cover_no_others(tmp_path: Path) -> None:
    cluster = FakeCluster(R431, finalized={"metadata.version": 21})
    cluster.losses = [Loss(ACCESS, "User:bob", "bob loses READ.", ("User:bob loses READ on topic orders from *",))]
    cluster.group_configs, cluster.dynamic_configs = GROUPS, DynamicConfigs(groups=GROUPS)
    ports = fake_ports(cluster, tmp_path)
    plan = approved(ports, unsafe=True)
    refuse_new_losses(Run(ports, plan))
    more = {**GROUPS, "later": GROUPS["billing"]}
    cluster.group_configs, cluster.dynamic_configs = more, DynamicConfigs(groups=more)
    with pytest.raises(RefusedError, match=r"SETTINGS-NOT-KEPT.*later"):
        refuse_new_losses(Run(ports, plan))
    cluster.group_configs, cluster.dynamic_configs = GROUPS, DynamicConfigs(groups=GROUPS)
    cluster.losses = [Loss(ACCESS, "User:bob", "bob gains ALTER.", ("User:bob gains ALTER on topic orders from *",))]
    with pytest.raises(RefusedError, match="bob gains ALTER"):
        refuse_new_losses(Run(ports, plan))


def test_a_controller_of_the_newer_release_is_not_the_last_one_while_something_new_would_be_lost(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster(R431, finalized={"metadata.version": 21})
    ports = fake_ports(cluster, tmp_path)
    plan = approved(ports)
    order = [step.node_id for step in plan.release_steps[0].order]
    assert cluster.spec.node(order[-1]).is_controller
    for node_id in order[:-1]:
        assert replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, "4.3.1-to-3.9.1", node_id)))
        ports.clock.sleep(60.0)
    cluster.losses = [LATER]  # the active controller, which is the last one, still accepts it
    with pytest.raises(RefusedError, match="no longer valid"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, "4.3.1-to-3.9.1", order[-1])))
    assert cluster.release_of(order[-1]) == R431


@pytest.mark.parametrize("lowering", [Lowering.OFFLINE, Lowering.LIVE])
@pytest.mark.parametrize("unsafe", [False, True])
def test_nothing_is_stopped_for_a_snapshot_that_would_lose_something_new(
    tmp_path: Path, lowering: Lowering, unsafe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lowering is Lowering.OFFLINE:
        stage_no_live(monkeypatch)
    cluster = FakeCluster(R431, finalized={"metadata.version": 30})
    ports = fake_ports(cluster, tmp_path)
    plan = approved(ports, "4.2.1", unsafe=unsafe, lowering=lowering)
    cluster.losses = [LATER]
    step: Callable[[Run], object] = offline.stop_all if lowering is Lowering.OFFLINE else lower_live
    with pytest.raises(RefusedError, match="no longer valid"):
        step(Run(ports, plan))
    assert {str(node.running) for node in cluster.nodes.values()} == {"4.3.1"}
    assert cluster.finalized["metadata.version"] == 30


def test_no_level_is_lowered_by_request_while_something_new_would_be_lost(tmp_path: Path) -> None:
    cluster = FakeCluster(R431, finalized={"metadata.version": 29})
    ports = fake_ports(cluster, tmp_path)
    plan = approved(ports, "4.2.1", unsafe=True, level=23)
    assert (plan.levels["metadata.version"], plan.lowering) == (23, Lowering.ONLINE)
    cluster.losses = [LATER]
    with pytest.raises(RefusedError, match="no longer valid"):
        finalize(Run(ports, plan))
    assert cluster.finalized["metadata.version"] == 29


def test_a_loss_that_is_reported_after_the_approval_is_not_approved_until_it_is_given_again(tmp_path: Path) -> None:
    cluster = FakeCluster(R431, finalized={"metadata.version": 21})
    cluster.losses = [ACL]
    ports = fake_ports(cluster, tmp_path)
    plan = approved(ports, unsafe=True)
    cluster.losses = [ACL, LATER]
    plan, _ = report_losses(Run(ports, plan))
    with pytest.raises(RefusedError, match="User:eve") as refused:
        refuse_new_losses(Run(ports, plan))
    assert "bob" not in refused.value.sentence
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "with both losses")
    refuse_new_losses(Run(ports, plan))


def test_a_setting_that_a_check_adds_to_the_plan_after_the_approval_makes_it_invalid(tmp_path: Path) -> None:
    cluster = FakeCluster(R431, finalized={"metadata.version": 21})
    ports = fake_ports(cluster, tmp_path)
    plan = approved(ports, unsafe=True)
    plan, _ = report_losses(Run(ports, plan))
    assert require_approval(Run(ports, plan), ApprovalOf.ROLL)
    cluster.group_configs, cluster.dynamic_configs = GROUPS, DynamicConfigs(groups=GROUPS)
    plan, _ = report_losses(Run(ports, plan))
    with pytest.raises(RefusedError, match=r"is invalid: .*billing"):
        require_approval(Run(ports, plan), ApprovalOf.ROLL)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "with the setting")
    assert require_approval(Run(ports, plan), ApprovalOf.ROLL)
    refuse_new_losses(Run(ports, plan))


def test_what_kafka_itself_writes_all_the_time_is_not_new(tmp_path: Path) -> None:
    cluster = FakeCluster(R431, finalized={"metadata.version": 21})
    cluster.losses = [DIRECTORIES]
    ports = fake_ports(cluster, tmp_path)
    plan = approved(ports, unsafe=True)
    cluster.losses = [NEW_PARTITION]
    refuse_new_losses(Run(ports, plan))
    cluster.losses = [NEW_PARTITION, Loss("eligible leader replicas", "orders-1", "orders-1 loses them.")]
    with pytest.raises(RefusedError, match="orders-1 loses them"):
        refuse_new_losses(Run(ports, plan))


@pytest.mark.parametrize("kind", ["eligible leader replicas", "last known eligible leader replicas"])
def test_an_approved_loss_of_replicas_of_one_partition_covers_no_other_partition(tmp_path: Path, kind: str) -> None:
    cluster = FakeCluster(R431, finalized={"metadata.version": 21})
    approved_loss = Loss(kind, "orders-0", f"orders-0 loses its {kind}: 2, 3.")
    cluster.losses = [approved_loss]
    ports = fake_ports(cluster, tmp_path)
    plan = approved(ports, unsafe=True)
    refuse_new_losses(Run(ports, plan))
    cluster.losses = [approved_loss, *(Loss(kind, f"orders-{n}", f"orders-{n} loses its {kind}: 1.") for n in (1, 2))]
    with pytest.raises(RefusedError, match="orders-1 loses its") as refused:
        refuse_new_losses(Run(ports, plan))
    assert "orders-0" not in refused.value.sentence


def test_a_new_meaning_of_acls_is_new_also_if_the_plan_names_others(tmp_path: Path) -> None:
    cluster = FakeCluster(R431, finalized={"metadata.version": 21})
    cluster.losses = [Loss(ACCESS, "User:alice", "User:alice gains READ on topic orders.")]
    ports = fake_ports(cluster, tmp_path)
    plan = approved(ports, unsafe=True)
    refuse_new_losses(Run(ports, plan))
    cluster.losses.append(Loss(ACCESS, "User:eve", "User:eve gains READ on topic orders."))
    with pytest.raises(RefusedError, match="User:eve gains READ"):
        refuse_new_losses(Run(ports, plan))


def upgrade(tmp_path: Path) -> tuple[FakeCluster, ClusterPorts, Plan]:
    cluster = FakeCluster(R391)
    for node in cluster.nodes.values():
        node.config[AUTHORIZER] = STANDARD_AUTHORIZER
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    assert plan.blockers == ()
    assert {one.id for one in plan.unknown_checks} <= {"coordinator-logs"}
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "a test")
    return cluster, ports, plan


@pytest.mark.parametrize("appears", ["an ACL with more access", "a record that the target cannot replay"])
def test_no_node_is_upgraded_to_metadata_of_now_that_its_approvers_have_not_read(tmp_path: Path, appears: str) -> None:
    cluster, ports, plan = upgrade(tmp_path)
    acl = read_acl("User:alice", host="10.0.0.0/8")
    if appears == "an ACL with more access":
        actions = {Action(3, 2, "orders"): ("10.0.0.0",)}
        change = AccessChange(principal="User:alice", more=True, actions=actions, causes=(acl,))
        cluster.acls, cluster.acl_differences[R431] = {acl}, AclDifferences(changes=(change,))
    else:
        assert cluster.leader is not None
        cluster.unreadable = {(cluster.leader, R431)}
    first = plan.release_steps[0].order[0].node_id
    with pytest.raises(RefusedError, match="no longer valid"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, "3.9.1-to-4.3.1", first)))
    assert cluster.release_of(first) == R391
    assert asked_alone(ports) == []


def test_a_node_waits_while_the_metadata_of_now_cannot_be_read(tmp_path: Path) -> None:
    cluster, ports, plan = upgrade(tmp_path)
    cluster.acls, cluster.acls_problem = {read_acl("User:alice")}, "Node 1 cannot list the ACLs."
    first = plan.release_steps[0].order[0].node_id
    with pytest.raises(TransientError, match="cannot list the ACLs"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, "3.9.1-to-4.3.1", first)))
    assert cluster.release_of(first) == R391


def test_what_a_rollback_would_lose_is_not_read_again_before_the_first_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a warning of the plan, and the rollback itself reads it again."""
    cluster, ports, plan = upgrade(tmp_path)

    def fail(*_: Any, **__: Any) -> None:
        raise TransientError("The log of controller 1 cannot be copied.")

    monkeypatch.setattr(FakeMetadataLogs, "losses", fail)
    first = plan.release_steps[0].order[0].node_id
    assert replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, "3.9.1-to-4.3.1", first)))
    assert cluster.release_of(first) == R431


def test_the_approval_lists_the_losses_also_at_an_unchanged_level(tmp_path: Path) -> None:
    cluster = FakeCluster(R431, finalized={"metadata.version": 21})
    cluster.losses = [ACL]
    ports = fake_ports(cluster, tmp_path)
    text = "\n".join(losses_part(Run(ports, approved(ports, unsafe=True))))
    assert "Metadata lost: 1" in text
    assert "User:bob on orders" in text
    assert "metadata.version does not change." in text


@pytest.mark.parametrize("lowering", [Lowering.ONLINE, Lowering.LIVE, Lowering.OFFLINE])
def test_the_page_of_the_report_shows_the_losses_with_the_way_of_lowering(
    tmp_path: Path, lowering: Lowering, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lowering is Lowering.OFFLINE:
        stage_no_live(monkeypatch)
    cluster = FakeCluster(R431, finalized={"metadata.version": 29 if lowering is Lowering.ONLINE else 30})
    ports = fake_ports(cluster, tmp_path)
    level = {"level": 23} if lowering is Lowering.ONLINE else {"lowering": lowering}
    plan = approved(ports, "4.2.1", **level)
    page = render_run(build_report_of_run(Run(ports, plan), procedure=DOWNGRADE))
    ways = {way for way in ("online", "live", "offline") if f"SAFE, {way}." in page}
    assert ways == ({lowering.value} - {"online"})
