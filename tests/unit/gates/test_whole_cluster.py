from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka_rollout.gates.gate import GateCheck
from kafka_rollout.gates.whole_cluster import check_finalized, check_healthy, check_metadata_version, check_snapshots
from kafka_rollout.model.state import ClusterState, RegisteredNodes
from kafka_rollout.model.topology import ClusterSpec
from tests.unit.builders import (
    NOW,
    R340,
    R431,
    SEPARATE,
    catalogue,
    node_state,
    partition,
    quorum,
    replace_node,
    silent,
    state,
)


@dataclass(frozen=True)
class File:
    end_offset: int
    epoch: int
    modified_at: float


def _failing(checked: GateCheck) -> list[int]:
    return [int(c.name.split()[1]) for c in checked.conditions if not c.is_met]


def _at(
    level: int, *, prometheus: int | None = 30, jolokia: int | None = 30, unanswered: Mapping[str, str] | None = None
) -> ClusterState:
    return state(
        nodes={
            n.node_id: node_state(
                n.node_id,
                R431,
                finalized={"metadata.version": level},
                current_metadata_version_prometheus=prometheus,
                current_metadata_version_jolokia=jolokia,
                unanswered=unanswered or {},
            )
            for n in SEPARATE.nodes
        }
    )


def _unhealthy(**changes: Any) -> set[str]:
    """The conditions of a healthy cluster that these changes leave unmet."""
    return {one.name for one in check_healthy(SEPARATE, state(**changes)).conditions if not one.is_met}


def test_a_healthy_cluster_was_seen_whole() -> None:
    assert _unhealthy() == set()
    assert _unhealthy(nodes=replace_node(state(), silent(2))) == {"every node serves"}
    assert _unhealthy(unanswered=("No response to DescribeQuorum.",)) == {"every query answered"}
    assert _unhealthy(not_observable=("The user cannot describe topics.",)) == {"every query answered"}
    assert _unhealthy(quorum=None) == {"every node is caught up"}
    assert _unhealthy(quorum=quorum([1, 2, 3], 3, [4, 5, 6], n5=1000)) == {"every node is caught up"}
    behind = replace(partition("orders", 0, [4, 5, 6]), isr=(4, 5))
    assert _unhealthy(partitions=(behind,)) == {"all replicas are in sync"}
    without_leader = replace(partition("orders", 0, [4, 5, 6]), leader=-1)
    assert _unhealthy(partitions=(without_leader,)) == {"all replicas are in sync"}


def test_a_broker_that_is_fenced_or_that_nobody_listed_is_not_healthy() -> None:
    def registered(brokers: set[int], fenced: set[int] | None) -> RegisteredNodes:
        of = None if fenced is None else frozenset(fenced)
        return RegisteredNodes(brokers=frozenset(brokers), fenced=of, controllers=frozenset({1, 2, 3}))

    assert _unhealthy(registered=registered({4, 5, 6}, {6})) == {"every node serves"}
    assert _unhealthy(registered=registered({4, 5}, None)) == {"every node serves"}
    assert _unhealthy(registered=registered({4, 5, 6, 7}, set())) == {"every node serves"}
    assert _unhealthy(registered=registered({4, 5, 6}, None)) == set(), "brokers before 4.0 list no fenced ones"


def test_finalized_holds_only_when_every_node_itself_reports_every_level() -> None:
    seen = _at(30)
    assert check_finalized(SEPARATE, seen, {"metadata.version": 30}).passes
    assert _failing(check_finalized(SEPARATE, seen, {"metadata.version": 30, "group.version": 1})) == [1, 2, 3, 4, 5, 6]
    behind = replace(seen, nodes={**seen.nodes, 2: node_state(2, R431), 5: silent(5)})
    checked = check_finalized(SEPARATE, behind, {"metadata.version": 30})
    assert _failing(checked) == [2, 5]
    assert "metadata.version 21 instead of 30" in checked.waits_for
    assert "connection refused" in checked.waits_for


def test_finalized_needs_an_epoch_newer_than_before_finalizing() -> None:
    seen = _at(30)
    assert check_finalized(SEPARATE, seen, {"metadata.version": 30}, after_epoch=99).passes
    assert _failing(check_finalized(SEPARATE, seen, {"metadata.version": 30}, after_epoch=100)) == [1, 2, 3, 4, 5, 6]
    nameless = replace(
        seen, nodes=replace_node(seen, node_state(3, R431, finalized={"metadata.version": 30}, epoch=None))
    )
    assert _failing(check_finalized(SEPARATE, nameless, {"metadata.version": 30})) == [3]


def test_kraft_version_alone_is_no_new_epoch() -> None:
    """4.3.1 reports it from the state of Raft, and the epoch is that of the last feature record."""
    levels = {"metadata.version": 30, "kraft.version": 1}
    seen = state(nodes={n: node_state(n, R431, finalized=levels, epoch=9) for n in range(1, 7)})
    assert check_finalized(SEPARATE, seen, {"kraft.version": 1}, after_epoch=18).passes
    assert not check_finalized(SEPARATE, seen, levels, after_epoch=18).passes


def test_a_snapshot_file_counts_when_it_was_written_after_finalizing_and_ends_behind_it() -> None:
    files = {n.node_id: [File(100, 1, NOW - 900), File(500, 2, NOW - 5)] for n in SEPARATE.nodes}
    assert check_snapshots(SEPARATE, state(), files, finalized_at=NOW - 10, after_offset=499).passes
    assert _failing(check_snapshots(SEPARATE, state(), files, finalized_at=NOW - 4)) == [1, 2, 3, 4, 5, 6]
    assert _failing(check_snapshots(SEPARATE, state(), files, finalized_at=NOW - 10, after_offset=500)) == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]
    files[4] = [File(100, 1, NOW - 900)]
    checked = check_snapshots(SEPARATE, state(), files, finalized_at=NOW - 10, interval_ms={4: 3_600_000})
    assert _failing(checked) == [4]
    assert "3600 s" in checked.waits_for
    evidence = next(c.evidence for c in checked.conditions if c.is_met)
    assert "00000000000000000500-0000000002.checkpoint" in evidence


