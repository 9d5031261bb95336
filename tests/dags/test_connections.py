"""From the Airflow Connections that an inventory names to the security of each listener."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.adapters.inventory import dump_cluster
from tests.dags.conftest import spec_with_homes

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("database")]

SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "ssl.ca.location": "/certs/ca.pem"}
PLAINTEXT = {"security.protocol": "PLAINTEXT"}


def connection(extra: Mapping[str, str]) -> str:
    return json.dumps({"conn_type": "kafka", "login": "rollout", "password": "a secret", "extra": dict(extra)})


@pytest.mark.parametrize(
    ("brokers", "controllers", "expected"),
    [
        (None, None, ("PLAINTEXT", "PLAINTEXT")),
        (SASL, None, ("SASL_SSL", "SASL_SSL")),
        (SASL, PLAINTEXT, ("SASL_SSL", "PLAINTEXT")),
        (None, SASL, ("PLAINTEXT", "SASL_SSL")),
    ],
)
def test_each_listener_gets_the_settings_of_its_connection(
    inventory: Path,
    monkeypatch: pytest.MonkeyPatch,
    brokers: Mapping[str, str] | None,
    controllers: Mapping[str, str] | None,
    expected: tuple[str, str],
) -> None:
    from kafka_rollout.airflow.hooks.kafka_cluster import KafkaClusterHook

    monkeypatch.setenv("AIRFLOW_CONN_OF_BROKERS", connection(brokers or {}))
    monkeypatch.setenv("AIRFLOW_CONN_OF_CONTROLLERS", connection(controllers or {}))
    spec = replace(
        spec_with_homes(),
        connection_id="of_brokers" if brokers else None,
        controller_connection_id="of_controllers" if controllers else None,
    )
    (inventory / "fake.yaml").write_text(dump_cluster(spec))
    hook = KafkaClusterHook("fake")
    for security in (hook.security(), asyncio.run(hook.asecurity())):
        assert (security.protocol, security.of_controllers.protocol) == expected
