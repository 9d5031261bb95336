from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.domain.gates.check import BeforeStop, Condition
from kafka_rollout.domain.gates.coordinators import (
    LOADING,
    CoordinatorAnswers,
    coordinator_partition,
    coordinators_condition,
    find_load_errors,
    ids_for,
)
from kafka_rollout.domain.model.internal_topics import GROUPS_TOPIC, SHARE_TOPIC, TRANSACTIONS_TOPIC
from tests.unit.domain.builders import partition

PARTITIONS = (
    *(partition(GROUPS_TOPIC, number, [4 + number % 2, 5]) for number in range(4)),
    *(partition(TRANSACTIONS_TOPIC, number, [4 + number % 2, 5]) for number in range(2)),
)
LED = (f"{GROUPS_TOPIC}-0", f"{GROUPS_TOPIC}-2", f"{TRANSACTIONS_TOPIC}-0")
ALL = CoordinatorAnswers(
    by_partition={LED[0]: "NONE", LED[1]: "GROUP_ID_NOT_FOUND", LED[2]: "TRANSACTIONAL_ID_NOT_FOUND"},
    groups=frozenset(),
    transactional_ids=frozenset(),
)
STARTED = "[2026-11-23 02:00:00,000] INFO Registered signal handlers for TERM, INT, HUP (org.apache.kafka.…)"
FAILED = (
    f"[2026-11-23 02:00:01,000] ERROR [GroupMetadataManager brokerId=4] Error loading offsets from {LED[0]} (kafka.…)"
)
CAUSE = "java.lang.IllegalStateException: Unknown group metadata message version: 3"
BEFORE = BeforeStop(
    node_id=4, release="4.3.1", at=0.0, in_isr=frozenset(), leads=frozenset(), was_active_controller=False
)


def group_in(number: int) -> str:
    return next(iter(ids_for({number}, 4)))


def check(
    answers: CoordinatorAnswers = ALL, *, before: BeforeStop | None = BEFORE, log: tuple[str, ...] = (STARTED,)
) -> Condition:
    return coordinators_condition(PARTITIONS, 4, answers, before, log)


@pytest.mark.parametrize(
    ("name", "number"),
    # Computed with org.apache.kafka.common.utils.Utils.abs(name.hashCode()) % 50 on a JVM.
    [("orders", 31), ("", 0), ("gruppe-ü", 22), ("a😀b", 44), ("polygenelubricants", 0)],
)
def test_an_id_has_the_partition_that_kafka_gives_it(name: str, number: int) -> None:
    assert coordinator_partition(name, 50) == number


def test_there_is_an_id_for_each_partition() -> None:
    ids = ids_for(range(50), 50)
    assert sorted(ids.values()) == list(range(50))
    assert all(coordinator_partition(name, 50) == number for name, number in ids.items())


def test_a_broker_that_loaded_what_it_leads_passes() -> None:
    passed = check()
    assert passed.is_met
    assert (
        passed.evidence == "2 partitions of groups with 0 groups, 1 partition of transactions with 0 transactional ids"
    )


def test_a_broker_that_leads_no_coordinator_partition_passes_whatever_it_answers() -> None:
    nothing = CoordinatorAnswers(by_partition={}, groups=None, transactional_ids=None)
    assert coordinators_condition(PARTITIONS, 9, nothing, BEFORE, ()).is_met


def test_the_gate_waits_while_a_partition_loads() -> None:
    loading = check(replace(ALL, by_partition={**ALL.by_partition, LED[1]: LOADING}))
    assert not loading.is_met
    assert loading.evidence == f"loads 1 of 3 coordinator partitions: {LED[1]}"
    assert not check(replace(ALL, groups=None)).is_met


