"""The live-traffic ledger's comparison: what was acknowledged against what was consumed. Pure.

A record is identified twice: by where it lies (topic, partition, offset) and by an id that its producer gave it once.
So a record that vanished, one that lies at another place, and one that lies at two places are told apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

# A verdict names the first few of each kind; the counts are whole.
EXAMPLES = 10


class TransactionOutcome(StrEnum):
    """What the producer was told; UNKNOWN: the answer to the commit or abort was lost."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


# The place of a record whose retry the broker answered with DUPLICATE_SEQUENCE_NUMBER: librdkafka takes that for an
# acknowledgement, and nobody can tell the offset.
UNKNOWN_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Position:
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """An acknowledged record; `transaction` is None for a plain one.

    With UNKNOWN_OFFSET it is compared by its id alone.
    """

    position: Position
    record_id: str
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    position: Position
    record_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrepancy:
    """One kind of discrepancy: `kind` is lost, moved, doubled, leaked or torn; `examples` are positions or ids."""

    kind: str
    consumer: str
    count: int
    examples: tuple[str, ...]
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerVerdict:
    """`unavailable_s`: by client, the longest time without an acknowledgement or a record while traffic ran.
    `stretches`: how often the traffic was ended and compared, and begun anew when the run went on."""

    acknowledged: int
    transactions: Mapping[str, int]
    consumed: Mapping[str, int]
    redelivered: Mapping[str, int]
    unavailable_s: Mapping[str, float]
    discrepancies: tuple[Discrepancy, ...]
    stretches: int = 1

    @property
    def ok(self) -> bool:
        """Nothing is amiss, and each kind of traffic got through: an idle client proves nothing."""
        ran = self.acknowledged > 0 and self.transactions[TransactionOutcome.COMMITTED] > 0
        return ran and bool(self.consumed) and all(self.consumed.values()) and not self.discrepancies


def compare(
    acknowledged: Iterable[LedgerRecord],
    transactions: Mapping[str, TransactionOutcome],
    consumed: Mapping[str, Iterable[ConsumedRecord]],
    unavailable_s: Mapping[str, float],
) -> LedgerVerdict:
    """Compare all acknowledged records with what each consumer (group) got with isolation read_committed.

    A transaction without an outcome counts as UNKNOWN: all of its records or none may be there.
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
        places, total = _places(got)
        counts[consumer] = len(places)
        redelivered[consumer] = total - len(places)
        discrepancies += _discrepancies(
            consumer,
            records=records,
            outcome_of=outcome_of,
            expected=expected,
            placeless=placeless,
            places=places,
        )
    outcomes = [*transactions.values()]
    return LedgerVerdict(
        acknowledged=len(kept),
        transactions={outcome.value: outcomes.count(outcome) for outcome in TransactionOutcome},
        consumed=counts,
        redelivered=redelivered,
        unavailable_s=dict(unavailable_s),
        discrepancies=tuple(discrepancies),
    )


def together(verdicts: Sequence[LedgerVerdict]) -> LedgerVerdict:
    """The verdict over all stretches of one ledger."""

    def summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
        total: Counter[str] = Counter()
        for each in counts:
            total.update(each)
        return dict(total)

    longest: dict[str, float] = {}
    for client, seconds in (pair for verdict in verdicts for pair in verdict.unavailable_s.items()):
        longest[client] = max(longest.get(client, 0.0), seconds)
    return LedgerVerdict(
        acknowledged=sum(verdict.acknowledged for verdict in verdicts),
        transactions=summed(verdict.transactions for verdict in verdicts),
        consumed=summed(verdict.consumed for verdict in verdicts),
        redelivered=summed(verdict.redelivered for verdict in verdicts),
        unavailable_s=longest,
        discrepancies=tuple(found for verdict in verdicts for found in verdict.discrepancies),
        stretches=sum(verdict.stretches for verdict in verdicts),
    )


def _places(got: Iterable[ConsumedRecord]) -> tuple[dict[Position, str], int]:
    places: dict[Position, str] = {}
    total = 0
    for record in got:
        total += 1
        places[record.position] = record.record_id
    return places, total


def _discrepancies(
    consumer: str,
    *,
    records: list[LedgerRecord],
    outcome_of: Mapping[str, TransactionOutcome],
    expected: Mapping[Position, str],
    placeless: list[str],
    places: Mapping[Position, str],
) -> list[Discrepancy]:
    positions_of: dict[str, list[Position]] = defaultdict(list)
    for position, record_id in places.items():
        positions_of[record_id].append(position)
    lost: list[object] = [p for p, record_id in expected.items() if p not in places and not positions_of[record_id]]
    moved = [p for p, record_id in expected.items() if places.get(p) != record_id and positions_of[record_id]]
    # An acknowledged place that another record took over lost its own.
    lost += [p for p, record_id in expected.items() if p in places and not positions_of[record_id]]
    lost += [record_id for record_id in placeless if not positions_of[record_id]]
    doubled = [record_id for record_id, at in positions_of.items() if len(at) > 1]
    members: dict[str, list[str]] = defaultdict(list)
    for record in records:
        if record.transaction is not None:
            members[record.transaction].append(record.record_id)
    seen = {name: sum(1 for record_id in ids if positions_of[record_id]) for name, ids in members.items()}
    leaked = [name for name, n in seen.items() if outcome_of[name] is TransactionOutcome.ABORTED and n]
    torn = [
        name
        for name, n in seen.items()
        if outcome_of[name] is TransactionOutcome.UNKNOWN and 0 < n < len(members[name])
    ]
    kinds: tuple[tuple[str, Iterable[object], str], ...] = (
        ("lost", lost, "acknowledged and never consumed"),
        ("moved", moved, "consumed at another place than the one acknowledged"),
        ("doubled", doubled, "lie at more than one place of the log"),
        ("leaked", leaked, "aborted, and consumed all the same"),
        ("torn", torn, "of unknown outcome, and only a part of them consumed"),
    )
    return [_discrepancy(kind, consumer, list(found), what) for kind, found, what in kinds if found]


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
