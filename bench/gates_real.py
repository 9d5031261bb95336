"""The cost of gates on six real brokers with 20,000 partitions, while two of them restart by the steps of a run."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.client.connection import NodeConnection
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.gate import Gate, GateKind, GatePolicy, GateWatch
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.roll.gate_checks import check_gates
from kafka_rollout.roll.node import replace_node
from kafka_rollout.run.events import ApprovalOf, Decision
from kafka_rollout.wiring.cluster_ports import open_cluster_ports
from tools.demo.local_cluster import LocalCluster, stop_nodes

TOPICS, PER_TOPIC, BROKERS, ROLLED = 1_000, 20, 6, 2
_TOPICS_AT_ONCE, _READY_S = 25, 900.0
_CONFIG = {
    "log.segment.bytes": "1048576",
    "log.index.size.max.bytes": "4096",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "num.replica.fetchers": "1",
    "replica.fetch.wait.max.ms": "5000",  # of partitions without data
    "replica.lag.time.max.ms": "60000",
    "num.recovery.threads.per.data.dir": "2",
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
}


def measure_roll() -> dict[str, Any]:
    """Return the figures of the checks of each gate, and of the whole roll."""
    with tempfile.TemporaryDirectory(prefix="bench-gates-") as name:
        settings = replace(Settings.from_environment(), home=Path(name) / "home", clusters=Path(name) / "clusters")
        try:
            LocalCluster.create(
                Path(name),
                "bench",
                Release(4, 3, 1),
                cache=ReleaseCache.from_settings(Settings.from_environment()),
                size=BROKERS,
                controllers=3,
                heap="640m",
                extra_config=_CONFIG,
            )
            with open_cluster_ports("bench", "run", None, settings) as ports:
                began = time.monotonic()
                _create_topics(ports.cluster.bootstrap_servers)
                _wait_until_in_sync(ports)
                print(f"created after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
                return _roll(ports)
        finally:
            stop_nodes(Path(name), deadline_s=0.0)


def _create_topics(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for first in range(0, TOPICS, _TOPICS_AT_ONCE):
        topics = [NewTopic(f"orders-{number:04}", PER_TOPIC, 3) for number in range(first, first + _TOPICS_AT_ONCE)]
        for created in admin.create_topics(topics, request_timeout=120, operation_timeout=120).values():
            created.result(180)


def _wait_until_in_sync(ports: ClusterPorts) -> None:
    until = time.monotonic() + _READY_S
    while True:
        found = ports.admin.partitions(min_isr_age_s=None)
        if len(found) >= TOPICS * PER_TOPIC and all(len(one.isr) == len(one.replicas) for one in found):
            return
        if time.monotonic() > until:
            raise SystemExit("The partitions did not become in sync.")
        time.sleep(5)


def _roll(ports: ClusterPorts) -> dict[str, Any]:
    nodes = ports.cluster.brokers[:ROLLED]
    request = Request(nodes=tuple(str(node.node_id) for node in nodes), scan=False)
    plan = plan_change(ports, request, RunOf.RESTART)
    record_approval(ports, ApprovalOf.ROLL, "bench", Decision.APPROVED, "a benchmark")
    (step,) = plan.release_steps
    checks: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
    replaced: list[dict[str, float]] = []
    began = time.monotonic()
    for node in nodes:
        _watch(ports, plan, Gate(kind=GateKind.BEFORE_STOP, release_step=step, node=node), 1, checks["before"])
        with _counting() as counts:
            started = time.monotonic()
            replace_node(NodeRun(Run(ports, plan), step, node))
            replaced.append({"seconds": round(time.monotonic() - started, 1), **counts()})
        _watch(ports, plan, Gate(kind=GateKind.AFTER_START, release_step=step, node=node), 3, checks["after"])
    return {
        "partitions": TOPICS * PER_TOPIC,
        "brokers": BROKERS,
        "load": round(os.getloadavg()[0], 1),
        "roll_s": round(time.monotonic() - began, 1),
        "replace": replaced,
        **{gate: {"checks": len(found), **_summary(found)} for gate, found in checks.items()},
    }


def _watch(ports: ClusterPorts, plan: Plan, gate: Gate, needed: int, measured: list[dict[str, float]]) -> None:
    watch = GateWatch(policy=GatePolicy(checks=needed, interval_s=1.0, timeout_s=_READY_S))
    while not watch.is_done:
        with _counting() as counts:
            began, cpu = time.monotonic(), time.process_time()
            status = check_gates(Run(ports, plan), [gate], [watch])
            seconds = {"seconds": time.monotonic() - began, "cpu_s": time.process_time() - cpu}
            measured.append({**seconds, **counts()})
        print(gate.name, measured[-1], status.message[:200], file=sys.stderr, flush=True)
        time.sleep(1.0)


@contextmanager
def _counting() -> Iterator[Any]:
    """Count the requests of the block, and the most Metadata and DescribeConfigs requests of one node."""
    asked: Counter[tuple[str, str]] = Counter()
    ask = NodeConnection.ask

    def count(connection: NodeConnection, request: Any, **options: Any) -> Any:
        asked[type(request).__name__.removesuffix("Request"), connection.who] += 1
        return ask(connection, request, **options)

    def most(kind: str) -> int:
        return max((number for (name, _), number in asked.items() if name == kind), default=0)

    with mock.patch.object(NodeConnection, "ask", count):
        yield lambda: {
            "requests": sum(asked.values()),
            "metadata_of_a_broker": most("Metadata"),
            "configs_of_a_broker": most("DescribeConfigs"),
        }


def _summary(found: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    """Return name → median, minimum, maximum."""
    return {
        name: [round(pick([one[name] for one in found]), 3) for pick in (statistics.median, min, max)]
        for name in found[0]
    }
