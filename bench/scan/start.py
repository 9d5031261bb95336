"""Time of a scan of a small log from the shell, compared with a bare Spark session and one trivial job.

    python -m bench.scan.start [--rounds 5]

In each round, in turn: `kafka-rollout scan` of a log of 1 MiB, and a Python process that starts Spark with PySpark's
defaults on local[2], counts a range and stops. Both are timed from start to exit; `cpu_s` is the processor time of all
their processes. Writes bench/results/scan_start.json and prints medians, minimum and maximum, and each round's ratio.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from bench.scan.coordinator_log import LogPlan, write_log
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.spark.submit import environment
from tools.demo.folder import PROJECT_ROOT

RESULTS = PROJECT_ROOT / "bench" / "results" / "scan_start.json"
_LOG_BYTES, _KEYS, _PARTITIONS = 1 << 20, 2_000, 2
_BARE = (
    "from pyspark.sql import SparkSession\n"
    "spark = SparkSession.builder.master('local[2]').config('spark.driver.host', '127.0.0.1').getOrCreate()\n"
    "assert spark.range(1000).count() == 1000\n"
    "spark.stop()\n"
)
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2): this process can wait for a JVM that outlives its parent


def measure(command: Sequence[str], variables: Mapping[str, str]) -> tuple[float, float]:
    """Return the seconds from start to exit, and the processor seconds of all processes."""
    before, started = _processor_seconds(), time.monotonic()
    subprocess.run(command, env={**os.environ, **variables}, capture_output=True, check=True)
    took = time.monotonic() - started
    with suppress(ChildProcessError):
        while True:
            os.wait()
    return took, _processor_seconds() - before


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    figures: defaultdict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="kafka-rollout-bench-") as folder:
        log = Path(folder) / "log"
        write_log(log, LogPlan(log_bytes=_LOG_BYTES, keys=_KEYS, partitions=_PARTITIONS))
        scan = [str(Path(sys.executable).with_name("kafka-rollout")), "scan", "--log-dir", str(log)]
        home = {"KAFKA_ROLLOUT_HOME": folder}
        measure(scan, home)  # compiles the kernel if needed
        for number in range(1, rounds + 1):
            scan_s, scan_cpu_s = measure(scan, home)
            bare_s, bare_cpu_s = measure([sys.executable, "-c", _BARE], environment(Settings.from_environment()))
            row = {"scan_s": scan_s, "bare_s": bare_s, "ratio": scan_s / bare_s}
            row |= {"scan_cpu_s": scan_cpu_s, "bare_cpu_s": bare_cpu_s, "cpu_ratio": scan_cpu_s / bare_cpu_s}
            for name, value in row.items():
                figures[name].append(value)
            print(f"round {number}: " + ", ".join(f"{name} {value:.2f}" for name, value in row.items()), flush=True)
    summary = {name: spread(values) for name, values in figures.items()}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"rounds": rounds, **summary}, indent=2) + "\n")
    for name, found in summary.items():
        print(f"{name}: {found['median']:.2f} ({found['least']:.2f} to {found['most']:.2f})")


if __name__ == "__main__":
    main()
