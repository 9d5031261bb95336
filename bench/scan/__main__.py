"""Measures speed and memory of scans of coordinator logs, and compares them with other programs that read these logs.

    python -m bench.scan [--quick] [--only classes deep live broker sizes keys] [--rounds 5] [--folder DIR]

The benchmark first writes files (coordinator_log.py with none, lz4 and zstd), at most 11 GB, and removes them at the
end. The page cache should be large enough for them. In each round, all programs read the same files in turn. The
time of a scan includes everything from the search for segments to verdicts and inventory, in a Spark session on
local[2] that already runs. Each scan is checked: it counted every record and found no damage.

Writes bench/results/scan.json (not with --quick or --only) and prints medians, minimum, maximum and the goals. The exit
code is 1 if a goal was missed. Five rounds take about ten minutes on two idle cores; the remaining time is printed.
On Ctrl-C or SIGTERM the benchmark stops its processes and removes its files.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.scan.broker import broker_with
from bench.scan.clock import Clock
from bench.scan.coordinator_log import LogPlan, Written, write_log
from bench.scan.figures import Goal, MemoryWatch, line, ratios, spread
from bench.scan.rivals import RELEASE, BareKernel, DumpLog, cat_s, consumer_s
from bench.scan.session import WarmSession
from kafka_rollout.base.errors import FatalError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.formats.log_types import Codec
from kafka_rollout.releases.jars.cache import ReleaseCache
from tools.demo.folder import PROJECT_ROOT

RESULTS = PROJECT_ROOT / "bench" / "results" / "scan.json"
PARTS = ("classes", "deep", "live", "broker", "sizes", "keys")
_SCANS = {"classes": {"classes_only": True}, "deep": {}, "live": {"classes_only": True, "live": True}}
_TIMES_DUMP_LOG = {"classes": 100.0, "deep": 20.0, "live": 40.0}
_PARTITIONS, _OF_MIX = 16, 8  # partitions of the largest log; the first 8 (4 GiB) are read by all programs
_MOST_KEYS = 0.25  # keys of a partition, in millions: about forty records per key
_STEPS = (1, 2, 4, 8, 16)
_MB, _MIB = 1e6, 1 << 20
_CODECS = (Codec.NONE, Codec.LZ4, Codec.ZSTD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes in MiB: a partition, the samples for kafka-dump-log, the log of the broker. `keys`: millions of keys."""

    partition: int = 512
    sample: int = 64
    sample_of_codec: int = 32
    broker: int = 400
    keys: float = 50.0


QUICK = Sizes(partition=16, sample=8, sample_of_codec=4, broker=32, keys=1.0)


@dataclass(slots=True, kw_only=True)
class Bench:
    folder: Path
    sizes: Sizes
    rounds: int
    settings: Settings
    clock: Clock
    result: dict[str, Any] = field(default_factory=dict)
    goals: list[Goal] = field(default_factory=list)

    def log(self, name: str, mebibytes: int, keys: float, partitions: int = 1) -> tuple[Written, ...]:
        self.clock.next(f"writing {name}")
        written = write_log(
            self.folder / name,
            LogPlan(log_bytes=mebibytes * _MIB, codecs=_CODECS, keys=int(keys * 1e6), partitions=partitions),
        )
        os.sync()  # otherwise the kernel writes the files to disk during a measurement
        return written

    def add_figures(self, name: str, figures: Mapping[str, float], unit: str) -> None:
        self.result.setdefault("figures", {})[name] = {**figures, "unit": unit}
        print(line(name, dict(figures), unit), flush=True)

    def goal(self, goal: Goal) -> None:
        self.goals.append(goal)
        print(goal, flush=True)


def steps(wanted: set[str], rounds: int, scale: float) -> list[tuple[str, float]]:
    """Return the steps of this run with their expected seconds. `scale`: size of the files, 1 is the full size."""
    found: list[tuple[str, float]] = []
    if "keys" in wanted:
        found += [("writing keys-sample", 1), ("writing keys", 60 * scale), ("scanning keys", 15 + 60 * scale)]
    if wanted - {"keys"}:
        found += [("writing log", 30 * scale), ("starting Spark", 15)]
    if wanted & set(_SCANS):
        found += [("files: warming up", 5 + 20 * scale), *_each("files", rounds, 5 + 35 * scale)]
    if "sizes" in wanted:
        found += _each("sizes", rounds, 1 + 16 * scale)
    if "broker" in wanted:
        found += [("writing broker-log", 3 * scale), ("starting a broker", 20), *_each("broker", rounds, 20 * scale)]
    return found


