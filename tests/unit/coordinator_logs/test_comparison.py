"""Two scans of one cluster: what got worse is what someone hears of."""

from __future__ import annotations

from kafka_rollout.coordinator_logs.comparison import compare, trend
from kafka_rollout.coordinator_logs.scan import Failure, LoadVerdict, LogSize, ReleaseVerdict, ScanResult
from kafka_rollout.formats.log_types import LogRange, RecordKind
from kafka_rollout.releases.facts import Release

OFFSETS = "__consumer_offsets"
OLD, NEW = Release(3, 4, 0), Release(4, 3, 1)
FAILURE = Failure(offset=7, reason="unknown key version 3")


def verdict(
    release: Release, answer: LoadVerdict, *, partition: int = 0, failure: Failure | None = None
) -> ReleaseVerdict:
    return ReleaseVerdict(release=release, topic=OFFSETS, partition=partition, verdict=answer, first_failure=failure)


def scan(
    *verdicts: ReleaseVerdict, at: float = 1.0, partitions: int = 1, log_bytes: int = 100, keys: tuple[int, ...] = (1,)
) -> ScanResult:
    return ScanResult(
        cluster="orders",
        scanned_at=at,
        logs=tuple(LogRange(topic=OFFSETS, partition=n, start=0, end=10) for n in range(partitions)),
        classes=tuple(
            RecordKind(topic=OFFSETS, partition=0, key_version=key, value_version=0, count=4, first_offset=key)
            for key in keys
        ),
        verdicts=verdicts,
        sizes=tuple(
            LogSize(
                topic=OFFSETS,
                partition=n,
                records=10,
                batches=1,
                control_batches=0,
                log_bytes=log_bytes,
                first_timestamp=0,
                last_timestamp=1,
            )
            for n in range(partitions)
        ),
    )


def test_a_release_that_loaded_and_now_fails_got_worse_and_says_where() -> None:
    compared = compare(
        scan(verdict(OLD, LoadVerdict.LOADS), verdict(NEW, LoadVerdict.LOADS)),
        scan(verdict(OLD, LoadVerdict.FAILS, failure=FAILURE), verdict(NEW, LoadVerdict.LOADS), at=2.0),
    )
    assert [str(change) for change in compared.worse] == [
        "__consumer_offsets-0 on 3.4.0: loads, now fails at offset 7: unknown key version 3"
    ]
    assert compared.better == ()
    assert (compared.before_at, compared.after_at) == (1.0, 2.0)


def test_ignoring_is_worse_than_loading_and_better_than_failing() -> None:
    loads, ignores, fails = LoadVerdict.LOADS, LoadVerdict.LOADS_IGNORING, LoadVerdict.FAILS
    assert compare(scan(verdict(OLD, loads)), scan(verdict(OLD, ignores))).worse
    assert compare(scan(verdict(OLD, fails)), scan(verdict(OLD, ignores))).better


def test_a_new_partition_that_fails_got_worse_and_one_that_loads_did_not() -> None:
    was_loading = verdict(OLD, LoadVerdict.LOADS)
    new = [
        verdict(OLD, LoadVerdict.FAILS, partition=1, failure=FAILURE),
        verdict(OLD, LoadVerdict.LOADS, partition=2),
        verdict(OLD, LoadVerdict.NOT_LOADED, partition=3),
    ]
    compared = compare(scan(was_loading), scan(was_loading, *new, partitions=4))
    assert [(change.partition, change.before) for change in compared.worse] == [(1, None)]


def test_a_release_that_only_one_scan_asked_about_is_named_and_not_compared() -> None:
    compared = compare(scan(verdict(NEW, LoadVerdict.LOADS)), scan(verdict(OLD, LoadVerdict.FAILS, failure=FAILURE)))
    assert compared.worse == ()
    assert compared.not_compared == (
        "Only the earlier scan covers 4.3.1.",
        "Only the later scan covers 3.4.0.",
    )


def test_a_partition_that_the_later_scan_did_not_read_is_named() -> None:
    assert compare(scan(partitions=2), scan()).not_compared == ("Only the earlier scan read __consumer_offsets-1.",)


def test_classes_that_appeared_and_are_gone_and_what_grew_are_told() -> None:
    compared = compare(scan(keys=(1, 3)), scan(keys=(1, 5), log_bytes=250))
    assert [change.key_version for change in compared.appeared] == [5]
    assert [(change.key_version, change.before, change.after) for change in compared.gone] == [(3, 4, 0)]
    assert [(growth.bytes_before, growth.bytes_after) for growth in compared.growth] == [(100, 250)]


def test_the_trend_is_in_the_order_of_time_and_counts_the_partitions_that_fail() -> None:
    later = scan(verdict(OLD, LoadVerdict.FAILS, failure=FAILURE), verdict(NEW, LoadVerdict.LOADS), at=2.0)
    points = trend([later, scan(verdict(OLD, LoadVerdict.LOADS), at=1.0)])
    assert [point.scanned_at for point in points] == [1.0, 2.0]
    assert points[1].failing == {OLD: 1, NEW: 0}
    assert points[1].log_bytes == {OFFSETS: 100}
