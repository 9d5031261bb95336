from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.internal_topics import GROUPS_TOPIC, SHARE_TOPIC, TRANSACTIONS_TOPIC, coordinator_partition
from kafka_rollout.gates.coordinators import (
    LOADING,
    CoordinatorAnswers,
    coordinators_condition,
    ids_for,
)
from kafka_rollout.gates.gate import BeforeStop, GateCondition
from kafka_rollout.model.counters import GROUPS_ACTIVE, GROUPS_FAILED, GROUPS_LOADING
from kafka_rollout.model.node_log import UNKNOWN_LAYOUT, LogPart, SeenLog, read_part
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


def seen_in(*log: str, problem: str = "") -> SeenLog:
    """What the log of a process shows, read from its start."""
    return read_part(None, LogPart(pid=77, started_at=1.0, lines=log, is_first=True, problem=problem))


def check(
    answers: CoordinatorAnswers = ALL,
    *,
    before: BeforeStop | None = BEFORE,
    log: tuple[str, ...] | SeenLog | None = (STARTED,),
    counters: dict[str, float] | None = None,
    accepted: dict[str, str] | None = None,
    brokers: tuple[int, ...] = (),
) -> GateCondition:
    seen = seen_in(*log) if isinstance(log, tuple) else log
    return coordinators_condition(
        PARTITIONS, 4, answers, before, seen, counters=counters, accepted=accepted, brokers=brokers
    )


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
    assert coordinators_condition(PARTITIONS, 9, nothing, BEFORE, None).is_met


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
    text = f"could not load 1 of 3 coordinator partitions: Error loading offsets from {LED[0]} {CAUSE}"
    assert text in failed.evidence


KNOWN = replace(BEFORE, groups=frozenset({group_in(0), group_in(1)}))  # it does not lead partition 1


def test_groups_that_are_gone_were_deleted_if_their_partition_has_finished_loading() -> None:
    deleted = check(before=KNOWN, log=(STARTED, finished(LED[0])))
    assert deleted.is_met
    assert f"1 id of groups or transactions from before the stop is gone: {group_in(0)}. Their" in deleted.evidence


@pytest.mark.parametrize("log", [None, seen_in(*['{"level":"INFO","message":"started"}'] * 100)], ids=["none", "JSON"])
def test_ids_that_are_listed_again_prove_no_load_where_the_log_would_not_show_an_error(log: SeenLog | None) -> None:
    """A failed load leaves the partition empty and serves it, and its consumers join again within seconds."""
    again = replace(ALL, groups=frozenset({group_in(0)}))
    held = check(again, before=KNOWN, log=log)
    assert not held.is_met
    assert [one.rpartition(" ")[2] for one in held.doubts] == [LED[0]]
    counters: dict[str, float] = {GROUPS_ACTIVE: 2, GROUPS_LOADING: 0, GROUPS_FAILED: 0}
    assert check(again, before=KNOWN, log=log, counters=counters).is_met, "the broker counts the loads"
    assert check(again, before=KNOWN, log=log, accepted=dict.fromkeys(held.doubts, "alice")).is_met
    assert check(again, before=KNOWN).is_met, "a log that is read would show the error"


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (None, "the node's log cannot be read"),
        (seen_in(), "does not show the start of its process yet"),
        (seen_in(STARTED), "does not show the load of __consumer_offsets-0"),
        (seen_in(STARTED, finished(LED[1])), "does not show the load of __consumer_offsets-0"),
        (seen_in(STARTED, finished(LED[0]), problem="was rotated before it was read"), "was rotated"),
        (read_part(None, LogPart(pid=77, started_at=1.0, lines=(STARTED, finished(LED[0])))), "was not read since"),
        (seen_in(*['{"level":"INFO","message":"started"}'] * 100), "in a layout or at a level that is not known"),
    ],
    ids=["unreadable", "empty", "no load", "of another partition", "a gap", "not from the start", "another layout"],
)
def test_a_group_that_is_gone_without_evidence_of_a_load_holds_the_gate(log: SeenLog | None, why: str) -> None:
    held = check(before=KNOWN, log=log)
    assert not held.is_met
    assert why in held.evidence
    assert "is gone" in held.evidence
    who = "node 4" if log is None else "node 4 (process 77)"
    assert held.doubts == (f"{who}: the log does not show the load of {LED[0]}",)


@pytest.mark.parametrize("before", [None, replace(BEFORE, has_answered=False)], ids=["no record", "no answer"])
def test_without_the_ids_from_before_the_stop_every_load_must_be_shown(before: BeforeStop | None) -> None:
    everything = (finished(LED[0]), finished(LED[1]), finished_transactions(LED[2]))
    assert check(before=before, log=(STARTED, *everything)).is_met
    held = check(before=before, log=(STARTED, *everything[:2]))
    assert held.doubts == (f"node 4 (process 77): the log does not show the load of {LED[2]}",)
    assert not check(before=before, log=None).is_met
    assert check(log=None).is_met, "no id is known that could be gone"


