"""Writes coordinator logs of any size that real brokers can load: batches with committed offsets and groups.

    python -m bench.scan.coordinator_log DIR --mebibytes 2048 --codecs none lz4 zstd --keys 1000000 --partitions 4

writes DIR/__consumer_offsets-<n>/ with segments and their indexes, and prints sizes and record counts. The codec
changes with every batch. A batch is created once from its keys. When the keys repeat, only its base offset changes,
which is not part of the CRC.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import cramjam
import crc32c
import lz4.frame
import numpy as np
import numpy.typing as npt
from kafka.record.default_records import DefaultRecordBatchBuilder

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.formats.documents.definitions import Schemas, load_schemas
from kafka_rollout.formats.log_types import Codec
from kafka_rollout.formats.messages import encode
from kafka_rollout.releases.facts import Release

TOPIC = "__consumer_offsets"
RECORDS_PER_BATCH = 100  # each with a different key; one is a group's metadata, one a tombstone
_GROUP_AT, _TOMBSTONE_AT = 99, 50
_KEYS_PER_GROUP = 10
_RELEASE = Release(3, 9, 1)
_OFFSET_COMMIT, _GROUP_METADATA, _VALUE_VERSION = 1, 2, 3
_TIMESTAMP = 1_700_000_000_000
_OFFSET = 0x0102030405  # placeholder for a committed offset in the template
_DIGITS = 16  # hexadecimal digits of a group's hashed number
_HEXADECIMAL = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_HEADER_BYTES, _LENGTH_FROM, _CRC_AT, _ATTRIBUTES_AT = 61, 12, 17, 21
_SEGMENT_BYTES = 100 << 20  # offsets.topic.segment.bytes
_INDEX_BYTES = 4096  # log.index.interval.bytes
_MOST_KEPT = 20_000  # largest number of batches that are kept in memory and repeated

COMPRESS: dict[Codec, Callable[[bytes], Any]] = {
    Codec.NONE: lambda data: data,
    Codec.GZIP: cramjam.gzip.compress,
    Codec.SNAPPY: cramjam.snappy.compress_raw,
    Codec.LZ4: partial(lz4.frame.compress, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False),
    Codec.ZSTD: cramjam.zstd.compress,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlan:
    """A log to write. `log_bytes`: of all partitions. `keys`: distinct keys at most, rounded up to whole batches."""

    log_bytes: int
    codecs: tuple[Codec, ...] = (Codec.NONE, Codec.LZ4, Codec.ZSTD)
    keys: int = 1_000_000
    partitions: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    folder: Path
    log_bytes: int
    records: int


def write_log(folder: Path, plan: LogPlan) -> tuple[Written, ...]:
    """Write partitions of equal size, one after the other; each key is in one of them."""
    partition_bytes = plan.log_bytes // plan.partitions
    first = 0
    done = []
    for partition in range(plan.partitions):
        different = max(1, -(-plan.keys // plan.partitions // RECORDS_PER_BATCH))
        batches = make_batches(plan.codecs, different, first)
        done.append(_write_partition(folder / f"{TOPIC}-{partition}", batches, partition_bytes))
        first += different
    return tuple(done)


def make_batches(codecs: Sequence[Codec], different: int, first: int = 0) -> Iterator[bytearray]:
    """Yield batches without end, with base offsets from 0. After `different` batches the keys repeat."""
    maker = _Maker(codecs)
    kept: dict[int, bytearray] = {}
    for number in itertools.count():
        index = number % different
        batch = kept.get(index)
        if batch is None:
            batch = maker.make(first + index)
            if different <= _MOST_KEPT:
                kept[index] = batch
        struct.pack_into(">q", batch, 0, number * RECORDS_PER_BATCH)
        yield batch


def _write_partition(folder: Path, batches: Iterator[bytearray], log_bytes: int) -> Written:
    folder.mkdir(parents=True)
    written = records = 0
    batch = next(batches)
    while written < log_bytes:
        base, position, indexed, index = records, 0, 0, bytearray()
        with (folder / f"{base:020}.log").open("wb", buffering=1 << 20) as segment:
            while written + position < log_bytes and position + len(batch) <= _SEGMENT_BYTES:
                if position - indexed > _INDEX_BYTES:
                    # As in a broker, the entry contains the last offset of the batch.
                    index += struct.pack(">ii", records + RECORDS_PER_BATCH - 1 - base, position)
                    indexed = position
                segment.write(batch)
                position += len(batch)
                records += RECORDS_PER_BATCH
                batch = next(batches)
        (folder / f"{base:020}.index").write_bytes(index)
        written += position
    return Written(folder=folder, log_bytes=written, records=records)


class _Maker:
    """Creates batch number n, with the next codec and with the keys after those of batch n − 1."""

    def __init__(self, codecs: Sequence[Codec]) -> None:
        self._codecs = codecs
        self._template, groups, offsets = _template()
        self._digits = np.array(groups)[:, None] + np.arange(_DIGITS)
        self._shifts = np.arange(4 * _DIGITS - 4, -1, -4, dtype=np.uint64)
        self._offsets = np.array(offsets)[:, None] + np.arange(3)
        # Committed offsets differ from record to record. Equal ones would compress much better than real logs.
        self._random = np.random.default_rng(12)

    def make(self, number: int) -> bytearray:
        codec = self._codecs[number % len(self._codecs)]
        whole = self._template.copy()
        groups = (number * RECORDS_PER_BATCH + np.arange(RECORDS_PER_BATCH)) // _KEYS_PER_GROUP
        mixed = groups.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # odd, so two groups never get the same hash
        whole[self._digits] = _HEXADECIMAL[mixed[:, None] >> self._shifts & np.uint64(15)]
        whole[self._offsets] = self._random.integers(0, 256, size=self._offsets.shape, dtype=np.uint8)
        batch = bytearray(whole[:_HEADER_BYTES].tobytes())
        batch += COMPRESS[codec](whole[_HEADER_BYTES:].tobytes())
        struct.pack_into(">h", batch, _ATTRIBUTES_AT, codec)
        struct.pack_into(">i", batch, 8, len(batch) - _LENGTH_FROM)
        struct.pack_into(">I", batch, _CRC_AT, crc32c.crc32c(memoryview(batch)[_ATTRIBUTES_AT:]))
        return batch


def _template() -> tuple[npt.NDArray[np.uint8], list[int], list[int]]:
    """Return a batch, the positions of the groups' numbers, and those of the lower bytes of the committed offsets."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 30)
    names = [f"payments-{number:0{_DIGITS}}" for number in range(RECORDS_PER_BATCH)]
    noise = random.Random(12)
    for number, name in enumerate(names):
        committed_at = _TIMESTAMP + 7 * (number // _KEYS_PER_GROUP)  # one request per group
        if number == _GROUP_AT:
            key, value = _group(name)
        else:
            key, value = _commit(name, number % _KEYS_PER_GROUP, committed_at, noise)
        builder.append(number, committed_at, key, None if number == _TOMBSTONE_AT else value, [])
    batch = bytes(builder.build())
    groups, offsets = [], []
    for number, name in enumerate(names):
        groups.append(batch.index(name.encode()) + len(name) - _DIGITS)
        if number not in (_GROUP_AT, _TOMBSTONE_AT):
            offsets.append(batch.index(struct.pack(">q", _OFFSET), groups[-1]) + 5)
    return np.frombuffer(batch, dtype=np.uint8), groups, offsets


def _commit(group: str, partition: int, committed_at: int, noise: random.Random) -> tuple[bytes, bytes]:
    """Return key and value of a commit as Kafka Streams writes it (TopicPartitionMetadata).

    The metadata is version 2 and the partition time in base64. The partition time is in the last minute.
    """
    partition_time = committed_at - noise.randrange(60_000)
    key = {"group": group, "topic": f"orders.events.{noise.randrange(1 << 16):04x}", "partition": partition}
    value = {
        "offset": _OFFSET,
        "leaderEpoch": 3,
        "metadata": base64.b64encode(struct.pack(">bq", 2, partition_time)).decode(),
        "commitTimestamp": committed_at,
    }
    return _message(_OFFSET_COMMIT, key, value)


def _group(group: str) -> tuple[bytes, bytes]:
    member = {
        "memberId": "consumer-1-6ea1b2c4-54ab-4d35-8c0b-2b1f3b6f3b6f",
        "clientId": "consumer-1",
        "clientHost": "/10.0.0.1",
        "rebalanceTimeout": 300_000,
        "sessionTimeout": 45_000,
        "subscription": bytes(24),
        "assignment": bytes(60),
    }
    value = {
        "protocolType": "consumer",
        "generation": 7,
        "protocol": "range",
        "leader": member["memberId"],
        "currentStateTimestamp": _TIMESTAMP,
        "members": [member],
    }
    return _message(_GROUP_METADATA, {"group": group}, value)


@lru_cache
def _schemas() -> Schemas:
    return load_schemas(*Settings.from_environment().catalogue_folders)


def _message(key_version: int, key: dict[str, Any], value: dict[str, Any]) -> tuple[bytes, bytes]:
    layouts = _schemas().layouts(_RELEASE, TOPIC, key_version)
    assert layouts is not None  # noqa: S101 - every release has these
    versions = (struct.pack(">h", version) for version in (key_version, _VALUE_VERSION))
    messages = (encode(layouts.key, key), encode(layouts.value.layout(_VALUE_VERSION), value))
    key_bytes, value_bytes = (version + message for version, message in zip(versions, messages, strict=True))
    return key_bytes, value_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mebibytes", type=int, default=2048, help="size of all partitions")
    parser.add_argument("--codecs", nargs="+", default=["none", "lz4", "zstd"], choices=[c.name.lower() for c in Codec])
    parser.add_argument("--keys", type=int, default=1_000_000, help="distinct keys")
    parser.add_argument("--partitions", type=int, default=1)
    options = parser.parse_args()
    plan = LogPlan(
        log_bytes=options.mebibytes << 20,
        codecs=tuple(Codec[name.upper()] for name in options.codecs),
        keys=options.keys,
        partitions=options.partitions,
    )
    for written in write_log(options.folder, plan):
        print(f"{written.folder}: {written.log_bytes >> 20} MiB, {written.records} records")


if __name__ == "__main__":
    main()
