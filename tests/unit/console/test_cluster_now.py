"""The state of a cluster now: numbers with their lists, the effect on clients, and unknown without an answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafka_rollout.console.run_console import (
    BEHIND,
    FENCED,
    OFFLINE,
    UNDER_MIN_ISR,
    UNDER_REPLICATED,
    ClusterNow,
    Way,
    summarize,
    with_trends,
)
from kafka_rollout.model.rights import LIST_PARTITIONS, MissingRight
from kafka_rollout.model.state import PartitionState, RegisteredNodes
from kafka_rollout.wiring.cluster_now import query_cluster_now
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.ports import fake_ports


def partition(number: int, isr: Sequence[int], *, leader: int = 1) -> PartitionState:
    return PartitionState(
        topic="pay", partition=number, leader=leader, replicas=(1, 2, 3), isr=tuple(isr), min_insync_replicas=2
    )


def now(at: float = 100.0, **answers: Any) -> ClusterNow:
    known = {"partitions": (), "quorum": None, "registered": None, "levels": {}}
    return summarize(observed_at=at, **{**known, **answers})


def test_partitions_are_counted_and_listed_and_clients_are_affected_by_the_worst() -> None:
    found = now(partitions=(partition(0, (1, 2, 3)), partition(1, (1, 2)), partition(2, (1,))))
    listed = {name: counted.objects for name, counted in found.counts.items()}
    assert (listed[UNDER_REPLICATED], listed[UNDER_MIN_ISR]) == (("pay-1", "pay-2"), ("pay-2",))
    assert found.counts[OFFLINE].number == 0
    assert (found.clients, found.serves) == ("Producers with acks=all cannot write 1 partition under min ISR.", False)
    worse = now(partitions=(partition(0, (), leader=-1), partition(2, (1,))))
    assert (worse.counts[OFFLINE].objects, worse.counts[UNDER_MIN_ISR].objects) == (("pay-0",), ("pay-2",))
    assert worse.clients == "Clients cannot read or write 1 partition without a leader."
    well = now(partitions=(partition(1, (1, 2)),))
    assert (well.clients[:22], well.serves) == ("No client is affected:", True)


def test_an_answer_that_is_missing_is_unknown_and_never_zero() -> None:
    found = now(partitions=None, problems=("No broker responds.",))
    assert {counted.number for counted in found.counts.values()} == {None}
    assert (found.serves, found.partitions, found.controller, found.most_lag) == (None, None, None, None)
    assert found.clients.startswith("The effect on clients is unknown")
    unlisted = now(registered=RegisteredNodes(brokers=frozenset({1}), fenced=None, controllers=None))
    assert unlisted.counts[FENCED].number is None
    fenced = now(registered=RegisteredNodes(brokers=frozenset({1}), fenced=frozenset({7}), controllers=None))
    assert fenced.counts[FENCED].objects == ("broker 7",)


def test_without_the_right_to_list_every_partition_no_number_is_zero_and_clients_are_unknown(tmp_path: Path) -> None:
    world = FakeCluster(R431)
    admin = fake_ports(world, tmp_path).admin
    world.missing_rights = [MissingRight(right=LIST_PARTITIONS, principal="User:page")]
    found = query_cluster_now(world.spec, admin)
    assert {found.counts[name].number for name in (UNDER_REPLICATED, OFFLINE, UNDER_MIN_ISR)} == {None}
    assert (found.partitions, found.serves, found.clients[:33]) == (None, None, "The effect on clients is unknown:")
    (problem,) = found.problems
    assert "User:page does not have the right DESCRIBE on TOPIC *" in problem
    assert "--operation Describe --topic '*'" in problem
    some = now(partitions=(partition(0, (), leader=-1),), lists_all=False)
    assert (some.counts[OFFLINE].number, some.counts[UNDER_MIN_ISR].number, some.serves) == (1, None, False)


def test_a_trend_compares_with_the_observation_of_ten_minutes_before() -> None:
    def under_replicated(at: float, number: int) -> ClusterNow:
        return now(at, partitions=[partition(one, (1, 2)) for one in range(number)])

    seen = [under_replicated(0.0, 9), under_replicated(500.0, 5)]
    found = with_trends(under_replicated(900.0, 1), seen).counts
    trend = found[UNDER_REPLICATED].trend
    assert trend is not None
    assert (trend.way, trend.before, trend.over_s) == (Way.FALLS, 5, 400.0)
    assert found[FENCED].trend is None


def test_a_cluster_is_read_through_its_listeners_and_a_lost_quorum_is_a_problem(tmp_path: Path) -> None:
    world = FakeCluster(R431)
    admin = fake_ports(world, tmp_path).admin
    found = query_cluster_now(world.spec, admin)
    assert (found.problems, found.controller, found.counts[UNDER_REPLICATED].number) == ((), 1, 0)
    assert found.levels["metadata.version"] == world.finalized["metadata.version"]
    world.nodes[11].behind = 3
    assert query_cluster_now(world.spec, admin).counts[BEHIND].number == 1
    world.leader = None
    lost = query_cluster_now(world.spec, admin)
    assert (lost.controller, lost.counts[BEHIND].number) == (None, None)
    assert "no leader" in lost.problems[0]
