"""The result of a metadata-log scan: whether a node of a release can start on this log, and the remedies.

A starting node reads bootstrap.checkpoint and quorum-state. It loads its newest snapshot if the release starts from
one, then replays the log. The release must parse and replay every record. Every feature level that a record sets must
be in the range of its controllers (FeatureControlManager.replay), even if a later record lowers it again. Then it must
write the metadata at its level for its publishers (MetadataLoader): 3.7.0 fails there after a reassignment
(KAFKA-16583).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal

from kafka_rollout.base.findings import BLOCKER, Finding, FindingCode
from kafka_rollout.base.outside_text import parse_number
from kafka_rollout.base.wording import size
from kafka_rollout.metadata_log.record_types import MetadataLogFacts
from kafka_rollout.model.plan import Lowering, Plan
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import Release, VersionRange

_DAY_MS = 86_400_000
DEFAULTS: Mapping[str, int] = {
    "metadata.max.retention.ms": 7 * _DAY_MS,
    "metadata.max.retention.bytes": 100 << 20,
    "metadata.log.segment.ms": 7 * _DAY_MS,
    "metadata.log.segment.bytes": 1 << 30,
    "metadata.log.max.snapshot.interval.ms": 3_600_000,
    "metadata.log.max.record.bytes.between.snapshots": 20 << 20,
}
"""Settings that decide when the log is deleted up to a snapshot, with the defaults of 3.4 to 4.3 (KRaftConfigs,
KafkaConfig).
"""


class LogReadiness(StrEnum):
    """The action that a metadata log needs before a release can start on it."""

    READY = "ready"
    TRIM = "trim"  # remove the log before the newest snapshot, while the node is stopped
    SNAPSHOT = "snapshot"  # wait for a later snapshot first
    LEVELS = "levels"  # the current metadata cannot be replayed
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFailure:
    """A record that cannot be replayed.

    "image": the release replays all records and cannot write the metadata again, as each start does. The offset is then
    that of the last record.
    """

    where: Literal["log", "snapshot", "image", "bootstrap", "quorum-state"]
    file: str
    offset: int
    """Of the record; in a checkpoint file its number in the file."""
    reason: str
    decided_by: str
    """The source, which is the classes of the release or the catalogue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRecordKind:
    """Records of one type and version."""

    type: int
    name: str
    version: int
    count: int
    first_offset: int
    last_offset: int
    problem: str | None
    """The reason why the release cannot replay them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataScan:
    """The scan of one metadata log.

    `first_failure`: the first in snapshot and log, because the other files can be replaced; else the first of all.
    """

    release: Release
    directory: str
    start_offset: int
    end_offset: int
    starts_at: str
    failures: tuple[ReplayFailure, ...]
    """In the order in which a starting node reaches them."""
    records: tuple[MetadataRecordKind, ...]
    remedies: tuple[str, ...]
    notes: tuple[str, ...]
    remedy_facts: RemedyFacts | None = None
    """Facts for the remedies if the snapshot or the log fails; not part of the JSON form."""

    @property
    def offsets_text(self) -> str:
        """The range of the log as words: `offsets 0 to 56`, or that it has no records."""
        if self.end_offset == self.start_offset:
            return f"no records from offset {self.start_offset} on"
        return f"offsets {self.start_offset} to {self.end_offset - 1}"

    @property
    def verdict(self) -> Literal["replays", "fails"]:
        return "fails" if self.failures else "replays"

    @property
    def first_failure(self) -> ReplayFailure | None:
        replayed = [one for one in self.failures if one.where in ("log", "snapshot", "image")]
        return next(iter((*replayed, *self.failures)), None)

    @property
    def readiness(self) -> LogReadiness:
        """The action that the log needs. A bootstrap.checkpoint with a level that is too high does not change it."""
        if any(failure.where in ("quorum-state", "image") for failure in self.failures):
            return LogReadiness.NEVER
        if self.remedy_facts is None:
            return LogReadiness.READY
        if self.remedy_facts.end_problem:
            return LogReadiness.LEVELS
        usable = self.remedy_facts.newest_snapshot is not None and not self.remedy_facts.starts_from_snapshot
        return LogReadiness.TRIM if usable else LogReadiness.SNAPSHOT

    @property
    def fails_at_bootstrap(self) -> bool:
        """Whether the release cannot read bootstrap.checkpoint, which it reads at every start."""
        return any(failure.where == "bootstrap" for failure in self.failures)

    @property
    def stop_sentence(self) -> str:
        """The offset and reason at which the release stops, as one sentence; empty if it does not stop."""
        first = self.first_failure
        if first is None:
            return ""
        if first.where == "image":
            return first.reason
        return f"{self.release} would stop at offset {first.offset} of {first.file}: {first.reason}"

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        del data["remedy_facts"]
        data["release"] = str(self.release)
        first = self.first_failure
        return {"verdict": self.verdict, "first_failure": None if first is None else asdict(first), **data}


def feature_problem(name: str, level: int, supported: Mapping[str, VersionRange], release: Release) -> str | None:
    """Return why a controller exits at a FeatureLevelRecord; None if it accepts the record.

    FeatureControlManager.replay compares the level with its supported range, which is 0 to 0 for an unknown feature.
    """
    if level in supported.get(name, VersionRange(0, 0)):
        return None
    known = f"{name} {supported[name]}" if name in supported else f"no {name}"
    return f"a FeatureLevelRecord sets {name} to {level}, and controllers of {release} support {known}"


def record_classes(
    counted: Mapping[tuple[int, int], tuple[int, int, int]], facts: MetadataLogFacts
) -> tuple[MetadataRecordKind, ...]:
    """Return the record kinds. `counted`: (type, version) → (count, first offset, last offset)."""
    return tuple(
        MetadataRecordKind(
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
class RemedyFacts:
    """Facts for the remedies."""

    directory: str
    last_failing: int | None
    """Offset of the last failing record; None if the snapshot fails."""
    newest_snapshot: int | None
    """End offset of the newest snapshot if the release can replay it and everything after it."""
    end_problem: str | None
    """The reason why a snapshot of the log end would not help either."""
    segment_timestamp: int | None
    """First timestamp of the segment with the last failing record, epoch ms."""
    starts_from_snapshot: bool


def remedies(release: Release, facts: RemedyFacts, settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the remedies, the fastest first.

    `settings`: configuration of the node; missing settings have their defaults.
    """
    if facts.end_problem:
        return (
            f"{release} cannot replay the current metadata either: {facts.end_problem.rstrip('.')}. First lower "
            f"the features (kafka-rollout features), metadata.version included, to levels that {release} "
            "supports. If Kafka refuses, only the offline downgrade is possible.",
        )
    behind = "" if facts.last_failing is None else f" after offset {facts.last_failing}"
    next_snapshot = (
        f"a running node writes one after {_span('metadata.log.max.snapshot.interval.ms', settings)} or "
        f"{_size('metadata.log.max.record.bytes.between.snapshots', settings)}"
    )
    if facts.starts_from_snapshot:
        return (
            (
                f"Wait for a snapshot{behind}: {next_snapshot}. {release} starts from this snapshot and does not "
                "read the log before it."
            ),
        )
    trim = f"kafka-rollout metadata trim --log-dir {facts.directory} --release {release}"
    if facts.newest_snapshot is not None:
        first = (
            f"Stop the node and remove the log before the snapshot that ends at offset {facts.newest_snapshot}: {trim}."
        )
    else:
        first = (
            f"Wait for a snapshot{behind} ({next_snapshot}). Then stop the node and remove the log before the "
            f"snapshot: {trim}."
        )
    return first, _wait(facts, settings)


