from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from kafka_rollout.base.internal_topics import coordinator_partition
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.model.configs import (
    ConfigSource,
    ConfigTable,
    EffectiveConfigs,
    ExpectedConfigs,
    Setting,
)
from kafka_rollout.model.contents import ClusterInventory, Difference, compare_states, digest, new_settings
from tests.acls import read_acl

FILE, DEFAULT, TOPIC, ALL = ConfigSource.FILE, ConfigSource.DEFAULT, ConfigSource.TOPIC, ConfigSource.ALL_BROKERS
Resources = dict[str, dict[str, Setting]]

MIN_ISR = "min.insync.replicas"
BROKERS: Resources = {
    str(node_id): {
        MIN_ISR: Setting("2", FILE),
        "group.coordinator.threads": Setting("1", DEFAULT),
        "log.message.timestamp.after.max.ms": Setting("9223372036854775807", DEFAULT),
        "log.message.format.version": Setting("3.0-IV1", DEFAULT),
        "node.id": Setting(str(node_id), FILE),
    }
    for node_id in (1, 2, 3)
}
TOPICS: Resources = {
    name: {
        MIN_ISR: Setting("2", FILE),
        "message.timestamp.after.max.ms": Setting("9223372036854775807", DEFAULT),
        "message.format.version": Setting("3.0-IV1", DEFAULT),
        "retention.ms": Setting("1000", TOPIC) if name == "orders" else Setting("604800000", DEFAULT),
    }
    for name in ("orders", "plain", "__consumer_offsets")
}
UPGRADE = ExpectedConfigs(
    defaults={
        "group.coordinator.threads": ("1", "4"),
        "log.message.timestamp.after.max.ms": ("9223372036854775807", "3600000"),
    },
    removed=frozenset({"log.message.format.version"}),
    new=frozenset({"group.streams.max.size"}),
)
LEVELS = ExpectedConfigs(dynamic={"brokers": {MIN_ISR: "2"}})


def effective(brokers: Resources, topics: Resources) -> EffectiveConfigs:
    return EffectiveConfigs(brokers=ConfigTable.of_resources(brokers), topics=ConfigTable.of_resources(topics))


BEFORE = ClusterInventory(
    topics={name: {"id": name, "replicas": [[1, 2], [2, 3]]} for name in TOPICS},
    ends={"orders-0": 10, "__consumer_offsets-0": 5},
    groups={"billing": {"type": "classic", "offsets": {"orders-0": 7, "orders-1": 3}}},
    configs={"topic orders": {"retention.ms": "1000"}, "broker 1": {"log.cleaner.threads": "2"}},
    acls=(read_acl("User:alice"),),
    scram={"alice": {"SCRAM-SHA-256": 4096}},
    quotas={"user alice": {"producer_byte_rate": 1000.0}},
    unasked={},
    effective=effective(BROKERS, TOPICS),
)


def changed(resources: Resources, name: str, setting: Setting | None, *only: str) -> Resources:
    """Set or remove a setting of some resources, or of all."""
    found = {resource: dict(settings) for resource, settings in resources.items()}
    for resource in only or tuple(found):
        if setting is None:
            found[resource].pop(name)
        else:
            found[resource][name] = setting
    return found


def after_roll() -> tuple[Resources, Resources]:
    """What a plain roll changes, as measured with 3.9.1 → 4.3.1."""
    brokers = changed(BROKERS, "group.coordinator.threads", Setting("4", DEFAULT))
    brokers = changed(brokers, "log.message.timestamp.after.max.ms", Setting("3600000", DEFAULT))
    brokers = changed(brokers, "log.message.format.version", None)
    brokers = changed(brokers, "group.streams.max.size", Setting("2147483647", DEFAULT))
    brokers = changed(brokers, "group.consumer.migration.policy", Setting("bidirectional", DEFAULT))  # was internal
    topics = changed(TOPICS, "message.timestamp.after.max.ms", Setting("3600000", DEFAULT))
    topics = changed(topics, "message.format.version", None)
    return brokers, changed(topics, "remote.log.copy.disable", Setting("false", DEFAULT))


