from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.model.configs import ConfigCheck, ConfigKind, ConfigProblem, DynamicConfigs
from kafka_rollout.model.plan import Lowering, Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.state import GroupState
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.node_checks import dropped_settings
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.preparation.state_comparison import (
    compare_with_state,
    record_state,
)
from kafka_rollout.releases.facts import Release
from kafka_rollout.roll.node import replace_node
from kafka_rollout.roll.stop import files_once, refuse_closed
from kafka_rollout.run.events import ApprovalOf, Decision
from kafka_rollout.run.step_events import ComparedAfter
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.kafka_classes import asked_alone
from tests.fakes.ports import FakeAdmin, fake_ports, in_step
from tests.plans import plan_downgrade, plan_upgrade

SMALL = DynamicConfigs(topics={"orders": {"segment.bytes": "14000"}})
REJECTED = ConfigProblem(
    kind=ConfigKind.TOPIC,
    name="orders",
    settings=(("segment.bytes", "14000"),),
    check=ConfigCheck.VALUE,
    reason="Value must be at least 1048576",
)
RELEASE_STEP = "3.9.1-to-4.3.1"


def test_a_plan_validates_for_every_release_of_the_path(tmp_path: Path) -> None:
    cluster = FakeCluster(Release(3, 4, 0))
    cluster.dynamic_configs = SMALL
    cluster.dynamic_config_problems[R431] = (REJECTED,)
    plan = plan_upgrade(fake_ports(cluster, tmp_path), R431, finalize=False)
    assert cluster.validated == [(Release(3, 4, 1), SMALL), (R431, SMALL)]
    assert [found.subject for found in plan.blockers] == ["4.3.1, topic orders, segment.bytes"]


def test_a_remedy_that_is_taken_back_during_the_run_is_found_before_a_node_stops(tmp_path: Path) -> None:
    """KAFKA-20732 loses records when leaders change while retention.bytes is set for tiered topics."""
    tiered = {"remote.storage.enable": "true", "retention.bytes": "-1"}
    cluster = FakeCluster(R391)
    for node in cluster.nodes.values():
        node.config = {**node.config, "remote.log.storage.system.enable": "true"}
    cluster.dynamic_configs = DynamicConfigs(topics={"orders": tiered})
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    assert "RELEASE-ADVISORY" not in [found.code for found in plan.blockers]
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    assert replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 2)))
    cluster.dynamic_configs = DynamicConfigs(topics={"orders": {**tiered, "retention.bytes": "1000"}})
    for _ in range(10):
        cluster.advance()
    with pytest.raises(RefusedError, match=r"New findings since then: RELEASE-ADVISORY .*KAFKA-20732") as refused:
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 12)))
    assert "retention.bytes=-1" in refused.value.remedy
    assert cluster.stops == [2]


def test_a_share_group_that_begins_after_the_plan_is_found_before_a_node_stops(tmp_path: Path) -> None:
    """4.0 has them as early access, which later releases cannot load. No setting of the cluster changed."""
    cluster = FakeCluster(Release(4, 0, 1))
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    assert "RELEASE-ADVISORY" not in [found.code for found in plan.blockers]
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    step = plan.release_steps[0].key
    first, second = plan.release_steps[0].order[:2]
    assert replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, step, first.node_id)))
    cluster.groups = [GroupState(group_id="jobs", type="share", state="Empty")]
    for _ in range(10):
        cluster.advance()
    with pytest.raises(RefusedError, match=r"New findings since then: RELEASE-ADVISORY .*share-groups-of-4.0"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, step, second.node_id)))
    assert cluster.stops == [first.node_id]


def test_a_plan_asks_the_host_of_each_node_for_the_names_in_quotas(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    cluster.dynamic_configs = DynamicConfigs(quotas={(("ip", "app.example"),): {"connection_creation_rate": 5.0}})
    assert "IP-QUOTA-UNRESOLVED" not in [
        one.code for one in plan_upgrade(fake_ports(cluster, tmp_path), R431, finalize=False).findings
    ]
    cluster.unresolved[2] = ("app.example",)
    plan = plan_upgrade(fake_ports(cluster, tmp_path / "other"), R431, finalize=False)
    (found,) = (one for one in plan.blockers if one.code == "IP-QUOTA-UNRESOLVED")
    assert "that node 2 cannot resolve" in found.sentence


@pytest.mark.parametrize("approved", [False, True])
def test_no_node_stops_with_settings_for_faster_cleaning_that_no_approver_has_read(
    tmp_path: Path, *, approved: bool
) -> None:
    cluster, faster = FakeCluster(R391), {"cleanup.policy": "compact", "delete.retention.ms": "60000"}
    temporary = DynamicConfigs(topics={"__consumer_offsets": faster})
    if approved:
        cluster.dynamic_configs = temporary
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    assert ("DELETE-RETENTION-SHORT" in [found.code for found in plan.findings]) is approved
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    cluster.dynamic_configs = temporary
    at = NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 2))
    if approved:
        assert replace_node(at)
        return
    with pytest.raises(RefusedError, match="New findings since then: DELETE-RETENTION-SHORT"):
        replace_node(at)
    assert cluster.stops == []


