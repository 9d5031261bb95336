from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.findings import Severity
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.groups.findings import find_unserved_on_path, group_findings, leave_to_gate
from kafka_rollout.model.state import GroupState
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from tests.unit.builders import node_state, state

CATALOGUE = load_catalogue(Settings.from_environment().include)
NEW, OLD = Release(4, 3, 1), Release(3, 9, 1)
ACTIVE = GroupState(group_id="modern", type="consumer", state="Stable", members=1)
OTHERS = (
    GroupState(group_id="empty", type="consumer", state="Empty"),
    GroupState(group_id="classic", type="classic", state="Stable", members=3),
)


def test_a_release_that_has_the_feature_serves_no_group_of_its_type_at_level_0() -> None:
    (finding,) = group_findings(CATALOGUE, state(groups=(ACTIVE, *OTHERS)), NEW)
    assert (finding.code, finding.severity) == ("GROUPS-NOT-SERVED", Severity.BLOCKER)
    assert "1 consumer group with members (modern)" in finding.sentence


def test_at_level_1_it_serves_them() -> None:
    seen = state(groups=(ACTIVE,), nodes={1: node_state(1, NEW, finalized={"group.version": 1})})
    assert group_findings(CATALOGUE, seen, NEW) == ()


def test_a_release_before_the_feature_serves_them_as_a_preview_at_most() -> None:
    (finding,) = group_findings(CATALOGUE, state(groups=(ACTIVE,)), OLD)
    assert (finding.code, finding.severity) == ("GROUPS-OF-A-PREVIEW", Severity.WARNING)


def test_classic_groups_and_groups_without_members_are_served_by_all() -> None:
    assert group_findings(CATALOGUE, state(groups=OTHERS), NEW) == ()


def test_what_the_gate_waits_for_stops_no_plan_and_what_it_does_not_know_still_does() -> None:
    (finding,) = group_findings(CATALOGUE, state(groups=(ACTIVE,)), NEW)
    other = replace(finding, code="RF-ONE-TOPIC")
    told, kept = leave_to_gate((finding, other))
    assert (told.severity, kept) == (Severity.WARNING, other)
    assert "The run waits for that" in told.remedy


def test_a_type_is_unserved_where_a_release_of_the_path_has_its_feature_and_no_level_is_finalized() -> None:
    assert find_unserved_on_path(CATALOGUE, {}, [OLD]) == frozenset()
    assert find_unserved_on_path(CATALOGUE, {}, [OLD, NEW]) == {"consumer", "share", "streams"}
    assert find_unserved_on_path(CATALOGUE, {"group.version": 1, "share.version": 1}, [NEW]) == {"streams"}


@pytest.mark.parametrize(
    ("members", "group_state", "is_active"),
    [(0, "Empty", False), (None, "Empty", False), (None, "Stable", True), (None, "", True), (0, "Dead", False)],
)
def test_a_group_whose_members_were_not_reported_counts_by_its_state(
    members: int | None, group_state: str, *, is_active: bool
) -> None:
    seen = state(groups=(replace(ACTIVE, members=members, state=group_state),))
    assert bool(group_findings(CATALOGUE, seen, NEW)) is is_active
