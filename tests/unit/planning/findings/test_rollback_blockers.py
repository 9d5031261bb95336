"""From when a rollback is impossible, by the facts of the released jars."""

from __future__ import annotations

import json

import pytest

from kafka_rollout.planning.findings.releases import find_closing_records
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import FeatureLevel, Release
from tools.demo.folder import PROJECT_ROOT

CATALOGUE = load_catalogue(PROJECT_ROOT / "include")
FIXTURES = PROJECT_ROOT / "tests" / "fixtures"
PLANTED_KEY = 99
EVERYTHING = {"group.version": 1, "transaction.version": 2, "share.version": 1, "streams.version": 1}


def closing(source: str, target: str, **levels: int) -> list[tuple[str, int, str]]:
    held = {name.replace("_", "."): level for name, level in levels.items()}
    found = find_closing_records(CATALOGUE, Release.parse(source), Release.parse(target), held)
    return [(record.record, record.value_version, record.since) for record in found]


@pytest.mark.parametrize("target", ["4.1.1", "4.2.1", "4.3.1"])
def test_offset_commits_of_4_1_and_later_close_the_way_back_from_the_first_node_on(target: str) -> None:
    assert closing("3.4.0", target) == [("OffsetCommit", 4, "its first node")]


def test_4_0_closes_it_by_features_only() -> None:
    assert closing("3.4.0", "4.0.1") == []
    assert closing("3.4.0", "4.0.1", transaction_version=1) == [("TransactionLog", 1, "transaction.version 1")]
    assert ("ConsumerGroupMetadata", 0, "group.version 1") in closing("3.4.0", "4.0.1", group_version=1)


@pytest.mark.parametrize("target", ["3.9.1", "4.0.1", "4.3.1"])
def test_the_way_back_to_a_tolerant_release_stays_open(target: str) -> None:
    assert find_closing_records(CATALOGUE, Release(3, 4, 1), Release.parse(target), EVERYTHING) == ()


def test_share_groups_close_the_way_back_to_4_0_which_reads_their_state_and_refuses_it() -> None:
    found = find_closing_records(CATALOGUE, Release(4, 0, 1), Release(4, 3, 1), EVERYTHING)
    assert [(record.record, record.needs) for record in found] == [
        ("ShareGroupStatePartitionMetadata", FeatureLevel(feature="share.version", level=1))
    ]
    assert "Received an unknown record type 15" in found[0].reason


@pytest.mark.parametrize("name", ["3.4.0", "3.9.1", "4.3.1", "4.3.1-all-groups"])
def test_what_a_real_broker_wrote_is_what_the_catalogue_says_it_writes(name: str) -> None:
    found = json.loads((FIXTURES / f"coordinator-logs-{name}" / "classes.json").read_text())["classes"]
    logs = CATALOGUE.get(Release.parse(name.split("-", maxsplit=1)[0])).coordinator_logs
    for one in found:
        if one["key_version"] == PLANTED_KEY or one["value_version"] is None:
            continue
        record = logs[one["topic"]].record(one["key_version"])
        assert record is not None
        assert one["value_version"] in record.writes, one
