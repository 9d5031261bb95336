from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.model.config_values import ValueType
from kafka_rollout.model.configs import HIDDEN, ConfigSource, ConfigTable, EffectiveConfigs, ExpectedConfigs, Setting
from kafka_rollout.model.contents import (
    ClusterInventory,
    Difference,
    compare_inventories,
    compare_states,
    digest,
    find_unserved_types,
    in_order,
)
from tests.acls import read_acl

BEFORE = ClusterInventory(
    topics={"orders": {"id": "a", "replicas": [[1, 2], [2, 3]]}},
    ends={"orders-0": 10, "orders-1": 5},
    groups={"billing": {"type": "classic", "offsets": {"orders-0": 7}}, "new": {"type": "consumer", "offsets": {}}},
    configs={"topic orders": {"retention.ms": "1000"}},
    acls=(read_acl("User:alice"),),
    scram={"alice": {"SCRAM-SHA-256": 4096}},
    quotas={"user alice": {"producer_byte_rate": 1000.0}},
    unasked={},
    group_configs={"billing": {"consumer.session.timeout.ms": "50000"}},
    subscriptions={"latency": {"interval.ms": "60000"}},
)


def test_an_approval_accepts_no_other_offsets_than_those_of_the_comparison() -> None:
    """A sentence names four partitions."""

    def committed(*offsets: int) -> ClusterInventory:
        of = {f"orders-{number}": offset for number, offset in enumerate(offsets)}
        return replace(BEFORE, groups={"billing": {"type": "classic", "offsets": of}})

    accepted, later = (
        compare_states(committed(*[1000] * 8), committed(*[990] * 4, *[offset] * 4), ExpectedConfigs())
        for offset in (999, 0)
    )
    assert [one.sentence.partition(" and 4 more")[0] for one in accepted] == [
        one.sentence.partition(" and 4 more")[0] for one in later
    ]
    assert digest(accepted) != digest(later)
    assert {one.sentence for one in accepted}.isdisjoint(one.sentence for one in later)


def test_what_is_lost_comes_before_what_is_changed_and_added() -> None:
    found = [
        Difference("quota", "a", "A quota changed."),
        Difference("ACL", "b", "An ACL was added.", adds=True),
        Difference("offset", "c", "Records are lost.", foretold=True),
        Difference("ACL", "d", "An ACL is missing."),
        Difference("offset", "e", "Records are lost."),
        Difference("test traffic", "f", "Test records are lost."),
    ]
    assert "".join(one.subject for one in in_order(found)) == "fedabc"


def test_what_grew_or_came_since_is_no_difference() -> None:
    after = replace(
        BEFORE,
        topics={**BEFORE.topics, "later": {"id": "b", "replicas": [[1]]}},
        ends={"orders-0": 12, "orders-1": 5, "later-0": 1},
        groups={**BEFORE.groups, "billing": {"type": "classic", "offsets": {"orders-0": 9, "orders-1": 1}}},
        acls=(*BEFORE.acls, read_acl("User:bob")),
    )
    assert compare_inventories(BEFORE, after) == ()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"topics": {}, "ends": {}}, "Topic orders is missing."),
        (
            {"topics": {"orders": {"id": "z", "replicas": [[1, 2], [2, 3]]}}},
            "Topic orders was recreated: its topic id changed.",
        ),
        ({"topics": {"orders": {"id": "a", "replicas": [[1, 2]]}}}, "Topic orders had 2 partitions, now 1."),
        (
            {"topics": {"orders": {"id": "a", "replicas": [[1, 2], [1, 3]]}}},
            "The replica assignment of topic orders changed.",
        ),
        (
            {"ends": {"orders-0": 9, "orders-1": 5}},
            ("orders-0 ended at offset 10 and now ends at 9: records are lost."),
        ),
        ({"groups": {"new": BEFORE.groups["new"]}}, "The classic group billing is missing."),
        (
            {"groups": {**BEFORE.groups, "billing": {"type": "classic", "offsets": {}}}},
            "Group billing lost committed offsets: orders-0 7 → none.",
        ),
        ({"configs": {}}, "Configuration retention.ms of topic orders was 1000 and is now missing."),
        ({"acls": ()}, "ACL allow User:alice READ from * on topic orders is missing."),
        ({"scram": {"alice": {"SCRAM-SHA-256": 8192}}}, "SCRAM user SCRAM-SHA-256 of alice was 4096 and is 8192."),
        ({"quotas": {}}, "Quota producer_byte_rate of user alice was 1000.0 and is now missing."),
        ({"scram": {}, "unasked": {"scram": "too old."}}, "Not all SCRAM users could be read: too old."),
        (
            {"group_configs": {}},
            "Configuration consumer.session.timeout.ms of group billing was 50000 and is now missing.",
        ),
        (
            {"subscriptions": {"latency": {"interval.ms": "1000"}}},
            "Configuration interval.ms of client-metrics subscription latency was 60000 and is 1000.",
        ),
    ],
)
def test_missing_smaller_and_changed_contents_are_reported(change: dict[str, Any], told: str) -> None:
    (difference,) = compare_inventories(BEFORE, replace(BEFORE, **change))
    assert difference.sentence.startswith(told)
    assert not difference.foretold


