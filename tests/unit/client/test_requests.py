"""Several nodes are queried at the same time, and their answers keep the order of the nodes."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from kafka.protocol.admin import DescribeClusterRequest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.base.time_limits import RESPONSE_S, SILENT_FOR_S, SILENT_RESPONSE_S
from kafka_rollout.client.connection import NodeConnection
from kafka_rollout.client.requests import ClusterConnections, SilentNodes, Target
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.model.topology import Role
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


def test_a_silent_node_is_waited_for_once_on_all_connections_that_share_it() -> None:
    now = 0.0
    silent = SilentNodes(lambda: now)
    broker = Target(node_id=4, address="a:9092", who="broker 4")
    same_process = Target(node_id=4, address="a:9093", who="controller 4", listener=Role.CONTROLLER)
    bootstrap = Target(node_id=-1, address="a:9092", who="bootstrap a:9092")
    silent.missed(broker, RESPONSE_S / 3)
    assert silent.limit(broker, RESPONSE_S) == RESPONSE_S, "it was given a part of the limit only"
    silent.missed(broker, RESPONSE_S)
    assert [silent.limit(one, RESPONSE_S) for one in (broker, same_process, bootstrap)] == [SILENT_RESPONSE_S] * 3
    assert silent.limit(Target(node_id=5, address="b:9092", who="broker 5"), RESPONSE_S) == RESPONSE_S
    silent.answered(same_process)
    assert silent.limit(same_process, RESPONSE_S) == RESPONSE_S
    silent.missed(broker, RESPONSE_S)
    now = SILENT_FOR_S
    assert silent.limit(broker, RESPONSE_S) == RESPONSE_S, "a slow node gets the whole limit again"


def test_a_change_is_never_given_the_short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    silent = SilentNodes()
    silent.missed(TARGETS[0], RESPONSE_S)
    connections = ClusterConnections(CLUSTER, ClientSecurity(), timeout_s=RESPONSE_S, silent=silent)

    def ask(connection: object, request: object, *, timeout_s: float, **options: object) -> None:
        limits.append(timeout_s)
        raise TransientError("no answer")

    monkeypatch.setattr(NodeConnection, "ask", ask)
    with pytest.raises(TransientError):
        connections.ask(TARGETS[0], DescribeClusterRequest())
    with pytest.raises(TransientError):
        connections.ask(TARGETS[0], DescribeClusterRequest(), fence=lambda: None)
    assert limits == [SILENT_RESPONSE_S, RESPONSE_S]
