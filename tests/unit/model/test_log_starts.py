"""Which move of a log start offset is evidence of lost records, and which one retention or a client explains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_rollout.base.internal_topics import SHARE_TOPIC
from kafka_rollout.model.configs import ConfigSource, ConfigTable, EffectiveConfigs, ExpectedConfigs, Setting
from kafka_rollout.model.contents import (
    ClusterInventory,
    Difference,
    LogStarts,
    comparable_starts,
    compare_inventories,
    compare_states,
    unexplained_starts,
)
from kafka_rollout.model.retention import Bound, KeptRecords, Retention, retention_of

DAY_MS = 86_400_000
DELETE = {"cleanup.policy": "delete", "retention.ms": str(7 * DAY_MS), "retention.bytes": "-1"}
TIERED = DELETE | {"remote.storage.enable": "true", "local.retention.ms": str(DAY_MS)}


RETENTION = Retention(policy=frozenset({"delete"}), ms=7 * DAY_MS, size=-1, tiered=False, local_ms=7 * DAY_MS)


def settings(values: dict[str, str]) -> dict[str, Setting]:
    return {name: Setting(value, ConfigSource.DEFAULT) for name, value in values.items()}


def inventory(topic: str = "orders", values: dict[str, str] | None = None, **changes: Any) -> ClusterInventory:
    table = ConfigTable.of_resources({topic: settings(values or DELETE)})
    known: dict[str, Any] = {
        "topics": {topic: {"id": "a", "replicas": [[1, 2]]}},
        "ends": {f"{topic}-0": 300},
        "effective": EffectiveConfigs(topics=table),
        "read_at": 1000.0,
    }
    parts: dict[str, Any] = {name: {} for name in ("groups", "configs", "scram", "quotas", "unasked")}
    return ClusterInventory(**{**parts, "acls": (), **known, **changes})


def moved(before: ClusterInventory, after: ClusterInventory) -> list[Difference]:
    """Return the differences of log starts, of which both comparisons must find the same."""
    expected = ExpectedConfigs()
    found = [one for one in compare_states(before, after, expected) if one.kind == "log start"]
    assert found == [one for one in compare_inventories(before, after) if one.kind == "log start"]
    return found


def before(topic: str = "orders", *, from_offset: int = 100, until: float | None = 5000.0) -> ClusterInventory:
    kept = KeptRecords(start=0, from_offset=from_offset, until=until)
    return inventory(topic, starts={f"{topic}-0": 0}, kept={f"{topic}-0": kept})


def test_records_that_retention_keeps_and_that_are_gone_are_lost() -> None:
    (found,) = moved(before(), inventory(starts={"orders-0": 101}))
    assert found.fails
    assert found.sentence == (
        "orders-0 began at offset 0 and now begins at 101. Its retention (cleanup.policy=delete, "
        "retention.ms=604800000, retention.bytes=-1) does not explain that: records are lost, or a client deleted them "
        "(DeleteRecords)."
    )


@pytest.mark.parametrize(
    "after",
    [
        inventory(starts={"orders-0": 100}),
        inventory(starts={"orders-0": 300}, read_at=5000.0),
        inventory(starts={}),
        inventory(starts={"orders-0": 300}, topics={"orders": {"id": "b", "replicas": [[1, 2]]}}),
        inventory(starts={"orders-0": 300}, topics={}, effective=EffectiveConfigs()),
    ],
    ids=["older than half of retention.ms", "after its margin", "without a leader", "recreated", "deleted"],
)
def test_what_retention_or_a_client_can_explain_is_no_loss(after: ClusterInventory) -> None:
    assert moved(before(), after) == []


@pytest.mark.parametrize(
    ("source", "by_clients"),
    [
        (ConfigSource.TOPIC, True),
        (ConfigSource.ALL_BROKERS, True),
        (ConfigSource.NODE, False),
        (ConfigSource.FILE, False),
        (ConfigSource.DEFAULT, False),
    ],
)
def test_only_a_client_who_changed_the_retention_in_between_removed_the_records(
    source: ConfigSource, *, by_clients: bool
) -> None:
    """A broker answers with the values of its own file and the defaults of its own release."""
    values = settings(DELETE) | {"retention.ms": Setting("1000", source)}
    table = ConfigTable.of_resources({"orders": values})
    after = inventory(starts={"orders-0": 300}, effective=EffectiveConfigs(topics=table))
    (found,) = moved(before(), after)
    assert found.by_clients is by_clients
    assert "retention.ms=1000" in found.sentence
    now = LogStarts(
        read_at=1.0,
        starts={"orders-0": 300},
        ids={"orders": "a"},
        retention={"orders": retention_of(values)},
        led=1,
        asked=1,
    )
    assert bool(unexplained_starts(before(), now)) is not by_clients


@pytest.mark.parametrize(
    ("name", "value", "by_clients"),
    [
        ("retention.ms", "9999999999", False),
        ("retention.bytes", "-1", False),
        ("local.retention.ms", "1", False),
        ("retention.bytes", "1000", True),
    ],
)
def test_a_client_who_lets_brokers_keep_more_removed_no_records(name: str, value: str, *, by_clients: bool) -> None:
    table = ConfigTable.of_resources({"orders": settings(DELETE) | {name: Setting(value, ConfigSource.TOPIC)}})
    (found,) = moved(before(), inventory(starts={"orders-0": 300}, effective=EffectiveConfigs(topics=table)))
    assert found.by_clients is by_clients


def test_a_retention_that_is_unknown_now_explains_nothing() -> None:
    now = LogStarts(
        read_at=1.0, starts={"orders-0": 300}, ids={"orders": "a"}, retention={"orders": None}, led=1, asked=1
    )
    assert unexplained_starts(before(), now)


@pytest.mark.parametrize(("committed", "lost"), [(250, False), (249, True)])
def test_kafka_streams_removes_what_it_has_read_of_a_repartition_topic(committed: int, *, lost: bool) -> None:
    topic = "app-counts-repartition"
    groups = {
        "app": {"type": "classic", "offsets": {f"{topic}-0": committed}},
        "other": {"type": "classic", "offsets": {f"{topic}-0": 300}},
    }
    after = inventory(topic, starts={f"{topic}-0": 250}, groups=groups)
    assert bool(moved(before(topic, from_offset=0, until=None), after)) is lost


def test_the_share_coordinator_removes_records_of_its_own_log() -> None:
    topic = "__share_group_state"
    assert not moved(before(topic, from_offset=0, until=None), inventory(topic, starts={f"{topic}-0": 9}))


@pytest.mark.parametrize(
    ("changed", "bound", "margin_days"),
    [
        ({}, Bound.TIME, 3.5),
        ({"retention.ms": "-1"}, Bound.START, None),
        ({"cleanup.policy": "compact"}, Bound.START, None),
        ({"cleanup.policy": "compact", "retention.bytes": "1000"}, Bound.START, None),
        ({"cleanup.policy": "compact,delete"}, None, None),
        ({"retention.bytes": "1000"}, None, None),
        ({"retention.bytes": "1000", "retention.ms": "-1"}, None, None),
        (TIERED, Bound.LOCAL, 3),
        (TIERED | {"retention.ms": "-1"}, Bound.START, None),
        (TIERED | {"retention.bytes": "1000"}, None, None),
        (TIERED | {"local.retention.ms": "-2"}, None, None),
    ],
)
def test_a_bound_is_known_only_where_nothing_else_can_remove_records(
    changed: dict[str, str], bound: Bound | None, margin_days: float | None
) -> None:
    found = retention_of(settings(DELETE | changed))
    assert isinstance(found, Retention)
    assert found.bound is bound
    if margin_days is not None:
        assert found.margin_ms == margin_days * DAY_MS


def test_without_its_settings_nothing_is_known_of_a_topic() -> None:
    assert retention_of(settings({"cleanup.policy": "delete"})) is None


def test_marks_of_a_stored_state_stay() -> None:
    from kafka_rollout.base.json_forms import from_json, to_json

    stored = replace(before(), read_at=12.5)
    assert from_json(ClusterInventory, to_json(stored)) == stored


def test_a_gate_compares_what_no_client_removes_as_it_reads_and_finds_what_the_comparison_finds() -> None:
    known, name = before(), "orders-0"
    assert comparable_starts(known, 4999.0) == {name: 100}
    assert comparable_starts(known, 5000.0) == {}, "retention can have moved it since"
    purged = "app-orders-repartition"
    groups = {"app": {"type": "classic", "offsets": {}}}
    assert comparable_starts(replace(before(purged), groups=groups), 0.0) == {}
    assert comparable_starts(before(purged), 0.0) == {f"{purged}-0": 100}, "no such group was known"
    assert comparable_starts(before(SHARE_TOPIC), 0.0) == {}
    after = inventory(starts={name: 101})
    now = LogStarts(
        read_at=1000.0, starts={name: 101}, ids={"orders": "a"}, retention={"orders": RETENTION}, led=1, asked=1
    )
    assert unexplained_starts(known, now) == tuple(moved(known, after))
    for other in (
        {"read_at": 5000.0},
        {"ids": {"orders": "b"}},
        {"starts": {name: 100}},
        {"retention": {"orders": replace(RETENTION, ms=1, of_clients=frozenset({("retention.ms", "1")}))}},
    ):
        changed: dict[str, Any] = other
        assert unexplained_starts(known, replace(now, **changed)) == ()
