"""A scan and its tail say together what one scan of everything says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_rollout.base.errors import FatalError
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.coordinator_logs.incompatible_records import find_incompatible_records
from kafka_rollout.coordinator_logs.incremental_scan import find_unscanned_ranges, merge_scans
from kafka_rollout.coordinator_logs.scan import LoadVerdict, LogSize, ScanResult
from kafka_rollout.coordinator_logs.verdicts import evaluate_records
from kafka_rollout.formats.log_types import LogRange, RecordKind, ReplicaRange
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from tools.demo.folder import PROJECT_ROOT

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
CATALOGUE = load_catalogue(PROJECT_ROOT / "include")
RELEASES = (Release(3, 4, 0), Release(3, 4, 1), Release(4, 3, 1))

# One record each: partition, key version, value version.
records = st.lists(
    st.tuples(
        st.sampled_from([(OFFSETS, 0), (OFFSETS, 1), (TRANSACTIONS, 0)]),
        st.sampled_from([None, 0, 1, 2, 3, 40]),
        st.sampled_from([None, -1, 0, 3, 4, 9]),
    ),
    max_size=30,
)


def scan_of(written: list[tuple[tuple[str, int], int | None, int | None]], start: int, end: int) -> ScanResult:
    """A scan of the records with start <= offset < end; a record's offset is its place in the list."""
    held: dict[tuple[object, ...], RecordKind] = {}
    for offset, ((topic, partition), key, value) in enumerate(written[:end]):
        if offset < start:
            continue
        known = held.get((topic, partition, key, value))
        held[topic, partition, key, value] = (
            replace(known, count=known.count + 1)
            if known
            else RecordKind(
                topic=topic,
                partition=partition,
                key_version=key,
                value_version=value,
                count=1,
                first_offset=offset,
                live=1,
            )
        )
    places = [(OFFSETS, 0), (OFFSETS, 1), (TRANSACTIONS, 0)]
    classes = tuple(held.values())
    return ScanResult(
        cluster="orders",
        scanned_at=float(end),
        logs=tuple(LogRange(topic=topic, partition=number, start=start, end=end) for topic, number in places),
        classes=classes,
        verdicts=evaluate_records(CATALOGUE, classes, RELEASES, partitions=places),
    )


@given(records, st.data())
def test_wherever_the_first_scan_ended_the_verdicts_are_those_of_one_scan(
    written: list[tuple[tuple[str, int], int | None, int | None]], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(written)))
    whole = scan_of(written, 0, len(written))
    together = merge_scans(CATALOGUE, scan_of(written, 0, cut), scan_of(written, cut, len(written)))
    assert together.verdicts == whole.verdicts
    assert together.logs == whole.logs
    assert sorted(map(str, together.classes)) == sorted(str(replace(c, live=None)) for c in whole.classes)


def test_sizes_grow_and_a_log_that_is_new_is_taken_as_it_is() -> None:
    size = LogSize(
        topic=OFFSETS,
        partition=0,
        records=3,
        batches=2,
        control_batches=1,
        log_bytes=300,
        first_timestamp=1000,
        last_timestamp=2000,
    )
    before = replace(scan_of([], 0, 0), sizes=(size,))
    new = replace(size, topic=TRANSACTIONS)
    later = replace(size, first_timestamp=2500, last_timestamp=3000)
    together = merge_scans(CATALOGUE, before, replace(before, sizes=(later, new)))
    assert together.sizes == (
        replace(size, records=6, batches=4, control_batches=2, log_bytes=600, last_timestamp=3000),
        new,
    )


def test_nothing_is_counted_twice() -> None:
    scanned = scan_of([((OFFSETS, 0), 1, 3)], 0, 1)
    with pytest.raises(FatalError, match="twice from offset 0"):
        merge_scans(CATALOGUE, scanned, scanned)


