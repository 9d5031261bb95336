"""The leaders of all partitions report their offsets at the same time."""

from __future__ import annotations

from threading import Barrier, Lock
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.client.contents import PartitionLeaders
from kafka_rollout.client.requests import EARLIEST, ClusterConnections, Target

BROKERS = {number: Target(node_id=number, address=f"{number}:1", who=f"Node {number}") for number in (1, 2, 3)}


class Cluster:
    """Each broker leads 1,500 partitions. It answers only while the others are asked, too."""

    from_each = ClusterConnections.from_each

    def __init__(self) -> None:
        self.together, self.lock = Barrier(len(BROKERS), timeout=20), Lock()
        self.sizes: list[int] = []
        leaders = {number: {f"topic-{number}": range(1500)} for number in BROKERS}
        nodes = cast("ClusterConnections", self)
        self.leaders = PartitionLeaders(nodes=nodes, live=BROKERS, partitions=leaders, leaderless=False)

    def ask(self, target: Target, request: Any) -> Any:
        self.together.wait()
        with self.lock:
            self.sizes.append(sum(len(topic.partitions) for topic in request.topics))
        return SimpleNamespace(
            topics=[SimpleNamespace(name=one.name, partitions=self._of(one)) for one in request.topics]
        )

    def _of(self, topic: Any) -> list[Any]:
        return [
            SimpleNamespace(partition_index=one.partition_index, error_code=0, error_message=None, offset=7)
            for one in topic.partitions
        ]


def test_the_leaders_are_asked_at_the_same_time_for_a_bounded_number_of_partitions() -> None:
    """To search a time, a broker reads the disk for each partition: one after the other, that takes minutes."""
    cluster = Cluster()
    found = cluster.leaders.offsets(EARLIEST)
    assert (len(found), set(found.values())) == (4500, {7})
    assert list(found) == sorted(found)
    assert sorted(cluster.sizes) == [500, 500, 500, 1000, 1000, 1000]


def test_a_leader_that_does_not_respond_leaves_its_offsets_unknown() -> None:
    leaders = Cluster().leaders
    alone = PartitionLeaders(nodes=leaders.nodes, live={1: BROKERS[1]}, partitions=leaders.partitions, leaderless=False)
    with pytest.raises(TransientError, match="Broker 2, which leads partitions, is not among the brokers that respond"):
        alone.offsets(EARLIEST)
