"""A gap of a release is a blocker of each plan that needs the fact, and nothing else is read from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.findings import Severity
from kafka_rollout.coordinator_logs.scan import LoadVerdict
from kafka_rollout.coordinator_logs.verdicts import evaluate_records
from kafka_rollout.formats.log_types import RecordKind
from kafka_rollout.planning.findings.configuration import java_findings, removed_config_names
from kafka_rollout.planning.findings.downgrade_scans import lacking_settings
from kafka_rollout.planning.findings.releases import OF_DOWNGRADES, gap_findings
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Catalogue, Release
from tests.paths import INCLUDE
from tests.unit.builders import R391, R431, SEPARATE

RELEASED = load_catalogue(INCLUDE)
OFFSETS = "__consumer_offsets"


def with_gaps(release: Release, *facts: str, **content: object) -> Catalogue:
    known = replace(RELEASED.get(release), gaps=dict.fromkeys(facts, "The class was moved."), **content)
    return Catalogue({**RELEASED.releases, release: known})


@pytest.mark.parametrize(
    ("fact", "up", "down"),
    [
        ("config_names", True, True),
        ("java_minimum", True, True),
        ("coordinator_logs.__consumer_offsets", True, True),
        ("feature_dependencies", True, True),
        ("feature_defaults", True, True),
        ("config_defaults", True, True),
        ("lossy_downgrade_level", False, True),
        ("metadata_log", False, True),
        ("logging", False, False),
    ],
)
def test_a_plan_is_blocked_by_the_gaps_that_it_needs(fact: str, up: bool, down: bool) -> None:
    catalogue = with_gaps(R431, fact)
    assert bool(gap_findings(catalogue, [R391, R431])) is up
    assert bool(gap_findings(catalogue, [R431, R391], OF_DOWNGRADES)) is down
    assert not gap_findings(catalogue, [R391])


def test_the_finding_names_release_fact_and_reason() -> None:
    (finding,) = gap_findings(with_gaps(R431, "java_minimum"), [R391, R431, R431])
    assert (finding.code, finding.severity) == ("CATALOGUE-GAP", Severity.BLOCKER)
    assert finding.subject == "release 4.3.1, java_minimum"
    assert finding.sentence == "The catalogue does not contain which Java it requires: The class was moved."
    assert "kafka-rollout-derive add 4.3.1" in finding.remedy


def test_the_verdict_of_a_release_whose_coordinator_is_unknown_is_unknown() -> None:
    logs = {topic: log for topic, log in RELEASED.get(R431).coordinator_logs.items() if topic != OFFSETS}
    catalogue = with_gaps(R431, f"coordinator_logs.{OFFSETS}", coordinator_logs=logs)
    kind = RecordKind(topic=OFFSETS, partition=0, key_version=1, value_version=3, count=1, first_offset=0)
    verdicts = {one.release: one.verdict for one in evaluate_records(catalogue, [kind], [R391, R431])}
    assert verdicts == {R391: LoadVerdict.LOADS, R431: LoadVerdict.UNKNOWN}


def test_an_unknown_new_group_coordinator_is_a_gap_only_where_it_is_started() -> None:
    catalogue = with_gaps(R391, "new_group_coordinator", new_group_coordinator=None)
    assert not catalogue.configured(new_group_coordinator=False).get(R391).is_unknown_log(OFFSETS)
    assert catalogue.configured(new_group_coordinator=True).get(R391).is_unknown_log(OFFSETS)


def test_a_release_with_two_group_coordinators_is_unknown_if_nobody_reported_which_one_the_brokers_start() -> None:
    unread = RELEASED.configured(new_group_coordinator=None)
    kind = RecordKind(topic=OFFSETS, partition=0, key_version=1, value_version=3, count=1, first_offset=0)
    releases = [Release.parse(text) for text in ("3.7.2", "3.8.1", "3.9.1", "4.3.1")]
    verdicts = [one.verdict.name for one in evaluate_records(unread, [kind], releases)]
    assert verdicts == ["LOADS", "UNKNOWN", "UNKNOWN", "LOADS"]
    known = [one.verdict.name for one in evaluate_records(RELEASED, [kind], releases)]
    assert known == ["LOADS"] * 4
    assert RELEASED.configured(new_group_coordinator=False) is RELEASED


def test_nothing_is_concluded_from_an_empty_fact() -> None:
    catalogue = with_gaps(
        R431, "config_names", "config_resources", "java_minimum",
        config_names=frozenset(), config_resources=frozenset(), java_minimum=None,
    )  # fmt: skip
    assert "log.message.format.version" in removed_config_names(RELEASED, R391, R431)
    assert not removed_config_names(catalogue, R391, R431)
    assert not lacking_settings(catalogue, [R431])
    assert not java_findings(SEPARATE, catalogue, [R431], {})
