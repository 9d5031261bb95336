"""The traffic check: comparison of acknowledged test records with those that consumers received, and with the log.

A record has two identities: its position (topic, partition, offset) and a unique id from its producer. What must be
there goes by the id: after a truncation, later records get the positions of lost ones. The positions show a record that
was moved or is stored twice. A record that a consumer received can be lost afterwards: the whole log, read at the end,
decides.

A record at two positions was sent again by its client, or stored again by the cluster. The marks of the producer in the
log separate the two (KIP-98): a broker rejects a batch with a sequence that it has, so two positions with the same mark
are the cluster's. librdkafka sends a batch whose request expired again with a new producer epoch.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from kafka_rollout.base.json_forms import from_json
from kafka_rollout.base.wording import count
from kafka_rollout.run.traffic import (
    EMPTY,
    RESENT,
    UNKNOWN_PERIOD,
    Discrepancy,
    Leadership,
    TrafficSample,
    TrafficVerdict,
    TransactionOutcome,
    condense,
)

LOG = "log"
"""The reader of the whole log at the end of a traffic period. It has no group."""
CONSUMER_GROUP = "consumer-consumer"  # the client of the group of the consumer protocol (KIP-848)
# Limit of examples per kind of discrepancy; the counts include all.
EXAMPLES = 10
# Records for each partition of a topic, with which a partition without one is no chance.
_MANY = 20


# Position of a record whose retry got DUPLICATE_SEQUENCE_NUMBER. librdkafka treats this as acknowledged, and the
# offset is unknown.
UNKNOWN_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Position:
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class ProducerMark:
    """The producer's identity of a stored record. −1 for each without an idempotent producer."""

    producer_id: int
    epoch: int
    sequence: int


ReadMarks = Callable[[Collection[Position]], Mapping[Position, ProducerMark]]
"""Reads the marks in the log. A position that cannot be read is missing in the result."""


@dataclass(frozen=True, slots=True)
class TrafficRecord:
    """An acknowledged or consumed record.

    With UNKNOWN_OFFSET it is compared only by its id.
    """

    position: Position
    record_id: str
    transaction: str | None = None
    """Of an acknowledged one; None without a transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecord:
    """A record that a broker refused for good."""

    topic: str
    partition: int
    at: float
    """Epoch seconds."""
    error: str
    """The name of Kafka's error."""


def compare(
    acknowledged: Iterable[TrafficRecord],
    transactions: Mapping[str, TransactionOutcome],
    read: Mapping[str, Iterable[TrafficRecord]],
    unavailable_s: Mapping[str, float],
    read_marks: ReadMarks,
    *,
    left_out: Iterable[str] = (),
    series: Iterable[TrafficSample] = (),
    leaderships: tuple[Leadership, ...] = (),
    log_starts: Mapping[tuple[str, int], int] | None = None,
    refused: Sequence[RefusedRecord] = (),
    passes: int = 1,
    say_compared: Callable[[int], None] = lambda _: None,
    period: int = 1,
) -> TrafficVerdict:
    """Compare all acknowledged records with the records of each reader with isolation read_committed.

    `read`: those of each consumer group, and of LOG. `read_marks` is called only for records at several positions.

    A transaction without an outcome counts as UNKNOWN: either all of its records are read, or none. `log_starts`: topic
    and partition → first offset of the log at the end, of all partitions; one without a record, while the others have
    many, proves nothing. `refused`: records that no broker stored or will.

    `passes`: how often the records are iterated, each time for a part of the ids. More passes need less memory: about
    250 bytes for each record of a pass. `say_compared` gets the number of acknowledged records after each. `period`:
    the number of the traffic period.
    """
    ledger = _Ledger(transactions, {reader: _Reader(reader) for reader in read}, read_marks, log_starts or {})
    for number in range(passes):
        ledger.add(
            _of_pass(acknowledged, number, passes),
            {reader: _of_pass(records, number, passes) for reader, records in read.items()},
        )
        say_compared(ledger.acknowledged)
    groups = [reader for name, reader in ledger.readers.items() if name != LOG]
    outcomes = [*transactions.values()]
    return TrafficVerdict(
        acknowledged=ledger.acknowledged,
        stored=ledger.readers[LOG].expected,
        transactions={outcome.value: outcomes.count(outcome) for outcome in TransactionOutcome},
        consumed={reader.name: reader.distinct for reader in groups},
        redelivered={reader.name: reader.total - reader.distinct for reader in groups},
        unavailable_s=dict(unavailable_s),
        discrepancies=(
            *ledger.discrepancies(),
            *_refused(refused),
            *_silent(ledger.of_partition, ledger.log_starts),
            *([] if ledger.acknowledged else [_empty(period)]),
        ),
        left_out=tuple(left_out),
        series=condense(series),
        leaderships=leaderships,
    )


