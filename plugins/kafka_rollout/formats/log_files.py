"""Names of the files in a partition's folder, and which of them are its log after a start of Kafka.

Source: org.apache.kafka.storage.internals.log (LogFileUtils, LogLoader.load; before 3.5 kafka.log.LogLoader). The log
cleaner writes `.cleaned`, renames it to `.swap` when it is complete, renames the old segments to `.deleted`, and then
`.swap` to its final name. So between two renames a `.swap` replaces the segments that begin in its range, and
`.cleaned` and `.deleted` are never part of the log. A `.swap` at or after a `.cleaned` is of a split that did not end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

DELETED = ".deleted"
SWAP = ".swap"
CLEANED = ".cleaned"
OFFSET_DIGITS = 20
_OFFSET = re.compile(r"([0-9]{20})\.")
SEGMENT = re.compile(r"([0-9]{20})\.log")
_SWAP_SEGMENT = re.compile(r"([0-9]{20})\.log\.swap")
MAYBE_SEGMENT = re.compile(r"([0-9]{20})\.log(?:\.swap)?")
"""Names that can be segments; `segment_names` decides."""


def base_offset(name: str) -> int:
    """Return the offset in the name of a segment, an index or a `.swap` of one."""
    return int(name[:OFFSET_DIGITS])


def segment_names(names: Iterable[str], end_of: Callable[[str], int]) -> tuple[str, ...]:
    """Return the files that are the segments of the log, in the order of their offsets.

    `end_of`: the offset after the last record of a `.swap` file; its base offset if it has no records.
    """
    names = list(names)
    cleaned = [base_offset(name) for name in names if name.endswith(CLEANED) and _OFFSET.match(name)]
    swaps = [
        name
        for name in names
        if _SWAP_SEGMENT.fullmatch(name) and base_offset(name) < min(cleaned, default=base_offset(name) + 1)
    ]
    segments = [name for name in names if SEGMENT.fullmatch(name)]
    if swaps:
        first, end = min(map(base_offset, swaps)), max(map(end_of, swaps))
        kept = {base_offset(name) for name in swaps}
        segments = [name for name in segments if not first <= base_offset(name) < end and base_offset(name) not in kept]
    return tuple(sorted((*segments, *swaps), key=base_offset))
