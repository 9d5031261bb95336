"""Test traffic of a run: its series over time, in a bounded number of samples, and its verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple, TypeVar

MOST_SAMPLES = 600
SILENCE_S = 5.0
_PAUSE_S = 30.0  # without a sample, so the traffic did not run
N = TypeVar("N", int, float)
PLAIN_PRODUCER, TRANSACTIONAL_PRODUCER = "producer-plain", "producer-transactional"


class TrafficSample(NamedTuple):
    """What the clients experienced in one interval. None: not observed."""

    at: float
    """Its begin (epoch seconds)."""
    seconds: float
    acknowledged: int = 0
    failed: int = 0
    """Requests that failed, timed out or were repeated, and lost connections, by librdkafka's statistics; records that
    were not delivered."""
    latency_ms: float | None = None
    """From produce() to the acknowledgement, mean and worst."""
    worst_latency_ms: float | None = None
    silent_s: float = 0.0
    """The longest time without an acknowledgement that ended in the interval or still lasted at its end."""
    under_replicated: int | None = None
    """Partitions of the cluster with a replica outside the ISR."""
    lag: int | None = None
    """Records that were acknowledged and that the slowest consumer group had not received at the end of the interval.
    """
    committed: int | None = None
    """Those of the acknowledged records whose transactions were committed. None: no transactional producer ran."""

    @property
    def of_producers(self) -> Mapping[str, int]:
        """Acknowledged records by each producer that ran."""
        if self.committed is None:
            return {PLAIN_PRODUCER: self.acknowledged}
        return {PLAIN_PRODUCER: self.acknowledged - self.committed, TRANSACTIONAL_PRODUCER: self.committed}


class Leadership(NamedTuple):
    """A time in which a broker led partitions of the test traffic, and acknowledged records of them."""

    producer: str
    broker: int
    """Its node id."""
    since: float
    until: float
    """The first and the last acknowledgement (epoch seconds), each not later than it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSeries:
    """What is read of a stored result of the test traffic, which another version can have written."""

    series: tuple[TrafficSample, ...] = ()
    leaderships: tuple[Leadership, ...] = ()


MOST_LEADERSHIPS = 20
"""Of a producer and a broker. A run has as many only if the client stalls again and again."""


def thin_out(leaderships: Iterable[Leadership], most: int = MOST_LEADERSHIPS) -> tuple[Leadership, ...]:
    """Return at most `most` leaderships of each producer and broker, in their order, with the first and the last ones.

    Those go that leave the shortest time without evidence. None is merged: nothing shows that the broker led in
    between. So a node step can lose its evidence, and never gets one.
    """
    every = tuple(leaderships)
    kept: dict[tuple[str, int], list[int]] = {}
    for number, one in enumerate(every):
        own = kept.setdefault((one.producer, one.broker), [])
        own.append(number)
        if len(own) > most:
            del own[min(range(1, most), key=lambda at: every[own[at + 1]].since - every[own[at - 1]].until)]
    return tuple(every[number] for number in sorted(number for own in kept.values() for number in own))


