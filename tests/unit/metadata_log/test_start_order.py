"""Which stopped brokers must wait for others, by the in-sync replicas in a metadata log."""

from __future__ import annotations

import pytest

from kafka_rollout.metadata_log.start_order import LoggedPartition, find_partitions_at_risk, find_waiting
from kafka_rollout.model.unclean_elections import UncleanElections

ALL, SOME, UNKNOWN = {1: True}, {1: False, 2: True}, {1: False, 2: None}


def partition(topic: str, replicas: tuple[int, ...], isr: tuple[int, ...], **more: tuple[int, ...]) -> LoggedPartition:
    return LoggedPartition(topic=topic, partition=0, replicas=replicas, isr=isr, **more)


def waits(*partitions: LoggedPartition, left: set[int], serving: set[int] = frozenset()) -> dict[int, list[str]]:  # type: ignore[assignment]
    elections = UncleanElections(controllers=ALL)
    found = find_waiting(find_partitions_at_risk(partitions, elections), left, serving)
    return {node_id: [one.name for one in waiting] for node_id, waiting in found.items()}


@pytest.mark.parametrize(
    ("topics", "controllers", "is_at_risk"),
    [
        ({}, ALL, True),
        ({}, SOME, True),  # the controller that becomes active is not known
        ({}, UNKNOWN, True),
        ({}, {}, True),
        ({}, {1: False, 2: False}, False),
        ({"a": False}, ALL, False),
        ({"a": True}, {1: False}, True),
        ({"b": True}, {1: False}, False),
    ],
)
def test_a_topic_is_at_risk_unless_every_controller_is_known_to_elect_from_the_isr(
    topics: dict[str, bool], controllers: dict[int, bool | None], *, is_at_risk: bool
) -> None:
    one = partition("a", (11, 12), (12,))
    elections = UncleanElections(topics=topics, controllers=controllers)
    assert bool(find_partitions_at_risk([one], elections)) is is_at_risk


def test_a_partition_whose_replicas_are_all_in_sync_holds_no_broker() -> None:
    assert waits(partition("a", (11, 12), (12, 11)), left={11, 12}) == {}


def test_replicas_out_of_sync_wait_until_one_member_of_the_isr_serves() -> None:
    one = partition("a", (11, 12, 13), (12, 13))
    assert waits(one, left={11, 12, 13, 14}) == {11: ["a-0"]}
    assert waits(one, left={11, 12}, serving={13}) == {}


def test_a_member_that_was_started_and_does_not_serve_yet_holds_the_others() -> None:
    assert waits(partition("a", (11, 12), (12,)), left={11}) == {11: ["a-0"]}


def test_brokers_that_hold_each_other_all_wait() -> None:
    both = partition("a", (11, 12), (12,)), partition("b", (11, 12), (11,))
    assert waits(*both, left={11, 12}) == {11: ["a-0"], 12: ["b-0"]}


def test_eligible_leader_replicas_count_only_without_an_isr() -> None:
    assert waits(partition("a", (11, 12), (12,), elr=(11,)), left={11, 12}) == {11: ["a-0"]}
    assert waits(partition("a", (11, 12), (), elr=(11,)), left={11, 12}) == {12: ["a-0"]}
    assert waits(partition("a", (11, 12), (), last_known_elr=(12,)), left={11, 12}) == {11: ["a-0"]}


def test_a_partition_without_any_replica_known_to_be_in_sync_holds_no_broker() -> None:
    assert waits(partition("a", (11, 12), ()), left={11, 12}) == {}