def test_what_the_release_changes_is_expected_and_new_settings_are_listed() -> None:
    found = compare_states(BEFORE, replace(BEFORE, effective=effective(*after_roll())), UPGRADE)

    assert [one.sentence for one in found if one.fails] == []
    assert len(found) == 8
    assert new_settings(found) == (
        "group.consumer.migration.policy = bidirectional",
        "group.streams.max.size = 2147483647",
        "remote.log.copy.disable = false",
    )
    assert digest(found) == ""
    sentences = [one.sentence for one in found]
    assert (
        "group.coordinator.threads of brokers 1, 2, 3 was 1 (DEFAULT_CONFIG) and is 4 (DEFAULT_CONFIG) (the default "
        "of the target release)."
    ) in sentences


def test_the_same_changes_are_not_expected_without_a_change_of_the_release() -> None:
    found = compare_states(BEFORE, replace(BEFORE, effective=effective(*after_roll())), LEVELS)
    assert all(one.fails for one in found)
    assert len(found) == 8


def test_min_insync_replicas_of_a_controllers_file_fails_and_names_every_resource() -> None:
    low = Setting("1", ALL)
    after = replace(
        BEFORE,
        configs={**BEFORE.configs, "brokers": {MIN_ISR: "1"}},
        effective=effective(changed(BROKERS, MIN_ISR, low), changed(TOPICS, MIN_ISR, low)),
    )
    found = compare_states(BEFORE, after, LEVELS)
    assert [one.sentence for one in found if one.fails] == [
        "min.insync.replicas of brokers 1, 2, 3 was 2 (STATIC_BROKER_CONFIG) and is 1 (DYNAMIC_DEFAULT_BROKER_CONFIG).",
        (
            "min.insync.replicas of topics __consumer_offsets, orders, plain was 2 (STATIC_BROKER_CONFIG) and is 1 "
            "(DYNAMIC_DEFAULT_BROKER_CONFIG)."
        ),
        "Dynamic setting min.insync.replicas of all brokers was not set and is 1.",
    ]


def test_a_pinned_default_changes_sources_and_no_value() -> None:
    pinned = Setting("2", ALL)
    after = replace(
        BEFORE,
        configs={**BEFORE.configs, "brokers": {MIN_ISR: "2"}},
        effective=effective(changed(BROKERS, MIN_ISR, pinned), changed(TOPICS, MIN_ISR, pinned)),
    )
    (found,) = compare_states(BEFORE, after, LEVELS)
    assert (found.subject, found.foretold) == ("min.insync.replicas of all brokers", True)


def test_an_override_of_one_broker_that_disappears_fails() -> None:
    with_override = changed(BROKERS, "log.retention.ms", Setting("1000", FILE), "2")
    without = changed(BROKERS, "log.retention.ms", Setting(None, DEFAULT), "2")
    before = replace(BEFORE, effective=effective(with_override, TOPICS))
    (found,) = compare_states(before, replace(BEFORE, effective=effective(without, TOPICS)), UPGRADE)
    assert found.fails
    assert (
        found.sentence == "log.retention.ms of broker 2 was 1000 (STATIC_BROKER_CONFIG) and is null (DEFAULT_CONFIG)."
    )


