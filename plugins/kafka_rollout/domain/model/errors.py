"""Errors, split by the reaction they call for.

The class decides what happens next: a step retries a `TransientError`, stops for a person on a `FatalError`,
refuses on a `RefusedError` and sends a `UserError` back to whoever typed it. Every error is one sentence that
names the thing, and a remedy.
"""

from __future__ import annotations


class RolloutError(Exception):
    """Base of all our errors: `sentence` names what is wrong, `remedy` the way out (may be empty)."""

    exit_code = 1

    def __init__(self, sentence: str, *, remedy: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.sentence} {self.remedy}".strip()

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions with keyword-only arguments do not unpickle by themselves; Spark and Airflow pickle them.
        return (_rebuild, (type(self), self.sentence, self.remedy))


def _rebuild(kind: type[RolloutError], sentence: str, remedy: str) -> RolloutError:
    return kind(sentence, remedy=remedy)


class UserError(RolloutError):
    """Bad input: nothing was done; correct it and call again."""

    exit_code = 2


class RefusedError(RolloutError):
    """A check says no: nothing was done; follow the remedy, then ask again."""

    exit_code = 3


class LockHeldError(RefusedError):
    """Another change of the same cluster is under way: wait for it or break its lock by name."""

    exit_code = 4


class TransientError(RolloutError):
    """Not now: the same call may succeed later (no answer, leader moving, connection refused)."""


class FatalError(RolloutError):
    """A person must look: going on could lose something, trying again will not help."""