def test_where_no_file_is_seen_the_metrics_tell_but_not_before_a_process_wrote_one() -> None:
    def seen(age: int | None, size: int | None) -> ClusterState:
        nodes = {
            n.node_id: node_state(n.node_id, R431, snapshot_age_ms=age, snapshot_bytes=size) for n in SEPARATE.nodes
        }
        return state(nodes=nodes)

    assert check_snapshots(SEPARATE, seen(3_000, 900), {}, finalized_at=NOW - 10).passes
    for age, size in ((30_000, 900), (3_000, 0), (None, None)):
        assert _failing(check_snapshots(SEPARATE, seen(age, size), {}, finalized_at=NOW - 10)) == [1, 2, 3, 4, 5, 6]


def test_both_agents_must_report_the_current_metadata_version() -> None:
    assert check_metadata_version(SEPARATE, catalogue(), _at(30), 30).passes
    assert not check_metadata_version(SEPARATE, catalogue(), _at(30, jolokia=29), 30).passes
    checked = check_metadata_version(
        SEPARATE, catalogue(), _at(30, prometheus=None, unanswered={"prometheus": "status 401"}), 30
    )
    assert not checked.passes
    assert "Prometheus did not respond, Jolokia reports 30" in checked.waits_for


def test_an_agent_that_responds_without_the_metric_leaves_the_level_to_api_versions() -> None:
    checked = check_metadata_version(SEPARATE, catalogue(), _at(30, prometheus=None, jolokia=None), 30)
    assert checked.passes
    assert (
        "the metrics agents export no CurrentMetadataVersion; ApiVersions reports 30" in checked.conditions[0].evidence
    )
    assert not check_metadata_version(SEPARATE, catalogue(), _at(29, prometheus=None, jolokia=None), 30).passes


def test_without_agents_or_without_the_metric_api_versions_tells_and_the_evidence_says_so() -> None:
    bare = ClusterSpec(
        name="bare", nodes=tuple(replace(n, prometheus_url=None, jolokia_url=None) for n in SEPARATE.nodes)
    )
    checked = check_metadata_version(bare, catalogue(), _at(30, prometheus=None, jolokia=None), 30)
    assert checked.passes
    assert all("no metrics agent; ApiVersions reports 30" in c.evidence for c in checked.conditions)
    old = state(
        nodes={n.node_id: node_state(n.node_id, R340, finalized={"metadata.version": 8}) for n in SEPARATE.nodes}
    )
    checked = check_metadata_version(SEPARATE, catalogue(), old, 8)
    assert checked.passes
    assert "3.4.0 has no CurrentMetadataVersion" in checked.conditions[0].evidence
    assert not check_metadata_version(SEPARATE, catalogue(), old, 9).passes


def test_a_controller_that_names_no_levels_is_evaluated_by_its_log() -> None:
    nodes = {
        n.node_id: node_state(n.node_id, R340, finalized={"metadata.version": 8}, epoch=200)
        if n.is_broker
        else node_state(n.node_id, R340, finalized={}, epoch=None)
        for n in SEPARATE.nodes
    }
    seen = state(nodes=nodes, quorum=quorum([1, 2, 3], 3, n1=9_850))
    levels = {"metadata.version": 8}
    assert _failing(check_finalized(SEPARATE, seen, levels)) == [1]
    assert _failing(check_metadata_version(SEPARATE, catalogue(), seen, 8)) == [1]
    assert "its log ends at 150" in check_finalized(SEPARATE, seen, levels).waits_for
    assert _failing(check_finalized(SEPARATE, seen, {"metadata.version": 9})) == [1, 2, 3, 4, 5, 6]
    assert _failing(check_finalized(SEPARATE, replace(seen, quorum=None), levels)) == [1, 2, 3]


def test_without_a_change_every_node_that_answers_holds() -> None:
    seen = state(nodes={n.node_id: node_state(n.node_id, R340, finalized={}, epoch=None) for n in SEPARATE.nodes})
    assert check_finalized(SEPARATE, seen, {}).passes
    assert not check_finalized(SEPARATE, replace(seen, nodes=replace_node(seen, silent(6))), {}).passes


def test_a_silent_node_holds_the_gate() -> None:
    seen = _at(30)
    silent_one = replace(seen, nodes=replace_node(seen, silent(6)))
    assert _failing(check_metadata_version(SEPARATE, catalogue(), silent_one, 30)) == [6]


def test_levels_of_a_node_without_a_quorum_are_not_believed() -> None:
    """KAFKA-19964: it is no older controller either, which reports no levels and is evaluated by its log."""
    seen = _at(30)
    answered = seen.nodes[2].features
    assert answered is not None
    lost = replace(answered, finalized={}, epoch=None, without_quorum=True)
    apart = replace(seen, nodes={**seen.nodes, 2: replace(seen.nodes[2], features=lost)})
    checked = check_finalized(SEPARATE, apart, {"metadata.version": 30})
    assert _failing(checked) == [2]
    assert "levels without an epoch" in checked.waits_for
    node = node_state(2, R340, finalized={}, epoch=None)
    assert node.features is not None
    without_metric = replace(node, features=replace(node.features, without_quorum=True))
    old = replace(seen, nodes={**seen.nodes, 2: without_metric})
    assert _failing(check_metadata_version(SEPARATE, catalogue(), old, 30)) == [2]
