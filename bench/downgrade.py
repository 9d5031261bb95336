"""Compares a live downgrade, an offline downgrade and an ordinary rolling restart under acks=all traffic, in one run.

    python bench/downgrade.py [--rounds 1] [--from 4.3.1] [--to 4.2.1]

Each round creates three equal clusters of three controllers and three brokers, one after the other. It runs
`kafka-rollout downgrade` on each with the same gates (2 consecutive checks, 0.5 s apart, soak 0):

- live: from the newest metadata.version, which Kafka refuses to lower. The controllers stop, then all nodes are rolled;
- offline: the same, with all nodes stopped. A live downgrade is switched off by a patch, because the plan prefers it;
- roll: from a metadata.version that the older release supports, so only the nodes are rolled.

A producer (acks=all, librdkafka's own retries, delivery.timeout.ms 10,000) sends 200 records/s to six partitions with
three replicas each during the whole command. A failed request is a record that the producer gives up. The longest gap
is the longest time without an acknowledgement of one partition. Another thread queries the active controller every
0.1 s; the time without controller is the sum of the times between two answers with a failed query in between.

Writes bench/results/downgrade.json and prints medians with minimum and maximum. Exit code 1 if a goal is missed: no
failed request in the live downgrade, and no longer gap than in the rolling restart.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.adapters.kafka.admin import KafkaAdmin
from kafka_rollout.adapters.releases.cache import ReleaseCache
from kafka_rollout.adapters.releases.catalogue import load_catalogue
from kafka_rollout.demo.folder import PROJECT_ROOT
from kafka_rollout.demo.local_cluster import LocalCluster, stop_nodes
from kafka_rollout.domain.model.errors import FatalError, RolloutError
from kafka_rollout.domain.model.releases import METADATA_VERSION, Release
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.settings import Settings

METHODS = ("live", "offline", "roll")
TOPIC, PARTITIONS, PER_SECOND, TIMEOUT_MS = "bench", 6, 200, 10_000
RESULTS = PROJECT_ROOT / "bench" / "results" / "downgrade.json"
FIGURES = ("failed", "longest_gap_s", "without_controller_s", "command_s")
_NOT_LIVE = """
from kafka_rollout.domain.planning import downgrade
downgrade.live_obstacles = lambda *given: ("the benchmark switches it off",)
"""
_SETTLED_S = 3.0  # traffic before and after the command


@dataclass
class Traffic:
    """The producer's results. Times are monotonic seconds; `acknowledged`: partition → times; `failed`: by error."""

    acknowledged: dict[int, list[float]] = field(default_factory=lambda: {n: [] for n in range(PARTITIONS)})
    failed: Counter[str] = field(default_factory=Counter)

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed[error.name()] += 1
        else:
            self.acknowledged[message.partition() or 0].append(time.monotonic())

    def longest_gap_s(self) -> float:
        return max(later - earlier for times in self.acknowledged.values() for earlier, later in pairwise(times))


@dataclass
class Absence:
    """`seconds`: the sum of the times without an answer of the active controller."""

    seconds: float = 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--from", dest="source", default="4.3.1")
    parser.add_argument("--to", dest="target", default="4.2.1")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-downgrade-") as name:
        rounds = [_round(Path(name), number, arguments) for number in range(1, arguments.rounds + 1)]
    summary = {way: {name: _spread([r[way][name] for r in rounds]) for name in FIGURES} for way in METHODS}
    missed = _missed(rounds)
    result = {"command": "python bench/downgrade.py " + " ".join(sys.argv[1:]), **summary, "missed": missed}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({**result, "rounds": rounds}, indent=2) + "\n")
    _print(summary, rounds)
    for sentence in missed:
        print(f"MISSED: {sentence}")
    return 1 if missed else 0


def _round(folder: Path, number: int, arguments: argparse.Namespace) -> dict[str, Any]:
    # The order changes with every round, so that caches and temperature do not favour one of them.
    ways = METHODS if number % 2 else METHODS[::-1]
    figures = {}
    for way in ways:
        figures[way] = _measured(folder / f"{way}{number}", way, arguments)
        print(f"round {number} of {arguments.rounds}, {way}: {figures[way]}", file=sys.stderr)
    return figures


def _measured(folder: Path, way: str, arguments: argparse.Namespace) -> dict[str, Any]:
    settings = Settings.from_environment()
    cache = ReleaseCache.from_settings(settings)
    source, target = Release.parse(arguments.source), Release.parse(arguments.target)
    cache.libs(target)
    level = _highest_level(settings, target) if way == "roll" else None
    cluster = LocalCluster.create(folder, "bench", source, cache=cache, layout="separate", metadata_version=level)
    try:
        topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})  # its futures end with it
        admin.create_topics([topic])[TOPIC].result(60)
        with _watched(cluster.spec) as absence, _producing(cluster.spec) as traffic:
            time.sleep(_SETTLED_S)
            began = time.monotonic()
            log = _downgrade(folder, cluster, way, arguments)
            command_s = time.monotonic() - began
            time.sleep(_SETTLED_S)
        figures = {
            "acknowledged": sum(map(len, traffic.acknowledged.values())),
            "failed": sum(traffic.failed.values()),
            "errors": dict(traffic.failed),
            "longest_gap_s": round(traffic.longest_gap_s(), 2),
            "without_controller_s": round(absence.seconds, 2),
            "command_s": round(command_s, 1),
        }
        return figures if way != "live" else {**figures, **_of_the_switch(log)}
    finally:
        stop_nodes(folder, deadline_s=0.0)


