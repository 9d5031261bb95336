"""What sources hand to the decoding: pieces of a log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Bytes of one partition that begin at a record batch; they need to stay only until the next chunk is asked for.

    Records with start <= offset < end count; a batch counts as one where its last offset lies. `file` and `position`
    say where the bytes lie in a segment. Fetched bytes have no file: what is cut off at their end is no damage then,
    the next fetch brings it whole; any other damage is an error, and ends the scan.
    """

    topic: str
    partition: int
    data: memoryview
    start: int = 0
    end: int = 2**63 - 1
    file: str | None = None
    position: int = 0
