"""Medians with minimum and maximum, goals, and the memory of processes during a measurement."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import psutil

from kafka_rollout_spark.job import WORKER_DAEMON

_EVERY_S = 0.2
_MIB = 1 << 20


def spread(values: Sequence[float]) -> dict[str, float]:
    figures = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {name: _rounded(value) for name, value in figures.items()}


def ratios(values: Iterable[float], to: Iterable[float]) -> dict[str, float]:
    """Return the spread of the ratios of each round. Both values of a round are from the same load of the machine."""
    return spread([value / other for value, other in zip(values, to, strict=True)])


def _rounded(value: float) -> float:
    return round(value, 1) if abs(value) >= 100 else float(f"{value:.3g}")


def line(name: str, figures: dict[str, float], unit: str) -> str:
    return f"{name:58} {figures['median']:9.6g} {unit:5} ({figures['min']:g} to {figures['max']:g})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A goal: `value` must be at least `limit`, or at most `limit` if `most`."""

    what: str
    value: float
    limit: float
    unit: str
    most: bool = False

    @property
    def reached(self) -> bool:
        return self.value <= self.limit if self.most else self.value >= self.limit

    def to_dict(self) -> dict[str, Any]:
        bound = "at most" if self.most else "at least"
        return {
            "what": self.what,
            "value": self.value,
            "goal": f"{bound} {self.limit:g} {self.unit}",
            "reached": self.reached,
        }

    def __str__(self) -> str:
        word = "reached" if self.reached else "MISSED"
        return f"{word:8} {self.what}: {self.value:.3g} {self.unit} (goal: {self.to_dict()['goal']})"


class MemoryWatch:
    """Measures the peak memory of a process and its descendants. A context manager.

    `worker_bytes`: resident memory of the largest Python worker of Spark, shared pages included. `all_bytes`: memory of
    all processes, shared pages counted once; only with `together`, because this measurement needs processor time.
    """

    def __init__(self, pid: int, *, together: bool = False) -> None:
        self._root, self._together = psutil.Process(pid), together
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.all_bytes = self.worker_bytes = 0

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        if self._root.is_running():  # a short scan can end between two measurements; its workers stay
            self._measure()

    @property
    def all_mib(self) -> int:
        return self.all_bytes // _MIB

    @property
    def worker_mib(self) -> int:
        if not self.worker_bytes:
            raise RuntimeError("No Python worker of Spark was seen.")
        return self.worker_bytes // _MIB

    def _watch(self) -> None:
        while not self._over.wait(_EVERY_S):
            with suppress(psutil.NoSuchProcess):
                self._measure()

    def _measure(self) -> None:
        together = 0
        for process in (self._root, *self._root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if self._together:
                    together += process.memory_full_info().pss
                if WORKER_DAEMON in process.cmdline():  # workers are forked from it
                    self.worker_bytes = max(self.worker_bytes, process.memory_info().rss)
        self.all_bytes = max(self.all_bytes, together)
