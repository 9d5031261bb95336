"""Helpers for the sentences of findings and gates."""

from __future__ import annotations

from collections.abc import Iterable


def few(things: Iterable[object], *, limit: int = 4) -> str:
    """Return the first `limit` items in their order and the number of further items: `a, b, c, d and 12 more`."""
    texts = [str(thing) for thing in things]
    if len(texts) <= limit:
        return ", ".join(texts)
    return f"{', '.join(texts[:limit])} and {len(texts) - limit} more"


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 partition`, `1,204 partitions`."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"


def nodes(ids: Iterable[int]) -> str:
    """Return node ids as text: `node 3`, `nodes 1, 2, 3`."""
    ordered = sorted(ids)
    return f"node{'' if len(ordered) == 1 else 's'} {', '.join(str(node_id) for node_id in ordered)}"


def size(number: float) -> str:
    """Return a number of bytes in its largest decimal unit: `2.2 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"
