"""Batches: proved by placement, maximal, in one rack, and as few as possible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.batches import Shape, simulate
from kafka_rollout.model.plan import Batch, NodeStep
from kafka_rollout.model.state import PartitionState
from kafka_rollout.planning.batches import BatchLimits, find_batches, split_batch
from tests.examples import examples


def steps(controllers: Iterable[int], brokers: Iterable[int]) -> tuple[NodeStep, ...]:
    return tuple(
        NodeStep(node_id=node_id, name=f"node-{node_id}", section=section)
        for section, ids in (("controllers", controllers), ("brokers", brokers))
        for node_id in ids
    )


def partition(
    number: int, replicas: Sequence[int], *, min_isr: int = 2, isr: Sequence[int] | None = None, topic: str = "orders"
) -> PartitionState:
    return PartitionState(
        topic=topic,
        partition=number,
        leader=replicas[0],
        replicas=tuple(replicas),
        isr=tuple(replicas if isr is None else isr),
        min_insync_replicas=min_isr,
    )


RACKS = {number: "abc"[(number - 1) % 3] for number in range(1, 13)}
BY_RACK = [partition(number, [number, number % 12 + 1, (number + 1) % 12 + 1]) for number in range(1, 13)]


def ids(batches: Iterable[Batch]) -> list[tuple[int, ...]]:
    return [one.node_ids for one in batches]


def test_controllers_and_the_first_broker_are_alone_and_then_each_rack_is_restarted_together() -> None:
    batches = find_batches(steps([101, 102, 103], range(1, 13)), BY_RACK, RACKS, BatchLimits(max_size=4))
    assert ids(batches) == [(101,), (102,), (103,), (1,), (4, 7, 10), (2, 5, 8, 11), (3, 6, 9, 12)]
    assert [one.ends for one in batches[2:6]] == [
        "controllers restart one at a time",
        "the first broker restarts alone",
        "no other node of rack a is left",
        "the maximum is 4",
    ]


def test_the_controllers_after_the_brokers_of_a_downgrade_are_alone_too() -> None:
    down = (*steps([], range(1, 13)), *steps([101, 102], []))
    assert ids(find_batches(down, BY_RACK, RACKS, BatchLimits(max_size=6)))[-3:] == [(3, 6, 9, 12), (101,), (102,)]


def test_a_topic_that_ignores_racks_splits_a_batch_and_is_named() -> None:
    ignores = partition(7, [2, 5, 9], topic="ignores-racks")
    batches = find_batches(steps([], range(1, 13)), [*BY_RACK, ignores], RACKS, BatchLimits(max_size=4))
    assert ids(batches) == [(1,), (4, 7, 10), (2, 8, 11), (5,), (3, 6, 9, 12)]
    assert batches[2].ends == (
        "node 5 has a replica of ignores-racks-7 too (replicas 2, 5, 9; 3 in sync; min.insync.replicas 2)"
    )
    parts = split_batch([2, 5, 8, 11], [*BY_RACK, ignores], ["*"])
    assert ids(parts) == [(2, 8, 11), (5,)], "an accepted topic is accepted for one node"


def test_two_brokers_of_a_partition_are_in_a_batch_only_if_min_isr_and_one_more_stay_in_sync() -> None:
    limits = BatchLimits(max_size=5, one_rack=False)
    five = [partition(0, [2, 3, 4, 5, 6])]
    assert ids(find_batches(steps([], range(1, 7)), five, {}, limits)) == [(1,), (2, 3), (4, 5), (6,)]
    one_out = [partition(0, [2, 3, 4, 5, 6], isr=[2, 3, 4, 5])]
    assert ids(find_batches(steps([], range(1, 7)), one_out, {}, limits))[1:] == [(2,), (3,), (4,), (5,), (6,)]
    min_one = [partition(0, [2, 3, 4], min_isr=1)]
    assert ids(find_batches(steps([], range(1, 5)), min_one, {}, limits))[1:] == [(2,), (3,), (4,)]


def test_across_racks_only_the_placement_counts() -> None:
    batches = find_batches(steps([], range(1, 13)), BY_RACK, RACKS, BatchLimits(max_size=12, one_rack=False))
    assert len(ids(batches)) == 4
    assert batches[-1].ends == "no other node is left"


@pytest.mark.parametrize(
    ("racks", "reason"),
    [
        ({**RACKS, 7: "", 8: ""}, "nodes 7, 8 have no broker.rack, so brokers restart one at a time"),
        (
            {**RACKS, 2: "a"},
            "rack a has 5 brokers and rack b has 3, so brokers restart one at a time",
        ),
    ],
)
def test_without_racks_that_mean_something_brokers_restart_one_at_a_time(racks: dict[int, str], reason: str) -> None:
    batches = find_batches(steps([], range(1, 13)), BY_RACK, racks, BatchLimits(max_size=4))
    assert ids(batches) == [(number,) for number in range(1, 13)]
    assert {one.ends for one in batches} == {reason}


def test_racks_may_differ_by_one_broker() -> None:
    racks = {number: rack for number, rack in RACKS.items() if number != 12}
    batches = find_batches(steps([], range(1, 12)), [partition(0, [1, 2, 3])], racks, BatchLimits(max_size=4))
    assert ids(batches)[1:] == [(4, 7, 10), (2, 5, 8, 11), (3, 6, 9)]


def test_unknown_placement_is_one_node_at_a_time() -> None:
    reason = "no partition was reported, so brokers restart one at a time"
    batches = find_batches(steps([], range(1, 13)), (), RACKS, BatchLimits(max_size=4))
    assert ids(batches) == [(number,) for number in range(1, 13)]
    assert {one.ends for one in (*batches, *split_batch([4, 7], ()))} == {reason}
    assert ids(split_batch([4, 7], ())) == [(4,), (7,)]


def test_a_batch_is_split_by_the_state_of_now() -> None:
    assert ids(split_batch([4, 7, 10], BY_RACK)) == [(4, 7, 10)]
    moved = [*BY_RACK, partition(0, [7, 10, 3], topic="moved")]
    assert ids(split_batch([4, 7, 10], moved)) == [(4, 7), (10,)]


def test_a_node_that_cannot_be_stopped_alone_now_comes_last() -> None:
    late = [*BY_RACK[:3], partition(4, [4, 5, 6], isr=[4, 5]), *BY_RACK[4:]]
    parts = split_batch([4, 7, 10], late)
    assert ids(parts) == [(7, 10), (4,)]
    assert parts[1].ends == "node 4 waits: orders-4 has 2 in sync"


@st.composite
def placements(draw: st.DrawFn, most_nodes: int) -> tuple[int, list[PartitionState], int]:
    number = draw(st.integers(2, most_nodes))
    partitions = []
    for index in range(draw(st.integers(0, 6))):
        replicas = draw(st.lists(st.integers(1, number), min_size=1, max_size=min(number, 6), unique=True))
        isr = draw(st.lists(st.sampled_from(replicas), unique=True))
        partitions.append(partition(index, replicas, isr=isr, min_isr=draw(st.integers(1, 3))))
    return number, partitions, draw(st.integers(2, 4))


def is_safe(batch: Sequence[int], partitions: Iterable[PartitionState]) -> bool:
    """The rule in its own words: after the stop of several, min ISR and one more are in sync."""
    for one in partitions:
        stopped = set(batch) & set(one.replicas)
        in_sync = len(one.isr) - len(stopped)  # a replica that is out of sync now counts as one that will be in sync
        if len(stopped) > 1 and in_sync < one.min_isr + 1:
            return False
    return True


def fewest(left: tuple[int, ...], partitions: Sequence[PartitionState], most: int, parts: list[list[int]]) -> int:
    if not left:
        return len(parts)
    best = len(parts) + len(left)
    for part in parts:
        if len(part) < most and is_safe([*part, left[0]], partitions):
            part.append(left[0])
            best = min(best, fewest(left[1:], partitions, most, parts))
            part.pop()
    parts.append([left[0]])
    best = min(best, fewest(left[1:], partitions, most, parts))
    parts.pop()
    return best


@given(placements(7))
@settings(max_examples=examples(150), deadline=None)
def test_small_clusters_have_as_few_batches_as_possible(placement: tuple[int, list[PartitionState], int]) -> None:
    number, partitions, most = placement
    limits = BatchLimits(max_size=most, one_rack=False)
    partitions.append(partition(99, [1]))
    batches = find_batches(steps([], range(1, number + 1)), partitions, {}, limits)[1:]
    assert len(batches) == fewest(tuple(range(2, number + 1)), partitions, most, [])


def pairs(batches: Sequence[Batch]) -> Iterator[tuple[Batch, int]]:
    for place, batch in enumerate(batches):
        for later in batches[place + 1 :]:
            for node_id in later.node_ids:
                yield batch, node_id


@given(placements(30))
@settings(max_examples=examples(150), deadline=None)
def test_every_batch_is_safe_and_ends_for_a_reason(placement: tuple[int, list[PartitionState], int]) -> None:
    number, partitions, most = placement
    racks = {node_id: "ab"[node_id % 2] for node_id in range(1, number + 1)}
    partitions.append(partition(99, [1]))
    batches = find_batches(steps([], range(1, number + 1)), partitions, racks, BatchLimits(max_size=most))
    assert sorted(node_id for one in batches for node_id in one.node_ids) == list(range(1, number + 1))
    for one in batches:
        assert len(one.node_ids) <= most
        assert len({racks[node_id] for node_id in one.node_ids}) == 1
        assert is_safe(one.node_ids, partitions)
    for batch, node_id in pairs(batches[1:]):
        if len(batch.node_ids) < most and racks[node_id] == racks[batch.node_ids[0]]:
            assert not is_safe([*batch.node_ids, node_id], partitions)
            assert "has a replica of orders-" in batch.ends


@pytest.mark.parametrize("seed", range(6))
def test_no_partition_of_a_simulated_roll_is_ever_under_min_isr(seed: int) -> None:
    shape = Shape(brokers=24, partitions=400, ignoring=0.05)
    roll = simulate(shape, BatchLimits(max_size=6), seed)
    assert roll["batches"]["steps"] < roll["one_at_a_time"]["steps"]
    for name in ("batches", "one_at_a_time"):
        assert (roll[name]["below_min_isr"], roll[name]["without_leader"]) == (0, 0)
