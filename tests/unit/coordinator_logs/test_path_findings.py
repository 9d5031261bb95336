"""What lies in the coordinator logs, against the releases that a roll goes through."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.findings import Finding, Severity, codes_of, find_new
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.findings import LOGS_CHECK, check_rollback, path_findings
from kafka_rollout.coordinator_logs.scan import (
    BrokenRecords,
    Damage,
    Failure,
    LoadVerdict,
    LogSize,
    OwnerRecords,
    ReleaseVerdict,
    ScanResult,
)
from kafka_rollout.coordinator_logs.verdicts import evaluate_records
from kafka_rollout.formats.log_types import LogRange, RecordKind
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release

CATALOGUE = load_catalogue(Settings.from_environment().include)
ORIGIN, VIA, TARGET = Release(3, 4, 0), Release(3, 4, 1), Release(4, 3, 1)
EMITTING = Release(4, 0, 1)
OFFSETS, SHARE, TRANSACTIONS = "__consumer_offsets", "__share_group_state", "__transaction_state"
LOG = LogRange(topic=OFFSETS, partition=0, start=0, end=9)


def verdict(release: Release, what: LoadVerdict, topic: str = OFFSETS) -> ReleaseVerdict:
    failure = Failure(offset=7, reason="unknown key version 40") if what is LoadVerdict.FAILS else None
    return ReleaseVerdict(
        release=release,
        topic=topic,
        partition=0,
        verdict=what,
        ignored=3 if what is LoadVerdict.LOADS_IGNORING else 0,
        first_failure=failure,
    )


def findings_of(*verdicts: ReleaseVerdict, classes: tuple[RecordKind, ...] = ()) -> dict[str, Severity]:
    scan = ScanResult(cluster="orders", scanned_at=0.0, logs=(LOG,), classes=classes, verdicts=verdicts)
    return {finding.code: finding.severity for finding in path_findings(scan, ORIGIN, (VIA, TARGET))}


def damaged(*verdicts: ReleaseVerdict) -> ScanResult:
    """Partition 0 has 3 kB, of which 1 kB could not be read."""
    place = Damage(topic=OFFSETS, partition=0, file="00.log", position=100, log_bytes=1000, sentence="CRC is wrong.")
    size = LogSize(
        topic=OFFSETS,
        partition=0,
        records=9,
        batches=3,
        control_batches=0,
        log_bytes=2000,
        first_timestamp=-1,
        last_timestamp=-1,
    )
    return ScanResult(
        cluster="orders", scanned_at=0.0, logs=(LOG,), classes=(), verdicts=verdicts, damage=(place,), sizes=(size,)
    )


LOADS = [verdict(release, LoadVerdict.LOADS) for release in (ORIGIN, VIA, TARGET)]


def test_releases_that_load_everything_are_no_finding() -> None:
    assert findings_of(*LOADS) == {}


def test_a_log_that_was_not_read_completely_stops_an_upgrade_and_is_named_with_what_is_missing() -> None:
    scan = damaged(verdict(VIA, LoadVerdict.UNKNOWN), verdict(TARGET, LoadVerdict.UNKNOWN))
    via, target = path_findings(scan, ORIGIN, (VIA, TARGET))
    assert {(found.code, found.severity) for found in (via, target)} == {("LOGS-UNREADABLE", Severity.BLOCKER)}
    assert target.sentence == (
        "It is unknown whether 4.3.1 can load 1 of 1 partitions: 1.0 kB of 3.0 kB could not be read, first 00.log at "
        "byte 100: CRC is wrong."
    )


def test_what_fails_is_named_next_to_what_is_unknown() -> None:
    verdicts = (verdict(TARGET, LoadVerdict.UNKNOWN), replace(verdict(TARGET, LoadVerdict.FAILS), partition=1))
    codes = [found.code for found in path_findings(damaged(*verdicts), ORIGIN, (TARGET,))]
    assert codes == ["LOGS-NOT-LOADABLE", "LOGS-UNREADABLE"]
    assert set(codes) < codes_of([LOGS_CHECK]), "a later scan of the same run replaces them"


def test_a_rollback_to_a_release_with_an_unknown_verdict_is_a_warning_for_the_approver() -> None:
    (found,) = check_rollback(damaged(verdict(ORIGIN, LoadVerdict.UNKNOWN)), ORIGIN).findings
    assert (found.code, found.severity) == ("ROLLBACK-UNREADABLE", Severity.WARNING)


@pytest.mark.parametrize("release", [VIA, TARGET])
def test_every_release_of_the_path_must_load_what_is_there(release: Release) -> None:
    others = [v for v in LOADS if v.release != release]
    scan = ScanResult(
        cluster="orders",
        scanned_at=0.0,
        logs=(LOG,),
        classes=(),
        verdicts=(*others, verdict(release, LoadVerdict.FAILS)),
    )
    (finding,) = path_findings(scan, ORIGIN, (VIA, TARGET))
    assert (finding.code, finding.severity) == ("LOGS-NOT-LOADABLE", Severity.BLOCKER)
    assert "__consumer_offsets-0 fails at offset 7: unknown key version 40" in finding.sentence
    assert finding.subject.startswith(str(release))


def test_a_release_that_would_lose_transactional_ids_is_a_blocker_and_closes_the_way_back() -> None:
    kinds = (
        RecordKind(topic=TRANSACTIONS, partition=3, key_version=0, value_version=2, count=2, first_offset=7),
        RecordKind(topic=TRANSACTIONS, partition=4, key_version=0, value_version=1, count=2, first_offset=0),
    )
    scan = ScanResult(
        cluster="orders",
        scanned_at=0.0,
        logs=(LOG,),
        classes=kinds,
        verdicts=evaluate_records(CATALOGUE, kinds, [TARGET]),
    )
    (finding,) = path_findings(scan, EMITTING, (TARGET,))
    assert (finding.code, finding.severity) == ("LOGS-NOT-LOADABLE", Severity.BLOCKER)
    assert finding.sentence == (
        "4.3.1 would lose transactional ids in 1 of 2 partitions; __transaction_state-3 at offset 7: value version 2 "
        "of TransactionLog is skipped (it reads 0-1), so the state of the transactional id is lost: its old producer "
        "is not fenced, and its open transaction never ends."
    )
    assert [found.code for found in check_rollback(scan, TARGET).findings] == ["ROLLBACK-CLOSED"]
    assert not scan.is_proved_loadable(TARGET)
    assert [failing.partition for failing in scan.failing(TARGET)] == [3]


def test_what_lies_in_the_log_of_share_groups_goes_with_its_topic() -> None:
    scan = ScanResult(
        cluster="orders",
        scanned_at=0.0,
        logs=(LOG,),
        classes=(),
        verdicts=(verdict(VIA, LoadVerdict.FAILS, SHARE),),
    )
    (finding,) = path_findings(scan, ORIGIN, (VIA,))
    assert "Delete the groups, then delete this topic" in finding.remedy


def test_ignored_records_warn_and_stop_nothing() -> None:
    assert findings_of(*LOADS[:2], verdict(TARGET, LoadVerdict.LOADS_IGNORING)) == {
        "LOGS-IGNORED-IN-PART": Severity.WARNING
    }


def ignoring(*groups: str, key_version: int = 3) -> tuple[Finding, ...]:
    """A log with records of new types of some groups, which 3.4.1 ignores."""
    kinds = (
        RecordKind(
            topic=OFFSETS, partition=0, key_version=key_version, value_version=0, count=len(groups), first_offset=0
        ),
    )
    owners = tuple(
        OwnerRecords(
            topic=OFFSETS,
            partition=0,
            owner="group",
            name=group,
            key_version=key_version,
            value_version=0,
            count=1,
            first_offset=0,
        )
        for group in groups
    )
    verdicts = evaluate_records(CATALOGUE, kinds, [VIA])
    scan = ScanResult(cluster="orders", scanned_at=0.0, logs=(LOG,), classes=kinds, verdicts=verdicts, owners=owners)
    found = path_findings(scan, EMITTING, (VIA,), gated=CATALOGUE)
    assert [one.code for one in found] == ["LOGS-IGNORED-IN-PART"]
    return found


def test_an_approval_of_ignored_records_covers_their_kinds_and_groups_and_no_others() -> None:
    assert find_new(ignoring("a"), ignoring("a", "b")) == ()
    assert find_new(ignoring("a", "b"), ignoring("a")) != ()
    assert find_new(ignoring("a", key_version=5), ignoring("a")) != ()


def test_a_log_without_a_coordinator_warns_only_when_something_is_in_it() -> None:
    unread = [verdict(release, LoadVerdict.NOT_LOADED, SHARE) for release in (ORIGIN, VIA, TARGET)]
    held = RecordKind(topic=SHARE, partition=0, key_version=0, value_version=0, count=2, first_offset=0)
    assert findings_of(*LOADS, *unread) == {}
    assert findings_of(*LOADS, *unread, classes=(held,)) == {"LOGS-NOT-READ": Severity.WARNING}


def test_a_release_that_was_not_asked_about_blocks() -> None:
    assert findings_of(*LOADS[:2]) == {"LOGS-NOT-SCANNED": Severity.BLOCKER}


def test_the_running_release_has_a_finding_because_a_roll_moves_its_coordinators() -> None:
    assert findings_of(verdict(ORIGIN, LoadVerdict.FAILS), *LOADS[1:]) == {"SOURCE-CANNOT-LOAD": Severity.WARNING}


def test_a_group_that_is_deleted_in_an_open_transaction_waits_for_its_end_and_keeps_no_group_from_being_served() -> (
    None
):
    pending = BrokenRecords(
        topic=OFFSETS,
        partition=0,
        key_version=2,
        value_version=None,
        part="pending",
        releases=(ORIGIN, VIA),
        count=1,
        first_offset=7,
        reason="group g was deleted",
    )
    scan = ScanResult(
        cluster="orders",
        scanned_at=0.0,
        logs=(LOG,),
        classes=(),
        verdicts=evaluate_records(CATALOGUE, (), (ORIGIN, VIA, TARGET), broken=[pending]),
        broken=(pending,),
    )
    blocker, warning = path_findings(scan, ORIGIN, (VIA, TARGET))
    assert (blocker.code, warning.code) == ("LOGS-NOT-LOADABLE", "SOURCE-CANNOT-LOAD")
    for finding in (blocker, warning):
        assert "but would serve these partitions" in finding.sentence
        assert finding.remedy.startswith("End the transactions")
        assert "unavailable" not in finding.remedy


def test_no_logs_and_no_roll_are_no_finding_and_no_scan_is_a_blocker() -> None:
    nothing = ScanResult(cluster="orders", scanned_at=0.0, logs=(), classes=(), verdicts=())
    failing = ScanResult(
        cluster="orders", scanned_at=0.0, logs=(LOG,), classes=(), verdicts=(verdict(TARGET, LoadVerdict.FAILS),)
    )
    assert {finding.code for finding in path_findings(None, ORIGIN, (VIA,))} == {"LOGS-NOT-SCANNED"}
    assert path_findings(nothing, ORIGIN, (VIA, TARGET)) == ()
    assert path_findings(failing, TARGET, ()) == ()


NEWER_GROUP = RecordKind(topic=OFFSETS, partition=0, key_version=3, value_version=0, count=2, first_offset=1)
ENDED_GROUP = RecordKind(topic=OFFSETS, partition=0, key_version=3, value_version=None, count=2, first_offset=3)
NEWER_COMMITS = RecordKind(topic=OFFSETS, partition=0, key_version=1, value_version=4, count=2, first_offset=5)


def of_way_down(*classes: RecordKind, source: Release = EMITTING, gated: bool = True) -> list[Finding]:
    """Findings of a way down to 3.4.0, by the catalogue's facts."""
    scan = ScanResult(
        cluster="orders",
        scanned_at=0.0,
        logs=(LOG,),
        classes=classes,
        verdicts=evaluate_records(CATALOGUE, classes, [ORIGIN, source]),
    )
    return list(path_findings(scan, source, (ORIGIN,), gated=CATALOGUE if gated else None))


