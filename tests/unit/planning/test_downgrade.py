from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.features.support import find_lossy_downgrade_gap
from kafka_rollout.model.plan import Direction, Lowering, Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.state import ClusterState, GroupState, RegisteredNodes
from kafka_rollout.planning.plans import make_plan
from kafka_rollout.planning.release_path import node_order, plan_release_steps
from kafka_rollout.releases.facts import Catalogue, Release
from tests.integration.harness.faults.without_live import stage_no_live
from tests.plans import downgrade_request
from tests.unit.builders import (
    R340,
    R341,
    R391,
    R421,
    R431,
    SEPARATE,
    catalogue,
    node_state,
    observation,
    partition,
    replace_node,
    silent,
    state,
)

IDS = [node.node_id for node in SEPARATE.nodes]
SUPPORTED = {
    "metadata.version": (7, 30),
    "kraft.version": (0, 1),
    "group.version": (0, 1),
    "transaction.version": (0, 2),
    "share.version": (0, 1),
}


def at(level: int, release: Release = R431, **levels: int) -> ClusterState:
    finalized = {"metadata.version": level, **{name.replace("_", "."): value for name, value in levels.items()}}
    return state(nodes={i: node_state(i, release, supported=SUPPORTED, finalized=finalized) for i in IDS})


def plan(seen: ClusterState, target: Release, *, known: Catalogue | None = None, **requested: Any) -> Plan:
    observed = observation(seen, catalogue=known or catalogue())
    return make_plan(observed, downgrade_request(target, **requested), RunOf.DOWNGRADE)


def codes(found: Plan) -> set[str]:
    return {finding.code for finding in found.blockers}


def test_a_level_that_kafka_lowers_goes_online_brokers_first_and_the_active_controller_last() -> None:
    found = plan(at(29), R421, level=23)
    assert (found.direction, found.source, found.target) == (Direction.DOWNGRADE, R431, R421)
    assert (found.levels, found.lowering, found.blockers) == ({"metadata.version": 23}, Lowering.ONLINE, ())
    assert [node_step.node_id for node_step in found.release_steps[0].order] == [4, 5, 6, 1, 2, 3]
    assert found.release_steps[0].order[-1].active_controller


def test_the_highest_level_that_the_target_knows_is_meant_and_never_one_above_the_present() -> None:
    assert plan(at(30), R421).levels == {"metadata.version": 29}
    assert plan(at(23), R421).levels == {}
    assert plan(at(8), R341).levels == {}


def test_features_that_the_target_does_not_know_are_deleted_and_metadata_version_comes_last() -> None:
    found = plan(at(21, group_version=1, transaction_version=2), R391)
    assert list(found.levels.items()) == [("group.version", 0), ("transaction.version", 0)]
    found = plan(at(29, share_version=1, group_version=1), R421, level=24)
    assert list(found.levels.items()) == [("share.version", 0), ("metadata.version", 24)], "share.version needs 26"


def test_where_kafka_refuses_the_run_stops_and_names_the_other_way_or_takes_it() -> None:
    found = plan(at(30), R421)
    assert (codes(found), found.lowering) == ({"FEATURE-DOWNGRADE-REFUSED"}, Lowering.ONLINE)
    assert "'live'" in found.blockers[0].remedy
    live = plan(at(30), R421, lowering=Lowering.LIVE)
    assert (live.blockers, live.lowering) == ((), Lowering.LIVE)
    assert live.online_changes == ()
    assert "LIVE-DOWNGRADE" in {finding.code for finding in live.findings}
    assert live.hash != found.hash
    assert plan(at(30), R421, lowering=Lowering.OFFLINE).lowering is Lowering.LIVE, "it is less disruptive"
    other = plan(at(29), R421, level=23, lowering=Lowering.OFFLINE)
    assert other.lowering is Lowering.ONLINE, "only where Kafka refuses"


def test_where_live_is_not_possible_the_plan_is_offline_if_that_is_allowed_and_shows_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage_no_live(monkeypatch)
    offline = plan(at(30), R421, lowering=Lowering.OFFLINE)
    assert (offline.blockers, offline.lowering) == ((), Lowering.OFFLINE)
    (found,) = [finding for finding in offline.findings if finding.code == "OFFLINE-DOWNGRADE"]
    assert "A live downgrade is not possible: a test stages it." in found.sentence
    live = plan(at(30), R421, lowering=Lowering.LIVE)
    assert (codes(live), live.lowering) == ({"FEATURE-DOWNGRADE-REFUSED"}, Lowering.ONLINE)
    assert "'offline'" in live.blockers[0].remedy
    assert "a test stages it" in live.blockers[0].remedy


def test_offline_the_other_features_fall_online_first_and_there_is_no_release_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage_no_live(monkeypatch)
    seen = at(30, share_version=1)
    found = plan(seen, R391, level=21, lowering=Lowering.OFFLINE)
    assert [change.feature for change in found.online_changes] == ["share.version"]
    seen = at(30)
    (release_step,) = plan(seen, R340, level=8, lowering=Lowering.OFFLINE).release_steps
    assert (release_step.from_release, release_step.to_release) == (R431, R340)


def test_a_level_may_fall_while_the_binary_stays_but_not_offline() -> None:
    found = plan(at(29), R431, level=23)
    assert (found.levels, found.release_steps, found.blockers) == ({"metadata.version": 23}, (), ())
    refused = plan(at(30), R431, level=29, lowering=Lowering.OFFLINE)
    assert (codes(refused), refused.lowering) == ({"FEATURE-DOWNGRADE-REFUSED"}, Lowering.ONLINE)


