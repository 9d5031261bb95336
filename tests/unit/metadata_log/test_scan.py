from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.metadata_log.metadata_scan import (
    MetadataScan,
    RemedyFacts,
    ReplayFailure,
    feature_problem,
    first_of,
    record_classes,
    remedies,
)
from kafka_rollout.metadata_log.record_types import MetadataLogFacts, MetadataRecordFacts
from kafka_rollout.releases.facts import Release, VersionRange

OLD = Release(3, 4, 0)
FACTS = MetadataLogFacts(
    release=OLD,
    records={
        kind: MetadataRecordFacts(type=kind, name=name, reads=VersionRange(0, high), controller=taken, broker=True)
        for kind, name, high, taken in (
            (0, "RegisterBrokerRecord", 2, True),
            (11, "UserScramCredentialRecord", 0, False),
        )
    },
    names={27: "RegisterControllerRecord"},
    starts_from_snapshot=False,
)
WAY = RemedyFacts(
    directory="DIR",
    last_failing=9,
    newest_snapshot=None,
    end_problem=None,
    segment_timestamp=1_795_232_545_784,
    starts_from_snapshot=False,
)


def failure(where: str, offset: int) -> ReplayFailure:
    return ReplayFailure(where=where, file="f", offset=offset, reason="r", decided_by="d")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "version", "why"),
    [
        (0, 2, None),
        (0, 3, "3.4.0 supports RegisterBrokerRecord at versions 0-2, not 3"),
        (11, 0, "controllers of 3.4.0 reject UserScramCredentialRecord"),
        (27, 0, "3.4.0 does not support RegisterControllerRecord (type 27)"),
        (99, 0, "3.4.0 does not support record type 99 (type 99)"),
    ],
)
def test_a_record_is_read_or_it_is_said_why_not(kind: int, version: int, why: str | None) -> None:
    assert FACTS.reason_not_read(kind, version) == why
    assert record_classes({(kind, version): (3, 1, 7)}, FACTS)[0].problem == why


def test_a_feature_that_the_release_does_not_know_may_only_be_set_to_0() -> None:
    supported = {"metadata.version": VersionRange(1, 8)}
    assert feature_problem("group.version", 0, supported, OLD) is None
    assert "support no group.version" in str(feature_problem("group.version", 1, supported, OLD))
    assert "support metadata.version 1-8" in str(feature_problem("metadata.version", 9, supported, OLD))


def test_of_several_failures_the_first_place_counts_and_of_one_place_the_first_given() -> None:
    assert first_of([]) is None
    assert first_of([(7, failure("log", 7)), (5, failure("log", 8))]) == failure("log", 8)
    assert first_of([(5, failure("log", 8)), (5, failure("log", 5))]) == failure("log", 8)


def scan(*failures: ReplayFailure) -> MetadataScan:
    return MetadataScan(
        release=OLD,
        directory="DIR",
        start_offset=0,
        end_offset=21,
        starts_at="offset 0",
        failures=failures,
        records=(),
        remedies=(),
        notes=(),
    )


def test_the_verdict_and_the_first_failure_are_those_of_the_log_where_it_fails() -> None:
    assert (scan().verdict, scan().first_failure) == ("replays", None)
    both = scan(failure("bootstrap", 0), failure("log", 9))
    assert (both.verdict, both.to_dict()["first_failure"]["offset"]) == ("fails", 9)
    assert scan(failure("bootstrap", 0)).first_failure == failure("bootstrap", 0)


def test_a_snapshot_behind_the_record_is_a_place_to_trim_at() -> None:
    first, second = remedies(OLD, replace(WAY, newest_snapshot=18), {})
    assert first.startswith("Stop the node and remove the log before the snapshot that ends at offset 18")
    assert "metadata trim --log-dir DIR --release 3.4.0" in first
    assert second.startswith("Or wait until retention")


def test_without_one_a_snapshot_has_to_be_waited_for_first() -> None:
    first, _ = remedies(OLD, WAY, {"metadata.log.max.snapshot.interval.ms": "30000"})
    assert first.startswith("Wait for a snapshot after offset 9")
    assert "30 seconds (metadata.log.max.snapshot.interval.ms)" in first


def test_waiting_names_settings_and_the_time_that_they_give() -> None:
    _, wait = remedies(OLD, WAY, {"metadata.max.retention.ms": "3600000"})
    assert "7 days (metadata.log.segment.ms, default)" in wait
    assert "60 minutes (metadata.max.retention.ms)" in wait
    assert "about 2026-11-28 04:42 UTC" in wait


def test_a_release_that_starts_from_its_snapshot_needs_no_trim() -> None:
    (only,) = remedies(Release(3, 9, 1), replace(WAY, starts_from_snapshot=True), {})
    assert only.startswith("Wait for a snapshot after offset 9")
    assert "trim" not in only


def test_where_the_end_of_the_log_fails_as_well_no_trim_helps() -> None:
    (only,) = remedies(OLD, replace(WAY, newest_snapshot=18, end_problem="It sets x to 2."), {})
    assert only.startswith("3.4.0 cannot replay the current metadata either: It sets x to 2. First lower")
