"""Findings about the counters of the nodes: errors before the run, and what the gates will not check."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kafka_rollout.base.findings import Finding, Severity
from kafka_rollout.gates.counters import PARTITION_COUNT, counter_findings, find_unchecked_counters
from kafka_rollout.gates.remote_storage import MANAGER_CLASS, SYSTEM_ENABLE, remote_storage_findings
from kafka_rollout.model.state import ClusterState
from tests.unit.builders import R391, R431, SEPARATE, WELL_COUNTERS, node_state, replace_node, silent, state

TIERED = {SYSTEM_ENABLE: "true"}


def _with(node_id: int, **counters: int | None) -> ClusterState:
    seen = state()
    left = {name: value for name, value in {**WELL_COUNTERS, **counters}.items() if value is not None}
    return replace(seen, nodes=replace_node(seen, node_state(node_id, R391, counters=left)))


def _found(seen: ClusterState, keeps: Collection[int] = ()) -> dict[str, Finding]:
    return {finding.code: finding for finding in counter_findings(SEPARATE, seen, keeps=keeps)}


def test_a_cluster_without_errors_has_none() -> None:
    assert _found(state()) == {}
    assert find_unchecked_counters(SEPARATE, state()) == {}


def test_metadata_that_a_node_could_not_apply_warns_before_its_restart_and_blocks_where_no_node_restarts() -> None:
    seen = _with(5, metadata_apply_errors=2)
    finding = _found(seen)["METADATA-ERRORS"]
    assert (finding.severity, finding.subject) == (Severity.WARNING, "node 5")
    assert "metadata-apply-error-count 2" in finding.sentence
    assert "counts an error again whose cause is still there" in finding.remedy
    assert _found(seen, keeps=[4, 5])["METADATA-ERRORS"].severity is Severity.BLOCKER
    assert _found(seen, keeps=[4])["METADATA-ERRORS"].severity is Severity.WARNING


def test_an_offline_log_directory_blocks() -> None:
    finding = _found(_with(4, offline_log_directories=1))["LOG-DIRECTORY-OFFLINE"]
    assert finding.severity is Severity.BLOCKER
    assert "remove the directory from log.dirs" in finding.remedy


def test_counters_that_no_agent_exports_are_named_with_the_rule_to_add_and_not_waited_for() -> None:
    seen = _with(4, metadata_apply_errors=None)
    (finding,) = _found(seen).values()
    assert (finding.code, finding.severity) == ("COUNTERS-NOT-EXPORTED", Severity.WARNING)
    assert "nodes 4 do not export metadata-apply-error-count" in finding.sentence
    assert (
        "{pattern: 'kafka.server<type=broker-metadata-metrics><>metadata-apply-error-count: (.+)', "
        "name: kafka_rollout_metadata_apply_errors, value: $1}" in finding.remedy
    )
    assert find_unchecked_counters(SEPARATE, seen) == {"metadata_apply_errors": (4,)}


def test_missing_rates_of_remote_errors_are_named_for_brokers_with_tiered_storage_only() -> None:
    seen = _with(4, remote_copy_errors=None, remote_fetch_errors=None)
    assert _found(seen) == {}
    assert find_unchecked_counters(SEPARATE, seen) == {}
    (finding,) = counter_findings(SEPARATE, seen, tiered={4, 5})
    assert finding.code == "COUNTERS-NOT-EXPORTED"
    assert "nodes 4 do not export RemoteCopyErrorsPerSec, RemoteFetchErrorsPerSec" in finding.sentence
    assert (
        "{pattern: 'kafka.server<type=BrokerTopicMetrics, name=RemoteFetchErrorsPerSec><>OneMinuteRate: (.+)', "
        "name: kafka_rollout_remote_fetch_errors, value: $1}" in finding.remedy
    )
    unchecked = find_unchecked_counters(SEPARATE, seen, {4, 5})
    assert unchecked == {"remote_copy_errors": (4,), "remote_fetch_errors": (4,)}


def test_nodes_that_lack_the_same_counters_share_a_finding() -> None:
    seen = state()
    older = {node.node_id: node_state(node.node_id, R391, counters={}) for node in SEPARATE.nodes}
    findings = [*counter_findings(SEPARATE, replace(seen, nodes=older))]
    assert {finding.subject for finding in findings} == {
        "metrics agents of nodes 1, 2, 3",
        "metrics agents of nodes 4, 5, 6",
    }


def test_a_node_without_metrics_is_not_waited_for_and_has_a_finding_of_its_own() -> None:
    seen = state()
    down = replace(seen, nodes=replace_node(seen, silent(1)))
    assert find_unchecked_counters(SEPARATE, down)[PARTITION_COUNT] == (1,)
    assert _found(down) == {}
    no_agents = replace(
        SEPARATE, nodes=tuple(replace(node, jolokia_url=None, prometheus_url=None) for node in SEPARATE.nodes)
    )
    assert find_unchecked_counters(no_agents, down) == {}


def test_a_cluster_without_tiered_storage_has_no_finding() -> None:
    assert [*remote_storage_findings(SEPARATE, {4: {SYSTEM_ENABLE: "false"}, 1: TIERED}, R431)] == []


def test_the_brokers_with_tiered_storage_are_named_with_what_the_gates_check() -> None:
    configs = {4: TIERED, 5: TIERED, 6: {**TIERED, MANAGER_CLASS: "com.example.Manager"}}
    other, own = remote_storage_findings(SEPARATE, configs, R431)
    assert {own.code, other.code} == {"REMOTE-LOG-NOT-CHECKED"}
    assert own.severity is Severity.WARNING
    assert own.sentence.startswith("Tiered storage is enabled on nodes 4, 5.")
    assert "unknown whether Kafka 4.3.1 can load it" in own.sentence
    assert "each broker has initialised" in own.sentence
    assert "The gates do not check com.example.Manager." in other.sentence
    assert all("copies or fetches fail" in finding.sentence for finding in (own, other))