def _of_pass(records: Iterable[TrafficRecord], number: int, passes: int) -> Iterator[TrafficRecord]:
    if passes == 1:
        return iter(records)
    return (record for record in records if crc32(record.record_id.encode()) % passes == number)


def _refused(records: Sequence[RefusedRecord]) -> list[Discrepancy]:
    if not records:
        return []
    first = min(records, key=lambda one: one.at)
    examples = dict.fromkeys(f"{one.topic}-{one.partition}: {one.error}" for one in (first, *records))
    of = f"{count(len(records), 'record')} of the test traffic for good"
    sentence = f"Brokers refused {of}, the first of {next(iter(examples))}."
    return [
        Discrepancy(
            kind="refused",
            consumer="test traffic",
            count=len(records),
            examples=tuple(examples)[:EXAMPLES],
            sentence=sentence,
        )
    ]


def _silent(counted: Mapping[tuple[str, int], int], places: Iterable[tuple[str, int]]) -> list[Discrepancy]:
    """Return the partitions without an acknowledged record.

    `counted`: topic and partition → number of acknowledged records; 0 by default.
    """
    of_topics: dict[str, list[int]] = {}
    for topic, number in places:
        of_topics.setdefault(topic, []).append(number)
    silent = [
        f"{topic}-{number}"
        for topic, numbers in of_topics.items()
        if sum(counted[topic, each] for each in numbers) >= _MANY * len(numbers)
        for number in numbers
        if not counted[topic, number]
    ]
    if not silent:
        return []
    where = count(len(silent), "partition")
    sentence = f"No record was acknowledged in {where}, so nothing is proved there: {', '.join(silent)}."
    return [
        Discrepancy(
            kind="silent",
            consumer="test traffic",
            count=len(silent),
            examples=tuple(silent[:EXAMPLES]),
            sentence=sentence,
        )
    ]


def _empty(period: int) -> Discrepancy:
    sentence = f"Traffic period {period} acknowledged no record, so it proves nothing."
    return Discrepancy(kind=EMPTY, consumer="test traffic", count=1, examples=(), sentence=sentence)


def together(verdicts: Sequence[TrafficVerdict]) -> TrafficVerdict:
    """Return the result over all traffic periods of a run.

    Of periods without an acknowledged record, only the newest is a discrepancy: what ran during an earlier one is not
    covered by it.
    """

    def summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
        total: Counter[str] = Counter()
        for each in counts:
            total.update(each)
        return dict(total)

    longest: dict[str, float] = {}
    for client, seconds in (pair for verdict in verdicts for pair in verdict.unavailable_s.items()):
        longest[client] = max(longest.get(client, 0.0), seconds)
    return TrafficVerdict(
        acknowledged=sum(verdict.acknowledged for verdict in verdicts),
        stored=sum(verdict.stored for verdict in verdicts),
        transactions=summed(verdict.transactions for verdict in verdicts),
        consumed=summed(verdict.consumed for verdict in verdicts),
        redelivered=summed(verdict.redelivered for verdict in verdicts),
        unavailable_s=longest,
        discrepancies=tuple(
            found
            for verdict in verdicts
            for found in verdict.discrepancies
            if found.kind != EMPTY or verdict is verdicts[-1]
        ),
        periods=sum(verdict.periods for verdict in verdicts),
        left_out=tuple(name for name in verdicts[0].left_out if all(name in verdict.left_out for verdict in verdicts)),
        series=condense(sample for verdict in verdicts for sample in verdict.series),
        leaderships=tuple(one for verdict in verdicts for one in verdict.leaderships),
    )


def with_earlier(before: Any, result: TrafficVerdict) -> TrafficVerdict:
    """Return the result over all traffic periods. `before`: JSON data of the result of the earlier ones, or None."""
    return result if before is None else together([from_json(TrafficVerdict, before), result])


