"""Every request that changes a cluster is sent right after a check of the fence."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsRequest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.lease import unfenced
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.client.connection import NodeConnection
from kafka_rollout.client.requests import ClusterConnections
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.control.lock import calls_of
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role
from kafka_rollout.ports.cluster import ClusterChanges
from tests.unit.client.kafka_listener import Listener, accepting_plain

PLAINTEXT = ClientSecurity()
FENCE = -1  # in a list of received requests
BROKER = NodeSpec(node_id=1, name="broker-1", roles=frozenset({Role.BROKER}), broker_address="a:1")


def test_the_fence_is_checked_after_the_connection_was_opened_and_before_the_request() -> None:
    received: list[int] = []

    def record(api_key: int, version: int, body: bytes) -> Any:
        received.append(api_key)
        return Listener.well(None, api_key, version, body)  # type: ignore[arg-type]

    def refuse() -> None:
        received.append(FENCE)
        raise RefusedError("The lease is lost.")

    with accepting_plain(record) as listener:
        connection = NodeConnection(listener.address, "Node 1", PLAINTEXT)
        with pytest.raises(RefusedError, match="The lease is lost"):
            connection.ask(listener.question(), timeout_s=60, fence=refuse)
        connection.close()
    assert received == [ApiVersionsRequest.API_KEY, FENCE]


def test_every_change_of_a_cluster_is_sent_with_the_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    fences: list[Any] = []

    def answer(*args: Any, fence: Any = unfenced, **options: Any) -> Any:
        fences.append(fence)
        raise RefusedError("Not sent.")

    def fence() -> None:
        """Never called: nothing is sent."""

    monkeypatch.setattr(ClusterConnections, "first_answer", answer)
    monkeypatch.setattr(KafkaAdmin, "_read_finalized", lambda admin: {"metadata.version": 21})
    with KafkaAdmin(ClusterSpec(name="demo", nodes=(BROKER,)), PLAINTEXT, fence=fence) as admin:
        changes: list[Any] = [
            partial(admin.unregister_broker, 7),
            partial(admin.set_default_config, "min.insync.replicas", "2", validate_only=False),
            partial(admin.update_features, {"metadata.version": 22}, validate_only=False),
        ]
        assert {change.func.__name__ for change in changes} == calls_of(ClusterChanges)
        checks = [
            partial(admin.set_default_config, "min.insync.replicas", "2", validate_only=True),
            partial(admin.update_features, {"metadata.version": 22}, validate_only=True),
        ]
        for call in (*changes, *checks):
            with pytest.raises(RefusedError, match="Not sent"):
                call()
    assert fences == [fence, fence, fence, unfenced, unfenced]
