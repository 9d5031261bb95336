"""What each place says of a topic with fewer replicas than min.insync.replicas: Kafka needs those that there are."""

from __future__ import annotations

import pytest

from kafka_rollout.features.rules import user_findings
from kafka_rollout.gates.node import check_before_stop
from kafka_rollout.metadata_log.outage import unwritable
from kafka_rollout.model.state import UNKNOWN_MIN_ISR
from kafka_rollout.planning.batches import split_batch
from kafka_rollout.run.projections.observations import observed_of
from tests.unit.builders import SEPARATE, node_state, partition, state

SINGLE = partition("old", 0, [5], min_isr=2)  # acks=all succeeds from 3.7.0 on (Partition.effectiveMinIsr)
PAIR = partition("pair", 0, [5, 6], min_isr=3)
LEVELS = {"metadata.version": 30, "eligible.leader.replicas.version": 1}
SEEN = state(partitions=(partition("orders", 0, [4, 5, 6]), SINGLE, PAIR))


@pytest.mark.parametrize(
    ("replicas", "setting", "needed"),
    [([5], 2, 1), ([4, 5], 3, 2), ([4, 5, 6], 2, 2), ([4], UNKNOWN_MIN_ISR, UNKNOWN_MIN_ISR)],
)
def test_no_more_replicas_are_needed_than_there_are_and_an_unknown_number_is_not_limited(
    replicas: list[int], setting: int, needed: int
) -> None:
    assert partition("t", 0, replicas, min_isr=setting).min_isr == needed


def test_a_node_without_a_replica_of_it_can_stop() -> None:
    assert check_before_stop(SEPARATE, SEEN, SEPARATE.node(4)).passes
    held = check_before_stop(SEPARATE, SEEN, SEPARATE.node(6))
    assert [one.name for one in held.conditions if not one.is_met] == ["min ISR without it"]
    assert "pair-0 (1 of 2)" in held.waits_for


def test_it_is_written_to_before_an_outage_so_it_is_waited_for_after_it() -> None:
    assert unwritable(SEEN) == ()


def test_it_has_no_eligible_leaders_to_lose_and_is_not_counted_as_under_min_isr() -> None:
    nodes = {i: node_state(i, finalized=LEVELS) for i in range(1, 7)}
    seen = state(nodes=nodes, partitions=SEEN.partitions)
    assert list(user_findings(seen, {"eligible.leader.replicas.version": 0}, unsafe=False)) == []
    assert observed_of(seen).under_min_isr == 0


def test_a_batch_is_not_parted_for_it() -> None:
    assert [one.node_ids for one in split_batch([4, 6], (partition("wide", 0, [4, 5, 6, 7, 8]),))] == [(4, 6)]
    assert [one.node_ids for one in split_batch([4], (SINGLE,))] == [(4,)]
    assert partition("wide", 0, [4, 5, 6, 7], min_isr=9).can_stop_together == 1