def in_layout(pattern: str, lines: tuple[str, ...]) -> tuple[str, ...]:
    """The lines as log4j writes them with another ConversionPattern."""
    change = {
        "thread": lambda text: text.replace("] INFO ", "] INFO [main] ").replace("] ERROR ", "] ERROR [main] "),
        "short loggers": lambda text: text.replace("kafka.coordinator.group.", "group.").replace(
            "org.apache.kafka.common.", ""
        ),
        "prefix": lambda text: text.replace("] INFO ", "] INFO ctx|").replace("] ERROR ", "] ERROR ctx|"),
        "padded level": lambda text: text.replace("] INFO ", "] INFO  "),
        "WARN and worse": lambda text: "" if "] INFO " in text else text,
        "journal": lambda text: f"Nov 28 08:00:00 host kafka[77]: {text}",
        "zone": lambda text: text.replace(",000]", ",000 UTC]"),
    }[pattern]
    return tuple(filter(None, map(change, lines)))


@pytest.mark.parametrize(
    "pattern", ["thread", "short loggers", "prefix", "padded level", "WARN and worse", "journal", "zone"]
)
@pytest.mark.parametrize("forged", [False, True], ids=["", "with a forged load"])
def test_a_layout_that_is_read_in_part_passes_no_gate(pattern: str, forged: bool) -> None:
    """Also if a client writes a finished load in the layout that can be read."""
    log = in_layout(pattern, (STARTED, FAILED, *[line("INFO", "another", GROUPS)] * 100))
    held = check(before=KNOWN, log=(*log, *(with_group(f"x\n{finished(LED[0])}\ny") if forged else ())))
    assert not held.is_met, held.evidence


def test_a_log_that_is_rotated_loses_no_error_and_shows_no_later_load() -> None:
    first = read_part(None, LogPart(pid=77, started_at=1.0, lines=(STARTED, FAILED, CAUSE), is_first=True))
    rotated = read_part(
        first, LogPart(pid=77, started_at=1.0, lines=(finished(LED[0]),), problem="was rotated before it was read")
    )
    assert rotated.failed.keys() == {LED[0]}
    assert rotated.loaded == ()
    held = check(before=KNOWN, log=rotated)
    assert "Error loading offsets" in held.evidence
    assert held.doubts == (f"node 4 (process 77): the log shows a failed load of {LED[0]}",)


def test_the_broker_s_own_counters_prove_a_load_and_end_an_error() -> None:
    counters: dict[str, float] = {GROUPS_ACTIVE: 2, GROUPS_LOADING: 0, GROUPS_FAILED: 0}
    assert check(before=KNOWN, log=None, counters=counters).is_met
    assert check(before=KNOWN, log=(STARTED, failed_4(LED[0])), counters=counters).is_met
    for worse in ({GROUPS_ACTIVE: 1.0}, {GROUPS_FAILED: 1.0}, {GROUPS_LOADING: 1.0}):
        assert not check(before=KNOWN, log=None, counters={**counters, **worse}).is_met
    assert not check(before=KNOWN, log=None, counters={GROUPS_ACTIVE: 2}).is_met, "of an agent that lacks the others"
    transactions = (STARTED, failed_transactions(LED[2]))
    assert not check(log=transactions, counters=counters).is_met, "no counter is about transactions"


def test_an_approver_can_accept_a_doubt_of_this_process_and_no_other() -> None:
    held = check(log=(STARTED, FAILED))
    accepted = dict.fromkeys(held.doubts, "alice (the log of the broker is right)")
    passed = check(log=(STARTED, FAILED), accepted=accepted)
    assert passed.is_met
    assert "accepted by alice (the log of the broker is right)" in passed.evidence
    more = check(log=(STARTED, FAILED, FAILED.replace(LED[0], LED[1])), accepted=accepted)
    assert more.doubts == (f"node 4 (process 77): the log shows a failed load of {LED[1]}",)
    again = read_part(None, LogPart(pid=78, started_at=2.0, lines=(STARTED, FAILED), is_first=True))
    assert not check(log=again, accepted=accepted).is_met


def test_a_layout_that_no_gate_can_read_is_accepted_once_for_the_brokers_that_it_names() -> None:
    def of_process(pid: int, problem: str = UNKNOWN_LAYOUT, lines: tuple[str, ...] = ("plain",)) -> SeenLog:
        seen = read_part(None, LogPart(pid=pid, started_at=1.0, lines=lines, is_first=True))
        return replace(seen, problem=problem)

    held = check(before=KNOWN, log=of_process(77), brokers=(4, 5, 6))
    assert held.doubts == (
        "nodes 4, 5, 6: a log that is in a layout or at a level that is not known does not show the load of "
        "coordinator partitions",
    )
    assert held.evidence.endswith("; an acceptance counts for such logs of nodes 4, 5, 6")
    accepted = dict.fromkeys(held.doubts, "alice (our own layout)")
    assert check(before=KNOWN, log=of_process(78), brokers=(4, 5, 6), accepted=accepted).is_met, "the next broker"
    assert not check(before=KNOWN, log=of_process(78), brokers=(4, 5, 6, 7), accepted=accepted).is_met
    for other in (of_process(78, "lacks lines"), None, of_process(78, lines=(STARTED, FAILED))):
        assert not check(before=KNOWN, log=other, brokers=(4, 5, 6), accepted=accepted).is_met, "another cause"


