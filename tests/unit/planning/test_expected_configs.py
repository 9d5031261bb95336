"""Expected changes of the effective configuration, by the catalogue's facts and as real brokers reported them."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from kafka_rollout.model.configs import (
    ConfigSource,
    ConfigTable,
    EffectiveConfigs,
    ExpectedConfigs,
    Setting,
)
from kafka_rollout.model.contents import ClusterInventory, compare_states, new_settings
from kafka_rollout.model.plan import ConfigChange, DefaultChange, Direction, Plan, ReleaseStep
from kafka_rollout.planning.findings.configuration import find_expected_configs
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Catalogue, Release
from tests.paths import FIXTURES, INCLUDE
from tests.unit.builders import R340, R341, R391, R431

MIN_ISR = "min.insync.replicas"
MEASURED = json.loads((FIXTURES / "effective-configs.json").read_text())


@pytest.fixture(scope="module")
def released() -> Catalogue:
    return load_catalogue(INCLUDE)


def plan(
    source: Release = R391,
    target: Release = R431,
    *,
    via: Release | None = None,
    rolls: bool = True,
    lines: tuple[ConfigChange, ...] = (),
    dynamic: tuple[DefaultChange, ...] = (),
) -> Plan:
    path = [source, *([] if via is None else [via]), target]
    steps = (ReleaseStep(from_release=one, to_release=to, reason="", order=()) for one, to in pairwise(path))
    return Plan(
        cluster="orders",
        cluster_id="id",
        direction=Direction.UPGRADE,
        source=source,
        target=target,
        release_steps=tuple(steps) if rolls else (),
        feature_changes=(),
        config_changes=lines,
        findings=(),
        default_changes=dynamic,
    )


def measured(release: str) -> ClusterInventory:
    def table(kind: str) -> ConfigTable:
        return ConfigTable.of_resources(
            {
                name: {key: Setting(value, ConfigSource(source)) for key, (value, source) in settings.items()}
                for name, settings in MEASURED[release][kind].items()
            }
        )

    effective = EffectiveConfigs(brokers=table("brokers"), topics=table("topics"))
    empty: dict[str, dict[str, str]] = {}
    return ClusterInventory(
        topics=empty,
        ends={},
        groups=empty,
        configs=empty,
        acls=(),
        scram=empty,
        quotas={},
        unasked={},
        effective=effective,
    )


@pytest.mark.parametrize(("source", "target"), [(R391, R431), (R431, R391)], ids=["up", "down"])
def test_a_plain_roll_of_real_brokers_has_no_difference_that_counts(
    released: Catalogue, source: Release, target: Release
) -> None:
    expected = find_expected_configs(plan(source, target), released)
    found = compare_states(measured(str(source)), measured(str(target)), expected)
    assert all(one.foretold for one in found), [one.sentence for one in found if not one.foretold]
    assert len(found) > 80
    listed = new_settings(found)
    assert any(
        one.startswith("group.streams.max.size = " if target == R431 else "zookeeper.set.acl = ") for one in listed
    )


def test_a_value_that_the_release_does_not_explain_counts(released: Catalogue) -> None:
    before, after = measured("3.9.1"), measured("4.3.1")
    brokers = {"1": {**after.effective.brokers.settings("1"), MIN_ISR: Setting("1", ConfigSource.ALL_BROKERS)}}
    changed = EffectiveConfigs(brokers=ConfigTable.of_resources(brokers), topics=after.effective.topics)
    found = compare_states(before, _with(after, changed), find_expected_configs(plan(), released))
    assert [one.subject for one in found if one.fails] == ["min.insync.replicas of broker 1"]


def _with(inventory: ClusterInventory, effective: EffectiveConfigs) -> ClusterInventory:
    return replace(inventory, effective=effective)


def test_lines_and_dynamic_values_of_the_plan_are_expected_at_the_target_release(released: Catalogue) -> None:
    def line(release: Release, value: str | None) -> ConfigChange:
        return ConfigChange(node_id=1, release=release, key="background.threads", value=value, reason="")

    def pin(key: str, after: str | None, node_id: int | None = None) -> DefaultChange:
        return DefaultChange(key=key, node_id=node_id, before=None, after=after, by_run=True)

    found = find_expected_configs(
        plan(lines=(line(R391, "2"), line(R431, "5")), dynamic=(pin(MIN_ISR, "2"), pin(MIN_ISR, None, 3))), released
    )
    assert found.files == {1: {"background.threads": "5"}}
    two_steps = plan(R340, via=R341, lines=(line(R341, "3"), line(R340, "2")))
    assert find_expected_configs(two_steps, released).files == {1: {"background.threads": "3"}}
    assert found.dynamic == {"brokers": {MIN_ISR: "2"}, "broker 3": {MIN_ISR: None}}
    assert found.defaults["group.coordinator.threads"] == ("1", "4")
    assert found.defaults["sasl.oauthbearer.expected.audience"] == (None, "")
    assert "group.streams.max.size" in found.new
    assert "log.message.format.version" in found.removed


def test_a_run_that_replaces_no_node_expects_no_other_default(released: Catalogue) -> None:
    assert find_expected_configs(plan(rolls=False), released) == ExpectedConfigs()


def test_facts_that_the_catalogue_lacks_explain_nothing(released: Catalogue) -> None:
    gaps = {"config_names": "unknown", "config_defaults": "unknown"}
    without = Catalogue({**released.releases, R391: replace(released.get(R391), gaps=gaps)})
    assert find_expected_configs(plan(), without) == ExpectedConfigs()
