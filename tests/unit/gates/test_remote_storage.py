"""Tiered storage of a started broker: initialised, with failing requests, or named as not checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kafka_rollout.gates.counters import REMOTE_REQUESTS, Unchecked
from kafka_rollout.gates.gate import GateCondition
from kafka_rollout.gates.remote_storage import (
    KAFKA_MANAGER,
    MANAGER_CLASS,
    SYSTEM_ENABLE,
    check_remote_requests,
    check_tiered_storage,
    tiered_brokers,
)
from kafka_rollout.model.counters import REMOTE_ERROR_RATES
from kafka_rollout.model.node_log import LogPart, read_part
from kafka_rollout.releases.facts import Release
from tests.unit.builders import R340, R391, SEPARATE, WELL_COUNTERS, node_state, replace_node, silent, state

NODE = SEPARATE.node(4)
ENABLED = {SYSTEM_ENABLE: "true"}


def line(level: str, message: str, logger: str = KAFKA_MANAGER) -> str:
    return f"[2026-11-24 02:14:07,123] {level} {message} ({logger})"


STARTED = line(
    "INFO", "Registered signal handlers for TERM, INT, HUP", "org.apache.kafka.common.utils.LoggingSignalHandler"
)
INITIALISED = line("INFO", "Initialized topic-based RLMM resources successfully")
TIMED_OUT = line("ERROR", "Timed out to initialize the resources within 120000 ms.")


def check(
    *log: str, config: dict[str, str] = ENABLED, release: Release = R391, accepted: dict[str, str] | None = None
) -> GateCondition | None:
    seen = read_part(None, LogPart(pid=77, started_at=1.0, lines=log, is_first=True))
    return check_tiered_storage(NODE, config, release, seen, accepted)


def condition(*log: str, config: dict[str, str] = ENABLED, accepted: dict[str, str] | None = None) -> GateCondition:
    checked = check(*log, config=config, accepted=accepted)
    assert checked is not None
    return checked


@pytest.mark.parametrize("config", [{}, {SYSTEM_ENABLE: "false"}])
def test_a_broker_without_tiered_storage_has_no_such_condition(config: dict[str, str]) -> None:
    assert check(STARTED, config=config) is None


def test_a_release_before_tiered_storage_ignores_the_setting() -> None:
    assert check(STARTED, release=R340) is None


def test_it_is_initialised_by_the_event_of_this_start() -> None:
    assert condition(STARTED, INITIALISED).is_met
    waits = condition(STARTED)
    assert not waits.is_met
    assert waits.doubts == (), "it can still initialise"
    failed = condition(STARTED, TIMED_OUT)
    assert not failed.is_met
    assert "its log shows: Timed out to initialize" in failed.evidence


@pytest.mark.parametrize("later", [(INITIALISED,), (STARTED, INITIALISED)], ids=["success", "start and success"])
def test_no_line_ends_an_error_but_an_approver_can_accept_it(later: tuple[str, ...]) -> None:
    failed = condition(STARTED, TIMED_OUT, *later)
    assert not failed.is_met
    assert failed.doubts == ("node 4 (process 77): the log shows an error of TopicBasedRemoteLogMetadataManager",)
    assert condition(STARTED, TIMED_OUT, *later, accepted=dict.fromkeys(failed.doubts, "alice (it copies)")).is_met


def test_a_manager_that_refuses_its_topic_is_not_initialised_although_it_says_so() -> None:
    """Kafka 3.6 to 4.1 log both, in this order."""
    other_count = "Existing topic partition count [2] is not same as the expected partition count [3]"
    refused = condition(STARTED, line("ERROR", other_count), INITIALISED)
    assert not refused.is_met
    assert other_count in refused.evidence
    assert not condition(
        STARTED, line("ERROR", "Encountered error while creating a producer topic."), INITIALISED
    ).is_met


@pytest.mark.parametrize(
    "what",
    ["creating remote log metadata", "creating __remote_log_metadata", "querying or creating __remote_log_metadata"],
    ids=["3.6.2", "4.0.1", "4.3.1"],
)
def test_a_topic_that_the_manager_creates_again_by_itself_is_no_error(what: str) -> None:
    """TopicBasedRemoteLogMetadataManager logs the success, or another error."""
    retried = line("ERROR", f"Encountered error while {what} topic.")
    assert condition(STARTED, retried, INITIALISED).is_met


def test_a_text_of_a_client_is_no_such_event() -> None:
    of_a_client = line("INFO", "Preparing to rebalance group Initialized topic-based RLMM resources successfully")
    assert not condition(STARTED, of_a_client).is_met
    elsewhere = line(
        "INFO", "Initialized topic-based RLMM resources successfully", "kafka.coordinator.group.GroupCoordinator"
    )
    assert not condition(STARTED, elsewhere).is_met


@pytest.mark.parametrize("log", [(), (INITIALISED,), ("{}",) * 100])
def test_a_log_that_does_not_show_the_start_is_no_evidence(log: tuple[str, ...]) -> None:
    checked = condition(*log)
    assert not checked.is_met
    assert checked.doubts == (
        "node 4 (process 77): the log does not show that TopicBasedRemoteLogMetadataManager has initialised",
    )
    unread = check_tiered_storage(NODE, ENABLED, R391, None)
    assert unread is not None
    assert "cannot be read" in unread.evidence
    assert not unread.is_met


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({**ENABLED, MANAGER_CLASS: "com.example.Manager"}, "com.example.Manager, whose state Kafka does not log"),
        ({SYSTEM_ENABLE: "${env:TIERED}"}, f"a config provider has {SYSTEM_ENABLE} of node 4"),
    ],
)
def test_what_no_log_can_show_is_named_as_not_checked(config: dict[str, str], why: str) -> None:
    checked = condition(STARTED, config=config)
    assert checked.is_met
    assert checked.evidence.startswith("not checked: ")
    assert why in checked.evidence


def requests(
    rates: Mapping[str, float] | None,
    *,
    config: dict[str, str] = ENABLED,
    release: Release = R391,
    unchecked: Unchecked = None,
    agents: bool = True,
) -> GateCondition | None:
    """`rates`: what the agent reports; None: it does not respond."""
    node = NODE if agents else replace(NODE, jolokia_url=None, prometheus_url=None)
    kept = {name: value for name, value in WELL_COUNTERS.items() if name not in REMOTE_ERROR_RATES}
    seen = silent(4) if rates is None else node_state(4, R391, counters={**kept, **rates})
    around = state()
    observed = replace(around, nodes=replace_node(around, seen))
    return check_remote_requests(node, config, release, observed, {} if unchecked is None else unchecked)


def rates(copy: float, fetch: float) -> dict[str, float]:
    return dict(zip(REMOTE_ERROR_RATES, (copy, fetch), strict=True))


@pytest.mark.parametrize("config", [{}, {SYSTEM_ENABLE: "false"}])
def test_remote_requests_of_a_broker_without_tiered_storage_are_no_condition(config: dict[str, str]) -> None:
    assert requests(rates(9, 9), config=config) is None
    assert requests(rates(9, 9), release=R340) is None


@pytest.mark.parametrize(
    ("values", "is_met"),
    [
        (rates(0, 0), True),
        (rates(0.005, 0.0001), True),
        (rates(0.0051, 0), False),
        (rates(0, 0.016), False),
        (rates(float("nan"), 0), False),
    ],
    ids=["none", "long ago", "copies", "one fetch", "no number"],
)
def test_recent_errors_of_remote_requests_hold_the_gate(values: dict[str, float], is_met: bool) -> None:
    checked = requests(values)
    assert checked is not None
    assert (checked.name, checked.is_met) == (REMOTE_REQUESTS, is_met)


def test_the_evidence_names_the_rate_and_where_to_find_the_error() -> None:
    well, failing = requests(rates(0, 0)), requests(rates(2.12344, 0))
    assert well is not None
    assert well.evidence == "node 4 reports at most 0.005 errors per second"
    assert failing is not None
    assert "node 4 reports RemoteCopyErrorsPerSec 2.1234 errors per second (limit 0.005)" in failing.evidence
    assert "RemoteFetchErrorsPerSec" not in failing.evidence
    assert "Its log has the errors" in failing.evidence


@pytest.mark.parametrize("values", [None, {}], ids=["agent does not respond", "agent does not export it"])
def test_a_rate_that_the_plan_did_not_name_as_missing_is_unknown_and_holds_the_gate(
    values: dict[str, float] | None,
) -> None:
    checked = requests(values)
    assert checked is not None
    assert not checked.is_met
    assert checked.evidence == (
        "node 4 does not report RemoteCopyErrorsPerSec, node 4 does not report RemoteFetchErrorsPerSec"
    )


def test_a_rate_that_no_agent_exports_is_named_as_not_checked_next_to_the_one_that_is() -> None:
    without = requests({}, agents=False)
    assert without is not None
    assert without.is_met
    assert without.evidence.startswith("not checked: RemoteCopyErrorsPerSec of node 4 (no metrics agent)")
    copy, fetch = REMOTE_ERROR_RATES
    for value, is_met in ((0.0, True), (1.0, False)):
        half = requests({fetch: value}, unchecked={copy: (4,)})
        assert half is not None
        assert half.is_met is is_met
        assert half.evidence.endswith(
            "not checked: RemoteCopyErrorsPerSec of node 4 (no agent exports it, as the plan says)"
        )


def test_rates_decide_where_a_config_provider_has_the_setting() -> None:
    referenced = {SYSTEM_ENABLE: "${env:TIERED}"}
    unknown = requests({}, config=referenced)
    assert unknown is not None
    assert unknown.is_met
    assert unknown.evidence.startswith(f"not checked: a config provider has {SYSTEM_ENABLE} of node 4")
    failing = requests(rates(0, 1), config=referenced)
    assert failing is not None
    assert not failing.is_met


def test_only_brokers_with_tiered_storage_for_certain_are_expected_to_report_rates() -> None:
    configs = {4: {SYSTEM_ENABLE: "TRUE "}, 5: {SYSTEM_ENABLE: "${env:TIERED}"}, 6: {}, 1: ENABLED}
    assert tiered_brokers(SEPARATE, configs) == {4}