def test_a_broker_that_answers_so_cannot_be_accepted() -> None:
    answers = replace(ALL, by_partition={**ALL.by_partition, LED[0]: "NOT_COORDINATOR"})
    assert check(answers, log=(STARTED, failed_4(LED[0]))).doubts == ()
    assert check(replace(ALL, groups=None)).doubts == ()


def test_share_groups_are_checked_by_log_and_counters_alone() -> None:
    share = partition(SHARE_TOPIC, 0, [4, 5])
    loaded = line(
        "INFO",
        f"[ShareCoordinator id=4] Finished loading of metadata from {SHARE_TOPIC}-0 with epoch 3 in 1ms",
        RUNTIME,
    )

    def condition(*log: str) -> GateCondition:
        return coordinators_condition((*PARTITIONS, share), 4, ALL, BEFORE, seen_in(*log))

    assert condition(STARTED, loaded).is_met
    assert not condition().is_met
    assert not condition(STARTED).is_met
    assert not condition(STARTED, loaded, failed_4(f"{SHARE_TOPIC}-0")).is_met
    assert condition(STARTED, loaded, failed_4(f"{SHARE_TOPIC}-1")).is_met, "it does not lead this one"
    without = coordinators_condition((*PARTITIONS, share), 4, ALL, BEFORE, seen_in(STARTED), shares=False)
    assert without.is_met, "a release without a share coordinator loads none"

    def moved(*names: str) -> GateCondition:
        return coordinators_condition((*PARTITIONS, share), 4, ALL, None, seen_in(STARTED), needed=names)

    assert moved().is_met, "the gate after its start has passed, and nothing moved to it since"
    assert moved(share.name).doubts == (f"node 4 (process 77): the log does not show the load of {share.name}",)


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


def test_an_error_ends_with_the_process_and_with_no_line() -> None:
    seen = seen_in(STARTED, FAILED, CAUSE, STARTED, finished(LED[0]), finished(LED[0]))
    assert seen.failed == {LED[0]: f"Error loading offsets from {LED[0]} {CAUSE}"}
    again = read_part(seen, LogPart(pid=78, started_at=9.0, lines=(STARTED, finished(LED[0])), is_first=True))
    assert (again.failed, again.loaded) == ({}, (LED[0],))
    transactions = seen_in(STARTED, failed_transactions(LED[2]), CAUSE, finished_transactions(LED[2]))
    assert transactions.failed.keys() == {LED[2]}, "a failed load of transactions ends with this line too"


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


CRAFTED_END = "\n[2026-11-28 08:00:00,000] INFO y"


@pytest.mark.parametrize(
    "name",
    [
        f"Finished loading offsets and group metadata from {LED[0]} in 5 milliseconds",
        f"x\n{finished(LED[0])}\ny",
        f"x (kafka.a.B)\n{finished(LED[0])}{CRAFTED_END}",  # both ends complete a line of the log
        f"x (kafka.a.B)\n{STARTED}{CRAFTED_END}",
        f"x (kafka.a.B)\n{STARTED}\n{finished(LED[0])}{CRAFTED_END}",
    ],
)
def test_no_group_id_hides_a_failed_load(name: str) -> None:
    """Also not one with line breaks, which writes a whole line in the layout of the log."""
    checked = check(log=(STARTED, FAILED, CAUSE, *with_group(name)))
    assert not checked.is_met
    assert "Error loading offsets" in checked.evidence


def test_an_error_that_a_client_can_have_written_is_the_decision_of_an_approver() -> None:
    checked = check(log=(STARTED, *with_group(f"x\n{FAILED}\ny")))
    assert not checked.is_met
    assert checked.doubts


def test_another_logger_cannot_report_a_load() -> None:
    other = FAILED.replace(GROUPS, "com.example.Plugin")
    assert check(log=(STARTED, other)).is_met
    assert seen_in(STARTED, finished(LED[0]).replace(GROUPS, RUNTIME)).loaded == ()


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
    log = (STARTED, failed_4(LED[0], reason), line("INFO", text, RUNTIME))
    assert not check(log=log).is_met
    counters: dict[str, float] = {GROUPS_ACTIVE: 2, GROUPS_LOADING: 0, GROUPS_FAILED: 0}
    assert check(log=log, counters=counters).is_met
