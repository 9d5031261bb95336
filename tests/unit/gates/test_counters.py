"""Kafka's own counters as conditions: metadata errors, log directories, and what the active controller counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
import yaml

from kafka_rollout.gates.counters import (
    AGREES,
    ExpectedErrors,
    controller_agrees,
    expected_counters,
    no_metadata_errors,
)
from kafka_rollout.gates.gate import GateCheck, GateCondition
from kafka_rollout.gates.node import check_after_start, check_before_stop
from kafka_rollout.gates.reasons import DIRECTORIES, NO_ERRORS
from kafka_rollout.model.counters import COUNTERS
from kafka_rollout.model.node_log import LogPart, directories_fault, read_part
from kafka_rollout.model.state import ClusterState, NodeMetrics, RegisteredNodes
from kafka_rollout.model.topology import ClusterSpec, Role
from kafka_rollout.releases.facts import Release
from tests.unit.builders import R391, R431, SEPARATE, node_state, partition, replace_node, state
from tools.demo.folder import PROJECT_ROOT

R340 = Release.parse("3.4.0")
NO_AGENTS = replace(
    SEPARATE, nodes=tuple(replace(node, jolokia_url=None, prometheus_url=None) for node in SEPARATE.nodes)
)
WELL = {"fenced_brokers": 0, "active_brokers": 3, "offline_partitions": 0, "preferred_replica_imbalance": 0}


def _controller(counts: Mapping[str, int | None], *, partitions: int = 3, release: Release = R391) -> NodeMetrics:
    counters = {name: value for name, value in {**WELL, **counts}.items() if value is not None}
    return NodeMetrics(release=release, partition_count=partitions, counters=counters)


def _seen(metrics: NodeMetrics | None, spec: ClusterSpec = SEPARATE, **other: object) -> ClusterState:
    return replace(state(spec), active_controller=metrics, **other)  # type: ignore[arg-type]


def _condition(checked: GateCheck, name: str) -> GateCondition:
    (found,) = [condition for condition in checked.conditions if condition.name == name]
    return found


def test_a_controller_that_counts_what_the_brokers_show_agrees() -> None:
    checked = check_before_stop(SEPARATE, _seen(_controller({})), SEPARATE.node(4), unchecked={})
    assert checked.passes, checked.waits_for
    assert "ActiveBrokerCount 3" in _condition(checked, AGREES).evidence


@pytest.mark.parametrize(
    ("metrics", "evidence"),
    [
        (_controller({"fenced_brokers": 1}), "FencedBrokerCount 1 (the brokers show 0)"),
        (_controller({"active_brokers": 2}), "ActiveBrokerCount 2 (the brokers show 3)"),
        (_controller({"offline_partitions": 4}), "OfflinePartitionsCount 4 (the brokers show 0)"),
        (_controller({"preferred_replica_imbalance": 1}), "PreferredReplicaImbalanceCount 1 (the brokers show 0)"),
        (_controller({}, partitions=5), "GlobalPartitionCount 5 (the brokers show 3)"),
        (_controller({"fenced_brokers": None}), "does not report FencedBrokerCount"),
        (None, "does not report ActiveBrokerCount"),
    ],
)
def test_what_the_active_controller_counts_and_no_broker_shows_holds_both_gates(
    metrics: NodeMetrics | None, evidence: str
) -> None:
    """An old answer of a broker, or a topic that an ACL hides from the user of this tool."""
    seen = _seen(metrics)
    before = check_before_stop(SEPARATE, seen, SEPARATE.node(4), unchecked={})
    assert not _condition(before, AGREES).is_met
    assert evidence in _condition(before, AGREES).evidence
    after = check_after_start(SEPARATE, seen, SEPARATE.node(4), before=None, expected=R391, unchecked={})
    assert not _condition(after, AGREES).is_met


def test_what_the_brokers_show_worse_is_left_to_the_other_conditions() -> None:
    fenced = RegisteredNodes(brokers=frozenset({4, 5, 6}), fenced=frozenset({6}), controllers=None)
    leaderless = (partition("t", 0, [4, 5, 6], isr=[4], leader=-1), *state().partitions)
    seen = _seen(_controller({}), registered=fenced, partitions=leaderless)
    assert controller_agrees(SEPARATE, seen, {}).is_met


def test_what_is_not_compared_is_named() -> None:
    no_agent = controller_agrees(NO_AGENTS, state(), {})
    assert (no_agent.is_met, no_agent.evidence) == (True, "not compared: controller 3 has no metrics agent")
    planned = controller_agrees(SEPARATE, _seen(_controller({"fenced_brokers": None})), {"fenced_brokers": (3,)})
    assert planned.is_met
    assert "not compared: FencedBrokerCount (no agent exports it, as the plan says)" in planned.evidence
    other_node = controller_agrees(SEPARATE, _seen(_controller({"fenced_brokers": None})), {"fenced_brokers": (2,)})
    assert not other_node.is_met
    earlier = controller_agrees(SEPARATE, _seen(None), None)
    assert earlier.is_met
    assert "the plan is of a version that did not look" in earlier.evidence


def test_controllers_that_count_deleted_partitions_are_compared_by_their_brokers_alone() -> None:
    """KAFKA-14963: until 3.4.0 a set of deleted topics is never emptied."""
    seen = _seen(_controller({"offline_partitions": 9}, partitions=12, release=R340))
    condition = controller_agrees(SEPARATE, seen, {})
    assert condition.is_met
    assert "OfflinePartitionsCount (controllers of 3.4.0 also count deleted partitions)" in condition.evidence
    assert not controller_agrees(SEPARATE, _seen(_controller({"fenced_brokers": 1}, release=R340)), {}).is_met, (
        "brokers are counted right"
    )


def _started(**counters: int) -> ClusterState:
    well = {"metadata_apply_errors": 0, "metadata_load_errors": 0, "offline_log_directories": 0}
    seen = _seen(_controller({}))
    return replace(seen, nodes=replace_node(seen, node_state(4, R431, counters={**well, **counters})))


def _after(seen: ClusterState, **options: object) -> GateCheck:
    options = {"unchecked": {}, **options}
    return check_after_start(
        SEPARATE,
        seen,
        SEPARATE.node(4),
        before=None,
        expected=R431,
        **options,  # type: ignore[arg-type]
    )


def test_a_started_broker_without_errors_passes() -> None:
    checked = _after(_started())
    assert checked.passes, checked.waits_for
    assert _condition(checked, NO_ERRORS).evidence == "0 metadata errors since the start of node 4"


@pytest.mark.parametrize(
    ("counters", "name", "evidence"),
    [
        ({"metadata_apply_errors": 1}, NO_ERRORS, "node 4 reports metadata-apply-error-count 1"),
        ({"metadata_load_errors": 2}, NO_ERRORS, "node 4 reports metadata-load-error-count 2"),
        ({"offline_log_directories": 1}, DIRECTORIES, "node 4 reports OfflineLogDirectoryCount 1"),
    ],
)
def test_an_error_that_kafka_counts_holds_the_gate_after_the_start(
    counters: dict[str, int], name: str, evidence: str
) -> None:
    """The broker is registered, in sync and caught up, and serves without a part of the metadata."""
    checked = _after(_started(**counters))
    assert [c.name for c in checked.conditions if not c.is_met] == [name]
    assert evidence in checked.waits_for


STARTED_LINE = (
    "[2026-11-23 02:00:00,000] INFO Registered signal handlers for TERM, INT, HUP "
    "(org.apache.kafka.common.utils.LoggingSignalHandler)"
)


def _fault(
    what: str, *, publisher: str = "Error updating {} with new configuration: a=1 in MetadataDelta up to 7"
) -> str:
    fault = f"Encountered metadata publishing fault: {publisher.format(what)}"
    return f"[2026-11-23 02:00:01,000] ERROR {fault} (org.apache.kafka.server.fault.LoggingFaultHandler)"


def _expected(*lines: str, settings: tuple[str, ...] = ("topic t",), known: bool = True) -> ExpectedErrors:
    part = LogPart(pid=77, started_at=1.0, lines=(*((STARTED_LINE,) if known else ()), *lines), is_first=True)
    return ExpectedErrors(settings=settings, logs={4: read_part(None, part)})


def _here(**counters: int) -> ClusterState:
    return replace(_started(**counters), partitions=(partition("t", 0, [4, 5, 6]), *_started().partitions))


def test_errors_of_a_broker_are_expected_that_plan_and_log_explain() -> None:
    checked = _after(_here(metadata_apply_errors=1), expected_errors=_expected(_fault("topic t")))
    assert _condition(checked, NO_ERRORS).is_met
    evidence = _condition(checked, NO_ERRORS).evidence
    assert "the approved plan expects errors of topic t, and the log has them" in evidence
    both = _expected(_fault("topic t"), _fault("client metricslatency"), settings=("topic t", "client metrics latency"))
    assert _condition(_after(_here(metadata_apply_errors=2), expected_errors=both), NO_ERRORS).is_met


@pytest.mark.parametrize(
    ("counters", "lines"),
    [
        ({"metadata_apply_errors": 57, "metadata_load_errors": 3}, [_fault("topic t")]),
        ({"metadata_apply_errors": 2}, [_fault("topic t")] * 2),
        ({"metadata_apply_errors": 1, "metadata_load_errors": 1}, [_fault("topic t")]),
        ({"metadata_apply_errors": 1}, []),
        ({"metadata_apply_errors": 1}, [_fault("topic other")]),
        ({"metadata_apply_errors": 1}, [_fault("", publisher="Uncaught exception while publishing ACL changes")]),
        ({"metadata_load_errors": 1}, [_fault("topic t")]),
    ],
    ids=["many", "one topic twice", "and a load", "not in the log", "another topic", "another publisher", "a load"],
)
def test_other_errors_of_the_same_broker_hold_the_gate(counters: dict[str, int], lines: list[str]) -> None:
    condition = _condition(_after(_here(**counters), expected_errors=_expected(*lines)), NO_ERRORS)
    assert not condition.is_met
    assert condition.doubts == ()
    assert "more than the approved plan and the log explain" in condition.evidence


def test_a_broker_without_the_topic_has_no_expected_error() -> None:
    elsewhere = replace(_here(metadata_apply_errors=1), partitions=(partition("t", 0, [5, 6]),))
    condition = _condition(_after(elsewhere, expected_errors=_expected(_fault("topic t"))), NO_ERRORS)
    assert not condition.is_met


def test_a_controller_alone_has_no_expected_error() -> None:
    seen = replace(_here(), nodes=replace_node(_here(), node_state(2, R431, counters={"metadata_errors": 1})))
    expected = replace(_expected(), logs={2: _expected(_fault("topic t")).logs[4]})
    assert not no_metadata_errors([SEPARATE.node(2)], seen, {}, expected=expected).is_met


def test_errors_that_no_log_can_explain_are_the_decision_of_an_approver() -> None:
    unknown = _expected(*["{}"] * 200, known=False)
    condition = _condition(_after(_here(metadata_apply_errors=1), expected_errors=unknown), NO_ERRORS)
    assert not condition.is_met
    assert condition.doubts == ("node 4 (process 77): metadata-apply-error-count 1, and the log explains 0 of them",)
    accepted = replace(unknown, accepted=dict.fromkeys(condition.doubts, "alice (only topic t)"))
    assert _condition(_after(_here(metadata_apply_errors=1), expected_errors=accepted), NO_ERRORS).is_met
    assert not _condition(_after(_here(metadata_apply_errors=2), expected_errors=accepted), NO_ERRORS).is_met


def test_errors_whose_log_is_not_read_to_its_end_are_in_flight() -> None:
    whole = _expected()
    cut = replace(whole, logs={4: replace(whole.logs[4], is_cut=True)})
    condition = _condition(_after(_here(metadata_apply_errors=1), expected_errors=cut), NO_ERRORS)
    assert (condition.is_met, condition.doubts, condition.is_lasting) == (False, (), False)
    evidence = "node 4 reports metadata-apply-error-count 1, and its log is not read to its end yet"
    assert condition.evidence == evidence
    seen = _condition(_after(_here(metadata_apply_errors=1), expected_errors=whole), NO_ERRORS)
    assert (seen.is_met, seen.is_lasting) == (False, True)
    not_expected = replace(cut, settings=())
    assert _condition(_after(_here(metadata_apply_errors=1), expected_errors=not_expected), NO_ERRORS).is_lasting


IV = "3.6-IV2"
LEVEL = directories_fault(IV)
JBOD = _fault("", publisher="Broker configuration does not support the cluster MetadataVersion")


def _jbod(level: str = IV) -> tuple[str, str]:
    cause = (
        f"Multiple log directories (aka JBOD) are not supported in the current MetadataVersion {level}. Need 3.7-IV2"
    )
    return JBOD, f"java.lang.IllegalArgumentException: requirement failed: {cause} or higher"


def _directories(*lines: str, known: bool = True, faults: tuple[str, ...] = (LEVEL,)) -> ExpectedErrors:
    """The log of broker 4, of which the plan says that it has several log directories."""
    expected = _expected(*lines, settings=(), known=known)
    return replace(expected, of_nodes={4: frozenset(faults)})


def test_the_error_of_several_log_directories_is_expected_that_plan_and_log_explain() -> None:
    """A broker of 3.7.1 or later counts it at each start below metadata.version 17, so no restart would end it."""
    checked = _after(_here(metadata_apply_errors=1), expected_errors=_directories(*_jbod()))
    assert _condition(checked, NO_ERRORS).is_met
    evidence = _condition(checked, NO_ERRORS).evidence
    assert f"node 4 reports metadata-apply-error-count 1; the approved plan expects errors of {LEVEL}" in evidence
    next_level = _directories(*_jbod(), *_jbod("3.7-IV1"), faults=(LEVEL, directories_fault("3.7-IV1")))
    assert _condition(_after(_here(metadata_apply_errors=2), expected_errors=next_level), NO_ERRORS).is_met


@pytest.mark.parametrize(
    ("counters", "expected"),
    [
        ({"metadata_apply_errors": 2}, _directories(*_jbod())),
        ({"metadata_apply_errors": 2}, _directories(*_jbod(), *_jbod())),
        ({"metadata_apply_errors": 1, "metadata_load_errors": 1}, _directories(*_jbod())),
        ({"metadata_apply_errors": 1}, _directories(*_jbod("3.5-IV2"))),
        ({"metadata_apply_errors": 1}, _directories(JBOD)),
        ({"metadata_apply_errors": 1}, _directories()),
        ({"metadata_apply_errors": 1}, replace(_directories(*_jbod()), of_nodes={5: frozenset({LEVEL})})),
    ],
    ids=["another", "one twice", "and a load", "another level", "no cause", "not in the log", "another node"],
)
def test_more_than_the_error_of_several_log_directories_holds_the_gate(
    counters: dict[str, int], expected: ExpectedErrors
) -> None:
    condition = _condition(_after(_here(**counters), expected_errors=expected), NO_ERRORS)
    assert not condition.is_met
    assert condition.doubts == ()


def test_an_error_of_log_directories_that_no_log_can_explain_is_the_decision_of_an_approver() -> None:
    unknown = _directories(*["{}"] * 200, known=False)
    condition = _condition(_after(_here(metadata_apply_errors=1), expected_errors=unknown), NO_ERRORS)
    assert not condition.is_met
    assert condition.doubts == ("node 4 (process 77): metadata-apply-error-count 1, and the log explains 0 of them",)
    elsewhere = _here(metadata_apply_errors=1)
    elsewhere = replace(
        elsewhere, nodes=replace_node(elsewhere, node_state(5, R431, counters={"metadata_apply_errors": 1}))
    )
    other = no_metadata_errors([SEPARATE.node(5)], elsewhere, {}, expected=unknown)
    assert other.doubts == (), "the plan expects none of broker 5"


def test_a_combined_node_counts_the_error_of_its_log_directories_as_a_controller_too() -> None:
    combined = replace(SEPARATE.node(4), roles=frozenset(Role))
    seen = _here(metadata_apply_errors=1, metadata_errors=1)
    assert no_metadata_errors([combined], seen, {}, expected=_directories(*_jbod())).is_met


def test_an_error_that_a_restart_counts_again_is_not_told_to_be_restarted_away() -> None:
    seen = _here(metadata_apply_errors=2)
    condition = _condition(_after(seen, expected_errors=_directories(*_jbod(), _fault("topic a"))), NO_ERRORS)
    assert "the log names errors of topic a" in condition.evidence
    assert "counts an error again whose cause is still there" in condition.evidence


def test_a_counter_that_is_missing_is_unknown_unless_the_plan_named_it() -> None:
    seen = _started()
    blind = replace(seen, nodes=replace_node(seen, node_state(4, R431, counters={})))
    assert {c.name for c in _after(blind).conditions if not c.is_met} == {NO_ERRORS, DIRECTORIES}
    named = dict.fromkeys(expected_counters(SEPARATE.node(4)), (4,))
    passed = _after(blind, unchecked=named)
    assert passed.passes
    assert "not checked: metadata-apply-error-count of node 4" in _condition(passed, NO_ERRORS).evidence


def test_the_controllers_count_errors_of_their_own() -> None:
    seen = _seen(_controller({}))
    counted = {1: 0, 2: 1, 3: 0}
    nodes = {
        **seen.nodes,
        **{i: node_state(i, R431, counters={"metadata_errors": value}) for i, value in counted.items()},
    }
    condition = no_metadata_errors(SEPARATE.controllers, replace(seen, nodes=nodes), {})
    assert not condition.is_met
    assert "node 2 reports MetadataErrorCount 1" in condition.evidence


def test_the_exporter_s_rules_in_the_project_are_those_that_a_finding_recommends() -> None:
    configured = yaml.safe_load((PROJECT_ROOT / "include" / "metrics" / "jmx_exporter.yaml").read_text())
    for name, counter in COUNTERS.items():
        rule = yaml.safe_load(counter.exporter_rule(name))
        assert rule in configured["rules"]
        assert counter.mbean in configured["includeObjectNames"]
