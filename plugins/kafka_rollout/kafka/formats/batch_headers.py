"""Headers of record batches in the formats v0 to v2, sufficient to step from batch to batch."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kafka_rollout.kafka.formats.log_types import Bytes

LEAST_LENGTH = (14, 22, 49)  # by magic: the least number of bytes after the length field
MAGIC_AT = 16  # the same in all formats
PREFIX = struct.Struct(">qi")  # base offset (v0, v1: offset), length of the rest
_LENGTH_AT, _EPOCH_AT, _LAST_DELTA_AT = 8, 12, 23
_HEADER_BYTES = _LAST_DELTA_AT + 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeader:
    """The header of a batch at byte `position` of a file. `leader_epoch`: −1 if the format has none."""

    position: int
    magic: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int


def header_at(block: Bytes, at: int, position: int) -> BatchHeader | None:
    """Return the header at byte `at` of a block, `position` in the file; None if these bytes cannot begin a batch."""
    if at + MAGIC_AT >= len(block):
        return None
    base_offset, length = PREFIX.unpack_from(block, at)
    magic = block[at + MAGIC_AT]
    if base_offset < 0 or magic >= len(LEAST_LENGTH) or length < LEAST_LENGTH[magic]:
        return None
    delta, leader_epoch = 0, -1
    if magic == 2:
        delta = int.from_bytes(block[at + _LAST_DELTA_AT : at + _HEADER_BYTES], signed=True)
        leader_epoch = int.from_bytes(block[at + _EPOCH_AT : at + MAGIC_AT], signed=True)
    if delta < 0:
        return None
    return BatchHeader(
        position=position,
        magic=magic,
        size=PREFIX.size + length,
        base_offset=base_offset,
        last_offset=base_offset + delta,
        leader_epoch=leader_epoch,
    )


def last_header(data: Bytes) -> BatchHeader | None:
    """Return the header of the last complete batch; None without one. Only lengths are read before it.

    If the bytes there cannot begin a batch, every header is read, and the last one before such bytes is returned.
    """
    begin, end, size = -1, 0, len(data)
    while end + PREFIX.size <= size:
        length = int.from_bytes(data[end + _LENGTH_AT : end + PREFIX.size], signed=True)
        after = end + PREFIX.size + length
        if length <= 0 or after > size:
            break
        begin, end = end, after
    if begin < 0:
        return None
    return header_at(data, begin, begin) or _last_before_damage(data)


def _last_before_damage(data: Bytes) -> BatchHeader | None:
    last, position = None, 0
    while (header := header_at(data, position, position)) is not None and position + header.size <= len(data):
        last, position = header, position + header.size
    return last
