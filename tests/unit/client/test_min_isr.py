"""min.insync.replicas is kept by topic id, and read again for a new topic, or when it is too old."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

from kafka_rollout.client.contents import MinIsrValues
from kafka_rollout.client.requests import ClusterConnections, Target

BROKER = Target(node_id=1, address="a:1", who="Node 1")


class Cluster:
    """Topics by name: their ids and values. Remembers which names each request had."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[UUID, int]] = {name: (uuid4(), 1) for name in ("a", "b")}
        self.asked: list[list[str]] = []
        self.now = 0.0
        self.values = MinIsrValues(cast("ClusterConnections", self), lambda: self.now)

    def ask(self, target: Target, request: Any) -> Any:
        names = [resource.resource_name for resource in request.resources]
        self.asked.append(names)

        def result(name: str) -> Any:
            if name not in self.topics:
                return SimpleNamespace(error_code=3, resource_name=name)
            value = SimpleNamespace(name="min.insync.replicas", value=str(self.topics[name][1]))
            return SimpleNamespace(error_code=0, error_message=None, resource_name=name, configs=[value])

        return SimpleNamespace(results=[result(name) for name in names])

    def read(self, age_s: float, *gone: str) -> dict[str, int]:
        found = {name: SimpleNamespace(topic_id=topic_id) for name, (topic_id, _) in self.topics.items()}
        for name in gone:
            del self.topics[name]
        return self.values.of(found, BROKER, age_s=age_s)


def test_known_values_are_kept_for_their_time_only() -> None:
    cluster = Cluster()
    assert cluster.read(60.0) == {"a": 1, "b": 1}
    cluster.topics["a"] = (cluster.topics["a"][0], 2)
    cluster.now = 59.0
    assert cluster.read(60.0) == {"a": 1, "b": 1}
    assert cluster.read(0.0) == {"a": 2, "b": 1}
    cluster.now = 118.0
    assert cluster.read(60.0) == {"a": 2, "b": 1}
    cluster.now = 119.0
    cluster.read(60.0)
    assert cluster.asked == [["a", "b"]] * 3


def test_a_topic_that_was_created_again_is_read_again() -> None:
    cluster = Cluster()
    cluster.read(60.0)
    cluster.topics |= {"a": (uuid4(), 3), "c": (uuid4(), 2)}
    assert cluster.read(60.0) == {"a": 3, "b": 1, "c": 2}
    assert cluster.asked == [["a", "b"], ["a", "c"]]


def test_a_topic_that_was_just_deleted_is_left_out() -> None:
    cluster = Cluster()
    assert cluster.read(60.0, "a") == {"b": 1}
    assert cluster.read(60.0) == {"b": 1}