def test_a_group_that_the_older_release_does_not_serve_is_an_expected_difference() -> None:
    unserved = find_unserved_types({"group.version": 0})
    assert unserved == {"consumer", "share", "streams"}
    after = replace(BEFORE, groups={"billing": BEFORE.groups["billing"]})
    (difference,) = compare_inventories(BEFORE, after, unserved=unserved)
    assert (difference.subject, difference.foretold) == ("new", True)


def batch_job(offsets: Mapping[str, int] | None) -> ClusterInventory:
    """An idle consumer group; None: without the group."""
    groups = {} if offsets is None else {"batchjob": {"type": "consumer", "offsets": offsets}}
    return replace(BEFORE, groups={"billing": BEFORE.groups["billing"], **groups})


@pytest.mark.parametrize("is_offline", [True, False], ids=["offline", "in service"])
@pytest.mark.parametrize("left", [{"orders-0": 3}, {}, None], ids=["lower", "none", "no group"])
def test_lost_offsets_of_a_group_that_is_no_longer_served_fail(
    is_offline: bool, left: Mapping[str, int] | None
) -> None:
    """Members of such a group are not served; its offsets are, and the classic consumer after it begins there."""
    unserved = find_unserved_types({"group.version": 0})

    def compare(now: ClusterInventory) -> tuple[Difference, ...]:
        before = batch_job({"orders-0": 1000})
        if is_offline:
            return compare_inventories(before, now, unserved=unserved)
        return compare_states(before, now, ExpectedConfigs(), unserved=unserved)

    (difference,) = compare(batch_job(left))
    assert (difference.subject, difference.fails) == ("batchjob", True)
    assert compare(batch_job({"orders-0": 1000})) == ()


SHARED = replace(BEFORE, groups={"jobs": {"type": "share", "offsets": {"orders-0": 1000}}})


def compare_both(before: ClusterInventory, after: ClusterInventory, *unserved: str) -> list[tuple[Difference, ...]]:
    """After an offline change, and in service."""
    return [
        compare_inventories(before, after, unserved=unserved),
        compare_states(before, after, ExpectedConfigs(), unserved=unserved),
    ]


@pytest.mark.parametrize("left", [{"orders-0": 3}, {}], ids=["lower", "none"])
def test_lost_start_offsets_of_a_share_group_fail(left: Mapping[str, int]) -> None:
    """They do not expire (ShareGroup.shouldExpire), and a client can change only those of a group without members."""
    after = replace(SHARED, groups={"jobs": {"type": "share", "offsets": left}})
    for (difference,) in compare_both(SHARED, after):
        assert (difference.subject, difference.fails) == ("jobs", True)
        assert "tart offsets" in difference.sentence
        assert f"orders-0 1000 → {left.get('orders-0', 'none')}" in difference.sentence
    later = replace(SHARED, groups={"jobs": {"type": "share", "offsets": {"orders-0": 1001, "orders-1": 4}}})
    assert compare_both(SHARED, later) == [(), ()]


def test_start_offsets_that_cannot_be_read_are_unknown_by_name() -> None:
    groups = {"jobs": {"type": "share", "offsets": {}, "unread": True}}
    unread = replace(SHARED, groups=groups, unasked={"share_offsets": "Broker 1 does not offer them."})
    for (difference,) in compare_both(SHARED, unread):
        assert difference.sentence == (
            "Not all start offsets of share groups could be read: Broker 1 does not offer them."
        )
        assert difference.fails
    for (difference,) in compare_both(unread, unread):
        assert (difference.subject, difference.foretold) == ("start offsets of share groups", True)
    for (difference,) in compare_both(SHARED, unread, "share"):
        assert (difference.sentence[:9], difference.foretold) == ("There wer", True), "share.version was lowered"
    for (difference,) in compare_both(SHARED, replace(SHARED, groups={}), "share"):
        assert (difference.subject, difference.foretold) == ("jobs", True), "its operator deleted it"


