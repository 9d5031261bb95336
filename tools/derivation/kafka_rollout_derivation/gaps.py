"""Facts that cannot be derived: the reason becomes part of the release's facts, and no value is guessed.

Kafka moves its classes between releases. So a fact is derived in several ways where the jars allow it. Ways that work
must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError, Py4JNetworkError

from kafka_rollout.base.errors import FatalError
from kafka_rollout.releases.jvm.jvm import java_class, root_cause

T = TypeVar("T")
_LONGEST = 300


class NotDerivedError(Exception):
    """The jars do not show the fact. The message is the reason, a sentence."""


class Gaps:
    """The facts of one release that were not derived: name of the fact → reason."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}

    def derive(self, fact: str, way: Callable[[], T], otherwise: T) -> T:
        """Return what `way` derives. If it fails, record the gap and return `otherwise`.

        Raises FatalError if the Java process exited: then nothing is known about the release.
        """
        try:
            return way()
        except Exception as error:
            self.reasons[fact] = reason_of(error)
            return otherwise


def first_of(*ways: Callable[[], T]) -> T:
    """Return the value of the first way that works. Raises NotDerivedError with all reasons if none works."""
    return next(_found_by(ways))


def agreed(*ways: Callable[[], T]) -> T:
    """Return the value on which all ways that work agree.

    Raises NotDerivedError if two ways differ, or with all reasons if none works.
    """
    found: list[Any] = list(_found_by(ways))
    if any(one != found[0] for one in found[1:]):
        shown = [sorted(one ^ found[0]) if isinstance(one, frozenset) else one for one in found[1:]]
        raise NotDerivedError(f"The release's classes contradict each other: {', '.join(map(str, shown))}.")
    value: T = found[0]
    return value


def _found_by(ways: Sequence[Callable[[], T]]) -> Iterator[T]:
    """Yield the value of each way that works. Raises NotDerivedError with all reasons if none works."""
    reasons = []
    for way in ways:
        try:
            found = way()
        except Exception as error:
            reasons.append(reason_of(error))
        else:
            yield found
    if len(reasons) == len(ways):
        raise NotDerivedError(" ".join(dict.fromkeys(reasons)))


def reason_of(error: Exception) -> str:
    """Return one sentence for any error of a derivation. Raises FatalError if the Java process exited."""
    if isinstance(error, Py4JNetworkError):
        raise FatalError(
            "The Java process of the derivation exited.", remedy="Check the free memory, then repeat the command."
        ) from error
    if isinstance(error, Py4JJavaError):
        cause = root_cause(error)
        text = f"{java_class(error)}: {cause.getClass().getName()}: {cause.getMessage()}"
    elif isinstance(error, NotDerivedError | AssertionError):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    line = " ".join(text.split())[:_LONGEST].rstrip(".") or type(error).__name__
    return f"{line[:1].upper()}{line[1:]}."
