"""What __consumer_offsets holds of groups: live records of the newer types, and whether releases could load it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from kafka_rollout.domain.gates import Condition
from kafka_rollout.domain.groups import CONSUMER, SHARE, STREAMS
from kafka_rollout.domain.releases import Catalogue, Release
from kafka_rollout.domain.scan import LoadVerdict, RecordClass
from kafka_rollout.domain.scan_cleaning import CleaningConfig
from kafka_rollout.domain.scan_inventory import StateRecord, camel_fields
from kafka_rollout.domain.scan_judging import judge
from kafka_rollout.domain.scan_remedies import in_words
from kafka_rollout.domain.state import GroupState
from kafka_rollout.domain.wording import count, few

OFFSETS_TOPIC = "__consumer_offsets"
# Kafka serves groups of a type only while its feature is at 1 or higher (KafkaApis of 4.3.1).
SERVED_BY = {"group.version": CONSUMER, "share.version": SHARE, "streams.version": STREAMS}

_PREFIXES = {"ConsumerGroup": CONSUMER, "ShareGroup": SHARE, "StreamsGroup": STREAMS}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecords:
    """One look at the log. `newest`: of each key but those of committed offsets, tombstones included; `classes`: of all
    records; `offsets`: how many were read; `cleaning`: how the topic is cleaned, if the cluster tells."""

    read_at: float
    offsets: int
    newest: tuple[StateRecord, ...] = ()
    classes: tuple[RecordClass, ...] = ()
    partitions: tuple[tuple[str, int], ...] = ()
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)

    def live(self, kinds: Collection[str]) -> dict[str, int]:
        """By group of one of these types: its records that no tombstone has ended."""
        found: Counter[str] = Counter()
        for record in self.newest:
            if record.value is not None and type_of_record(record.record) in kinds:
                found[str(camel_fields(record.key)["groupId"])] += 1
        return dict(found)


def type_of_record(name: str) -> str | None:
    """The group type that a record type of the catalogue belongs to; None: classic, offsets, or none known."""
    return next((kind for prefix, kind in _PREFIXES.items() if name.startswith(prefix)), None)


def conversion_conditions(
    groups: Iterable[GroupState],
    records: GroupRecords | str,
    kinds: Collection[str],
    *,
    catalogue: Catalogue,
    releases: Sequence[Release],
) -> tuple[Condition, ...]:
    """Whether the groups of these types are gone so far that their features may go down and `releases` may load them.

    In the order of KIP-848's notes: members go back to the classic protocol; the conversion of each group writes
    tombstones for its records; and where a release cannot load such records, not even dead ones, the cleaner has
    removed them. Records of groups without members may stay where every release passes over them. `records`: a sentence
    saying why they were not read.
    """
    if isinstance(records, str):
        loads: tuple[Condition, ...] = (
            Condition(name=f"the records in {OFFSETS_TOPIC} are left to a scan", holds=True, evidence=records),
        )
    else:
        loads = tuple(_loads(catalogue, records, release) for release in releases)
    if not kinds:
        return loads
    of_kinds = {group.group_id: group for group in groups if group.type in kinds}
    active = {name for name, group in of_kinds.items() if group.members or group.state.lower() != "empty"}
    if isinstance(records, str):
        return (_members(active, kinds), *loads)
    live = records.live(kinds)
    ended = live.keys() - of_kinds.keys()
    idle = sorted((live.keys() & of_kinds.keys()) - active)
    waiting = sorted((active & live.keys()) | ended)
    told = (
        f"{count(sum(live[name] for name in waiting), 'live record')} of {few(waiting)}"
        if waiting
        else f"no record of a converted group is alive in {records.offsets} offsets"
    )
    kept = f"; {few(idle)} without members keep {count(sum(live[name] for name in idle), 'record')}" if idle else ""
    tombstones = Condition(
        name="the tombstones of their records are written", holds=not active and not ended, evidence=told + kept
    )
    return (_members(active, kinds), tombstones, *loads)


def _members(active: Collection[str], kinds: Collection[str]) -> Condition:
    return Condition(
        name=f"no {'/'.join(sorted(kinds))} group has members",
        holds=not active,
        evidence=f"{count(len(active), 'group')} to be converted: {few(sorted(active))}" if active else "none has",
    )


def _loads(catalogue: Catalogue, records: GroupRecords, release: Release) -> Condition:
    verdicts = judge(catalogue, records.classes, [release], partitions=records.partitions)
    failing = [verdict for verdict in verdicts if verdict.verdict is LoadVerdict.FAILS]
    name = f"{release} can load {OFFSETS_TOPIC}"
    if not failing:
        ignored = sum(verdict.ignored for verdict in verdicts)
        return Condition(
            name=name, holds=True, evidence=f"it passes over {count(ignored, 'record')}" if ignored else "all of it"
        )
    failure = failing[0].first_failure
    where = f"{OFFSETS_TOPIC}-{failing[0].partition}"
    first = where if failure is None else f"{where} at offset {failure.offset}: {failure.reason}"
    told = f"{count(len(failing), 'partition')} not, {first}; {_cleaned_when(records.cleaning)}"
    return Condition(name=name, holds=False, evidence=told)


def _cleaned_when(cleaning: CleaningConfig) -> str:
    """When the cleaner has removed what the tombstones ended, and the tombstones, and how to make it come sooner."""
    within = cleaning.tombstones_gone_within_ms
    when = "only the log's size says when it is cleaned" if within is None else f"cleaned within {in_words(within)}"
    hurry = ", ".join(f"{change.name}={change.value}" for change in cleaning.hurry(OFFSETS_TOPIC))
    return f"{when}; sooner with {hurry} for a while" if hurry else when
