"""Each request that is sent has a right of its listener: documented, granted and tested."""

from __future__ import annotations

import ast
from types import SimpleNamespace

import pytest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.client.requests import ClusterConnections, describe_configs, target_of
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.model.rights import REQUESTS
from kafka_rollout.model.topology import Role
from tests.fakes.cluster import make_spec
from tests.paths import ROOT

OF_A_CONNECTION = {"SaslHandshake", "SaslAuthenticate"}


def made_requests() -> set[str]:
    """Return the names of the requests of Kafka's protocol that the package makes."""
    found = set()
    for path in (ROOT / "plugins" / "kafka_rollout").rglob("*.py"):
        imported = {
            alias.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith(("kafka.protocol", "kafka_rollout.client.messages"))
            for alias in node.names
        }
        found |= {name.removesuffix("Request") for name in imported if name.endswith("Request")}
    return found


def test_every_request_that_is_made_has_a_right_and_no_right_is_for_a_request_that_is_not_made() -> None:
    assert made_requests() - OF_A_CONNECTION == REQUESTS[Role.BROKER] | REQUESTS[Role.CONTROLLER]


def test_a_request_without_a_right_on_the_listener_is_not_sent() -> None:
    spec = make_spec(1, 1)
    nodes = ClusterConnections(spec, ClientSecurity(), timeout_s=0.1)
    controller = target_of(spec.controllers[0], Role.CONTROLLER)
    broker = target_of(spec.brokers[0], Role.BROKER)
    assert controller is not None
    assert broker is not None
    metadata = type("MetadataRequest", (SimpleNamespace,), {})()
    with pytest.raises(ValueError, match="No right is granted for Metadata on the listener of a controller"):
        nodes.ask(controller, metadata)
    with pytest.raises(ValueError, match="No right is granted for DeleteTopics"):
        nodes.ask(broker, type("DeleteTopicsRequest", (SimpleNamespace,), {})())
    with pytest.raises(TransientError):
        nodes.ask(controller, describe_configs([(4, "1")]))
    nodes.close()
