"""Numbers of variable length, as records and messages have them."""

from __future__ import annotations


def unsigned_varint(value: int) -> bytes:
    """Return a number of at least 0 as an unsigned varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag_varint(value: int) -> bytes:
    """Return a number as a signed varint, as in records of batches."""
    return unsigned_varint((value << 1) ^ (value >> 63))
