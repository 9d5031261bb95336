"""Would a node of a release come through its metadata log when it starts? The verdict, and the ways out.

A starting node reads bootstrap.checkpoint and quorum-state, loads its newest snapshot if it starts from one, then
replays the log. Every record must be one that the release parses and replays, and every feature level that is set on
the way must lie in the range that its controllers support (FeatureControlManager.replay), though it was taken back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from kafka_rollout.domain.metadata_log.records import MetadataLogFacts
from kafka_rollout.domain.model.releases import Release, VersionRange

_DAY_MS = 86_400_000
DEFAULTS: Mapping[str, int] = {
    "metadata.max.retention.ms": 7 * _DAY_MS,
    "metadata.max.retention.bytes": 100 << 20,
    "metadata.log.segment.ms": 7 * _DAY_MS,
    "metadata.log.segment.bytes": 1 << 30,
    "metadata.log.max.snapshot.interval.ms": 3_600_000,
    "metadata.log.max.record.bytes.between.snapshots": 20 << 20,
}
"""What decides when the log's prefix goes, with the defaults of 3.4 to 4.3 (KRaftConfigs, KafkaConfig)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFailure:
    """`offset`: the record's (in a snapshot and in bootstrap.checkpoint its number in the file); `decided_by`: what
    said so, the release's own classes or the catalogue.
    """

    where: Literal["log", "snapshot", "bootstrap", "quorum-state"]
    file: str
    offset: int
    reason: str
    decided_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKind:
    """Records of one type and version in what was read; `problem` says why the release cannot replay them."""

    type: int
    name: str
    version: int
    count: int
    first_offset: int
    last_offset: int
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataScan:
    """`failures` in the order in which a starting node meets them; `first_failure` is the first of snapshot and log,
    for the other files can be replaced, and the first of all where only those fail. `way`: the facts behind the
    remedies where snapshot or log fails; it is no part of the JSON.
    """

    release: Release
    directory: str
    start_offset: int
    end_offset: int
    starts_at: str
    failures: tuple[ReplayFailure, ...]
    records: tuple[RecordKind, ...]
    remedies: tuple[str, ...]
    notes: tuple[str, ...]
    way: WayOut | None = None

    @property
    def verdict(self) -> Literal["replays", "fails"]:
        return "fails" if self.failures else "replays"

    @property
    def first_failure(self) -> ReplayFailure | None:
        replayed = [one for one in self.failures if one.where in ("log", "snapshot")]
        return next(iter((*replayed, *self.failures)), None)

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        del data["way"]
        data["release"] = str(self.release)
        first = self.first_failure
        return {"verdict": self.verdict, "first_failure": None if first is None else asdict(first), **data}


def feature_problem(name: str, level: int, supported: Mapping[str, VersionRange], release: Release) -> str | None:
    """Why a controller dies of a FeatureLevelRecord: FeatureControlManager.replay holds it against the range that it
    supports, 0 to 0 for a feature that it does not know.
    """
    if level in supported.get(name, VersionRange(0, 0)):
        return None
    known = f"{name} {supported[name]}" if name in supported else f"no {name}"
    return f"a FeatureLevelRecord sets {name} to {level}, and controllers of {release} support {known}"


def record_classes(
    counted: Mapping[tuple[int, int], tuple[int, int, int]], facts: MetadataLogFacts
) -> tuple[RecordKind, ...]:
    """`counted`: (count, first offset, last offset) by (type, version)."""
    return tuple(
        RecordKind(
            type=kind,
            name=facts.name(kind),
            version=version,
            count=count,
            first_offset=first,
            last_offset=last,
            problem=facts.reason_not_read(kind, version),
        )
        for (kind, version), (count, first, last) in sorted(counted.items())
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    """What the remedies are made from. `last_failing`: offset of the last record in the log that fails, None if the
    failure lies in the snapshot. `newest_snapshot`: end offset of the newest one if the release replays it and all
    behind it. `end_problem`: why a snapshot of the log's end would not do either. `segment_timestamp`: first timestamp
    of the segment with the last failing record, epoch milliseconds.
    """

    directory: str
    last_failing: int | None
    newest_snapshot: int | None
    end_problem: str | None
    segment_timestamp: int | None
    starts_from_snapshot: bool


def remedies(release: Release, way: WayOut, settings: Mapping[str, str]) -> tuple[str, ...]:
    """Sentences, the shortest way first. `settings`: the node's configuration; defaults where it says nothing."""
    if way.end_problem:
        return (
            f"The metadata as it is now cannot be replayed by {release} either: {way.end_problem.rstrip('.')}. Lower "
            f"the features first (kafka-rollout features), metadata.version too, to what {release} supports; where "
            "Kafka refuses, only the offline downgrade is left.",
        )
    behind = "" if way.last_failing is None else f" behind offset {way.last_failing}"
    next_snapshot = (
        f"a running node writes one after {_span('metadata.log.max.snapshot.interval.ms', settings)} or "
        f"{_size('metadata.log.max.record.bytes.between.snapshots', settings)}"
    )
    if way.starts_from_snapshot:
        return (f"Wait for a snapshot{behind}: {next_snapshot}. {release} starts from it and reads nothing before it.",)
    trim = f"kafka-rollout metadata trim --log-dir {way.directory} --release {release}"
    if way.newest_snapshot is not None:
        first = (
            f"Trim the log below the snapshot that ends at offset {way.newest_snapshot}, with the node stopped: {trim}."
        )
    else:
        first = (
            f"Wait for a snapshot{behind} ({next_snapshot}), then trim the log below it, with the node stopped: {trim}."
        )
    return first, _wait(way, settings)


def _wait(way: WayOut, settings: Mapping[str, str]) -> str:
    sentence = (
        "Or wait until retention has removed the prefix: the segment must have rolled "
        f"after {_span('metadata.log.segment.ms', settings)} or {_size('metadata.log.segment.bytes', settings)}, a "
        f"snapshot must lie behind it, and it must be older than {_span('metadata.max.retention.ms', settings)} or the "
        f"log larger than {_size('metadata.max.retention.bytes', settings)}"
    )
    if way.segment_timestamp is None:
        return f"{sentence}."
    ready = way.segment_timestamp + _value("metadata.log.segment.ms", settings)
    ready += _value("metadata.max.retention.ms", settings)
    date = datetime.fromtimestamp(ready / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"{sentence}; by these times about {date}, sooner only by size."


def _value(name: str, settings: Mapping[str, str]) -> int:
    given = settings.get(name, "")
    return int(given) if given.strip().isdigit() else DEFAULTS[name]


def _span(name: str, settings: Mapping[str, str]) -> str:
    seconds = _value(name, settings) / 1000
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:g} {unit} ({name}{_default(name, settings)})"
    return f"{seconds:g} seconds ({name}{_default(name, settings)})"


def _size(name: str, settings: Mapping[str, str]) -> str:
    return f"{_value(name, settings) / (1 << 20):g} MiB ({name}{_default(name, settings)})"


def _default(name: str, settings: Mapping[str, str]) -> str:
    return "" if name in settings else ", by default"


def first_of(found: Sequence[tuple[int, ReplayFailure]]) -> ReplayFailure | None:
    """The failure that comes first; a batch is parsed whole before its first record is replayed, so a record that
    does not parse has the place of its batch. Of two at one place the first given counts.
    """
    return min(found, key=lambda one: one[0])[1] if found else None
