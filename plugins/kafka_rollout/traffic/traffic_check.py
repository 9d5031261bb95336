"""The traffic check: comparison of acknowledged and consumed test records.

A record has two identities: its position (topic, partition, offset) and a unique id from its producer. So the check can
separate a lost record, a record at another position, and a record at two positions.

A record at two positions was sent again by its client, or stored again by the cluster. The marks of the producer in the
log separate the two (KIP-98): a broker rejects a batch with a sequence that it has, so two positions with the same mark
are the cluster's. librdkafka sends a batch whose request expired again with a new producer epoch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_rollout.base.json_forms import from_json
from kafka_rollout.base.wording import count
from kafka_rollout.run.traffic import (
    RESENT,
    UNKNOWN_PERIOD,
    Discrepancy,
    TrafficSample,
    TrafficVerdict,
    TransactionOutcome,
    condense,
)

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


def compare(
    acknowledged: Iterable[TrafficRecord],
    transactions: Mapping[str, TransactionOutcome],
    consumed: Mapping[str, Iterable[TrafficRecord]],
    unavailable_s: Mapping[str, float],
    read_marks: ReadMarks,
    *,
    left_out: Iterable[str] = (),
    series: Iterable[TrafficSample] = (),
    partitions: Mapping[str, int] | None = None,
) -> TrafficVerdict:
    """Compare all acknowledged records with the records of each consumer group with isolation read_committed.

    `read_marks` is called only for records at several positions.

    A transaction without an outcome counts as UNKNOWN: either all of its records are consumed, or none. `partitions`:
    topic → number of its partitions; one without a record, while the others have many, proves nothing.
    """
    records = list(acknowledged)
    outcome_of = {
        r.transaction: transactions.get(r.transaction, TransactionOutcome.UNKNOWN)
        for r in records
        if r.transaction is not None
    }
    kept = [r for r in records if r.transaction is None or outcome_of[r.transaction] is TransactionOutcome.COMMITTED]
    expected = {r.position: r.record_id for r in kept if r.position.offset != UNKNOWN_OFFSET}
    placeless = [r.record_id for r in kept if r.position.offset == UNKNOWN_OFFSET]
    discrepancies: list[Discrepancy] = []
    counts: dict[str, int] = {}
    redelivered: dict[str, int] = {}
    for consumer, got in consumed.items():
        places: dict[Position, str] = {}
        total = 0
        for record in got:
            total += 1
            places[record.position] = record.record_id
        counts[consumer] = len(places)
        redelivered[consumer] = total - len(places)
        discrepancies += _discrepancies(
            consumer,
            records=records,
            outcome_of=outcome_of,
            expected=expected,
            placeless=placeless,
            places=places,
            read_marks=read_marks,
        )
    discrepancies += _silent(records, partitions or {})
    outcomes = [*transactions.values()]
    return TrafficVerdict(
        acknowledged=len(kept),
        transactions={outcome.value: outcomes.count(outcome) for outcome in TransactionOutcome},
        consumed=counts,
        redelivered=redelivered,
        unavailable_s=dict(unavailable_s),
        discrepancies=tuple(discrepancies),
        left_out=tuple(left_out),
        series=condense(series),
    )


def _silent(records: Iterable[TrafficRecord], partitions: Mapping[str, int]) -> list[Discrepancy]:
    """Return the partitions without an acknowledged record. The producers choose partitions by chance."""
    counted = Counter((record.position.topic, record.position.partition) for record in records)
    silent = [
        f"{topic}-{number}"
        for topic, size in partitions.items()
        if sum(counted[topic, each] for each in range(size)) >= _MANY * size
        for number in range(size)
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


def together(verdicts: Sequence[TrafficVerdict]) -> TrafficVerdict:
    """Return the result over all traffic periods of a run."""

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
        transactions=summed(verdict.transactions for verdict in verdicts),
        consumed=summed(verdict.consumed for verdict in verdicts),
        redelivered=summed(verdict.redelivered for verdict in verdicts),
        unavailable_s=longest,
        discrepancies=tuple(found for verdict in verdicts for found in verdict.discrepancies),
        periods=sum(verdict.periods for verdict in verdicts),
        left_out=tuple(name for name in verdicts[0].left_out if all(name in verdict.left_out for verdict in verdicts)),
        series=condense(sample for verdict in verdicts for sample in verdict.series),
    )


def with_earlier(before: Any, result: TrafficVerdict) -> TrafficVerdict:
    """Return the result over all traffic periods. `before`: JSON data of the result of the earlier ones, or None."""
    return result if before is None else together([from_json(TrafficVerdict, before), result])


def not_compared(host: str, sentence: str) -> TrafficVerdict:
    """The result of a traffic period whose records could not be compared. It never passes."""
    unknown = Discrepancy(kind=UNKNOWN_PERIOD, consumer="test traffic", count=1, examples=(host,), sentence=sentence)
    return TrafficVerdict(
        acknowledged=0,
        transactions={outcome.value: 0 for outcome in TransactionOutcome},
        consumed={},
        redelivered={},
        unavailable_s={},
        discrepancies=(unknown,),
    )


def _discrepancies(
    consumer: str,
    *,
    records: list[TrafficRecord],
    outcome_of: Mapping[str, TransactionOutcome],
    expected: Mapping[Position, str],
    placeless: list[str],
    places: Mapping[Position, str],
    read_marks: ReadMarks,
) -> list[Discrepancy]:
    positions_of: dict[str, list[Position]] = defaultdict(list)
    for position, record_id in places.items():
        positions_of[record_id].append(position)
    lost, moved = _lost_and_moved(expected, placeless, places, positions_of)
    doubled, resent = _doubled_and_resent(positions_of, read_marks)
    leaked, torn = _leaked_and_torn(records, outcome_of, positions_of.keys())
    kinds: tuple[tuple[str, list[object], str], ...] = (
        ("lost", lost, "acknowledged and never consumed"),
        ("moved", moved, "consumed at a position other than the acknowledged one"),
        ("doubled", doubled, "stored at more than one position of the log"),
        (RESENT, resent, "sent again by their client, so stored at more than one position of the log"),
        ("leaked", leaked, "aborted, but consumed"),
        ("torn", torn, "of unknown outcome and consumed only in part"),
    )
    return [_discrepancy(kind, consumer, items, what) for kind, items, what in kinds if items]


def _lost_and_moved(
    expected: Mapping[Position, str],
    placeless: Iterable[str],
    places: Mapping[Position, str],
    positions_of: Mapping[str, Collection[Position]],
) -> tuple[list[object], list[object]]:
    """Return positions and record ids of records that were not consumed, and the acknowledged positions of those that
    were consumed elsewhere. If another record has an acknowledged position, the record of that position is lost.
    """
    lost: list[object] = []
    moved: list[object] = []
    for position, record_id in expected.items():
        if record_id not in positions_of:
            lost.append(position)
        elif places.get(position) != record_id:
            moved.append(position)
    lost += [record_id for record_id in placeless if record_id not in positions_of]
    return lost, moved


def _doubled_and_resent(
    positions_of: Mapping[str, Collection[Position]], read_marks: ReadMarks
) -> tuple[list[object], list[object]]:
    """Return the records at more than one position: those that Kafka stored twice, and those that the client resent."""
    several = {record_id: at for record_id, at in positions_of.items() if len(at) > 1}
    marks = read_marks([position for at in several.values() for position in at]) if several else {}
    doubled: list[object] = []
    resent: list[object] = []
    for record_id, at in several.items():
        (resent if _was_resent(at, marks) else doubled).append(record_id)
    return doubled, resent


def _leaked_and_torn(
    records: Iterable[TrafficRecord], outcome_of: Mapping[str, TransactionOutcome], consumed: Collection[str]
) -> tuple[list[object], list[object]]:
    """Return aborted transactions of which a record was consumed, and those of unknown outcome consumed in part."""
    members: dict[str, list[str]] = defaultdict(list)
    for record in records:
        if record.transaction is not None:
            members[record.transaction].append(record.record_id)
    leaked: list[object] = []
    torn: list[object] = []
    for name, ids in members.items():
        seen = sum(record_id in consumed for record_id in ids)
        if outcome_of[name] is TransactionOutcome.ABORTED and seen:
            leaked.append(name)
        elif outcome_of[name] is TransactionOutcome.UNKNOWN and 0 < seen < len(ids):
            torn.append(name)
    return leaked, torn


def _was_resent(at: Collection[Position], marks: Mapping[Position, ProducerMark]) -> bool:
    """Whether every position has a mark of its own. Without a mark, the cause is unknown."""
    found = {marks[position] for position in at if position in marks and marks[position].producer_id >= 0}
    return len(found) == len(at)


def _discrepancy(kind: str, consumer: str, found: list[object], what: str) -> Discrepancy:
    noun = "transactions" if kind in ("leaked", "torn") else "records"
    examples = tuple(str(item) for item in found[:EXAMPLES])
    return Discrepancy(
        kind=kind,
        consumer=consumer,
        count=len(found),
        examples=examples,
        sentence=f"{consumer}: {len(found)} {noun} {what}, for example {', '.join(examples[:3])}.",
    )
