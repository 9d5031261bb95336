"""Batches of real brokers decode to what an independent consumer counted; no bytes make the decoder misbehave."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from kafka_rollout.formats.codecs import crc32c
from kafka_rollout.formats.coordinator_records import UNREADABLE_VALUE, KindCounts
from kafka_rollout.formats.log_types import Codec, LogFormatError, RecordBatch
from kafka_rollout.formats.record_batch import batches, payload, records
from tests.paths import FIXTURES

LOGS = sorted(FIXTURES.glob("coordinator-logs-*"))
HEADER_BYTES, ATTRIBUTES_AT, CRC_AT = 61, 21, 17

KeysAndValues = list[tuple[bytes | None, bytes | None]]
a_record = st.tuples(st.none() | st.binary(max_size=300), st.none() | st.binary(max_size=300))


def encode(
    content: KeysAndValues,
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    control: bool = False,
    transactional: bool = False,
    producer_id: int = -1,
) -> bytes:
    """A batch as kafka-python, which shares no code with ours, writes it; then compressed and moved to its offset."""
    builder = DefaultRecordBatchBuilder(2, 0, False, producer_id, -1, -1, 1 << 30)
    for delta, (key, value) in enumerate(content):
        builder.append(delta, 1_700_000_000_000, key, value, [("header", b"stepped over")])
    batch = bytearray(builder.build())
    attributes = codec | (0x20 if control else 0) | (0x10 if transactional else 0)
    body = bytes(COMPRESS[codec](bytes(batch[HEADER_BYTES:])))
    batch[HEADER_BYTES:] = body
    struct.pack_into(">hi", batch, ATTRIBUTES_AT, attributes, max(0, len(content) - 1))
    struct.pack_into(">I", batch, CRC_AT, crc32c(bytes(batch[ATTRIBUTES_AT:])))
    struct.pack_into(">qi", batch, 0, base_offset, len(batch) - 12)
    return bytes(batch)


def xerial(data: bytes) -> bytes:
    blocks = b""
    for at in range(0, len(data), 100):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + 100]))
        blocks += struct.pack(">i", len(block)) + block
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + blocks


COMPRESS: dict[Codec, Callable[[bytes], Any]] = {
    Codec.NONE: lambda data: data,
    Codec.GZIP: cramjam.gzip.compress,
    Codec.SNAPPY: xerial,
    Codec.LZ4: cramjam.lz4.compress,
    Codec.ZSTD: cramjam.zstd.compress,
}


def decode(buffer: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    def part(data: bytes, at: int, length: int) -> bytes | None:
        return None if length < 0 else data[at : at + length]

    return [
        (r.offset, part(data, r.key_at, r.key_length), part(data, r.value_at, r.value_length))
        for batch in batches(buffer)
        for data in [payload(batch)]
        for r in records(batch, data)
    ]


def count(buffer: bytes, start: int = 0, end: int = 1 << 60) -> KindCounts:
    counts = KindCounts()
    counts.add(buffer, start=start, end=end)
    return counts


@given(content=st.lists(a_record, min_size=1, max_size=20), codec=st.sampled_from(Codec), base=st.integers(0, 1 << 50))
def test_what_was_encoded_is_decoded(content: KeysAndValues, codec: Codec, base: int) -> None:
    found = decode(encode(content, base_offset=base, codec=codec))
    assert found == [(base + delta, key, value) for delta, (key, value) in enumerate(content)]


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda tail: encode([(b"key", b"value")]) + tail))
def test_no_bytes_raise_anything_but_the_decoders_own_error(buffer: bytes) -> None:
    try:
        count(buffer)
    except LogFormatError:
        return


@given(data=st.binary(max_size=200), number=st.integers(0, 2**31 - 1))
def test_no_payload_with_a_right_crc_raises_anything_else(data: bytes, number: int) -> None:
    batch = RecordBatch(
        position=0,
        magic=2,
        base_offset=0,
        last_offset=number,
        crc=0,
        attributes=0,
        base_timestamp=0,
        max_timestamp=0,
        record_count=number,
        data=memoryview(b""),
    )
    try:
        list(records(batch, data))
    except LogFormatError:
        return


@given(position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_behind_the_length_is_never_read_as_if_nothing_were_wrong(position: int, bit: int) -> None:
    whole = bytearray(encode([(b"\x00\x01key", b"\x00\x03value")] * 3, codec=Codec.ZSTD))
    # Offset, length and leader epoch lie outside the CRC; all else, magic and CRC included, must be noticed.
    at = 16 + position % (len(whole) - 16)
    whole[at] ^= 1 << bit
    with pytest.raises(LogFormatError):
        count(bytes(whole))


def test_a_batch_that_was_cut_off_ends_the_iteration() -> None:
    first, second = encode([(b"a", b"b")]), encode([(b"c", b"d")], base_offset=1)
    for cut in range(len(second)):
        assert len(list(batches(first + second[:cut]))) == 1
    assert len(list(batches(first + second))) == 2


def test_a_codec_that_is_not_read_is_named() -> None:
    batch = bytearray(encode([(b"a", b"b")], base_offset=5))
    struct.pack_into(">h", batch, ATTRIBUTES_AT, 5)
    struct.pack_into(">I", batch, CRC_AT, crc32c(bytes(batch[ATTRIBUTES_AT:])))
    with pytest.raises(LogFormatError, match="offset 5 is compressed with codec 5"):
        count(bytes(batch))


def test_control_batches_are_counted_apart() -> None:
    counts = count(encode([(b"\x00\x01", b"\x00\x00")]) + encode([(b"\x00\x00\x00\x01", b"")], control=True))
    assert (counts.batches, counts.control_batches, dict(counts.counts)) == (2, 1, {(1, 0): 1})


def test_classes_tell_tombstones_short_values_and_keys_without_a_version_apart() -> None:
    content: KeysAndValues = [
        (b"\x00\x05g", None),
        (b"\x00\x05g", b"\x01"),
        (None, b"\x00\x00"),
        (b"\x01", b"\x00\x07"),
    ]
    counts = count(encode(content, base_offset=40))
    assert counts.first_offsets == {(5, None): 40, (5, UNREADABLE_VALUE): 41, (None, 0): 42, (None, 7): 43}


@given(ends=st.lists(st.integers(0, 30), max_size=4))
def test_neighbouring_ranges_count_every_record_once(ends: list[int]) -> None:
    log = b"".join(encode([(b"\x00\x02", b"\x00\x03")] * 10, base_offset=base) for base in (0, 10, 20))
    cuts = sorted({0, 30, *ends})
    parts = [count(log, start, end).counts.total() for start, end in pairwise(cuts)]
    assert parts == [end - start for start, end in pairwise(cuts)]


@pytest.mark.parametrize("folder", LOGS, ids=lambda folder: folder.name)
def test_logs_of_real_brokers_hold_what_an_independent_consumer_counted(folder: Path) -> None:
    expected = json.loads((folder / "classes.json").read_text())
    found = []
    for log in expected["logs"]:
        path = folder / f"{log['topic']}-{log['partition']}.fetch"
        if not path.exists():
            continue
        counts = count(path.read_bytes(), log["start"], log["end"])
        found += [
            {
                "topic": log["topic"],
                "partition": log["partition"],
                "key_version": key_version,
                "value_version": value_version,
                "count": number,
                "first_offset": counts.first_offsets[key_version, value_version],
            }
            for (key_version, value_version), number in counts.counts.items()
        ]
    found.sort(key=lambda c: (c["topic"], c["partition"], c["first_offset"]))
    assert found == expected["classes"]


def test_fixtures_hold_every_codec_and_control_batches() -> None:
    assert len(LOGS) >= 2
    codecs, control = set(), 0
    for path in (path for folder in LOGS for path in folder.glob("*.fetch")):
        for batch in batches(path.read_bytes()):
            codecs.add(batch.attributes & 7)
            control += batch.is_control
    assert codecs == set(Codec)
    assert control
