"""What the brokers have is kept once, however many brokers report it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from kafka_rollout.client import broker_views
from kafka_rollout.client.broker_views import read_views
from kafka_rollout.client.requests import ClusterConnections, Target
from kafka_rollout.model.broker_views import find_disagreements


class Nodes:
    def from_each(self, targets: Iterable[Target], ask: Callable[[Target], Any]) -> list[Any]:
        return [ask(target) for target in targets]


@pytest.mark.parametrize("odd", [1, 3])
def test_brokers_that_agree_share_what_they_have(monkeypatch: pytest.MonkeyPatch, odd: int) -> None:
    def acls(_: object, broker: Target) -> tuple[str, ...]:
        return ("User:alice",) if broker.node_id == odd else ("User:alice", "User:bob")

    answers = {"list_configured": ({}, None), "read_configs": {}, "read_group_configs": {}, "read_scram": {}}
    for name, answer in {**answers, "read_quotas": {}}.items():
        monkeypatch.setattr(broker_views, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(broker_views, "read_acls", acls)
    brokers = [Target(node_id=node_id, address="host:9092", who=f"broker {node_id}") for node_id in (1, 2, 3, 4)]
    views = read_views(cast(ClusterConnections, Nodes()), brokers, groups=(), topic_settings=())
    assert len({id(view["ACL"]) for view in views.values()}) == 2
    assert list(find_disagreements(views)) == ["ACL User:bob"]