def test_start_offsets_of_one_group_that_cannot_be_read_hide_no_loss_of_another() -> None:
    """Also if they could not be read before the run either, so that they are no change."""
    of_jobs = {"type": "share", "offsets": {"orders-0": 1000}}
    hidden = {"type": "share", "offsets": {}, "unread": True}
    before = replace(SHARED, groups={"jobs": of_jobs, "hidden": hidden}, unasked={"share_offsets": "not leader."})
    after = replace(before, groups={"jobs": {**of_jobs, "offsets": {}}, "hidden": hidden})
    for found in compare_both(before, after):
        assert [one.subject for one in found if one.fails] == ["jobs"]


def test_a_part_that_nobody_can_ask_any_more_matters_only_if_there_was_something() -> None:
    empty = replace(BEFORE, scram={})
    assert compare_inventories(empty, replace(empty, unasked={"scram": "too old."})) == ()


def test_settings_that_the_older_release_does_not_have_are_expected_differences() -> None:
    after = replace(BEFORE, group_configs={}, unasked={"group_configs": "too old."})
    (difference,) = compare_inventories(BEFORE, after)
    assert difference.sentence == "There were group configurations before; they are not in use now: too old."
    assert difference.foretold


def test_it_survives_the_record_also_one_that_was_written_without_all_parts() -> None:
    assert from_json(ClusterInventory, to_json(BEFORE)) == BEFORE
    written = {key: value for key, value in to_json(BEFORE).items() if key not in {"group_configs", "subscriptions"}}
    assert from_json(ClusterInventory, written) == replace(BEFORE, group_configs={}, subscriptions={})


@pytest.mark.parametrize("before_is_hidden", [True, False])
def test_a_setting_that_one_of_the_releases_does_not_have_is_an_expected_difference(before_is_hidden: bool) -> None:
    hidden = replace(BEFORE, configs={"topic orders": {"retention.ms": HIDDEN}})
    inventories = (hidden, BEFORE) if before_is_hidden else (BEFORE, hidden)
    (difference,) = compare_inventories(*inventories)
    assert difference.foretold
    assert HIDDEN in difference.sentence
    assert compare_inventories(hidden, hidden) == ()


def test_repeated_entries_that_a_release_removes_are_no_difference() -> None:
    def policy(value: str) -> ClusterInventory:
        return replace(BEFORE, configs={"topic orders": {"cleanup.policy": value}})

    assert compare_inventories(policy("delete,delete"), policy("delete")) == ()
    assert len(compare_inventories(policy("compact,delete"), policy("delete"))) == 1


@pytest.mark.parametrize(
    ("part", "subject", "resource"),
    [
        ("configs", "topic orders", "topic orders"),
        ("group_configs", "billing", "group billing"),
        ("subscriptions", "latency", "client-metrics subscription latency"),
    ],
)
def test_only_the_loss_of_exactly_what_the_plan_named_is_an_expected_difference(
    part: str, subject: str, resource: str
) -> None:
    before = replace(BEFORE, **{part: {name: {"old": "1", "kept": "2"} for name in (subject, "another")}})
    dropped = {resource: ["old"]}
    found = compare_inventories(before, replace(before, **{part: {}}), dropped=dropped)
    assert {one.subject.rpartition(" ")[2]: one.foretold for one in found if resource in one.subject} == {
        "old": True,
        "kept": False,
    }
    assert [one.foretold for one in found if "another" in one.subject] == [False, False]
    altered = {name: {"old": "3", "kept": "2"} for name in (subject, "another")}
    found = compare_inventories(before, replace(before, **{part: altered}), dropped=dropped)
    assert [one.foretold for one in found] == [False, False], "a value is changed, not lost"


@pytest.mark.parametrize(("of", "differ"), [(ValueType.DOUBLE, 0), (ValueType.STRING, 1)])
def test_a_dynamic_value_is_compared_by_the_type_of_its_setting(of: ValueType, differ: int) -> None:
    name = "min.cleanable.dirty.ratio"
    table = ConfigTable.of_resources({"orders": {name: Setting("0.5", next(iter(ConfigSource)), of)}})
    before = replace(BEFORE, configs={"topic orders": {name: "0.50"}})
    after = replace(BEFORE, configs={"topic orders": {name: "0.5"}}, effective=EffectiveConfigs(topics=table))
    assert len(compare_inventories(before, after)) == differ