def test_a_topic_inherits_the_value_of_the_broker_that_answers_and_that_is_no_difference() -> None:
    """Broker 2 has another file. Before the run it describes the topics, after the run another broker does."""
    file, inherited = Setting("1000", FILE), Setting("604800000", DEFAULT)
    brokers = changed(BROKERS, "log.retention.ms", Setting(None, DEFAULT))
    brokers = changed(brokers, "log.retention.hours", Setting("168", DEFAULT))
    uneven = changed(brokers, "log.retention.ms", file, "2")
    of_broker_2 = changed(TOPICS, "retention.ms", file, "plain", "__consumer_offsets")
    of_broker_1 = changed(TOPICS, "retention.ms", inherited, "plain", "__consumer_offsets")

    def compare(before: tuple[Resources, Resources], after: tuple[Resources, Resources]) -> list[str]:
        old, new = (replace(BEFORE, effective=effective(*found)) for found in (before, after))
        return [one.sentence for one in compare_states(old, new, UPGRADE) if one.fails]

    assert compare((uneven, of_broker_2), (uneven, of_broker_1)) == []
    assert compare((uneven, of_broker_1), (uneven, of_broker_2)) == []
    lost = "log.retention.ms of broker 2 was 1000 (STATIC_BROKER_CONFIG) and is null (DEFAULT_CONFIG)."
    assert compare((uneven, of_broker_2), (brokers, of_broker_1)) == [lost]
    everywhere = changed(brokers, "log.retention.ms", file)
    assert compare((everywhere, of_broker_2), (brokers, of_broker_1)) == [
        "log.retention.ms of brokers 1, 2, 3 was 1000 (STATIC_BROKER_CONFIG) and is null (DEFAULT_CONFIG).",
        (
            "retention.ms of topics __consumer_offsets, plain was 1000 (STATIC_BROKER_CONFIG) and is 604800000 "
            "(DEFAULT_CONFIG)."
        ),
    ]


def test_a_topic_setting_that_appears_or_disappears_counts_also_with_different_files() -> None:
    brokers = changed(BROKERS, "log.retention.ms", Setting("1000", FILE), "2")
    without = changed(TOPICS, "retention.ms", None, "plain")
    (found,) = compare_states(
        replace(BEFORE, effective=effective(brokers, changed(TOPICS, "retention.ms", Setting("1000", FILE), "plain"))),
        replace(BEFORE, effective=effective(brokers, without)),
        UPGRADE,
    )
    assert found.fails


@pytest.mark.parametrize(("line", "value", "fails"), [("5", "5", False), ("5", "6", True), (None, "9", False)], ids=str)
def test_a_line_of_the_plan_is_expected_with_its_value(line: str | None, value: str, *, fails: bool) -> None:
    expected = replace(UPGRADE, files={1: {"background.threads": line}})
    before = changed(BROKERS, "background.threads", Setting("2", FILE), "1")
    after = changed(BROKERS, "background.threads", Setting(value, FILE if line else DEFAULT), "1")
    (found,) = compare_states(
        replace(BEFORE, effective=effective(before, TOPICS)),
        replace(BEFORE, effective=effective(after, TOPICS)),
        expected,
    )
    assert found.fails is fails


def test_a_changed_default_does_not_explain_another_value() -> None:
    brokers = changed(BROKERS, "group.coordinator.threads", Setting("8", DEFAULT))
    (found,) = compare_states(BEFORE, replace(BEFORE, effective=effective(brokers, TOPICS)), UPGRADE)
    assert found.fails


