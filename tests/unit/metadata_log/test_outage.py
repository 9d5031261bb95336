"""How long an offline downgrade is expected to take, and the sentence of a measured outage."""

from __future__ import annotations

from dataclasses import replace

from kafka_rollout.metadata_log.outage import Outage, not_serving, outage_estimate, unwritable
from kafka_rollout.model.state import (
    ClusterState,
    NodeFeatures,
    NodeState,
    PartitionState,
    ProcessState,
    RegisteredNodes,
)
from tests.fakes.cluster import make_spec


def test_the_outage_grows_with_nodes_with_the_log_and_with_replicas() -> None:
    small = outage_estimate(3, [1 << 20] * 3, 100, forced_after_s=60)
    assert small.total_s == small.stop_s + small.snapshot_s + small.install_s + small.start_s
    assert outage_estimate(6, [1 << 20] * 6, 100, forced_after_s=60).total_s > small.total_s
    assert outage_estimate(3, [200 << 20] * 3, 100, forced_after_s=60).snapshot_s > small.snapshot_s + 100
    assert outage_estimate(3, [1 << 20] * 3, 100_000, forced_after_s=60).start_s > small.start_s
    assert small.longest_s == small.total_s + 60
    assert "about 51 s, up to 111 s. Stop 11 s, up to 60 s more if a controller does not stop" in small.sentence


def test_a_measured_outage_is_a_range_where_no_check_ran() -> None:
    outage = Outage(began_at=1000.0, unserved_at=1040.0, writable_at=1038.0, served_at=1041.0)
    assert (outage.seconds, outage.seconds_at_least, outage.writable_s) == (41.0, 40.0, 38.0)
    assert "Measured outage: 41 s, from the first stop until the last broker served requests again" in outage.sentence
    assert outage.sentence.endswith("every partition was writable after 38 s.")
    unseen = replace(outage, served_at=1090.0)
    assert "No check ran between these two times." in unseen.sentence


def test_an_outage_that_nobody_saw_end_says_so() -> None:
    assert "not over" in Outage(began_at=1000.0, unserved_at=1000.0).sentence


def test_service_needs_every_broker_to_answer_unfenced_and_every_partition_a_leader_that_answers_and_min_isr() -> None:
    answer = NodeFeatures(supported={}, finalized={}, epoch=1)

    def state(answers: set[int], fenced: set[int], *partitions: PartitionState) -> ClusterState:
        nodes = {
            i: NodeState(
                node_id=i, process=ProcessState(pid=i), features=answer if i in answers else None, metrics=None
            )
            for i in (11, 12, 13)
        }
        registered = RegisteredNodes(brokers=frozenset({11, 12, 13}), fenced=frozenset(fenced), controllers=None)
        return ClusterState(
            cluster_id="", observed_at=0.0, nodes=nodes, quorum=None, registered=registered, partitions=partitions
        )

    served = PartitionState(
        topic="orders", partition=0, leader=11, replicas=(11, 12), isr=(11, 12), min_insync_replicas=2
    )
    leaderless, under = replace(served, partition=1, leader=-1), replace(served, partition=2, isr=(11,))
    now = state({11, 12}, {12}, served, leaderless, under)
    assert not_serving(make_spec(), now) == (12, 13)
    assert unwritable(now) == ("orders-1", "orders-2")
    assert unwritable(now, {"orders-2"}) == ("orders-1",)
    assert unwritable(state({12, 13}, set(), served)) == ("orders-0",), "its leader gets a request, and does not answer"