def test_what_only_a_roll_needs_is_no_blocker_offline() -> None:
    single = replace(at(30), partitions=(partition("audit", 0, [4]),))
    assert "RF-ONE-TOPIC" in codes(plan(single, R421))
    assert codes(plan(single, R421, lowering=Lowering.OFFLINE)) == set()


def test_nodes_that_all_implement_kip_1155_lower_it_online() -> None:
    known = catalogue()
    facts = known.releases[R431]
    known = Catalogue({**known.releases, R431: replace(facts, lossy_downgrade_level=30)})
    found = plan(at(30), R421, known=known, lowering=Lowering.OFFLINE)
    assert (found.lowering, found.blockers) == (Lowering.ONLINE, ())
    narrower = at(30)
    nodes = replace_node(
        narrower, node_state(5, R431, supported={**SUPPORTED, "metadata.version": (7, 29)}, finalized={})
    )
    (refused,) = plan(replace(narrower, nodes=nodes), R421, known=known).blockers
    assert refused.code == "FEATURE-DOWNGRADE-REFUSED"
    assert "Not every node supports its metadata.version 30: node 5 supports 7-29." in refused.sentence


def test_a_node_that_is_silent_or_not_in_the_inventory_does_not_implement_kip_1155() -> None:
    known = catalogue()
    known = Catalogue({**known.releases, R431: replace(known.releases[R431], lossy_downgrade_level=30)})
    assert find_lossy_downgrade_gap(SEPARATE, known, at(30)) == ""
    assert find_lossy_downgrade_gap(SEPARATE, catalogue(), at(30)) == "No release of the catalogue implements it."
    unlisted = RegisteredNodes(brokers=frozenset({4, 5, 6, 9}), fenced=None, controllers=None)
    seen = replace(at(30), nodes=replace_node(at(30), silent(4)), registered=unlisted)
    gap = find_lossy_downgrade_gap(SEPARATE, known, seen)
    assert gap.endswith("30: node 4 did not report its levels, node 9 is not listed in the inventory.")


@pytest.mark.parametrize(
    ("level", "why"),
    [(99, "supports metadata.version 7-29, not 99"), (30, "supports metadata.version 7-29"), (6, "not 6")],
)
def test_a_level_that_the_target_does_not_support_is_bad_input(level: int, why: str) -> None:
    with pytest.raises(UserError, match=why):
        plan(at(30), R421, level=level)


def test_a_level_above_the_present_one_and_a_newer_target_are_bad_input() -> None:
    with pytest.raises(UserError, match="Level 24 is higher"):
        plan(at(23), R421, level=24)
    with pytest.raises(UserError, match="newer than the running release"):
        plan(at(23, R421), R431)


def test_the_floor_binds_levels_and_not_a_roll_at_an_unchanged_level() -> None:
    both = {"lowering": Lowering.OFFLINE, "unsafe": True}
    assert "METADATA-VERSION-FLOOR" in codes(plan(at(15), R341, **both))
    assert codes(plan(at(8), R341)) == set()


def test_a_dynamic_quorum_has_no_way_to_a_release_without_one() -> None:
    found = plan(at(8, kraft_version=1), R341)
    assert "FINALIZED-LEVEL-OUT-OF-RANGE" in codes(found)
    assert "kraft.version" not in found.levels


def test_active_groups_of_a_type_that_falls_are_waited_for_by_safe_and_lost_by_unsafe() -> None:
    seen = replace(
        at(21, group_version=1), groups=(GroupState(group_id="b", type="consumer", state="Stable", members=2),)
    )
    for unsafe in (False, True):
        found = plan(seen, R391, unsafe=unsafe)
        (told,) = (finding for finding in found.findings if finding.code == "GROUPS-LOSE-THEIR-PROTOCOL")
        assert found.blockers == ()
        assert ("The run waits for that" in told.remedy) is not unsafe


def test_an_interrupted_roll_goes_on_from_the_highest_release_and_a_node_below_blocks() -> None:
    seen = at(8)
    below = node_state(4, R341, supported={"metadata.version": (1, 8)}, finalized={"metadata.version": 8})
    seen = replace(seen, nodes=replace_node(seen, below))
    assert [release_step.key for release_step in plan(seen, R341).release_steps] == ["4.3.1-to-3.4.1"]
    assert codes(plan(seen, R341)) == set()
    assert "NODE-BEHIND" in codes(plan(seen, R421))


@pytest.mark.parametrize(
    ("source", "target", "stops"),
    [
        (R431, R340, [R341, R340]),
        (R431, R341, [R341]),
        (R431, R421, [R421]),
        (R391, R340, [R340]),
        (R431, R431, []),
    ],
)
def test_the_way_down_leads_over_a_tolerant_release_only_where_it_must(
    source: Release, target: Release, stops: list[Release]
) -> None:
    assert [to for _, to, _ in plan_release_steps(catalogue(), source, target, down=True)] == stops


def test_controllers_stay_on_the_newer_release_for_as_long_as_a_broker_does() -> None:
    assert [node_step.node_id for node_step in node_order(SEPARATE, 1, down=True)] == [4, 5, 6, 2, 3, 1]
