"""Logs for the oracle, as bytes of a segment: what real brokers wrote, and records planted among good ones."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import crc32c

from kafka_rollout.formats.documents.definitions import Schemas, load_schemas
from kafka_rollout.formats.layouts import ZERO_UUID
from kafka_rollout.formats.log_types import RecordBatch
from kafka_rollout.formats.messages import encode
from kafka_rollout.formats.record_batch import batches, payload, records
from kafka_rollout.releases.facts import Release
from tools.coordinator_traffic import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, versioned
from tools.demo.folder import PROJECT_ROOT

FIXTURES = PROJECT_ROOT / "tests" / "fixtures"
NEWEST = Release(4, 3, 1)

TRANSACTIONAL, CONTROL = 0x10, 0x20  # attributes of a batch
_COMPRESSED = 0x07
_NOT_OF_SHARE_GROUPS = (1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 19, 20, 21, 22, 23)

Record = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, kw_only=True)
class PlantedLog:
    """`recovered`: the broker finds it without an index, as after an unclean stop, and checks it before it loads it.

    `blocks`: releases that never end loading it, nor anything that waits behind it.
    """

    name: str
    topic: str
    data: bytes
    recovered: bool = False
    blocks: tuple[str, ...] = ()


def batch(base: int, held: Sequence[tuple[int, Record]], *, attributes: int = 0, producer: int = -1) -> bytes:
    """One uncompressed batch v2 of (offset, record)."""
    body = b"".join(_record(offset - base, *record) for offset, record in held)
    last = held[-1][0] - base
    tail = struct.pack(">hiqqqhii", attributes, last, 1, 1, producer, 0 if producer >= 0 else -1, -1, len(held)) + body
    after = struct.pack(">iBI", 0, 2, crc32c.crc32c(tail)) + tail
    return struct.pack(">qi", base, len(after)) + after


def log_of(*held: Record, together: bool = False) -> bytes:
    """A batch a record, or all in one."""
    numbered = list(enumerate(held))
    return batch(0, numbered) if together else b"".join(batch(offset, [(offset, one)]) for offset, one in numbered)


def cut(data: bytes, end: int) -> bytes:
    """The log up to this offset, without it; a batch that reaches beyond is written again without the rest."""
    kept = b""
    for one in batches(data):
        if one.last_offset < end:
            kept += bytes(one.data)
        elif one.base_offset < end:
            held = [(offset, record) for offset, record in _contents(one) if offset < end]
            if held:
                attributes = one.attributes & ~_COMPRESSED
                kept += batch(one.base_offset, held, attributes=attributes, producer=_producer(one))
    return kept


def _contents(one: RecordBatch) -> Iterator[tuple[int, Record]]:
    data = payload(one)
    for span in records(one, data):
        key = None if span.key_length < 0 else data[span.key_at : span.key_at + span.key_length]
        value = None if span.value_length < 0 else data[span.value_at : span.value_at + span.value_length]
        yield span.offset, (key, value)


def _producer(one: RecordBatch) -> int:
    return int.from_bytes(one.data[43:51], "big", signed=True)


def _record(delta: int, key: bytes | None, value: bytes | None) -> bytes:
    content = b"\0" + _varint(0) + _varint(delta) + _bytes(key) + _bytes(value) + _varint(0)
    return _varint(len(content)) + content


def _bytes(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


@cache
def _schemas() -> Schemas:
    return load_schemas(PROJECT_ROOT / "include")


def key(log: str, number: int, **fields: Any) -> bytes:
    """A key of this type; fields that are not given have their default."""
    layouts = _schemas().layouts(NEWEST, log, number)
    assert layouts is not None
    return versioned(number, encode(layouts.key, fields))


def value(log: str, number: int, version: int, **fields: Any) -> bytes:
    layouts = _schemas().layouts(NEWEST, log, number)
    assert layouts is not None
    return versioned(version, encode(layouts.value.layout(version), fields))


COMMIT = key(CONSUMER_OFFSETS, 1, group="g", topic="t", partition=0)
GROUP = key(CONSUMER_OFFSETS, 2, group="g")
COMMITTED = value(CONSUMER_OFFSETS, 1, 3, offset=5, metadata="m", commitTimestamp=1)
COMMITTED_1 = value(CONSUMER_OFFSETS, 1, 1, offset=5, metadata="m", commitTimestamp=1, expireTimestamp=2)
COMMITTED_4 = value(CONSUMER_OFFSETS, 1, 4, offset=5, metadata="m", commitTimestamp=1)
EMPTY_GROUP: Mapping[str, Any] = {"protocolType": "consumer", "generation": 1, "protocol": None, "leader": None}
GOOD: Record = (COMMIT, COMMITTED)
BEHIND: Record = (key(CONSUMER_OFFSETS, 1, group="h", topic="t", partition=0), COMMITTED)

STATE = key(TRANSACTION_STATE, 0, transactionalId="t")
ENDED: Mapping[str, Any] = {"producerId": 1, "transactionTimeoutMs": 60_000, "transactionPartitions": None}
EMPTY_STATE = value(TRANSACTION_STATE, 0, 0, **ENDED)
GOOD_STATE: Record = (STATE, EMPTY_STATE)

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
SHARE: Mapping[str, Any] = {"groupId": "s", "topicId": TOPIC_ID, "partition": 0}
SNAPSHOT: Record = (key(SHARE_GROUP_STATE, 0, **SHARE), value(SHARE_GROUP_STATE, 0, 0))
UPDATE = key(SHARE_GROUP_STATE, 1, **SHARE)


def written_logs() -> Iterator[PlantedLog]:
    """What real brokers wrote: fixtures, each partition a log."""
    for folder in ("coordinator-logs-3.4.0", "coordinator-logs-4.3.1-all-groups"):
        for path in sorted((FIXTURES / folder).glob("*.fetch")):
            topic, _, partition = path.stem.rpartition("-")
            name = f"{folder.removeprefix('coordinator-logs-')} {partition}"
            yield PlantedLog(name=name, topic=topic, data=path.read_bytes())


def endless_logs() -> Iterator[PlantedLog]:
    """A tolerant transaction coordinator until 3.9 goes on only behind keys that it knows."""
    unknown, none = (versioned(7, b"k"), versioned(0)), (versioned(7, b"k"), None)
    for name, data in (
        ("unknown keys last", log_of(GOOD_STATE, unknown, none)),
        ("nothing but unknown keys", log_of(unknown)),
        ("unknown keys last and before", log_of(none, GOOD_STATE, unknown)),
    ):
        yield PlantedLog(name=name, topic=TRANSACTION_STATE, data=data, blocks=("3.4.1", "3.8.1", "3.9.1"))


def planted_logs() -> Iterator[PlantedLog]:
    """Each planted record between good ones, and logs in which it matters how they lie."""
    for topic, around, planted in (
        (CONSUMER_OFFSETS, (GOOD, BEHIND), _in_groups()),
        (TRANSACTION_STATE, (GOOD_STATE, GOOD_STATE), _in_transactions()),
        (SHARE_GROUP_STATE, (SNAPSHOT, SNAPSHOT), _in_shares()),
    ):
        for name, record in planted.items():
            yield PlantedLog(name=name, topic=topic, data=log_of(around[0], record, around[1]))
    for topic, name, record in fields_that_are_checked():
        around = (GOOD, BEHIND) if topic == CONSUMER_OFFSETS else (GOOD_STATE, GOOD_STATE)
        yield PlantedLog(name=name, topic=topic, data=log_of(around[0], record, around[1]))
    yield from _by_their_order()
    yield from deleted_while_pending()
    yield from _damaged()


def fields_that_are_checked() -> Iterator[tuple[str, str, Record]]:
    """(topic, name, record): all parse, and some release's coordinator looks at what stands in a field."""
    log = CONSUMER_OFFSETS
    subscribed = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
    for name, subscription, group in (
        ("subscription", subscribed, {}),
        ("subscription of a negative length", b"\0\0\xff\xff\xff\xff", {}),
        ("subscription that is too long", b"\0\0\0\0\0\x63", {}),
        ("subscription that ends within a name", subscribed[:8], {}),
        ("subscription that ends within a number", subscribed[:-2], {}),
        ("bad subscription that is not of a consumer", b"\0\0\xff\xff\xff\xff", {"protocolType": "connect"}),
        ("bad subscription before a protocol is chosen", b"\0\0\xff\xff\xff\xff", {"protocol": None}),
    ):
        member = {"memberId": "m", "sessionTimeout": 60_000, "rebalanceTimeout": 60_000, "subscription": subscription}
        fields = {"protocolType": "consumer", "protocol": "range", "leader": "m", "members": [member], **group}
        yield log, name, (GROUP, value(log, 2, 3, generation=1, **fields))
    described = key(log, 4, groupId="p")
    for name, topic in (
        ("partition metadata", {}),
        ("partition metadata without a topic's id", {"topicId": ZERO_UUID}),
        ("partition metadata without a topic's name", {"topicName": ""}),
        ("partition metadata of a negative number", {"numPartitions": -1}),
    ):
        known = {"topicId": TOPIC_ID, "topicName": "t", "numPartitions": 1, **topic}
        yield log, name, (described, value(log, 4, 0, topics=[known]))
    for name, number, fields in (
        ("assignment epoch of a consumer group", 6, {"assignmentEpoch": -2}),
        ("assignment time of a consumer group", 6, {"assignmentTimestamp": -1}),
        ("assignment epoch of a streams group", 20, {"assignmentEpoch": -2}),
        ("epoch of a streams group's topology", 23, {"epoch": -1}),
    ):
        yield log, f"negative {name}", (key(log, number, groupId="n"), value(log, number, 0, **fields))
    for version in (0, 1):
        for status, partitions in ((7, []), (8, []), (-1, []), (127, []), (1, None), (6, None)):
            fields = {**ENDED, "transactionStatus": status, "transactionPartitions": partitions}
            name = f"status {status}{', partitions null' if partitions is None else ''}, value of version {version}"
            yield TRANSACTION_STATE, name, (STATE, value(TRANSACTION_STATE, 0, version, **fields))
    for level in (2, 3, -1):
        fields = {**ENDED, "clientTransactionVersion": level}
        yield TRANSACTION_STATE, f"transaction.version {level}", (STATE, value(TRANSACTION_STATE, 0, 1, **fields))


