"""Errors by the reaction they require.

The class decides the next action. A step repeats a call after a `TransientError`, stops for an approver on a
`FatalError` and refuses to continue on a `RefusedError`. A `UserError` returns the input to its author. Every error has
one sentence, which names the object, and a remedy.
"""

from __future__ import annotations

from kafka_rollout.base.outside_text import REMEDY_LIMIT, escape_invisible


class RolloutError(Exception):
    """Base class of all errors of this project. `sentence`: the fact; `remedy`: the action to take (may be empty)."""

    exit_code = 1

    def __init__(self, sentence: str, *, remedy: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.remedy = remedy

    def __str__(self) -> str:
        """One line without invisible characters, for a log or a terminal; `sentence` is as it was given.

        A long sentence is cut, a remedy never.
        """
        return f"{escape_invisible(self.sentence)} {escape_invisible(self.remedy, limit=REMEDY_LIMIT)}".strip()

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions with keyword-only arguments cannot be unpickled without help; Spark and Airflow pickle them.
        return (_rebuild, (type(self), self.sentence, self.remedy))


def _rebuild(kind: type[RolloutError], sentence: str, remedy: str) -> RolloutError:
    return kind(sentence, remedy=remedy)


class UserError(RolloutError):
    """Invalid input. Nothing was done. Correct the input and call again."""

    exit_code = 2


INCOMPLETE = 5
"""Exit code of a result that is not complete: something that matters is unknown, and nothing else is wrong."""


class RefusedError(RolloutError):
    """A check failed. Nothing was done. Follow the remedy, then call again."""

    exit_code = 3


def result_code(*, blocks: bool, can_hide: bool) -> int:
    """Return the exit code of a result: of a check, a plan or a dry run.

    `blocks`: it has a blocker. `can_hide`: a blocker can exist that a check did not see, because something is unknown
    that nobody left out by name. 0 means that neither is so.
    """
    if blocks:
        return RefusedError.exit_code
    return INCOMPLETE if can_hide else 0


class CredentialsError(RefusedError):
    """A listener refuses the credentials, or the TLS settings do not fit it. Correct them and call again."""

    exit_code = UserError.exit_code


class NotObservableError(RefusedError):
    """A value that cannot be observed with the runtime or the rights of this cluster. A question without it goes on."""


class LockedOutError(RefusedError):
    """Another run changes the cluster, has changed it since the plan, or can do so unseen."""


class LockHeldError(LockedOutError):
    """Another run holds the lock of the cluster. Wait for that run or break its lock by name."""

    exit_code = 4


class TransientError(RolloutError):
    """A temporary failure: the same call can succeed later (no response, leader election, connection refused)."""


class FatalError(RolloutError):
    """A failure that an operator must examine: repeating the call does not help, and continuing can lose data."""


class StoppedError(RolloutError):
    """Ctrl-C, SIGTERM or an operator stopped the run. The sentence says what it left, the remedy how to continue."""

    exit_code = 130


class LockBrokenError(StoppedError):
    """An approver took the lock of the cluster away from the run. It does nothing more before a person continues it."""


class SkippedStepError(Exception):
    """An action found that it cannot run here. The step counts as skipped, with this reason, and the run continues."""
