"""Upgrades a local cluster twice, with the packages of this interpreter alone. Prints JSON.

The first upgrade is run by a DAG file of three lines, the second one by a user's own DAG that embeds it.

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

import httpx

import kafka_rollout
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.model.topology import NEVER
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tools.demo.airflow_server import AirflowServer
from tools.demo.local_cluster import LocalCluster

THREE_LINES = """\
from kafka_rollout.airflow.graphs.all_clusters import all_dags

globals().update(all_dags())
"""
OWN_DAG = """\
from airflow.sdk import dag, task
from kafka_rollout.airflow.graphs.embedded import KafkaUpgradeTaskGroup

@task
def announce():
    print("The upgrade begins.")

@task
def celebrate():
    print("The upgrade is done.")

@dag(schedule=None)
def nightly():
    announce() >> KafkaUpgradeTaskGroup("foreign") >> celebrate()

nightly()
"""
DAG_IDS = ("kafka_upgrade_foreign", "nightly")
WITHIN_S = 1500.0


def main(folder: Path, source: str, *targets: str) -> None:
    """`targets`: one release for each DAG of DAG_IDS."""
    os.environ["KAFKA_ROLLOUT_HOME"] = str(folder / "home")
    settings = Settings.from_environment()
    (folder / "plugins").mkdir(parents=True)
    (folder / "dags").mkdir()
    (folder / "dags" / "kafka.py").write_text(THREE_LINES)
    (folder / "dags" / "nightly.py").write_text(OWN_DAG)
    settings.clusters.mkdir(parents=True)
    cache = ReleaseCache.from_settings(settings)
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
            found = {dag_id: upgrade(server, dag_id, target) for dag_id, target in zip(DAG_IDS, targets, strict=True)}
            print(json.dumps({**found, **installation(server)}))
    finally:
        cluster.delete()


def upgrade(server: AirflowServer, dag_id: str, target: str) -> dict[str, Any]:
    """Trigger the upgrade, approve every request, and wait for its end. Then read the run on the page."""
    client = server.client()
    client.wait_for_dag(dag_id, timeout_s=600)
    conf = {"target_release": target, "pace": "fast"}
    run_id = client.trigger(dag_id, conf)
    until = time.monotonic() + WITHIN_S
    while (state := client.run_state(dag_id, run_id)) not in {"success", "failed"} and time.monotonic() < until:
        for task_id in client.questions(dag_id, run_id):
            client.answer(dag_id, run_id, task_id, "Approve", reason="a test")
        time.sleep(1.0)
    (cluster,) = client.call("GET", "/kafka-rollout/runs")
    return {
        "state": state,
        "tasks": client.task_states(dag_id, run_id),
        "shown": next((run for run in cluster["runs"] if run["run_id"] == run_id), None),
        "lock": cluster["lock"],
        "report": report(server, dag_id, run_id),
    }


def report(server: AirflowServer, dag_id: str, run_id: str) -> str:
    """Return the page of the run's report."""
    (user,) = server.users
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        answer = http.post("/auth/token", json={"username": user.name, "password": user.password})
        signed_in = {"Authorization": f"Bearer {answer.json()['access_token']}"}
        path = f"/kafka-rollout/dags/{dag_id}/report"
        return http.get(path, params={"run_id": run_id}, headers=signed_in).text


def installation(server: AirflowServer) -> dict[str, Any]:
    client = server.client()
    return {
        "package": str(Path(kafka_rollout.__file__).parent),
        "plugins": [found["name"] for found in client.get("/plugins")["plugins"]],
        "plugin_errors": client.get("/plugins/importErrors")["import_errors"],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
