"""min.insync.replicas of partitions: of the topic, else of the brokers that can lead; read again when it is too old."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

from kafka_rollout.base.errors import RefusedError, RolloutError, TransientError
from kafka_rollout.client.contents import MinIsrValues
from kafka_rollout.client.requests import ClusterConnections, ResourceType, Target
from kafka_rollout.model.state import UNKNOWN_MIN_ISR

BROKERS = [Target(node_id=node_id, address=f"{node_id}:1", who=f"Node {node_id}") for node_id in (1, 2, 3)]


class Cluster:
    """Topics by name: their ids and values (None: that of the broker). Remembers which names each request had."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[UUID, int | None]] = {name: (uuid4(), 1) for name in ("a", "b")}
        self.brokers: dict[int, int | RolloutError] = {1: 1, 2: 1, 3: 1}
        self.replicas: dict[str, tuple[int, ...]] = {}
        self.asked: list[list[str]] = []
        self.now = 0.0
        self.values = MinIsrValues(cast("ClusterConnections", self), lambda: self.now)

    def ask(self, target: Target, request: Any) -> Any:
        names = [resource.resource_name for resource in request.resources]
        kind = request.resources[0].resource_type
        self.asked.append([f"broker {target.node_id}"] if kind == ResourceType.BROKER else names)
        own = self.brokers[target.node_id]
        if isinstance(own, RolloutError) and kind == ResourceType.BROKER:
            raise own

        def result(name: str) -> Any:
            if kind == ResourceType.TOPIC and name not in self.topics:
                return SimpleNamespace(error_code=3, resource_name=name)
            value = None if kind == ResourceType.BROKER else self.topics[name][1]
            config = SimpleNamespace(
                name="min.insync.replicas",
                value=str(own if value is None else value),
                config_source=4 if value is None else 1,
                config_type=3,
                is_sensitive=False,
            )
            return SimpleNamespace(error_code=0, error_message=None, resource_name=name, configs=[config])

        return SimpleNamespace(results=[result(name) for name in names])

    def from_each(self, targets: Iterable[Target], ask: Callable[[Target], Any]) -> list[Any]:
        return [ask(target) for target in targets]

    def read(self, age_s: float, *gone: str) -> dict[str, int]:
        """The value of partition 0 of each topic."""
        found: Any = {
            name: SimpleNamespace(
                topic_id=topic_id,
                partitions=((0, (of := self.replicas.get(name, (1,)))[0], of, of),),
            )
            for name, (topic_id, _) in self.topics.items()
        }
        for name in gone:
            del self.topics[name]
        read = self.values.of(found, BROKERS[0], BROKERS, age_s=age_s)
        return {name: partitions[0] for name, partitions in read.items()}


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


def inheriting(**replicas: tuple[int, ...]) -> Cluster:
    cluster = Cluster()
    cluster.topics = {name: (uuid4(), None) for name in replicas}
    cluster.replicas = replicas
    return cluster


def test_a_topic_without_an_own_value_has_the_highest_of_the_brokers_with_a_replica() -> None:
    """Each leader uses the value of its own broker, and broker 1, which is asked about the topics, has another one."""
    cluster = inheriting(pay=(2, 1), log=(1, 3), own=(1, 2))
    cluster.topics["own"] = (uuid4(), 1)
    cluster.brokers[2] = 2
    assert cluster.read(60.0) == {"pay": 2, "log": 1, "own": 1}
    asked = [["log", "own", "pay"], ["broker 1"], ["broker 2"], ["broker 3"]]
    assert cluster.asked == asked
    cluster.brokers[2] = 1
    cluster.now = 59.0
    assert cluster.read(60.0)["pay"] == 2
    assert cluster.asked == asked
    cluster.now = 60.0
    assert cluster.read(60.0)["pay"] == 1


def test_the_value_of_a_broker_that_does_not_respond_is_unknown() -> None:
    cluster = inheriting(pay=(2, 1), log=(1, 3))
    cluster.brokers[2] = TransientError("Node 2 does not respond.")
    assert cluster.read(0.0) == {"pay": UNKNOWN_MIN_ISR, "log": 1}


def test_without_the_right_to_read_brokers_the_answer_about_the_topic_counts() -> None:
    cluster = inheriting(pay=(2, 1))
    cluster.brokers[2] = RefusedError("no right DESCRIBE_CONFIGS on CLUSTER")
    assert cluster.read(0.0) == {"pay": 1}


def test_brokers_are_not_asked_for_topics_with_an_own_value() -> None:
    cluster = Cluster()
    cluster.read(0.0)
    assert cluster.asked == [["a", "b"]]


def test_a_broker_that_did_not_respond_is_asked_again_at_the_next_check() -> None:
    cluster = inheriting(pay=(2, 1), log=(1, 3))
    cluster.brokers[2] = TransientError("Node 2 does not respond.")
    assert cluster.read(60.0)["pay"] == UNKNOWN_MIN_ISR
    cluster.brokers[2] = 2
    cluster.now = 5.0
    assert cluster.read(60.0)["pay"] == 2
    assert cluster.asked[-1] == ["broker 2"], "the values of the other brokers are kept"