def _in_groups() -> dict[str, Record]:
    log = CONSUMER_OFFSETS
    group_3, group_4 = (value(log, 2, version, **EMPTY_GROUP) for version in (3, 4))
    consumer_group, legacy = key(log, 3, groupId="c"), versioned(0, COMMIT[2:])
    share_group = key(log, 15, groupId="s")
    return {
        "unknown key": (versioned(99, b"k"), versioned(0, b"v")),
        "tombstone of an unknown key": (versioned(99, b"k"), None),
        "negative key": (versioned(-1, b"k"), versioned(0)),
        "unknown key, value of one byte": (versioned(99, b"k"), b"\0"),
        "commit one too high": (COMMIT, versioned(5, COMMITTED_4[2:])),
        "group one too high": (GROUP, versioned(5, group_4[2:])),
        "consumer group one too high": (consumer_group, versioned(1, value(log, 3, 0)[2:])),
        "negative value version": (COMMIT, versioned(-2, COMMITTED[2:])),
        "value version -1": (COMMIT, versioned(-1, COMMITTED[2:])),
        "value of one byte": (COMMIT, b"\0"),
        "empty value": (GROUP, b""),
        "broken commit": (COMMIT, COMMITTED[:-5]),
        "broken commit of version 1": (COMMIT, COMMITTED_1[:14]),
        "commit with bytes behind": (COMMIT, COMMITTED + b"more"),
        "broken group": (GROUP, group_3[:-4] + b"\x7f\xff\xff\xff"),
        "broken consumer group member": (key(log, 5, groupId="c", memberId="m"), versioned(0, b"\x09")),
        "broken key": (COMMIT[:-3], COMMITTED),
        "broken key of a tombstone": (COMMIT[:-3], None),
        "broken key of a group": (versioned(2, b"\x7f\xffg"), None),
        "broken key of a consumer group": (versioned(3, b"\x20g"), None),
        "key of one byte": (b"\0", COMMITTED),
        "empty key": (b"", None),
        "null key": (None, COMMITTED),
        "commit of version 1": (COMMIT, COMMITTED_1),
        "commit of version 4": (COMMIT, COMMITTED_4),
        "group of version 4": (GROUP, group_4),
        "known tagged field": (COMMIT, value(log, 1, 4, offset=5, topicId=TOPIC_ID)),
        "unknown tagged field": (COMMIT, COMMITTED_4[:-1] + b"\x01\x63\x02ab"),
        "tagged field of a wrong size": (COMMIT, COMMITTED_4[:-1] + b"\x01\x63\x7fab"),
        "legacy commit of version 0": (legacy, value(log, 0, 0, offset=5)),
        "legacy commit of version 1": (legacy, COMMITTED_1),
        "state of a share group": (share_group, value(log, 15, 0)),
        "tombstone of the state of a share group": (share_group, None),
    }