def test_clients_alter_topics_while_the_run_goes_on() -> None:
    topics = changed(TOPICS, "retention.ms", Setting("2000", TOPIC), "orders")
    topics = changed(topics, "retention.ms", Setting("3000", TOPIC), "plain")
    del topics["__consumer_offsets"]
    after = replace(
        BEFORE,
        topics={
            "orders": {"id": "orders", "replicas": [[1, 2], [2, 3], [1, 3]]},
            "plain": {"id": "another", "replicas": [[1, 2]]},
            "later": {"id": "later", "replicas": [[1]]},
            "kafka-rollout-traffic-x": {"id": "t", "replicas": [[1]]},
            "__consumer_offsets": BEFORE.topics["__consumer_offsets"],
        },
        groups={},
        configs={**BEFORE.configs, "topic orders": {"retention.ms": "2000"}},
        effective=effective(BROKERS, topics),
    )
    found = compare_states(BEFORE, after, UPGRADE)
    assert [one.sentence for one in found if one.fails] == []
    assert {one.sentence for one in found if one.by_clients} == {
        "Topics were created: later.",
        "Topic orders had 2 partitions, now 3.",
        "Topic plain was deleted and created again: its topic id changed.",
        "Groups were deleted or have expired: billing.",
        (
            "retention.ms of topic orders was 1000 (DYNAMIC_TOPIC_CONFIG) and is 2000 (DYNAMIC_TOPIC_CONFIG) (a "
            "client changed the topic's own value)."
        ),
        (
            "retention.ms of topic plain was 604800000 (DEFAULT_CONFIG) and is 3000 (DYNAMIC_TOPIC_CONFIG) (a client "
            "changed the topic's own value)."
        ),
    }


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"acls": ()}, "ACL allow User:alice READ from * on topic orders is missing."),
        (
            {"acls": (read_acl("User:alice"), read_acl("User:bob"))},
            "ACL allow User:bob READ from * on topic orders was added.",
        ),
        ({"scram": {}}, "SCRAM user SCRAM-SHA-256 of alice was 4096 and is now missing."),
        ({"quotas": {**BEFORE.quotas, "user bob": {"a": 1.0}}}, "Quota a of user bob was not set and is 1.0."),
        (
            {"configs": {"topic orders": {"retention.ms": "1000"}}},
            "Dynamic setting log.cleaner.threads of broker 1 was 2 and is now missing.",
        ),
        (
            {"ends": {"orders-0": 9, "__consumer_offsets-0": 5}},
            "orders-0 ended at offset 10 and now ends at 9: records are lost.",
        ),
        (
            {"topics": {**BEFORE.topics, "plain": {"id": "plain", "replicas": [[1, 2]]}}},
            "Topic plain had 2 partitions, now 1.",
        ),
        (
            {"topics": {name: topic for name, topic in BEFORE.topics.items() if name != "__consumer_offsets"}},
            "Topic __consumer_offsets was deleted.",
        ),
        (
            {"groups": {"billing": {"type": "classic", "offsets": {"orders-0": 6}}}},
            "Committed offsets of group billing are lower than before: orders-0 7 → 6.",
        ),
        (
            {"acls": (), "unasked": {"acls": "The cluster has no authorizer."}},
            "Not all ACLs could be read: The cluster has no authorizer.",
        ),
    ],
)
def test_what_no_plan_names_fails_additions_included(change: dict[str, Any], sentence: str) -> None:
    found = compare_states(BEFORE, replace(BEFORE, **change), UPGRADE)
    assert [one.sentence for one in found if one.fails] == [sentence]
    assert digest(found) != digest(())


def test_groups_that_are_gone_with_most_of_their_coordinator_partition_fail() -> None:
    """Clients delete a group here and there; a partition that was not loaded loses all of its groups."""
    group = {"type": "classic", "offsets": {"orders-0": 7}}
    before = replace(BEFORE, groups={f"g-{number}": group for number in range(500)})
    of_second = [name for name in before.groups if coordinator_partition(name, 2)]

    def compare(left: Iterable[str]) -> tuple[Difference, ...]:
        return compare_states(before, replace(before, groups=dict.fromkeys(left, group)), UPGRADE)

    both = ("__consumer_offsets-0", "__consumer_offsets-1")
    assert sorted((one.subject, one.fails) for one in compare(())) == [(name, True) for name in both]
    again = replace(before, groups={name: {**group, "offsets": {}} for name in before.groups})
    assert {one.subject for one in compare_states(before, again, UPGRADE) if one.fails} == {*both}, "members joined"
    (lost,) = compare(of_second)
    number = 500 - len(of_second)
    assert lost.sentence.startswith(f"{number} of the {number} groups of __consumer_offsets-0 have none")
    assert lost.fails
    (expired,) = compare([*before.groups][40:])
    assert expired.by_clients
    gone = {name: topic for name, topic in BEFORE.topics.items() if name != "orders"}
    found = compare_states(before, replace(before, topics=gone, groups={}), UPGRADE)
    assert not [one for one in found if one.fails], "a client deleted the topic, and its offsets with it"


