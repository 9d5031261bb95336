"""Airflow's scheduler starts the DAG of notifications, and its task reads Variable and Connection from Airflow."""

from __future__ import annotations

import json
import time

import pytest

from kafka_rollout.run.events import ApprovalOf, Asked, Begun
from tests.dags.message_servers import webhook_server
from tests.integration.harness.airflow.server import PATIENCE_S, PrivateAirflow
from tests.records import run_history
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.airflow]

DAG_ID, RUN_DAG = "kafka_notifications", "kafka_upgrade_nobody"
PAYLOAD = {"kind": "{{ alert.kind }}", "link": "{{ alert.link }}"}


@pytest.mark.full
def test_a_request_reaches_the_webhook_once_while_the_dag_runs_every_minute(airflow: PrivateAirflow) -> None:
    store = run_history(airflow.home, "nobody", "manual__1")
    store.record(Begun(dag_id=RUN_DAG))
    store.record(
        Asked(
            what=ApprovalOf.ROLL,
            task_id="approve_plan",
            record_id="r",
            text="Upgrade nobody?",
            options=("Approve", "Reject"),
            answer_by=time.time() + 86_400,
        )
    )
    channel = {
        "notifier": "kafka_rollout.airflow.webhook.WebhookNotifier",
        "kwargs": {"conn_id": "hook", "payload": PAYLOAD},
    }
    client = airflow.client()
    variable = {"key": "kafka_rollout_notifications", "value": json.dumps({"channels": [channel]})}
    client.wait_for_dag(DAG_ID, timeout_s=600)
    assert client.get(f"/dags/{DAG_ID}")["is_paused"]

    def succeeded() -> bool:
        runs = client.get(f"/dags/{DAG_ID}/dagRuns")["dag_runs"]
        assert all(run["state"] != "failed" for run in runs), runs
        return sum(run["state"] == "success" for run in runs) >= 2

    with webhook_server() as hook:
        connection = {"connection_id": "hook", "conn_type": "http", "password": f"{hook.url}/secret"}
        client.call("POST", "/api/v2/connections", json=connection)
        client.call("POST", "/api/v2/variables", json=variable)
        client.call("PATCH", f"/api/v2/dags/{DAG_ID}", json={"is_paused": False})
        try:
            wait_until(succeeded, PATIENCE_S)
        finally:  # the tests that follow share the server
            client.call("PATCH", f"/api/v2/dags/{DAG_ID}", json={"is_paused": True})
        posts = [(path, post) for path, _, post in hook.posts if RUN_DAG in post["link"]]
    ((path, post),) = posts
    assert (path, post["kind"]) == ("/secret", "approval-pending")
    assert post["link"].endswith(f"/dags/{RUN_DAG}/runs/manual__1/required_actions")
