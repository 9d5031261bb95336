"""Upgrades a local cluster by a DAG file of three lines, with the packages of this interpreter alone. Prints JSON.

test_foreign_airflow.py runs it with the interpreter of an environment that has Airflow and the wheel.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import kafka_rollout
from kafka_rollout.adapters.inventory import dump_cluster
from kafka_rollout.adapters.releases.cache import ReleaseCache
from kafka_rollout.demo.airflow_server import AirflowServer
from kafka_rollout.demo.local_cluster import LocalCluster
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.model.topology import NEVER
from kafka_rollout.settings import Settings

THREE_LINES = """\
from kafka_rollout.airflow.graphs.all_clusters import all_dags

globals().update(all_dags())
"""
DAG_ID = "kafka_upgrade_foreign"
WITHIN_S = 1500.0


def main(folder: Path, source: str, target: str) -> None:
    os.environ["KAFKA_ROLLOUT_HOME"] = str(folder / "home")
    settings = Settings.from_environment()
    (folder / "plugins").mkdir(parents=True)
    (folder / "dags").mkdir()
    (folder / "dags" / "kafka.py").write_text(THREE_LINES)
    settings.clusters.mkdir(parents=True)
    cache = ReleaseCache(settings.cache, settings.include)
    cluster = LocalCluster.create(folder / "kafka", "foreign", Release.parse(source), cache=cache)
    try:
        described = replace(cluster.spec, scan_schedule=NEVER)
        (settings.clusters / "foreign.yaml").write_text(dump_cluster(described))
        environment = {
            "KAFKA_ROLLOUT_HOME": str(folder / "home"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(folder / "plugins"),
            "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "300",
        }
        with AirflowServer.start(folder / "airflow", environment=environment, timeout_s=600) as server:
            print(json.dumps(upgrade(server, target)))
    finally:
        cluster.delete()


def upgrade(server: AirflowServer, target: str) -> dict[str, Any]:
    """Trigger the upgrade, approve whatever it asks, and wait for its end."""
    client = server.client()
    client.wait_for_dag(DAG_ID, timeout_s=600)
    conf = {"target_release": target, "soak_seconds": 0, "looks": 2, "gate_timeout_minutes": 20}
    run_id = client.trigger(DAG_ID, conf)
    until = time.monotonic() + WITHIN_S
    while (state := client.run_state(DAG_ID, run_id)) not in {"success", "failed"} and time.monotonic() < until:
        for task_id in client.questions(DAG_ID, run_id):
            client.answer(DAG_ID, run_id, task_id, "Approve", reason="a test")
        time.sleep(1.0)
    return {
        "package": str(Path(kafka_rollout.__file__).parent),
        "state": state,
        "tasks": client.task_states(DAG_ID, run_id),
        "plugins": [found["name"] for found in client.get("/plugins")["plugins"]],
        "plugin_errors": client.get("/plugins/importErrors")["import_errors"],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:4])
