"""The test traffic of runs over a fake cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kafka_rollout.run.events import START_TRAFFIC, Event, StepEnded, StepOutcome, events_of
from kafka_rollout.run.step_events import Stopping
from kafka_rollout.run.traffic import (
    PLAIN_PRODUCER,
    TRANSACTIONAL_PRODUCER,
    Discrepancy,
    Leadership,
    TrafficSample,
    TrafficVerdict,
)

LOST = Discrepancy(
    kind="lost",
    consumer="log",
    count=40,
    examples=(),
    sentence="log: 40 records acknowledged, but not in the log at the end.",
)


def has_traffic(events: Sequence[Event]) -> bool:
    ended = {event.step: event.outcome for event in events_of(events, StepEnded)}
    return ended.get(START_TRAFFIC) is StepOutcome.DONE


def traffic_of_run(events: Sequence[Event], *lost: Discrepancy) -> TrafficVerdict:
    """Records were acknowledged in each second of the run."""
    return with_samples(compared_traffic(*lost), events)


def with_samples(verdict: TrafficVerdict, events: Sequence[Event]) -> TrafficVerdict:
    """Return the verdict with samples of the run. Each node leads partitions in each second."""
    first, last = int(events[0].at) - 10, int(events[-1].at) + 10
    return replace(
        verdict,
        series=tuple(TrafficSample(float(at), 1.0, 30, committed=15) for at in range(first, last)),
        leaderships=led_by({event.node_id for event in events_of(events, Stopping)}, first, last),
    )


def led_by(brokers: Iterable[int], since: float, until: float) -> tuple[Leadership, ...]:
    """Return leaderships of each of these brokers for each producer."""
    producers = (PLAIN_PRODUCER, TRANSACTIONAL_PRODUCER)
    return tuple(Leadership(name, broker, since, until) for name in producers for broker in brokers)


def compared_traffic(*lost: Discrepancy) -> TrafficVerdict:
    """The comparison of the records alone, without samples."""
    return TrafficVerdict(
        acknowledged=100,
        stored=100 - sum(one.count for one in lost),
        transactions={"committed": 1},
        consumed={"classic": 100},
        redelivered={"classic": 0},
        unavailable_s={},
        discrepancies=lost,
    )
