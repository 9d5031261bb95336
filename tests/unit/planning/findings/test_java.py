"""The newest Java of each release, and the nodes that cannot log in with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.findings import Severity
from kafka_rollout.planning.findings.configuration import java_maximum_findings
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from tests.paths import INCLUDE
from tests.unit.builders import SEPARATE

R381, R390, R391, R431 = Release(3, 8, 1), Release(3, 9, 0), Release(3, 9, 1), Release(4, 3, 1)
IDS = [node.node_id for node in SEPARATE.nodes]
SASL = {
    "process.roles": "broker",
    "listeners": "IN://:9092",
    "inter.broker.listener.name": "IN",
    "listener.security.protocol.map": "IN:SASL_SSL,CTL:PLAINTEXT",
    "controller.listener.names": "CTL",
}
TLS = {**SASL, "listener.security.protocol.map": "IN:SSL,CTL:SSL"}
ONLY_CONTROLLERS = {**SASL, "listener.security.protocol.map": "IN:SSL,CTL:SASL_PLAINTEXT"}


def found(config: dict[str, str] | None, java: int, *releases: Release, **terms: Release) -> list[tuple[str, Severity]]:
    configs = {release: {} if config is None else dict.fromkeys(IDS, config) for release in releases}
    catalogue = load_catalogue(INCLUDE)
    findings = java_maximum_findings(SEPARATE, catalogue, configs, dict.fromkeys(IDS, java), **terms)
    return [(finding.subject, finding.severity) for finding in findings]


@pytest.mark.parametrize("config", [SASL, ONLY_CONTROLLERS])
def test_a_node_that_logs_in_with_sasl_cannot_run_an_old_release_with_a_new_java(config: dict[str, str]) -> None:
    assert len(found(config, 25, R381)) == len(IDS)
    assert found(config, 25, R381)[0] == ("node 1, release 3.8.1", Severity.BLOCKER)
    assert found(config, 23, R390)
    assert not found(config, 22, R381, R390)
    assert not found(config, 25, R391, R431)


def test_without_sasl_between_nodes_every_java_works() -> None:
    clients = {
        **TLS,
        "listeners": "IN://:9092,OUT://:9093",
        "listener.security.protocol.map": "IN:SSL,OUT:SASL_SSL,CTL:SSL",
    }
    assert not found(TLS, 25, R381)
    assert not found(clients, 25, R381)  # only clients log in


def test_what_is_unknown_does_not_count_as_without_sasl() -> None:
    hidden = {**TLS, "listener.security.protocol.map": "${file:/a:b}"}
    assert found(hidden, 25, R381)[0][1] is Severity.BLOCKER
    assert found(None, 25, R381)[0][1] is Severity.BLOCKER
    unmanaged = replace(SEPARATE, runtime="none")
    (first, *_) = java_maximum_findings(unmanaged, load_catalogue(INCLUDE), {R381: {}}, dict.fromkeys(IDS, 25))
    assert first.severity is Severity.WARNING


def test_the_source_needs_an_old_java_only_for_a_rollback() -> None:
    assert {one[1] for one in found(SASL, 25, R390, R431, rollback_to=R390)} == {Severity.WARNING}


def test_the_remedy_names_the_first_release_without_the_limit() -> None:
    (first, *_) = java_maximum_findings(SEPARATE, load_catalogue(INCLUDE), {R381: {1: SASL}}, {1: 25})
    assert "Java 17 or 21" in first.remedy
    assert "3.9.1" in first.remedy
    assert "getSubject is not supported" in first.sentence
