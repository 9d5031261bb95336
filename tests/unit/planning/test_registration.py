"""Which nodes must register again before levels are raised, from the releases, the layout and the levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest

from kafka_rollout.features.registrations import SeenRegistrations, drops_zero_ranges
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import ClusterSpec, Role
from kafka_rollout.planning.plans import make_plan
from kafka_rollout.planning.request import FinalizePolicy
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import METADATA_VERSION, Catalogue, Release
from tests.fakes.cluster import INCLUDE
from tests.plans import upgrade_request
from tests.unit.builders import SEPARATE, node_state, observation, state

R341, R372, R381, R391, R400 = (Release.parse(one) for one in ("3.4.1", "3.7.2", "3.8.1", "3.9.1", "4.0.0"))
R431, R440 = Release(4, 3, 1), Release(4, 4, 0)
IDS = [node.node_id for node in SEPARATE.nodes]
BROKER = SEPARATE.brokers[-1].node_id
CONTROLLERS = [node.node_id for node in SEPARATE.controllers]


@cache
def catalogue() -> Catalogue:
    return load_catalogue(INCLUDE)


def with_roles(*combined: int) -> ClusterSpec:
    """SEPARATE, whose controllers with these ids are brokers too."""
    both = frozenset({Role.BROKER, Role.CONTROLLER})
    return replace(
        SEPARATE,
        nodes=tuple(
            replace(node, roles=both, broker_address=f"127.0.0.1:{20000 + node.node_id}")
            if node.node_id in combined
            else node
            for node in SEPARATE.nodes
        ),
    )


def plan_of(
    cluster: ClusterSpec,
    source: Release,
    target: Release,
    *,
    level: int | None = None,
    ahead: Mapping[int, Release] | None = None,
    later: bool = False,
    registered: SeenRegistrations | None = None,
) -> Plan:
    def seen(node_id: int) -> Release:
        return (ahead or {}).get(node_id, source)

    facts = {release: catalogue().get(release) for release in {source, *(ahead or {}).values()}}
    finalized = {METADATA_VERSION: level or facts[source].features[METADATA_VERSION].latest_production}
    nodes = {
        node_id: node_state(
            node_id,
            seen(node_id),
            supported={n: (f.supported.min, f.supported.max) for n, f in facts[seen(node_id)].features.items()},
            finalized=finalized,
        )
        for node_id in IDS
    }
    request = replace(
        upgrade_request(target, finalize=True),
        finalize=FinalizePolicy.LATER if later else FinalizePolicy.AFTER_APPROVAL,
    )
    found = replace(observation(state(nodes=nodes)), cluster=cluster, catalogue=catalogue(), registered=registered)
    return make_plan(found, request, RunOf.UPGRADE)


def again(plan: Plan) -> list[int]:
    step = plan.registration_step
    return [] if step is None else [one.node_id for one in step.order]


ALL = with_roles(*CONTROLLERS)


@pytest.mark.parametrize(
    ("source", "target", "restarts"),
    [
        (R341, R431, False),  # raising metadata.version from 8 renews the registrations
        (R372, R440, True),
        (R381, R431, True),
        (R391, R431, False),  # its controllers keep the ranges
        (R381, R391, False),  # no level with minimum 0 is raised
        (R400, R440, False),
    ],
)
def test_combined_nodes_register_again_where_an_old_controller_drops_ranges(
    source: Release, target: Release, *, restarts: bool
) -> None:
    plan = plan_of(ALL, source, target)
    order = [one.node_id for one in plan.release_steps[-1 - restarts].order if one.section == "controllers"]
    assert again(plan) == (order[:-1] if restarts else []), "the last controller registers with a new one"
    assert plan.changes_release
    assert not plan.restarts
    assert plan.path == (source, target) or len(plan.path) == 3


def test_the_plan_names_the_nodes_the_number_and_the_reason() -> None:
    step = plan_of(ALL, R381, R431).registration_step
    assert step is not None
    assert (step.key, step.from_release) == ("4.3.1-to-4.3.1", R431)
    assert step.reason.startswith("Nodes 1, 2 must register again before levels are raised: controllers before 3.9")
    assert "KAFKA-17492" in step.reason
    assert "group.version, share.version" in step.reason
    assert "raising metadata.version from 20 renews no registration. At most 2 more restarts" in step.reason


def test_separate_brokers_register_with_new_controllers() -> None:
    assert again(plan_of(SEPARATE, R381, R431)) == []


@pytest.mark.parametrize("combined", CONTROLLERS)
def test_of_mixed_nodes_only_those_register_again_that_restart_before_the_last_controller(combined: int) -> None:
    plan = plan_of(with_roles(combined), R381, R431)
    last = [one.node_id for one in plan.release_steps[0].order if one.section == "controllers"][-1]
    assert again(plan) == ([] if combined == last else [combined])


@pytest.mark.parametrize(("level", "restarts"), [(16, False), (17, True), (19, True)])
def test_the_level_decides_whether_raising_metadata_version_renews_registrations(level: int, *, restarts: bool) -> None:
    assert bool(again(plan_of(ALL, R372, R431, level=level))) == restarts


def test_a_run_that_finalizes_later_says_what_the_later_run_restarts() -> None:
    plan = plan_of(ALL, R381, R431, later=True)
    assert again(plan) == []
    (found,) = [finding for finding in plan.findings if finding.code == "SECOND-RESTART-LATER"]
    assert "Nodes 1, 2 must register again" in found.sentence


def test_nodes_that_run_the_target_restart_if_their_registration_lacks_a_level_or_is_unknown() -> None:
    ahead = dict.fromkeys(IDS, R431)
    seen = SeenRegistrations(complete=(1,), lacking={2: ("group.version",)}, unknown=(BROKER,))
    plan = plan_of(ALL, R431, R431, level=20, ahead=ahead, registered=seen, later=True)
    assert again(plan) == [2, BROKER]
    assert (plan.changes_release, plan.path) == (False, (R431, R431))
    assert again(plan_of(ALL, R431, R431, level=20, registered=SeenRegistrations(complete=tuple(IDS)))) == []


def test_an_upgrade_by_hand_with_old_controllers_left_is_continued() -> None:
    """Brokers were upgraded first: they registered with a controller of 3.8.1."""
    ahead = {node.node_id: R431 for node in SEPARATE.brokers}
    lacking = SeenRegistrations(lacking={BROKER: ("group.version",)}, complete=tuple(IDS))
    assert again(plan_of(SEPARATE, R381, R431, ahead=ahead, registered=lacking)) == [BROKER]


def test_releases_before_3_9_drop_ranges() -> None:
    drops = {release for release in catalogue() if drops_zero_ranges(catalogue().get(release))}
    assert drops == {release for release in catalogue() if release < Release(3, 9, 0)}
