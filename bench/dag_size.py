"""Size of the DAGs by the number of nodes: tasks, serialized bytes, processor seconds to parse.

Each row is a process of its own with an inventory in a temporary folder. It parses the project's DAG file as Airflow's
DAG processor does, and serializes every DAG of it. Times are processor seconds, because other work on the machine does
not change them much. `import_s`: Airflow and this project, once per process.

    python -m bench.dag_size
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results" / "dag_size.json"
CONTROLLERS = 3
CASES = ((1, 9), (1, 100), (1, 1000), (12, 100))  # clusters, brokers of each


def cluster_of(name: str, brokers: int) -> ClusterSpec:
    """A cluster with three controllers, as an inventory describes it."""
    nodes = [
        NodeSpec(
            node_id=number,
            name=f"controller-{number}",
            roles=frozenset({Role.CONTROLLER}),
            directory=f"/nowhere/{name}/controller-{number}",
            controller_address=f"127.0.0.1:{20000 + number}",
        )
        for number in range(1, CONTROLLERS + 1)
    ]
    nodes += [
        NodeSpec(
            node_id=100 + number,
            name=f"broker-{100 + number}",
            roles=frozenset({Role.BROKER}),
            directory=f"/nowhere/{name}/broker-{100 + number}",
            broker_address=f"127.0.0.1:{21000 + number}",
        )
        for number in range(1, brokers + 1)
    ]
    return ClusterSpec(name=name, runtime="local_process", nodes=tuple(nodes))


def parse() -> dict[str, Any]:
    """Parse and serialize the DAG file of this process; return seconds, and tasks and bytes by kind of DAG."""
    began = time.process_time()
    from airflow.dag_processing.dagbag import DagBag
    from airflow.serialization.serialized_objects import LazyDeserializedDAG

    import kafka_rollout.airflow.graphs.all_clusters

    imported = time.process_time()
    bag = DagBag(ROOT / "dags" / "kafka_changes.py")
    parsed = time.process_time()
    if bag.import_errors:
        raise SystemExit(str(bag.import_errors))
    dags = {
        dag_id: {"tasks": len(dag.tasks), "bytes": len(json.dumps(LazyDeserializedDAG.from_dag(dag).data))}
        for dag_id, dag in bag.dags.items()
    }
    serialized = time.process_time()
    kinds = {dag_id.rsplit("_", 1)[0]: found for dag_id, found in dags.items() if dag_id.endswith("_c0")}
    return {
        "import_s": round(imported - began, 2),
        "parse_s": round(parsed - imported, 2),
        "serialize_s": round(serialized - parsed, 2),
        "file_bytes": sum(found["bytes"] for found in dags.values()),
        "dags": len(dags),
        "kinds": kinds,
        "loaded": kafka_rollout.airflow.graphs.all_clusters.__name__,
    }


def measure(clusters: int, brokers: int, *, task_of: str = "") -> dict[str, Any]:
    """Measure in a process of its own. `task_of`: id of the only DAG that a task's process needs."""
    with tempfile.TemporaryDirectory() as folder:
        inventory = Path(folder) / "clusters"
        inventory.mkdir()
        for number in range(clusters):
            (inventory / f"c{number}.yaml").write_text(dump_cluster(cluster_of(f"c{number}", brokers)))
        environment = {
            **os.environ,
            "AIRFLOW_HOME": str(Path(folder) / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "600",
            "KAFKA_ROLLOUT_CLUSTERS": str(inventory),
            "KAFKA_ROLLOUT_HOME": str(Path(folder) / "home"),
            **({"_AIRFLOW_PARSING_CONTEXT_DAG_ID": task_of} if task_of else {}),
        }
        command = [sys.executable, "-m", "bench.dag_size", "--one"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    del found["loaded"]
    return {"clusters": clusters, "brokers": brokers, **({"task_of": task_of} if task_of else {}), **found}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--at-most", type=int, default=1000, help="brokers of the largest cluster (default: 1000)")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(parse()))
        sys.exit()
    rows = [measure(clusters, brokers) for clusters, brokers in CASES if brokers <= given.at_most]
    rows.append(measure(12, 100, task_of="kafka_upgrade_c0"))
    for row in rows:
        most = max(row["kinds"].values(), key=lambda kind: kind["bytes"])
        print(
            f"{row['clusters']} x {row['brokers']} brokers{' (one task)' if 'task_of' in row else ''}: "
            f"largest DAG {most['tasks']} tasks, {most['bytes'] / 2**20:.2f} MiB; parse {row['parse_s']} s, "
            f"serialize {row['serialize_s']} s, import {row['import_s']} s"
        )
    given.results.write_text(json.dumps(rows, indent=2) + "\n")
