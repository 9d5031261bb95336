"""Listeners of a node by its configuration."""

from __future__ import annotations

import pytest

from kafka_rollout.model.listeners import find_listeners
from kafka_rollout.planning.findings.authentication import has_sasl

_COMBINED = {
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://:9092,ctl://:9093",
    "controller.listener.names": "ctl",
}


@pytest.mark.parametrize("written", [{}, {"listener.security.protocol.map": "CTL:PLAINTEXT,PLAINTEXT:PLAINTEXT"}])
def test_a_listener_of_controllers_is_plaintext_if_no_line_maps_it(written: dict[str, str]) -> None:
    found = find_listeners(_COMBINED | written)
    assert {one.name: (one.protocol, one.mechanisms) for one in found.served} == {
        "PLAINTEXT": ("PLAINTEXT", ()),
        "CTL": ("PLAINTEXT", ()),
    }
    assert found.logs_in == ("PLAINTEXT", "PLAINTEXT")
    assert not has_sasl(_COMBINED | written)


def test_a_name_that_is_a_protocol_keeps_it_without_a_map() -> None:
    config = {"process.roles": "controller", "listeners": "SASL_SSL://:9093", "controller.listener.names": "SASL_SSL"}
    assert find_listeners(config).mechanisms == {"GSSAPI"}


def test_a_listener_that_only_a_config_provider_maps_can_authenticate() -> None:
    config = _COMBINED | {"listener.security.protocol.map": "${file:/etc/kafka/listeners:map}"}
    assert has_sasl(config)


def test_the_prefix_of_a_listener_counts_in_lower_case_only() -> None:
    config = {
        "listeners": "EXTERNAL://:9092",
        "listener.security.protocol.map": "EXTERNAL:SASL_SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.EXTERNAL.sasl.enabled.mechanisms": "PLAIN",
    }
    assert find_listeners(config).mechanisms == {"SCRAM-SHA-512"}, "Kafka ignores the line"
    config["listener.name.external.sasl.enabled.mechanisms"] = "OAUTHBEARER"
    assert find_listeners(config).mechanisms == {"OAUTHBEARER"}