def _each(what: str, rounds: int, seconds: float) -> list[tuple[str, float]]:
    return [(f"{what}: round {number} of {rounds}", seconds) for number in range(1, rounds + 1)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small files, to check that the benchmark runs")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="folder for the files of this run (default: a temporary folder)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # as on Ctrl-C: stops its processes
    sizes = QUICK if options.quick else Sizes()
    with tempfile.TemporaryDirectory(prefix="bench-scan-", dir=options.folder) as name:
        bench = Bench(
            folder=Path(name),
            sizes=sizes,
            rounds=options.rounds,
            settings=Settings.from_environment(),
            clock=Clock(steps=steps(set(options.only), options.rounds, sizes.partition / Sizes().partition)),
        )
        bench.result |= {
            "command": " ".join(["python -m bench.scan", *sys.argv[1:]]),
            "date": time.strftime("%Y-%m-%d"),
            "machine": {
                "cores": os.cpu_count(),
                "memory_gib": round(psutil.virtual_memory().total / 2**30),
                "load_before": round(os.getloadavg()[0], 1),
            },
        }
        _run(bench, set(options.only))
    bench.result["machine"]["load_after"] = round(os.getloadavg()[0], 1)
    bench.result["goals"] = [goal.to_dict() for goal in bench.goals]
    if not options.quick and set(options.only) == set(PARTS):
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(bench.result, indent=2) + "\n")
    print("\n".join(["", *map(str, bench.goals)]))
    return 0 if all(goal.reached for goal in bench.goals) else 1


def _run(bench: Bench, wanted: set[str]) -> None:
    if "keys" in wanted:
        _many_keys(bench)
    if wanted - {"keys"}:
        partitions = _PARTITIONS if "sizes" in wanted else _OF_MIX
        keys = partitions * min(_MOST_KEYS, bench.sizes.keys / 40)
        logs = bench.log("log", partitions * bench.sizes.partition, keys, partitions)
        bench.clock.next("starting Spark")
        spark = WarmSession(bench.settings, bench.folder)
        try:
            folders = [written.folder for written in logs[:_OF_MIX]]
            cat_s(folders)
            seconds, _ = spark.files_s(folders, spark.request(classes_only=True), _records(logs[:_OF_MIX]))
            bench.add_figures("cold start: the session", spread([spark.start_s]), "s")
            bench.add_figures("cold start: its first scan", spread([seconds]), "s")
            if files := [part for part in _SCANS if part in wanted]:
                _files(bench, spark, logs[:_OF_MIX], files)
            if "sizes" in wanted:
                _by_size(bench, spark, logs)
            if "broker" in wanted:
                _broker(bench, spark)
        finally:
            spark.close()
        shutil.rmtree(bench.folder / "log")


def _records(logs: tuple[Written, ...]) -> int:
    return sum(written.records for written in logs)


def _bytes(logs: tuple[Written, ...]) -> int:
    return sum(written.log_bytes for written in logs)