def test_a_downgrade_validates_too(cluster: FakeCluster, ports: ClusterPorts) -> None:
    cluster.dynamic_config_problems[Release(3, 4, 1)] = (REJECTED,)
    plan = plan_downgrade(ports, Release(3, 4, 1))
    assert "3.4.1, topic orders, segment.bytes" in [found.subject for found in plan.blockers]


TIERED = DynamicConfigs(topics={"orders": {"remote.storage.enable": "true"}, "old": {"remote.storage.enable": "false"}})


def test_no_run_goes_below_the_releases_that_serve_tiered_topics(
    cluster: FakeCluster, ports: ClusterPorts, tmp_path: Path
) -> None:
    """Their logs would begin with the first local segment, and a later release deletes what is before it."""
    cluster.dynamic_configs = TIERED
    (found,) = [one for one in plan_downgrade(ports, Release(3, 4, 1)).blockers if one.code == "TIERED-STORAGE-LOST"]
    assert "1 topic has tiered storage (orders), which Kafka 3.4.1 does not serve" in found.sentence
    assert "3.6.0 or later" in found.remedy
    old = FakeCluster(Release(3, 4, 0))
    old.dynamic_configs = TIERED
    codes = [
        one.code for one in plan_upgrade(fake_ports(old, tmp_path / "2"), Release(3, 4, 1), finalize=False).findings
    ]
    assert "TIERED-STORAGE-LOST" not in codes, "it has no remote records"


def test_a_restart_is_blocked_as_a_change_of_the_release_is(tmp_path: Path) -> None:
    cluster = FakeCluster(R431)
    for node in cluster.nodes.values():
        node.config = {**node.config, "remote.log.storage.system.enable": "true"}
    tiered = {"remote.storage.enable": "true", "retention.bytes": "1000"}
    cluster.dynamic_configs = DynamicConfigs(topics={"orders": tiered})
    cluster.dynamic_config_problems[R431] = (replace(REJECTED, check=ConfigCheck.UPDATE),)
    plan = plan_change(fake_ports(cluster, tmp_path), Request(nodes=("12",)), RunOf.RESTART)
    blockers = {(one.code, one.subject) for one in plan.blockers}
    assert ("RELEASE-ADVISORY", "Kafka 4.3.1, KAFKA-20732") in blockers
    assert "TIERED-STORAGE-LOST" in {code for code, _ in blockers}


def test_topics_that_became_tiered_during_an_upgrade_close_the_way_back(tmp_path: Path) -> None:
    cluster = FakeCluster(Release(3, 4, 1))
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R391, finalize=False)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    run, back = Run(ports, plan), plan.release_steps[-1].reversed()
    refuse_closed(run, back, files_once(run), reads_again=True)
    cluster.dynamic_configs = TIERED
    with pytest.raises(RefusedError, match="TIERED-STORAGE-LOST"):
        refuse_closed(run, back, files_once(run), reads_again=True)
    assert asked_alone(ports) == []


def test_a_topic_that_was_changed_since_the_plan_is_found_before_a_node_stops(
    cluster: FakeCluster, ports: ClusterPorts, plan: Plan
) -> None:
    cluster.dynamic_config_problems[R431] = (REJECTED,)
    assert replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 2))), (
        "the same configuration is not validated again"
    )
    assert len(cluster.validated) == 1
    cluster.dynamic_configs = SMALL
    for _ in range(10):
        cluster.advance()
    with pytest.raises(RefusedError, match=r"New findings since then: DYNAMIC-CONFIG-REJECTED 4\.3\.1, topic orders"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 12)))
    assert cluster.stops == [2]


