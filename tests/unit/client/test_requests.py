"""Several nodes are queried at the same time, and their answers keep the order of the nodes."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.client.requests import ClusterConnections, Target
from kafka_rollout.client.security.client_security import ClientSecurity
from tests.unit.builders import SEPARATE

CLUSTER = replace(SEPARATE, nodes=[replace(node, broker_address=f"a:{node.node_id}") for node in SEPARATE.brokers])
TARGETS = [Target(node_id=number, address=f"127.0.0.1:{number}", who=f"node {number}") for number in range(1, 41)]


@pytest.fixture
def nodes() -> ClusterConnections:
    return ClusterConnections(CLUSTER, ClientSecurity(), timeout_s=1.0)


def test_nodes_are_queried_at_the_same_time_and_answer_in_their_order(nodes: ClusterConnections) -> None:
    together = threading.Barrier(2, timeout=30)
    running = threading.Semaphore(16)

    def ask(target: Target) -> int:
        assert running.acquire(blocking=False), "more than 16 at the same time"
        together.wait()  # one node after the other would never meet here
        running.release()
        return target.node_id

    assert nodes.from_each(TARGETS, ask) == list(range(1, 41))


def test_the_error_of_the_first_node_is_raised(nodes: ClusterConnections) -> None:
    def ask(target: Target) -> int:
        if target.node_id > 2:
            raise TransientError(f"Node {target.node_id} is silent.")
        return target.node_id

    with pytest.raises(TransientError, match=r"Node 3 is silent\."):
        nodes.from_each(TARGETS, ask)
    assert nodes.from_each(TARGETS[:1], ask) == [1]
    assert nodes.from_each([], ask) == []


def test_brokers_are_asked_in_the_order_that_the_caller_names(nodes: ClusterConnections) -> None:
    ids = [broker.node_id for broker in nodes.brokers]
    assert [broker.node_id for broker in nodes.brokers_of([99, *ids[:0:-1]])] == ids[:0:-1]
    assert nodes.brokers_of(()) == nodes.brokers
