"""The request and the result of a scan of the coordinator logs (KIP-915).

verdicts.py evaluates the records for each release; findings.py and remedies.py turn the verdicts into actions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from kafka_rollout.base.wording import few
from kafka_rollout.coordinator_logs.contents import GroupInventory
from kafka_rollout.formats.cleaning import CleaningConfig
from kafka_rollout.formats.log_types import LogRange, RecordKind
from kafka_rollout.releases.facts import Release

OWNERS_OF_TAG = 50


class LoadVerdict(StrEnum):
    """The result of a release's coordinator when it loads one partition of a coordinator log."""

    LOADS = "loads"
    LOADS_IGNORING = "loads_ignoring"
    LOSES = "loses"
    FAILS = "fails"
    UNKNOWN = "unknown"
    NOT_LOADED = "not_loaded"

    @property
    def badness(self) -> int:
        """Severity; 0 is good. A missing coordinator is a property of the release, not a problem of the log."""
        order = (LoadVerdict.LOADS_IGNORING, LoadVerdict.UNKNOWN, LoadVerdict.LOSES, LoadVerdict.FAILS)
        return order.index(self) + 1 if self in order else 0

    @property
    def blocks(self) -> bool:
        """Return whether the release must not run on this log: it does not serve the partition, or loses its state."""
        return self in (LoadVerdict.FAILS, LoadVerdict.LOSES)


VERDICTS: Mapping[LoadVerdict, str] = {
    LoadVerdict.LOADS: "It reads every record. It can ignore fields of later releases; the page lists them with their "
    "effect.",
    LoadVerdict.LOADS_IGNORING: "It skips records of unknown types with a warning.",
    LoadVerdict.LOSES: "It skips the state of transactional ids with a newer version (from 4.3 on): it does not fence "
    "the old producer, and an open transaction never ends. Treated as `fails`.",
    LoadVerdict.FAILS: "It stops at `first_failure.offset`, or loops there. The partition is not served.",
    LoadVerdict.UNKNOWN: "A part of the log could not be read, and the rest loads. Never treated as `loads`.",
    LoadVerdict.NOT_LOADED: "It has no coordinator that reads this log.",
}
"""Verdict → what docs/scan.md says about it."""


