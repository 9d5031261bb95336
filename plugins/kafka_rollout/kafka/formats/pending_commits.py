"""Deleted groups with offsets of open transactions, by the rules of the group coordinator of 3.x.

Source: GroupMetadataManager.doLoadGroupsAndOffsets, the same in 3.4.0 and 3.9. An offset that a transaction commits is
pending, by producer id, until the marker of the transaction. A control batch without a record (left by the log cleaner)
is not a marker. A tombstone outside a transaction does not remove a pending offset, and one inside does not remove
another offset. A group is deleted if its newest GroupMetadata record is a tombstone. After all records, the coordinator
also creates groups for pending offsets. It logs an error for a group that is deleted and has only pending offsets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from kafka_rollout.kafka.formats.coordinator_records import VERSION_BYTES, ClassKey, classify
from kafka_rollout.kafka.formats.log_types import Batch, Bytes, Codecs, LogFormatError, RecordSpan
from kafka_rollout.kafka.formats.record_batch import readable, records

_OFFSETS, _GROUP = frozenset({0, 1}), 2  # key versions
_COMMIT = 1  # ControlRecordType
_LENGTH_BYTES, _PARTITION_BYTES = 2, 4


@dataclass(slots=True, kw_only=True)
class PendingCommits:
    """The pending offsets of one partition of __consumer_offsets. Groups are named by bytes.

    `groups`: the groups to examine. None: all groups; then only `suspects` and `doubtful` are available, because other
    offsets are not stored.
    """

    groups: frozenset[bytes] | None = None
    _producer: int | None = None  # of the batch, if it belongs to a transaction
    _deleted: dict[bytes, bool] = field(default_factory=dict)  # group → its newest GroupMetadata is a tombstone
    _loaded: defaultdict[bytes, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    _waiting: dict[int, defaultdict[bytes, set[bytes]]] = field(default_factory=dict)  # producer → group → offsets
    _emptied: set[bytes] = field(default_factory=set)  # groups of which an offset was removed
    _refused_from: dict[bytes, int] = field(default_factory=dict)

    def add(self, buffer: Bytes, codecs: Codecs, *, start: int, end: int) -> None:
        """Add the records of complete batches with start <= offset < end. Unreadable batches are skipped."""
        for batch, data in readable(buffer, codecs, start=start, end=end):
            with suppress(LogFormatError):
                self._add(batch, data, start, end)

    def begin(self, batch: Batch, data: bytes) -> None:
        """Begin a batch: apply a marker, or note the producer of the records that follow."""
        if not batch.is_control:
            self._producer = batch.producer_id if batch.is_transactional else None
            return
        for marker in records(batch, data):
            kind = int.from_bytes(data[marker.key_at + 2 : marker.key_at + 4], "big", signed=True)
            for group, offsets in self._waiting.pop(batch.producer_id, {}).items():
                if kind == _COMMIT and self.groups is not None:
                    self._loaded[group] |= offsets
                self._evaluate(group, marker.offset)
            return

    def add_record(self, data: bytes, record: RecordSpan, what: ClassKey) -> None:
        version = what[0]
        if version not in _OFFSETS and version != _GROUP:
            return
        key = data[record.key_at : record.key_at + record.key_length]
        group, at = text_at(key, VERSION_BYTES)
        if group is None or (self.groups is not None and group not in self.groups):
            return
        is_there = record.value_length >= 0
        if version == _GROUP:
            self._deleted[group] = not is_there
        else:
            topic, at = text_at(key, at)
            if topic is None:
                return
            self._note_offset(group, key[VERSION_BYTES : at + _PARTITION_BYTES], is_there)
        self._evaluate(group, record.offset)

    def suspects(self) -> frozenset[bytes]:
        """Return deleted groups with pending offsets. Only for a log that was added from its start."""
        return frozenset(group for group in self.waiting() if self._deleted.get(group))

    def doubtful(self, alive: Collection[bytes]) -> frozenset[bytes]:
        """Return groups that can fail by the added records alone. `alive`: groups that are known not to be deleted."""
        deleted = {group for group, is_deleted in self._deleted.items() if is_deleted}
        touched = {*self.waiting(), *self._emptied}
        return frozenset(deleted | (touched - self._deleted.keys() - set(alive)))

    def refused(self) -> Mapping[bytes, tuple[int, tuple[int, ...]]]:
        """Return group → (offset from which the load fails, producers with pending offsets).

        Only for a log that was added from its start.
        """
        waiting = self.waiting()
        return {group: (offset, tuple(sorted(waiting[group]))) for group, offset in self._refused_from.items()}

    def waiting(self) -> Mapping[bytes, set[int]]:
        """Return group → producers with pending offsets."""
        found: defaultdict[bytes, set[int]] = defaultdict(set)
        for producer, groups in self._waiting.items():
            for group, offsets in groups.items():
                if offsets:
                    found[group].add(producer)
        return found

    def _add(self, batch: Batch, data: bytes, start: int, end: int) -> None:
        self.begin(batch, data)
        if batch.is_control or (self.groups is not None and not any(group in data for group in self.groups)):
            return
        for record in records(batch, data):
            if start <= record.offset < end:
                places = record.key_at, record.key_length, record.value_at, record.value_length
                self.add_record(data, record, classify(data, *places))

    def _note_offset(self, group: bytes, offset_of: bytes, is_there: bool) -> None:
        if self._producer is not None:
            waiting = self._waiting.setdefault(self._producer, defaultdict(set))[group]
            if is_there:
                waiting.add(offset_of)
            else:
                waiting.discard(offset_of)
            return
        if not is_there:
            self._emptied.add(group)
        if self.groups is not None:
            loaded = self._loaded[group]
            if is_there:
                loaded.add(offset_of)
            else:
                loaded.discard(offset_of)

    def _evaluate(self, group: bytes, offset: int) -> None:
        if self.groups is None:
            return
        waits = any(groups.get(group) for groups in self._waiting.values())
        if waits and self._deleted.get(group) and not self._loaded[group]:
            self._refused_from.setdefault(group, offset)
        else:
            self._refused_from.pop(group, None)


def text_at(key: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the string with a length prefix at `at`, and the position after it; None if it is incomplete."""
    begin = at + _LENGTH_BYTES
    length = int.from_bytes(key[at:begin], "big", signed=True)
    return (key[begin : begin + length], begin + length) if 0 <= length <= len(key) - begin else (None, at)