def _in_transactions() -> dict[str, Record]:
    log = TRANSACTION_STATE
    flexible = value(log, 0, 1, **ENDED)
    return {
        "unknown key": (versioned(7, b"k"), versioned(0)),
        "tombstone of an unknown key": (versioned(7, b"k"), None),
        "value of version 1": (STATE, flexible),
        "unknown tagged field": (STATE, flexible[:-1] + b"\x01\x63\x02ab"),
        "value one too high": (STATE, versioned(2, flexible[2:])),
        "negative value version": (STATE, versioned(-2)),
        "value of one byte": (STATE, b"\0"),
        "broken value": (STATE, EMPTY_STATE[:-3]),
        "broken key": (STATE[:-1], EMPTY_STATE),
        "broken key of a tombstone": (STATE[:-1], None),
        "key of one byte": (b"\0", EMPTY_STATE),
        "null key": (None, EMPTY_STATE),
        "tombstone": (STATE, None),
    }


def _in_shares() -> dict[str, Record]:
    return {
        "unknown key": (versioned(9, b"k"), versioned(0)),
        "tombstone of a snapshot": (SNAPSHOT[0], None),
        "tombstone of an update": (UPDATE, None),
        "value one too high": (SNAPSHOT[0], versioned(1, value(SHARE_GROUP_STATE, 0, 0)[2:])),
        "broken value": (SNAPSHOT[0], versioned(0, b"\0")),
    }


