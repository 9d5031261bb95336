"""The traffic check fails for every kind of loss, and without traffic."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.run.traffic import TrafficVerdict, TransactionOutcome
from kafka_rollout.traffic.processes.traffic import LOG_FILE, Client, Journal, compare_journals
from kafka_rollout.traffic.traffic_check import (
    LOG,
    UNKNOWN_OFFSET,
    Position,
    ProducerMark,
    ReadMarks,
    TrafficRecord,
    compare,
    together,
)


def at(offset: int, partition: int = 0) -> Position:
    return Position("orders", partition, offset)


ACKNOWLEDGED = [TrafficRecord(at(n), f"p-{n}") for n in range(5)]
CONSUMED = [TrafficRecord(at(n), f"p-{n}") for n in range(5)]
ELSE = TrafficRecord(at(0, 2), "else-0", "else")
TRANSACTION = [TrafficRecord(at(n, 1), f"t-{n}", "t") for n in range(3)]


def verdict(
    acknowledged: list[TrafficRecord],
    consumed: list[TrafficRecord],
    outcome: TransactionOutcome | None = None,
    marks: Mapping[Position, ProducerMark] | None = None,
) -> TrafficVerdict:
    """One committed transaction more than the case is about: without any, a traffic check never passes."""
    acknowledged = [*acknowledged, ELSE]
    consumed = [*consumed, TrafficRecord(ELSE.position, ELSE.record_id)]
    outcomes = {"else": TransactionOutcome.COMMITTED} | ({"t": outcome} if outcome else {})
    return checked(acknowledged, outcomes, {"classic": consumed}, lambda _: marks or {})


def checked(
    acknowledged: list[TrafficRecord],
    outcomes: Mapping[str, TransactionOutcome],
    consumed: Mapping[str, list[TrafficRecord]],
    read_marks: ReadMarks,
    **more: Any,
) -> TrafficVerdict:
    """Compare. The log has what the consumers received; what it lacks is left out of the discrepancies."""
    stored = [record for records in consumed.values() for record in records]
    found = compare(acknowledged, outcomes, {**consumed, LOG: stored}, {}, read_marks, **more)
    assert {one.kind for one in found.discrepancies if one.consumer == LOG} <= {*kinds(found)}
    return replace(found, discrepancies=tuple(one for one in found.discrepancies if one.consumer != LOG))


def nothing_is_read(positions: Collection[Position]) -> Mapping[Position, ProducerMark]:
    assert not positions
    return {}


def kinds(result: TrafficVerdict) -> list[str]:
    return [discrepancy.kind for discrepancy in result.discrepancies]


def test_every_acknowledged_record_consumed_once_is_green() -> None:
    result = verdict(ACKNOWLEDGED, CONSUMED)
    assert result.is_clean
    assert (result.acknowledged, result.consumed) == (6, {"classic": 6})


def test_a_lost_record_is_named_by_its_place() -> None:
    result = verdict(ACKNOWLEDGED, CONSUMED[:2] + CONSUMED[3:])
    assert not result.is_clean
    assert kinds(result) == ["lost"]
    assert result.discrepancies[0].examples == ("orders-0@2",)


def test_a_place_taken_over_by_another_record_is_a_loss() -> None:
    result = verdict(ACKNOWLEDGED, [*CONSUMED[:4], TrafficRecord(at(4), "p-99")])
    assert kinds(result) == ["lost"]


def test_a_doubled_record_is_red_although_nothing_is_missing() -> None:
    result = verdict(ACKNOWLEDGED, [*CONSUMED, TrafficRecord(at(17), "p-3")])
    assert kinds(result) == ["doubled"]
    assert result.discrepancies[0].examples == ("p-3",)


MARK = ProducerMark(producer_id=7, epoch=0, sequence=3)


@pytest.mark.parametrize(
    ("first", "second", "kind", "ok"),
    [
        (MARK, ProducerMark(7, 1, 0), "resent", True),
        (MARK, ProducerMark(8, 0, 3), "resent", True),
        (MARK, ProducerMark(7, 0, 9), "resent", True),
        (MARK, MARK, "doubled", False),
        (MARK, None, "doubled", False),
        (ProducerMark(-1, -1, -1), ProducerMark(-1, -1, 5), "doubled", False),
    ],
    ids=["new epoch", "new producer", "new sequence", "same mark", "unread", "without idempotence"],
)
def test_a_record_at_two_positions_is_the_clients_if_the_client_sent_it_twice(
    first: ProducerMark, second: ProducerMark | None, kind: str, ok: bool
) -> None:
    marks = {at(3): first} | ({at(17): second} if second is not None else {})
    result = verdict(ACKNOWLEDGED, [*CONSUMED, TrafficRecord(at(17), "p-3")], marks=marks)
    assert (kinds(result), result.is_clean) == ([kind], ok)


def test_a_record_that_lies_elsewhere_has_moved() -> None:
    result = verdict(ACKNOWLEDGED, [*CONSUMED[:4], TrafficRecord(at(9), "p-4")])
    assert kinds(result) == ["moved"]


def test_a_record_read_twice_from_one_place_is_only_redelivered() -> None:
    result = verdict(ACKNOWLEDGED, [*CONSUMED, CONSUMED[0]])
    assert result.is_clean
    assert result.redelivered == {"classic": 1}


@pytest.mark.parametrize(
    ("outcome", "consumed", "expected"),
    [
        (TransactionOutcome.COMMITTED, 3, []),
        (TransactionOutcome.COMMITTED, 2, ["lost"]),
        (TransactionOutcome.ABORTED, 0, []),
        (TransactionOutcome.ABORTED, 1, ["leaked"]),
        (TransactionOutcome.UNKNOWN, 0, []),
        (TransactionOutcome.UNKNOWN, 3, []),
        (TransactionOutcome.UNKNOWN, 1, ["torn"]),
        (None, 2, ["torn"]),  # the producer was killed before it knew
    ],
)
def test_a_transaction_is_whole_or_absent(
    outcome: TransactionOutcome | None, consumed: int, expected: list[str]
) -> None:
    got = [TrafficRecord(r.position, r.record_id) for r in TRANSACTION[:consumed]]
    assert kinds(verdict(ACKNOWLEDGED + TRANSACTION, CONSUMED + got, outcome)) == expected


def test_a_record_whose_place_the_broker_could_not_tell_is_compared_by_its_id() -> None:
    placeless = [TrafficRecord(at(UNKNOWN_OFFSET), f"r-{n}") for n in range(2)]
    found = [TrafficRecord(at(20 + n), f"r-{n}") for n in range(2)]
    result = verdict(ACKNOWLEDGED + placeless, CONSUMED + found)
    assert result.is_clean
    assert result.acknowledged == 8
    result = verdict(ACKNOWLEDGED + placeless, CONSUMED + found[:1])
    assert kinds(result) == ["lost"]
    assert result.discrepancies[0].examples == ("r-1",)


TRUNCATED = 3
"""Acknowledged and received records whose offsets a new leader, which lacked them, gave to later records."""
LATER = [TrafficRecord(at(TRUNCATED + n), f"q-{n}") for n in range(4)]


@pytest.mark.parametrize(
    "again",
    [[], LATER, [*CONSUMED[:TRUNCATED], *LATER]],
    ids=["never", "the later records", "from the start of the log"],
)
@pytest.mark.parametrize("passes", [1, 3])
def test_records_whose_offsets_others_have_taken_are_lost_whatever_the_consumer_read_again(
    again: list[TrafficRecord], passes: int
) -> None:
    committed = {"t": TransactionOutcome.COMMITTED}
    read = {"classic": [*CONSUMED, *again], LOG: [*CONSUMED[:TRUNCATED], *LATER]}
    found = compare([*ACKNOWLEDGED, *LATER], committed, read, {}, nothing_is_read, passes=passes)
    assert not found.is_clean
    assert (found.acknowledged, found.stored) == (9, 7)
    (lost,) = (one for one in found.discrepancies if one.consumer == LOG)
    assert (lost.kind, lost.count, sorted(lost.examples)) == ("lost", 2, ["orders-0@3", "orders-0@4"])
    assert lost.sentence.startswith("log: 2 records acknowledged, but not in the log at the end, for example orders-0@")
    of_group = [one for one in found.discrepancies if one.consumer == "classic"]
    assert [(one.kind, one.count) for one in of_group] == ([] if again else [("lost", 4)])


def test_records_before_the_start_of_the_log_are_lost_although_they_were_consumed() -> None:
    committed = {"t": TransactionOutcome.COMMITTED}
    read, starts = {"classic": CONSUMED, LOG: CONSUMED[2:]}, {("orders", 0): 2}
    found = compare(ACKNOWLEDGED, committed, read, {}, nothing_is_read, log_starts=starts)
    (lost,) = found.failures
    assert (lost.kind, lost.count, found.consumed) == ("lost", 2, {"classic": 5})
    assert lost.sentence.endswith(" 2 of them are before the start of their log: orders-0@2.")


def test_the_result_does_not_depend_on_the_number_of_passes() -> None:
    acknowledged = [*ACKNOWLEDGED, *TRANSACTION, TrafficRecord(at(UNKNOWN_OFFSET), "r-0")]
    stored = [*CONSUMED[1:], TrafficRecord(at(17), "p-3"), TRANSACTION[0], CONSUMED[2]]
    transactions = {"t": TransactionOutcome.UNKNOWN}

    def found(passes: int) -> TrafficVerdict:
        verdict = compare(acknowledged, transactions, {"classic": stored, LOG: stored}, {}, lambda _: {}, passes=passes)
        sorted_ones = (replace(one, examples=tuple(sorted(one.examples)), sentence="") for one in verdict.discrepancies)
        return replace(verdict, discrepancies=tuple(sorted_ones))

    assert {one.kind for one in found(1).discrepancies} == {"lost", "doubled", "torn"}
    assert found(1) == found(2) == found(7)


def test_each_group_is_compared_by_itself() -> None:
    result = checked(ACKNOWLEDGED, {}, {"classic": CONSUMED, "consumer": CONSUMED[1:]}, nothing_is_read)
    assert [(d.consumer, d.kind) for d in result.discrepancies] == [("consumer", "lost")]


def test_silence_is_not_green() -> None:
    committed = {"t": TransactionOutcome.COMMITTED}
    assert checked(ACKNOWLEDGED, committed, {"classic": CONSUMED}, nothing_is_read).is_clean
    assert not checked([], {}, {"classic": []}, nothing_is_read).is_clean
    assert not checked(ACKNOWLEDGED, committed, {}, nothing_is_read).is_clean
    assert not checked(
        ACKNOWLEDGED, {}, {"classic": CONSUMED}, nothing_is_read
    ).is_clean  # the transactional producer never got going


def test_a_torn_line_of_a_killed_writer_is_dropped(tmp_path: Path) -> None:
    acknowledged = Journal(tmp_path / "acknowledged-plain-1.tsv")
    acknowledged.write("orders", 0, 0, "p-0", "-")
    acknowledged.close()
    consumed = Journal(tmp_path / "consumed-classic.tsv")
    consumed.write("orders", 0, 0, "p-0")
    consumed.close()
    write_log(tmp_path, "p-0")
    with (tmp_path / "acknowledged-plain-1.tsv").open("a") as file:
        file.write("orders\t0\t1")
    assert compare_journals(tmp_path, nothing_is_read, {}).discrepancies == ()


def write_log(folder: Path, *ids: str) -> None:
    journal = Journal(folder / LOG_FILE)
    for offset, record_id in enumerate(ids):
        journal.write("orders", 0, offset, record_id)
    journal.close()


def test_journals_of_all_sessions_count(tmp_path: Path) -> None:
    for session, offset in (("1", 0), ("2", 1)):
        journal = Journal(tmp_path / f"acknowledged-plain-{session}.tsv")
        journal.write("orders", 0, offset, f"p-{offset}", "-")
        journal.close()
        gaps = Journal(tmp_path / f"gaps-{session}.tsv")
        gaps.write("producer-plain", 1.5 + offset)
        gaps.close()
    journal = Journal(tmp_path / "consumed-classic.tsv")
    journal.write("orders", 0, 0, "p-0")
    journal.close()
    write_log(tmp_path, "p-0", "p-1")
    result = compare_journals(tmp_path, nothing_is_read, {})
    assert kinds(result) == ["lost"]
    assert (result.acknowledged, result.stored) == (2, 2)
    assert result.unavailable_s == {"producer-plain": 2.5}


def test_what_is_amiss_in_one_stretch_is_amiss_in_the_whole() -> None:
    green, red = verdict(ACKNOWLEDGED, CONSUMED), verdict(ACKNOWLEDGED, CONSUMED[1:])
    whole = together([red, green])
    assert (whole.is_clean, kinds(whole), whole.periods) == (False, ["lost"], 2)
    assert (whole.acknowledged, whole.consumed) == (12, {"classic": 11})
    assert whole.transactions["committed"] == 2
    assert together([green, green]).is_clean


def test_the_newest_period_must_have_acknowledged_a_record() -> None:
    """An earlier one covers no node step: that is another discrepancy."""
    green, empty = verdict(ACKNOWLEDGED, CONSUMED), checked([], {}, {"classic": []}, nothing_is_read, period=2)
    (found,) = together([green, empty]).failures
    assert (found.kind, found.sentence) == ("empty", "Traffic period 2 acknowledged no record, so it proves nothing.")
    assert together([together([green, empty]), green]).is_clean


LOWERED = {"metadata.version": 25, "group.version": 0, "transaction.version": 0}


def write_plain_traffic(folder: Path) -> None:
    acknowledged = Journal(folder / "acknowledged-plain-1.tsv")
    acknowledged.write("orders", 0, 0, "p-0", "-")
    acknowledged.close()
    consumed = Journal(folder / "consumed-classic.tsv")
    consumed.write("orders", 0, 0, "p-0")
    consumed.close()
    write_log(folder, "p-0")


def test_clients_that_a_lower_level_ends_are_left_out_and_the_check_passes_without_them(tmp_path: Path) -> None:
    write_plain_traffic(tmp_path)
    result = compare_journals(tmp_path, nothing_is_read, LOWERED)
    assert result.is_clean
    assert result.left_out == ("producer-transactional", "consumer-consumer")


def test_without_a_lower_level_missing_transactions_fail_the_check(tmp_path: Path) -> None:
    write_plain_traffic(tmp_path)
    result = compare_journals(tmp_path, nothing_is_read, {"metadata.version": 25, "transaction.version": 2})
    assert not result.is_clean
    assert result.left_out == ()


def test_a_client_that_ran_in_one_period_was_not_left_out(tmp_path: Path) -> None:
    write_plain_traffic(tmp_path)
    without = compare_journals(tmp_path, nothing_is_read, LOWERED)
    complete = verdict(ACKNOWLEDGED, CONSUMED)
    assert together([without, without]).left_out == without.left_out
    assert together([without, complete]).left_out == ()
    assert together([without, complete]).is_clean


def test_a_partition_without_a_record_beside_others_with_many_proves_nothing() -> None:
    many = [TrafficRecord(at(n, n % 2), f"m-{n}") for n in range(100)]
    starts = {("orders", number): 0 for number in range(3)}
    found = checked(many, {}, {"classic": many}, nothing_is_read, log_starts=starts)
    (silent,) = found.failures
    assert (silent.kind, silent.examples) == ("silent", ("orders-2",))
    assert silent.sentence == "No record was acknowledged in 1 partition, so nothing is proved there: orders-2."
    few = many[:10]
    assert kinds(checked(few, {}, {"classic": few}, nothing_is_read, log_starts=starts)) == [], "chance"


class Acknowledged:
    """A message of librdkafka."""

    def __init__(self, partition: int) -> None:
        self._partition = partition

    def latency(self) -> float:
        return 0.01

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return 0


def test_the_outage_of_one_partition_is_not_hidden_by_the_others() -> None:
    now = [0.0]
    client = Client("producer-plain", lambda _: None, clock=lambda: now[0])
    for second in range(600):
        now[0] = float(second)
        client.sign_of_life()
        client.acknowledged(Acknowledged(1))  # type: ignore[arg-type]
        if second in (0, 590):
            client.acknowledged(Acknowledged(2))  # type: ignore[arg-type]
    assert (client.longest_s, client.longest_of_partition_s) == (1.0, 590.0)
    now[0] = 1300.0
    client.join(0)
    assert (client.longest_s, client.longest_of_partition_s) == (701.0, 710.0), "a silence until the end counts"


def test_a_thread_of_traffic_goes_on_after_an_error_that_is_not_of_kafka() -> None:
    tries: list[int] = []

    def body(client: Client) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("No space left on device")
        client.stop.set()

    client = Client("producer-plain", body)
    client.start()
    assert client.stop.wait(10)
    assert (len(tries), client.window.failed) == (2, 1)
