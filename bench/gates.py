"""Cost of one check of a gate in clusters of 2,000, 20,000 and 200,000 partitions.

    python -m bench.gates [--checks 5] [--partitions 2000 20000 200000] [--brokers 100] [--write]
    python -m bench.gates --real [--write]     # 20,000 partitions on six real brokers, through the roll of two of them

The brokers are simulated (bench/simulated_brokers.py): they answer Kafka's protocol on loopback from a process of their
own. Everything of the gate is real: the client, the observation, the conditions, the lock and the run history. Each row
is a process of its own. `first`: the first check of a process; `next`: the median of the checks after it. `peak_mb` is
the peak of the whole process, of which `imports_mb` are there before the first check.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.gates.gate import BeforeStop, Gate, GateKind, GatePolicy, GateWatch, gates_of_nodes
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.observation.run import Run
from kafka_rollout.roll.gate_checks import check_gates
from tools.demo.folder import PROJECT_ROOT

RESULTS = PROJECT_ROOT / "bench" / "results" / "gates.json"
SIZES, BATCH = (2_000, 20_000, 200_000), 5
KINDS = ("before", "after", "batch")
GOALS = {"seconds": 2.0, "peak_mb": 500}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checks", type=int, default=5)
    parser.add_argument("--partitions", type=int, nargs="+", default=SIZES)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.real:
        from bench.gates_real import measure_roll

        found: Any = measure_roll()
    else:
        found = [row for size in arguments.partitions for row in _rows(size, arguments.brokers, arguments.checks)]
    print(json.dumps(found, indent=2))
    if arguments.write:
        known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        command = "python -m bench.gates " + " ".join(sys.argv[1:])
        known["real" if arguments.real else "simulated"] = {"command": command, "result": found}
        RESULTS.write_text(json.dumps(known, indent=2) + "\n")
    return 0


def _rows(partitions: int, brokers: int, checks: int) -> list[dict[str, Any]]:
    from bench.simulated_brokers import simulated_brokers

    rows = []
    with simulated_brokers(brokers, partitions) as cluster:
        for kind in KINDS:
            here, there = multiprocessing.Pipe()
            process = multiprocessing.get_context("spawn").Process(
                target=_measure, args=(there, cluster.spec, kind, partitions, checks)
            )
            process.start()
            there.close()
            measured = []
            while isinstance(one := here.recv(), dict) and "seconds" in one:
                measured.append({**one, **_requests(cluster.taken())})
                here.send(None)
            process.join()
            first, *others = measured
            rows.append(
                {
                    "gate": kind,
                    "partitions": partitions,
                    "brokers": brokers,
                    "load": round(os.getloadavg()[0], 1),
                    "first": first,
                    "next": {name: statistics.median(one[name] for one in others) for name in first},
                    "next_seconds": [min(one["seconds"] for one in others), max(one["seconds"] for one in others)],
                    **one,
                }
            )
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def _requests(taken: Mapping[int, Mapping[str, tuple[int, int]]]) -> dict[str, float]:
    """Return the most requests of one kind that one broker got, all requests, and the bytes of all responses."""
    counts = [found for of_node in taken.values() for found in of_node.values()]
    return {
        "requests": sum(number for number, _ in counts),
        "metadata_of_a_broker": max(of_node.get("Metadata", (0, 0))[0] for of_node in taken.values()),
        "configs_of_a_broker": max(of_node.get("DescribeConfigs", (0, 0))[0] for of_node in taken.values()),
        "kb": round(sum(size for _, size in counts) / 1000, 1),
    }


def _measure(pipe: Connection, spec: ClusterSpec, kind: str, partitions: int, checks: int) -> None:
    """Check the gate; send the figures of each check, and then the memory of the process."""
    from bench.simulated_brokers import FIRST_BROKER, PER_TOPIC, REPLICAS, name_of, replicas_of
    from tests.fakes.cluster import R391, R431, FakeCluster
    from tests.fakes.ports import fake_ports
    from tests.plans import plan_upgrade

    world = FakeCluster(R391, spec=spec)
    with tempfile.TemporaryDirectory(prefix="bench-gates-") as folder, KafkaAdmin(spec) as admin:
        fakes = fake_ports(world, Path(folder))
        plan = plan_upgrade(fakes, R431, finalize=False)
        step = plan.release_steps[0]
        ports = replace(fakes, admin=admin)
        nodes = spec.brokers[: REPLICAS * BATCH : REPLICAS] if kind == "batch" else spec.brokers[:1]
        if kind == "after":
            names = [
                f"{name_of(number // PER_TOPIC)}-{number % PER_TOPIC}"
                for number in range(partitions)
                if FIRST_BROKER in replicas_of(number, len(spec.brokers))
            ]
            before = BeforeStop(
                node_id=FIRST_BROKER,
                release="3.9.1",
                at=0.0,
                in_isr=frozenset(names),
                leads=frozenset(),
                was_active_controller=False,
                pid=1,
            )
            ports.run.save_before_stop(step.key, before)
            world.nodes[FIRST_BROKER].running = R431
        of_nodes = gates_of_nodes(GateKind.AFTER_START if kind == "after" else GateKind.BEFORE_STOP, step, nodes)
        imports_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        for _ in range(checks + 1):
            pipe.send(_check(ports, plan, of_nodes))
            pipe.recv()
        pipe.send({"imports_mb": imports_mb, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024})


def _check(ports: Any, plan: Any, gates: Sequence[Gate]) -> dict[str, float]:
    failed: list[str] = []
    began, cpu = time.monotonic(), time.process_time()
    check_gates(
        Run(ports, plan),
        gates,
        [GateWatch(policy=GatePolicy(checks=1000)) for _ in gates],
        lambda gate, seen, message: None if seen.passes else failed.append(seen.waits_for),
    )
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    if failed:
        raise SystemExit(f"The gate did not pass: {failed[0][:500]}")
    return {"seconds": round(seconds, 3), "cpu_s": round(cpu, 3)}


if __name__ == "__main__":
    sys.exit(main())
