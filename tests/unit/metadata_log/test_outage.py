"""How long an offline downgrade is expected to take, and the sentence of a measured outage."""

from __future__ import annotations

from dataclasses import replace

from kafka_rollout.metadata_log.outage import Outage, OutageEstimate, not_serving, outage_estimate, unwritable
from kafka_rollout.model.state import (
    ClusterState,
    NodeFeatures,
    NodeState,
    PartitionState,
    ProcessState,
    RegisteredNodes,
)
from kafka_rollout.model.topology import HostCommand, ServiceSpec
from tests.fakes.cluster import make_spec


def estimate(nodes: int, log_mib: int = 1, replicas: int = 100, **service: tuple[HostCommand, ...]) -> OutageEstimate:
    spec = make_spec()
    hosts = tuple(replace(node, service=ServiceSpec(host="kafka", **service)) for node in spec.nodes[:nodes])
    return outage_estimate(replace(spec, nodes=hosts), [log_mib << 20] * nodes, replicas, forced_after_s=60)


def test_the_outage_grows_with_nodes_with_the_log_and_with_replicas() -> None:
    small = estimate(3)
    assert small.total_s == small.stop_s + small.snapshot_s + small.install_s + small.start_s
    assert estimate(6).total_s > small.total_s
    assert estimate(3, log_mib=200).snapshot_s > small.snapshot_s + 100
    assert estimate(3, replicas=100_000).start_s > small.start_s
    assert small.longest_s == small.total_s + 60
    assert "about 51 s, up to 111 s. Stop 11 s, up to 60 s more if a controller does not stop" in small.sentence


def test_the_operators_commands_are_in_the_estimate_as_they_run_on_all_nodes_of_a_kind_at_once() -> None:
    drain, undrain = HostCommand(command="drain", timeout_s=600.0), HostCommand(command="undrain", timeout_s=100.0)
    plain, found = estimate(6), estimate(6, before_stop=(drain,), after_start=(undrain, undrain))
    assert (found.total_s, found.longest_s) == (plain.total_s, plain.longest_s + 2 * 200)
    assert "up to 7 min more for the commands after it. Before the first stop, the commands" in found.sentence
    assert "the commands before it take up to 10 min." in found.sentence


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
