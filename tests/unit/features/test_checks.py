from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.findings import Finding, Severity, Verdict
from kafka_rollout.features.registrations import SeenRegistrations
from kafka_rollout.features.requests import (
    NO_ROLLBACK,
    dropped_ranges,
    feature_change,
    feature_changes,
    feature_request_batches,
    range_findings,
    refused_by_controller,
)
from kafka_rollout.features.rules import check_feature_support
from kafka_rollout.model.plan import FeatureChange, Undo
from kafka_rollout.model.state import ClusterState, RegisteredNodes
from kafka_rollout.releases.facts import CoordinatorClass, Release
from tests.unit.builders import (
    R340,
    R391,
    R421,
    R431,
    SEPARATE,
    catalogue,
    facts,
    feature,
    node_state,
    quorum,
    replace_node,
    silent,
    state,
)

FULL = {
    "metadata.version": (7, 30),
    "kraft.version": (0, 1),
    "group.version": (0, 1),
    "transaction.version": (0, 2),
    "share.version": (0, 1),
}


def _on_431(level: int = 21, **finalized: int) -> ClusterState:
    levels = {"metadata.version": level, **{k.replace("_", "."): v for k, v in finalized.items()}}
    nodes = {n.node_id: node_state(n.node_id, R431, supported=FULL, finalized=levels) for n in SEPARATE.nodes}
    return state(nodes=nodes)


def _codes(verdict: Verdict) -> list[tuple[str, str]]:
    return [(f.code, f.subject) for f in verdict.findings]


def _changes(seen: ClusterState, target: Release) -> dict[str, tuple[int, int]]:
    return {c.feature: (c.current, c.target) for c in feature_changes(catalogue(), seen, target)}


def test_every_feature_of_the_target_is_raised_to_its_latest_production_level_but_kraft_version() -> None:
    assert _changes(state(), R431) == {
        "metadata.version": (21, 30),
        "group.version": (0, 1),
        "transaction.version": (0, 2),
        "share.version": (0, 1),
    }
    assert feature_changes(catalogue(), state(), R431)[0].feature == "metadata.version"


def test_levels_that_are_there_already_are_not_raised_again_and_none_is_lowered() -> None:
    assert _changes(_on_431(30, group_version=1, transaction_version=2, share_version=1), R431) == {}
    assert _changes(_on_431(30, group_version=1, transaction_version=2, share_version=1), R421) == {}


def test_a_level_whose_dependencies_the_target_cannot_meet_is_lowered_to_one_that_it_can() -> None:
    release = Release(4, 9, 0)
    known = facts(
        release,
        CoordinatorClass.EMITTING,
        feature("metadata.version", 7, 23, latest=22),
        feature("group.version", 0, 2, level_1={"metadata.version": 22}, level_2={"metadata.version": 23}),
        feature("share.version", 0, 1, level_1={"metadata.version": 26}),
        feature("streams.version", 0, 1, level_1={"share.version": 1}),
    )
    changes = {c.feature: c.target for c in feature_changes(catalogue(known), state(), release)}
    assert changes == {"metadata.version": 22, "group.version": 1}


def test_a_level_above_the_latest_production_one_stays_and_still_carries_what_depends_on_it() -> None:
    release = Release(4, 9, 0)
    known = facts(
        release,
        CoordinatorClass.EMITTING,
        feature("metadata.version", 7, 31, latest=30),
        feature("new.version", 0, 1, level_1={"metadata.version": 31}),
    )
    changes = {c.feature: c.target for c in feature_changes(catalogue(known), _on_431(31), release)}
    assert changes == {"new.version": 1}


def _undo(current: int, target: int, name: str = "metadata.version") -> Undo:
    return feature_change(catalogue().get(R431), name, current, target).undo


@pytest.mark.parametrize(
    ("current", "target", "undo"),
    [
        (21, 30, Undo.IMPOSSIBLE),
        (29, 30, Undo.IMPOSSIBLE),
        (23, 29, Undo.POSSIBLE),
        (8, 10, Undo.POSSIBLE),
        (6, 30, Undo.IMPOSSIBLE),
        (30, 31, Undo.UNKNOWN),
    ],
)
def test_metadata_version_can_be_undone_only_where_no_level_between_changed_metadata(
    current: int, target: int, undo: Undo
) -> None:
    assert _undo(current, target) is undo