@pytest.mark.parametrize("kind", ["classic", "consumer", "share"])
@pytest.mark.parametrize("is_there", [False, True], ids=["gone", "joined again"])
def test_a_group_that_had_members_and_lost_its_offsets_fails(kind: str, *, is_there: bool) -> None:
    """Kafka deletes no group with members, and offsets.retention.minutes counts from when the last one left."""
    retention = changed(BROKERS, "offsets.retention.minutes", Setting("10080", DEFAULT))
    group = {"type": kind, "has_members": True, "offsets": {"orders-0": 7}}
    before = replace(BEFORE, groups={"app": group}, effective=effective(retention, TOPICS), read_at=1_000.0)

    def after(hours: float, **now: Any) -> ClusterInventory:
        groups = {"app": {**group, "has_members": True, "offsets": {}, **now}} if is_there or now else {}
        return replace(before, groups=groups, read_at=1_000.0 + 3600 * hours)

    (found,) = compare_states(before, after(2), UPGRADE)
    assert (found.subject, found.fails) == ("app", True)
    assert compare_states(before, after(2, offsets={"orders-0": 7}), UPGRADE) == ()
    without_topic = replace(after(2), topics={name: one for name, one in BEFORE.topics.items() if name != "orders"})
    assert not [one for one in compare_states(before, without_topic, UPGRADE) if one.fails], "deleted with its offsets"
    late = [one.subject for one in compare_states(before, after(7 * 24), UPGRADE) if one.fails]
    assert late == (["app"] if kind == "share" else []), "committed offsets expire, start offsets do not"
    if kind != "share" or not is_there:
        idle = replace(before, groups={"app": {**group, "has_members": False}})
        assert not [one for one in compare_states(idle, after(2), UPGRADE) if one.fails], "a client can delete it"


ALL_OFFSETS = {"orders-0": 7, "orders-1": 8, "plain-0": 9}
RETENTION = changed(BROKERS, "offsets.retention.minutes", Setting("10080", DEFAULT))


def with_groups(groups: dict[str, Any], *, hours: float = 0, **fields: Any) -> ClusterInventory:
    return replace(BEFORE, groups=groups, effective=effective(RETENTION, TOPICS), read_at=3600 * hours, **fields)


@pytest.mark.parametrize("kind", ["classic", "consumer", "streams"])
@pytest.mark.parametrize(
    ("subscribed", "left", "missing"),
    [
        (["orders", "plain"], ["orders-0", "plain-0"], "1 of its 3 offsets are missing: orders-1."),
        (["orders", "plain"], ["plain-0"], "2 of its 3 offsets are missing: orders-0, orders-1."),
        (None, ["plain-0"], "2 of its 3 offsets are missing: orders-0, orders-1."),  # in a rebalance before the run
        (["plain"], ["plain-0"], ""),  # Kafka expires them a time after their commit, and a client can delete them
        (["plain"], ["orders-0"], "1 of its 3 offsets are missing: plain-0."),
        (["orders", "plain"], [*ALL_OFFSETS], ""),
    ],
)
def test_an_offset_of_a_topic_that_members_subscribed_to_counts(
    kind: str, subscribed: list[str] | None, left: list[str], missing: str
) -> None:
    group = {"type": kind, "has_members": True, "subscribed": subscribed, "offsets": ALL_OFFSETS}
    before, kept = with_groups({"app": group}), {name: ALL_OFFSETS[name] for name in left}
    found = compare_states(before, with_groups({"app": {**group, "offsets": kept}}, hours=2), UPGRADE)
    assert [(one.subject, one.fails) for one in found] == [("app", True)] * bool(missing)
    assert all(missing in one.sentence for one in found)
    idle = with_groups({"app": {**group, "has_members": False}})
    assert compare_states(idle, with_groups({"app": {**group, "offsets": kept}}, hours=2), UPGRADE) == ()
    assert compare_states(before, with_groups({"app": {**group, "offsets": kept}}, hours=200), UPGRADE) == ()


