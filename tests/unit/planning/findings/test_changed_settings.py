"""Findings about changed defaults and removed settings, with the catalogue's facts of real releases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest

from kafka_rollout.base.findings import Finding, Severity
from kafka_rollout.model.plan import ConfigChange
from kafka_rollout.planning.findings.changed_settings import changed_setting_findings
from kafka_rollout.planning.findings.configuration import planned_configs
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Catalogue, Release
from tests.paths import INCLUDE
from tests.unit.builders import SEPARATE

R352, R391, R401, R421, R422, R431 = (Release.parse(t) for t in ("3.5.2", "3.9.1", "4.0.1", "4.2.1", "4.2.2", "4.3.1"))
AFTER, BEFORE = "log.message.timestamp.after.max.ms", "log.message.timestamp.before.max.ms"
UNLIMITED = "9223372036854775807"
NODES = tuple(node.node_id for node in SEPARATE.nodes)
BROKERS = tuple(node.node_id for node in SEPARATE.brokers)


@cache
def released() -> Catalogue:
    return load_catalogue(INCLUDE)


def findings(
    *path: Release,
    config: Mapping[str, str] | None = None,
    dynamic: Mapping[int, Mapping[str, str]] | None = None,
    changes: tuple[ConfigChange, ...] = (),
    catalogue: Catalogue | None = None,
) -> dict[tuple[str, str], Finding]:
    files = planned_configs(path, {node_id: {"log.dirs": "/data", **(config or {})} for node_id in NODES}, changes)
    found = changed_setting_findings(SEPARATE, catalogue or released(), path, files, dynamic or {})
    return {finding.identity: finding for finding in found}


def default_of(name: str) -> tuple[str, str]:
    return ("CONFIG-DEFAULT-CHANGES", f"configuration {name}")


OTHERS = ("CONFIG-DEFAULT-CHANGES", "configuration, other settings")


def test_a_default_that_rejects_records_of_producers_must_be_read_before_the_approval() -> None:
    found = findings(R391, R431)[default_of(AFTER)]
    assert found.severity is Severity.WARNING
    assert f"from {UNLIMITED} (Kafka 3.9.1) to 3600000 (Kafka 4.3.1)" in found.sentence
    assert f"nodes {', '.join(map(str, BROKERS))} do not set it" in found.sentence  # controllers store no records
    assert "more than 3600000 ms in the future" in found.sentence
    assert f'`{AFTER}: "{UNLIMITED}"` to release_overrides of 4.3.1' in found.remedy


def test_a_release_without_the_setting_has_no_limit() -> None:
    found = findings(R352, R391, R431)[default_of(AFTER)]
    assert f"from {UNLIMITED} (Kafka 3.5.2) to 3600000 (Kafka 4.3.1)" in found.sentence


def test_a_value_in_the_file_or_in_the_dynamic_configuration_keeps_its_effect() -> None:
    assert default_of(AFTER) not in findings(R391, R431, config={AFTER: UNLIMITED})
    everywhere = {node_id: {AFTER: "1"} for node_id in BROKERS}
    assert default_of(AFTER) not in findings(R391, R431, dynamic=everywhere)
    one = findings(R391, R431, dynamic={BROKERS[0]: {AFTER: "1"}})[default_of(AFTER)]
    assert f"nodes {', '.join(map(str, BROKERS[1:]))} do not set it" in one.sentence


def test_a_value_that_the_inventory_adds_on_the_way_stays_for_the_releases_after_it() -> None:
    pinned = tuple(
        ConfigChange(node_id=node_id, release=R401, key=AFTER, value=UNLIMITED, reason="") for node_id in BROKERS
    )
    assert default_of(AFTER) not in findings(R391, R401, R431, changes=pinned)
    too_late = tuple(replace(change, release=R431) for change in pinned)
    found = findings(R391, R401, R431, changes=too_late)[default_of(AFTER)]
    assert "release_overrides of 4.0.1" in found.remedy


def test_further_defaults_are_one_finding_with_old_and_new_value() -> None:
    found = findings(R391, R401, R431)[OTHERS]
    assert found.severity is Severity.INFO
    assert "group.coordinator.threads 1 → 4" in found.sentence
    assert "group.coordinator.append.linger.ms 10 → -1" in found.sentence  # 5 on the way
    assert "group.consumer.assignment.interval.ms 0 → 1000" in found.sentence
    assert "group.streams." not in found.sentence  # 3.9 has no streams groups
    assert "remote." not in found.sentence  # tiered storage is off
    assert "inter.broker.protocol.version" not in found.sentence
    tiered = findings(R391, R431, config={"remote.log.storage.system.enable": "true"})[OTHERS]
    assert "remote.log.manager.thread.pool.size 10 → 2" in tiered.sentence


def test_a_downgrade_reports_the_defaults_that_change_back_without_the_effects_of_an_upgrade() -> None:
    found = findings(R431, R391)
    assert set(found) == {OTHERS}
    assert f"{AFTER} 3600000 → {UNLIMITED}" in found[OTHERS].sentence
    assert "reject" not in found[OTHERS].sentence


def test_patch_releases_with_the_same_defaults_have_no_finding() -> None:
    assert findings(R401, Release.parse("4.0.2")) == {}
    assert findings(R431) == {}


def test_unknown_defaults_are_not_compared() -> None:
    facts = released().get(R431)
    gap = replace(facts, config_defaults={}, gaps={"config_defaults": "unknown"})
    unknown = Catalogue({**released().releases, R431: gap})
    assert findings(R391, R431, catalogue=unknown) == {}


def replaced(name: str) -> tuple[str, str]:
    return ("CONFIG-REPLACED", f"configuration {name}")


def ignored(name: str) -> tuple[str, str]:
    return ("CONFIG-UNKNOWN-TO-TARGET", f"configuration {name}")


def test_delegation_tokens_that_would_be_switched_off_are_a_blocker() -> None:
    master, secret = "delegation.token.master.key", "delegation.token.secret.key"
    found = findings(R391, R431, config={master: "k"})[replaced(master)]
    assert found.severity is Severity.BLOCKER
    assert "every client with a token would fail to authenticate" in found.sentence
    assert secret in found.remedy
    both = findings(R391, R431, config={master: "k", secret: "k"})
    assert replaced(master) not in both
    assert both[ignored(master)].severity is Severity.INFO
    assert replaced(master) not in findings(R352, R391, config={master: "k"})


def test_a_limit_of_timestamps_that_would_be_lost_is_a_blocker() -> None:
    difference = "log.message.timestamp.difference.max.ms"
    found = findings(R391, R431, config={difference: "60000"})[replaced(difference)]
    assert found.severity is Severity.BLOCKER
    assert all(text in found.remedy for text in (BEFORE, AFTER, "4.3.1"))
    assert replaced(difference) in findings(R391, R431, config={difference: "60000", AFTER: "60000"})
    assert replaced(difference) in findings(R391, R431, config={difference: "${file:/etc/limits:difference}"})
    assert replaced(difference) not in findings(R391, R431, config={difference: UNLIMITED})
    pinned = tuple(
        ConfigChange(node_id=node_id, release=R431, key=key, value="60000", reason="")
        for node_id in NODES
        for key in (AFTER, BEFORE)
    )
    assert replaced(difference) not in findings(R391, R431, config={difference: "60000"}, changes=pinned)


@pytest.mark.parametrize(
    ("config", "lost"),
    [
        ({}, False),
        ({"metric.reporters": "com.example.Reporter"}, True),
        ({"metric.reporters": ""}, True),
        ({"metric.reporters": "com.example.Reporter", "auto.include.jmx.reporter": "false"}, False),
        ({"metric.reporters": "com.example.Reporter, org.apache.kafka.common.metrics.JmxReporter"}, False),
        ({"metric.reporters": "${vault:kafka:reporters}"}, True),
    ],
)
def test_metrics_that_would_disappear_from_jmx_are_a_blocker(config: Mapping[str, str], *, lost: bool) -> None:
    found = findings(R391, R431, config=config).get(replaced("metric.reporters"))
    assert (found is not None and found.severity is Severity.BLOCKER) is lost
    assert replaced("metric.reporters") not in findings(R421, R431, config=config)


def test_a_removed_setting_without_use_in_kraft_needs_no_replacement() -> None:
    found = findings(R391, R431, config={"inter.broker.protocol.version": "3.9"})
    assert found[ignored("inter.broker.protocol.version")].severity is Severity.INFO


def test_any_other_removed_setting_is_a_warning() -> None:
    found = findings(R422, R431, config={"max.decompressed.message.bytes": "1000000", "my.own.key": "1"})
    assert found[ignored("max.decompressed.message.bytes")].severity is Severity.WARNING
    assert "my.own.key" not in str(found)
