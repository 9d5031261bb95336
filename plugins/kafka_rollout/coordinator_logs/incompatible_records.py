"""Records that stop a release while it loads the logs, or that it ignores, by kind.

The current records of each kind are counted separately.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.coordinator_logs.scan import BrokenRecords, LoadVerdict, ReleaseVerdict, ScanResult
from kafka_rollout.coordinator_logs.verdicts import UNREADABLE_VALUE, evaluate_records, with_any
from kafka_rollout.formats.log_types import RecordKind
from kafka_rollout.releases.facts import Catalogue, RecordTypeFacts, Release


class Family(StrEnum):
    """Record families with a common removal action, in the order in which they must be removed."""

    CONSUMER_GROUPS = "consumer groups"
    STREAMS_GROUPS = "streams groups"
    SHARE_GROUPS = "share groups"
    CLASSIC_GROUPS = "classic groups"
    TRANSACTIONAL_IDS = "transactional ids"
    OFFSETS = "committed offsets"
    UNKNOWN = "records of unknown types"
    LOG_ENDS = "ends of logs"
    OPEN_TRANSACTIONS = "open transactions of deleted groups"
    OUT_OF_ORDER = "groups out of order"


NEWER_GROUPS = frozenset({Family.CONSUMER_GROUPS, Family.STREAMS_GROUPS, Family.SHARE_GROUPS})
REMOVED_WITH_GROUPS = NEWER_GROUPS | {Family.OUT_OF_ORDER}

_Kind = tuple[str, int | None, int | None, str, bool]  # topic, key version, value version, broken part, stops


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedPartition:
    """Records of one kind in one partition."""

    partition: int
    count: int
    first_offset: int
    live: int | None
    """Number of current records (newest of their key); None: not determined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompatibleRecords:
    """Records of one kind that stop the release, or that it ignores (`stops` False)."""

    topic: str
    record: str | None
    """Name of the type; None if no release of the catalogue knows it."""
    key_version: int | None
    value_version: int | None
    """None: tombstones."""
    reason: str
    stops: bool
    known: bool
    """Whether this release knows it."""
    partitions: tuple[AffectedPartition, ...]
    part: str = ""
    """The broken part, as in BrokenRecords."""
    loses: bool = False
    """The release does not stop at them, but loses transactional ids; `stops` is True then."""
    replicas: tuple[str, ...] = ()
    """The replicas that have them; empty if in a partition all replicas have them."""

    @property
    def count(self) -> int:
        return sum(partition.count for partition in self.partitions)

    @property
    def live(self) -> int | None:
        """Number of current records; None if it was not determined in every partition."""
        lives = [partition.live for partition in self.partitions]
        return None if None in lives else sum(live for live in lives if live is not None)

    @property
    def ends_log(self) -> bool:
        """Whether the records are a problem only at the end of the log (CoordinatorLogFacts.stalls_at_unknown_end)."""
        return self.part == "end"

    @property
    def pending(self) -> bool:
        """Whether these are deleted groups that become loadable when their transactions end; `count` counts groups."""
        return self.part == "pending"

    @property
    def out_of_order(self) -> bool:
        """Whether these are groups with a record that contradicts an earlier record; `count` counts groups
        (OutOfOrder).
        """
        return self.part == "order"

    @property
    def cleaned(self) -> bool:
        """Whether the log cleaner removes these records."""
        return not self.ends_log and not self.pending

    @property
    def tombstones(self) -> bool:
        return self.value_version is None and not self.part and self.key_version is not None

    @property
    def unreadable(self) -> bool:
        return self.part in ("key", "value") or self.key_version is None or self.value_version == UNREADABLE_VALUE

    @property
    def to_be_removed(self) -> int | None:
        """Number of records that the cleaner does not remove unless a newer record is written; None: unknown."""
        if self.tombstones:
            return 0
        return self.live if self.cleaned and not self.out_of_order else self.count

    @property
    def title(self) -> str:
        if self.pending:
            return "deleted groups whose only offsets belong to open transactions"
        if self.out_of_order:
            return "groups with a record that contradicts an earlier record"
        value = "tombstones" if self.value_version is None else f"value version {self.value_version}"
        where = " at the end of the log" if self.ends_log else ""
        return f"{self.record or 'unknown type'} (key version {self.key_version}), {value}{where}"

    @property
    def family(self) -> Family:
        if self.pending:
            return Family.OPEN_TRANSACTIONS
        if self.out_of_order:
            return Family.OUT_OF_ORDER
        return Family.LOG_ENDS if self.ends_log else family_of(self.record)


