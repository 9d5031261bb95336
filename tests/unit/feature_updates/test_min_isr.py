"""min.insync.replicas of 2 in the brokers' files only, while the run raises eligible.leader.replicas.version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.findings import Severity
from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.control.approval import record_approval
from kafka_rollout.feature_updates.levels import finalize
from kafka_rollout.feature_updates.update import apply_features, plan_features
from kafka_rollout.features.min_isr import MIN_ISR
from kafka_rollout.features.requests import FeatureAction, FeatureOrder, parse_requests
from kafka_rollout.model.configs import SettingValues
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.preparation.pinned_min_isr import pin_min_isr
from kafka_rollout.releases.facts import ELR_VERSION, METADATA_VERSION
from kafka_rollout.run.events import ApprovalOf, Decision, Voided, events_of
from kafka_rollout.run.step_events import DefaultSet
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.ports import FakeAdmin, fake_ports
from tests.plans import keep_state, plan_upgrade

CODE = "ELR-CHANGES-MIN-ISR"


@pytest.fixture
def cluster() -> FakeCluster:
    """All nodes run 4.3.1 at the level of 3.9. Topic `orders` has no value of its own."""
    cluster = FakeCluster(R431, finalized={METADATA_VERSION: 21})
    cluster.inherit_min_isr = {"orders"}
    for node in cluster.spec.brokers:
        cluster.nodes[node.node_id].config[MIN_ISR] = "2"
    return cluster


def _plan(ports: ClusterPorts, *, pin: bool) -> Plan:
    return plan_upgrade(ports, R431, finalize=True, pin_min_isr=pin)


def _approve(ports: ClusterPorts) -> None:
    keep_state(ports)
    record_approval(ports, ApprovalOf.FINALIZE, "alice", Decision.APPROVED, "soaked for a week")


def _of_orders(cluster: FakeCluster) -> set[int]:
    return {partition.min_isr for partition in cluster.partition_states() if partition.topic == "orders"}


def _default(cluster: FakeCluster) -> str | None:
    return cluster.dynamic_configs.all_brokers.get(MIN_ISR)


def test_without_the_pin_the_plan_is_blocked_and_nothing_is_written(ports: ClusterPorts, cluster: FakeCluster) -> None:
    plan = _plan(ports, pin=False)
    assert [finding.code for finding in plan.blockers] == [CODE]
    assert "orders" in plan.blockers[0].sentence
    assert (_of_orders(cluster), _default(cluster)) == ({2}, None)
    cluster.raise_elr()  # what a controller does with the request that the plan forbids
    assert _of_orders(cluster) == {1}


def test_with_the_pin_a_topic_keeps_its_value_after_finalizing(ports: ClusterPorts, cluster: FakeCluster) -> None:
    plan = _plan(ports, pin=True)
    assert plan.blockers == ()
    assert _default(cluster) is None, "the plan only lets the controller validate the change"
    _approve(ports)
    pin_min_isr(Run(ports, plan))
    assert _default(cluster) == "2"
    finalize(Run(ports, plan))
    assert cluster.finalized[ELR_VERSION] == 1
    assert _of_orders(cluster) == {2}


def test_a_repeated_pin_writes_nothing_again(
    ports: ClusterPorts, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = _plan(ports, pin=True)
    _approve(ports)
    pin_min_isr(Run(ports, plan))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the default is set again")

    monkeypatch.setattr(FakeAdmin, "set_default_config", refuse)
    pin_min_isr(Run(ports, plan))  # as after a kill, which can lose the event of the first call
    assert {event.value for event in events_of(ports.run.events(), DefaultSet)} == {"2"}


def test_the_pin_needs_an_approval(ports: ClusterPorts, cluster: FakeCluster) -> None:
    plan = _plan(ports, pin=True)
    with pytest.raises(RefusedError, match="is not approved"):
        pin_min_isr(Run(ports, plan))
    assert _default(cluster) is None


def test_levels_are_not_finalized_before_the_planned_pin(ports: ClusterPorts, cluster: FakeCluster) -> None:
    plan = _plan(ports, pin=True)
    _approve(ports)
    with pytest.raises(RefusedError, match=CODE):
        finalize(Run(ports, plan))
    assert cluster.finalized == {METADATA_VERSION: 21}
    assert events_of(ports.run.events(), Voided)


def test_a_default_that_another_client_set_since_the_plan_is_kept(ports: ClusterPorts, cluster: FakeCluster) -> None:
    plan = _plan(ports, pin=True)
    _approve(ports)
    cluster.set_default(MIN_ISR, "3")
    with pytest.raises(RefusedError, match="another client changed it"):
        pin_min_isr(Run(ports, plan))
    assert _default(cluster) == "3"


def test_a_broker_with_another_value_since_the_plan_stops_the_pin(ports: ClusterPorts, cluster: FakeCluster) -> None:
    plan = _plan(ports, pin=True)
    _approve(ports)
    cluster.dynamic_configs = replace(cluster.dynamic_configs, brokers={12: {MIN_ISR: "1"}})
    with pytest.raises(RefusedError, match=CODE):
        pin_min_isr(Run(ports, plan))
    assert _default(cluster) is None


def test_a_controller_that_got_another_value_since_the_plan_stops_the_levels(
    ports: ClusterPorts, cluster: FakeCluster
) -> None:
    for node in cluster.spec.controllers:
        cluster.nodes[node.node_id].config[MIN_ISR] = "2"
    plan = _plan(ports, pin=False)
    (found,) = [finding for finding in plan.findings if finding.code == CODE]
    assert found.severity is Severity.INFO
    _approve(ports)
    cluster.nodes[cluster.spec.controllers[0].node_id].config[MIN_ISR] = "1"
    with pytest.raises(RefusedError, match=CODE):
        finalize(Run(ports, plan))
    assert cluster.finalized == {METADATA_VERSION: 21}


def test_controllers_that_do_not_report_their_value_block_the_level_without_the_pin(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    class Unread(FakeAdmin):
        def node_config(self, node: NodeSpec) -> Mapping[str, str]:
            raise TransientError(f"Controller {node.node_id} is too old to report its configuration.")

    ports = replace(fake_ports(cluster, tmp_path), admin=Unread(cluster))
    (found,) = _plan(ports, pin=False).blockers
    assert "of controller 1 is unknown" in found.sentence
    assert _plan(ports, pin=True).blockers == ()


def test_brokers_that_do_not_report_their_value_block_the_level(cluster: FakeCluster, tmp_path: Path) -> None:
    class Denied(FakeAdmin):
        def setting(self, name: str) -> SettingValues:
            raise RefusedError("The user has no right DESCRIBE_CONFIGS on CLUSTER.", remedy="Grant it.")

    ports = replace(fake_ports(cluster, tmp_path), admin=Denied(cluster))
    for pin in (False, True):
        (found,) = _plan(ports, pin=pin).blockers
        assert "no right DESCRIBE_CONFIGS" in found.sentence


def test_a_default_that_the_controller_does_not_let_the_user_set_is_a_blocker(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    class Denied(FakeAdmin):
        def set_default_config(self, name: str, value: str, *, validate_only: bool) -> None:
            raise RefusedError("The user cannot set it.", remedy="Allow ALTER_CONFIGS on CLUSTER.")

    ports = replace(fake_ports(cluster, tmp_path), admin=Denied(cluster))
    (found,) = _plan(ports, pin=True).blockers
    assert (found.code, found.remedy) == (CODE, "Allow ALTER_CONFIGS on CLUSTER.")


@pytest.mark.parametrize(
    "order",
    [
        FeatureOrder(action=FeatureAction.UPGRADE_ALL),
        FeatureOrder(action=FeatureAction.UPDATE, release=R431),
        FeatureOrder(action=FeatureAction.UPDATE, named=parse_requests([f"{METADATA_VERSION}:30", f"{ELR_VERSION}:1"])),
    ],
    ids=["upgrade-all", "release-version", "by name"],
)
def test_a_change_of_features_alone_is_blocked_and_pinned_alike(
    ports: ClusterPorts, cluster: FakeCluster, order: FeatureOrder
) -> None:
    blocked = plan_features(ports, order, unsafe=False)
    assert [finding.code for finding in blocked.blockers] == [CODE]
    plan = plan_features(ports, order, unsafe=False, pin=True)
    assert plan.blockers == ()
    _approve(ports)
    with pytest.raises(RefusedError, match=CODE):
        apply_features(Run(ports, plan))
    _approve(ports)
    pin_min_isr(Run(ports, plan))
    assert all(outcome.result.ok for outcome in apply_features(Run(ports, plan)))
    assert _of_orders(cluster) == {2}


def test_a_change_of_features_alone_asks_for_no_log_that_its_approval_does_not_list(
    ports: ClusterPorts, cluster: FakeCluster
) -> None:
    cluster.add_partition(GROUPS_TOPIC, 0, [12, 11])  # the log with its load was rotated long ago
    plan = plan_features(ports, FeatureOrder(action=FeatureAction.UPGRADE_ALL), unsafe=False, pin=True)
    _approve(ports)
    pin_min_isr(Run(ports, plan))
    assert all(outcome.result.ok for outcome in apply_features(Run(ports, plan)))


def test_a_feature_that_is_at_1_already_changes_nothing(ports: ClusterPorts, cluster: FakeCluster) -> None:
    cluster.finalized[ELR_VERSION] = 1
    plan = _plan(ports, pin=True)
    assert [finding for finding in plan.findings if finding.code == CODE] == []
    assert plan.default_changes == ()