def log(start: int, end: int, topic: str = OFFSETS, copy: int = 0) -> ReplicaRange:
    return ReplicaRange(topic=topic, partition=0, start=start, end=end, copy=copy)


@pytest.mark.parametrize(
    ("now", "tail"),
    [
        ((log(0, 150),), (log(100, 150),)),
        ((log(0, 100),), (log(100, 100),)),
        ((log(120, 150),), (log(120, 150),)),  # deleted up to 120 since then
        ((log(0, 100), log(5, 9, TRANSACTIONS)), (log(100, 100), log(5, 9, TRANSACTIONS))),  # a log that is new
        ((log(0, 99),), None),  # deleted and created again, or truncated
        ((log(0, 150), log(0, 99, copy=1)), (log(100, 150), log(99, 99, copy=1))),  # a follower that is not in sync
    ],
)
def test_the_tail_is_what_lies_beyond_the_scan(
    now: tuple[ReplicaRange, ...], tail: tuple[ReplicaRange, ...] | None
) -> None:
    assert find_unscanned_ranges([log(0, 100)], now) == tail


def test_a_record_that_comes_later_makes_a_verdict_worse() -> None:
    written = [((OFFSETS, 0), 1, 3), ((OFFSETS, 0), 40, 0)]
    before = scan_of(written, 0, 1)
    after = merge_scans(CATALOGUE, before, scan_of(written, 1, 2))
    verdicts = {v.release: v for v in after.verdicts if (v.topic, v.partition) == (OFFSETS, 0)}
    assert {v.verdict for v in before.verdicts} == {LoadVerdict.LOADS}
    assert verdicts[RELEASES[0]].verdict is LoadVerdict.FAILS
    assert verdicts[RELEASES[0]].first_failure is not None
    assert verdicts[RELEASES[0]].first_failure.offset == 1
    assert verdicts[RELEASES[2]].verdict is LoadVerdict.LOADS_IGNORING


def test_a_scan_stays_unknown_where_the_group_coordinator_of_the_brokers_is() -> None:
    asked, written = Release(3, 9, 1), [((OFFSETS, 0), 3, 0), ((OFFSETS, 0), 3, 9)]
    catalogue = CATALOGUE.configured(new_group_coordinator=None)
    first = scan_of(written, 0, 1)
    first = replace(first, verdicts=evaluate_records(catalogue, first.classes, (asked,)), new_group_coordinator=None)
    whole = merge_scans(CATALOGUE, from_json(ScanResult, to_json(first)), scan_of(written, 1, 2))
    assert whole.new_group_coordinator is None
    assert {one.verdict for one in (*first.verdicts, *whole.verdicts) if one.topic == OFFSETS} == {LoadVerdict.UNKNOWN}
    assert not whole.is_proved_loadable(asked)


def test_a_scan_is_carried_on_by_the_group_coordinator_that_the_brokers_start() -> None:
    """3.9.1 passes over a consumer group's record by its default coordinator, and reads it by the other."""
    written = [((OFFSETS, 0), 3, 0), ((OFFSETS, 0), 3, 9)]
    asked = Release(3, 9, 1)
    for new, expected in ((False, LoadVerdict.LOADS_IGNORING), (True, LoadVerdict.LOADS)):
        catalogue = CATALOGUE.configured(new_group_coordinator=new)
        first = scan_of(written, 0, 1)
        first = replace(first, verdicts=evaluate_records(catalogue, first.classes, (asked,)), new_group_coordinator=new)
        assert [verdict.verdict for verdict in first.verdicts] == [expected]
        told = from_json(ScanResult, to_json(first))
        whole = merge_scans(CATALOGUE, told, scan_of(written, 1, 2))
        assert whole.new_group_coordinator is new
        assert [verdict.verdict for verdict in whole.verdicts if verdict.topic == OFFSETS][:1] == [expected]
        assert bool(find_incompatible_records(whole, CATALOGUE, asked)) is not new
