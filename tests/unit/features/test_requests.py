"""What a person asks for, and which levels upgrade-all, downgrade-all and a release's name come to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.features.requests import (
    FeatureAction,
    FeatureOrder,
    FeatureRequest,
    RequestKind,
    downgrade_all,
    feature_change,
    levels_of,
    parse_requests,
    release_levels,
    upgrade_all,
)
from kafka_rollout.features.rules import check_requests
from kafka_rollout.features.support import held_back_feature_findings
from kafka_rollout.model.state import ClusterState
from kafka_rollout.releases.facts import Catalogue, CoordinatorClass, Release
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


def on_431(**finalized: int) -> ClusterState:
    levels = {k.replace("_", "."): v for k, v in ({"metadata_version": 30} | finalized).items()}
    return state(
        nodes={n.node_id: node_state(n.node_id, R431, supported=FULL, finalized=levels) for n in SEPARATE.nodes}
    )


def asked(requests: tuple[FeatureRequest, ...]) -> dict[str, tuple[str, int]]:
    return {request.feature: (request.kind.value, request.level) for request in requests}


def test_features_are_named_one_by_one_or_in_a_list_as_in_the_kip() -> None:
    requests = parse_requests(
        ["group.version:1,share.version=1", "metadata.version=30"], ["transaction.version:1", "x.y=0"]
    )
    assert asked(requests) == {
        "group.version": ("upgrade", 1),
        "share.version": ("upgrade", 1),
        "metadata.version": ("upgrade", 30),
        "transaction.version": ("downgrade", 1),
        "x.y": ("delete", 0),
    }


@pytest.mark.parametrize("level", [0, -1, -7])
def test_a_downgrade_below_one_is_a_deletion_and_every_level_below_one_is_sent_as_zero(level: int) -> None:
    (down,) = parse_requests(downgrades=[f"group.version:{level}"])
    (up,) = parse_requests(upgrades=[f"group.version:{level}"])
    assert (down.kind, up.kind) == (RequestKind.DELETE, RequestKind.UPGRADE)
    assert levels_of([down]) == levels_of([up]) == {"group.version": 0}


@pytest.mark.parametrize(
    "text", ["group.version", "group.version:", ":1", "group.version:one", "g v:1", "g:40000", "g:1.5"]
)
def test_what_is_no_feature_and_level_is_bad_input(text: str) -> None:
    with pytest.raises(UserError, match=r"is not|has a level above 32767"):
        parse_requests([text])


def test_two_requests_for_one_feature_are_bad_input() -> None:
    with pytest.raises(UserError, match=r"There are two requests for group\.version: upgrade .* to 1, and delete"):
        parse_requests(["group.version:1"], ["group.version:0"])


def test_upgrade_all_goes_to_the_highest_stable_level_but_never_raises_kraft_version() -> None:
    assert asked(upgrade_all(SEPARATE, catalogue(), on_431(metadata_version=21, group_version=1))) == {
        "metadata.version": ("upgrade", 30),
        "transaction.version": ("upgrade", 2),
        "share.version": ("upgrade", 1),
    }


def test_upgrade_all_stops_at_what_every_node_supports() -> None:
    seen = on_431(metadata_version=21)
    narrower = {"metadata.version": (7, 29), "group.version": (0, 1), "transaction.version": (0, 1)}
    seen = replace(seen, nodes=replace_node(seen, node_state(5, R421, supported=narrower)))
    assert asked(upgrade_all(SEPARATE, catalogue(), seen)) == {
        "group.version": ("upgrade", 1),
        "metadata.version": ("upgrade", 29),
        "transaction.version": ("upgrade", 1),
    }


def test_upgrade_all_leaves_what_a_node_does_not_know_and_says_who_holds_it_back() -> None:
    seen = on_431(metadata_version=21)
    old = replace(seen, nodes=replace_node(seen, node_state(6, R391)))
    assert upgrade_all(SEPARATE, catalogue(), old) == ()
    told = {finding.subject: finding.sentence for finding in held_back_feature_findings(SEPARATE, catalogue(), old)}
    assert told["feature metadata.version"] == "metadata.version could be raised to 30, but node 6 supports 1-21."
    assert told["feature group.version"] == "group.version could be raised to 1, but node 6 does not support it."
    assert list(held_back_feature_findings(SEPARATE, catalogue(), seen)) == []


def test_upgrade_all_does_not_take_a_silent_node_for_one_that_has_everything() -> None:
    seen = on_431(metadata_version=21)
    seen = replace(seen, nodes=replace_node(seen, silent(6)))
    requests = upgrade_all(SEPARATE, catalogue(), seen)
    assert asked(requests)["metadata.version"] == ("upgrade", 30)
    assert {f.code for f in check_requests(SEPARATE, catalogue(), seen, requests).blockers} == {
        "FEATURE-SUPPORT-UNKNOWN"
    }


def test_upgrade_all_takes_no_unstable_level_although_every_node_supports_it() -> None:
    release = Release(4, 9, 0)
    known = facts(release, CoordinatorClass.EMITTING, feature("metadata.version", 7, 31, latest=30))
    ranges = {"metadata.version": (7, 31)}
    nodes = {
        n.node_id: node_state(n.node_id, release, supported=ranges, finalized={"metadata.version": 29})
        for n in SEPARATE.nodes
    }
    assert asked(upgrade_all(SEPARATE, catalogue(known), state(nodes=nodes))) == {"metadata.version": ("upgrade", 30)}


def on_411(**finalized: int) -> tuple[Catalogue, ClusterState]:
    """A cluster of a release in which share groups are a preview."""
    release = Release(4, 1, 1)
    preview = feature("share.version", 0, 1, default=0, level_1={"metadata.version": 26})
    known = facts(release, CoordinatorClass.EMITTING, feature("metadata.version", 7, 27), preview)
    ranges = {"metadata.version": (7, 27), "share.version": (0, 1)}
    levels = {"metadata.version": 25, **{k.replace("_", "."): v for k, v in finalized.items()}}
    nodes = {n.node_id: node_state(n.node_id, release, supported=ranges, finalized=levels) for n in SEPARATE.nodes}
    return catalogue(known), state(nodes=nodes)


def test_upgrade_all_and_a_release_s_levels_stop_at_the_default_of_the_release() -> None:
    known, seen = on_411()
    expected = {"metadata.version": ("upgrade", 27)}
    assert asked(upgrade_all(SEPARATE, known, seen)) == expected
    assert asked(release_levels(known, seen, Release(4, 1, 1))) == expected


@pytest.mark.parametrize("may_lower", [True, False])
def test_a_stable_level_above_the_default_stays_when_the_levels_of_the_release_are_set(may_lower: bool) -> None:
    known, seen = on_411(share_version=1)
    order = FeatureOrder(action=FeatureAction.UPDATE, release=Release(4, 1, 1), may_lower=may_lower)
    assert asked(order.requests(SEPARATE, known, seen)) == {"metadata.version": ("upgrade", 27)}
    assert asked(upgrade_all(SEPARATE, known, seen)) == {"metadata.version": ("upgrade", 27)}
    assert downgrade_all(known, seen, Release(4, 1, 1)) == ()


def test_upgrade_all_raises_nothing_whose_default_level_is_unknown() -> None:
    _, seen = on_411()
    assert upgrade_all(SEPARATE, catalogue(), seen) == ()


def test_downgrade_all_lowers_to_what_the_release_knows_and_deletes_what_it_does_not() -> None:
    seen = on_431(group_version=1, transaction_version=2, share_version=1)
    assert asked(downgrade_all(catalogue(), seen, R391)) == {
        "group.version": ("delete", 0),
        "metadata.version": ("downgrade", 21),
        "share.version": ("delete", 0),
        "transaction.version": ("delete", 0),
    }
    assert asked(downgrade_all(catalogue(), seen, R421)) == {"metadata.version": ("downgrade", 29)}


def test_downgrade_all_raises_nothing_and_leaves_a_dynamic_quorum_to_be_refused() -> None:
    assert downgrade_all(catalogue(), on_431(metadata_version=7), R431) == ()
    dynamic = on_431(metadata_version=8, kraft_version=1)
    assert asked(downgrade_all(catalogue(), dynamic, R340)) == {"kraft.version": ("delete", 0)}


def test_a_release_s_levels_go_both_ways_and_without_permission_nothing_is_a_downgrade() -> None:
    seen = on_431(metadata_version=30, group_version=0)
    both = release_levels(catalogue(), seen, R421)
    assert asked(both)["metadata.version"] == ("downgrade", 29)
    assert asked(both)["group.version"] == ("upgrade", 1)
    order = FeatureOrder(action=FeatureAction.UPDATE, release=R421, may_lower=False)
    rising = order.requests(SEPARATE, catalogue(), seen)
    assert {request.kind for request in rising} == {RequestKind.UPGRADE}
    assert levels_of(rising) == levels_of(both)


def test_a_release_that_the_catalogue_does_not_have_is_bad_input() -> None:
    with pytest.raises(UserError, match=r"4\.4\.0 is not in the catalogue"):
        downgrade_all(catalogue(), on_431(), Release(4, 4, 0))


def test_a_release_s_levels_do_not_raise_kraft_version_by_implication() -> None:
    assert "kraft.version" not in asked(release_levels(catalogue(), on_431(), R431))


def test_an_order_says_in_one_way_what_it_wants() -> None:
    for wrong in (
        {"action": FeatureAction.UPDATE},
        {"action": FeatureAction.UPDATE, "named": parse_requests(["a.b:1"]), "release": R421},
        {"action": FeatureAction.DOWNGRADE_ALL},
    ):
        with pytest.raises(UserError):
            FeatureOrder(**wrong)


def test_an_order_of_a_release_s_levels_lowers_only_where_it_may() -> None:
    for may_lower, kind in ((True, "downgrade"), (False, "upgrade")):
        order = FeatureOrder(action=FeatureAction.UPDATE, release=R421, may_lower=may_lower)
        assert asked(order.requests(SEPARATE, catalogue(), on_431()))["metadata.version"] == (kind, 29)


@pytest.mark.parametrize(("current", "target"), [(1, 2), (2, 1)])
def test_a_level_above_the_first_does_not_lose_what_the_first_enables(current: int, target: int) -> None:
    text = feature_change(catalogue().get(R431), "streams.version", current, target).loss
    assert text == "The catalogue does not say what this level adds: read the documentation of level 2."
    assert "share groups" in feature_change(catalogue().get(R431), "share.version", 0, 2).loss
    assert "share groups" in feature_change(catalogue().get(R431), "share.version", 2, 0).loss
    assert "dead-letter" in feature_change(catalogue().get(R431), "share.version", current, target).loss