def test_the_source_of_an_undo_names_the_levels_and_kip_1155() -> None:
    change = feature_change(catalogue().get(R431), "metadata.version", 21, 30)
    assert "23, 30" in change.undo_source
    assert "KIP-1155" in change.undo_source
    assert change.loss


def test_other_features_can_be_undone_kraft_version_cannot_and_an_unknown_one_is_unknown() -> None:
    assert _undo(0, 1, "group.version") is Undo.POSSIBLE
    assert _undo(0, 1, "kraft.version") is Undo.IMPOSSIBLE
    assert _undo(0, 1, "brand.new.version") is Undo.UNKNOWN


def test_the_undo_of_elr_keeps_the_default_that_was_written_when_it_was_raised() -> None:
    elr = "eligible.leader.replicas.version"
    known = replace(catalogue().get(R431), features={elr: feature(elr, 0, 1)})
    change = feature_change(known, elr, 0, 1)
    assert change.undo is Undo.POSSIBLE
    assert "the cluster-wide default of min.insync.replicas, which was written" in change.undo_source
    assert "deleted values of single brokers do not come back" in change.loss
    assert feature_change(catalogue().get(R431), "brand.new.version", 0, 1).loss


def _change(name: str, current: int, target: int) -> FeatureChange:
    return FeatureChange(feature=name, current=current, target=target, undo=Undo.POSSIBLE, undo_source="", loss="")


def test_metadata_version_goes_first_on_the_way_up_and_last_on_the_way_down() -> None:
    up = [_change("group.version", 0, 1), _change("metadata.version", 8, 30), _change("share.version", 0, 1)]
    assert [[c.feature for c in batch] for batch in feature_request_batches(up)] == [
        ["metadata.version"],
        ["group.version", "share.version"],
    ]
    down = [_change("metadata.version", 30, 29), _change("group.version", 1, 0)]
    assert [[c.feature for c in batch] for batch in feature_request_batches(down)] == [
        ["group.version"],
        ["metadata.version"],
    ]
    assert feature_request_batches([]) == ()


def test_support_of_all_nodes_leaves_no_blocker() -> None:
    assert check_feature_support(SEPARATE, catalogue(), _on_431(), {"metadata.version": 30, "group.version": 1}).ok


def test_every_node_that_lacks_a_feature_or_its_level_is_named() -> None:
    seen = _on_431()
    nodes = {
        **seen.nodes,
        2: node_state(2, R391),
        5: node_state(5, R391),
        6: node_state(6, R421, supported={**FULL, "metadata.version": (7, 29)}),
    }
    verdict = check_feature_support(
        SEPARATE, catalogue(), replace(seen, nodes=nodes), {"metadata.version": 30, "group.version": 1}
    )
    by_subject = {f.subject: f for f in verdict.blockers if f.code == "FEATURE-UNSUPPORTED"}
    assert "nodes 2, 5 do" in by_subject["feature group.version"].sentence
    for offender in ("nodes 2, 5 support 1-21", "node 6 supports 7-29"):
        assert offender in by_subject["feature metadata.version"].sentence
    assert all(f.remedy for f in verdict.findings)


def test_a_silent_node_and_an_unlisted_one_block_because_their_support_is_unknown() -> None:
    seen = _on_431()
    seen = replace(
        seen,
        nodes=replace_node(seen, silent(6)),
        registered=RegisteredNodes(
            brokers=frozenset({4, 5, 6}), fenced=frozenset({9}), controllers=frozenset({1, 2, 3, 8})
        ),
    )
    verdict = check_feature_support(SEPARATE, catalogue(), seen, {"metadata.version": 30})
    unknown = {f.subject: f for f in verdict.blockers if f.code == "FEATURE-SUPPORT-UNKNOWN"}
    assert set(unknown) == {"feature metadata.version", "broker 9", "controller 8"}
    assert "node 6 (connection refused)" in unknown["feature metadata.version"].sentence


