from __future__ import annotations

from kafka_rollout.adapters.catalogue import load_catalogue
from kafka_rollout.adapters.settings import Settings
from kafka_rollout.domain.findings import Severity
from kafka_rollout.domain.group_findings import group_findings
from kafka_rollout.domain.releases import Release
from kafka_rollout.domain.state import GroupState
from tests.unit.domain.builders import state

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
    seen = state(groups=(ACTIVE,))
    assert group_findings(CATALOGUE, seen, NEW, planned={"group.version": 1}) == ()


def test_a_release_before_the_feature_serves_them_as_a_preview_at_most() -> None:
    (finding,) = group_findings(CATALOGUE, state(groups=(ACTIVE,)), OLD)
    assert (finding.code, finding.severity) == ("GROUPS-OF-A-PREVIEW", Severity.WARNING)


def test_classic_groups_and_groups_without_members_are_served_by_all() -> None:
    assert group_findings(CATALOGUE, state(groups=OTHERS), NEW) == ()
