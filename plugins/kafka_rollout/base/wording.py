"""Helpers for the sentences of findings and gates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

_LISTED_NODES = 8


def few(things: Iterable[object], *, limit: int = 4) -> str:
    """Return the first `limit` items in their order and the number of further items: `a, b, c, d and 12 more`."""
    texts = [str(thing) for thing in things]
    if len(texts) <= limit:
        return ", ".join(texts)
    return f"{', '.join(texts[:limit])} and {len(texts) - limit} more"


def few_quoted(texts: Iterable[str], *, limit: int = 20) -> str:
    """Return as `few`, each text in back quotes, as commands and settings are shown."""
    return few((f"`{text}`" for text in texts), limit=limit)


def few_sentences(sentences: Iterable[str], *, limit: int = 20, rest: str = "And {} more.") -> str:
    """Return the first `limit` sentences in their order, and `rest` with the number of the others."""
    texts = list(sentences)
    more = [rest.format(len(texts) - limit)] if len(texts) > limit else []
    return " ".join([*texts[:limit], *more])


def few_failures(sentences: Iterable[str], things: str, *, limit: int = 3) -> str:
    """Return the first different sentences, and the number of the others: `… 197 more nodes do not respond.`"""
    return few_sentences(dict.fromkeys(sentences), limit=limit, rest=f"{{}} more {things} do not respond.")


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 partition`, `1,204 partitions`. `plural`: with another ending."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def nodes(ids: Iterable[int]) -> str:
    """Return node ids as text: `node 3`, `nodes 1, 2, 3`; of more than eight ids with ranges: `nodes 1, 101 to 300`.

    No id is left out, because findings are compared by such texts.
    """
    ordered = sorted(ids)
    listed = [str(node_id) for node_id in ordered] if len(ordered) <= _LISTED_NODES else list(_ranges(ordered))
    return f"node{'' if len(ordered) == 1 else 's'} {', '.join(listed)}"


def _ranges(ordered: Sequence[int]) -> Iterator[str]:
    for _, run in groupby(enumerate(ordered), key=lambda item: item[1] - item[0]):
        found = [node_id for _, node_id in run]
        if len(found) < 3:
            yield from map(str, found)
        else:
            yield f"{found[0]} to {found[-1]}"


def size(number: float) -> str:
    """Return a number of bytes in its largest decimal unit: `2.2 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def without_counts(line: str) -> str:
    """Replace the numbers after the first colon, so that a line with other counts only is known as the same line."""
    subject, colon, why = line.partition(": ")
    return subject + colon + re.sub(r"\d+", "#", why)