def _files(bench: Bench, spark: WarmSession, logs: tuple[Written, ...], scans: list[str]) -> None:
    """Measure scans of segment files, `cat`, the kernel without Spark, and kafka-dump-log."""
    folders, records, megabytes = [log.folder for log in logs], _records(logs), _bytes(logs) / _MB
    bench.result["log"] = {"bytes": _bytes(logs), "records": records, "codecs": [c.name.lower() for c in _CODECS]}
    bench.clock.next("files: warming up")
    cache = ReleaseCache.from_settings(bench.settings)
    dump_log = DumpLog.fetch(bench.folder / "tools", cache.libs(RELEASE))
    samples = _samples(bench)
    requests = {name: spark.request(**options) for name, options in _SCANS.items() if name in scans}
    classes = spark.request(classes_only=True)
    found = spark.find(folders)
    rates: defaultdict[str, list[float]] = defaultdict(list)
    starts: list[float] = []
    kernel = BareKernel()
    try:
        kernel.seconds(found, spark.spec(classes, found), records)
        for request in requests.values():
            spark.files_s(folders, request, records)
        for number in range(1, bench.rounds + 1):
            bench.clock.next(f"files: round {number} of {bench.rounds}")
            rates["cat"].append(megabytes / cat_s(folders))
            rates["bare kernel"].append(megabytes / kernel.seconds(found, spark.spec(classes, found), records))
            for name, request in requests.items():
                rates[name].append(megabytes / spark.files_s(folders, request, records)[0])
            starts.append(dump_log.seconds(samples["start"].folder))
            for name in ("mix", "none", "lz4", "zstd"):
                sample = samples[name]
                rates[f"dump-log {name}"].append(
                    sample.log_bytes / _MB / (dump_log.seconds(sample.folder) - starts[-1])
                )
    finally:
        kernel.close()
    bench.add_figures("kafka-dump-log: start, taken off its times", spread(starts), "s")
    for name, values in rates.items():
        bench.add_figures(f"files: {name}", spread(values), "MB/s")
    for name in scans:
        against = ratios(rates[name], rates["dump-log mix"])
        bench.add_figures(f"files: {name} to kafka-dump-log", against, "x")
        bench.goal(
            Goal(
                what=f"files, {name}: times kafka-dump-log",
                value=against["median"],
                limit=_TIMES_DUMP_LOG[name],
                unit="x",
            )
        )
    if "classes" in scans:
        share = ratios(rates["classes"], rates["bare kernel"])
        bench.add_figures("files: classes to the bare kernel", share, "")
        bench.goal(Goal(what="files, classes: of the bare kernel's speed", value=share["median"], limit=0.6, unit=""))


def _samples(bench: Bench) -> dict[str, Written]:
    """Write small files for kafka-dump-log, with all codecs and with each codec: whole logs would take minutes."""
    plans = {
        "start": LogPlan(log_bytes=1, codecs=_CODECS),
        "mix": LogPlan(log_bytes=bench.sizes.sample * _MIB, codecs=_CODECS),
    }
    for codec in _CODECS:
        plans[codec.name.lower()] = LogPlan(log_bytes=bench.sizes.sample_of_codec * _MIB, codecs=(codec,))
    return {name: write_log(bench.folder / "samples" / name, plan)[0] for name, plan in plans.items()}


def _bytes_from_disk() -> int:
    """Return what all of the machine has read since it started; 0 if the kernel does not count it."""
    counters = psutil.disk_io_counters()
    return counters.read_bytes if counters else 0


def _by_size(bench: Bench, spark: WarmSession, logs: tuple[Written, ...]) -> None:
    """Measure time and memory of the workers for logs of different sizes, at depth `classes`."""
    request = spark.request(classes_only=True)
    parts = {step: logs[:step] for step in _STEPS}
    half, whole = _STEPS[-2:]
    seconds: defaultdict[int, list[float]] = defaultdict(list)
    memory: defaultdict[int, list[float]] = defaultdict(list)
    from_disk: defaultdict[int, list[float]] = defaultdict(list)
    cat_s([log.folder for log in logs])
    for number in range(1, bench.rounds + 1):
        bench.clock.next(f"sizes: round {number} of {bench.rounds}")
        for step in (*_STEPS, half):  # the half before and after the whole: both see the same load of the machine
            part, before = parts[step], _bytes_from_disk()
            with MemoryWatch(os.getpid()) as watch:
                took, _ = spark.files_s([log.folder for log in part], request, _records(part))
            from_disk[step].append((_bytes_from_disk() - before) / _MB)
            seconds[step].append(took)
            memory[step].append(watch.worker_mib)
    for step, part in parts.items():
        name = f"sizes: {_bytes(part) / 2**30:.3g} GiB"
        bench.add_figures(name, spread(seconds[step]), "s")
        bench.add_figures(f"{name}, a worker at most", spread(memory[step]), "MiB")
        bench.add_figures(f"{name}, read from disk by all of the machine", spread(from_disk[step]), "MB")
    halves = zip(seconds[half][::2], seconds[half][1::2], strict=True)
    growth = ratios(seconds[whole], [(before + after) / 2 for before, after in halves])
    bench.add_figures("sizes: time of the largest to the half of it", growth, "x")
    bench.goal(Goal(what="sizes: 8 GiB to 4 GiB", value=growth["median"], limit=2.1, unit="x", most=True))
    bench.result["worker_peak_mib"] = max(max(values) for values in memory.values())


