"""Samples of the test traffic: a series stays bounded, keeps all sums and worst values, and can be continued."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.run.traffic import TrafficSample, TrafficSeries, condense

START = 1_795_000_000.0
VALUES = st.tuples(
    st.integers(0, 50), st.integers(0, 5), st.floats(0, 100), st.none() | st.integers(0, 9), st.none() | st.integers(0)
)


@given(st.lists(VALUES, max_size=80), st.integers(1, 20))
def test_a_condensed_series_is_bounded_and_loses_no_sum_and_no_worst_value(
    values: list[tuple[int, int, float, int | None, int | None]], most: int
) -> None:
    series = tuple(
        TrafficSample(START + at, 1.0, acknowledged, failed, 5.0, 9.0, silent, missing, lag)
        for at, (acknowledged, failed, silent, missing, lag) in enumerate(values)
    )
    found = condense(series, most)
    continued: tuple[TrafficSample, ...] = ()
    for sample in series:
        continued = condense((*continued, sample), most)
    assert continued == found
    assert len(found) <= most + 2
    for total in ("acknowledged", "failed", "seconds"):
        assert sum(getattr(one, total) for one in found) == sum(getattr(one, total) for one in series)
    for worst in ("silent_s", "under_replicated", "lag", "worst_latency_ms"):
        assert _worst(found, worst) == _worst(series, worst)
    assert from_json(TrafficSeries, to_json(TrafficSeries(series=found))).series == found


def _worst(series: tuple[TrafficSample, ...], name: str) -> float | None:
    return max((value for one in series if (value := getattr(one, name)) is not None), default=None)


def test_the_mean_latency_is_weighted_by_the_records() -> None:
    first = TrafficSample(START, 1.0, acknowledged=30, latency_ms=10.0)
    second = TrafficSample(START + 1, 1.0, acknowledged=10, latency_ms=50.0)
    later = TrafficSample(START + 9, 1.0)
    assert [one.latency_ms for one in condense((first, second, later), 5)] == [20.0, None]


def test_a_result_of_an_earlier_version_has_no_series() -> None:
    assert from_json(TrafficSeries, {"acknowledged": 4}).series == ()
