"""Message sets of the formats v0 and v1 give the records that were written; errors in them are reported."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_rollout.formats.coordinator_records import KindCounts
from kafka_rollout.formats.log_types import Codec, LogFormatError
from kafka_rollout.formats.record_batch import batches, check_crc, payload, records
from tools.record_message_sets import FOLDER, RECORDS

LEGACY_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
APPEND_TIME = 0x08

Content = tuple[int, int, bytes | None, bytes | None]  # offset, timestamp, key, value
small = st.none() | st.binary(max_size=60)
contents = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 1 << 50), small, small), min_size=1, max_size=8)


def sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(magic: int, content: Content, attributes: int = 0) -> bytes:
    offset, timestamp, key, value = content
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    body += sized(key) + sized(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def lz4(data: bytes) -> bytes:
    """A frame as Kafka takes it: its reader knows independent blocks alone."""
    compressor = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


def broken_lz4(data: bytes) -> bytes:
    """A frame whose header checksum is not right, as v0 has them."""
    frame = bytearray(lz4(data))
    frame[14 if frame[4] & 8 else 6] ^= 0xFF
    return bytes(frame)


COMPRESS: dict[tuple[int, Codec], Callable[[bytes], Any]] = {  # by magic
    (magic, codec): compress
    for magic, of_magic in ((0, broken_lz4), (1, lz4))
    for codec, compress in (
        (Codec.NONE, bytes),
        (Codec.GZIP, cramjam.gzip.compress),
        (Codec.SNAPPY, cramjam.snappy.compress_raw),
        (Codec.LZ4, of_magic),
    )
}


def wrapped(magic: int, codec: Codec, content: list[Content], attributes: int = 0) -> bytes:
    """A compressed message: offsets within it are absolute in v0, from 0 on in v1."""
    first = content[0][0] if magic else 0
    inner = b"".join(message(magic, (offset - first, *rest)) for offset, *rest in content)  # type: ignore[arg-type]
    time = max(timestamp for _, timestamp, _, _ in content)
    return message(magic, (content[-1][0], time, None, bytes(COMPRESS[magic, codec](inner))), codec | attributes)


def write(magic: int, codec: Codec, content: list[Content]) -> bytes:
    if codec is Codec.NONE:
        return b"".join(message(magic, one) for one in content)
    return wrapped(magic, codec, content)


def decode(log: bytes) -> list[Content]:
    def part(data: bytes, at: int, length: int) -> bytes | None:
        return None if length < 0 else data[at : at + length]

    found = []
    for batch in batches(log):
        check_crc(batch)
        data = payload(batch)
        found += [
            (r.offset, r.timestamp, part(data, r.key_at, r.key_length), part(data, r.value_at, r.value_length))
            for r in records(batch, data)
        ]
    return found


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", LEGACY_CODECS, ids=lambda codec: codec.name.lower())
@given(drawn=contents, base=st.integers(1, 1 << 40))
def test_what_was_written_is_read(magic: int, codec: Codec, drawn: list[Content], base: int) -> None:
    content, offset = [], base
    for gap, timestamp, key, value in drawn:  # the cleaner leaves gaps between offsets
        content.append((offset, timestamp, key, value))
        offset += gap
    expected = [(offset, timestamp if magic else -1, key, value) for offset, timestamp, key, value in content]
    assert decode(write(magic, codec, content)) == expected


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", LEGACY_CODECS, ids=lambda codec: codec.name.lower())
def test_what_kafkas_own_builder_wrote_is_read(magic: int, codec: Codec) -> None:
    log = (FOLDER / f"v{magic}-{codec.name.lower()}.bin").read_bytes()
    assert decode(log) == [(offset, time if magic else -1, key, value) for offset, time, key, value in RECORDS]


def test_records_of_all_three_formats_in_one_log_are_classed_alike() -> None:
    key, value = b"\x00\x01k", b"\x00\x03v"
    log = message(0, (3, 0, key, value)) + wrapped(0, Codec.GZIP, [(4, 0, key, None), (6, 0, key, value)])
    log += message(1, (7, 5, b"\x00\x02", value)) + wrapped(
        1, Codec.LZ4, [(8, 5, key, value), (9, 5, key, b"\x00\x01")]
    )
    counts = KindCounts()
    counts.add(log, start=0, end=1 << 60)
    assert counts.first_offsets == {(1, 3): 3, (1, None): 4, (2, 3): 7, (1, 1): 9}
    assert dict(counts.counts) == {(1, 3): 3, (1, None): 1, (2, 3): 1, (1, 1): 1}
    assert (counts.batches, counts.control_batches, counts.log_bytes) == (4, 0, len(log))


def test_a_range_may_begin_and_end_within_a_compressed_message() -> None:
    log = wrapped(1, Codec.GZIP, [(offset, 0, b"\x00\x01", b"\x00\x01") for offset in range(10, 20)])
    parts = []
    for start, end in ((0, 12), (12, 15), (15, 40)):
        counts = KindCounts()
        counts.add(log, start=start, end=end)
        parts.append(counts.counts.total())
    assert parts == [2, 3, 5]


def test_with_log_append_time_the_wrappers_timestamp_holds_for_all() -> None:
    content = [(5, 111, b"a", b""), (6, 222, b"b", b"")]
    assert [timestamp for _, timestamp, _, _ in decode(wrapped(1, Codec.GZIP, content, APPEND_TIME))] == [222, 222]
    assert [timestamp for _, timestamp, _, _ in decode(wrapped(1, Codec.GZIP, content))] == [111, 222]


def test_a_wrapper_left_at_offset_0_by_old_librdkafka_has_absolute_offsets_within() -> None:
    inner = message(1, (0, 1, b"a", b"")) + message(1, (1, 1, b"b", b""))
    log = message(1, (0, 1, None, zlib.compress(inner, wbits=31)), Codec.GZIP)
    assert [offset for offset, *_ in decode(log)] == [0, 1]


def test_attributes_that_the_old_formats_do_not_have_make_no_control_batch() -> None:
    (batch,) = batches(message(1, (1, 2, b"k", b"v"), attributes=0x70))
    assert not batch.is_control
    assert not batch.is_transactional


def test_a_message_that_was_cut_off_ends_the_iteration() -> None:
    first, second = message(0, (1, 0, b"k", b"v")), message(1, (2, 0, b"k", b"v"))
    for cut in range(len(second)):
        assert len(list(batches(first + second[:cut]))) == 1


@given(position=st.integers(0, 10_000), bit=st.integers(0, 7), magic=st.integers(0, 1))
def test_a_flipped_bit_behind_the_length_is_never_read_as_if_nothing_were_wrong(
    position: int, bit: int, magic: int
) -> None:
    whole = bytearray(write(magic, Codec.GZIP, [(1, 2, b"key", b"value")] * 3))
    at = 12 + position % (len(whole) - 12)
    whole[at] ^= 1 << bit
    with pytest.raises(LogFormatError):
        decode(bytes(whole))


@given(
    magic=st.integers(0, 1),
    codec=st.sampled_from(LEGACY_CODECS),
    data=st.binary(max_size=120),
    flips=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=4),
)
def test_no_message_set_with_a_right_checksum_raises_anything_else(
    magic: int, codec: Codec, data: bytes, flips: list[tuple[int, int]]
) -> None:
    inner = bytearray(message(magic, (1, 2, b"k", b"v")) + message(magic, (2, 2, None, None)) + data)
    for at, value in flips:
        inner[at % len(inner)] = value
    pack = {
        Codec.GZIP: cramjam.gzip.compress,
        Codec.SNAPPY: cramjam.snappy.compress_raw,
        Codec.LZ4: cramjam.lz4.compress,
    }
    body = bytes(pack[codec](bytes(inner))) if codec in pack else bytes(inner)
    for value in (body, bytes(inner)):
        try:
            decode(message(magic, (7, 2, None, value), codec))
        except LogFormatError:
            continue


def gzip_of(inner: bytes, magic: int = 1, offset: int = 9) -> bytes:
    return message(magic, (offset, 0, None, zlib.compress(inner, wbits=31)), Codec.GZIP)


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (message(1, (9, 0, None, b""), Codec.ZSTD), "message at offset 9 is compressed with zstd, which the format v1"),
        (message(1, (9, 0, None, b""), 6), "message at offset 9 is compressed with codec 6, which is not supported"),
        (message(1, (9, 0, None, None), Codec.GZIP), "a compressed value that is null"),
        (message(1, (9, 0, None, b"no gzip"), Codec.GZIP), "does not decompress as gzip"),
        (message(0, (9, 0, None, b"lz4"), Codec.LZ4), "does not decompress as lz4"),
        (gzip_of(b""), "no message in its compressed value"),
        (gzip_of(message(1, (12, 0, b"", b""))), "a wrapped message at offset 12"),
        (gzip_of(gzip_of(message(1, (0, 0, b"", b"")))), "a compressed message within a compressed message"),
        (gzip_of(message(2, (0, 0, b"", b""))), "a wrapped message of .* bytes with magic 2"),
        (gzip_of(struct.pack(">qi", 0, 5) + bytes(5)), "a wrapped message of 5 bytes"),
    ],
)
def test_an_error_of_a_message_names_its_offset(log: bytes, reason: str) -> None:
    with pytest.raises(LogFormatError, match=reason):
        decode(log)


def test_bytes_behind_the_last_whole_wrapped_message_are_left_alone_as_kafka_does() -> None:
    assert [offset for offset, *_ in decode(gzip_of(message(1, (4, 0, b"", b"")) + bytes(11)))] == [9]


def test_a_key_that_reaches_beyond_its_message_is_corrupt() -> None:
    log = bytearray(message(0, (1, 0, b"key", b"value")))
    struct.pack_into(">i", log, 18, 100)
    struct.pack_into(">I", log, 12, zlib.crc32(log[16:]))
    with pytest.raises(LogFormatError, match="whose key or value reaches beyond it"):
        decode(bytes(log))
