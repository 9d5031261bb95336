"""The lease that makes one run the only one that changes a cluster, and the check of it right before each change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """Times in epoch seconds."""

    cluster: str
    """Name in the inventory."""
    holder: str
    """The run."""
    purpose: str
    """A sentence."""
    acquired_at: float
    expires_at: float
    cluster_id: str = ""
    """Kafka's id, empty if unknown."""
    token: int = 0
    """Higher for each run that takes the lease."""


NEWEST_CALL = "newest call"
"""The call of a process of a DAG run that does not know it: the newest clear of the run's tasks."""
_CLEAR = "clear "


def call_of_clear(number: int) -> str:
    """Return the call that a user of Airflow makes with a clear. `number`: 0 is the start of the DAG run."""
    return f"{_CLEAR}{number}"


def is_clear(call: str) -> bool:
    return call.startswith(_CLEAR)


class CallState(StrEnum):
    """The process of a command that carries out a run, by a lock that ends with it."""

    NONE = "none"  # it came to its end, or there was none
    RUNS = "runs"
    KILLED = "killed"  # it neither runs nor came to its end


@dataclass(frozen=True, slots=True, kw_only=True)
class ActingProcess:
    """A process that acts on a cluster, as what it leaves on hosts names it."""

    nonce: str
    """Random hexadecimal digits, unlike the token also between databases."""
    database: str
    """The name of its database, without user and password."""


Fence = Callable[[], None]
"""Raises RefusedError unless this process acts on the cluster now. An adapter calls it before each change."""


def unfenced() -> None:
    """The fence of a caller without a lock: the demo, a test, a command on a node's own host."""
