"""What a scan of a small log costs from the shell, compared with a bare Spark session and one trivial job.

    python bench/scan_start.py [--rounds 5]

In each round, in turn: `kafka-rollout scan` of a log of 1 MiB, and a Python process that starts Spark with PySpark's
defaults on local[2], counts a range and stops. Both are timed from start to exit. Writes
bench/results/scan_start.json and prints medians, least and most, and the ratio of each round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from coordinator_log import LogPlan, write_log

from kafka_rollout.adapters.coordinator_logs.spark_submit import environment
from kafka_rollout.demo.checkout import PROJECT_ROOT
from kafka_rollout.settings import Settings

RESULTS = PROJECT_ROOT / "bench" / "results" / "scan_start.json"
_LOG_BYTES, _KEYS, _PARTITIONS = 1 << 20, 2_000, 2
_BARE = (
    "from pyspark.sql import SparkSession\n"
    "spark = SparkSession.builder.master('local[2]').config('spark.driver.host', '127.0.0.1').getOrCreate()\n"
    "assert spark.range(1000).count() == 1000\n"
    "spark.stop()\n"
)


def seconds_of(command: Sequence[str], variables: Mapping[str, str]) -> float:
    began = time.monotonic()
    subprocess.run(command, env={**os.environ, **variables}, capture_output=True, check=True)
    return time.monotonic() - began


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    figures: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="kafka-rollout-bench-") as folder:
        log = Path(folder) / "log"
        write_log(log, LogPlan(log_bytes=_LOG_BYTES, keys=_KEYS, partitions=_PARTITIONS))
        scan = [str(Path(sys.executable).with_name("kafka-rollout")), "scan", "--log-dir", str(log)]
        home = {"KAFKA_ROLLOUT_HOME": folder}
        seconds_of(scan, home)  # compiles the kernel where that was not done before
        for number in range(1, rounds + 1):
            scan_s = seconds_of(scan, home)
            bare_s = seconds_of([sys.executable, "-c", _BARE], environment(Settings.from_environment()))
            told = {"scan_s": scan_s, "bare_s": bare_s, "ratio": scan_s / bare_s}
            for name, value in told.items():
                figures.setdefault(name, []).append(value)
            print(f"round {number}: " + ", ".join(f"{name} {value:.2f}" for name, value in told.items()), flush=True)
    result = {"rounds": rounds, **{name: spread(values) for name, values in figures.items()}}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    for name, values in figures.items():
        of = spread(values)
        print(f"{name}: {of['median']:.2f} ({of['least']:.2f} to {of['most']:.2f})")


if __name__ == "__main__":
    main()
