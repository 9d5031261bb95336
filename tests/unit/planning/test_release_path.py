from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.planning.release_path import (
    find_nodes_ahead,
    node_order,
    plan_release_steps,
    source_release,
    with_configured_classes,
)
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import REBALANCE_PROTOCOLS, Catalogue, CoordinatorClass, Release
from tests.fakes.cluster import INCLUDE
from tests.unit.builders import (
    COMBINED,
    R340,
    R341,
    R391,
    R421,
    R431,
    SEPARATE,
    catalogue,
    cluster,
    facts,
    feature,
    node_state,
    silent,
    state,
)


def _release_steps(source: Release, target: Release) -> list[tuple[Release, Release]]:
    return [(a, b) for a, b, _ in plan_release_steps(catalogue(), source, target)]


def test_an_intolerant_release_goes_to_an_emitting_one_by_way_of_its_own_lines_tolerant_one() -> None:
    release_steps = plan_release_steps(catalogue(), R340, R431)
    assert [(a, b) for a, b, _ in release_steps] == [(R340, R341), (R341, R431)]
    assert all("KIP-915" in reason for _, _, reason in release_steps)


def test_only_the_target_of_an_upgrade_can_have_two_group_coordinators() -> None:
    """The scan before the plan knows the target alone (Request.releases_ahead)."""
    known = load_catalogue(INCLUDE)
    for source, target in combinations(known, 2):
        try:
            steps = plan_release_steps(known, source, target)
        except UserError:
            continue
        assert not any(known.get(to).has_two_group_coordinators for _, to, _ in steps[:-1])


@pytest.mark.parametrize(("source", "target"), [(R340, R341), (R340, R391), (R341, R431), (R391, R431), (R421, R431)])
def test_other_pairs_take_one_release_step(source: Release, target: Release) -> None:
    assert _release_steps(source, target) == [(source, target)]


def test_without_a_tolerant_release_of_its_own_line_the_nearest_one_above_is_taken() -> None:
    r332 = facts(Release(3, 3, 2), CoordinatorClass.INTOLERANT, feature("metadata.version", 1, 7))
    release_steps = plan_release_steps(catalogue(r332), r332.release, R431)
    assert release_steps[0][1] == R341


def _configured(**protocols: str) -> Catalogue:
    """The catalogue for a cluster with values of rebalance.protocols: in the file, or for 3.9.1."""
    known = catalogue()
    with_name = replace(known.get(R391), config_names=frozenset({REBALANCE_PROTOCOLS}))
    known = replace(known, releases={**known.releases, R391: with_name})
    configs = {4: {REBALANCE_PROTOCOLS: protocols["file"]}} if "file" in protocols else {}
    overrides = {str(R391): {REBALANCE_PROTOCOLS: protocols["override"]}} if "override" in protocols else {}
    return with_configured_classes(known, replace(SEPARATE, release_overrides=overrides), configs)


@pytest.mark.parametrize(
    "protocols",
    [{"file": "classic, consumer"}, {"override": "classic,share"}, {"file": "classic", "override": "consumer"},
     {"file": "${vault:a:b}"}],
)  # fmt: skip
def test_3_9_with_the_new_group_protocols_is_reached_through_a_tolerant_release(protocols: dict[str, str]) -> None:
    known = _configured(**protocols)
    assert [to for _, to, _ in plan_release_steps(known, R340, R391)] == [R341, R391]
    assert [to for _, to, _ in plan_release_steps(known, R391, R340, down=True)] == [R341, R340]
    assert [to for _, to, _ in plan_release_steps(known, R341, R391)] == [R391]


@pytest.mark.parametrize("protocols", [{}, {"file": "classic"}, {"file": "classic,consumer", "override": "classic"}])
def test_3_9_with_classic_groups_alone_takes_one_step(protocols: dict[str, str]) -> None:
    assert [to for _, to, _ in plan_release_steps(_configured(**protocols), R340, R391)] == [R391]


def test_without_any_tolerant_release_between_there_is_no_path() -> None:
    known = {r: f for r, f in catalogue().releases.items() if f.coordinator_class is not CoordinatorClass.TOLERANT}
    with pytest.raises(UserError, match="KIP-915"):
        plan_release_steps(Catalogue(known), R340, R431)


