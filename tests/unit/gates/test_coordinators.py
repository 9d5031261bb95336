from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.internal_topics import GROUPS_TOPIC, SHARE_TOPIC, TRANSACTIONS_TOPIC
from kafka_rollout.gates.check import BeforeStop, Condition
from kafka_rollout.gates.coordinators import (
    LOADING,
    CoordinatorAnswers,
    coordinator_partition,
    coordinators_condition,
    find_load_errors,
    ids_for,
)
from tests.unit.builders import partition

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


def line(level: str, text: str, logger: str) -> str:
    return f"[2026-11-23 02:00:01,000] {level} {text} ({logger})"


GROUPS = "kafka.coordinator.group.GroupMetadataManager"
TRANSACTIONS = "kafka.coordinator.transaction.TransactionStateManager"
RUNTIME = "org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime"
STARTED = line(
    "INFO", "Registered signal handlers for TERM, INT, HUP", "org.apache.kafka.common.utils.LoggingSignalHandler"
)
FAILED = line("ERROR", f"[GroupMetadataManager brokerId=4] Error loading offsets from {LED[0]}", GROUPS)


def failed_4(partition: str, reason: str = "java.lang.X: no.") -> str:
    text = f"[GroupCoordinator id=4] Failed to load metadata from {partition} with epoch 3 due to {reason}"
    return line("ERROR", text, RUNTIME)


def finished(partition: str) -> str:
    text = f"[GroupMetadataManager brokerId=4] Finished loading offsets and group metadata from {partition}"
    return line("INFO", f"{text} in 5 milliseconds for epoch 3, of which 1 milliseconds was spent in ...", GROUPS)


def finished_transactions(partition: str) -> str:
    text = f"[Transaction State Manager 4]: Finished loading 3 transaction metadata from {partition}"
    return line("INFO", f"{text} in 5 milliseconds, of which 0 milliseconds was spent in ...", TRANSACTIONS)


def failed_transactions(partition: str) -> str:
    text = f"[Transaction State Manager 4]: Error loading transactions from transaction log {partition}"
    return line("ERROR", text, TRANSACTIONS)


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
    log = (STARTED, failed_4(LED[0]))
    failed = check(replace(ALL, by_partition={**ALL.by_partition, LED[0]: "NOT_COORDINATOR"}), log=log)
    assert not failed.is_met
    assert f"does not serve 1 of 3 coordinator partitions: {LED[0]} (NOT_COORDINATOR)" in failed.evidence
    assert f"Failed to load metadata from {LED[0]} with epoch 3 due to java.lang.X: no." in failed.evidence
    silent = check(replace(ALL, by_partition={LED[0]: "NONE"}))
    assert f"{LED[1]} (no answer)" in silent.evidence
    more = (*log, failed_4(LED[1]))
    both = check(replace(ALL, by_partition={**ALL.by_partition, LED[0]: "NOT_COORDINATOR"}), log=more)
    assert "could not load 1 partition: " in both.evidence, "also those that answer, or that are not asked"


def test_a_failed_load_counts_although_the_broker_answers_for_the_partition() -> None:
    failed = check(log=(STARTED, FAILED, CAUSE, "\tat kafka.…"))
    assert not failed.is_met
    assert f"Error loading offsets from {LED[0]} {CAUSE}" in failed.evidence


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
    assert not condition(STARTED, failed_4(f"{SHARE_TOPIC}-0")).is_met
    assert condition(STARTED, failed_4(f"{SHARE_TOPIC}-1")).is_met


def test_the_evidence_has_an_error_of_each_topic_whatever_the_log_s_order() -> None:
    transactions = failed_transactions(LED[2])
    groups = tuple(FAILED.replace(LED[0], name) for name in LED[:2])
    texts = {
        check(log=(STARTED, *lines)).evidence
        for lines in ((transactions, CAUSE, *groups), (*groups, transactions, CAUSE), (*reversed(groups), transactions))
    }
    for text in texts:
        assert f"Error loading offsets from {LED[0]} (and 1 more of this topic)" in text
        assert f"Error loading transactions from transaction log {LED[2]}" in text
        assert LED[1] not in text


