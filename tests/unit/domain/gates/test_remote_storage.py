"""Tiered storage of a started broker: initialised, not initialised, or named as not checked."""

from __future__ import annotations

import pytest

from kafka_rollout.domain.gates.check import Condition
from kafka_rollout.domain.gates.remote_storage import KAFKA_MANAGER, MANAGER_CLASS, SYSTEM_ENABLE, check_tiered_storage
from kafka_rollout.domain.model.releases import Release
from tests.unit.domain.builders import R340, R391, SEPARATE

NODE = SEPARATE.node(4)
ENABLED = {SYSTEM_ENABLE: "true"}


def line(level: str, message: str, logger: str = KAFKA_MANAGER) -> str:
    return f"[2026-11-24 02:14:07,123] {level} {message} ({logger})"


STARTED = line(
    "INFO", "Registered signal handlers for TERM, INT, HUP", "org.apache.kafka.common.utils.LoggingSignalHandler"
)
INITIALISED = line("INFO", "Initialized topic-based RLMM resources successfully")
TIMED_OUT = line("ERROR", "Timed out to initialize the resources within 120000 ms.")


def check(*log: str, config: dict[str, str] = ENABLED, release: Release = R391) -> Condition | None:
    return check_tiered_storage(NODE, config, release, log)


def condition(*log: str, config: dict[str, str] = ENABLED) -> Condition:
    checked = check(*log, config=config)
    assert checked is not None
    return checked


@pytest.mark.parametrize("config", [{}, {SYSTEM_ENABLE: "false"}])
def test_a_broker_without_tiered_storage_has_no_such_condition(config: dict[str, str]) -> None:
    assert check(STARTED, config=config) is None


def test_a_release_before_tiered_storage_ignores_the_setting() -> None:
    assert check(STARTED, release=R340) is None


def test_it_is_initialised_by_the_event_of_this_start() -> None:
    assert condition(STARTED, INITIALISED).is_met
    for log in ((STARTED,), (STARTED, INITIALISED, STARTED)):
        assert not condition(*log).is_met
    failed = condition(STARTED, TIMED_OUT)
    assert not failed.is_met
    assert "serves no remote data. Its log shows: Timed out to initialize" in failed.evidence


def test_a_manager_that_refuses_its_topic_is_not_initialised_although_it_says_so() -> None:
    """Kafka 3.6 to 4.1 log both, in this order."""
    other_count = "Existing topic partition count [2] is not same as the expected partition count [3]"
    refused = condition(STARTED, line("ERROR", other_count), INITIALISED)
    assert not refused.is_met
    assert other_count in refused.evidence
    retried = line("ERROR", "Encountered error while creating __remote_log_metadata topic.")
    assert condition(STARTED, retried, INITIALISED).is_met


def test_a_text_of_a_client_is_no_such_event() -> None:
    of_a_client = line("INFO", "Preparing to rebalance group Initialized topic-based RLMM resources successfully")
    assert not condition(STARTED, of_a_client).is_met
    elsewhere = line(
        "INFO", "Initialized topic-based RLMM resources successfully", "kafka.coordinator.group.GroupCoordinator"
    )
    assert not condition(STARTED, elsewhere).is_met


@pytest.mark.parametrize(
    ("log", "config", "why"),
    [
        ((), ENABLED, "the log of node 4 cannot be read, or does not show its last start"),
        ((INITIALISED,), ENABLED, "does not show its last start"),
        (("{}",), ENABLED, "does not show its last start"),
        (
            (STARTED,),
            {**ENABLED, MANAGER_CLASS: "com.example.Manager"},
            "com.example.Manager, whose state Kafka does not log",
        ),
        ((STARTED,), {SYSTEM_ENABLE: "${env:TIERED}"}, f"a config provider has {SYSTEM_ENABLE} of node 4"),
    ],
)
def test_what_the_log_cannot_show_is_named_as_not_checked(
    log: tuple[str, ...], config: dict[str, str], why: str
) -> None:
    checked = condition(*log, config=config)
    assert checked.is_met
    assert checked.evidence.startswith("not checked: ")
    assert why in checked.evidence