def test_the_same_release_is_no_release_step_and_an_older_one_is_a_downgrade() -> None:
    assert _release_steps(R431, R431) == []
    with pytest.raises(UserError, match="kafka_downgrade"):
        _release_steps(R431, R391)


@pytest.mark.parametrize(("source", "target"), [(R340, Release(9, 9, 9)), (Release(2, 8, 0), R431)])
def test_a_release_outside_the_catalogue_has_no_path(source: Release, target: Release) -> None:
    with pytest.raises(UserError, match="is not in the catalogue"):
        _release_steps(source, target)


@given(
    classes=st.lists(st.sampled_from(CoordinatorClass), min_size=2, max_size=9),
    ends=st.tuples(st.integers(0, 8), st.integers(0, 8)),
)
def test_no_release_step_ever_joins_an_intolerant_with_an_emitting_release(
    classes: list[CoordinatorClass], ends: tuple[int, int]
) -> None:
    releases = [Release(3 + i // 3, i % 3, 0) for i in range(len(classes))]
    known = {r: facts(r, kind, feature("metadata.version", 1, 8)) for r, kind in zip(releases, classes, strict=True)}
    source, target = sorted(releases[end % len(releases)] for end in ends)
    try:
        release_steps = plan_release_steps(Catalogue(known), source, target)
    except UserError:
        assert not any(known[r].coordinator_class is CoordinatorClass.TOLERANT for r in releases if source < r < target)
        return
    met = [source, *(b for _, b, _ in release_steps)]
    assert met[-1] == target
    assert met == sorted(set(met))
    for a, b, _ in release_steps:
        pair = {known[a].coordinator_class, known[b].coordinator_class}
        assert not (a < b and pair == {CoordinatorClass.INTOLERANT, CoordinatorClass.EMITTING}) or (
            known[a].coordinator_class is CoordinatorClass.EMITTING
        )


def test_a_mixed_cluster_starts_again_from_its_lowest_release() -> None:
    mixed = state(COMBINED, R391)
    nodes = {**mixed.nodes, 1: node_state(1, R431)}
    assert source_release(COMBINED, state(COMBINED, nodes=nodes)) == R391


def test_an_origin_that_nobody_tells_is_refused() -> None:
    with pytest.raises(RefusedError, match="No node of cluster orders"):
        source_release(COMBINED, state(COMBINED, nodes={1: silent(1)}))


def test_a_node_above_the_first_release_step_is_a_blocker_because_the_release_step_would_take_it_back() -> None:
    nodes = {**state(COMBINED, R340).nodes, 3: node_state(3, R431)}
    ahead = find_nodes_ahead(state(COMBINED, nodes=nodes), R341)
    assert ahead is not None
    assert ahead.code == "NODE-AHEAD"
    assert "3" in ahead.subject
    assert find_nodes_ahead(state(COMBINED, nodes=nodes), R431) is None


def test_controllers_go_first_with_the_active_one_last_among_them_then_brokers() -> None:
    node_steps = node_order(SEPARATE, 1)
    assert [(t.node_id, t.section, t.active_controller) for t in node_steps] == [
        (2, "controllers", False),
        (3, "controllers", False),
        (1, "controllers", True),
        (4, "brokers", False),
        (5, "brokers", False),
        (6, "brokers", False),
    ]


@given(
    roles=st.dictionaries(st.integers(0, 40), st.sampled_from("bcx"), min_size=1),
    active=st.none() | st.integers(0, 40),
)
def test_the_order_holds_every_node_once_in_its_section(roles: dict[int, str], active: int | None) -> None:
    spec = cluster(*([i for i, role in roles.items() if role == kind] for kind in "cbx"))
    node_steps = node_order(spec, active)
    assert sorted(t.node_id for t in node_steps) == sorted(roles)
    sections = [t.section for t in node_steps]
    assert sections == sorted(sections, reverse=True)
    assert all((t.section == "controllers") == (roles[t.node_id] in "cx") for t in node_steps)
    controllers = [t.node_id for t in node_steps if t.section == "controllers"]
    if active in controllers:
        assert controllers[-1] == active
        controllers.pop()
    assert controllers == sorted(controllers)
    brokers = [t.node_id for t in node_steps if t.section == "brokers"]
    assert brokers == sorted(brokers)
