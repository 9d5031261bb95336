"""Partitions and registrations are asked of the brokers that the caller names, because others can have old metadata."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.kafka.client.admin import KafkaAdmin
from kafka_rollout.kafka.client.requests import ClusterConnections, Target
from kafka_rollout.kafka.client.security.client_security import ClientSecurity
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role

BROKERS = tuple(
    NodeSpec(node_id=i, name=f"broker-{i}", roles=frozenset({Role.BROKER}), broker_address=f"a:{i}") for i in (1, 2, 3)
)


@pytest.mark.parametrize("call", ["partitions", "registered"])
@pytest.mark.parametrize(("through", "asked"), [((2, 3), [2, 3]), ((), [1, 2, 3])])
def test_only_the_named_brokers_are_asked(
    monkeypatch: pytest.MonkeyPatch, call: str, through: Collection[int], asked: list[int]
) -> None:
    seen: list[list[int]] = []

    def answer(connections: ClusterConnections, targets: Collection[Target], *args: Any, **options: Any) -> Any:
        seen.append([target.node_id for target in targets])
        raise RefusedError("Not sent.")

    monkeypatch.setattr(ClusterConnections, "first_answer", answer)
    with (
        KafkaAdmin(ClusterSpec(name="demo", nodes=BROKERS), ClientSecurity()) as admin,
        pytest.raises(RefusedError, match="Not sent"),
    ):
        getattr(admin, call)(through=through)
    assert seen == [asked]