@pytest.mark.parametrize(
    "changed",
    [
        DynamicConfigs(topics={"orders": {"retention.ms": "1"}}),
        DynamicConfigs(brokers={12: {"log.retention.ms": "1"}}),
        DynamicConfigs(all_brokers={"log.retention.ms": "1"}),
        DynamicConfigs(groups={"billing": {"consumer.session.timeout.ms": "1"}}),
        DynamicConfigs(subscriptions={"latency": {"metrics": "*"}}),
        DynamicConfigs(quotas={(("user", "alice"),): {"producer_byte_rate": 1.0}}),
    ],
    ids=["topic", "broker", "all brokers", "group", "client metrics", "quota"],
)
def test_a_harmless_change_is_validated_once(
    cluster: FakeCluster, ports: ClusterPorts, plan: Plan, changed: DynamicConfigs
) -> None:
    cluster.dynamic_configs = changed
    assert replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 2)))
    for _ in range(10):
        cluster.advance()
    assert replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 12)))
    assert len(cluster.validated) == 2  # for the plan, and after the change


def test_the_own_value_of_a_controller_without_the_role_broker_is_read_from_the_controller(tmp_path: Path) -> None:
    cluster = FakeCluster(Release(3, 7, 2))
    cluster.add_partition("events", 0, [11, 12])
    cluster.topics["events-0"] = replace(cluster.topics["events-0"], leader=-1, isr=(11,))
    for broker in (11, 12):
        cluster.lose_power(broker)
    cluster.dynamic_configs = DynamicConfigs(brokers={2: {"unclean.leader.election.enable": "true"}})
    plan = plan_upgrade(fake_ports(cluster, tmp_path), R431, finalize=False)
    assert "UNCLEAN-ELECTION" in [found.code for found in plan.blockers]


class Refuses(FakeAdmin):
    def dynamic_configs(self) -> DynamicConfigs:
        raise RefusedError("The user has no right DESCRIBE_CONFIGS on CLUSTER.", remedy="Grant it.")


def test_configuration_that_cannot_be_read_is_a_blocker_of_the_plan(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports = replace(fake_ports(cluster, tmp_path), admin=Refuses(cluster))
    plan = plan_upgrade(ports, R431, finalize=False)
    assert [(found.code, found.remedy) for found in plan.blockers] == [("DYNAMIC-CONFIG-UNREAD", "Grant it.")]


def test_the_comparisons_of_a_run_expect_what_its_plan_named_as_dropped(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    cluster.dynamic_configs = DynamicConfigs(topics={"orders": {"a": "1", "b": "2"}})
    dropped = replace(REJECTED, settings=(("a", "1"),), check=ConfigCheck.DROPPED)
    cluster.dynamic_config_problems[R431] = (dropped,)
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    assert [(found.code, found.subject) for found in plan.findings if found.subject.startswith("4.3.1, topic")] == [
        ("DYNAMIC-CONFIG-DROPPED", "4.3.1, topic orders, a")
    ]
    record_state(ports)
    cluster.dynamic_configs = DynamicConfigs()
    offline = Run(ports, replace(plan, lowering=Lowering.OFFLINE))
    assert {one.subject: one.foretold for one in compare_with_state(offline, ComparedAfter.DOWNGRADE)} == {
        "topic orders a": True,
        "topic orders b": False,
    }
    found = {one.subject: one for one in compare_with_state(Run(ports, plan), ComparedAfter.ROLL)}
    assert found["a of topic orders"].sentence.endswith("(a release of the plan drops it).")
    assert found["a of topic orders"].foretold
    assert found["b of topic orders"].by_clients


@pytest.mark.parametrize("acts", [False, True], ids=["before its first change", "after its first change"])
@pytest.mark.parametrize("readable", [True, False])
def test_a_later_plan_of_a_run_keeps_the_expected_losses_only_if_the_run_has_acted(
    cluster: FakeCluster, ports: ClusterPorts, *, acts: bool, readable: bool
) -> None:
    lost = replace(REJECTED, settings=(("a", "1"), ("b", "1")), check=ConfigCheck.DROPPED)
    cluster.dynamic_config_problems[R431] = (lost,)
    plan = plan_upgrade(ports, R431, finalize=False)
    if acts:
        record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
        assert replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 2)))
    new = replace(lost, settings=(("b", "1"), ("c", "1")))
    other = replace(lost, name="other", settings=(("d", "1"),))
    cluster.dynamic_config_problems[R431] = (new, other)
    plan_upgrade(ports if readable else replace(ports, admin=Refuses(cluster)), R431, finalize=False)

    found = {"topic orders": ["b", "c"], "topic other": ["d"]} if readable else {}
    union = {"topic orders": ["a", "b", "c"], "topic other": ["d"]} if readable else {"topic orders": ["a", "b"]}
    assert dropped_settings(ports) == (union if acts else found)
