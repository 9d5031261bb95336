"""Verdicts of counted rows. tests/spark/test_data_source.py compares them with those of a scan."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_rollout.base.errors import UserError
from pyspark_kafka_coordinator_log.verdicts import _catalogue, _of_logs, _of_record

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


def row(topic: str, key: int | None, value: int | None, **others: Any) -> dict[str, Any]:
    place = {"partition": 0, "replica": None, "count": 1, "first_offset": 0, "last_batch": 0}
    kind = {"topic": topic, "key_version": key, "value_version": value, "broken": None, "damage": None}
    return {**place, **kind, **others}


def verdicts(one: dict[str, Any], *releases: str, classic: bool = True) -> dict[str | None, tuple[str | None, Any]]:
    asked, catalogue = _catalogue(releases, classic)
    return {found["release"]: (found["verdict"], found["reason"]) for found in _of_record(catalogue, asked, one)}


def test_a_record_has_the_verdict_of_each_release() -> None:
    found = verdicts(row(OFFSETS, 3, 0), "3.4.0", "3.9.1", "4.3.1")
    assert {release: verdict for release, (verdict, _) in found.items()} == {
        "3.4.0": "fails",
        "3.9.1": "loads_ignoring",
        "4.3.1": "loads",
    }
    assert "unknown key version 3" in found["3.4.0"][1]
    assert verdicts(row(TRANSACTIONS, 0, 2), "4.3.1")["4.3.1"][0] == "loses"
    assert verdicts(row("__share_group_state", 0, 0), "3.9.1")["3.9.1"][0] == "not_loaded"


def test_broken_bytes_fail_in_the_releases_that_they_name() -> None:
    part = {"part": "value", "releases": ["3.9.1"], "reason": "it ends within field offset"}
    found = verdicts(row(OFFSETS, 1, 3, broken=[part]), "3.9.1", "4.3.1")
    assert found["3.9.1"] == ("fails", "broken value: it ends within field offset")
    assert found["4.3.1"] == ("loads", None)


def test_of_damage_nothing_is_known() -> None:
    found = verdicts(row(OFFSETS, None, None, damage="The batch is corrupt."), "4.3.1")
    assert found == {"4.3.1": ("unknown", "The batch is corrupt.")}


def test_the_group_coordinator_of_3_9_is_unknown_unless_it_is_the_classic_one() -> None:
    commit = row(OFFSETS, 1, 3)
    assert verdicts(commit, "3.9.1")["3.9.1"][0] == "loads"
    assert verdicts(commit, "3.9.1", classic=False)["3.9.1"][0] == "unknown"
    assert verdicts(commit, "4.3.1", classic=False)["4.3.1"][0] == "loads"


@pytest.mark.parametrize(("last_batch", "verdict"), [(9, "fails"), (3, "loads_ignoring")])
def test_a_log_that_ends_with_an_unknown_key_stalls_3_9(last_batch: int, verdict: str) -> None:
    asked, catalogue = _catalogue(("3.9.1",), True)
    rows = [row(TRANSACTIONS, 0, 0, last_batch=5), row(TRANSACTIONS, 7, 0, first_offset=2, last_batch=last_batch)]
    (found,) = _of_logs(catalogue, asked, rows)
    assert found.verdict == verdict


@pytest.mark.parametrize(("releases", "words"), [((), "No release was named"), (("9.9.9",), "not in the catalogue")])
def test_a_release_that_is_missing_is_refused(releases: tuple[str, ...], words: str) -> None:
    with pytest.raises(UserError, match=words):
        _catalogue(releases, True)
