"""Measures the overhead of the DAG: the same rolling upgrade by a plain script and by the DAG, in one run.

    python -m bench.roll [--rounds 3] [--cases nodes racks] [--soaks 0 50] [--from 3.9.1] [--to 4.3.1]

Each round creates two equal clusters for each case and soak, one after the other, and upgrades both with the same gates
(3 consecutive checks, one second apart): one with `roll.walk` in this process, one with the DAG
`kafka_upgrade_<cluster>`. Airflow runs all the time, so its load on the machine affects both. The measured time begins
with the first gate of the first batch and ends with the last gate of the last one. It does not include plan, approvals
and report. A node step takes about 10 s, and the seconds of the soak more.

- `nodes`: three combined nodes, one at a time
- `racks`: three controllers, and six brokers in three racks that restart in batches of two

Writes bench/results/roll.json and prints medians with minimum and maximum, the ratio, and the parts of a batch in the
DAG: its three tasks, and the times between them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.errors import FatalError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.gate import GatePolicy
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.roll.walk import roll_release_steps
from kafka_rollout.run.events import ApprovalOf, Decision
from kafka_rollout.wiring.cluster_ports import open_cluster_ports
from tests.of_cluster import with_pace
from tools.demo.airflow_server import AirflowClient, AirflowServer
from tools.demo.folder import PROJECT_ROOT
from tools.demo.local_cluster import LocalCluster, stop_nodes

CHECKS, INTERVAL_S, GATE_TIMEOUT_S = 3, 1.0, 600.0
CASES: Mapping[str, tuple[Mapping[str, Any], int]] = {  # options of the cluster, and the largest batch
    "nodes": ({"layout": "combined", "size": 3}, 1),
    "racks": ({"size": 6, "controllers": 3, "racks": 3, "heap": "256m"}, 2),
}
TASKS = ("gate_before", "replace", "gate_after")
PARTS = ("gate_before", "until replace begins", "replace", "until gate_after begins", "gate_after")
RESULTS = PROJECT_ROOT / "bench" / "results" / "roll.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A cluster and the soak of its gates. `batch`: the most nodes that restart together."""

    cluster: str
    soak_s: float

    @property
    def options(self) -> Mapping[str, Any]:
        return CASES[self.cluster][0]

    @property
    def batch(self) -> int:
        return CASES[self.cluster][1]

    def __str__(self) -> str:
        return f"{self.cluster}, soak {self.soak_s:.0f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--from", dest="source", default="3.9.1")
    parser.add_argument("--to", dest="target", default="4.3.1")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--soaks", nargs="+", type=float, default=[0.0, 50.0], help="seconds of the pace normal")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-roll-") as name:
        rounds = _rounds(Path(name), arguments)
    cases = {case: {**_summary(found), "rounds": found} for case, found in rounds.items()}
    load = round(os.getloadavg()[0], 1)
    result = {"command": "python -m bench.roll " + " ".join(sys.argv[1:]), "load": load, "cases": cases}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    for case, summary in cases.items():
        print(f"{case}:")
        _print(summary)
    return 0