def test_an_error_ends_with_a_new_start_and_with_a_later_load() -> None:
    transactions = failed_transactions(LED[2])
    ended = finished_transactions(LED[2])
    assert find_load_errors((FAILED, CAUSE, STARTED)) == {}
    assert find_load_errors((STARTED, FAILED, CAUSE)).keys() == {LED[0]}
    loaded = finished(LED[0])
    assert find_load_errors((STARTED, FAILED, CAUSE, loaded)) == {}
    assert find_load_errors((STARTED, transactions, CAUSE, ended)).keys() == {LED[2]}
    assert find_load_errors((STARTED, transactions, CAUSE, ended, ended)) == {}


PREPARING = "[GroupCoordinator 4]: Preparing to rebalance group NAME in state PreparingRebalance with old generation 0"


def with_group(name: str) -> tuple[str, ...]:
    """The lines of a broker of 3.x about a group with this name, or with a reason of a client (KIP-800)."""
    text = PREPARING.replace("NAME", name)
    return tuple(line("INFO", text, "kafka.coordinator.group.GroupCoordinator").split("\n"))


@pytest.mark.parametrize(
    "name",
    [
        f"Error loading offsets from {LED[0]}",
        f"ERROR [GroupMetadataManager brokerId=4] Error loading offsets from {LED[0]} ({GROUPS})",
        f"Error loading transactions from transaction log {LED[2]}",
    ],
)
def test_no_group_id_blocks_the_gate(name: str) -> None:
    checked = check(log=(STARTED, *with_group(name)))
    assert checked.is_met, checked.evidence


@pytest.mark.parametrize(
    "name",
    [
        f"Finished loading offsets and group metadata from {LED[0]} in 5 milliseconds",
        "Registered signal handlers for TERM, INT, HUP",
        f"x\n{finished(LED[0])}\ny",
        f"x ({GROUPS})\n{finished(LED[0])}\ny",
        f"x\n ({GROUPS})\n{finished(LED[0])}\ny",
        f"x\n{STARTED}",
        f"x\n{STARTED}\ny",
    ],
)
def test_no_group_id_hides_a_failed_load(name: str) -> None:
    """Also not one with line breaks, which writes a whole line in the layout of the log."""
    checked = check(log=(STARTED, FAILED, CAUSE, *with_group(name)))
    assert not checked.is_met
    assert "Error loading offsets" in checked.evidence


def test_an_error_that_a_line_break_can_have_written_counts_and_is_named() -> None:
    checked = check(log=(STARTED, *with_group(f"x\n{FAILED}\ny")))
    assert not checked.is_met
    assert "a text of a client with a line break can have written this line" in checked.evidence


def test_another_logger_cannot_report_a_load() -> None:
    other = FAILED.replace(GROUPS, "com.example.Plugin")
    assert check(log=(STARTED, other)).is_met
    assert find_load_errors((STARTED, FAILED, CAUSE, finished(LED[0]).replace(GROUPS, RUNTIME))).keys() == {LED[0]}


def test_a_log_in_an_unknown_layout_proves_no_load() -> None:
    known = replace(BEFORE, groups=frozenset({group_in(0)}))
    unknown = check(before=known, log=('{"level":"INFO","message":"started"}',))
    assert not unknown.is_met
    assert "in a layout that is not known" in unknown.evidence


def test_a_load_that_failed_during_a_compaction_holds_until_the_partition_is_loaded_again() -> None:
    """KAFKA-19862: the records are right, but the load read them while the cleaner replaced the segment."""
    reason = (
        "java.lang.IllegalStateException: Cannot remove the epoch 5 from Yx-0 because it is still owned at a "
        "different epoch 7."
    )
    answers = replace(ALL, by_partition={**ALL.by_partition, LED[0]: "NOT_COORDINATOR"})
    held = check(answers, log=(STARTED, failed_4(LED[0], reason)))
    assert not held.is_met
    assert "still owned at a different epoch 7" in held.evidence
    text = (
        f"[GroupCoordinator id=4] Finished loading of metadata from {LED[0]} with epoch 4 in 12ms where 3ms was spent"
    )
    assert check(log=(STARTED, failed_4(LED[0], reason), line("INFO", text, RUNTIME))).is_met