def worst_of(verdicts: Iterable[LoadVerdict]) -> LoadVerdict:
    """Return the most severe of at least one verdict. A loaded log has priority over one that is not loaded."""
    return max(verdicts, key=lambda verdict: (verdict.badness, verdict is not LoadVerdict.NOT_LOADED))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRecords:
    """Records with a known key and value version that `releases` cannot parse, or whose content they reject."""

    topic: str
    partition: int
    key_version: int
    value_version: int | None
    part: str
    """"key" or "value", the part that does not parse."""
    releases: tuple[Release, ...]
    count: int
    first_offset: int
    reason: str
    """Of the first record. "end": the records parse, but no record with a known key follows, so the releases stall
    (CoordinatorLogFacts.stalls_at_unknown_end). "pending": number of deleted groups for which the releases log an error
    while transactions are open (DeletedWhilePending). "order": number of groups with a record that contradicts an
    earlier record (OutOfOrder)."""
    live: int | None = None
    replicas: tuple[str, ...] = ()
    """As in RecordKind."""

    @property
    def pending(self) -> bool:
        return self.part == "pending"

    @property
    def failure(self) -> Failure:
        return Failure(offset=self.first_offset, reason=self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedFields:
    """Records with a tagged field (KIP-482)."""

    topic: str
    partition: int
    key_version: int
    value_version: int
    path: str
    """The struct with the field; "" for the record itself, "topics[].partitions[]" for a nested one."""
    tag: int
    count: int
    first_offset: int
    name: str | None
    """Its name there; None if no release of the catalogue knows it."""
    known_by: tuple[Release, ...]
    """The releases whose definition has the tag."""
    owners: tuple[str, ...] | None = None
    """The groups or transactional ids whose current record has the field, at most OWNERS_OF_TAG. None if records of
    this kind are not listed."""
    owners_left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRecords:
    """Records of one kind of one group, transactional id or share partition."""

    topic: str
    partition: int
    owner: str
    """"group", "transactional_id" or "share_partition" (`group:topic-id:partition`). Listed only for record kinds that
    a requested release fails on or ignores, and for group records whose load depends on earlier records."""
    name: str
    key_version: int
    value_version: int | None
    count: int
    first_offset: int
    live: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DeletedWhilePending:
    """A group whose newest GroupMetadata record is a tombstone and whose only offsets belong to open transactions."""

    topic: str
    partition: int
    offset: int
    """The record from which this is the case."""
    group: str
    producers: tuple[int, ...]
    """The producers of these transactions."""
    replicas: tuple[str, ...] = field(default=(), compare=False)
    """As in RecordKind."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class OutOfOrder:
    """A group with a record at which the coordinators of `releases` stop because of an earlier record."""

    topic: str
    partition: int
    offset: int
    group: str
    key_version: int
    value_version: int | None
    """None: the record is a tombstone."""
    releases: tuple[Release, ...]
    complaint: str
    """Their error, as far as it is known."""
    replicas: tuple[str, ...] = field(default=(), compare=False)
    """As in RecordKind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCopy:
    """A directory with a copy of a partition. Each copy is read; sizes and groups are those of the `chosen` one."""

    topic: str
    partition: int
    directory: str
    start: int
    end: int
    log_bytes: int
    chosen: bool
    why: str
    """The reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A part of a log that could not be read as record batches.

    Of a segment file: `log_bytes` bytes from byte `position`. Of a live log (`file` empty): `offsets` offsets from
    offset `position`; 0 if no broker returned the replica.
    """

    topic: str
    partition: int
    file: str
    position: int
    log_bytes: int
    sentence: str
    offsets: int = 0
    replica: str = ""
    """As one of RecordKind.replicas; empty in a file."""

    @property
    def is_replica(self) -> bool:
        """Whether this is all of a replica."""
        return bool(self.replica) and not self.file and not self.offsets

    @property
    def place(self) -> str:
        if self.file:
            return f"{self.file} at byte {self.position}"
        replica = f" ({self.replica})" if self.replica else ""
        return f"{self.topic}-{self.partition}{replica}{'' if self.is_replica else f' at offset {self.position}'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSize:
    """Size of one partition. Timestamps: epoch ms from its batches; −1 without a batch."""

    topic: str
    partition: int
    records: int = 0
    batches: int = 0
    control_batches: int = 0
    log_bytes: int = 0
    first_timestamp: int = -1
    last_timestamp: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The first record that a release cannot load or that it loses, and the reason.

    For groups deleted during open transactions, the record of the deletion; used only if nothing else fails.
    """

    offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseVerdict:
    """The verdict of one release for one partition, the worst of its replicas: each of them can become the leader."""

    release: Release
    topic: str
    partition: int
    verdict: LoadVerdict
    ignored: int = 0
    """Number of records with unknown types that it skips."""
    first_failure: Failure | None = None
    replicas: tuple[str, ...] = ()
    """The replicas with the first failure, or with the ignored records; empty if all have them."""

    @property
    def place(self) -> str:
        return f"{self.topic}-{self.partition}{f' ({few(self.replicas)})' if self.replicas else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanResult:
    """One scan of coordinator logs."""

    cluster: str
    """Name in the inventory, or a label if directories were read."""
    scanned_at: float
    """Epoch seconds."""
    logs: tuple[LogRange, ...]
    """The ranges that were read of each replica, each once."""
    classes: tuple[RecordKind, ...]
    verdicts: tuple[ReleaseVerdict, ...]
    sizes: tuple[LogSize, ...] = ()
    broken: tuple[BrokenRecords, ...] = ()
    tagged: tuple[TaggedFields, ...] = ()
    owners: tuple[OwnerRecords, ...] = ()
    owners_left_out: int = 0
    """Number of owners that are not listed."""
    copies: tuple[LogCopy, ...] = ()
    damage: tuple[Damage, ...] = ()
    deleted_while_pending: tuple[DeletedWhilePending, ...] = ()
    """The groups of the "pending" entries of `broken`."""
    out_of_order: tuple[OutOfOrder, ...] = ()
    """The groups of its "order" entries."""
    inventory: GroupInventory | None = None
    """None if it was not created."""
    cleaning: Mapping[str, CleaningConfig] = field(default_factory=dict)
    """Topic configuration by topic, if the cluster reported it."""
    new_group_coordinator: bool | None = False
    """Evaluated for brokers whose configuration enables it (Catalogue.configured); None: it is unknown."""

    @property
    def records(self) -> int:
        return sum(record_class.count for record_class in self.classes)

    @property
    def broken_records(self) -> int:
        """Lower bound of the number of broken records: failures of different layouts can be about the same records."""
        most: dict[tuple[object, ...], int] = {}
        for found in self.broken:
            what = found.topic, found.partition, found.key_version, found.value_version
            if found.part in ("key", "value"):
                most[what] = max(most.get(what, 0), found.count)
        return sum(most.values())

    @property
    def log_bytes(self) -> int:
        return sum(size.log_bytes for size in self.sizes)

    @property
    def control_batches(self) -> int:
        return sum(size.control_batches for size in self.sizes)

    @property
    def left_out(self) -> Mapping[str, tuple[int, ...]]:
        """Topic → the partitions below its highest one that no directory has: no verdict covers them.

        Empty for a running cluster, whose partitions are all read.
        """
        found: defaultdict[str, set[int]] = defaultdict(set)
        for copy in self.copies:
            found[copy.topic].add(copy.partition)
        gaps = {topic: tuple(sorted({*range(max(there))} - there)) for topic, there in sorted(found.items())}
        return {topic: partitions for topic, partitions in gaps.items() if partitions}

    @property
    def releases(self) -> tuple[Release, ...]:
        """The releases that the scan has a verdict for."""
        return tuple(sorted({verdict.release for verdict in self.verdicts}))

    @property
    def standing(self) -> Mapping[Release, LoadVerdict]:
        """The worst verdict of each release over all partitions."""
        worst: dict[Release, LoadVerdict] = {}
        for v in self.verdicts:
            worst[v.release] = worst_of((worst.get(v.release, v.verdict), v.verdict))
        return dict(sorted(worst.items()))

    def by_topic(self, release: Release) -> Mapping[str, Sequence[ReleaseVerdict]]:
        """Return the verdicts of a release by log, in the order of the logs' names."""
        found: defaultdict[str, list[ReleaseVerdict]] = defaultdict(list)
        for verdict in self.verdicts:
            if verdict.release == release:
                found[verdict.topic].append(verdict)
        return dict(sorted(found.items()))

    def failing(self, release: Release) -> tuple[ReleaseVerdict, ...]:
        return tuple(v for v in self.verdicts if v.release == release and v.verdict.blocks)

    def is_proved_loadable(self, release: Release) -> bool:
        """Return whether the release loads every partition or has no coordinator for it. Unknown is not enough."""
        verdicts = {verdict.verdict for verdict in self.verdicts if verdict.release == release}
        is_refuted = any(verdict.blocks or verdict is LoadVerdict.UNKNOWN for verdict in verdicts)
        return not is_refuted and bool(verdicts or not self.logs)

    def is_served(self, verdict: ReleaseVerdict) -> bool:
        """Return whether the only failures are deleted groups with open transactions.

        The release logs an error for such groups after it has loaded the partition.
        """
        place, failure = (verdict.topic, verdict.partition), verdict.first_failure
        return failure is not None and any(
            found.pending and (found.topic, found.partition) == place and found.failure == failure
            for found in self.broken
            if verdict.release in found.releases
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """A scan of a live cluster or of the directories `log_dirs`. The job gets its JSON form as a file."""

    cluster: str
    """Its name in the inventory, or a label."""
    json_file: Path
    bootstrap_servers: str = ""
    log_dirs: tuple[Path, ...] = ()
    security_file: Path | None = None
    """Credentials for a secured cluster; mode 0600."""
    parquet: Path | None = None
    topics: tuple[str, ...] = ()
    """Empty for all of the catalogue."""
    releases: tuple[Release, ...] = ()
    """Empty for all of the catalogue."""
    fail_on: tuple[Release, ...] = ()
    """Exit code 3 if one of these releases is not proved to load the logs."""
    live: bool = False
    """Also count the current records."""
    classes_only: bool = False
    """Do not parse the records."""
    spark_from_bytes: int = 0
    """Logs of fewer bytes are read by the job alone, without Spark."""
    new_group_coordinator: bool | None = None
    """Evaluate for brokers that enable it; None: ask those of a live cluster, and take the default for directories."""