def test_a_partition_that_is_not_served_or_not_answered_is_named_with_the_broker_s_reason() -> None:
    log = (STARTED, f"ERROR Failed to load metadata from {LED[0]} with epoch 3 due to java.lang.X: no.")
    failed = check(replace(ALL, by_partition={**ALL.by_partition, LED[0]: "NOT_COORDINATOR"}), log=log)
    assert not failed.is_met
    assert f"does not serve 1 of 3 coordinator partitions: {LED[0]} (NOT_COORDINATOR)" in failed.evidence
    assert f"Failed to load metadata from {LED[0]} with epoch 3 due to java.lang.X: no." in failed.evidence
    silent = check(replace(ALL, by_partition={LED[0]: "NONE"}))
    assert f"{LED[1]} (no answer)" in silent.evidence
    more = (*log, f"ERROR Failed to load metadata from {LED[1]} with epoch 3 due to java.lang.X: no.")
    both = check(replace(ALL, by_partition={**ALL.by_partition, LED[0]: "NOT_COORDINATOR"}), log=more)
    assert "could not load 1 partition: " in both.evidence, "also those that answer, or that are not asked"


def test_a_failed_load_counts_although_the_broker_answers_for_the_partition() -> None:
    failed = check(log=(STARTED, FAILED, CAUSE, "\tat kafka.…"))
    assert not failed.is_met
    assert f"Error loading offsets from {LED[0]} (kafka.…) {CAUSE}" in failed.evidence


def test_groups_that_are_gone_without_a_load_error_were_deleted() -> None:
    known = replace(BEFORE, groups=frozenset({group_in(0), group_in(1)}))  # it does not lead partition 1
    deleted = check(before=known)
    assert deleted.is_met
    assert f"1 id of groups or transactions from before the stop is gone: {group_in(0)}. Without" in deleted.evidence
    unreadable = check(before=known, log=())
    assert not unreadable.is_met
    assert "cannot be read" in unreadable.evidence
    assert check(replace(ALL, groups=frozenset({group_in(0)})), before=known, log=()).is_met


def test_share_groups_are_checked_by_the_log_alone() -> None:
    share = partition(SHARE_TOPIC, 0, [4, 5])

    def condition(*log: str) -> Condition:
        return coordinators_condition((*PARTITIONS, share), 4, ALL, BEFORE, log)

    assert condition(STARTED).is_met
    assert not condition().is_met
    assert not condition(STARTED, f"ERROR Failed to load metadata from {SHARE_TOPIC}-0 with epoch 1 due to X.").is_met
    assert condition(STARTED, f"ERROR Failed to load metadata from {SHARE_TOPIC}-1 with epoch 1 due to X.").is_met


def test_the_evidence_has_an_error_of_each_topic_whatever_the_log_s_order() -> None:
    transactions = f"ERROR Error loading transactions from transaction log {LED[2]} (kafka.…)"
    groups = tuple(FAILED.replace(LED[0], name) for name in LED[:2])
    texts = {
        check(log=(STARTED, *lines)).evidence
        for lines in ((transactions, CAUSE, *groups), (*groups, transactions, CAUSE), (*reversed(groups), transactions))
    }
    for text in texts:
        assert f"Error loading offsets from {LED[0]} (kafka.…) (and 1 more of this topic)" in text
        assert f"Error loading transactions from transaction log {LED[2]}" in text
        assert LED[1] not in text


def test_an_error_ends_with_a_new_start_and_with_a_later_load() -> None:
    transactions = f"ERROR Error loading transactions from transaction log {LED[2]} (kafka.…)"
    ended = f"INFO Finished loading 3 transaction metadata from {LED[2]} in 5 milliseconds"
    assert find_load_errors((FAILED, CAUSE, STARTED)) == {}
    assert find_load_errors((STARTED, FAILED, CAUSE)).keys() == {LED[0]}
    loaded = f"INFO Finished loading offsets and group metadata from {LED[0]} in 5 milliseconds"
    assert find_load_errors((STARTED, FAILED, CAUSE, loaded)) == {}
    assert find_load_errors((STARTED, transactions, CAUSE, ended)).keys() == {LED[2]}
    assert find_load_errors((STARTED, transactions, CAUSE, ended, ended)) == {}
