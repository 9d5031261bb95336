from __future__ import annotations

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.model.state import PartitionState
from kafka_rollout.rehearsal.selection import find_spareless_topics, select_nodes
from tests.unit.builders import COMBINED, cluster, partition

LARGE = cluster(controllers=[1, 2, 3], brokers=[11, 12, 13, 14, 15])


def offsets(*isrs: list[int], min_isr: int = 1) -> list[PartitionState]:
    return [partition("__consumer_offsets", number, isr, min_isr=min_isr) for number, isr in enumerate(isrs)]


def test_a_small_cluster_is_copied_whole() -> None:
    chosen = select_nodes(COMBINED, [partition("orders", 0, [1, 2, 3])], limit=6)
    assert (chosen.nodes, chosen.left_out, chosen.not_covered) == ((1, 2, 3), (), ())


def test_a_large_cluster_is_copied_with_all_controllers_and_the_fewest_brokers() -> None:
    # The widest cover, broker 13, is not part of the smallest set.
    partitions = offsets([11, 13], [11, 13], [12, 13], [12, 14], [11, 15])
    chosen = select_nodes(LARGE, partitions, limit=6)
    assert (chosen.nodes, chosen.left_out, chosen.uncovered) == ((1, 2, 3, 11, 12), (13, 14, 15), ())
    assert chosen.not_covered == (
        "No copy of nodes 13, 14, 15: configuration, directories and other partitions there are not rehearsed.",
    )


def test_the_limit_leaves_partitions_uncovered_and_names_them() -> None:
    chosen = select_nodes(LARGE, offsets([11], [12], [12]), limit=4)
    assert (chosen.nodes, chosen.uncovered) == ((1, 2, 3, 12), ("__consumer_offsets-0",))
    assert "1 coordinator partition without min.insync.replicas on copied nodes: __consumer_offsets-0." in (
        chosen.not_covered
    )


def test_a_coordinator_partition_needs_its_min_isr() -> None:
    partitions = offsets([11, 12, 13], [11, 14, 15], min_isr=2)
    chosen = select_nodes(LARGE, partitions, limit=6)
    assert (chosen.nodes, chosen.uncovered) == ((1, 2, 3, 11, 12, 14), ())
    assert select_nodes(LARGE, partitions, limit=5).uncovered == ("__consumer_offsets-1",)


def test_a_partition_with_fewer_in_sync_replicas_than_its_min_isr_needs_all_of_them() -> None:
    partitions = [partition("__consumer_offsets", 0, [11, 12, 13], isr=(13,), min_isr=2)]
    assert select_nodes(LARGE, partitions, limit=6).nodes == (1, 2, 3, 13)


def test_a_replica_out_of_sync_does_not_cover() -> None:
    partitions = [partition("__transaction_state", 0, [11, 12], isr=(12,))]
    assert select_nodes(LARGE, partitions, limit=6).nodes == (1, 2, 3, 12)


def test_a_copy_has_a_broker_also_without_coordinator_partitions() -> None:
    assert select_nodes(LARGE, [], limit=5).nodes == (1, 2, 3, 11)


def test_a_limit_below_the_controllers_is_refused() -> None:
    with pytest.raises(UserError, match="needs at least 4 nodes: the controllers and a broker"):
        select_nodes(LARGE, [], limit=3)


def test_topics_without_a_spare_replica_among_the_copied_nodes() -> None:
    partitions = [
        partition("spare", 0, [11, 12, 13]),
        partition("alone", 0, [11], min_isr=1),
        partition("elsewhere", 0, [13, 14, 15]),
        partition("tight", 0, [11, 12]),
    ]
    assert find_spareless_topics(partitions, [11, 12, 13]) == ("alone", "elsewhere", "tight")
