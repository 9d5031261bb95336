from __future__ import annotations

from collections.abc import Mapping

import pytest

from kafka_rollout.base.findings import Severity
from kafka_rollout.features.min_isr import MinIsr, MinIsrEffects, find_min_isr_effects
from kafka_rollout.model.configs import SettingValues

BOOTSTRAP = "localhost:9092"
TWO = {1: "2", 2: "2", 3: "2"}
UNSET = {101: {"1"}, 102: {"1"}, 103: {"1"}}  # separate controllers without the setting
TOPICS = {"orders": {1, 2, 3}}


def _effects(
    brokers: Mapping[int, str] = TWO,
    *,
    default: str | None = None,
    own: Mapping[int, str] | None = None,
    files: Mapping[int, set[str]] = UNSET,
    topics: Mapping[str, set[int]] = TOPICS,
    pin: bool = False,
    unknown: tuple[str, ...] = (),
    unread: tuple[str, ...] = (),
) -> MinIsrEffects:
    values = SettingValues(default=default, brokers=brokers, own=own or {})
    found = MinIsr(values=values, files=files, topics=topics, unknown=unknown, unread=unread)
    return find_min_isr_effects(found, pin=pin, bootstrap_servers=BOOTSTRAP)


def _shown(effects: MinIsrEffects) -> list[tuple[int | None, str | None, str | None, bool]]:
    return [(c.node_id, c.before, c.after, c.by_run) for c in effects.changes]


def test_a_controller_without_the_setting_would_lower_every_topic_that_inherits_it() -> None:
    effects = _effects()
    (found,) = effects.findings
    assert (found.code, found.severity) == ("ELR-CHANGES-MIN-ISR", Severity.BLOCKER)
    assert "cluster-wide default: 1 (1 on nodes 101, 102, 103). The effective value is 2 on nodes 1, 2, 3." in (
        found.sentence
    )
    assert "1 topic without an own value would get it: orders" in found.sentence
    assert (
        "kafka-configs.sh --bootstrap-server localhost:9092 --alter --entity-type brokers --entity-default "
        "--add-config min.insync.replicas=2" in found.remedy
    )
    assert "--pin-min-insync-replicas" in found.remedy
    assert not effects.changes


def test_with_the_pin_the_run_sets_the_present_value_and_nothing_changes() -> None:
    effects = _effects(pin=True)
    assert [found.severity for found in effects.findings] == [Severity.INFO]
    assert "in the files of the brokers has no effect" in effects.findings[0].sentence
    assert "--entity-default" in effects.findings[0].sentence
    assert _shown(effects) == [(None, None, "2", True)]


def test_controllers_with_the_value_of_the_brokers_write_it_as_the_default() -> None:
    effects = _effects(files={101: {"2"}, 102: {"2"}, 103: {"2"}})
    assert [found.severity for found in effects.findings] == [Severity.INFO]
    assert _shown(effects) == [(None, None, "2", False)]


def test_one_controller_with_another_value_is_enough_because_any_can_become_active() -> None:
    (found,) = _effects(files={101: {"2"}, 102: {"2"}, 103: {"3"}}).findings
    assert found.severity is Severity.BLOCKER
    assert "2 or 3 (2 on nodes 101, 102; 3 on node 103)" in found.sentence


def test_a_file_that_differs_from_the_process_counts_too() -> None:
    (found,) = _effects(files={101: {"2", "1"}}).findings
    assert found.severity is Severity.BLOCKER


def test_an_existing_default_decides_and_no_file_matters() -> None:
    effects = _effects(default="2", files={}, unread=("Controller 101 did not answer.",))
    assert effects == MinIsrEffects()


def test_the_value_of_one_broker_is_deleted_and_the_default_changes_its_topics() -> None:
    effects = _effects({1: "2", 2: "2", 3: "1"}, default="2", own={3: "1"})
    (found,) = effects.findings
    assert found.severity is Severity.BLOCKER
    assert "The effective value is 1 on node 3." in found.sentence
    assert "deletes the dynamic min.insync.replicas of node 3 (1)" in found.sentence
    assert "--entity-type topics" in found.remedy


def test_topics_without_a_replica_on_the_broker_are_not_named() -> None:
    (found,) = _effects(
        {1: "2", 2: "2", 3: "1"}, default="2", own={3: "1"}, topics={"orders": {1, 2}, "bills": {2, 3}}
    ).findings
    assert "bills" in found.sentence
    assert "orders" not in found.sentence


def test_a_deleted_value_that_equals_the_default_is_listed_and_changes_nothing() -> None:
    effects = _effects(default="2", own={3: "2"})
    (found,) = effects.findings
    assert found.severity is Severity.INFO
    assert "node 3 (2)" in found.sentence
    assert _shown(effects) == [(3, "2", None, False)]


def test_brokers_that_disagree_cannot_be_pinned() -> None:
    effects = _effects({1: "2", 2: "2", 3: "1"}, pin=True)
    (found,) = effects.findings
    assert found.severity is Severity.BLOCKER
    assert "cannot set one value" in found.remedy
    assert "orders" in found.sentence
    assert not effects.changes


def test_where_every_topic_has_its_own_value_only_later_topics_are_affected() -> None:
    (found,) = _effects(topics={}).findings
    assert found.severity is Severity.WARNING
    assert "Topics that are created later" in found.sentence


@pytest.mark.parametrize("pin", [False, True])
def test_brokers_without_an_answer_block_the_level(pin: bool) -> None:
    effects = _effects({1: "2"}, unknown=("Broker 2 did not report it.",), pin=pin)
    (found,) = effects.findings
    assert found.severity is Severity.BLOCKER
    assert "Broker 2 did not report it." in found.sentence


def test_controllers_without_an_answer_block_the_level_unless_the_run_pins_the_default() -> None:
    unread = ("The value of controller 101 is unknown.",)
    assert _effects(files={}, unread=unread).findings[0].severity is Severity.BLOCKER
    assert _effects(files={}).findings[0].severity is Severity.BLOCKER
    assert _shown(_effects(files={}, unread=unread, pin=True)) == [(None, None, "2", True)]


def test_controllers_that_were_not_queried_need_an_address_and_no_right() -> None:
    (found,) = _effects(files={}).findings
    assert "No controller was queried" in found.sentence
    assert (found.remedy.startswith("Add the controllers"), "right" in found.remedy) == (True, False)
    (refused,) = _effects(files={}, unread=("Controller 101 does not allow it.",)).findings
    assert "right DESCRIBE_CONFIGS on CLUSTER" in refused.remedy


def test_a_run_that_leaves_the_levels_to_a_later_run_warns() -> None:
    assert [found.severity for found in _effects().of_later_run().findings] == [Severity.WARNING]
    assert not _effects(pin=True).of_later_run().changes
