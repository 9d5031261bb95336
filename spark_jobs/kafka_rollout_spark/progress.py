"""Progress of a scan, once a second: the amount, the rate and the remaining time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark import SparkContext

Progress = Callable[[str], None]

_EVERY_S = 1.0


@contextmanager
def reported(spark: SparkContext, splits: int, total: int, unit: str, report: Progress) -> Iterator[None]:
    """Report the finished splits of the stage that reads, first at once; splits are of about the same size."""
    tracker, done = spark.statusTracker(), threading.Event()
    started, last = time.monotonic(), progress_line(0, splits, total, unit, 0.0)
    report(last)

    def follow() -> None:
        nonlocal last
        while not done.wait(_EVERY_S):
            stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
            line = "merging the results"
            for stage in stages:
                if stage.numTasks == splits:
                    line = progress_line(stage.numCompletedTasks, splits, total, unit, time.monotonic() - started)
            if stages and line != last:
                report(line)
                last = line

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def progress_line(done: int, splits: int, total: int, unit: str, elapsed_s: float) -> str:
    """`elapsed_s` since the reading began."""
    read = total * done / splits
    amount = f"{_amount(read, unit)} of {_amount(total, unit)}"
    if not done:
        return f"read 0 of {splits} splits, {amount}, {elapsed_s:.0f} s"
    rate = read / max(elapsed_s, 0.001)
    left = (total - read) / rate if rate else 0.0
    return (
        f"read {done} of {splits} splits, about {amount}, {_amount(rate, unit)}/s, {elapsed_s:.0f} s, "
        f"about {left:.0f} s left"
    )


def _amount(number: float, unit: str) -> str:
    if unit != "bytes":
        return f"{number:,.0f} {unit}"
    if number < 1e6:
        return f"{number / 1e3:,.0f} kB"
    return f"{number / 1e6:,.0f} MB" if number < 1e9 else f"{number / 1e9:.2f} GB"