def _highest_level(settings: Settings, release: Release) -> str:
    facts = load_catalogue(*settings.catalogue_folders).get(release)
    highest = facts.features[METADATA_VERSION].latest_production
    return next(level.name for level in facts.metadata_versions if level.level == highest)


def _downgrade(folder: Path, cluster: LocalCluster, way: str, arguments: argparse.Namespace) -> str:
    """Run the command and return its standard error."""
    refused = {"live": "live", "offline": "offline", "roll": "stop"}[way]
    words = (
        f"downgrade --cluster bench --to {arguments.target} --where-refused {refused} --soak 0 --looks 2 --interval 0.5"
    )
    patch = _NOT_LIVE if way == "offline" else ""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{patch}\nfrom kafka_rollout.cli.app import main; main()",
            *words.split(),
            *("--approve-as", "bench", "--reason", "a benchmark", "--yes"),
        ],
        env={
            **os.environ,
            "KAFKA_ROLLOUT_HOME": str(folder / "home"),
            "KAFKA_ROLLOUT_CLUSTERS": str(cluster.inventory_path.parent),
            "PYTHONPATH": str(PROJECT_ROOT / "plugins"),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if done.returncode != 0:
        raise FatalError(f"The {way} downgrade failed: {done.stderr[-2000:]}")
    return done.stderr


def _of_the_switch(log: str) -> dict[str, Any]:
    """The product's own figure for the time from the first stop until a leader at the lower level."""
    said = next((line for line in log.splitlines() if "No controller was active for at most" in line), "")
    return {"switch_s": float(said.rsplit("at most ", 1)[1].split(" s")[0])} if said else {}


@contextmanager
def _producing(spec: ClusterSpec) -> Iterator[Traffic]:
    traffic, ends = Traffic(), threading.Event()
    producer = Producer(
        {"bootstrap.servers": spec.bootstrap_servers, "acks": "all", "delivery.timeout.ms": TIMEOUT_MS, "log_level": 0}
    )

    def produce() -> None:
        number, began = 0, time.monotonic()
        while not ends.is_set():
            while number < (time.monotonic() - began) * PER_SECOND:
                try:
                    producer.produce(
                        TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=traffic.delivered
                    )
                except BufferError:
                    break
                number += 1
            producer.poll(0.002)

    thread = threading.Thread(target=produce, name="producer")
    thread.start()
    try:
        while not all(traffic.acknowledged.values()):
            time.sleep(0.1)
        traffic.failed.clear()  # of the time before every broker knew the new topic
        yield traffic
    finally:
        ends.set()
        thread.join()
        producer.flush(2 * TIMEOUT_MS / 1000)


@contextmanager
def _watched(spec: ClusterSpec) -> Iterator[Absence]:
    absence, ends = Absence(), threading.Event()

    def watch() -> None:
        answered_at, missed = time.monotonic(), False
        with KafkaAdmin(spec, timeout_s=1) as admin:
            while not ends.is_set():
                try:
                    missed = admin.quorum().leader_id < 0 or missed
                except RolloutError:
                    missed = True
                else:
                    now = time.monotonic()
                    absence.seconds += now - answered_at if missed else 0.0
                    answered_at, missed = now, False
                ends.wait(0.1)

    thread = threading.Thread(target=watch, name="watch")
    thread.start()
    try:
        yield absence
    finally:
        ends.set()
        thread.join()


def _missed(rounds: Sequence[Mapping[str, Any]]) -> list[str]:
    missed = []
    for number, one in enumerate(rounds, start=1):
        live, roll = one["live"], one["roll"]
        if live["failed"]:
            missed.append(f"round {number}: {live['failed']} failed requests in the live downgrade, not 0.")
        if live["longest_gap_s"] > roll["longest_gap_s"]:
            missed.append(
                f"round {number}: longest gap of the live downgrade {live['longest_gap_s']} s, of the rolling restart "
                f"{roll['longest_gap_s']} s."
            )
    return missed


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 2), "min": min(values), "max": max(values)}


def _print(summary: Mapping[str, Mapping[str, Any]], rounds: Sequence[Mapping[str, Any]]) -> None:
    labels = ("failed requests", "longest gap (s)", "without controller (s)", "command (s)")
    print(f"{'':24}" + "".join(f"{way:>24}" for way in METHODS))
    for name, label in zip(FIGURES, labels, strict=True):
        cells = (summary[way][name] for way in METHODS)
        print(f"{label:24}" + "".join(f"{c['median']:>10} ({c['min']} to {c['max']})".rjust(24) for c in cells))
    switch = [one["live"]["switch_s"] for one in rounds if "switch_s" in one["live"]]
    if switch:
        print(f"live downgrade, stop of the controllers until a leader at the lower level: {_spread(switch)}")


if __name__ == "__main__":
    sys.exit(main())
