"""Several nodes are queried at the same time, and their answers keep the order of the nodes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kafka_rollout.base.errors import FatalError, RolloutError, TransientError
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


class Turns:
    def __init__(self, error: RolloutError | None = None) -> None:
        self.error, self.taken, self.lengths = error, list[list[int]](), list[float]()

    def take(self, nodes: Sequence[int]) -> tuple[int, float]:
        self.taken.append(list(nodes))
        if self.error:
            raise self.error
        return nodes[-1], 2.5

    def set_length(self, node_id: int, seconds: float) -> None:
        if self.error:
            raise self.error
        self.lengths.append(seconds)


def test_only_the_wait_for_a_turn_sleeps_and_skips_brokers_that_failed_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns, slept = Turns(), list[float]()
    nodes = ClusterConnections(CLUSTER, ClientSecurity(), timeout_s=1.0, turns=turns, sleep=slept.append)
    nodes._failed_at[nodes.brokers[-1].address] = 1.0
    assert nodes.wait_for_turn() == nodes.brokers[-2].node_id
    assert (slept, turns.taken) == ([2.5], [[broker.node_id for broker in nodes.brokers[:-1]]])

    sizes = [40_000, 1, 40_000]

    def answer(targets: Sequence[Target], *args: object, **options: object) -> object:
        return [SimpleNamespace(error_code=0, name="a", partitions=[()] * sizes.pop(0))], targets[0]

    monkeypatch.setattr(nodes, "first_answer", answer)
    for _ in range(2):
        assert list(nodes.topics(through=[nodes.brokers[0].node_id])[0]) == ["a"]
    assert turns.lengths == [1.0, 0.0]
    assert nodes.topics(names=["a"])[0]
    assert (len(slept), len(turns.taken), len(turns.lengths)) == (1, 1, 2)


def test_turns_that_cannot_be_read_or_stored_limit_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, slept = Turns(FatalError("The database is read-only.", remedy="Free the disk.")), list[float]()
    nodes = ClusterConnections(CLUSTER, ClientSecurity(), timeout_s=1.0, turns=turns, sleep=slept.append)
    assert (nodes.wait_for_turn(), slept) == (None, [])
    monkeypatch.setattr(nodes, "first_answer", lambda targets, *args, **options: ([], targets[0]))
    assert nodes.topics() == ({}, nodes.brokers[0])


def test_brokers_are_asked_in_the_order_that_the_caller_names(nodes: ClusterConnections) -> None:
    ids = [broker.node_id for broker in nodes.brokers]
    assert [broker.node_id for broker in nodes.brokers_of([99, *ids[:0:-1]])] == ids[:0:-1]
    assert nodes.brokers_of(()) == nodes.brokers
