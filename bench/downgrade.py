"""Compares a live downgrade, an offline downgrade and an ordinary rolling restart under acks=all traffic, in one run.

    python -m bench.downgrade [--rounds 3] [--from 4.3.1] [--to 4.2.1] [--no-class-archives]
    python -m bench.downgrade --partitions 100000

Each round creates three equal clusters of three controllers and three brokers, one after the other. It runs
`kafka-rollout downgrade` on each with the same gates (2 consecutive checks, 0.5 s apart, soak 0), without a rehearsal:

- live: from the newest metadata.version, which Kafka refuses to lower. The controllers stop, then all nodes are rolled;
- offline: the same, with all nodes stopped. A live downgrade is switched off by a patch, because the plan prefers it;
- roll: from a metadata.version that the older release supports, so only the nodes are rolled.

A producer (acks=all, librdkafka's own retries, delivery.timeout.ms 10,000) sends 200 records/s to six partitions with
three replicas each during the whole command. A failed request is a record that the producer gives up. The longest gap
is the longest time without an acknowledgement of one partition; the newest event of the run before its end is shown. A
live downgrade contains the same rolling restart as the other two, so its gaps are measured in two parts: `switch`, from
the stop of the controllers until every node has the level, and the rest. Another thread queries the active
controller every 0.1 s; the time without controller is the sum of the times between two answers with a failed query in
between.

The nodes start with a class archive of their release (AppCDS), as in Apache's Docker image. Six nodes, the producer and
the command share the cores of this machine, so the time without a controller is mostly the start of Java.

Writes bench/results/downgrade.json and prints medians with minimum and maximum. Exit code 1 if a goal is missed: no
failed request in the live downgrade; at most 8 s without an active controller in its switch; in each round no longer
gap during the switch than in the rolling restart; and the median of the live downgrade's longest gaps, one for each
restart of a broker, is not above the longest one of the rolling restarts.

With --partitions it measures only the switch of a live downgrade, without traffic, with this number of partitions more
in the metadata, and writes bench/results/downgrade-partitions.json.
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
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench import many_partitions
from kafka_rollout.base.errors import FatalError, RolloutError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.gates.gate import GateKind
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.run.events import Event, events_of
from kafka_rollout.run.step_events import GatePassed, LiveLowered, NodeEvent, OfflineEvent, OfflineStopping, Stopping
from kafka_rollout.run.store.history import list_runs
from kafka_rollout.run.store.opening import database_of, open_run
from tests.class_archives import ClassArchives
from tools.demo.folder import PROJECT_ROOT
from tools.demo.local_cluster import LocalCluster, stop_nodes

METHODS = ("live", "offline", "roll")
TOPIC, PARTITIONS, PER_SECOND, TIMEOUT_MS = "bench", 6, 200, 10_000
RESULTS = PROJECT_ROOT / "bench" / "results" / "downgrade.json"
FIGURES = ("failed", "longest_gap_s", "without_controller_s", "command_s")
SWITCH_FIGURES = ("switch_gap_s", "switch_s")
_NOT_LIVE = """
from kafka_rollout.planning import downgrade
downgrade.live_obstacles = lambda *given: ("the benchmark switches it off",)
"""
SWITCH_S = 8.0  # at most
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

    def gaps(self) -> Iterator[tuple[float, float]]:
        """Begin and end of each time without an acknowledgement of one partition, in epoch seconds."""
        since = time.time() - time.monotonic()
        for times in self.acknowledged.values():
            yield from ((since + earlier, since + later) for earlier, later in pairwise(times))


@dataclass
class Absence:
    """`seconds`: the sum of the times without an answer of the active controller."""

    seconds: float = 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--from", dest="source", default="4.3.1")
    parser.add_argument("--to", dest="target", default="4.2.1")
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--no-class-archives", action="store_true")
    arguments = parser.parse_args()
    if not arguments.no_class_archives:
        _use_class_archives(Release.parse(arguments.source), Release.parse(arguments.target))
    if arguments.partitions:
        return _measure_partitions(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-downgrade-") as name:
        rounds = [_round(Path(name), number, arguments) for number in range(1, arguments.rounds + 1)]
    summary = {way: {name: _spread([r[way][name] for r in rounds]) for name in FIGURES} for way in METHODS}
    missed = _missed(rounds)
    result = {"command": "python -m bench.downgrade " + " ".join(sys.argv[1:]), **summary, "missed": missed}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({**result, "rounds": rounds}, indent=2) + "\n")
    _print(summary, rounds)
    for sentence in missed:
        print(f"MISSED: {sentence}")
    return 1 if missed else 0


def _use_class_archives(*releases: Release) -> None:
    settings = Settings.from_environment()
    archives = ClassArchives(ReleaseCache.from_settings(settings), settings.cache)
    archives.use()
    for release in releases:
        archives.record(release)


def _measure_partitions(arguments: argparse.Namespace) -> int:
    releases = Release.parse(arguments.source), Release.parse(arguments.target)
    with tempfile.TemporaryDirectory(prefix="bench-downgrade-") as name:
        result = many_partitions.measure(Path(name), *releases, arguments.partitions)
    text = json.dumps({"command": "python -m bench.downgrade " + " ".join(sys.argv[1:]), **result}, indent=2)
    RESULTS.with_name("downgrade-partitions.json").write_text(f"{text}\n")
    print(text)
    return 0


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
            _downgrade(folder, cluster, way, arguments)
            command_s = time.monotonic() - began
            time.sleep(_SETTLED_S)
        own = replace(settings, home=folder / "home")
        events = open_run("bench", list_runs(database_of(own), "bench")[0], own).events()
        gaps = sorted(traffic.gaps(), key=_length)
        figures = {
            "acknowledged": sum(map(len, traffic.acknowledged.values())),
            "failed": sum(traffic.failed.values()),
            "errors": dict(traffic.failed),
            "longest_gap_s": round(_length(gaps[-1]), 2),
            "longest_gap": _described(gaps[-1], events),
            "without_controller_s": round(absence.seconds, 2),
            "command_s": round(command_s, 1),
        }
        if way != "offline":
            brokers = {node.node_id for node in cluster.spec.brokers}
            figures["restart_gaps_s"] = _of_restarts(gaps, events, brokers)
        return figures if way != "live" else {**figures, **_of_the_switch(gaps, events)}
    finally:
        stop_nodes(folder, deadline_s=0.0)


def _highest_level(settings: Settings, release: Release) -> str:
    facts = load_catalogue(*settings.catalogue_folders).get(release)
    highest = facts.features[METADATA_VERSION].latest_production
    return next(level.name for level in facts.metadata_versions if level.level == highest)


def _downgrade(folder: Path, cluster: LocalCluster, way: str, arguments: argparse.Namespace) -> None:
    refused = {"live": "live", "offline": "offline", "roll": "online"}[way]
    words = f"downgrade --cluster bench --to {arguments.target} --lowering {refused} --no-rehearse --pace fast"
    patch = _NOT_LIVE if way == "offline" else ""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{patch}\nfrom kafka_rollout.cli.app import main; main()",
            *words.split(),
            *("--as", "bench", "--reason", "a benchmark", "--yes"),
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


def _length(gap: tuple[float, float]) -> float:
    return gap[1] - gap[0]


def _described(gap: tuple[float, float], events: Sequence[Event]) -> str:
    """The newest change of the run before the end of a gap."""
    changes = [e for e in events if isinstance(e, NodeEvent | OfflineEvent) and e.at <= gap[1]]
    if not changes:
        return "before any change"
    node_id = getattr(changes[-1], "node_id", None)
    of = "" if node_id is None else f" of node {node_id}"
    return f"ends {gap[1] - changes[-1].at:.1f} s after {type(changes[-1]).__name__}{of}"


def _of_restarts(gaps: Sequence[tuple[float, float]], events: Sequence[Event], brokers: Set[int]) -> list[float]:
    """The longest gap of each restart of one broker: from its stop to the stop of the next node."""
    stops = events_of(events, Stopping)
    ends = [*(event.at for event in stops[1:]), float("inf")]
    return [
        round(max(_length(gap) for gap in gaps if event.at < gap[1] <= end), 2)
        for event, end in zip(stops, ends, strict=True)
        if event.node_id in brokers
    ]


def _of_the_switch(gaps: Sequence[tuple[float, float]], events: Sequence[Event]) -> dict[str, Any]:
    """`switch_gap_s`: until every node has the level. `switch_s`: until a leader at the level, by the product."""
    (stopping,), (lowered,) = events_of(events, OfflineStopping), events_of(events, LiveLowered)
    ends = next(e.at for e in events_of(events, GatePassed) if e.ref.kind is GateKind.METADATA_VERSION)
    during = [_length(gap) for gap in gaps if gap[1] > stopping.at and gap[0] < ends]
    return {"switch_gap_s": round(max(during), 2), "switch_s": lowered.without_controller_s}


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
                    missed = admin.quorum(through_brokers=False).leader_id < 0 or missed
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
        if live["switch_s"] > SWITCH_S:
            missed.append(f"round {number}: {live['switch_s']} s without a controller in the switch, not {SWITCH_S}.")
        if live["switch_gap_s"] > roll["longest_gap_s"]:
            missed.append(
                f"round {number}: longest gap during the switch {live['switch_gap_s']} s, in the rolling restart "
                f"{roll['longest_gap_s']} s."
            )
    live, roll = _restart_gaps(rounds, "live"), _restart_gaps(rounds, "roll")
    if statistics.median(live) > max(roll):
        missed.append(f"gaps of restarts: median {statistics.median(live)} s live, at most {max(roll)} s rolling.")
    return missed


def _restart_gaps(rounds: Sequence[Mapping[str, Any]], way: str) -> list[float]:
    return [gap for one in rounds for gap in one[way]["restart_gaps_s"]]


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 2), "min": min(values), "max": max(values)}


def _print(summary: Mapping[str, Mapping[str, Any]], rounds: Sequence[Mapping[str, Any]]) -> None:
    labels = ("failed requests", "longest gap (s)", "without controller (s)", "command (s)")
    print(f"{'':24}" + "".join(f"{way:>24}" for way in METHODS))
    for name, label in zip(FIGURES, labels, strict=True):
        cells = (summary[way][name] for way in METHODS)
        print(f"{label:24}" + "".join(f"{c['median']:>10} ({c['min']} to {c['max']})".rjust(24) for c in cells))
    for name, label in zip(
        SWITCH_FIGURES, ("longest gap during the switch", "switch, without a controller"), strict=True
    ):
        print(f"live downgrade, {label} (s): {_spread([one['live'][name] for one in rounds])}")
    for way in ("live", "roll"):
        print(f"{way}, longest gap of each restart of a broker (s): {_spread(_restart_gaps(rounds, way))}")
    for number, one in enumerate(rounds, start=1):
        for way in METHODS:
            print(f"round {number}, {way}: longest gap {one[way]['longest_gap_s']} s, {one[way]['longest_gap']}")


if __name__ == "__main__":
    sys.exit(main())
