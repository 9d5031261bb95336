"""What a restart brings into effect: lines of the files that the processes have not read."""

from __future__ import annotations

import pytest

from kafka_rollout.model.configs import HIDDEN, ConfigSource, ConfigTable, EffectiveConfigs, Setting
from kafka_rollout.planning.findings.configuration import pending_findings

FILE, DEFAULT, NODE = ConfigSource.FILE, ConfigSource.DEFAULT, ConfigSource.NODE


def sentences(configs: dict[int, dict[str, str]], used: dict[str, dict[str, Setting]]) -> list[str]:
    effective = EffectiveConfigs(brokers=ConfigTable.of_resources(used))
    return [finding.sentence for finding in pending_findings(sorted(configs), configs, effective)]


def test_a_new_a_changed_and_a_removed_line_are_named_with_their_nodes() -> None:
    used = {
        "num.io.threads": Setting("8", DEFAULT),
        "log.retention.ms": Setting("1000", FILE),
        "compression.type": Setting("zstd", FILE),
    }
    lines = {"num.io.threads": "16", "log.retention.ms": "2000"}
    kept = {"log.retention.ms": "1000", "compression.type": "zstd"}
    assert sentences({1: lines, 2: lines, 3: kept}, {"1": used, "2": used, "3": used}) == [
        "compression.type of nodes 1, 2 is zstd now, and the default after the restart.",
        "log.retention.ms of nodes 1, 2 is 1000 now, and 2000 after the restart.",
        "num.io.threads of nodes 1, 2 is 8 now, and 16 after the restart.",
    ]


@pytest.mark.parametrize(
    ("line", "setting"),
    [
        ("a:1, b:2", Setting("a:1,b:2", FILE)),
        ("True", Setting("true", FILE)),
        ("${file:/secrets:x}", Setting("seen", FILE)),
        ("new", Setting(HIDDEN, FILE)),
        ("8", Setting("16", NODE)),
        ("", Setting(None, DEFAULT)),
    ],
)
def test_a_line_that_changes_nothing_or_cannot_be_compared_is_no_finding(line: str, setting: Setting) -> None:
    assert sentences({1: {"setting": line}}, {"1": {"setting": setting}}) == []


def test_a_new_line_of_a_setting_without_a_value_is_not_quoted_because_it_can_be_a_secret() -> None:
    assert sentences({1: {"ssl.key.password": "never-shown"}}, {"1": {"ssl.key.password": Setting(None, DEFAULT)}}) == [
        "ssl.key.password of node 1 is empty now, and as in the file after the restart."
    ]


def test_a_value_that_kafka_derives_from_another_line_is_no_finding() -> None:
    used = {"broker.id": Setting("1", FILE), "node.id": Setting("1", FILE)}
    assert sentences({1: {"node.id": "1"}}, {"1": used}) == []


def test_a_controller_whose_values_kafka_does_not_show_is_no_finding() -> None:
    assert sentences({1: {"num.io.threads": "16"}}, {"2": {"num.io.threads": Setting("8", DEFAULT)}}) == []
