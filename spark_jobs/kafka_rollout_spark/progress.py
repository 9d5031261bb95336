"""The progress of a scan in Spark: what its tasks have done, how long it takes, and when it waits for nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark import SparkContext

from kafka_rollout.base.errors import TransientError

ScanProgress = Callable[[str], None]

START_LIMIT = "spark.kafkaRollout.startTimeout"
"""Spark setting: seconds without a running task after which a scan fails."""
TASK_LIMIT = "spark.kafkaRollout.taskTimeout"
"""Spark setting: seconds without a finished task after which a scan fails."""
START_LIMIT_S = 300.0  # a worker starts an executor in a few seconds; one that has no room is said in this time
TASK_LIMIT_S = 3600.0  # a task reads at most 512 MB
_EVERY_S = 1.0
_SAY_AGAIN_S = 30.0  # of the same state


@dataclass(slots=True, kw_only=True)
class Tasks:
    """What was seen of the tasks of a scan: times are seconds of one clock, which the caller reads."""

    splits: int
    total: int
    unit: str
    """Bytes or offsets."""
    began: float
    start_limit_s: float = START_LIMIT_S
    task_limit_s: float = TASK_LIMIT_S
    first_task_at: float | None = None
    """When the first task ran: a rate before it would count the start of executors."""
    ran_at: float = field(init=False)
    """When a task ran last, or the driver worked."""
    moved_at: float = field(init=False)
    """When a task finished last, or the driver worked."""
    finished: int = 0
    said: str = ""
    said_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.ran_at = self.moved_at = self.began

    def see(self, now: float, *, running: int, finished: int) -> str:
        """Take over what Spark reports; return why the scan cannot go on, empty if it can.

        Without a stage that runs, `works` is called instead.
        """
        if running and self.first_task_at is None:
            self.first_task_at = now
        if running or finished != self.finished:
            self.ran_at = now
        if finished != self.finished:
            self.moved_at = now
        self.finished = finished
        if now - self.ran_at >= self.start_limit_s:
            return f"No executor has taken a task for {now - self.ran_at:.0f} s"
        if running and now - self.moved_at >= self.task_limit_s:
            return f"No task has finished for {now - self.moved_at:.0f} s"
        return ""

    def works(self, now: float) -> None:
        """Take over that the driver works, between two stages."""
        self.ran_at = self.moved_at = now

    def line(self, now: float, *, reads: bool) -> str:
        """Return the line to report now; empty if it says nothing new. `reads`: the stage that reads the logs runs."""
        if not reads:
            state = text = "merging the results"
        elif now - self.ran_at >= _SAY_AGAIN_S:
            state = "waits"
            text = f"no executor has taken a task for {now - self.ran_at:.0f} s; waiting {self.start_limit_s:.0f} s"
        else:
            state = f"{self.finished}"
            text = self._read_line(now)
        if state == self.said and (not reads or now - self.said_at < _SAY_AGAIN_S):
            return ""
        self.said, self.said_at = state, now
        return text

    def _read_line(self, now: float) -> str:
        read = self.total * self.finished / self.splits
        amount = f"{amount_text(read, self.unit)} of {amount_text(self.total, self.unit)}"
        elapsed_s = now - self.began
        if not self.finished:
            return f"read 0 of {self.splits} splits, {amount}, {elapsed_s:.0f} s"
        reading_s = now - (self.began if self.first_task_at is None else self.first_task_at)
        rate = read / max(reading_s, 0.001)
        left = (self.total - read) / rate if rate else 0.0
        return (
            f"read {self.finished} of {self.splits} splits, about {amount}, {amount_text(rate, self.unit)}/s, "
            f"{elapsed_s:.0f} s, about {left:.0f} s left"
        )


def amount_text(number: float, unit: str) -> str:
    if unit != "bytes":
        return f"{number:,.0f} {unit}"
    if number < 1e6:
        return f"{number / 1e3:,.0f} kB"
    return f"{number / 1e6:,.0f} MB" if number < 1e9 else f"{number / 1e9:.2f} GB"


@contextmanager
def watched(spark: SparkContext, splits: int, total: int, unit: str, report: ScanProgress) -> Iterator[None]:
    """Report the finished splits of the stage that reads; splits are of about the same size.

    Cancels the jobs and raises TransientError if no executor takes a task, or none finishes, within START_LIMIT and
    TASK_LIMIT: Spark itself would wait for ever.
    """
    tracker, done = spark.statusTracker(), threading.Event()
    limits = [
        _seconds(spark, name, default) for name, default in ((START_LIMIT, START_LIMIT_S), (TASK_LIMIT, TASK_LIMIT_S))
    ]
    tasks = Tasks(
        splits=splits,
        total=total,
        unit=unit,
        began=time.monotonic(),
        start_limit_s=limits[0],
        task_limit_s=limits[1],
    )
    report(tasks.line(tasks.began, reads=True))
    problem = ""

    def follow() -> None:
        nonlocal problem
        while not done.wait(_EVERY_S):
            stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
            now = time.monotonic()
            if not stages:
                tasks.works(now)
                continue
            reading = [one for one in stages if one.numTasks == splits]
            counted = reading or stages
            running, finished = (
                sum(one.numActiveTasks for one in counted),
                sum(one.numCompletedTasks for one in counted),
            )
            problem = tasks.see(now, running=running, finished=finished)
            if problem:
                spark.cancelAllJobs()
                return
            if line := tasks.line(now, reads=bool(reading)):
                report(line)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    except Exception as error:
        if problem:
            raise TransientError(f"{problem} ({spark.master}).", remedy=_remedy(spark)) from error
        raise
    finally:
        done.set()
        thread.join()


def _remedy(spark: SparkContext) -> str:
    conf = spark.getConf()
    memory, cores = conf.get("spark.executor.memory", "1g"), conf.get("spark.executor.cores", "all cores of a worker")
    return (
        f"Check that the master has a free worker for spark.executor.memory {memory} and spark.executor.cores {cores}, "
        f"and read the log of its executors. {START_LIMIT} and {TASK_LIMIT} set how many seconds a scan waits."
    )


def _seconds(spark: SparkContext, name: str, default: float) -> float:
    try:
        return float(spark.getConf().get(name, str(default)))
    except ValueError:
        return default
