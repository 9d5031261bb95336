"""From the Airflow Connections that an inventory names to the security of each listener."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.nodes.runtimes.hosts.shells import SshShell
from tests.dags.conftest import spec_with_homes
from tests.fakes.ssh_host import SshHost, listening

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("database")]

SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "ssl.ca.location": "/certs/ca.pem"}
PLAINTEXT = {"security.protocol": "PLAINTEXT"}


def connection(extra: Mapping[str, str]) -> str:
    return json.dumps({"conn_type": "kafka", "login": "rollout", "password": "a secret", "extra": dict(extra)})


@pytest.mark.parametrize(
    ("connections", "expected"),
    [
        ((None, None, None), ("PLAINTEXT", "PLAINTEXT", "PLAINTEXT")),
        ((SASL, None, None), ("SASL_SSL", "SASL_SSL", "SASL_SSL")),
        ((SASL, PLAINTEXT, None), ("SASL_SSL", "PLAINTEXT", "SASL_SSL")),
        ((None, SASL, None), ("PLAINTEXT", "SASL_SSL", "PLAINTEXT")),
        ((None, None, SASL), ("PLAINTEXT", "PLAINTEXT", "SASL_SSL")),
    ],
)
def test_each_listener_gets_the_settings_of_its_connection(
    inventory: Path,
    monkeypatch: pytest.MonkeyPatch,
    connections: tuple[Mapping[str, str] | None, ...],
    expected: tuple[str, str, str],
) -> None:
    from kafka_rollout.airflow.common.cluster_access import ClusterAccess

    brokers, controllers, traffic = connections
    monkeypatch.setenv("AIRFLOW_CONN_OF_BROKERS", connection(brokers or {}))
    monkeypatch.setenv("AIRFLOW_CONN_OF_CONTROLLERS", connection(controllers or {}))
    monkeypatch.setenv("AIRFLOW_CONN_OF_TRAFFIC", connection(traffic or {}))
    spec = replace(
        spec_with_homes(),
        traffic_connection_id="of_traffic" if traffic else None,
        connection_id="of_brokers" if brokers else None,
        controller_connection_id="of_controllers" if controllers else None,
    )
    (inventory / "fake.yaml").write_text(dump_cluster(spec))
    hook = ClusterAccess("fake")
    for security in (hook.security(), asyncio.run(hook.asecurity())):
        assert (security.protocol, security.of_controllers.protocol, security.of_traffic.protocol) == expected


@pytest.mark.parametrize("extra", [{"no_host_key_check": "true"}, {"allow_host_key_change": "true"}])
def test_a_connection_that_switches_off_the_check_of_host_keys_is_refused(
    inventory: Path, monkeypatch: pytest.MonkeyPatch, extra: Mapping[str, str]
) -> None:
    from kafka_rollout.airflow.common.cluster_access import ClusterAccess

    monkeypatch.setenv("AIRFLOW_CONN_OF_HOSTS", json.dumps({"conn_type": "ssh", "login": "rollout", "extra": extra}))
    (inventory / "fake.yaml").write_text(dump_cluster(replace(spec_with_homes(), ssh_connection_id="of_hosts")))
    connect = ClusterAccess("fake").ssh()
    with pytest.raises(UserError, match="The Airflow Connection of_hosts switches off the check of host keys"):
        connect("kafka-1.example.com")


@pytest.mark.parametrize("given", ["known_hosts", "host_key"])
def test_the_marks_in_known_hosts_count_for_a_connection_of_airflow(
    inventory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str
) -> None:
    from kafka_rollout.airflow.common.cluster_access import ClusterAccess

    key = paramiko.ECDSAKey.generate()
    known = tmp_path / ".ssh/known_hosts"
    known.parent.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    host = SshHost(tmp_path / "host")
    with listening(key, host) as port:
        extra = {"look_for_keys": "false"}
        if given == "host_key":
            extra["host_key"] = f"{key.get_name()} {key.get_base64()}"
        fields = {"conn_type": "ssh", "login": "rollout", "password": "x", "port": port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_OF_HOSTS", json.dumps(fields))
        (inventory / "fake.yaml").write_text(dump_cluster(replace(spec_with_homes(), ssh_connection_id="of_hosts")))
        connect = ClusterAccess("fake").ssh()
        assert connect is not None
        text = f"{key.get_name()} {key.get_base64()}\n"
        trusted = f"[127.0.0.1]:{port} {text}" if given == "known_hosts" else ""
        marked = f"@cert-authority * {text}@revoked * {text.replace('AAAA', 'BBBB')}"
        known.write_text(trusted + marked)
        connect("127.0.0.1").close()
        known.write_text(f"{trusted}@revoked * {text}")
        with pytest.raises(RefusedError, match=r"The key of host 127\.0\.0\.1 is revoked in known_hosts"):
            SshShell(connect).run("127.0.0.1", ["true"])
        known.write_text("")
        if given == "known_hosts":
            with pytest.raises(RefusedError, match=r"The host key of 127\.0\.0\.1 is not in known_hosts"):
                SshShell(connect).run("127.0.0.1", ["true"])


def test_without_an_ssh_connection_the_configuration_of_the_worker_is_used(inventory: Path) -> None:
    from kafka_rollout.airflow.common.cluster_access import ClusterAccess

    (inventory / "fake.yaml").write_text(dump_cluster(spec_with_homes()))
    assert ClusterAccess("fake").ssh() is None


@pytest.mark.parametrize("stored", [None, "{", json.dumps({"conn_type": "http", "host": "prom", "extra": "[1]"})])
def test_a_connection_of_prometheus_that_cannot_be_read_leaves_the_credentials_of_kafka(
    inventory: Path, monkeypatch: pytest.MonkeyPatch, stored: str | None
) -> None:
    from kafka_rollout.airflow.common.cluster_access import ClusterAccess

    monkeypatch.setenv("AIRFLOW_CONN_OF_BROKERS", connection(SASL))
    if stored:
        monkeypatch.setenv("AIRFLOW_CONN_PROM", stored)
    spec = replace(spec_with_homes(), connection_id="of_brokers", prometheus_connection_id="prom")
    (inventory / "fake.yaml").write_text(dump_cluster(spec))
    hook = ClusterAccess("fake")
    for security in (hook.security(), asyncio.run(hook.asecurity())):
        assert (security.protocol, security.prometheus) == ("SASL_SSL", None)


@pytest.mark.parametrize(
    ("stored", "master"),
    [
        ("spark://127.0.0.1:7077", "spark://127.0.0.1:7077"),
        ('{"conn_type": "spark", "host": "local[2]"}', "local[2]"),
        ('{"conn_type": "spark", "host": "spark://spark-1", "port": 7077}', "spark://spark-1:7077"),
        ('{"conn_type": "spark", "host": "yarn"}', "yarn"),
        ("local[2]", None),
        ("spark://spark-1", None),
    ],
)
def test_the_spark_master_is_the_one_that_spark_submit_gets(
    monkeypatch: pytest.MonkeyPatch, stored: str, master: str | None
) -> None:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import BaseHook

    from kafka_rollout.airflow.operators.spark_scan import master_of
    from kafka_rollout.model.topology import SPARK_CONNECTION

    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", stored)
    found = BaseHook.get_connection(SPARK_CONNECTION)
    if master is None:
        with pytest.raises(UserError, match="names no Spark master"):
            master_of(found)
    else:
        assert master_of(found) == master
        assert SparkSubmitHook(conn_id=SPARK_CONNECTION)._connection["master"] == master


def test_a_scan_refuses_a_driver_on_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk import BaseHook

    from kafka_rollout.airflow.operators.spark_scan import master_of
    from kafka_rollout.model.topology import SPARK_CONNECTION

    stored = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(stored))
    with pytest.raises(UserError, match="has the deploy mode cluster"):
        master_of(BaseHook.get_connection(SPARK_CONNECTION))


SERVERS = [
    ({"host": "kafka-1", "port": 9092}, "kafka-1:9092"),
    ({"host": "kafka-1:9092,kafka-2:9092"}, "kafka-1:9092,kafka-2:9092"),
    ({"host": "kafka-1:9092", "port": 9093}, "kafka-1:9092"),
    ({"host": "fd00::9", "port": 9092}, "[fd00::9]:9092"),
    ({"host": "[fd00::9]", "port": 9092}, "[fd00::9]:9092"),
    ({"host": "[fd00::9]:9093", "port": 9092}, "[fd00::9]:9093"),
    ({"host": "unused", "extra": {"bootstrap.servers": "kafka-1:9092"}}, "kafka-1:9092"),
]


@pytest.mark.parametrize(("fields", "servers"), SERVERS)
def test_airflow_makes_the_hook_of_a_connection_by_its_type(
    monkeypatch: pytest.MonkeyPatch, fields: Mapping[str, object], servers: str
) -> None:
    from airflow.sdk import BaseHook

    monkeypatch.setenv("AIRFLOW_CONN_ORDERS", json.dumps({"conn_type": "kafka_rollout", **fields}))
    assert BaseHook.get_hook("orders").bootstrap_servers() == servers


def test_a_connection_without_a_broker_is_refused_by_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk import BaseHook

    monkeypatch.setenv("AIRFLOW_CONN_ORDERS", json.dumps({"conn_type": "kafka_rollout"}))
    passed, said = BaseHook.get_hook("orders").test_connection()
    assert (passed, "The Connection orders names no broker." in said) == (False, True)
