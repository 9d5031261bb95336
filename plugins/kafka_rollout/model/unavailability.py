"""Topics whose unavailability during a run is accepted, by name or pattern."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from kafka_rollout.base.errors import UserError

_INTERNAL = "__"
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-*?[]!")


def accepted_topics(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns sorted and without repetitions. Raises UserError for a pattern that no topic can have."""
    found = tuple(sorted(dict.fromkeys(pattern.strip() for pattern in patterns if pattern.strip())))
    for pattern in found:
        if not _LEGAL.issuperset(pattern):
            raise UserError(
                f"{pattern!r} is not the name or pattern of a topic.",
                remedy="Use letters, digits, '.', '_' and '-', and the wildcards '*', '?' and '[…]'.",
            )
    return found


def find_acceptance(patterns: Iterable[str], topic: str) -> str:
    """Return the first pattern that contains the topic; empty if none does.

    A wildcard does not match internal topics such as `__consumer_offsets`, unless its pattern begins with `__` too.
    """
    for pattern in patterns:
        if topic.startswith(_INTERNAL) and not pattern.startswith(_INTERNAL):
            continue
        if fnmatchcase(topic, pattern):
            return pattern
    return ""