def test_a_voter_outside_the_inventory_is_unlisted_too() -> None:
    seen = replace(_on_431(), quorum=quorum([1, 2, 3, 7], 3))
    assert ("FEATURE-SUPPORT-UNKNOWN", "controller 7") in _codes(
        check_feature_support(SEPARATE, catalogue(), seen, {"metadata.version": 30})
    )


@pytest.mark.parametrize(
    ("epochs", "level"),
    [((7, 9, 8), 2), ((9, 7, 8), 1), ((None, 3, None), 2), ((None, None, 0), 3)],
)
def test_where_nodes_answer_differently_the_higher_epoch_wins_and_none_reports_nothing(
    epochs: tuple[int | None, ...], level: int
) -> None:
    nodes = {n: node_state(n, finalized={"metadata.version": n}, epoch=epoch) for n, epoch in enumerate(epochs, 1)}
    assert state(nodes=nodes).finalized.known() == {"metadata.version": level}


def test_levels_without_an_epoch_are_unknown() -> None:
    assert not state(nodes={1: node_state(1, finalized={"metadata.version": 1}, epoch=None)}).finalized.is_known


def test_for_a_controller_that_names_no_features_its_release_speaks() -> None:
    old = {"supported": {"metadata.version": (1, 8)}, "finalized": {"metadata.version": 7}}
    seen = state(nodes={n.node_id: node_state(n.node_id, R340, **old) for n in SEPARATE.nodes})
    seen = replace(seen, nodes=replace_node(seen, node_state(1, R340, supported={}, finalized={}, epoch=None)))
    assert check_feature_support(SEPARATE, catalogue(), seen, {"metadata.version": 8}).ok
    refused = check_feature_support(SEPARATE, catalogue(), seen, {"metadata.version": 9})
    assert "nodes 1, 2, 3, 4, 5, 6 support 1-8" in refused.blockers[0].sentence
    unknown = replace(seen, nodes=replace_node(seen, node_state(1, None, supported={}, finalized={})))
    verdict = check_feature_support(SEPARATE, catalogue(), unknown, {"metadata.version": 8})
    assert [f.code for f in verdict.blockers] == ["FEATURE-SUPPORT-UNKNOWN"]


def test_a_dependency_that_neither_the_cluster_nor_the_request_has_blocks() -> None:
    alone = check_feature_support(SEPARATE, catalogue(), _on_431(21), {"group.version": 1})
    assert [f.code for f in alone.blockers] == ["FEATURE-DEPENDENCY"]
    assert "metadata.version 22" in alone.blockers[0].sentence
    assert check_feature_support(SEPARATE, catalogue(), _on_431(21), {"group.version": 1, "metadata.version": 22}).ok


def test_metadata_version_is_not_lowered_below_what_a_finalized_feature_needs() -> None:
    seen = _on_431(29, share_version=1)
    verdict = check_feature_support(SEPARATE, catalogue(), seen, {"metadata.version": 24})
    assert ("FEATURE-DEPENDENCY", "feature metadata.version") in _codes(verdict)


def test_a_downgrade_that_the_controller_refuses_is_known_before() -> None:
    codes = _codes(check_feature_support(SEPARATE, catalogue(), _on_431(30), {"metadata.version": 29}))
    assert ("FEATURE-DOWNGRADE-REFUSED", "feature metadata.version") in codes
    assert check_feature_support(SEPARATE, catalogue(), _on_431(29), {"metadata.version": 23}).ok


def _registration(seen: ClusterState, targets: dict[str, int]) -> list[Finding]:
    verdict = check_feature_support(SEPARATE, catalogue(), seen, targets)
    return [f for f in verdict.findings if f.code == "REGISTRATION-MAY-LACK-RANGES"]


def test_the_registration_that_dropped_ranges_with_minimum_0_is_seen_before_it_is_refused() -> None:
    both = _registration(_on_431(8), {"metadata.version": 30, "group.version": 1})
    assert [f.severity for f in both] == [Severity.INFO]
    alone = _registration(_on_431(16), {"group.version": 1})
    assert [f.severity for f in alone] == [Severity.WARNING]
    assert "metadata.version first" in alone[0].remedy
    assert _registration(_on_431(30), {"group.version": 1}) == []


