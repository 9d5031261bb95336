"""Runs that a process of Airflow's API server has read, so that a page that refreshes reads only changed ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from kafka_rollout.run.projections.runs import QUIET_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRun:
    """One run as the page shows it, except for what changes with the time.

    `shown`: the fields of the card. `last_at`: time of the last event. `has_ended`: it has a report, or its last task
    failed. `is_damaged`: the history cannot be read.
    """

    dag_id: str
    shown: Mapping[str, Any]
    last_at: float = 0.0
    has_ended: bool = False
    is_damaged: bool = False

    def card(self, *, holder: str, now: float) -> dict[str, Any]:
        """Return the card at the time `now`. `holder`: the run that holds the lock."""
        if self.is_damaged:
            return dict(self.shown)
        began_at = float(self.shown["began_at"])
        holds = self.shown["run_id"] == holder
        is_trial = bool(self.shown.get("is_trial")) and not holds  # a plan or a dry run: it needs nobody
        is_active = not self.has_ended and not is_trial and (holds or now - self.last_at < QUIET_S)
        return {
            **self.shown,
            "is_trial": is_trial,
            "elapsed_s": round((now if is_active else self.last_at) - began_at),
            "state": "in progress" if is_active else "plan" if is_trial else "ended without a report",
        }


@dataclass(slots=True)
class ReadRuns:
    """The newest `at_most` runs that were read, by their key."""

    at_most: int
    _runs: OrderedDict[tuple[str, ...], tuple[str, ReadRun]] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def get(self, key: tuple[str, ...], version: str, read: Callable[[], ReadRun]) -> ReadRun:
        """Return the run; `read` is called if its history has another version than the one that was read.

        One run is read at a time: the pages of several users need the same runs. A damaged run is not kept, because a
        document that is restored has no new version.
        """
        with self._lock:
            known = self._runs.get(key)
            if known is not None and known[0] == version:
                self._runs.move_to_end(key)
                return known[1]
            found = read()
            if not found.is_damaged:
                self._runs[key] = (version, found)
                self._runs.move_to_end(key)
                while len(self._runs) > self.at_most:
                    self._runs.popitem(last=False)
            return found


READ_RUNS = ReadRuns(at_most=1000)
