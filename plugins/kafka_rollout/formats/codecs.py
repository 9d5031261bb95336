"""Kafka's compression codecs and checksum: the functions that are not in the standard library."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import cramjam
import lz4.frame
from backports import zstd
from crc32c import crc32c as crc32c  # noqa: PLC0414 — re-exported

from kafka_rollout.formats.log_types import Bytes, Codec, LogFormatError, RecordBatch

MOST_PAYLOAD_BYTES = 128 << 20
"""A batch that decompresses to more is damaged. A coordinator fills a batch up to its topic's max.message.bytes before
it compresses it (1 MiB by default), and no batch is larger than a segment of these topics (100 MiB by default)."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16  # magic, version, lowest compatible version


def _snappy(data: Bytes) -> bytes:
    """Decompress raw snappy, or the blocks of xerial's framing, which Kafka's Java client writes."""
    raw = bytes(data)
    if not raw.startswith(_XERIAL_MAGIC):
        return _snappy_block(raw)
    blocks, at = bytearray(), _XERIAL_HEADER_BYTES
    while at < len(raw):
        end = at + 4 + int.from_bytes(raw[at : at + 4], "big")
        if end > len(raw):
            raise ValueError("a block reaches beyond the end")
        blocks += _snappy_block(raw[at + 4 : end])
        _check_size(len(blocks))
        at = end
    return bytes(blocks)


def _snappy_block(raw: bytes) -> bytes:
    _check_size(cramjam.snappy.decompress_raw_len(raw))
    return bytes(cramjam.snappy.decompress_raw(raw))


def _decompress_stream(decompressor: Any, data: Bytes) -> bytes:
    made = bytes(decompressor.decompress(data, MOST_PAYLOAD_BYTES + 1))
    _check_size(len(made))
    if not decompressor.eof:
        raise ValueError("its stream is cut off")
    return made


def _check_size(size: int) -> None:
    if size > MOST_PAYLOAD_BYTES:
        raise ValueError(f"it decompresses to more than {MOST_PAYLOAD_BYTES >> 20} MiB")


DECOMPRESS: Mapping[int, Callable[[Bytes], bytes]] = {
    Codec.GZIP: lambda data: _decompress_stream(zlib.decompressobj(wbits=31), data),
    Codec.SNAPPY: _snappy,
    Codec.LZ4: lambda data: _decompress_stream(lz4.frame.LZ4FrameDecompressor(), data),
    Codec.ZSTD: lambda data: _decompress_stream(zstd.ZstdDecompressor(), data),
}


def decompressed(batch: RecordBatch, body: Bytes) -> bytes:
    """Return `body` decompressed with the codec of the batch. Raises LogFormatError, which names the batch."""
    if batch.codec not in DECOMPRESS:
        raise LogFormatError(f"The {batch} is compressed with codec {batch.codec}, which is not supported.")
    try:
        return DECOMPRESS[batch.codec](body)
    except Exception as error:
        name = Codec(batch.codec).name.lower()
        raise LogFormatError(f"The {batch} does not decompress as {name}: {error}.") from error
