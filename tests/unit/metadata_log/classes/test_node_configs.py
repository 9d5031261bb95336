"""The configuration that Kafka's classes get in place of one with config providers."""

from __future__ import annotations

import pytest

from kafka_rollout.metadata_log.classes.node_configs import neutral_properties


@pytest.mark.parametrize(
    ("node_id", "roles", "voters"),
    [
        ("7", "controller", "7@localhost:9093"),
        ("+07", "controller", "7@localhost:9093"),
        ("7", "broker", "8@localhost:9093"),
        ("@NODE_ID@", "controller", "0@localhost:9093"),
        ("1,2", "broker", "1@localhost:9093"),
    ],
)
def test_a_node_id_that_is_no_number_is_left_to_kafka(node_id: str, roles: str, voters: str) -> None:
    config = {"node.id": node_id, "process.roles": roles, "controller.quorum.voters": "${env:VOTERS}"}
    assert neutral_properties(config) == {**config, "controller.quorum.voters": voters}