@pytest.mark.parametrize(("level", "restarts"), [(16, False), (17, True), (20, True), (21, True)])
def test_from_3_7_iv2_on_only_a_restart_renews_a_registration(level: int, *, restarts: bool) -> None:
    """The controller's validate-only request finds such registrations, also if levels were raised in part."""
    assert bool(_registration(_on_431(level), {"metadata.version": 30, "group.version": 1})) != restarts
    message = "Broker 1 does not support this feature."
    refused = refused_by_controller(_on_431(level), "group.version", 1, "INVALID_UPDATE_VERSION", message)
    assert refused.remedy.startswith("Restart every broker") == restarts


def test_one_finding_names_every_broker_every_level_and_the_reason_once() -> None:
    message = "Broker 5 does not support this feature."
    levels = {"group.version": 1, "share.version": 1}
    refused = [
        refused_by_controller(_on_431(20), feature, level, "INVALID_UPDATE_VERSION", message)
        for feature, level in levels.items()
    ]
    seen = SeenRegistrations(complete=(4,), lacking={5: ("group.version", "share.version")}, unknown=(6,))
    found = dropped_ranges(SEPARATE, seen, levels, refused, metadata_level=20)
    assert found.sentence.startswith(
        "The registrations of node 5 lack group.version 1, share.version 1, and those of node 6 could not be read"
    )
    assert (found.sentence.count("KAFKA-17492"), found.sentence.count("group.version")) == (1, 1)
    assert found.remedy.startswith(f"Run `kafka-rollout restart --cluster {SEPARATE.name} --node 5 --node 6`.")
    without = dropped_ranges(replace(SEPARATE, runtime="none"), seen, levels, refused, metadata_level=20)
    assert without.remedy.startswith("Restart nodes 5, 6, one after the other, while every controller runs 3.9")
    raised = dropped_ranges(SEPARATE, seen, levels, refused, metadata_level=16)
    assert raised.remedy.startswith("Finalize metadata.version first, so that the brokers register again. Then repeat")


def test_the_controllers_refusal_gets_the_remedy_it_lacks() -> None:
    message = "Invalid update version 1 for feature group.version. Broker 1 does not support this feature."
    finding = refused_by_controller(_on_431(8), "group.version", 1, "INVALID_UPDATE_VERSION", message)
    assert finding.code == "REGISTRATION-DROPPED-RANGES"
    assert "metadata.version first" in finding.remedy
    really = refused_by_controller(state(), "group.version", 1, "INVALID_UPDATE_VERSION", message)
    assert really.code == "FEATURE-REFUSED"


def test_a_finalized_level_outside_the_targets_range_blocks_the_minimum_included() -> None:
    low = range_findings(catalogue(), state(nodes={1: node_state(1, finalized={"metadata.version": 6})}), R431)
    assert [f.code for f in low.blockers] == ["FINALIZED-LEVEL-OUT-OF-RANGE"]
    assert "at 7 or higher" in low.blockers[0].remedy
    edge = state(nodes={1: node_state(1, finalized={"metadata.version": 7, "group.version": 0})})
    assert range_findings(catalogue(), edge, R431).findings == ()
    high = range_findings(catalogue(), _on_431(30), R421)
    assert [f.subject for f in high.blockers] == ["feature metadata.version on 4.2.1"]


def test_levels_that_the_old_release_cannot_run_at_bar_the_way_back_as_a_warning() -> None:
    verdict = range_findings(catalogue(), _on_431(30, group_version=1), R391, code=NO_ROLLBACK)
    assert {(f.code, f.subject) for f in verdict.warnings} == {
        ("NO-ROLLBACK", "feature metadata.version on 3.9.1"),
        ("NO-ROLLBACK", "feature group.version on 3.9.1"),
    }
    assert range_findings(catalogue(), state(), R391, code=NO_ROLLBACK).findings == ()
