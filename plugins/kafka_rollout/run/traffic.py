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
    leaders: Mapping[str, Mapping[str, int]] = {}
    """Producer → broker → records that this broker acknowledged as a leader. 0: it acknowledged none for SILENCE_S, and
    leads a partition."""

    @property
    def of_producers(self) -> Mapping[str, int]:
        """Acknowledged records by each producer that ran."""
        if self.committed is None:
            return {PLAIN_PRODUCER: self.acknowledged}
        return {PLAIN_PRODUCER: self.acknowledged - self.committed, TRANSACTIONAL_PRODUCER: self.committed}

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        """Acknowledged records by producer and broker; "": of all brokers."""
        of_leaders = {(name, broker): number for name, of in self.leaders.items() for broker, number in of.items()}
        return {**{(name, ""): number for name, number in self.of_producers.items()}, **of_leaders}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSeries:
    """What is read of a stored result of the test traffic, which another version can have written."""

    series: tuple[TrafficSample, ...] = ()


def condense(samples: Iterable[TrafficSample], most: int = MOST_SAMPLES) -> tuple[TrafficSample, ...]:
    """Return at most about `most` samples of the same time: those of one interval of 2, 4, 8, … seconds are merged.

    The intervals begin at fixed times, so that a merged series can be continued, and samples on both sides of a pause
    are not merged: its seconds would have no place. Nor are samples with acknowledgements of a producer, or of a broker
    to it, and those of a silence of SILENCE_S seconds or more, which so has samples of its own: a merged sample with
    acknowledgements has them all the time. No worst value is lost.
    """
    found = sorted(samples, key=lambda one: one.at)
    if not found:
        return ()
    width = 1
    while (found[-1].at - found[0].at) / width > most:
        width *= 2
    if width == 1:
        return tuple(found)
    counts = [one.counts for one in found]
    sources = dict.fromkeys(source for of_sample in counts for source in of_sample)
    parts = zip(_pauses_before(found), *(_silences(found, counts, source) for source in sources), strict=True)
    intervals = groupby(zip(found, parts, strict=True), key=lambda one: (one[0].at // width, one[1]))
    return tuple(_merged([sample for sample, _ in group]) for _, group in intervals)


def _pauses_before(samples: Sequence[TrafficSample]) -> Iterator[int]:
    """Yield the number of pauses before each sample."""
    pauses, end = 0, samples[0].at
    for one in samples:
        pauses += one.at - end > _PAUSE_S
        end = max(end, one.at + one.seconds)
        yield pauses


def _silences(
    samples: Sequence[TrafficSample], counts: Sequence[Mapping[tuple[str, str], int]], source: tuple[str, str]
) -> Iterator[int]:
    """Yield for each sample the number of begins and ends of silences of a source of acknowledgements before it.

    A time without an acknowledgement is a silence if it lasts SILENCE_S, or has no acknowledgement after it yet.
    """
    number, silent = 0, list[TrafficSample]()
    for one, of_sample in zip(samples, counts, strict=True):
        if not of_sample.get(source):
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
        leaders=_of_leaders(samples),
    )


def _of_leaders(samples: Sequence[TrafficSample]) -> dict[str, dict[str, int]]:
    total: dict[str, dict[str, int]] = {}
    for producer, broker, number in (
        (producer, broker, number)
        for one in samples
        for producer, of_producer in one.leaders.items()
        for broker, number in of_producer.items()
    ):
        of_brokers = total.setdefault(producer, {})
        of_brokers[broker] = of_brokers.get(broker, 0) + number
    return total


def _worst(samples: Sequence[TrafficSample], value: Callable[[TrafficSample], N | None]) -> N | None:
    return max((found for one in samples if (found := value(one)) is not None), default=None)


RESENT, BEFORE, NOT_LED = "resent", "before", "not led"
INFORMATION = (RESENT, BEFORE, NOT_LED)
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
    """Lost, moved, doubled, resent, leaked, torn, refused, silent, empty, not covered, not led, before or unknown."""
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

    @property
    def failures(self) -> tuple[Discrepancy, ...]:
        return tuple(found for found in self.discrepancies if found.kind not in INFORMATION)

    @property
    def is_clean(self) -> bool:
        """Return whether nothing failed and each kind of test traffic produced and consumed records.

        Records that a client sent again are reported, but the cluster stored what it was sent. So are node steps before
        the traffic began, because the run was started without it, and those of brokers that led no partition of it.
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
    nothing about it. If it led no partition of the producer since its start, that is reported, and is no failure: not
    every broker of a large cluster leads one. What was acknowledged in a period that was not compared is known by its
    samples. `planned`: the plan has traffic, so steps before its begin count too; those before the begin of one
    producer do not, because a lower level can allow it later.
    """
    found = [
        one
        for producer, what in _PRODUCERS.items()
        if producer not in verdict.left_out
        for one in _uncovered(producer, what, verdict.series, steps, brokers, planned=planned)
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
    series: Sequence[TrafficSample],
    steps: Sequence[NodeStepTimes],
    brokers: Collection[int],
    *,
    planned: bool,
) -> Iterator[Discrepancy]:
    """Yield what a producer does not cover. `what`: its name, and what it does not do then."""
    stops = sorted(step.stopped_at for step in steps)
    ran = [one for one in series if producer in one.of_producers]
    acknowledged = [one for one in ran if one.of_producers[producer]]

    def after_start(
        step: NodeStepTimes, samples: Iterable[TrafficSample], stops: Iterable[float]
    ) -> Iterator[TrafficSample]:
        """Yield the samples between the start of a step and the next of these stops."""
        started = step.stopped_at if step.started_at is None else step.started_at
        end = next((at for at in stops if at > started), float("inf")) + _CLOCKS_DIFFER_S
        return (one for one in samples if one.at < end and one.at + one.seconds > started + _CLOCKS_DIFFER_S)

    def of_broker(step: NodeStepTimes) -> int | None:
        """Return the records that the started broker acknowledged; None if it led no partition."""
        own_stops = sorted(one.stopped_at for one in steps if one.node_id == step.node_id)
        leaders = [one.leaders.get(producer, {}) for one in after_start(step, ran, own_stops)]
        found = [of[broker] for of in leaders if (broker := str(step.node_id)) in of]
        return sum(found) if found or not any(leaders) else None  # without any leader, nothing is known

    first = min((one.at for one in ran), default=float("-inf"))
    began = min((one.at for one in series), default=first) if planned else float("-inf")
    before = [step for step in steps if began <= step.stopped_at + _CLOCKS_DIFFER_S < first]
    during = [step for step in steps if step not in before and not any(after_start(step, acknowledged, stops))]
    rest = [step for step in steps if step.node_id in brokers and step not in before and step not in during]
    records = {step: of_broker(step) for step in rest if step.started_at is not None}
    silent, leaderless = ([step for step, number in records.items() if number == none] for none in (0, None))
    name, does_nothing = what
    for kind, uncovered, how in (
        (BEFORE, before, "began after the stops of"),
        (NOT_COVERED, during, f"{does_nothing} during"),
        (NOT_COVERED, silent, "got no acknowledgement of the started broker in"),
        (NOT_LED, leaderless, "wrote to no partition of the started broker in"),
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
