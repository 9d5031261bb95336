"""Versions of vendors and patch releases without facts are evaluated by a release that the finding names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.findings import Finding, Severity, all_findings
from kafka_rollout.model.state import NodeState
from kafka_rollout.planning.findings.cluster_state import check_cluster
from kafka_rollout.planning.findings.releases import reported_release_findings
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Catalogue, Release
from kafka_rollout.releases.reported import identify_release
from tests.paths import INCLUDE
from tests.unit.builders import SEPARATE, node_state, state

RELEASED = load_catalogue(INCLUDE)


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("3.9.1", "3.9.1"),
        ("7.9.1-ccs", "3.9.0"),
        ("7.4.11-ce", "3.4.0"),
        ("8.0.2-ccs", "4.0.0"),
        ("3.9.0.redhat-00003", "3.9.0"),
        ("3.4.1.7.3.1.0-197", "3.4.1"),
        ("3.9.1-custom", "3.9.1"),
        ("3.9.7", "3.9.2"),
        ("3.9.7.redhat-00001", "3.9.2"),
        ("7.9.1", "7.9.1"),
        ("6.2.0-ccs", None),
        ("trunk", None),
        ("", None),
    ],
)
def test_a_reported_version_is_evaluated_as(text: str, release: str | None) -> None:
    found = identify_release(text, RELEASED, {}).release
    assert (None if found is None else str(found)) == release


def test_the_inventory_overrides_the_rules_and_adds_to_them() -> None:
    overrides = {"7.9.1-ccs": "3.9.1", "trunk": "4.4.0"}
    assert identify_release("7.9.1-ccs", RELEASED, overrides).release == Release(3, 9, 1)
    assert identify_release("trunk", RELEASED, overrides).release == Release(4, 4, 0)


def without(*releases: Release) -> Catalogue:
    return Catalogue({one: facts for one, facts in RELEASED.releases.items() if one not in releases}, RELEASED.vendors)


def test_a_patch_release_between_two_others_is_evaluated_by_both() -> None:
    found = identify_release("3.9.1", without(Release(3, 9, 1)), {})
    assert (found.release, found.neighbours) == (Release(3, 9, 0), (Release(3, 9, 0), Release(3, 9, 2)))
    first = identify_release("3.9.0", without(Release(3, 9, 0)), {})
    assert (first.release, first.neighbours) == (Release(3, 9, 1), (Release(3, 9, 1),))


def reporting(version: str, release: Release | None) -> NodeState:
    known = node_state(1)
    assert known.metrics is not None
    return replace(known, metrics=replace(known.metrics, release=release, version=version))


def findings(version: str, catalogue: Catalogue = RELEASED, **inventory: object) -> list[Finding]:
    cluster = replace(SEPARATE, **inventory)
    release = identify_release(version, catalogue, cluster.apache_releases).release
    seen = reporting(version, release)
    return list(reported_release_findings(cluster, catalogue, state(nodes={1: seen})))


def test_a_release_of_the_catalogue_has_no_finding() -> None:
    assert findings("3.9.1") == []


def test_the_mapping_of_a_vendors_build_is_stated() -> None:
    (found,) = findings("3.9.0.redhat-00003")
    assert (found.code, found.severity, found.subject) == (
        "RELEASE-MAPPED",
        Severity.INFO,
        "release 3.9.0.redhat-00003",
    )
    assert (
        "Node 1 reports version 3.9.0.redhat-00003: Red Hat Streams for Apache Kafka, based on 3.9.0." in found.sentence
    )
    assert "evaluated as Apache Kafka 3.9.0, and a rollback installs this release" in found.sentence


def test_a_build_whose_patch_release_is_unknown_is_a_warning_until_the_inventory_names_it() -> None:
    (found,) = findings("7.9.1-ccs")
    assert (found.code, found.severity) == ("RELEASE-MAPPED", Severity.WARNING)
    assert "based on 3.9. It is evaluated as Apache Kafka 3.9.0" in found.sentence
    assert "The patch releases of 3.9 differ in: java_maximum_with_sasl, features, coordinator_logs" in found.sentence
    assert "apache_releases" in found.remedy
    (mapped,) = findings("7.9.1-ccs", apache_releases={"7.9.1-ccs": "3.9.1"})
    assert (mapped.severity, "the inventory maps it to 3.9.1" in mapped.sentence) == (Severity.INFO, True)


def test_an_unknown_patch_release_is_a_warning_that_names_its_neighbours() -> None:
    (found,) = findings("3.9.7")
    assert (found.code, found.severity) == ("RELEASE-BY-NEIGHBOURS", Severity.WARNING)
    assert "evaluated as 3.9.2, by 3.9.2." in found.sentence
    assert "kafka-rollout-derive add 3.9.7" in found.remedy


def test_neighbours_with_different_facts_block() -> None:
    catalogue = without(Release(3, 9, 1))
    changed = replace(catalogue.get(Release(3, 9, 2)), java_minimum=99)
    differing = Catalogue({**catalogue.releases, changed.release: changed}, catalogue.vendors)
    (found,) = findings("3.9.1", differing)
    assert (found.code, found.severity) == ("RELEASE-BY-NEIGHBOURS", Severity.BLOCKER)
    assert "by 3.9.0 and 3.9.2" in found.sentence
    assert "java_minimum" in found.sentence


def test_a_version_without_a_rule_is_named() -> None:
    all_of = all_findings(check_cluster(SEPARATE, RELEASED, state(nodes={1: reporting("6.2.0-ccs", None)})))
    (found,) = [one for one in all_of if "6.2.0-ccs" in one.sentence]
    assert found.code == "RELEASE-UNKNOWN"
    assert "apache_releases" in found.remedy
