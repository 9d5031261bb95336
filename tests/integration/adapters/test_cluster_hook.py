"""What the public layer gives by the id of a Connection, on real brokers: hook, *Test*, sensors and operators."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.conftest import MakeCluster

pytestmark = [pytest.mark.integration, pytest.mark.airflow]


def test_a_connection_is_enough_to_watch_and_check_a_cluster(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowFailException

    from kafka_rollout.airflow.operators.kafka_cluster import KafkaFeaturesOperator, KafkaReleaseCheckOperator
    from kafka_rollout.airflow.sensors.kafka_cluster import (
        KafkaClusterHealthySensor,
        KafkaFeatureLevelSensor,
        KafkaMetadataVersionSensor,
    )

    cluster = make_cluster("4.3.1", name="hooked", size=2, controllers=1)
    fields = {"conn_type": "kafka_rollout", "host": cluster.spec.bootstrap_servers}
    monkeypatch.setenv("AIRFLOW_CONN_HOOKED", json.dumps(fields))
    hook = BaseHook.get_hook("hooked")
    by_hook: dict[str, Any] = {"kafka_cluster_conn_id": "hooked"}
    healthy = KafkaClusterHealthySensor(task_id="healthy", **by_hook)
    assert healthy.poke({}).is_done
    assert KafkaFeatureLevelSensor(task_id="level", level=29, **by_hook).poke({}).is_done
    assert not KafkaFeatureLevelSensor(task_id="level", level=31, **by_hook).poke({}).is_done
    seen = KafkaMetadataVersionSensor(task_id="version", **by_hook).poke({})
    assert seen.is_done
    assert len(seen.xcom_value["conditions"]) == len(cluster.spec.nodes)
    found = KafkaFeaturesOperator(task_id="features", levels={"transaction.version": 1}, **by_hook).execute({})
    assert found["finalized"]["metadata.version"] == 30
    with pytest.raises(AirflowFailException, match=r"metadata\.version"):
        KafkaFeaturesOperator(task_id="features", levels={"metadata.version": 99}, **by_hook).execute({})
    check = KafkaReleaseCheckOperator(
        task_id="check", release="4.3.1", running_release="4.3.1", fails_on="never", **by_hook
    )
    assert check.execute({})["change"] == "restart"
    admin = hook.get_conn()
    described = admin.describe_cluster(request_timeout=30).result()
    assert hook.test_connection() == (True, f"Cluster {described.cluster_id}: 2 brokers, 1 controller.")
    stopped = next(node for node in cluster.spec.brokers if node.node_id == 2)
    cluster.runtime.stop(stopped, deadline_s=60.0)
    passed, said = hook.test_connection()
    assert not passed
    assert said.startswith(f"Cluster {described.cluster_id}: 2 brokers, 1 controller. ")
    assert "(node 2) does not respond" in said
    assert not healthy.poke({}).is_done