def condense(samples: Iterable[TrafficSample], most: int = MOST_SAMPLES) -> tuple[TrafficSample, ...]:
    """Return at most about `most` samples of the same time: those of one interval of 2, 4, 8, … seconds are merged.

    The intervals begin at fixed times, so that a merged series can be continued, and samples on both sides of a pause
    are not merged: its seconds would have no place. Nor are samples with acknowledgements of a producer and those of a
    silence of SILENCE_S seconds or more, which so has samples of its own: a merged sample with acknowledgements has
    them all the time. No worst value is lost.
    """
    found = sorted(samples, key=lambda one: one.at)
    if not found:
        return ()
    width = 1
    while (found[-1].at - found[0].at) / width > most:
        width *= 2
    if width == 1:
        return tuple(found)
    parts = zip(_pauses_before(found), *(_silences(found, producer) for producer in _PRODUCERS), strict=True)
    intervals = groupby(zip(found, parts, strict=True), key=lambda one: (one[0].at // width, one[1]))
    return tuple(_merged([sample for sample, _ in group]) for _, group in intervals)


def _pauses_before(samples: Sequence[TrafficSample]) -> Iterator[int]:
    """Yield the number of pauses before each sample."""
    pauses, end = 0, samples[0].at
    for one in samples:
        pauses += one.at - end > _PAUSE_S
        end = max(end, one.at + one.seconds)
        yield pauses


def _silences(samples: Sequence[TrafficSample], producer: str) -> Iterator[int]:
    """Yield for each sample the number of begins and ends of silences of a producer before it.

    A time without an acknowledgement is a silence if it lasts SILENCE_S, or has no acknowledgement after it yet.
    """
    number, silent = 0, list[TrafficSample]()
    for one in samples:
        if not one.of_producers.get(producer):
            silent.append(one)
            continue
        is_silence = bool(silent) and (number == 0 or one.at - silent[0].at >= SILENCE_S)
        yield from (number + is_silence for _ in silent)
        number += 2 * is_silence
        silent.clear()
        yield number
    yield from (number + 1 for _ in silent)


def _merged(samples: Sequence[TrafficSample]) -> TrafficSample:
    if len(samples) == 1:
        return samples[0]
    weights = [(one.latency_ms, one.acknowledged or 1) for one in samples if one.latency_ms is not None]
    total = sum(weight for _, weight in weights)
    committed = [one.committed for one in samples if one.committed is not None]
    return TrafficSample(
        at=samples[0].at,
        seconds=round(sum(one.seconds for one in samples), 3),
        acknowledged=sum(one.acknowledged for one in samples),
        failed=sum(one.failed for one in samples),
        latency_ms=round(sum(value * weight for value, weight in weights) / total, 1) if weights else None,
        worst_latency_ms=_worst(samples, lambda one: one.worst_latency_ms),
        silent_s=max(one.silent_s for one in samples),
        under_replicated=_worst(samples, lambda one: one.under_replicated),
        lag=_worst(samples, lambda one: one.lag),
        committed=sum(committed) if committed else None,
    )


def _worst(samples: Sequence[TrafficSample], value: Callable[[TrafficSample], N | None]) -> N | None:
    return max((found for one in samples if (found := value(one)) is not None), default=None)


RESENT, BEFORE = "resent", "before"
INFORMATION = (RESENT, BEFORE)
_EXAMPLES = 10


class TransactionOutcome(StrEnum):
    """The outcome that the producer received. UNKNOWN: the response to the commit or abort was lost."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrepancy:
    """One kind of discrepancy."""

    kind: str
    """Lost, moved, doubled, resent, leaked, torn, refused, silent, empty, not covered, before or unknown."""
    consumer: str
    count: int
    examples: tuple[str, ...]
    """Positions or ids; the host whose journals were not compared."""
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStepTimes:
    """When a node was asked to stop and was started again (epoch seconds)."""

    name: str
    """Node and release step."""
    node_id: int
    stopped_at: float
    started_at: float | None
    """None if it was not started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficVerdict:
    """The comparison of the records. It does not show that the traffic ran while the nodes were replaced: only
    `with_coverage` makes a result that can pass.
    """

    acknowledged: int
    """Without those of transactions that were not committed."""
    stored: int
    """Those of them that were in the log at the end."""
    transactions: Mapping[str, int]
    consumed: Mapping[str, int]
    redelivered: Mapping[str, int]
    unavailable_s: Mapping[str, float]
    """Client → longest seconds without an acknowledgement or a record; of producers also in one partition."""
    discrepancies: tuple[Discrepancy, ...]
    periods: int = 1
    """Number of traffic periods. A period ends when the run ends, and a new one starts when the run is resumed."""
    left_out: tuple[str, ...] = ()
    """Clients that never ran, because the run lowers a level that they need."""
    series: tuple[TrafficSample, ...] = ()
    leaderships: tuple[Leadership, ...] = ()

    @property
    def failures(self) -> tuple[Discrepancy, ...]:
        return tuple(found for found in self.discrepancies if found.kind not in INFORMATION)

    @property
    def is_clean(self) -> bool:
        """Return whether nothing failed and each kind of test traffic produced and consumed records.

        Records that a client sent again are reported, but the cluster stored what it was sent. So are node steps before
        the traffic began, because the run was started without it.
        """
        has_transactions = self.transactions[TransactionOutcome.COMMITTED] > 0
        ran = self.acknowledged > 0 and (has_transactions or TRANSACTIONAL_PRODUCER in self.left_out)
        return ran and bool(self.consumed) and all(self.consumed.values()) and not self.failures


OF_TRAFFIC = "Test traffic: "
NOT_COVERED, EMPTY, UNKNOWN_PERIOD = "not covered", "empty", "unknown"
_CLOCKS_DIFFER_S = 5.0  # of the hosts of the traffic and of the run


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredVerdict(TrafficVerdict):
    """The result of the traffic check, with the node steps that it does not cover."""

    @property
    def ok(self) -> bool:
        return self.is_clean

    @property
    def uncovered(self) -> tuple[Discrepancy, ...]:
        return tuple(found for found in self.failures if found.kind == NOT_COVERED)

    @property
    def unproved(self) -> tuple[str, ...]:
        """What an approver can accept, as sentences; empty if it passed."""
        if self.ok:
            return ()
        found = tuple(f"{OF_TRAFFIC}{one.sentence}" for one in self.failures)
        return found or (f"{OF_TRAFFIC}one kind of it has produced or consumed no record so far.",)


def with_coverage(
    verdict: TrafficVerdict, steps: Sequence[NodeStepTimes], brokers: Collection[int], *, planned: bool
) -> CoveredVerdict:
    """Return the result, with a discrepancy for the node steps without acknowledged traffic of a producer.

    A step needs an acknowledgement of each producer between its start and the next stop: traffic that ended before or
    during it shows nothing about it, and the plain producer shows nothing about transactions. A step of one of
    `brokers` (node ids) also needs one of the broker itself before its own next stop, because other leaders show
    nothing about it. A broker that has not led since its start shows nothing either: each is the preferred leader of a
    partition (`place_replicas`), which it leads again before its gate passes. What was acknowledged in a period that
    was not compared is known by its samples. `planned`: the plan has traffic, so steps before its begin count too;
    those before the begin of one producer do not, because a lower level can allow it later.
    """
    found = [
        one
        for producer, what in _PRODUCERS.items()
        if producer not in verdict.left_out
        for one in _uncovered(producer, what, verdict, steps, brokers, planned=planned)
    ]
    values = {one.name: getattr(verdict, one.name) for one in fields(verdict)}
    return CoveredVerdict(**{**values, "discrepancies": (*verdict.discrepancies, *found)})


_PRODUCERS = {
    PLAIN_PRODUCER: ("plain producer", "acknowledged no record"),
    TRANSACTIONAL_PRODUCER: ("transactional producer", "committed no transaction"),
}


def _uncovered(
    producer: str,
    what: tuple[str, str],
    verdict: TrafficVerdict,
    steps: Sequence[NodeStepTimes],
    brokers: Collection[int],
    *,
    planned: bool,
) -> Iterator[Discrepancy]:
    """Yield what a producer does not cover. `what`: its name, and what it does not do then."""
    stops = sorted(step.stopped_at for step in steps)
    ran = [one for one in verdict.series if producer in one.of_producers]
    acknowledged = [one for one in ran if one.of_producers[producer]]

    times = [(one.at, one.at + one.seconds) for one in acknowledged]
    of_brokers: dict[int, list[tuple[float, float]]] = {}
    for one in verdict.leaderships:
        if one.producer == producer:
            of_brokers.setdefault(one.broker, []).append((one.since, one.until))

    def is_in(times: Iterable[tuple[float, float]], step: NodeStepTimes, stops: Iterable[float]) -> bool:
        """Return whether one of these times is between the start of a step and the next of these stops."""
        started = step.stopped_at if step.started_at is None else step.started_at
        end = next((at for at in stops if at > started), float("inf")) + _CLOCKS_DIFFER_S
        return any(since < end and until > started + _CLOCKS_DIFFER_S for since, until in times)

    def is_of_broker(step: NodeStepTimes) -> bool:
        own_stops = sorted(one.stopped_at for one in steps if one.node_id == step.node_id)
        return is_in(of_brokers.get(step.node_id, ()), step, own_stops)

    first = min((one.at for one in ran), default=float("-inf"))
    began = min((one.at for one in verdict.series), default=first) if planned else float("-inf")
    before = [step for step in steps if began <= step.stopped_at + _CLOCKS_DIFFER_S < first]
    during = [step for step in steps if step not in before and not is_in(times, step, stops)]
    rest = [step for step in steps if step.node_id in brokers and step not in before and step not in during]
    silent = [step for step in rest if step.started_at is not None and not is_of_broker(step)]
    name, does_nothing = what
    for kind, uncovered, how in (
        (BEFORE, before, "began after the stops of"),
        (NOT_COVERED, during, f"{does_nothing} during"),
        (NOT_COVERED, silent, "got no acknowledgement of the started broker in"),
    ):
        if uncovered:
            yield Discrepancy(
                kind=kind,
                consumer="test traffic",
                count=len(uncovered),
                examples=tuple(step.name for step in uncovered[:_EXAMPLES]),
                sentence=f"The {name} of the test traffic {how} {len(uncovered)} of {len(steps)} node steps, so it "
                f"shows nothing about them, for example {', '.join(step.name for step in uncovered[:3])}.",
            )
