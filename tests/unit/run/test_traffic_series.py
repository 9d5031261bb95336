"""Samples of the test traffic: a series stays bounded, keeps all sums and worst values, and can be continued."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.projections.nodes import cover_node_steps, node_step_times
from kafka_rollout.run.step_events import Started, Stopping
from kafka_rollout.run.traffic import TrafficSample, TrafficSeries, TrafficVerdict, condense
from kafka_rollout.traffic.traffic_check import not_compared, together
from tests.traffic import led_by

START = 1_795_000_000.0
BROKERS = (1, 2, 3)
LED = led_by(BROKERS, START - 20_000, START + 1e6)
VALUES = st.tuples(
    st.integers(0, 50),
    st.integers(0, 5),
    st.floats(0, 100),
    st.none() | st.integers(0, 9),
    st.none() | st.integers(0),
    st.none() | st.integers(0, 9),
)


@given(st.lists(VALUES, max_size=80), st.integers(1, 20))
def test_a_condensed_series_is_bounded_and_loses_no_sum_and_no_worst_value(
    values: list[tuple[int, int, float, int | None, int | None, int | None]], most: int
) -> None:
    series = tuple(
        TrafficSample(START + at, 1.0, acknowledged, failed, 5.0, 9.0, silent, missing, lag, committed)
        for at, (acknowledged, failed, silent, missing, lag, committed) in enumerate(values)
    )
    found = condense(series, most)
    continued: tuple[TrafficSample, ...] = ()
    for sample in series:
        continued = condense((*continued, sample), most)
    assert continued == found
    silences = sum(_silences(series, producer) for producer in ("producer-plain", "producer-transactional"))
    assert len(found) <= most + 2 + 2 * silences
    for total in ("acknowledged", "failed", "seconds"):
        assert sum(getattr(one, total) for one in found) == sum(getattr(one, total) for one in series)
    committed = [[one.committed for one in samples if one.committed is not None] for samples in (found, series)]
    assert [sum(one) for one in committed] == [sum(committed[1])] * 2
    assert bool(committed[0]) == bool(committed[1])
    for worst in ("silent_s", "under_replicated", "lag", "worst_latency_ms"):
        assert _worst(found, worst) == _worst(series, worst)
    assert from_json(TrafficSeries, to_json(TrafficSeries(series=found))).series == found


def _silences(series: tuple[TrafficSample, ...], producer: str) -> int:
    """The number of times of at least 5 s without an acknowledgement, and of those at both ends."""
    is_acknowledged = [bool(one.of_producers.get(producer)) for one in series]
    runs = [(one, len(list(group))) for one, group in groupby(is_acknowledged)]
    return sum(not one and (length >= 5 or at in (0, len(runs) - 1)) for at, (one, length) in enumerate(runs))


def _worst(series: tuple[TrafficSample, ...], name: str) -> float | None:
    return max((value for one in series if (value := getattr(one, name)) is not None), default=None)


def test_the_mean_latency_is_weighted_by_the_records() -> None:
    first = TrafficSample(START, 1.0, acknowledged=30, latency_ms=10.0)
    second = TrafficSample(START + 1, 1.0, acknowledged=10, latency_ms=50.0)
    later = TrafficSample(START + 9, 1.0)
    assert [one.latency_ms for one in condense((first, second, later), 5)] == [20.0, None]


def test_a_result_of_an_earlier_version_has_no_series() -> None:
    assert from_json(TrafficSeries, {"acknowledged": 4}).series == ()


def _series(*acknowledged: tuple[int, int], begin: int = 0) -> tuple[TrafficSample, ...]:
    numbers = (30 if any(first <= at < end for first, end in acknowledged) else 0 for at in range(begin, 600))
    return tuple(
        TrafficSample(START + at, 1.0, number, committed=number // 2) for at, number in enumerate(numbers, start=begin)
    )


def _verdict(*acknowledged: tuple[int, int]) -> TrafficVerdict:
    """The verdict of traffic that acknowledges records in these ranges of seconds, and runs on without any."""
    return TrafficVerdict(
        acknowledged=100,
        stored=100,
        transactions={"committed": 1},
        consumed={"classic": 100},
        redelivered={},
        unavailable_s={},
        discrepancies=(),
        series=_series(*acknowledged),
        leaderships=LED,
    )


def _events(*steps: tuple[int, int, int | None]) -> list[Stopping | Started]:
    found: list[Stopping | Started] = []
    for node_id, stopped, started in steps:
        found.append(Stopping(at=START + stopped, node_id=node_id, release_step="a-to-b"))
        if started is not None:
            options = {"node_id": node_id, "release_step": "a-to-b", "release": Release(4, 3, 1), "pid": 1}
            found.append(Started(at=START + started, seconds=1.0, **options))
    return found


ROLL = _events((1, 100, 110), (2, 200, 210), (3, 300, 310))


@pytest.mark.parametrize(
    ("acknowledged", "uncovered"),
    [
        ([(0, 600)], ()),
        ([(0, 4)], ("a-to-b node 1", "a-to-b node 2", "a-to-b node 3")),  # the process was killed
        ([(0, 230)], ("a-to-b node 3",)),
        ([(0, 204)], ("a-to-b node 2", "a-to-b node 3")),  # it ended while node 2 was stopped
        ([(0, 150), (250, 600)], ()),  # it was started again before the next stop
        ([(0, 150), (350, 600)], ("a-to-b node 2",)),
    ],
)
def test_a_node_step_without_acknowledged_traffic_is_not_covered(
    acknowledged: list[tuple[int, int]], uncovered: tuple[str, ...]
) -> None:
    found = cover_node_steps(_verdict(*acknowledged), ROLL, BROKERS, planned=True)
    assert [one.examples for one in found.failures] == ([uncovered] * 2 if uncovered else []), "of both producers"
    assert found.ok is not bool(uncovered)


@pytest.mark.parametrize(
    ("committed", "uncovered"),
    [
        (range(600), ()),
        (range(230), ("a-to-b node 3",)),  # its coordinator refuses it from then on
        (range(0), ("a-to-b node 1", "a-to-b node 2", "a-to-b node 3")),
    ],
)
@pytest.mark.parametrize("alone", ["plain", "transactional"])
def test_a_producer_covers_no_node_step_for_the_other(committed: range, uncovered: tuple[str, ...], alone: str) -> None:
    """`committed`: seconds with an acknowledgement of one of them, while the other goes on."""

    def sample(at: int) -> TrafficSample:
        seen = 15 if at in committed else 0
        if alone == "plain":
            return TrafficSample(START + at, 1.0, 15 + seen, committed=seen)
        return TrafficSample(START + at, 1.0, 15 + seen, committed=15)

    found = cover_node_steps(replace(_verdict(), series=condense(map(sample, range(600)))), ROLL, BROKERS, planned=True)
    assert [one.examples for one in found.failures] == ([uncovered] if uncovered else [])
    assert all(("committed no transaction" in one.sentence) is (alone == "plain") for one in found.failures)


@pytest.mark.parametrize("waited", [0, 20_000])
@pytest.mark.parametrize("last_s", [0, 12, 100, 205, 290, 308, 314])
def test_what_a_series_covers_does_not_depend_on_how_long_it_is(waited: int, last_s: int) -> None:
    """`last_s`: the last acknowledgement, in seconds of the roll, while the traffic goes on. `waited`: seconds before,
    for example for a maintenance window."""
    series = (_sample(at, 30 if at <= last_s else 0) for at in range(-waited, 1800))
    found = cover_node_steps(replace(_verdict(), series=condense(series)), ROLL, BROKERS, planned=True)
    left = [f"a-to-b node {node}" for node, started in ((1, 110), (2, 210), (3, 310)) if last_s < started + 5]
    assert [one.examples for one in found.failures] == ([tuple(left)] * 2 if left else [])


def test_short_silences_do_not_keep_a_series_from_becoming_short() -> None:
    series = condense(_sample(at, 0 if at % 7 < 4 else 30) for at in range(6000))
    assert len(series) <= 602
    assert all(one.acknowledged for one in series[1:-1])


def _sample(at: int, acknowledged: int) -> TrafficSample:
    return TrafficSample(START + at, 1.0, acknowledged, committed=acknowledged // 2)


def test_a_producer_that_the_levels_allow_later_covers_the_node_steps_from_then_on() -> None:
    """A run that lowers transaction.version starts the transactional producer at the lower level."""
    late = tuple(one if one.at >= START + 150 else one._replace(committed=None) for one in _series((0, 600)))
    found = cover_node_steps(replace(_verdict(), series=condense(late)), ROLL, BROKERS, planned=True)
    assert (found.ok, [(one.kind, one.examples) for one in found.discrepancies]) == (
        True,
        [("before", ("a-to-b node 1",))],
    )
    never = tuple(one._replace(committed=None) for one in late)
    assert not cover_node_steps(replace(_verdict(), series=never), ROLL, BROKERS, planned=True).ok
    left_out = replace(_verdict(), series=never, left_out=("producer-transactional",))
    assert cover_node_steps(left_out, ROLL, BROKERS, planned=True).ok


def test_nodes_that_all_stop_together_are_covered_by_the_traffic_after_their_start() -> None:
    offline = _events((1, 100, None), (2, 101, None))
    offline += [replace(one, at=START + 160) for one in _events((1, 0, 0), (2, 0, 0)) if isinstance(one, Started)]
    assert cover_node_steps(_verdict((0, 95), (165, 600)), offline, BROKERS, planned=True).ok
    assert not cover_node_steps(_verdict((0, 95)), offline, BROKERS, planned=True).ok
    assert cover_node_steps(_verdict(), [], BROKERS, planned=True).ok, "no node was stopped"


def _led(node: int, *times: tuple[int, int]) -> TrafficVerdict:
    """`node` acknowledges records in these seconds of the roll, and each of the others all the time."""
    own = [one for since, until in times for one in led_by([node], START + since, START + until)]
    leaderships = (*(one for one in LED if one.broker != node), *own)
    return replace(_verdict((0, 600)), leaderships=leaderships)


@pytest.mark.parametrize("node", BROKERS)
@pytest.mark.parametrize(
    ("since_start", "is_covered"),
    [((), False), ((2, 4), False), ((2, 6), True), ((90, 400), True)],
    ids=["none", "by the clock before its start", "early", "late"],
)
def test_a_broker_that_acknowledges_nothing_since_its_start_is_not_covered(
    node: int, since_start: tuple[int, ...], is_covered: bool
) -> None:
    """The others lead partitions of the test traffic too. It refuses records, or leads none: both show nothing."""
    started = 100 * node + 10
    times = [(0, 100 * node), *([(started + since_start[0], started + since_start[1])] if since_start else [])]
    found = cover_node_steps(_led(node, *times), ROLL, BROKERS, planned=True)
    assert [one.kind for one in found.discrepancies] == ([] if is_covered else ["not covered"] * 2)
    assert all(one.examples == (f"a-to-b node {node}",) for one in found.discrepancies)
    assert found.ok is is_covered
    assert all("acknowledgement of the started broker in 1 of 3" in one for one in found.unproved)
    assert cover_node_steps(_led(node, *times), ROLL, (), planned=True).discrepancies == ()


def test_brokers_of_a_large_cluster_of_which_none_leads_are_all_named() -> None:
    """With fewer partitions than brokers, no record reaches the other brokers."""
    roll = _events(*((node, 10 * node, 10 * node + 4) for node in range(1, 31)))
    leaderships = tuple(one._replace(broker=one.broker + shift) for one in LED for shift in (0, 3, 6))
    found = cover_node_steps(replace(_verdict((0, 600)), leaderships=leaderships), roll, range(1, 31), planned=True)
    assert [(one.kind, one.count) for one in found.failures] == [("not covered", 21)] * 2


def test_leaders_that_move_back_after_the_next_stop_cover_the_step() -> None:
    """Nodes of one batch stop and start one after the other, and none leads before the last has started."""
    batch = _events((1, 100, 110), (2, 112, 120), (3, 124, 130))
    leaderships = tuple(
        one._replace(since=START + since, until=START + until) for one in LED for since, until in ((0, 100), (140, 600))
    )
    verdict = replace(_verdict((0, 600)), leaderships=leaderships)
    found = cover_node_steps(verdict, batch, BROKERS, planned=True)
    assert (found.ok, found.discrepancies) == (True, ())
    before_its_own = [*batch, *_events((1, 134, 150))]
    found = cover_node_steps(verdict, before_its_own, BROKERS, planned=True)
    assert [(one.kind, one.examples) for one in found.discrepancies] == [("not covered", ("a-to-b node 1",))] * 2


def test_traffic_with_unknown_leaders_covers_no_broker() -> None:
    found = cover_node_steps(replace(_verdict((0, 600)), leaderships=()), ROLL, BROKERS, planned=True)
    assert [(one.kind, one.count) for one in found.failures] == [("not covered", 3)] * 2


def test_a_stop_that_is_requested_again_is_one_node_step() -> None:
    (step,) = node_step_times(_events((1, 100, None), (1, 130, 150)))
    assert (step.stopped_at - START, step.started_at) == (100, START + 150)


def test_an_unknown_period_covers_by_its_samples_and_excuses_no_period_after_it() -> None:
    unknown = not_compared("host-a", "The result of traffic period 1 is unknown.")
    unknown = replace(unknown, series=_series((0, 205)), leaderships=LED)
    later = replace(_verdict((215, 250)), series=_series((215, 250), begin=215))
    assert [
        one.kind for one in cover_node_steps(together([unknown, later]), ROLL[:4], BROKERS, planned=True).failures
    ] == ["unknown"]
    found = cover_node_steps(together([unknown, later]), ROLL, BROKERS, planned=True)
    assert [(one.kind, one.examples) for one in found.failures] == [
        ("unknown", ("host-a",)),
        *[("not covered", ("a-to-b node 3",))] * 2,
    ]


def test_traffic_that_begins_with_a_later_call_is_not_asked_about_the_nodes_before() -> None:
    whole = _verdict((250, 600))
    late = replace(whole, series=tuple(one for one in whole.series if one.at >= START + 250))
    found = cover_node_steps(late, ROLL, BROKERS, planned=False)
    assert (found.ok, found.failures) == (True, ())
    assert [(one.kind, one.examples) for one in found.discrepancies] == [
        ("before", ("a-to-b node 1", "a-to-b node 2"))
    ] * 2, "it began after the start of node 2, too"
    assert not cover_node_steps(replace(late, series=()), ROLL, BROKERS, planned=False).ok
    of_plan = cover_node_steps(late, ROLL, BROKERS, planned=True)
    assert [one.examples for one in of_plan.failures] == [("a-to-b node 1",)] * 2, (
        "the plan has traffic, which began before the stop of node 3"
    )


def test_a_period_after_a_pause_covers_its_nodes_in_a_condensed_series() -> None:
    """The periods are in one interval of the condensed series."""
    samples = [
        TrafficSample(START + at, 1.0, 30, committed=15)
        for at in (*range(10), *range(699_800, 699_850), *range(700_300, 700_400))
    ]
    verdict = replace(_verdict(), acknowledged=4800, series=condense(samples))
    assert len(verdict.series) < 10
    assert cover_node_steps(verdict, _events((1, 5, 8), (2, 700_350, 700_360)), BROKERS, planned=True).ok