@pytest.mark.parametrize(
    ("total", "left", "hours", "fails"),
    [
        (7, 0, 1, True),
        (7, 3, 1, True),
        (7, 4, 1, False),
        (3, 0, 1, True),
        (3, 1, 1, False),  # clients delete a group here and there
        (2, 0, 1, False),
        (7, 0, 100, False),  # in more than half of their retention, more than half of the idle groups can expire
    ],
)
def test_idle_groups_that_are_gone_with_most_of_a_small_cluster_fail(
    total: int, left: int, hours: float, *, fails: bool
) -> None:
    """Each partition of __consumer_offsets has one group or none, so no partition has lost most of its groups."""
    group = {"type": "classic", "has_members": False, "offsets": {"orders-0": 7}}
    offsets = {"id": "__consumer_offsets", "replicas": [[1, 2]] * 5000}
    topics = {**BEFORE.topics, "__consumer_offsets": offsets}
    names = [f"g-{number}" for number in range(total)]
    assert len({coordinator_partition(name, 5000) for name in names}) == total
    before = with_groups(dict.fromkeys(names, group), topics=topics)
    after = with_groups(dict.fromkeys(names[:left], group), topics=topics, hours=hours)
    found = [one for one in compare_states(before, after, UPGRADE) if one.fails]
    assert [one.subject for one in found] == ["__consumer_offsets"] * fails
    assert all(f"{total - left} of the {total} groups of __consumer_offsets have none" in one.sentence for one in found)


@pytest.mark.parametrize(("left", "fails"), [(0, True), (14, True), (15, False), (29, False)])
@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created again"])
def test_most_topics_gone_need_an_approver(left: int, *, again: bool, fails: bool) -> None:
    """A client deletes a topic here and there."""
    names = [f"t-{number}" for number in range(30)]
    internal = {"__consumer_offsets": BEFORE.topics["__consumer_offsets"]}
    topics = {name: {"id": name, "replicas": [[1]]} for name in names} | internal
    later = {name: {"id": f"{name}-again", "replicas": [[1]]} for name in names if again}
    now = later | {name: topics[name] for name in names[:left]} | internal
    found = compare_states(replace(BEFORE, topics=topics), replace(BEFORE, topics=now), UPGRADE)
    assert [one.sentence[:46] for one in found if one.fails] == [
        f"{30 - left} of the 30 topics were deleted, or deleted and"[:46]
    ] * fails
    assert len([one for one in found if one.by_clients]) == 30 - left, "each is named"


def test_a_part_that_the_source_release_could_not_report_has_no_base() -> None:
    before = replace(BEFORE, scram={}, unasked={"scram": "too old."})
    assert compare_states(before, replace(BEFORE, scram={"bob": {"SCRAM-SHA-256": 1}}), UPGRADE) == ()


def test_a_broker_that_does_not_report_its_configuration_is_unknown() -> None:
    rest = {broker: settings for broker, settings in BROKERS.items() if broker != "3"}
    (found,) = compare_states(BEFORE, replace(BEFORE, effective=effective(rest, TOPICS)), UPGRADE)
    assert (found.kind, found.subject, found.fails) == ("unknown", "broker 3", True)


def test_secrets_are_compared_by_presence_only() -> None:
    secret = Setting("(hidden)", FILE)
    before = replace(BEFORE, effective=effective(changed(BROKERS, "ssl.key.password", secret), TOPICS))
    assert compare_states(before, before, UPGRADE) == ()
    gone = replace(BEFORE, effective=effective(changed(BROKERS, "ssl.key.password", Setting(None, DEFAULT)), TOPICS))
    (found,) = compare_states(before, gone, UPGRADE)
    assert found.fails


@pytest.mark.parametrize(
    ("line", "before", "after", "fails"),
    [
        ("figures/csv", None, Setting("(hidden)", FILE), False),
        ("figures/csv", None, Setting("(hidden)", ALL), True),
        (None, Setting("(hidden)", FILE), None, False),
        ("figures/csv", Setting("(hidden)", FILE), None, True),
    ],
    ids=str,
)
def test_a_setting_of_a_plugin_is_expected_by_the_presence_of_its_line(
    line: str | None, before: Setting | None, after: Setting | None, *, fails: bool
) -> None:
    name = "kafka.csv.metrics.dir"
    old, new = (changed(BROKERS, name, one, "1") if one else BROKERS for one in (before, after))
    (found,) = compare_states(
        replace(BEFORE, effective=effective(old, TOPICS)),
        replace(BEFORE, effective=effective(new, TOPICS)),
        replace(UPGRADE, files={1: {name: line}}),
    )
    assert found.fails is fails


