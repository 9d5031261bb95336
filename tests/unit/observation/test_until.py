"""A check is repeated until it is met or the deadline has passed, and its last result is returned."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_rollout.observation.cluster_ports import until
from tests.fakes.clock import FakeClock


def wait(check: Callable[[], int], is_met: Callable[[int], bool], *, for_s: float) -> tuple[int, float]:
    clock = FakeClock()
    return until(clock, check, is_met, for_s=for_s), sum(clock.slept)


def test_it_ends_with_the_first_result_that_is_met() -> None:
    results = iter(range(10))
    assert wait(lambda: next(results), lambda found: found == 3, for_s=60.0) == (3, 1.5)


def test_after_the_deadline_the_last_result_is_returned() -> None:
    results = iter(range(10))
    assert wait(lambda: next(results), lambda _: False, for_s=1.2) == (3, 1.5)


def test_a_deadline_that_has_passed_allows_one_check() -> None:
    results = iter(range(10))
    assert wait(lambda: next(results), lambda _: False, for_s=-1.0) == (0, 0.0)


def test_an_error_of_the_check_is_raised() -> None:
    def fail() -> int:
        raise ValueError("no answer")

    with pytest.raises(ValueError, match="no answer"):
        wait(fail, lambda _: True, for_s=60.0)