def _wait(facts: RemedyFacts, settings: Mapping[str, str]) -> str:
    sentence = (
        "Or wait until retention has deleted the start of the log. The segment must be closed, after "
        f"{_span('metadata.log.segment.ms', settings)} or {_size('metadata.log.segment.bytes', settings)}. A "
        "snapshot must exist after it. The segment must be older than "
        f"{_span('metadata.max.retention.ms', settings)} or the log larger than "
        f"{_size('metadata.max.retention.bytes', settings)}"
    )
    if facts.segment_timestamp is None:
        return f"{sentence}."
    ready = facts.segment_timestamp + _value("metadata.log.segment.ms", settings)
    ready += _value("metadata.max.retention.ms", settings)
    date = datetime.fromtimestamp(ready / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"{sentence}. With these times about {date}, earlier only by size."


def _value(name: str, settings: Mapping[str, str]) -> int:
    given = settings.get(name, "")
    number = parse_number(given.strip())
    return DEFAULTS[name] if number is None else number


def _span(name: str, settings: Mapping[str, str]) -> str:
    seconds = _value(name, settings) / 1000
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:g} {unit} ({name}{_default(name, settings)})"
    return f"{seconds:g} seconds ({name}{_default(name, settings)})"


def _size(name: str, settings: Mapping[str, str]) -> str:
    return f"{_value(name, settings) / (1 << 20):g} MiB ({name}{_default(name, settings)})"


def _default(name: str, settings: Mapping[str, str]) -> str:
    return "" if name in settings else ", default"


def first_of(found: Sequence[tuple[int, ReplayFailure]]) -> ReplayFailure | None:
    """Return the first failure. Of two at the same position, the first in the list counts.

    A batch is parsed completely before its first record is replayed, so a record that does not parse has the position
    of its batch.
    """
    return min(found, key=lambda one: one[0])[1] if found else None


BACKUP_SPACE = FindingCode(
    "BACKUP-SPACE-SHORT",
    BLOCKER,
    "A file system has no space for the backup of a metadata log that the run changes.",
    "Free space on this file system.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpace:
    node_id: int
    log_bytes: int
    """Of the metadata log with its snapshots."""
    free_bytes: int
    """Of its file system."""


def space_for_backup(log_bytes: int) -> int:
    """Return the bytes that a change of the log needs: for the backup, and for the files that replace the log."""
    return 2 * log_bytes


def nodes_with_backup(cluster: ClusterSpec, plan: Plan, scans: Iterable[tuple[int, MetadataScan]]) -> frozenset[int]:
    """Return the nodes whose metadata log the run changes. `scans`: (node id, scan) for the releases of the path."""
    trimmed = frozenset(node_id for node_id, scan in scans if scan.readiness is LogReadiness.TRIM)
    if plan.lowering is Lowering.OFFLINE:
        return frozenset(node.node_id for node in cluster.nodes)
    return trimmed | (
        frozenset(node.node_id for node in cluster.controllers) if plan.lowering is Lowering.LIVE else frozenset()
    )


def backup_space_findings(spaces: Iterable[LogSpace]) -> tuple[Finding, ...]:
    return tuple(
        BACKUP_SPACE.found(
            f"node {space.node_id}",
            f"The file system of node {space.node_id}'s metadata log has {size(space.free_bytes)} left. The run backs "
            f"up the log before it changes it, and needs {size(needed)}.",
        )
        for space in spaces
        if space.free_bytes < (needed := space_for_backup(space.log_bytes))
    )
