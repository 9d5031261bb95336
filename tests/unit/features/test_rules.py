"""KIP-584's rules, one by one: what may be asked for, and who stands in the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.findings import Finding, Severity, Verdict
from kafka_rollout.features.requests import FeatureRequest, RequestKind, parse_requests
from kafka_rollout.features.rules import BAD_INPUT, check_requests
from kafka_rollout.model.state import ClusterState, NodeState, RegisteredNodes
from kafka_rollout.releases.facts import CoordinatorClass, Release
from tests.unit.builders import (
    R391,
    R431,
    SEPARATE,
    catalogue,
    dynamic,
    facts,
    feature,
    node_state,
    replace_node,
    silent,
    state,
)
from tests.unit.features.test_requests import FULL, on_411, on_431
from tests.unit.features.test_voter_addresses import seen as static_quorum


def check(seen: ClusterState, up: str = "", down: str = "", delete: str = "", *, unsafe: bool = False) -> Verdict:
    requests = parse_requests([up], [down, f"{delete}:0" if delete else ""])
    return check_requests(SEPARATE, catalogue(), seen, requests, unsafe=unsafe)


def only(verdict: Verdict) -> Finding:
    (blocker,) = verdict.blockers
    assert blocker.remedy
    return blocker


def test_an_unknown_feature_is_bad_input_and_the_known_ones_are_listed() -> None:
    found = only(check(on_431(), up="no.such.version:1"))
    assert found.code in BAD_INPUT
    assert "group.version, kraft.version" in found.remedy


def test_an_unknown_level_is_bad_input_but_one_of_a_newer_release_is_refused() -> None:
    assert only(check(on_431(), up="metadata.version:99")).code in BAD_INPUT
    older = on_431(metadata_version=21)
    narrow = {**FULL, "metadata.version": (7, 29)}
    nodes = {n: replace(node_state(n, R431, supported=narrow, finalized={"metadata.version": 21})) for n in older.nodes}
    found = only(check(replace(older, nodes=nodes), up="metadata.version:30"))
    assert found.code == "FEATURE-UNSUPPORTED"
    assert "nodes 1, 2, 3, 4, 5, 6 support 7-29" in found.sentence


def next_start_on(seen: ClusterState, release: Release | None, *node_ids: int, pid: int | None = 5) -> ClusterState:
    """Return the state with another release installed than the one that runs."""
    nodes = {**seen.nodes}
    for node_id in node_ids:
        nodes[node_id] = replace(nodes[node_id], process=replace(nodes[node_id].process, installed=release, pid=pid))
    return replace(seen, nodes=nodes)


def test_a_level_that_the_next_start_of_a_node_does_not_support_is_refused() -> None:
    seen = next_start_on(on_431(metadata_version=21), R391, 2, 4)
    found = only(check(seen, up="metadata.version:30"))
    assert found.code == "NEXT-START-UNSUPPORTED"
    assert (
        "The next start of nodes 2, 4 is on Kafka 3.9.1, which does not support metadata.version 30." in found.sentence
    )
    assert "link" in found.remedy
    assert "package" in found.remedy
    assert check(next_start_on(seen, R431, 2, 4), up="metadata.version:30").ok
    assert check(seen, up="metadata.version:21").ok  # both support it


@pytest.mark.parametrize(("release", "severity"), [(None, Severity.WARNING), (Release(9, 9, 9), Severity.WARNING)])
def test_a_next_start_on_an_unknown_release_is_named(release: Release | None, severity: Severity) -> None:
    verdict = check(next_start_on(on_431(metadata_version=21), release, 3), up="metadata.version:30")
    (found,) = [one for one in verdict.findings if one.code == "NEXT-START-UNSUPPORTED"]
    assert found.severity is severity
    stopped = next_start_on(on_431(metadata_version=21), release, 3, pid=None)
    assert not [one for one in check(stopped, up="metadata.version:30").findings if one.code == found.code]


def test_every_node_that_blocks_is_named_unlisted_and_silent_ones_too() -> None:
    seen = on_431(metadata_version=21)
    nodes = replace_node(seen, silent(4))
    nodes[5] = node_state(5)
    nodes[6] = node_state(6)
    ghosts = RegisteredNodes(
        brokers=frozenset({4, 5, 6, 9}), fenced=frozenset({8}), controllers=frozenset({1, 2, 3, 7})
    )
    verdict = check(replace(seen, nodes=nodes, registered=ghosts), up="metadata.version:30")
    told = " ".join(finding.sentence for finding in verdict.blockers)
    for name in ("nodes 5, 6 support 1-21", "node 4 (connection refused)", "Broker 8", "Broker 9", "Controller 7"):
        assert name in told


@pytest.mark.parametrize("up", ["metadata.version:29", "group.version:0", "group.version:-1"])
def test_what_falls_is_not_allowed_by_an_upgrade(up: str) -> None:
    codes = {finding.code for finding in check(on_431(group_version=1), up=up).blockers}
    assert "FEATURE-DOWNGRADE-NOT-ALLOWED" in codes


def test_a_downgrade_to_an_equal_or_higher_level_is_refused_and_an_upgrade_to_an_equal_one_is_not() -> None:
    seen = on_431(transaction_version=1)
    assert only(check(seen, down="transaction.version:1")).code == "FEATURE-NOT-LOWER"
    assert only(check(seen, down="transaction.version:2")).code == "FEATURE-NOT-LOWER"
    assert check(seen, up="transaction.version:1").findings == ()


def test_a_downgrade_must_be_in_every_node_s_range_the_minimum_included() -> None:
    seen = on_431(metadata_version=29)
    narrow = {**FULL, "metadata.version": (25, 30)}
    nodes = replace_node(seen, node_state(2, R431, supported=narrow, finalized={"metadata.version": 29}))
    found = only(check(replace(seen, nodes=nodes), down="metadata.version:24"))
    assert (found.code, "node 2 supports 25-30" in found.sentence) == ("FEATURE-UNSUPPORTED", True)


def test_a_deletion_skips_ranges_unknown_features_silent_nodes_and_unlisted_ones() -> None:
    seen = on_431(brand_new=3)
    ghost = RegisteredNodes(brokers=frozenset({4, 5, 6, 9}), fenced=None, controllers=None)
    seen = replace(seen, nodes=replace_node(seen, silent(4)), registered=ghost)
    assert check(seen, delete="brand.new").findings == ()
    assert check(seen, down="brand.new:0").findings == ()


def test_what_is_not_finalized_cannot_be_deleted_and_metadata_version_never() -> None:
    assert only(check(on_431(), delete="group.version")).code == "FEATURE-NOT-FINALIZED"
    assert only(check(on_431(), delete="metadata.version")).code == "METADATA-VERSION-NEEDED"


def with_dynamic_quorum(seen: ClusterState) -> ClusterState:
    assert seen.quorum is not None
    return replace(seen, quorum=dynamic(seen.quorum))


def test_kraft_version_is_not_lowered() -> None:
    found = only(check(with_dynamic_quorum(on_431(kraft_version=1)), delete="kraft.version"))
    assert (found.code, "KIP-853" in found.sentence) == ("FEATURE-DOWNGRADE-REFUSED", True)


def test_controllers_before_4_1_only_write_kraft_version_and_this_can_be_taken_back() -> None:
    """FeatureControlManager.updateFeature of 3.9.2 and 4.0.1: a FeatureLevelRecord, and no voters in the log."""
    assert {one.code for one in check(static_quorum(), up="kraft.version:1").findings} == {"VOTER-ADDRESSES"}
    old = replace_node(on_431(), node_state(2, R391))
    found = only(check(replace(on_431(), nodes=old), up="kraft.version:1"))
    assert found.code == "QUORUM-STAYS-STATIC"
    assert "controller 2." in found.sentence
    assert "QUORUM-STAYS-STATIC" in {one.code for one in check(state(), up="kraft.version:1").blockers}
    written = state(
        nodes={i: node_state(i, finalized={"metadata.version": 21, "kraft.version": 1}) for i in range(1, 7)}
    )
    assert check(written, delete="kraft.version").blockers == ()


def test_no_metadata_version_below_the_floor_is_asked_for_safe_or_unsafe() -> None:
    for unsafe in (False, True):
        seen = on_431(metadata_version=16)
        codes = {finding.code for finding in check(seen, down="metadata.version:14", unsafe=unsafe).blockers}
        assert "METADATA-VERSION-FLOOR" in codes
        assert "METADATA-VERSION-FLOOR" not in {f.code for f in check(seen, down="metadata.version:15").blockers}


def test_finalized_features_outside_the_request_keep_what_they_need() -> None:
    found = only(check(on_431(metadata_version=29, share_version=1), down="metadata.version:24"))
    assert (found.code, found.subject) == ("FEATURE-DEPENDENCY", "feature metadata.version")
    assert "share.version 1 stays finalized and requires metadata.version 26" in found.sentence
    assert "Keep metadata.version at 26 or higher" in found.remedy
    assert check(on_431(metadata_version=29, share_version=1), down="metadata.version:24", delete="share.version").ok


def test_an_unstable_level_is_a_warning_where_every_node_supports_it() -> None:
    release = Release(4, 9, 0)
    known = facts(release, CoordinatorClass.EMITTING, feature("metadata.version", 7, 31, latest=30))
    ranges = {"metadata.version": (7, 31)}
    nodes = {
        n.node_id: node_state(n.node_id, release, supported=ranges, finalized={"metadata.version": 30})
        for n in SEPARATE.nodes
    }
    request = FeatureRequest(feature="metadata.version", level=31, kind=RequestKind.UPGRADE)
    verdict = check_requests(SEPARATE, catalogue(known), state(nodes=nodes), [request])
    assert [(f.code, f.severity) for f in verdict.findings] == [("FEATURE-UNSTABLE", Severity.WARNING)]


def test_a_level_above_the_default_of_the_release_can_be_named_and_is_a_warning() -> None:
    known, seen = on_411()
    request = FeatureRequest(feature="share.version", level=1, kind=RequestKind.UPGRADE)
    higher = replace(seen, nodes={n: replace_level(one, 27) for n, one in seen.nodes.items()})
    (found,) = check_requests(SEPARATE, known, higher, [request]).findings
    assert (found.code, found.severity) == ("FEATURE-NOT-DEFAULT", Severity.WARNING)
    assert found.sentence.startswith("share.version 1 is above the default of Kafka 4.1.1, which is 0.")
    assert "upgrade notes of Kafka 4.1.1" in found.remedy


def replace_level(node: NodeState, level: int) -> NodeState:
    assert node.features is not None
    return replace(node, features=replace(node.features, finalized={"metadata.version": level}))