def _broker(bench: Bench, spark: WarmSession) -> None:
    """Measure the scan of a running cluster, and a consumer on the same broker."""
    partitions = 4
    logs = bench.log("broker-log", bench.sizes.broker, 0.05, partitions)
    cache = ReleaseCache.from_settings(bench.settings)
    request = spark.request(classes_only=True)
    rates: defaultdict[str, list[float]] = defaultdict(list)
    bench.clock.next("starting a broker")
    with broker_with(bench.folder / "broker-log", partitions, bench.folder / "cluster", RELEASE, cache) as servers:
        spark.broker_s(servers, request)
        for number in range(1, bench.rounds + 1):
            bench.clock.next(f"broker: round {number} of {bench.rounds}")
            took, _ = spark.broker_s(servers, request)
            rates["scan"].append(_bytes(logs) / _MB / took)
            took, read = consumer_s(servers, partitions)
            if read < _records(logs):
                raise FatalError(f"The consumer read {read} of {_records(logs)} records.", remedy="Find the cause.")
            rates["consumer that counts prefixes"].append(_bytes(logs) / _MB / took)
    for name, values in rates.items():
        bench.add_figures(f"broker: {name}", spread(values), "MB/s")
    against = ratios(*rates.values())
    bench.add_figures("broker: scan to consumer", against, "x")
    bench.goal(Goal(what="live cluster: times a consumer", value=against["median"], limit=5.0, unit="x"))


def _many_keys(bench: Bench) -> None:
    """Measure `kafka-rollout scan --live`, as from a shell, on a log in which every record has a different key."""
    (sample,) = bench.log("keys-sample", 8, bench.sizes.keys)
    shutil.rmtree(bench.folder / "keys-sample")
    megabytes = int(bench.sizes.keys * 1e6 * sample.log_bytes / sample.records * 1.01 / _MIB)
    logs = bench.log("keys", megabytes, 2 * bench.sizes.keys, 8)
    out = bench.folder / "keys.json"
    bench.clock.next("scanning keys")
    with ExitStack() as stack:
        began = time.monotonic()
        process = subprocess.Popen(
            [
                *(str(Path(sys.executable).with_name("kafka-rollout")), "scan", "--live"),
                *("--log-dir", str(bench.folder / "keys"), "--json", "--output", str(out)),
                *("--master", "local[2]"),
            ],
            stdout=sys.stderr,
            start_new_session=True,  # Ctrl-C reaches it once, through this process
        )
        stack.callback(process.wait)
        stack.callback(process.terminate)  # it then stops its Spark job
        with MemoryWatch(process.pid, together=True) as watch:
            code = process.wait()
        took = time.monotonic() - began
    result = json.loads(out.read_text())
    found = sum(row["live"] for row in result["classes"])
    if code != 0 or found != _records(logs):
        raise FatalError(
            f"The scan ended with exit code {code} and found {found} of {_records(logs)} keys.",
            remedy="Find the cause.",
        )
    bench.add_figures(
        f"keys: {found / 1e6:.1f} million, kafka-rollout scan --live, start included", spread([took]), "s"
    )
    bench.add_figures("keys: a worker at most", spread([watch.worker_mib]), "MiB")
    bench.add_figures("keys: all processes together at most", spread([watch.all_mib]), "MiB")
    bench.goal(
        Goal(
            what="keys: all processes together", value=round(watch.all_mib / 1024, 2), limit=4.0, unit="GiB", most=True
        )
    )
    bench.result["distinct_keys"] = found
    shutil.rmtree(bench.folder / "keys")


if __name__ == "__main__":
    sys.exit(main())
