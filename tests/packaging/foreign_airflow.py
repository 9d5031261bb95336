"""Upgrades a local cluster twice, with the packages of this interpreter alone. Prints JSON.

The first upgrade is run by a DAG file of three lines, the second one by a user's own DAG that embeds it. Then another
DAG of the user watches and checks the cluster by a Connection alone.

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
WATCHING_DAG = """\
from airflow.sdk import dag
from kafka_rollout.airflow.operators.kafka_cluster import KafkaFeaturesOperator, KafkaReleaseCheckOperator
from kafka_rollout.airflow.sensors.kafka_cluster import KafkaClusterHealthySensor, KafkaFeatureLevelSensor

@dag(schedule=None, params={"level": 1, "release": "4.3.1"})
def watches():
    by = {"kafka_cluster_conn_id": "foreign"}
    healthy = KafkaClusterHealthySensor(task_id="healthy", **by)
    level = KafkaFeatureLevelSensor(task_id="level", level="{{ params.level }}", deferrable=True, poke_interval=1, **by)
    check = KafkaReleaseCheckOperator(task_id="check", release="{{ params.release }}", fails_on="blocker", **by)
    healthy >> level >> check >> KafkaFeaturesOperator(task_id="features", **by)

watches()
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
    (folder / "dags" / "watches.py").write_text(WATCHING_DAG)
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
            "AIRFLOW_CONN_FOREIGN": json.dumps({"conn_type": "kafka_rollout", "host": cluster.spec.bootstrap_servers}),
        }
        with AirflowServer.start(folder / "airflow", environment=environment, timeout_s=600) as server:
            found = {dag_id: upgrade(server, dag_id, target) for dag_id, target in zip(DAG_IDS, targets, strict=True)}
            print(json.dumps({**found, "watches": watch(server, targets[-1]), **installation(server)}))
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


def watch(server: AirflowServer, release: str) -> dict[str, Any]:
    """Run the user's DAG with sensors and operators: a level that is there, then one that never comes."""
    client = server.client()
    client.wait_for_dag("watches", timeout_s=600)
    run_id = client.trigger("watches", {"level": 1, "release": release})
    waiting = client.trigger("watches", {"level": 99, "release": release})
    until = time.monotonic() + WITHIN_S
    while (state := client.run_state("watches", run_id)) not in {"success", "failed"} and time.monotonic() < until:
        time.sleep(1.0)
    return {
        "state": state,
        "tasks": client.task_states("watches", run_id),
        "waits": client.task_states("watches", waiting)["level"],
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