def not_compared(host: str, sentence: str) -> TrafficVerdict:
    """The result of a traffic period whose records could not be compared. It never passes."""
    unknown = Discrepancy(kind=UNKNOWN_PERIOD, consumer="test traffic", count=1, examples=(host,), sentence=sentence)
    return TrafficVerdict(
        acknowledged=0,
        stored=0,
        transactions={outcome.value: 0 for outcome in TransactionOutcome},
        consumed={},
        redelivered={},
        unavailable_s={},
        discrepancies=(unknown,),
    )


_NOWHERE = -1


@dataclass(slots=True)
class _Places:
    """Positions as numbers: of the partition, in the order of their first records, and the offset. −1: unknown."""

    numbers: dict[tuple[str, int], int] = field(default_factory=dict)

    def pack(self, position: Position) -> int:
        if position.offset == UNKNOWN_OFFSET:
            return _NOWHERE
        number = self.numbers.setdefault((position.topic, position.partition), len(self.numbers))
        return number << 40 | position.offset

    def unpack(self, place: int) -> Position:
        topic, partition = [*self.numbers][place >> 40]
        return Position(topic, partition, place & ((1 << 40) - 1))


@dataclass(slots=True)
class _Expected:
    """The acknowledged records of a pass, as columns: a night has more than a million."""

    rows: dict[str, int] = field(default_factory=dict)
    """Id → index in the other columns."""
    places: array[int] = field(default_factory=lambda: array("q"))
    transactions: list[str | None] = field(default_factory=list)
    is_kept: bytearray = field(default_factory=bytearray)
    """1 unless its transaction was not committed."""

    def append(self, record_id: str, place: int, transaction: str | None, is_kept: bool) -> None:
        self.rows[record_id] = len(self.places)
        self.places.append(place)
        self.transactions.append(transaction)
        self.is_kept.append(is_kept)