def test_a_setting_of_ten_thousand_topics_is_one_difference_and_a_small_record() -> None:
    many: Resources = {f"topic-{number}": dict(TOPICS["plain"]) for number in range(10_000)}
    after = changed(many, MIN_ISR, Setting("1", ALL))
    tables = ConfigTable.of_resources(many), ConfigTable.of_resources(after)
    topics = {name: {"id": name, "replicas": [[1]]} for name in many}
    before = replace(BEFORE, topics=topics, effective=EffectiveConfigs(topics=tables[0]))
    found = compare_states(before, replace(before, effective=EffectiveConfigs(topics=tables[1])), UPGRADE)
    assert len(found) == 1
    assert "and 9980 more (fingerprint " in found[0].sentence
    assert len(str(to_json(before.effective))) < 200_000
    assert from_json(EffectiveConfigs, to_json(before.effective)) == before.effective


def test_an_acceptance_covers_exactly_the_listed_differences() -> None:
    one = compare_states(BEFORE, replace(BEFORE, acls=()), UPGRADE)
    same = compare_states(BEFORE, replace(BEFORE, acls=(), effective=effective(*after_roll())), UPGRADE)
    more = compare_states(BEFORE, replace(BEFORE, acls=(), quotas={}), UPGRADE)
    assert digest(one) == digest(same) != digest(more)


LOST = "message.format.version"


@pytest.mark.parametrize("after", [None, Setting("3.0-IV1", DEFAULT)], ids=["on the target", "rolled back"])
def test_a_setting_that_the_plan_named_as_dropped_was_not_changed_by_a_client(after: Setting | None) -> None:
    own = changed(TOPICS, LOST, Setting("2.8", TOPIC), "orders", "plain")
    expected = ExpectedConfigs(dropped={"topic orders": [LOST], "group billing": ["old"]})
    before = replace(BEFORE, effective=effective(BROKERS, own), group_configs={"billing": {"old": "1", "kept": "2"}})
    now = changed(own, LOST, after, "orders", "plain")

    found = compare_states(
        before, replace(before, effective=effective(BROKERS, now), group_configs={"billing": {}}), expected
    )

    assert {one.subject: (one.foretold, one.by_clients) for one in found} == {
        f"{LOST} of topic orders": (True, False),
        f"{LOST} of topic plain": (False, True),
        "old of billing": (True, False),
        "kept of billing": (False, False),
    }
    assert any(one.sentence.endswith("(a release of the plan drops it).") for one in found)


def test_a_client_can_still_alter_a_setting_that_the_plan_named_as_dropped() -> None:
    before, after = (
        replace(BEFORE, effective=effective(BROKERS, changed(TOPICS, LOST, Setting(value, TOPIC), "orders")))
        for value in ("2.8", "2.7")
    )
    (found,) = compare_states(before, after, ExpectedConfigs(dropped={"topic orders": [LOST]}))
    assert found.by_clients


@pytest.mark.parametrize("source", [FILE, DEFAULT])
@pytest.mark.parametrize("after", [None, Setting("3.1-IV0", FILE)], ids=["missing", "another"])
def test_a_change_of_an_inherited_value_is_not_the_loss_of_a_dropped_setting(
    source: ConfigSource, after: Setting | None
) -> None:
    before, now = (
        replace(BEFORE, effective=effective(BROKERS, changed(TOPICS, LOST, value, "orders")))
        for value in (Setting("3.0-IV1", source), after)
    )
    (found,) = compare_states(before, now, ExpectedConfigs(dropped={"topic orders": [LOST]}))
    assert (found.foretold, found.by_clients) == (False, False)
