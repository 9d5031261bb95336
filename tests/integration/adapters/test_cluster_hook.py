"""The button *Test* of a Connection, and what its hook gives, on real brokers."""

from __future__ import annotations

import json

import pytest

from tests.integration.conftest import MakeCluster

pytestmark = [pytest.mark.integration, pytest.mark.airflow]


def test_the_test_of_a_connection_says_what_it_saw(make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk import BaseHook

    cluster = make_cluster("4.3.1", name="hooked", size=2, controllers=1)
    fields = {"conn_type": "kafka_rollout", "host": cluster.spec.bootstrap_servers}
    monkeypatch.setenv("AIRFLOW_CONN_HOOKED", json.dumps(fields))
    hook = BaseHook.get_hook("hooked")
    admin = hook.get_conn()
    found = admin.describe_cluster(request_timeout=30).result()
    assert hook.test_connection() == (True, f"Cluster {found.cluster_id}: 2 brokers, 1 controller.")
    stopped = next(node for node in cluster.spec.brokers if node.node_id == 2)
    cluster.runtime.stop(stopped, deadline_s=60.0)
    passed, said = hook.test_connection()
    assert not passed
    assert said.startswith(f"Cluster {found.cluster_id}: 2 brokers, 1 controller. ")
    assert "(node 2) does not respond" in said
