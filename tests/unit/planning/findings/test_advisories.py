from __future__ import annotations

from functools import cache

from kafka_rollout.base.findings import Finding, Severity
from kafka_rollout.planning.findings.releases import advisory_findings
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import METADATA_VERSION, Catalogue, Release
from tests.paths import INCLUDE


@cache
def released() -> Catalogue:
    return load_catalogue(INCLUDE)


def findings(*path: str, level: int = 30) -> dict[str, Finding]:
    releases = [Release.parse(text) for text in path]
    found = advisory_findings(released(), releases, {METADATA_VERSION: level})
    return {finding.subject: finding for finding in found}


def test_a_defect_of_the_source_of_a_release_on_the_way_and_of_the_target_is_shown_with_its_source() -> None:
    found = findings("3.5.1", "4.1.0", "4.2.0")
    assert "Kafka 3.5.1, KAFKA-15353" in found
    assert "Kafka 4.1.0, KAFKA-19862" in found
    target = found["Kafka 4.2.0, KAFKA-20322"]
    assert (target.code, target.severity) == ("RELEASE-ADVISORY", Severity.WARNING)
    assert target.sentence.endswith("Source: upgrade notes of 4.2.1.")
    assert target.remedy == "Use 4.2.1 or later."


def test_a_corrected_release_does_not_have_the_defect() -> None:
    assert not any("KAFKA-20322" in subject for subject in findings("4.2.1", "4.3.1"))
    assert not any("KAFKA-15353" in subject for subject in findings("3.5.2", "3.9.1"))


def test_a_defect_of_clients_is_information() -> None:
    found = findings("3.9.1", "4.1.0")
    assert found["Kafka 3.9.1, 4.1.0, KAFKA-19012"].severity is Severity.INFO


def test_a_defect_of_low_levels_ends_at_the_level() -> None:
    subject = "Kafka 3.9.1, 4.3.1, KAFKA-16606"
    assert subject in findings("3.9.1", "4.3.1", level=16)
    assert subject not in findings("3.9.1", "4.3.1", level=17)


def test_every_advisory_concerns_a_release_of_the_catalogue() -> None:
    catalogue = released()
    assert len({advisory.id for advisory in catalogue.advisories}) == len(catalogue.advisories) > 10
    for advisory in catalogue.advisories:
        assert any(advisory.affects(release) for release in catalogue), advisory.id
