from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.coordinator_logs.incompatible_records import Family
from kafka_rollout.coordinator_logs.remedies import ONE_ACTION
from kafka_rollout.features.rules import user_findings
from kafka_rollout.groups.migration import ConversionSettings, Goal, GroupPlan, plan_groups
from kafka_rollout.model.groups import STREAMS_TO_CLASSIC, DescribedGroup, GroupMember
from kafka_rollout.model.state import GroupState
from tests.unit.features.test_requests import on_431

FACTS = ConversionSettings(group_version=1, policies={1: "BIDIRECTIONAL", 2: "bidirectional"})
MEMBER = GroupMember(client_id="app", host="/127.0.0.1")
NEW_MEMBER = GroupMember(client_id="app", host="/127.0.0.1", uses_classic=False)


def classic(name: str = "orders", *, assignor: str = "range", protocol_type: str = "consumer") -> DescribedGroup:
    return DescribedGroup(
        group_id=name,
        type="classic",
        state="Stable",
        protocol_type=protocol_type,
        assignor=assignor,
        members=(MEMBER,),
    )


def of_type(kind: str, name: str = "newer", *members: GroupMember) -> DescribedGroup:
    return DescribedGroup(group_id=name, type=kind, state="Stable" if members else "Empty", members=members)


def plan(group: DescribedGroup, goal: Goal, facts: ConversionSettings = FACTS) -> GroupPlan:
    (planned,) = plan_groups([group], goal, facts)
    return planned


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
def test_an_eager_group_gets_cooperative_in_two_bounces_one_for_dynamic_consumers(assignor: str) -> None:
    planned = plan(classic(assignor=assignor), Goal.COOPERATIVE)
    assert planned.bounces == 2
    assert "DynamicProtocolConsumers are cooperative after this bounce" in planned.steps[0]
    assert assignor in planned.steps[1]


@pytest.mark.parametrize(
    "group",
    [
        classic(assignor="cooperative-sticky"),
        classic(assignor="stream"),
        classic(protocol_type="connect", assignor="sessioned"),
        of_type("consumer", "newer", NEW_MEMBER),
        of_type("classic"),
    ],
)
def test_what_rebalances_incrementally_already_or_has_no_members_needs_nothing(group: DescribedGroup) -> None:
    assert plan(group, Goal.COOPERATIVE).steps == ()
    assert plan(group, Goal.COOPERATIVE).bounces == 0


def test_connects_sinks_are_changed_where_their_workers_override_the_assignor() -> None:
    planned = plan(classic("connect-sink"), Goal.COOPERATIVE)
    assert all("consumer.partition.assignment.strategy" in step for step in planned.steps)
    assert plan(classic(protocol_type="connect", assignor="default"), Goal.COOPERATIVE).bounces == 1


def test_connects_sinks_get_the_consumer_protocol_by_a_setting_of_their_workers() -> None:
    (step,) = plan(classic("connect-sink"), Goal.CONSUMER).steps
    assert "consumer.group.protocol=consumer in the workers" in step
    assert "without consumer.partition.assignment.strategy, consumer.session.timeout.ms" in step


def test_the_steps_name_the_settings_that_a_consumer_of_the_other_protocol_refuses() -> None:
    (forth,) = plan(classic(), Goal.CONSUMER).steps
    assert "without partition.assignment.strategy, session.timeout.ms, heartbeat.interval.ms; " in forth
    (back,) = plan(of_type("consumer", "newer", NEW_MEMBER), Goal.CLASSIC).steps
    assert "group.protocol=classic, without group.remote.assignor" in back


def test_a_group_of_another_protocol_type_is_a_finding() -> None:
    finding = plan(classic(protocol_type="sr", assignor="v0"), Goal.COOPERATIVE).finding
    assert finding is not None
    assert "sr" in finding.sentence


def test_the_consumer_protocol_takes_one_bounce_where_every_broker_converts_and_a_stop_where_one_does_not() -> None:
    assert plan(classic(), Goal.CONSUMER).bounces == 1
    mixed = ConversionSettings(group_version=1, policies={1: "bidirectional", 2: "downgrade"})
    assert plan(classic(), Goal.CONSUMER, mixed).bounces is None
    assert "stop all members" in plan(classic(), Goal.CONSUMER, mixed).steps[0]
    assert (
        "stop all" in plan(classic(), Goal.CONSUMER, ConversionSettings(group_version=1, policies={1: None})).steps[0]
    )


def test_no_group_gets_the_consumer_protocol_without_group_version() -> None:
    finding = plan(classic(), Goal.CONSUMER, ConversionSettings(group_version=0, policies={1: "bidirectional"})).finding
    assert finding is not None
    assert finding.remedy == "Raise group.version to 1 first."


def test_a_conversion_that_stopped_half_way_is_gone_on_with() -> None:
    assert plan(of_type("consumer", "half", NEW_MEMBER, MEMBER), Goal.CONSUMER).bounces == 1
    assert plan(of_type("consumer", "done", NEW_MEMBER), Goal.CONSUMER).bounces == 0


