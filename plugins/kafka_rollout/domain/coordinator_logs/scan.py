"""What a scan of the coordinator logs found and answers (KIP-915): its values and their JSON form.

scan_judging decides what each release would do with a log; scan_findings says what that means and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from kafka_rollout.domain.coordinator_logs.cleaning import CleaningConfig
from kafka_rollout.domain.model.releases import Release

OFFSETS_TOPIC = "__consumer_offsets"


class LoadVerdict(StrEnum):
    """What the coordinator of a release would do with one partition of a coordinator log."""

    LOADS = "loads"
    LOADS_IGNORING = "loads_ignoring"
    FAILS = "fails"
    NOT_LOADED = "not_loaded"  # the release has no coordinator that reads this log

    @property
    def badness(self) -> int:
        """How bad it is; 0 is not bad. That a release has no coordinator for a log is a fact of the release, not of
        what the log holds."""
        return {LoadVerdict.LOADS_IGNORING: 1, LoadVerdict.FAILS: 2}.get(self, 0)


def worst_of(verdicts: Iterable[LoadVerdict]) -> LoadVerdict:
    """The one of several (at least one) that tells for all; a log that is read tells more than one that is not."""
    return max(verdicts, key=lambda verdict: (verdict.badness, verdict is not LoadVerdict.NOT_LOADED))


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LogRange:
    """Offsets start <= offset < end of one partition."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKind:
    """Records of one partition with the same key version and value version.

    `key_version` None: a key that is null or too short to hold a version; `value_version` None: tombstones,
    −1: a value too short to hold a version. `live`: how many of them are the newest of their key; None: not looked at.
    """

    topic: str
    partition: int
    key_version: int | None
    value_version: int | None
    count: int
    first_offset: int
    live: int | None = None

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        if self.live is None:
            del data["live"]
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRecords:
    """Records of a known key and value version whose bytes do not parse by the layout that `releases` have of it, or
    which they refuse for what stands in a field.

    `part`: "key" or "value". `reason` is of the first of them. "end": they parse, but none that the releases know
    follows, at which these stall (CoordinatorLogFacts.stalls_at_unknown_end). "pending": so many groups that were
    deleted, of which these complain as long as transactions are open (DeletedWhilePending). "order": so many groups of
    which a record does not fit what lies before it (OutOfOrder).
    """

    topic: str
    partition: int
    key_version: int
    value_version: int | None
    part: str
    releases: tuple[Release, ...]
    count: int
    first_offset: int
    reason: str
    live: int | None = None

    @property
    def pending(self) -> bool:
        return self.part == "pending"

    @property
    def failure(self) -> Failure:
        return Failure(offset=self.first_offset, reason=self.reason)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "releases": [str(release) for release in self.releases]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BrokenRecords:
        return cls(**{**data, "releases": tuple(Release.parse(text) for text in data["releases"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedFields:
    """Records in which a tagged field (KIP-482) was set.

    `path` is the struct that holds it: "" for the record itself, "topics[].partitions[]" within it. `known_by`: the
    releases whose definition has the tag; `name` is what they call it, None if no release of the catalogue knows it.
    """

    topic: str
    partition: int
    key_version: int
    value_version: int
    path: str
    tag: int
    count: int
    first_offset: int
    name: str | None
    known_by: tuple[Release, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "known_by": [str(release) for release in self.known_by]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TaggedFields:
        return cls(**{**data, "known_by": tuple(Release.parse(text) for text in data["known_by"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRecords:
    """Records of one class that belong to one group, transactional id or share partition, by which they can be ended.

    `owner`: "group", "transactional_id" or "share_partition" (`group:topic-id:partition`). Only classes that some
    asked release does not load or ignores are told apart by owner, and those of groups' records that some release takes
    by what lies before them.
    """

    topic: str
    partition: int
    owner: str
    name: str
    key_version: int
    value_version: int | None
    count: int
    first_offset: int
    live: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DeletedWhilePending:
    """A group whose newest GroupMetadata is a tombstone and whose only offsets in the log are those of transactions
    without an end, of `producers`. From `offset` on it is so.
    """

    topic: str
    partition: int
    offset: int
    group: str
    producers: tuple[int, ...]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DeletedWhilePending:
        return cls(**{**data, "producers": tuple(data["producers"])})


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class OutOfOrder:
    """A group with a record at which the coordinators of `releases` stop for what lies before it, and the first such
    record. `complaint`: what they say, as far as it is known. A `value_version` of None: it is a tombstone.
    """

    topic: str
    partition: int
    offset: int
    group: str
    key_version: int
    value_version: int | None
    releases: tuple[Release, ...]
    complaint: str

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "releases": [str(release) for release in self.releases]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> OutOfOrder:
        return cls(**{**data, "releases": tuple(Release.parse(text) for text in data["releases"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCopy:
    """One directory that holds a copy of a partition; of several, one is `chosen` and read. `why` is a sentence."""

    topic: str
    partition: int
    directory: str
    start: int
    end: int
    log_bytes: int
    chosen: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Bytes of a segment file that could not be read as record batches, from `position` on."""

    topic: str
    partition: int
    file: str
    position: int
    log_bytes: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSize:
    """What one partition holds. Timestamps in epoch milliseconds as its batches tell them; −1 without a batch."""

    topic: str
    partition: int
    records: int
    batches: int
    control_batches: int
    log_bytes: int
    first_timestamp: int
    last_timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The first record that a release cannot load, and why, in the words of what it does with such a record.

    Of groups that were deleted while transactions are open, the record that made it so: told where nothing else fails.
    """

    offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseVerdict:
    """One release's answer for one partition; `ignored` counts the records whose type it does not know and skips."""

    release: Release
    topic: str
    partition: int
    verdict: LoadVerdict
    ignored: int = 0
    first_failure: Failure | None = None

    def to_dict(self) -> dict[str, Any]:
        failure = self.first_failure
        return {
            "release": str(self.release),
            "topic": self.topic,
            "partition": self.partition,
            "verdict": str(self.verdict),
            "ignored": self.ignored,
            "first_failure": None if failure is None else {"offset": failure.offset, "reason": failure.reason},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ReleaseVerdict:
        failure = data["first_failure"]
        return cls(
            release=Release.parse(data["release"]),
            topic=data["topic"],
            partition=data["partition"],
            verdict=LoadVerdict(data["verdict"]),
            ignored=data["ignored"],
            first_failure=None if failure is None else Failure(offset=failure["offset"], reason=failure["reason"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanResult:
    """One scan of coordinator logs. `scanned_at` in epoch seconds; `logs` is what was read, once each.

    `cluster` is the inventory's name, or what stands for it when directories were read. `owners_left_out` counts the
    owners beyond those listed. `inventory` is GroupInventory's JSON form (scan_inventory), None if not taken.
    `cleaning`: the logs' own configuration by topic, where the cluster told it. `new_group_coordinator`: judged as
    brokers that are told to start it (Catalogue.configured). `deleted_while_pending`: what `broken` has as "pending",
    group by group; `out_of_order`: likewise what it has as "order".
    """

    cluster: str
    scanned_at: float
    logs: tuple[LogRange, ...]
    classes: tuple[RecordKind, ...]
    verdicts: tuple[ReleaseVerdict, ...]
    sizes: tuple[LogSize, ...] = ()
    broken: tuple[BrokenRecords, ...] = ()
    tagged: tuple[TaggedFields, ...] = ()
    owners: tuple[OwnerRecords, ...] = ()
    owners_left_out: int = 0
    copies: tuple[LogCopy, ...] = ()
    damage: tuple[Damage, ...] = ()
    deleted_while_pending: tuple[DeletedWhilePending, ...] = ()
    out_of_order: tuple[OutOfOrder, ...] = ()
    inventory: Mapping[str, Any] | None = None
    cleaning: Mapping[str, CleaningConfig] = field(default_factory=dict)
    new_group_coordinator: bool = False

    @property
    def records(self) -> int:
        return sum(record_class.count for record_class in self.classes)

    @property
    def broken_records(self) -> int:
        """At least so many: what releases fail on by different layouts may be the same records."""
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
    def standing(self) -> Mapping[Release, LoadVerdict]:
        """The worst verdict of each release over all partitions."""
        worst: dict[Release, LoadVerdict] = {}
        for v in self.verdicts:
            worst[v.release] = worst_of((worst.get(v.release, v.verdict), v.verdict))
        return dict(sorted(worst.items()))

    def failing(self, release: Release) -> tuple[ReleaseVerdict, ...]:
        return tuple(v for v in self.verdicts if v.release == release and v.verdict is LoadVerdict.FAILS)

    def is_served(self, verdict: ReleaseVerdict) -> bool:
        """Whether nothing fails there but deleted groups with open transactions, which its release complains of when it
        has loaded the partition."""
        place, failure = (verdict.topic, verdict.partition), verdict.first_failure
        return failure is not None and any(
            found.pending and (found.topic, found.partition) == place and found.failure == failure
            for found in self.broken
            if verdict.release in found.releases
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: the fields by name, each a list of objects."""
        data: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        for name, kind in _LISTS.items():
            to_dict = getattr(kind, "to_dict", asdict)
            data[name] = [to_dict(value) for value in data[name]]
        data["cleaning"] = {topic: config.to_dict() for topic, config in self.cleaning.items()}
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ScanResult:
        held = {each.name: data[each.name] for each in fields(cls) if each.name in data}
        for name, kind in _LISTS.items():
            from_dict = getattr(kind, "from_dict", lambda value, kind=kind: kind(**value))
            held[name] = tuple(from_dict(value) for value in held.get(name, ()))
        cleaning = held.get("cleaning", {})
        held["cleaning"] = {topic: CleaningConfig.from_dict(config) for topic, config in cleaning.items()}
        return cls(**held)


_LISTS: Mapping[str, Any] = {
    "logs": LogRange,
    "classes": RecordKind,
    "verdicts": ReleaseVerdict,
    "sizes": LogSize,
    "broken": BrokenRecords,
    "tagged": TaggedFields,
    "owners": OwnerRecords,
    "copies": LogCopy,
    "damage": Damage,
    "deleted_while_pending": DeletedWhilePending,
    "out_of_order": OutOfOrder,
}