def _by_their_order() -> Iterator[PlantedLog]:
    unknown: tuple[Record, Record] = ((versioned(98, b"k"), None), (versioned(99), versioned(7)))
    tombstones = [(key(CONSUMER_OFFSETS, number, **_named(number)), None) for number in _NOT_OF_SHARE_GROUPS]
    # KIP-98: a marker's key is its version and its type, 0 for abort.
    marker = batch(2, [(2, (b"\0\0\0\0", bytes(6)))], attributes=TRANSACTIONAL | CONTROL, producer=7)
    aborted = batch(0, [(0, GOOD), (1, unknown[1])], attributes=TRANSACTIONAL, producer=7)
    for topic, name, data in (
        (CONSUMER_OFFSETS, "unknown keys of one batch", log_of(GOOD, *unknown, BEHIND, together=True)),
        (CONSUMER_OFFSETS, "unknown key last", log_of(GOOD, unknown[1])),
        (CONSUMER_OFFSETS, "tombstones of what is not there", log_of(GOOD, *tombstones)),
        (CONSUMER_OFFSETS, "unknown key in an aborted transaction", aborted + marker + batch(3, [(3, BEHIND)])),
        (TRANSACTION_STATE, "unknown key last in its batch", log_of(GOOD_STATE, unknown[1], together=True)),
    ):
        yield PlantedLog(name=name, topic=topic, data=data)