def _rounds(folder: Path, arguments: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    environment = {
        "KAFKA_ROLLOUT_CLUSTERS": str(folder / "clusters"),
        "KAFKA_ROLLOUT_HOME": str(folder / "home"),
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
    }
    os.environ.update(environment)
    (folder / "clusters").mkdir()
    cases = [Case(cluster=cluster, soak_s=soak_s) for cluster in arguments.cases for soak_s in arguments.soaks]
    rounds: dict[str, list[dict[str, Any]]] = {str(case): [] for case in cases}
    with AirflowServer.start(folder / "airflow", environment=environment) as airflow:
        for number in range(1, arguments.rounds + 1):
            for case in cases:
                figures = _round(folder, airflow, case, number, arguments)
                print(f"{case}, round {number} of {arguments.rounds}: {figures}", file=sys.stderr)
                rounds[str(case)].append(figures)
    return rounds


def _round(
    folder: Path, airflow: AirflowServer, case: Case, number: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    settings = Settings.from_environment()
    cache = ReleaseCache.from_settings(settings)
    cache.libs(Release.parse(arguments.target))
    figures: dict[str, Any] = {}
    # The order changes with every round, so that caches and temperature do not favour one of them.
    for way in ("script", "dag") if number % 2 else ("dag", "script"):
        name = f"{case.cluster}{way}{case.soak_s:.0f}x{number}"
        cluster = LocalCluster.create(folder, name, Release.parse(arguments.source), cache=cache, **case.options)
        cluster.inventory_path.write_text(
            dump_cluster(replace(with_pace(cluster.spec, soak_s=case.soak_s), gate_timeout_s=GATE_TIMEOUT_S))
        )
        try:
            _create_topic(cluster)
            if way == "script":
                figures["script_s"] = round(_by_script(cluster, arguments, case), 2)
            else:
                figures["dag_s"], figures["dag_parts"] = _by_dag(airflow.client(), cluster, arguments, case)
        finally:
            stop_nodes(cluster.folder, deadline_s=0.0)
    return figures


def _create_topic(cluster: LocalCluster) -> None:
    """Create a topic with replicas on all brokers: a cluster without one has no batches."""
    admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
    topic = NewTopic("orders", 60, 3, config={"min.insync.replicas": "2"})
    for made in admin.create_topics([topic]).values():
        made.result(60)


def _by_script(cluster: LocalCluster, arguments: argparse.Namespace, case: Case) -> float:
    policy = GatePolicy(checks=CHECKS, interval_s=INTERVAL_S, timeout_s=GATE_TIMEOUT_S, soak_s=case.soak_s)
    with open_cluster_ports(cluster.spec.name, "bench") as ports:
        target = Release.parse(arguments.target)
        request = Request(target=target, plans_features=False, scan=False, max_batch_size=case.batch)
        plan = plan_change(ports, request, RunOf.UPGRADE)
        record_approval(ports, ApprovalOf.ROLL, "bench", Decision.APPROVED, "a benchmark")
        began = time.monotonic()
        roll_release_steps(Run(ports, plan), policy)
        return time.monotonic() - began


def _by_dag(
    airflow: AirflowClient, cluster: LocalCluster, arguments: argparse.Namespace, case: Case
) -> tuple[float, dict[str, list[float]]]:
    dag_id = f"kafka_upgrade_{cluster.spec.name}"
    airflow.wait_for_dag(dag_id)
    conf = {
        "target_release": arguments.target,
        "finalize": "later",
        "rehearse": False,
        "max_batch_size": case.batch,
        "pace": "normal",
    }
    run_id = airflow.trigger(dag_id, conf)

    def approve(client: AirflowClient, task_id: str, detail: Mapping[str, Any]) -> None:
        client.answer(dag_id, run_id, task_id, detail["options"][0], reason="a benchmark")

    deadline = time.monotonic() + 900 + 10 * case.soak_s
    while time.monotonic() < deadline:
        for task_id, detail in airflow.questions(dag_id, run_id).items():
            approve(airflow, task_id, detail)
        tasks = airflow.tasks(dag_id, run_id)
        if tasks["check_features"]["state"] not in (None, "scheduled", "queued"):
            return _timed(tasks)
        if airflow.run_state(dag_id, run_id) == "failed":
            break
        time.sleep(1)
    raise FatalError(f"{dag_id} did not replace all nodes: {airflow.task_states(dag_id, run_id)}")


def _timed(tasks: Mapping[str, Mapping[str, Any]]) -> tuple[float, dict[str, list[float]]]:
    """Return the seconds of the roll, and those of each batch by their parts.

    The gates before the stop of all batches wait in the triggerer from the begin of the roll, so the part of each one
    begins with the end of the batch before it.
    """
    parts: dict[str, list[float]] = {part: [] for part in PARTS}
    began = before = _when(tasks["roll.gate_before[0]"]["start_date"])
    for index in range(sum(name.startswith("roll.replace[") for name in tasks)):
        gate_before, replace, gate_after = (tasks[f"roll.{one}[{index}]"] for one in TASKS)
        dates = (gate_before["end_date"], *_span(replace), *_span(gate_after))
        times = [before, *map(_when, dates)]
        for part, (start, end) in zip(PARTS, pairwise(times), strict=True):
            parts[part].append(round(end - start, 2))
        before = times[-1]
    return round(before - began, 2), parts


def _span(task: Mapping[str, Any]) -> tuple[str, str]:
    return task["start_date"], task["end_date"]


def _when(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _summary(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    ratios = [r["dag_s"] / r["script_s"] for r in rounds]
    extra = [(r["dag_s"] - r["script_s"]) / len(r["dag_parts"]["replace"]) for r in rounds]
    parts = {part: [one for r in rounds for one in r["dag_parts"][part]] for part in PARTS}
    return {
        "script_s": _spread([r["script_s"] for r in rounds]),
        "dag_s": _spread([r["dag_s"] for r in rounds]),
        "ratio": _spread(ratios),
        "extra_s_per_batch": _spread(extra),
        "dag_s_per_batch": {part: _spread(values) for part, values in parts.items()},
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 2), "min": round(min(values), 2), "max": round(max(values), 2)}


def _print(result: Mapping[str, Any]) -> None:
    def line(name: str, spread: Mapping[str, float], unit: str) -> None:
        print(f"{name:28} {spread['median']:8.2f} {unit}   ({spread['min']:.2f} to {spread['max']:.2f})")

    line("plain script", result["script_s"], "s")
    line("DAG", result["dag_s"], "s")
    line("ratio", result["ratio"], "x")
    line("additional time per batch", result["extra_s_per_batch"], "s")
    print("seconds of a batch in the DAG:")
    for part, spread in result["dag_s_per_batch"].items():
        line(f"  {part}", spread, "s")


if __name__ == "__main__":
    sys.exit(main())
