"""How far a scan is: once a second, what is done of it, how fast, and how long it still takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

Progress = Callable[[str], None]

_EVERY_S = 1.0


@contextmanager
def reported(spark: SparkSession, shares: int, total: int, unit: str, say: Progress) -> Iterator[None]:
    """Say how many of the `shares` of the stage that reads are done; they are of about the same size."""
    tracker, done = spark.sparkContext.statusTracker(), threading.Event()

    def report() -> None:
        began, said = time.monotonic(), ""
        while not done.wait(_EVERY_S):
            stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
            line = "putting together what was read"
            for stage in stages:
                if stage.numTasks == shares:
                    line = progress_line(stage.numCompletedTasks, shares, total, unit, time.monotonic() - began)
            if stages and line != said:
                say(line)
                said = line

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def progress_line(done: int, shares: int, total: int, unit: str, elapsed_s: float) -> str:
    """`elapsed_s` since the reading began."""
    read = total * done / shares
    amount = f"{_amount(read, unit)} of {_amount(total, unit)}"
    if not done:
        return f"read {done} of {shares} shares, {amount}, {elapsed_s:.0f} s"
    rate = read / max(elapsed_s, 0.001)
    left = (total - read) / rate if rate else 0.0
    return (
        f"read {done} of {shares} shares, about {amount}, {_amount(rate, unit)}/s, {elapsed_s:.0f} s, "
        f"about {left:.0f} s left"
    )


def _amount(number: float, unit: str) -> str:
    if unit != "bytes":
        return f"{number:,.0f} {unit}"
    if number < 1e6:
        return f"{number / 1e3:,.0f} kB"
    return f"{number / 1e6:,.0f} MB" if number < 1e9 else f"{number / 1e9:.2f} GB"
