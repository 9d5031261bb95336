"""A fact that cannot be derived becomes a gap with a reason, never a guess and never a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from kafka_rollout.base.errors import FatalError
from kafka_rollout_derivation.gaps import Gaps, NotDerivedError, agreed, first_of


def fails(error: Exception) -> Callable[[], Any]:
    def way() -> int:
        raise error

    return way


def test_a_derived_fact_is_no_gap() -> None:
    gaps = Gaps()
    assert gaps.derive("java_minimum", lambda: 17, None) == 17
    assert gaps.reasons == {}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NotDerivedError("the class\nhas gone"), "The class has gone."),
        (AssertionError("Two answers."), "Two answers."),
        (KeyError("level"), "KeyError: 'level'."),
        (StopIteration(), "StopIteration:."),
    ],
)
def test_any_error_of_a_derivation_becomes_one_sentence(error: Exception, reason: str) -> None:
    gaps = Gaps()
    assert gaps.derive("config_names", fails(error), frozenset()) == frozenset()
    assert gaps.reasons == {"config_names": reason}


def test_a_java_process_that_exited_is_not_a_gap() -> None:
    with pytest.raises(FatalError, match="Java process of the derivation exited"):
        Gaps().derive("config_names", fails(Py4JNetworkError("closed")), None)


def test_the_first_way_that_works_counts() -> None:
    assert first_of(fails(KeyError("moved")), lambda: 1, lambda: 2) == 1
    with pytest.raises(NotDerivedError, match=r"KeyError: 'here'\. KeyError: 'there'\."):
        first_of(fails(KeyError("here")), fails(KeyError("there")))


def test_ways_that_work_must_agree() -> None:
    assert agreed(fails(KeyError("moved")), lambda: 1, lambda: 1) == 1
    with pytest.raises(NotDerivedError, match="contradict each other: 2"):
        agreed(lambda: 1, lambda: 2)
    with pytest.raises(NotDerivedError, match=r"contradict each other: \['b', 'c'\]"):
        agreed(lambda: frozenset("ab"), lambda: frozenset("ac"))
    with pytest.raises(NotDerivedError, match="KeyError: 'moved'"):
        agreed(fails(KeyError("moved")))
