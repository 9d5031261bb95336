"""Verdicts on record classes, by the facts of each release (KIP-915)."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

from kafka_rollout.base.findings import Severity, Verdict
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.coordinator_logs.findings import check_rollback
from kafka_rollout.coordinator_logs.scan import (
    BrokenRecords,
    Damage,
    Failure,
    LoadVerdict,
    LogSize,
    OwnerRecords,
    ReleaseVerdict,
    ScanResult,
    worst_of,
)
from kafka_rollout.coordinator_logs.verdicts import evaluate_records, unknown_ends
from kafka_rollout.formats.log_types import LogRange, RecordKind
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import (
    Catalogue,
    CoordinatorClass,
    CoordinatorLogFacts,
    RecordTypeFacts,
    Release,
    ReleaseFacts,
    VersionRange,
)
from tools.demo.folder import PROJECT_ROOT

OFFSETS = "__consumer_offsets"
OLD, TOLERANT, NEW = Release(3, 4, 0), Release(3, 4, 1), Release(4, 3, 1)


def facts(release: Release, *, highest_value: int, ignores: bool, keys: tuple[int, ...]) -> ReleaseFacts:
    records = tuple(
        RecordTypeFacts(
            key_version=key,
            name=f"Record{key}",
            reads=VersionRange(0, highest_value),
            flexible_from=None,
            writes=(highest_value,),
            unknown_value="",
        )
        for key in keys
    )
    return ReleaseFacts(
        release=release,
        features={},
        metadata_versions=(),
        coordinator_logs={
            OFFSETS: CoordinatorLogFacts(
                topic=OFFSETS,
                loaded=True,
                records=records,
                ignores_unknown_keys=ignores,
                ignores_unknown_values=False,
            )
        },
        coordinator_class=CoordinatorClass.TOLERANT if ignores else CoordinatorClass.INTOLERANT,
        built_at=None,
        java_minimum=11,
        java_maximum_with_sasl=None,
        config_names=frozenset(),
        config_defaults={},
        oldest_requests={},
        config_resources=frozenset(),
        has_current_metadata_version_metric=True,
        has_snapshot_emitter_metrics=True,
        logging="reload4j",
    )


CATALOGUE = Catalogue(
    {
        OLD: facts(OLD, highest_value=3, ignores=False, keys=(0, 1, 2)),
        TOLERANT: facts(TOLERANT, highest_value=4, ignores=True, keys=(0, 1, 2)),
        NEW: facts(NEW, highest_value=4, ignores=True, keys=(0, 1, 2, 3)),
    }
)


def held(key: int | None, value: int | None, *, count: int = 1, first: int = 7, partition: int = 0) -> RecordKind:
    return RecordKind(
        topic=OFFSETS, partition=partition, key_version=key, value_version=value, count=count, first_offset=first
    )


def broken(
    part: str, *, key: int, value: int | None, first: int, releases: tuple[Release, ...] = (OLD, TOLERANT, NEW)
) -> BrokenRecords:
    return BrokenRecords(
        topic=OFFSETS,
        partition=0,
        key_version=key,
        value_version=value,
        part=part,
        releases=releases,
        count=1,
        first_offset=first,
        reason="it does not parse",
    )


def verdict_on(release: Release, *classes: RecordKind) -> ReleaseVerdict:
    (verdict,) = evaluate_records(CATALOGUE, classes, [release])
    return verdict


@pytest.mark.parametrize("value", [0, 3, None])
def test_known_keys_with_values_in_range_or_tombstones_load_everywhere(value: int | None) -> None:
    assert [v.verdict for v in evaluate_records(CATALOGUE, [held(1, value)], [OLD, TOLERANT, NEW])] == [
        LoadVerdict.LOADS
    ] * 3


@pytest.mark.parametrize("value", [0, None])
def test_an_unknown_key_stops_an_intolerant_release_even_as_a_tombstone(value: int | None) -> None:
    verdict = verdict_on(OLD, held(1, 3, first=0), held(3, value, first=9))
    assert verdict.verdict is LoadVerdict.FAILS
    assert verdict.first_failure == Failure(offset=9, reason="unknown key version 3")
    assert verdict.ignored == 0


def test_an_unknown_key_is_ignored_and_counted_by_a_tolerant_release() -> None:
    verdict = verdict_on(TOLERANT, held(3, 0, count=4), held(3, None, count=2), held(1, 4))
    assert (verdict.verdict, verdict.ignored, verdict.first_failure) == (LoadVerdict.LOADS_IGNORING, 6, None)


def test_an_unknown_value_version_of_a_known_key_stops_a_tolerant_release_too() -> None:
    verdict = verdict_on(TOLERANT, held(3, 0, first=0), held(2, 5, first=11))
    assert verdict.first_failure == Failure(offset=11, reason="unknown value version 5 of Record2 (it reads 0-4)")
    assert verdict.verdict is LoadVerdict.FAILS


@pytest.mark.parametrize("release", [OLD, TOLERANT, NEW])
def test_a_key_without_a_version_and_a_value_too_short_for_one_stop_every_release(release: Release) -> None:
    assert verdict_on(release, held(None, 0)).verdict is LoadVerdict.FAILS
    assert verdict_on(release, held(1, -1)).verdict is LoadVerdict.FAILS


@pytest.mark.parametrize("release", [OLD, TOLERANT, NEW])
def test_a_key_that_does_not_parse_stops_every_release_that_knows_its_type(release: Release) -> None:
    (verdict,) = evaluate_records(
        CATALOGUE, [held(1, 3)], [release], broken=[broken("key", key=1, value=None, first=5)]
    )
    assert verdict.first_failure == Failure(offset=5, reason="broken key: it does not parse")
    unknown = broken("key", key=8, value=0, first=5)
    assert [v.verdict for v in evaluate_records(CATALOGUE, [], [release], broken=[unknown])] == [LoadVerdict.LOADS]


def test_a_value_that_does_not_parse_stops_the_releases_that_would_parse_it() -> None:
    verdicts = evaluate_records(
        CATALOGUE, [held(3, 0)], [OLD, TOLERANT, NEW], broken=[broken("value", key=3, value=0, first=7)]
    )
    assert [v.verdict for v in verdicts] == [LoadVerdict.FAILS, LoadVerdict.LOADS_IGNORING, LoadVerdict.FAILS]
    failures = [v.first_failure.reason for v in verdicts if v.first_failure]
    assert failures == ["unknown key version 3", "broken value: it does not parse"]


def test_a_value_that_parses_by_one_release_s_layout_is_broken_for_the_others_alone() -> None:
    mine = broken("value", key=1, value=3, first=7, releases=(NEW,))
    verdicts = evaluate_records(CATALOGUE, [held(1, 3)], [OLD, TOLERANT, NEW], broken=[mine])
    assert [v.verdict for v in verdicts] == [LoadVerdict.LOADS, LoadVerdict.LOADS, LoadVerdict.FAILS]


def of_4_3(topic: str, key: int, value: int | None) -> RecordKind:
    return RecordKind(topic=topic, partition=0, key_version=key, value_version=value, count=3, first_offset=4)


REAL = load_catalogue(PROJECT_ROOT / "include")
TRANSACTIONS, SHARES = "__transaction_state", "__share_group_state"


@pytest.mark.parametrize("value", [0, None])
def test_4_0_reads_the_state_of_share_groups_and_then_refuses_it(value: int | None) -> None:
    (verdict,) = evaluate_records(REAL, [of_4_3(OFFSETS, 15, value)], [Release(4, 0, 1)])
    assert verdict.first_failure is not None
    assert '"Received an unknown record type 15"' in verdict.first_failure.reason


def test_a_share_update_without_a_value_stops_the_share_coordinator_and_4_0_does_not_start_it() -> None:
    verdicts = evaluate_records(REAL, [of_4_3(SHARES, 1, None)], [Release(4, 0, 1), Release(4, 3, 1)])
    assert [v.verdict for v in verdicts] == [LoadVerdict.NOT_LOADED, LoadVerdict.FAILS]
    verdicts = evaluate_records(REAL, [of_4_3(SHARES, 0, None)], [Release(4, 3, 1)])
    assert [v.verdict for v in verdicts] == [LoadVerdict.LOADS]


def test_an_intolerant_release_s_own_complaint_is_quoted() -> None:
    (verdict,) = evaluate_records(REAL, [of_4_3(OFFSETS, 3, None)], [OLD])
    assert verdict.first_failure is not None
    assert verdict.first_failure.reason == 'unknown key version 3: "Unknown group metadata message version: 3"'


def ends(*held: tuple[int, int, int], releases: tuple[Release, ...]) -> list[tuple[int, tuple[Release, ...]]]:
    """Of (key version, first offset, last batch)."""
    classes = [
        (
            RecordKind(topic=TRANSACTIONS, partition=0, key_version=k, value_version=0, count=2, first_offset=first),
            last,
        )
        for k, first, last in held
    ]
    return [(b.first_offset, b.releases) for b in unknown_ends(REAL, classes, releases)]


def test_unknown_keys_at_the_end_stall_the_transaction_coordinators_of_3_4_1_to_3_9() -> None:
    releases = (OLD, TOLERANT, Release(3, 9, 1), Release(4, 0, 1), NEW)
    stalled = releases[1:3]
    assert ends((0, 0, 4), (7, 5, 9), (8, 6, 6), releases=releases) == [(5, stalled)]
    assert ends((7, 3, 3), releases=releases) == [(3, stalled)]
    assert ends((0, 0, 4), (7, 1, 9), releases=releases) == [(9, stalled)]
    assert ends((0, 0, 9), (7, 5, 8), releases=releases) == []
    assert ends((0, 0, 4), (7, 5, 4), releases=releases) == []  # in one batch


def test_a_release_that_stalls_at_the_end_of_a_log_fails_there() -> None:
    classes = [of_4_3(TRANSACTIONS, 0, 0), of_4_3(TRANSACTIONS, 7, 0)]
    stalled = unknown_ends(REAL, [(classes[0], 4), (classes[1], 5)], [TOLERANT])
    before, stalls = evaluate_records(REAL, classes, [OLD, TOLERANT], broken=stalled)
    assert before.first_failure is not None
    assert before.first_failure.reason.startswith("unknown key version 7")
    assert stalls.first_failure is not None
    assert (stalls.ignored, "endless loop" in stalls.first_failure.reason) == (3, True)


def test_a_partition_that_was_not_read_completely_loads_nowhere_and_fails_where_a_record_fails() -> None:
    known, unknown = held(1, 1), held(60, 0, partition=1)
    unread_parts = [
        Damage(topic=OFFSETS, partition=number, file="0.log", position=0, log_bytes=10, sentence="wrong CRC")
        for number in range(3)
    ]
    verdicts = evaluate_records(CATALOGUE, [known, unknown], [OLD, TOLERANT], damage=unread_parts)
    found = {(v.release, v.partition): v.verdict for v in verdicts}
    unread, fails = LoadVerdict.UNKNOWN, LoadVerdict.FAILS
    assert [found[OLD, number] for number in range(3)] == [unread, fails, unread]
    assert {found[TOLERANT, number] for number in range(3)} == {unread}
    assert fails.badness > LoadVerdict.LOSES.badness > unread.badness > LoadVerdict.LOADS_IGNORING.badness


def test_the_first_failure_is_the_one_with_the_lowest_offset() -> None:
    failure = verdict_on(OLD, held(3, 0, first=20), held(1, 4, first=5), held(9, 0, first=30)).first_failure
    assert failure is not None
    assert failure.offset == 5


def test_a_log_that_a_release_has_no_coordinator_for_is_not_loaded() -> None:
    share = RecordKind(
        topic="__share_group_state", partition=0, key_version=0, value_version=0, count=1, first_offset=0
    )
    assert verdict_on(OLD, share).verdict is LoadVerdict.NOT_LOADED


def test_partitions_without_records_have_a_verdict_too() -> None:
    verdicts = evaluate_records(CATALOGUE, [held(3, 0)], [OLD], partitions=[(OFFSETS, 0), (OFFSETS, 1)])
    assert [(v.partition, v.verdict) for v in verdicts] == [(0, LoadVerdict.FAILS), (1, LoadVerdict.LOADS)]


def test_the_json_form_reads_back_to_the_same_result() -> None:
    classes = (held(1, 3), held(3, None, first=9))
    result = ScanResult(
        cluster="c",
        scanned_at=1.5,
        logs=(LogRange(topic=OFFSETS, partition=0, start=0, end=12),),
        classes=classes,
        verdicts=evaluate_records(CATALOGUE, classes, [OLD, NEW]),
        sizes=(
            LogSize(
                topic=OFFSETS,
                partition=0,
                records=2,
                batches=2,
                control_batches=1,
                log_bytes=300,
                first_timestamp=5,
                last_timestamp=9,
            ),
        ),
        broken=(
            BrokenRecords(
                topic=OFFSETS,
                partition=0,
                key_version=1,
                value_version=3,
                part="value",
                releases=(OLD, NEW),
                count=1,
                first_offset=4,
                reason="it ends within field offset",
            ),
        ),
        owners=(
            OwnerRecords(
                topic=OFFSETS,
                partition=0,
                owner="group",
                name="g",
                key_version=3,
                value_version=None,
                count=1,
                first_offset=9,
                live=1,
            ),
        ),
    )
    assert from_json(ScanResult, json.loads(json.dumps(to_json(result)))) == result


def way_back(
    *classes: RecordKind, to: Release, asked: Release | None = None, broken: tuple[BrokenRecords, ...] = ()
) -> Verdict:
    """`asked`: the evaluated release, if it is another one."""
    verdicts = evaluate_records(CATALOGUE, classes, [asked or to], broken=broken)
    scan = ScanResult(cluster="c", scanned_at=0.0, logs=(), classes=classes, verdicts=verdicts, broken=broken)
    return check_rollback(scan, to)


def test_a_closed_way_back_is_one_warning_a_topic_and_names_the_first_partition() -> None:
    classes = [held(3, 0, partition=2, first=4), held(3, 0, partition=3), held(1, 3, partition=5)]
    (finding,) = way_back(*classes, to=OLD).findings
    assert (finding.code, finding.severity) == ("ROLLBACK-CLOSED", Severity.WARNING)
    assert "2 of 3 partitions" in finding.sentence
    assert f"{OFFSETS}-2 fails at offset 4: unknown key version 3" in finding.sentence
    assert "until the log cleaner has removed the records" in finding.remedy
    assert "transactions" not in finding.remedy


def test_where_only_deleted_groups_of_open_transactions_fail_no_cleaner_is_waited_for() -> None:
    """Partitions with such a group alone are served; one with a record that stops the load is reported before them."""
    pending = broken("pending", key=2, value=None, first=4)
    (finding,) = way_back(held(1, 3), to=OLD, broken=(pending,)).findings
    assert (finding.code, finding.severity) == ("ROLLBACK-CLOSED", Severity.WARNING)
    assert finding.sentence == (
        f"{OLD} would log a load error for 1 of 1 partitions, but would serve these partitions; {OFFSETS}-0 "
        "fails at offset 4: it does not parse."
    )
    assert finding.remedy.startswith("End the transactions")
    assert finding.remedy.endswith("do not need to wait for the log cleaner.")
    (both,) = way_back(held(3, 0, partition=1), to=OLD, broken=(pending,)).findings
    assert "cannot load 2 of 2 partitions" in both.sentence
    assert f"{OFFSETS}-1 fails at offset 7: unknown key version 3" in both.sentence
    assert "until the log cleaner has removed the records" in both.remedy
    assert "End the transactions" in both.remedy


def test_a_record_that_stops_the_load_comes_before_deleted_groups_wherever_it_lies() -> None:
    """They are looked for when the whole log is read."""
    pending = broken("pending", key=2, value=None, first=4)
    (verdict,) = evaluate_records(CATALOGUE, [held(3, 0, first=7)], [OLD], broken=[pending])
    assert verdict.first_failure is not None
    assert verdict.first_failure.offset == 7
    (verdict,) = evaluate_records(CATALOGUE, [held(3, 0, first=7)], [TOLERANT], broken=[pending])
    assert verdict.first_failure == pending.failure
    (finding,) = way_back(held(3, 0, first=7), to=OLD, broken=(pending,)).findings
    assert "serve" not in finding.sentence


def test_what_the_way_back_would_ignore_is_said() -> None:
    (finding,) = way_back(held(3, 0, count=5), to=TOLERANT).findings
    assert finding.code == "ROLLBACK-IGNORES"
    assert "ignore 5 records" in finding.sentence


def test_an_open_way_back_has_no_finding() -> None:
    assert way_back(held(1, 3), to=TOLERANT).findings == ()


def test_not_knowing_blocks() -> None:
    verdict = way_back(held(1, 3), to=OLD, asked=TOLERANT)
    assert [finding.code for finding in verdict.blockers] == ["ROLLBACK-UNKNOWN"]


def test_the_worst_partition_tells_for_a_release_and_one_that_is_read_before_one_that_is_not() -> None:
    loads, ignores, fails, unread = (
        LoadVerdict.LOADS,
        LoadVerdict.LOADS_IGNORING,
        LoadVerdict.FAILS,
        LoadVerdict.NOT_LOADED,
    )
    assert [worst_of(several) for several in permutations((loads, ignores, fails, unread))] == [fails] * 24
    assert worst_of((loads, ignores)) is ignores
    assert {worst_of(several) for several in permutations((loads, unread))} == {loads}
    assert (unread.badness, loads.badness) == (0, 0), "no coordinator for a log is not bad"


def test_a_record_that_releases_fail_on_by_several_layouts_is_counted_once() -> None:
    one = (broken("value", key=1, value=3, first=4, releases=(OLD,)), broken("value", key=1, value=3, first=4))
    other, end = broken("key", key=2, value=None, first=5), broken("end", key=9, value=0, first=6)
    scan = ScanResult(cluster="c", scanned_at=0.0, logs=(), classes=(), verdicts=(), broken=(*one, other, end))
    assert scan.broken_records == 2