@pytest.mark.parametrize("held", [(NEWER_GROUP, ENDED_GROUP), (ENDED_GROUP,)])
def test_records_of_newer_groups_are_what_the_gate_of_the_groups_waits_for(held: tuple[RecordKind, ...]) -> None:
    (finding,) = of_way_down(*held)
    assert (finding.code, finding.severity) == ("LOGS-TO-BE-CLEANED", Severity.WARNING)
    assert f"at offset {held[0].first_offset}: unknown key version 3" in finding.sentence
    assert "max.compaction.lag.ms=60000, delete.retention.ms=60000 on __consumer_offsets" in finding.remedy
    assert "(gate groups)" in finding.remedy


def test_what_the_gate_cannot_bring_about_or_nobody_waits_for_blocks() -> None:
    blocked = [
        of_way_down(NEWER_GROUP, gated=False),
        of_way_down(NEWER_GROUP, NEWER_COMMITS),  # 4.1.1 and later write such commits as long as they run
        of_way_down(NEWER_GROUP, source=VIA),  # it writes no tombstones for types that it does not know
    ]
    assert [[finding.code for finding in findings] for findings in blocked] == [["LOGS-NOT-LOADABLE"]] * 3


def test_no_file_is_replaced_where_only_the_coordinator_of_the_brokers_is_unknown() -> None:
    two = Release(3, 9, 1)
    scan = ScanResult(
        cluster="orders", scanned_at=0.0, logs=(LOG,), classes=(), verdicts=(verdict(two, LoadVerdict.UNKNOWN),)
    )
    unread = replace(scan, new_group_coordinator=None)
    for finding in (*path_findings(unread, TARGET, [two]), *check_rollback(unread, two).findings):
        assert "the brokers did not report which one they start" in finding.sentence
        assert "Grant DESCRIBE_CONFIGS on CLUSTER" in finding.remedy
        assert "remove the partition's directory" not in finding.remedy
    (gap,) = path_findings(scan, TARGET, [two])
    assert gap.remedy == "Add the release again (`kafka-rollout-derive add 3.9.1`), then scan again."