def test_on_the_way_back_groups_with_members_are_converted_before_empty_ones() -> None:
    planned = plan_groups(
        [of_type("consumer", "a-empty"), classic("classic"), of_type("consumer", "z-active", NEW_MEMBER)],
        Goal.CLASSIC,
        FACTS,
    )
    assert [(each.group.group_id, each.bounces) for each in planned] == [
        ("z-active", 1),
        ("a-empty", 0),
        ("classic", 0),
    ]
    assert "delete the group, which also deletes them" in planned[1].steps[0]


def test_share_and_streams_groups_have_to_stop_on_the_way_back() -> None:
    for kind in ("share", "streams"):
        assert plan(of_type(kind, "g", NEW_MEMBER), Goal.CLASSIC).bounces is None
        assert plan(of_type(kind, "g", NEW_MEMBER), Goal.CLASSIC).steps
        assert plan(of_type(kind, "g", NEW_MEMBER), Goal.CONSUMER).finding


def test_the_way_of_a_streams_group_to_classic_is_that_of_its_brokers_everywhere() -> None:
    """4.1 refuses a classic member of a streams group, also of an empty one (GroupMetadataManager.classicGroupJoin)."""
    (steps,) = plan(of_type("streams"), Goal.CLASSIC).steps
    of_scan = ONE_ACTION[Family.STREAMS_GROUPS].sentence
    group = GroupState(group_id="app", type="streams", state="Stable", members=1)
    seen = replace(on_431(streams_version=1), groups=(group,))
    (of_level,) = user_findings(seen, {"streams.version": 0}, unsafe=False)
    for text in (steps, of_scan, of_level.remedy):
        assert STREAMS_TO_CLASSIC in text
    refused, deleted, again = (
        STREAMS_TO_CLASSIC.index(words) for words in ("Brokers of 4.1 refuse", "--delete", "--from-file")
    )
    assert refused < deleted < again


def test_a_group_that_rebalances_is_a_finding_and_no_plan_but_classic_it_stays() -> None:
    group = replace(classic(assignor=""), state="PreparingRebalance")
    for goal in (Goal.COOPERATIVE, Goal.CONSUMER):
        finding = plan(group, goal).finding
        assert finding is not None
        assert finding.code == "GROUP-REBALANCES"
    assert plan(group, Goal.CLASSIC).finding is None


def test_a_group_that_its_coordinator_does_not_describe_is_a_finding() -> None:
    finding = plan(replace(classic(), problem="its coordinator answers NOT_COORDINATOR"), Goal.COOPERATIVE).finding
    assert finding is not None
    assert "NOT_COORDINATOR" in finding.sentence


def test_an_assignor_of_the_applications_own_has_no_place_in_the_consumer_protocol() -> None:
    finding = plan(classic(assignor="by-tenant"), Goal.CONSUMER).finding
    assert finding is not None
    assert "by-tenant" in finding.sentence


def test_members_that_come_back_need_an_assignor_that_the_classic_ones_have() -> None:
    def member(*assignors: str) -> GroupMember:
        return replace(MEMBER, assignors=assignors, all_assignors_known=True)

    both = of_type("consumer", "half", NEW_MEMBER, member("range", "sticky"), member("sticky"))
    assert "that the classic members have (sticky)" in plan(both, Goal.CLASSIC).steps[0]
    finding = plan(of_type("consumer", "half", member("range"), member("sticky")), Goal.CLASSIC).finding
    assert finding is not None
    assert finding.code == "GROUP-NO-COMMON-ASSIGNOR"


def test_a_cooperative_group_of_which_nobody_was_seen_to_keep_anything_may_be_eager() -> None:
    assert "still use EAGER" in plan(classic(assignor="cooperative-sticky"), Goal.COOPERATIVE).note
    keeps = replace(classic(assignor="cooperative-sticky"), members=(replace(MEMBER, kept_partitions=True),))
    assert plan(keeps, Goal.COOPERATIVE).note == ""


def test_consumers_go_back_before_share_and_streams_groups() -> None:
    kinds = ("share", "streams", "consumer")
    planned = plan_groups([of_type(kind, f"a-{kind}", NEW_MEMBER) for kind in kinds], Goal.CLASSIC, FACTS)
    assert [each.group.type for each in planned] == ["consumer", "streams", "share"]


def test_a_step_that_leaves_a_group_without_members_says_that_its_offsets_expire_by_their_commit() -> None:
    """ConsumerGroup and StreamsGroup of 4.x: an offset of a quiet partition is deleted at the next check."""
    mixed = ConversionSettings(group_version=1, policies={1: "upgrade"})
    for group, facts in (
        (of_type("streams", "s", NEW_MEMBER), FACTS),
        (of_type("consumer", "empty"), FACTS),
        (of_type("consumer", "c", NEW_MEMBER), mixed),
    ):
        (step,) = plan(group, Goal.CLASSIC, facts).steps
        assert "offsets.retention.minutes" in step
        assert "--export" in step
    assert "offsets.retention.minutes" not in plan(of_type("consumer", "c", NEW_MEMBER), Goal.CLASSIC).steps[0]
