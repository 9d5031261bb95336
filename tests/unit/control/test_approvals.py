"""An approval covers what was seen when it was given: what came since voids it before anything is stopped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.control.approval import record_approval, renew_invalid_approval
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.roll.node import replace_node
from kafka_rollout.run.events import Approval, ApprovalOf, Decision, Unknown, events_of
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.ports import in_step
from tests.plans import plan_upgrade

RELEASE_STEP = "3.9.1-to-4.3.1"
NODE = 12  # a broker


def test_a_new_blocker_voids_the_approval_before_anything_stops(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.find_unlisted_controllers.add(9)
    with pytest.raises(RefusedError, match=r"approval is no longer valid.*UNLISTED-CONTROLLER"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.stops == []
    cluster.find_unlisted_controllers.clear()
    with pytest.raises(RefusedError, match=r"approval of the upgrade by alice is invalid.*UNLISTED-CONTROLLER"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.stops == []
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "the ghost is unregistered")
    assert replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))


def test_nothing_stops_after_an_entry_of_the_history_that_cannot_be_read(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    ports.run.record(Unknown(recorded_kind="void", data={"blockers": 1}))
    with pytest.raises(RefusedError, match=r"by alice is invalid: a later entry .* cannot be read.*approve it again"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.stops == []
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "the entry was read by hand")
    assert replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))


def test_a_configuration_that_was_edited_since_the_plan_is_judged_again_before_the_stop(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.config_problems[R431] = ("num.nonsense is no setting",)
    assert replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 2))), "judged once is judged"
    settle(cluster)
    cluster.nodes[NODE].config["num.nonsense"] = "1"
    with pytest.raises(RefusedError, match=r"approval is no longer valid.*CONFIG-REJECTED node 12.*num\.nonsense"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.stops == [2]


def test_a_java_that_is_too_old_by_now_voids_the_approval(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.java = 11
    with pytest.raises(RefusedError, match=r"approval is no longer valid.*JAVA-TOO-OLD node 12"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.stops == []


def test_a_person_s_retry_renews_what_a_blocker_voided_and_nothing_else(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.find_unlisted_controllers.add(9)
    with pytest.raises(RefusedError, match="approval is no longer valid"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    ports = replace(ports, cluster=replace(ports.cluster, approvers=("alice", "bob")))
    by_bob = replace(events_of(ports.run.events(), Approval)[0], by="bob", reason="the ghost is unregistered")
    renew_invalid_approval(Run(ports, plan), by_bob)
    with pytest.raises(RefusedError, match="approval is no longer valid"):  # the ghost is still there
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    cluster.find_unlisted_controllers.clear()
    renew_invalid_approval(Run(ports, plan), by_bob)
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.nodes[NODE].running == R431
    assert [a.by for a in events_of(ports.run.events(), Approval)] == ["alice", "bob", "bob"]
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.REJECTED, "enough for today")
    renew_invalid_approval(Run(ports, plan), by_bob)
    with pytest.raises(RefusedError, match="alice answered 'rejected'"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 13)))


def settle(cluster: FakeCluster) -> None:
    """Started nodes catch up."""
    for _ in range(3):
        cluster.advance()


def test_a_plan_made_anew_with_blockers_is_not_covered_by_the_old_approval(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.find_unlisted_controllers.add(9)
    again = plan_upgrade(ports, R431, finalize=True)  # its task was cleared
    assert again.hash == plan.hash
    with pytest.raises(RefusedError, match=r"1 blocker, which cannot be approved"):
        replace_node(NodeRun(Run(ports, again), *in_step(ports, again, RELEASE_STEP, NODE)))
    assert cluster.stops == []


def test_a_decision_to_roll_back_overtakes_the_approval_of_the_roll(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "node 3 does not start")
    with pytest.raises(RefusedError, match="superseded: alice approved the rollback"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.stops == []


def test_a_blocker_that_is_gone_at_the_next_look_voids_nothing(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.silent.add(13)
    cluster.clock.on_sleep = lambda _: cluster.silent.clear()
    assert replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))


@pytest.mark.parametrize("decision", [None, Decision.REJECTED])
def test_nothing_is_stopped_without_an_approval(
    ports: ClusterPorts, cluster: FakeCluster, decision: str | None
) -> None:
    plan = plan_upgrade(ports, R431, finalize=False)
    if decision:
        record_approval(ports, ApprovalOf.ROLL, "alice", decision, "not today")
    with pytest.raises(RefusedError):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.stops == []


def test_configuration_that_came_into_the_inventory_after_the_approval_is_not_rolled(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    overrides = {"4.3.1": {"unclean.leader.election.enable": "true"}}
    edited = replace(ports, cluster=replace(ports.cluster, release_overrides=overrides))
    with pytest.raises(RefusedError, match="release_overrides of cluster fake changed"):
        replace_node(NodeRun(Run(edited, plan), *in_step(edited, plan, RELEASE_STEP, NODE)))
    assert cluster.stops == []
