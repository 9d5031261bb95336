"""The rules on the facts that were derived from the released jars."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kafka_rollout.features.requests import feature_changes
from kafka_rollout.model.plan import Undo
from kafka_rollout.planning.release_path import plan_release_steps, relevant_releases
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import KRAFT_VERSION, METADATA_VERSION, Catalogue, Release
from tests.paths import INCLUDE
from tests.releases import NEWEST
from tests.unit.builders import R340, R341, R391, R431, SEPARATE, node_state, state


@pytest.fixture(scope="module")
def released() -> Catalogue:
    return load_catalogue(INCLUDE)


@pytest.mark.parametrize(
    ("source", "target", "stops"),
    [
        (R340, R431, [R341, R431]),
        (Release(3, 3, 2), R431, [R341, R431]),
        (R340, R341, [R341]),
        (R341, R391, [R391]),
        (R391, R431, [R431]),
    ],
    ids=str,
)
def test_paths_between_released_versions(
    released: Catalogue, source: Release, target: Release, stops: list[Release]
) -> None:
    assert [to for _, to, _ in plan_release_steps(released, source, target)] == stops


def test_finalizing_4_3_1_on_a_cluster_of_3_9_1(released: Catalogue) -> None:
    changes = {c.feature: (c.current, c.target, c.undo) for c in feature_changes(released, state(SEPARATE), R431)}
    assert changes.pop("metadata.version") == (21, 30, Undo.IMPOSSIBLE)
    assert changes == {
        "group.version": (0, 1, Undo.POSSIBLE),
        "transaction.version": (0, 2, Undo.POSSIBLE),
        "share.version": (0, 1, Undo.POSSIBLE),
        "streams.version": (0, 1, Undo.POSSIBLE),
        "eligible.leader.replicas.version": (0, 1, Undo.POSSIBLE),
    }


@pytest.mark.parametrize(
    ("target", "not_raised"),
    [
        ("4.0.1", {"eligible.leader.replicas.version"}),
        ("4.1.1", {"share.version"}),
        ("4.2.1", set()),
        ("4.3.1", set()),
        (NEWEST, set()),
    ],
)
def test_finalizing_raises_no_level_that_a_new_cluster_of_the_release_does_not_have(
    released: Catalogue, target: str, not_raised: set[str]
) -> None:
    """The levels of new clusters: tests/integration/features/test_default_levels.py."""
    facts = released.get(Release.parse(target)).features
    changes = {c.feature: c.target for c in feature_changes(released, state(SEPARATE), Release.parse(target))}
    offered = {name for name, one in facts.items() if one.latest_production > 0 and name != KRAFT_VERSION}
    assert offered - changes.keys() == not_raised
    assert changes == {name: facts[name].default_level for name in offered - not_raised}


def test_a_preview_that_an_operator_enabled_stays_when_the_release_is_finalized(released: Catalogue) -> None:
    levels = {"metadata.version": 27, "share.version": 1, "group.version": 1, "transaction.version": 2}
    nodes = {1: node_state(1, Release(4, 1, 1), finalized=levels)}
    changes = {c.feature: c.target for c in feature_changes(released, state(nodes=nodes), Release(4, 1, 1))}
    assert changes == {"eligible.leader.replicas.version": 1}


def test_kafka_takes_29_back_to_23_but_not_30_to_29(released: Catalogue) -> None:
    def undo(level: int, target: Release) -> Undo:
        nodes = {1: node_state(1, finalized={"metadata.version": level})}
        return next(
            c.undo for c in feature_changes(released, state(nodes=nodes), target) if c.feature.startswith("meta")
        )

    assert undo(23, Release(4, 2, 1)) is Undo.POSSIBLE
    assert undo(29, R431) is Undo.IMPOSSIBLE


def test_no_release_has_dropped_a_feature_so_that_a_newer_binary_knows_whatever_is_finalized(
    released: Catalogue,
) -> None:
    known = [set(released.get(release).features) for release in sorted(released)]
    assert all(older <= newer for older, newer in pairwise(known))


def test_what_4_3_1_needs_of_another_feature_lies_behind_a_level_that_it_does_not_lower_anyway(
    released: Catalogue,
) -> None:
    facts = released.get(R431)
    needs = {(name, level): needed for name, f in facts.features.items() for level, needed in f.dependencies.items()}
    assert {key: dict(needed) for key, needed in needs.items() if needed} == {
        ("eligible.leader.replicas.version", 1): {METADATA_VERSION: 23}
    }
    assert next(mv for mv in facts.metadata_versions if mv.level == 23).changed


@pytest.mark.parametrize(
    ("running", "listed", "relevant"),
    [
        (["4.3.1"], [], ["4.2.2", "4.3.1", NEWEST]),
        (["3.4.0"], [], ["3.3.2", "3.4.0", "3.4.1", NEWEST]),
        (["4.0.1"], ["3.4.0", "9.9.9"], ["3.4.0", "3.9.2", "4.0.1", NEWEST]),
        (["3.9.1", "4.3.1"], [], ["3.8.1", "3.9.1", "4.3.1", NEWEST]),
    ],
)
def test_the_releases_that_matter_for_a_cluster(
    released: Catalogue, running: list[str], listed: list[str], relevant: list[str]
) -> None:
    found = relevant_releases(released, map(Release.parse, running), map(Release.parse, listed))
    assert [str(one) for one in found] == relevant


def test_all_releases_matter_for_a_cluster_that_reports_none(released: Catalogue) -> None:
    assert relevant_releases(released, [], [R340]) == tuple(released)