def deleted_while_pending() -> Iterator[PlantedLog]:
    """A group is deleted, and transactions commit offsets for it. 3.x fails at those that are called refused.

    Each log has a group of its own: the coordinator has one cache for all partitions.
    """
    for number, (name, written) in enumerate(_DELETED_WHILE_PENDING.items()):
        group = f"deleted-p{number:02}"
        commit, other = (key(CONSUMER_OFFSETS, 1, group=group, topic="t", partition=part) for part in (0, 1))
        of_group = key(CONSUMER_OFFSETS, 2, group=group)
        held: Mapping[str, Record] = {
            "offset": (commit, COMMITTED),
            "other offset": (other, COMMITTED),
            "offset removed": (commit, None),
            "group": (of_group, value(CONSUMER_OFFSETS, 2, 3, **EMPTY_GROUP)),
            "deleted": (of_group, None),
            "behind": BEHIND,
        }
        data = b"".join(_written(offset, *one.rpartition(": ")[::2], held) for offset, one in enumerate(written))
        yield PlantedLog(name=name, topic=CONSUMER_OFFSETS, data=data)


# What is written, with the producer before it if it is in a transaction.
_DELETED_WHILE_PENDING: Mapping[str, Sequence[str]] = {
    "refused: deleted in an open transaction": ("group", "7: offset", "deleted", "behind"),
    "refused: deleted before an open transaction": ("deleted", "7: offset", "behind"),
    "refused: its last other offset is removed": ("offset", "7: other offset", "deleted", "offset removed"),
    "refused: one of two transactions is aborted": ("deleted", "7: offset", "8: offset", "7: abort"),
    "refused: again after an abort": ("deleted", "7: offset", "7: abort", "7: offset"),
    "refused: another's transaction is committed": ("7: offset", "8: behind", "deleted", "8: commit"),
    "refused: its offset is removed outside of the transaction": ("7: offset", "deleted", "offset removed"),
    "deleted in a transaction that is committed": ("7: offset", "deleted", "7: commit"),
    "deleted in a transaction that is aborted": ("7: offset", "deleted", "7: abort"),
    "deleted in an open transaction, with another offset": ("offset", "7: other offset", "deleted"),
    "made again in an open transaction": ("deleted", "7: offset", "group"),
    "removed in an open transaction": ("7: offset", "7: offset removed", "deleted"),
    "removed before the transaction is committed": ("7: offset", "offset removed", "deleted", "7: commit"),
}


def _written(offset: int, producer: str, what: str, held: Mapping[str, Record]) -> bytes:
    attributes = TRANSACTIONAL if producer else 0
    record = held.get(what)
    if record is None:  # KIP-98: a marker's key is its version and its type
        attributes, record = attributes | CONTROL, (b"\0\0\0" + bytes([what == "commit"]), bytes(6))
    return batch(offset, [(offset, record)], attributes=attributes, producer=int(producer or -1))


def with_own_groups(data: bytes, number: int) -> bytes:
    """The log with other names of deleted_while_pending's groups, for it to be loaded beside itself."""
    renamed = b""
    for one in batches(data):
        held = bytearray(re.sub(rb"deleted-p\d\d", b"deleted-%03d" % number, bytes(one.data)))
        if one.magic == 2 and held != one.data:
            struct.pack_into(">I", held, 17, crc32c.crc32c(bytes(held[21:])))
        renamed += held
    return renamed


def _named(number: int) -> dict[str, str]:
    layouts = _schemas().layouts(NEWEST, CONSUMER_OFFSETS, number)
    assert layouts is not None
    return {field.name: "n" for field in layouts.key.struct.fields if field.type == "string"}


def _damaged() -> Iterator[PlantedLog]:
    """The last batch is not whole: found as the broker left it, and after an unclean stop."""
    whole = log_of(GOOD, BEHIND)
    flipped = whole[:-9] + bytes([whole[-9] ^ 0xFF]) + whole[-8:]
    for recovered in (False, True):
        for name, data in (("cut tail", whole[:-9]), ("wrong CRC in the tail", flipped)):
            when = "after an unclean stop" if recovered else "after a clean stop"
            yield PlantedLog(name=f"{name} {when}", topic=CONSUMER_OFFSETS, data=data, recovered=recovered)
