"""Leaderless partitions that the controllers of a release elect by themselves, from a replica that is not in sync."""

from __future__ import annotations

import pytest

from kafka_rollout.base.findings import Finding, Severity
from kafka_rollout.model.configs import DynamicConfigs
from kafka_rollout.model.state import PartitionState
from kafka_rollout.model.unclean_elections import ENABLE, unclean_elections
from kafka_rollout.planning.findings.unclean_elections import (
    unclean_election_findings,
    unknown_unclean_elections,
)
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from tests.paths import INCLUDE
from tests.unit.builders import SEPARATE, partition

CATALOGUE = load_catalogue(INCLUDE)

R372, R381, R391, R431 = Release(3, 7, 2), Release(3, 8, 1), Release(3, 9, 1), Release(4, 3, 1)
LEADERLESS = partition("orders", 0, [4, 5, 6], isr=[4], leader=-1)
ON = DynamicConfigs(topics={"orders": {ENABLE: "true"}})


def found(
    path: tuple[Release, ...],
    dynamic: DynamicConfigs = ON,
    configs: dict[int, dict[str, str]] | None = None,
    *partitions: PartitionState,
) -> list[Finding]:
    shown = partitions or (LEADERLESS, partition("fine", 0, [4, 5, 6]))
    read = {node.node_id: {} for node in SEPARATE.nodes} | (configs or {})
    elections = unclean_elections(SEPARATE, dynamic, read)
    return list(unclean_election_findings(CATALOGUE, path, shown, elections))


@pytest.mark.parametrize(
    ("path", "severity"),
    [((R372, R431), Severity.BLOCKER), ((R391, R431), Severity.WARNING), ((R431, R391), Severity.WARNING)],
)
def test_the_first_release_that_elects_decides(path: tuple[Release, ...], severity: Severity) -> None:
    (one,) = found(path)
    assert (one.subject, one.severity) == ("topic orders", severity)
    assert "1 partition of orders (0) have no leader" in one.sentence


def test_releases_that_do_not_elect_by_themselves_have_no_finding() -> None:
    assert found((R372, R381)) == []


@pytest.mark.parametrize(
    ("dynamic", "configs", "number"),
    [
        (DynamicConfigs(), None, 0),
        (DynamicConfigs(all_brokers={ENABLE: "true"}), None, 1),
        (DynamicConfigs(topics={"orders": {ENABLE: "false"}}, all_brokers={ENABLE: "true"}), None, 0),
        (DynamicConfigs(), {1: {ENABLE: "TRUE"}}, 1),  # a controller
        (DynamicConfigs(), {4: {ENABLE: "true"}}, 0),  # a broker, which elects nothing
        (DynamicConfigs(all_brokers={ENABLE: "false"}), {1: {ENABLE: "true"}}, 0),
        (DynamicConfigs(all_brokers={ENABLE: "false"}, brokers={1: {ENABLE: "true"}}), None, 1),
        (DynamicConfigs(brokers={2: {ENABLE: "true"}}), {2: {ENABLE: "false"}}, 1),
        (DynamicConfigs(brokers={4: {ENABLE: "true"}}), None, 0),  # a broker
        (DynamicConfigs(brokers={1: {ENABLE: "false"}}, all_brokers={ENABLE: "true"}), None, 1),  # controllers 2 and 3
        (
            DynamicConfigs(brokers={one: {ENABLE: "false"} for one in (1, 2, 3)}, all_brokers={ENABLE: "true"}),
            {1: {ENABLE: "true"}},
            0,
        ),
    ],
)
def test_the_value_is_that_of_the_topic_else_of_a_controller_else_of_all_brokers_else_of_its_file(
    dynamic: DynamicConfigs, configs: dict[int, dict[str, str]] | None, number: int
) -> None:
    assert len(found((R372, R431), dynamic, configs)) == number


def test_without_a_replica_outside_the_isr_there_is_nothing_to_elect() -> None:
    whole = partition("orders", 0, [4], isr=[4], leader=-1, min_isr=1)
    assert found((R372, R431), ON, None, whole) == []


@pytest.mark.parametrize(
    ("dynamic", "configs", "is_known"),
    [
        (DynamicConfigs(), {2: {}, 3: {}}, False),
        (DynamicConfigs(), {1: {ENABLE: "${file:/etc/x:y}"}, 2: {}, 3: {}}, False),
        (DynamicConfigs(), {1: {}, 2: {}, 3: {}}, True),
        (DynamicConfigs(all_brokers={ENABLE: "false"}), {}, True),
        (DynamicConfigs(topics={"orders": {ENABLE: "false"}}), {}, True),
        (DynamicConfigs(), {1: {ENABLE: "true"}}, True),
    ],
)
def test_a_file_of_a_controller_that_decides_and_is_unknown_makes_the_check_unknown(
    dynamic: DynamicConfigs, configs: dict[int, dict[str, str]], is_known: bool
) -> None:
    def unknown(*partitions: PartitionState, path: tuple[Release, ...] = (R372, R431)) -> str:
        return unknown_unclean_elections(CATALOGUE, path, partitions, unclean_elections(SEPARATE, dynamic, configs))

    assert (unknown(LEADERLESS) == "") is is_known
    assert unknown(partition("fine", 0, [4, 5, 6])) == ""
    assert unknown(LEADERLESS, path=(R372, R381)) == ""