@dataclass(slots=True)
class _Reader:
    """What one reader got, in all passes so far."""

    name: str
    total: int = 0
    """With those that it got again."""
    distinct: int = 0
    """Ids and positions."""
    expected: int = 0
    """Of the records that must be there."""
    of_transaction: Counter[str] = field(default_factory=Counter)
    """Ids of each transaction."""
    counts: Counter[str] = field(default_factory=Counter)
    """Kind of discrepancy → number."""
    examples: dict[str, list[object]] = field(default_factory=dict)
    """Kind of discrepancy → the first EXAMPLES."""
    below_start: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Topic and partition → number of lost records before the start of the log."""

    def note(self, kind: str, what: object) -> None:
        self.counts[kind] += 1
        kept = self.examples.setdefault(kind, [])
        if len(kept) < EXAMPLES:
            kept.append(what)


@dataclass(slots=True)
class _Ledger:
    """The comparison. Each pass adds the records of some ids."""

    transactions: Mapping[str, TransactionOutcome]
    readers: Mapping[str, _Reader]
    read_marks: ReadMarks
    log_starts: Mapping[tuple[str, int], int]
    acknowledged: int = 0
    of_partition: Counter[tuple[str, int]] = field(default_factory=Counter)
    members: Counter[str] = field(default_factory=Counter)
    """Transaction → number of its acknowledged records."""
    _places: _Places = field(default_factory=_Places)

    def outcome_of(self, transaction: str) -> TransactionOutcome:
        return self.transactions.get(transaction, TransactionOutcome.UNKNOWN)

    def add(self, acknowledged: Iterable[TrafficRecord], read: Mapping[str, Iterable[TrafficRecord]]) -> None:
        expected = _Expected()
        for record in acknowledged:
            position, name = record.position, record.transaction
            self.of_partition[position.topic, position.partition] += 1
            if record.record_id in expected.rows:
                continue
            is_kept = name is None or self.outcome_of(name) is TransactionOutcome.COMMITTED
            expected.append(record.record_id, self._places.pack(position), name, is_kept)
            self.acknowledged += is_kept
            if name is not None:
                self.members[name] += 1
        for name_of_reader, records in read.items():
            self._read(self.readers[name_of_reader], expected, records)

    def _read(self, reader: _Reader, expected: _Expected, records: Iterable[TrafficRecord]) -> None:
        """Compare what a reader got in this pass."""
        found = array("q", [_NOWHERE]) * len(expected.places)
        others: dict[str, int] = {}  # without an acknowledgement
        several: dict[str, set[int]] = {}
        for record in records:
            reader.total += 1
            place, row = self._places.pack(record.position), expected.rows.get(record.record_id)
            before = others.setdefault(record.record_id, place) if row is None else found[row]
            if row is not None and before == _NOWHERE:
                found[row] = place
            elif before != place:
                several.setdefault(record.record_id, {before}).add(place)
        for record_id, row in expected.rows.items():
            place, name, is_kept = expected.places[row], expected.transactions[row], expected.is_kept[row]
            if found[row] != _NOWHERE:
                reader.distinct += 1
                reader.expected += is_kept
                if name is not None:
                    reader.of_transaction[name] += 1
                if is_kept and place not in {_NOWHERE, found[row], *several.get(record_id, ())}:
                    reader.note("moved", self._places.unpack(place))
            elif is_kept:
                self._lost(reader, record_id, place)
        reader.distinct += len(others) + sum(len(one) - 1 for one in several.values())
        self._doubled(reader, several)

    def _lost(self, reader: _Reader, record_id: str, place: int) -> None:
        if place == _NOWHERE:
            reader.note("lost", record_id)
            return
        position = self._places.unpack(place)
        reader.note("lost", position)
        partition = position.topic, position.partition
        if reader.name == LOG and position.offset < self.log_starts.get(partition, 0):
            reader.below_start[partition] += 1

    def _doubled(self, reader: _Reader, several: Mapping[str, Collection[int]]) -> None:
        """Note the records at more than one position: those that Kafka stored twice, and those that the client
        resent."""
        positions = {record_id: [self._places.unpack(one) for one in at] for record_id, at in several.items()}
        marks = self.read_marks([one for at in positions.values() for one in at]) if positions else {}
        for record_id, at in positions.items():
            reader.note(RESENT if _was_resent(at, marks) else "doubled", record_id)

    def discrepancies(self) -> Iterator[Discrepancy]:
        for reader in self.readers.values():
            for name, count_of in self.members.items():
                outcome, seen = self.outcome_of(name), reader.of_transaction[name]
                if outcome is TransactionOutcome.ABORTED and seen:
                    reader.note("leaked", name)
                elif outcome is TransactionOutcome.UNKNOWN and 0 < seen < count_of:
                    reader.note("torn", name)
            kinds = _KINDS_OF_LOG if reader.name == LOG else _KINDS
            for kind, what in kinds.items():
                if reader.counts[kind]:
                    yield _discrepancy(kind, reader, what, self.log_starts)


_KINDS = {
    "lost": "acknowledged and never consumed",
    "moved": "consumed at a position other than the acknowledged one",
    "doubled": "stored at more than one position of the log",
    RESENT: "sent again by their client, so stored at more than one position of the log",
    "leaked": "aborted, but consumed",
    "torn": "of unknown outcome and consumed only in part",
}
_KINDS_OF_LOG = _KINDS | {
    "lost": "acknowledged, but not in the log at the end",
    "moved": "at another position of the log than the acknowledged one",
    "leaked": "aborted, but readable",
    "torn": "of unknown outcome and readable only in part",
}


def _was_resent(at: Collection[Position], marks: Mapping[Position, ProducerMark]) -> bool:
    """Whether every position has a mark of its own. Without a mark, the cause is unknown."""
    found = {marks[position] for position in at if position in marks and marks[position].producer_id >= 0}
    return len(found) == len(at)


def _discrepancy(kind: str, reader: _Reader, what: str, log_starts: Mapping[tuple[str, int], int]) -> Discrepancy:
    noun = "transactions" if kind in ("leaked", "torn") else "records"
    examples = tuple(map(str, reader.examples[kind]))
    sentence = f"{reader.name}: {reader.counts[kind]} {noun} {what}, for example {', '.join(examples[:3])}."
    if kind == "lost" and reader.below_start:
        starts = ", ".join(f"{topic}-{number}@{log_starts[topic, number]}" for topic, number in reader.below_start)
        sentence += f" {reader.below_start.total()} of them are before the start of their log: {starts}."
    return Discrepancy(kind=kind, consumer=reader.name, count=reader.counts[kind], examples=examples, sentence=sentence)
