"""Comparison of two scans of the same logs, the trend over many, and the history of scheduled scans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka_rollout.base.wording import few
from kafka_rollout.coordinator_logs.scan import Failure, LoadVerdict, ReleaseVerdict, ScanResult
from kafka_rollout.releases.facts import Release

_ClassKey = tuple[str, int, int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictChange:
    """A changed verdict of a release for one partition."""

    release: Release
    topic: str
    partition: int
    before: LoadVerdict | None
    """None if no earlier scan has the partition."""
    after: LoadVerdict
    first_failure: Failure | None = None

    def __str__(self) -> str:
        was = "not scanned before" if self.before is None else _WORDS[self.before]
        text = f"{self.topic}-{self.partition} on {self.release}: {was}, now {_WORDS[self.after]}"
        failure = self.first_failure
        return text if failure is None else f"{text} at offset {failure.offset}: {failure.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassChange:
    """Number of records of one kind in one partition, in the earlier and in the later scan."""

    topic: str
    partition: int
    key_version: int | None
    value_version: int | None
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Records and bytes of one partition, before and after. Less: the cleaner ran or records were deleted."""

    topic: str
    partition: int
    records_before: int
    records_after: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanComparison:
    """The changes between two scans."""

    cluster: str
    before_at: float
    after_at: float
    worse: tuple[VerdictChange, ...] = ()
    """The changes that need an alert."""
    better: tuple[VerdictChange, ...] = ()
    appeared: tuple[ClassChange, ...] = ()
    gone: tuple[ClassChange, ...] = ()
    growth: tuple[Growth, ...] = ()
    not_compared: tuple[str, ...] = ()
    """Sentences about releases and logs that only one of the scans covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    """One scan of the trend."""

    scanned_at: float
    records: int
    log_bytes: Mapping[str, int]
    failing: Mapping[Release, int]
    """Release → number of partitions that it cannot load."""


_WORDS: Mapping[LoadVerdict, str] = {
    LoadVerdict.NOT_LOADED: "not loaded",
    LoadVerdict.LOADS: "loads",
    LoadVerdict.LOADS_IGNORING: "loads, ignoring records",
    LoadVerdict.LOSES: "loads, losing transactional ids",
    LoadVerdict.FAILS: "fails",
    LoadVerdict.UNKNOWN: "unknown: not read completely",
}


def compare(before: ScanResult, after: ScanResult) -> ScanComparison:
    """Return the changes from one scan to the next. A new partition counts as loadable before."""
    asked = {*before.releases} & {*after.releases}
    old = {_place_of(verdict): verdict.verdict for verdict in before.verdicts}
    changes = [_change(old.get(_place_of(verdict)), verdict) for verdict in after.verdicts if verdict.release in asked]
    steps = [(change.after.badness - (change.before or LoadVerdict.LOADS).badness, change) for change in changes]
    earlier, later = _classes(before), _classes(after)
    return ScanComparison(
        cluster=after.cluster,
        before_at=before.scanned_at,
        after_at=after.scanned_at,
        worse=tuple(change for step, change in steps if step > 0),
        better=tuple(change for step, change in steps if step < 0),
        appeared=_class_changes(later.keys() - earlier.keys(), earlier, later),
        gone=_class_changes(earlier.keys() - later.keys(), earlier, later),
        growth=_growth(before, after),
        not_compared=_not_compared(before, after),
    )


def find_failing(scan: ScanResult) -> tuple[VerdictChange, ...]:
    """Return the failing and unknown verdicts of a scan that has no earlier scan to compare with."""
    found = (one for one in scan.verdicts if one.verdict.blocks or one.verdict is LoadVerdict.UNKNOWN)
    return tuple(_change(None, verdict) for verdict in found)


def _change(before: LoadVerdict | None, after: ReleaseVerdict) -> VerdictChange:
    return VerdictChange(
        release=after.release,
        topic=after.topic,
        partition=after.partition,
        before=before,
        after=after.verdict,
        first_failure=after.first_failure,
    )


def trend(scans: Iterable[ScanResult]) -> tuple[TrendPoint, ...]:
    """Return the scans in the order of their time."""
    return tuple(_point(scan) for scan in sorted(scans, key=lambda scan: scan.scanned_at))


def _point(scan: ScanResult) -> TrendPoint:
    by_topic: Counter[str] = Counter()
    for size in scan.sizes:
        by_topic[size.topic] += size.log_bytes
    failing = dict.fromkeys(scan.releases, 0)
    for verdict in scan.verdicts:
        failing[verdict.release] += verdict.verdict.blocks
    return TrendPoint(
        scanned_at=scan.scanned_at, records=scan.records, log_bytes=dict(sorted(by_topic.items())), failing=failing
    )


def _place_of(verdict: ReleaseVerdict) -> tuple[Release, str, int]:
    return (verdict.release, verdict.topic, verdict.partition)


def _classes(scan: ScanResult) -> dict[_ClassKey, int]:
    return {(c.topic, c.partition, c.key_version, c.value_version): c.count for c in scan.classes}


def _class_changes(
    keys: Iterable[_ClassKey], before: Mapping[_ClassKey, int], after: Mapping[_ClassKey, int]
) -> tuple[ClassChange, ...]:
    return tuple(
        ClassChange(
            topic=topic,
            partition=partition,
            key_version=key,
            value_version=value,
            before=before.get((topic, partition, key, value), 0),
            after=after.get((topic, partition, key, value), 0),
        )
        for topic, partition, key, value in sorted(keys, key=lambda key: [(part is not None, part) for part in key])
    )


def _growth(before: ScanResult, after: ScanResult) -> tuple[Growth, ...]:
    old = {(size.topic, size.partition): size for size in before.sizes}
    return tuple(
        Growth(
            topic=size.topic,
            partition=size.partition,
            records_before=was.records if was else 0,
            records_after=size.records,
            bytes_before=was.log_bytes if was else 0,
            bytes_after=size.log_bytes,
        )
        for size in after.sizes
        for was in [old.get((size.topic, size.partition))]
        if was is None or (was.records, was.log_bytes) != (size.records, size.log_bytes)
    )


def _not_compared(before: ScanResult, after: ScanResult) -> tuple[str, ...]:
    sentences = []
    for one, other, name in ((before, after, "earlier"), (after, before, "later")):
        if releases := [release for release in one.releases if release not in other.releases]:
            sentences.append(f"Only the {name} scan covers {few(releases, limit=9)}.")
    read, again = ({(log.topic, log.partition) for log in scan.logs} for scan in (before, after))
    if lost := sorted(read - again):
        sentences.append(f"Only the earlier scan read {few(f'{topic}-{partition}' for topic, partition in lost)}.")
    return tuple(sentences)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSummary:
    """A scan."""

    at: float
    run_id: str
    """The scheduled run; empty for a command."""
    scan: str
    """Its name in the history."""
    scanned_at: float
    records: int
    log_bytes: int
    partitions: int
    verdicts: Mapping[Release, LoadVerdict]
    """The worst verdict of each release."""
    topics: tuple[str, ...] | None = None
    """Those that the scan has; None in a scan of an earlier version."""