def find_incompatible_records(
    scan: ScanResult, catalogue: Catalogue, release: Release
) -> tuple[IncompatibleRecords, ...]:
    """Return the incompatible records of the release; those that stop it first.

    Each record kind is evaluated alone, with the rules for whole partitions.
    """
    catalogue = catalogue.configured(new_group_coordinator=scan.new_group_coordinator)
    alone: list[tuple[RecordKind | BrokenRecords, str, ReleaseVerdict]] = [
        (found, "", evaluate_records(catalogue, (found,), (release,))[0]) for found in scan.classes
    ]
    alone += [(one, one.part, evaluate_records(catalogue, (), (release,), broken=(one,))[0]) for one in scan.broken]
    by_kind: defaultdict[_Kind, list[tuple[RecordKind | BrokenRecords, ReleaseVerdict]]] = defaultdict(list)
    for found, part, verdict in alone:
        stops = verdict.first_failure is not None
        if stops or verdict.verdict is LoadVerdict.LOADS_IGNORING:
            by_kind[found.topic, found.key_version, found.value_version, part, stops].append((found, verdict))
    offences = [_incompatible(catalogue, release, kind, members) for kind, members in by_kind.items()]
    return tuple(sorted(offences, key=lambda o: (not o.stops, o.topic, o.key_version or -1, o.value_version or -1)))


def _incompatible(
    catalogue: Catalogue,
    release: Release,
    kind: _Kind,
    members: Sequence[tuple[RecordKind | BrokenRecords, ReleaseVerdict]],
) -> IncompatibleRecords:
    topic, key_version, value_version, part, stops = kind
    knowing = [] if key_version is None else facts_of_type(catalogue, topic, key_version)
    first = members[0][1]
    return IncompatibleRecords(
        topic=topic,
        record=knowing[-1][1].name if knowing else None,
        known=any(known_to == release for known_to, _ in knowing),
        key_version=key_version,
        value_version=value_version,
        reason=first.first_failure.reason if first.first_failure else "it is skipped with a warning",
        stops=stops,
        loses=first.verdict is LoadVerdict.LOSES,
        part=part,
        replicas=with_any([found.replicas for found, _ in members]),
        partitions=tuple(
            AffectedPartition(
                partition=found.partition, count=found.count, first_offset=found.first_offset, live=found.live
            )
            for found, _ in sorted(members, key=lambda member: member[0].partition)
        ),
    )


def facts_of_type(catalogue: Catalogue, topic: str, key_version: int) -> list[tuple[Release, RecordTypeFacts]]:
    """Return the facts of each release that knows the type, oldest release first."""
    logs = ((release, catalogue.get(release).coordinator_logs.get(topic)) for release in catalogue)
    found = ((release, log.record(key_version)) for release, log in logs if log is not None)
    return [(release, facts) for release, facts in found if facts is not None]


def family_of(record: str | None) -> Family:
    """Return the family of a record type of Kafka's definitions. None: no release of the catalogue knows the type."""
    name = record or ""
    if name.endswith("OffsetCommit"):
        return Family.OFFSETS
    return next((family for prefix, family in _FAMILIES.items() if name.startswith(prefix)), Family.UNKNOWN)


_FAMILIES = {
    "ConsumerGroup": Family.CONSUMER_GROUPS,
    "StreamsGroup": Family.STREAMS_GROUPS,
    "Share": Family.SHARE_GROUPS,
    "GroupMetadata": Family.CLASSIC_GROUPS,
    "TransactionLog": Family.TRANSACTIONAL_IDS,
}
