"""Lost and doubled records, changed contents and changed effective values are found."""

from __future__ import annotations

import pytest

from tools.faults.contents import changed_configs
from tools.faults.traffic import compare

TOPIC = "TOPIC faults-records"


def test_every_acknowledged_record_is_stored_once_where_it_was_acknowledged() -> None:
    found = compare({"1": (0, 0), "2": (1, 7)}, {"1": [(0, 0)], "2": [(1, 7)], "3": [(2, 0)]})
    assert (found.acknowledged, found.stored) == (2, 3)
    assert (found.lost, found.doubled, found.moved) == ((), (), ())


def test_lost_doubled_and_moved_records_are_named() -> None:
    stored = {"2": [(0, 1), (0, 2)], "3": [(1, 4)], "4": [(1, 5), (1, 6)]}
    found = compare({"1": (0, 0), "2": (0, 1), "3": (1, 3)}, stored)
    assert found.lost == ("1",)
    assert found.doubled == (
        "2 (partition 0 offset 1, partition 0 offset 2)",
        "4 (partition 1 offset 5, partition 1 offset 6)",
    ), "also without an acknowledgement"
    assert found.moved == ("3",)


def test_a_record_that_was_read_twice_is_stored_once() -> None:
    assert not compare({"1": (0, 9)}, {"1": [(0, 9), (0, 9)]}).doubled


def test_an_acknowledgement_of_a_repeated_request_has_no_offset() -> None:
    assert not compare({"1": (0, -1)}, {"1": [(0, 9)]}).moved


@pytest.mark.parametrize(
    ("name", "before", "after", "changed"),
    [
        ("min.insync.replicas", ("2", 4), ("1", 3), True),  # a default of the cluster covers the brokers' files
        ("min.insync.replicas", ("2", 4), ("2", 3), False),  # the same value from elsewhere
        ("min.insync.replicas", ("1", 5), ("2", 5), True),  # durable: also a default counts
        ("log.message.timestamp.after.max.ms", ("1", 5), ("2", 5), False),  # a default of another release
        ("log.message.timestamp.after.max.ms", ("1", 5), ("2", 3), True),  # it was set
        ("log.cleanup.policy", ("delete,delete", 4), ("delete", 4), False),  # repeated entries are one
        ("metadata.log.max.snapshot.interval.ms", ("10000", 4), ("5000", 4), False),  # as the plan shows
    ],
)
def test_an_effective_value_that_changed_is_found(
    name: str, before: tuple[str, int], after: tuple[str, int], changed: bool
) -> None:
    assert bool(changed_configs({TOPIC: {name: before}}, {TOPIC: {name: after}})) is changed


def test_a_resource_that_is_missing_is_found_and_a_setting_of_one_release_is_not() -> None:
    assert changed_configs({TOPIC: {}}, {}) == (f"{TOPIC} is missing.",)
    assert not changed_configs({TOPIC: {"only.before": ("1", 4)}}, {TOPIC: {"only.after": ("1", 5)}})
