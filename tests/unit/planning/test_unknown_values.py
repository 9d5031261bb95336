"""What was not observed makes only those checks unknown that need it."""

from __future__ import annotations

from dataclasses import replace

from kafka_rollout.base.findings import Need, OfSomeNodes
from kafka_rollout.planning.findings.cluster_state import MIXED_CHECK, UNLISTED_CHECK
from kafka_rollout.planning.plan_checks import unknown_responses
from kafka_rollout.report.check_report import CheckEntry, Result
from tests.unit.builders import SEPARATE, replace_node, silent, state

CALM = unknown_responses(SEPARATE, state()).keys()


def test_a_silent_node_makes_unknown_what_is_asked_of_it() -> None:
    seen = state(unanswered=("connection refused",))
    seen = replace(seen, nodes=replace_node(seen, silent(5)))
    unknown = unknown_responses(SEPARATE, seen)
    assert unknown.keys() - CALM == {Need.NODES, Need.METRICS}
    assert unknown[Need.NODES] == "The response of node 5 is unknown. The rest, nodes 1, 2, 3, 4, 6, was checked."
    entry = CheckEntry.of(MIXED_CHECK.ran(), unknown, examined="", seconds=0.0)
    assert (entry.result, entry.is_unknown_in_part) == (Result.UNKNOWN, True)
    assert CheckEntry.of(UNLISTED_CHECK.ran(), unknown, examined="", seconds=0.0).result is Result.OK


def test_a_query_without_an_answer_makes_unknown_what_needs_it() -> None:
    of_groups = state(unanswered=("groups",), needs={"groups": Need.GROUPS})
    assert unknown_responses(SEPARATE, of_groups).keys() - CALM == {Need.GROUPS}
    every = {Need.QUORUM, Need.NODES, Need.LEVELS, Need.TOPICS, Need.GROUPS, Need.SETTINGS}
    assert unknown_responses(SEPARATE, state(unanswered=("another query",))).keys() - CALM == every


def test_nothing_was_judged_without_any_response() -> None:
    seen = state()
    seen = replace(seen, nodes={node.node_id: silent(node.node_id) for node in SEPARATE.nodes})
    unknown = unknown_responses(SEPARATE, seen)
    assert {Need.NODES, Need.LEVELS} <= unknown.keys()
    assert not isinstance(unknown[Need.NODES], OfSomeNodes)
