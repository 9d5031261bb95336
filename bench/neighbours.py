"""Measures whether the DAG of a neighbour becomes slower when the database of this project does not respond.

    python -m bench.neighbours [--rounds 12] [--runs 4] [--tabs 20]

Real: two Airflows at the same time on one machine (`airflow standalone`, SQLite), each with the same DAG of one short
task. One of them also has the DAGs, the plugin and the listener of this project. The database of this project is a
server that accepts connections and never answers. In each round, runs of `kafka_upgrade_<cluster>` begin there and
fail, open pages ask for the state of all clusters all the time, and the neighbour's DAG runs once in each Airflow, one
after the other. So everything else on the machine affects both.

Writes bench/results/neighbours.json: the seconds from the trigger of the neighbour's run to its end (median, minimum,
maximum), and their ratio.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

import httpx

from kafka_rollout.base.errors import FatalError
from kafka_rollout.clusters.inventory import dump_cluster
from tests.fakes.cluster import make_spec
from tools.demo.airflow_server import AirflowClient, AirflowServer
from tools.demo.folder import PROJECT_ROOT

RESULTS = PROJECT_ROOT / "bench" / "results" / "neighbours.json"
GOAL = 1.2
DAG_ID = "neighbour"
NEIGHBOUR = """
from airflow.sdk import dag, task

@dag(schedule=None)
def neighbour():
    @task
    def work():
        return 1
    work()

neighbour()
"""
OURS = """
from kafka_rollout.airflow.graphs.cluster_dags import dags_of_changes
from kafka_rollout.base.system.settings import Settings

globals().update(dags_of_changes(Settings.from_environment()))
"""
_ENDED = {"success", "failed"}
_WITHIN_S = 600.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--runs", type=int, default=4, help="runs of this project that begin in each round")
    parser.add_argument("--tabs", type=int, default=20, help="pages that are open in browsers")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-neighbours-") as folder, ExitStack() as stack:
        port = stack.enter_context(silent_server())
        alone = stack.enter_context(_airflow(Path(folder, "alone"), {}))
        beside = stack.enter_context(_airflow(Path(folder, "beside"), _with_ours(Path(folder), port, arguments.runs)))
        for server in (alone, beside):
            server.client().wait_for_dag(DAG_ID)
        clusters = [f"cluster-{number}" for number in range(arguments.runs)]
        for cluster in clusters:
            beside.client().wait_for_dag(f"kafka_upgrade_{cluster}")
        stack.enter_context(_open_pages(beside, clusters, arguments.tabs))
        _round(alone.client(), beside.client(), clusters, 0)  # the first tasks of a server wait for its imports
        rounds = [_round(alone.client(), beside.client(), clusters, number) for number in range(arguments.rounds)]
    command = " ".join(["python -m bench.neighbours", *sys.argv[1:]])
    result: dict[str, Any] = {"command": command, "runs_per_round": arguments.runs, "tabs": arguments.tabs}
    for name in ("alone_s", "beside_s"):
        result[name] = _spread([one[name] for one in rounds])
    result["ratio"] = _spread([one["beside_s"] / one["alone_s"] for one in rounds])
    result["ratio_of_medians"] = round(result["beside_s"]["median"] / result["alone_s"]["median"], 2)
    result["rounds"] = rounds
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0 if result["ratio"]["median"] <= GOAL else 1


@contextmanager
def silent_server() -> Iterator[int]:
    """A server on loopback that accepts every connection and sends nothing; yields its port."""
    kept, ends = list[socket.socket](), Event()
    with socket.create_server(("127.0.0.1", 0), backlog=200) as server:
        server.settimeout(0.2)

        def accept() -> None:
            while not ends.is_set():
                try:
                    kept.append(server.accept()[0])
                except TimeoutError:
                    continue

        thread = Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            ends.set()
            thread.join()
            for one in kept:
                one.close()


@contextmanager
def _airflow(home: Path, ours: dict[str, str]) -> Iterator[AirflowServer]:
    dags = home / "dags"
    dags.mkdir(parents=True)
    (dags / "neighbour.py").write_text(NEIGHBOUR)
    if ours:
        (dags / "ours.py").write_text(OURS)
    plugins = PROJECT_ROOT / "plugins" if ours else home / "plugins"
    environment = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(plugins),
        "AIRFLOW__CORE__PARALLELISM": "32",  # a task that waits for a place waits for no database
        **ours,
    }
    with AirflowServer.start(home, environment=environment, timeout_s=300) as server:
        yield server


def _with_ours(folder: Path, port: int, clusters: int) -> dict[str, str]:
    inventory = folder / "clusters"
    inventory.mkdir()
    for number in range(clusters):
        spec = make_spec(name=f"cluster-{number}")
        nodes = tuple(replace(node, directory=f"/nowhere/{spec.name}/{node.name}") for node in spec.nodes)
        (inventory / f"{spec.name}.yaml").write_text(dump_cluster(replace(spec, nodes=nodes)))
    return {
        "KAFKA_ROLLOUT_CLUSTERS": str(inventory),
        "KAFKA_ROLLOUT_HOME": str(folder / "rollout"),
        "KAFKA_ROLLOUT_DATABASE": f"postgresql+psycopg://nobody@127.0.0.1:{port}/nothing",
        "KAFKA_ROLLOUT_ARTIFACTS": f"file://{folder}/artifacts",
        "PYTHONPATH": f"{PROJECT_ROOT / 'plugins'}:{PROJECT_ROOT / 'spark_jobs'}",
    }


@contextmanager
def _open_pages(server: AirflowServer, clusters: list[str], tabs: int) -> Iterator[None]:
    """Ask for the console as open pages do, until the block ends. No answer stops a tab."""
    ends, client = Event(), server.client()
    token = client.http().headers["Authorization"]

    def ask(cluster: str) -> None:
        with httpx.Client(base_url=server.url, timeout=120, trust_env=False, headers={"Authorization": token}) as http:
            while not ends.wait(2.0):
                for path in ("console", "status.json", "kafka"):
                    try:
                        http.get(f"/kafka-rollout/{path}", params={"cluster": cluster})
                    except httpx.HTTPError:
                        continue

    threads = [Thread(target=ask, args=(clusters[number % len(clusters)],), daemon=True) for number in range(tabs)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ends.set()
        for thread in threads:
            thread.join()


def _round(alone: AirflowClient, beside: AirflowClient, clusters: list[str], number: int) -> dict[str, float]:
    for cluster in clusters:
        beside.trigger(f"kafka_upgrade_{cluster}", {"target_release": "4.3.1"})
    clients = {"alone_s": alone, "beside_s": beside}
    return {name: _latency_s(clients[name]) for name in sorted(clients, reverse=bool(number % 2))}


def _latency_s(client: AirflowClient) -> Any:
    """Return the seconds between the trigger of the neighbour's run and its end, by Airflow's own times."""
    run_id, deadline = client.trigger(DAG_ID, {}), time.monotonic() + _WITHIN_S
    while (run := client.get(f"/dags/{DAG_ID}/dagRuns/{run_id}"))["state"] not in _ENDED:
        if time.monotonic() > deadline:
            raise FatalError(f"The neighbour's run has not ended after {_WITHIN_S:.0f} s.")
        time.sleep(0.2)
    if run["state"] != "success":
        raise FatalError(f"The neighbour's run failed: {run}.")
    return round((_time(run["end_date"]) - _time(run["queued_at"])).total_seconds(), 2)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": round(median(values), 2), "min": round(min(values), 2), "max": round(max(values), 2)}


if __name__ == "__main__":
    sys.exit(main())
