"""The input of the decoding: record batches of one partition."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBytes:
    """Bytes of one partition that begin at a record batch. They must stay valid until the next LogBytes are read.

    Records with start <= offset < end count; a batch counts if its last offset is in this range. `file` and `position`
    are the place of the bytes in a segment. Fetched bytes have no file: the place of damage in them is an offset.
    """

    topic: str
    partition: int
    data: memoryview
    start: int = 0
    end: int = 2**63 - 1
    file: str | None = None
    position: int = 0
