"""Measures whether a batch should give its leaderships away before it stops, side by side on one cluster.

    python -m bench.leaders_first [--rounds 6] [--release 4.3.1] [--partitions 60]

Six brokers in three racks; the two brokers of a rack are one batch. A producer (acks=all) writes at a constant rate. In
each round a batch is stopped twice, in alternating order: `shutdown` lets Kafka's controlled shutdown move the
leaderships; `first` moves them before, with a new order of the replicas and a preferred election, as an operator would.
Then the batch is started, and the old order of the replicas and its leaders are restored.

The longest gap is the longest time from a record's production to its acknowledgement, from the first change until all
brokers have stopped. Retries are the requests that librdkafka repeated in this time.

Writes bench/results/leaders_first.json and prints medians with minimum and maximum.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.protocol.admin import AlterPartitionReassignmentsRequest, ElectLeadersRequest

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tools.any_requests import AnyRequests
from tools.demo.folder import PROJECT_ROOT
from tools.demo.local_cluster import LocalCluster

RESULTS = PROJECT_ROOT / "bench" / "results" / "leaders_first.json"
TOPIC, RATE, RACKS = "orders", 200.0, 3
_WAIT_S = 90.0
_PREFERRED = 0  # election type of ElectLeaders
WAYS = ("shutdown", "first")


class Traffic:
    """A producer at RATE records a second; `window` returns the longest gap of a time."""

    def __init__(self, servers: str, partitions: int) -> None:
        self.failed_requests = 0
        self._acknowledged: list[tuple[float, float]] = []  # (produced at, seconds until the acknowledgement)
        self.failed = 0
        self._ended = threading.Event()
        settings = {"bootstrap.servers": servers, "acks": "all", "linger.ms": 5, "debug": "msg"}
        log = logging.getLogger("bench.leaders_first")
        log.setLevel(logging.DEBUG)
        log.propagate = False
        log.addFilter(self._count)
        self._producer = Producer({**settings, "logger": log})
        self._partitions = partitions
        self._thread = threading.Thread(target=self._produce)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.flush(_WAIT_S)

    def window(self, began: float, ended: float) -> dict[str, float]:
        """Return the figures of the records produced in between. Waits until they are acknowledged."""
        time.sleep(2.0)
        gaps = [gap for at, gap in self._acknowledged if began <= at <= ended]
        return {"longest_gap_s": max(gaps), "records": len(gaps)}

    def _produce(self) -> None:
        number, began = 0, time.monotonic()
        while not self._ended.is_set():
            at = time.monotonic()
            report = partial(self._add, at)
            self._producer.produce(TOPIC, b"x" * 200, partition=number % self._partitions, on_delivery=report)
            self._producer.poll(0)
            number += 1
            time.sleep(max(0.0, began + number / RATE - time.monotonic()))

    def _add(self, at: float, error: object, _message: object) -> None:
        if error is None:
            self._acknowledged.append((at, time.monotonic() - at))
        else:
            self.failed += 1

    def _count(self, record: logging.LogRecord) -> bool:
        self.failed_requests += "encountered error" in record.getMessage()
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--release", default="4.3.1")
    parser.add_argument("--partitions", type=int, default=60)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-leaders-") as name:
        cluster = LocalCluster.create(
            Path(name),
            "bench",
            Release.parse(arguments.release),
            cache=ReleaseCache.from_settings(Settings.from_environment()),
            size=6,
            controllers=1,
            racks=RACKS,
            heap="256m",
            extra_config={"auto.leader.rebalance.enable": "false", "min.insync.replicas": "2"},
        )
        try:
            rounds = _rounds(cluster, arguments.rounds, arguments.partitions)
        finally:
            cluster.stop(deadline_s=30.0)
    result = {
        "command": "python -m bench.leaders_first " + " ".join(sys.argv[1:]),
        **_summary(rounds),
        "rounds": rounds,
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    for way in WAYS:
        print(way, json.dumps(result[way]))
    return 0


def _rounds(cluster: LocalCluster, number: int, partitions: int) -> list[dict[str, Any]]:
    servers = cluster.spec.bootstrap_servers
    creating = AdminClient({"bootstrap.servers": servers})  # a client without a name is closed before it is answered
    creating.create_topics([NewTopic(TOPIC, partitions, 3)])[TOPIC].result(60)
    traffic, rounds = Traffic(servers, partitions), []
    nodes = AnyRequests(cluster.spec, ClientSecurity(), timeout_s=_WAIT_S)
    try:
        placement = _wait(nodes, lambda found: all(len(isr) == 3 for _, _, _, isr in found))
        orders = {number: list(replicas) for number, _, replicas, _ in placement}
        for at in range(number):
            rack = "abc"[at % RACKS]
            batch = [node for node in cluster.spec.brokers if node.rack == rack]
            for way in WAYS if at % 2 else reversed(WAYS):
                moved = _moved(orders, batch) if way == "first" else None
                figures = _stop(cluster, nodes, traffic, batch, moved)
                rounds.append({"round": at, "rack": rack, "way": way, **figures})
                print(rounds[-1], file=sys.stderr, flush=True)
                for node in batch:
                    cluster.runtime.start(node)
                _wait(nodes, lambda found: all(len(isr) == 3 for _, _, _, isr in found))
                _lead(nodes, orders)
    finally:
        traffic.close()
        nodes.close()
    if traffic.failed:
        raise SystemExit(f"{traffic.failed} records were not acknowledged.")
    return rounds


def _stop(
    cluster: LocalCluster,
    nodes: AnyRequests,
    traffic: Traffic,
    batch: Sequence[NodeSpec],
    moved: Mapping[int, Sequence[int]] | None,
) -> dict[str, float]:
    failed, began = traffic.failed_requests, time.monotonic()
    if moved is not None:
        _lead(nodes, moved)
    led = time.monotonic()
    with ThreadPoolExecutor(len(batch)) as pool:
        list(pool.map(partial(cluster.runtime.stop, deadline_s=_WAIT_S), batch))
    ended = time.monotonic()
    return {
        "move_s": round(led - began, 2),
        "stop_s": round(ended - led, 2),
        "load": round(os.getloadavg()[0], 1),
        **{name: round(value, 3) for name, value in traffic.window(began, ended).items()},
        "failed_requests": traffic.failed_requests - failed,
    }


def _moved(orders: Mapping[int, Sequence[int]], batch: Sequence[NodeSpec]) -> Mapping[int, Sequence[int]]:
    """Return the orders in which the replicas that stay come first."""
    leaving = {node.node_id for node in batch}
    return {index: sorted(nodes, key=lambda one: one in leaving) for index, nodes in orders.items()}


def _lead(nodes: AnyRequests, orders: Mapping[int, Sequence[int]]) -> None:
    """Give each partition the order of its replicas, and wait until the first of each leads."""
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    partitions = [
        topic.ReassignablePartition(partition_index=index, replicas=list(order)) for index, order in orders.items()
    ]
    reassign = AlterPartitionReassignmentsRequest(
        timeout_ms=int(_WAIT_S * 1000),
        topics=[topic(name=TOPIC, partitions=partitions)],
    )
    elected = ElectLeadersRequest.TopicPartitions(topic=TOPIC, partitions=list(orders))
    elect = ElectLeadersRequest(election_type=_PREFERRED, topic_partitions=[elected], timeout_ms=int(_WAIT_S * 1000))
    nodes.any_broker(reassign)
    _wait(nodes, lambda found: all(list(replicas) == list(orders[number]) for number, _, replicas, _ in found))
    nodes.any_broker(elect)
    _wait(nodes, lambda found: all(leader == orders[number][0] for number, leader, _, _ in found))


def _wait(nodes: AnyRequests, met: Callable[[Sequence[Any]], bool]) -> Sequence[Any]:
    until = time.monotonic() + _WAIT_S
    while True:
        topics, _ = nodes.topics(names=[TOPIC])
        found: Sequence[Any] = topics[TOPIC].partitions if TOPIC in topics else ()
        if found and met(found):  # a broker can answer before it has the new topic
            return found
        if time.monotonic() > until:
            raise SystemExit(f"The partitions did not change within {_WAIT_S:.0f} s: {found[:3]}")
        time.sleep(0.2)


def _summary(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    for way in WAYS:
        mine = [one for one in rounds if one["way"] == way]
        summary[way] = {
            name: [round(pick([one[name] for one in mine]), 3) for pick in (statistics.median, min, max)]
            for name in ("longest_gap_s", "failed_requests", "move_s", "stop_s")
        }
    return summary


if __name__ == "__main__":
    sys.exit(main())
