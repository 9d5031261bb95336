"""Durations as they are typed and shown."""

from __future__ import annotations

import pytest

from kafka_rollout.base.durations import duration, parse_duration, typed_duration
from kafka_rollout.base.errors import UserError


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599.6, "1 h 00 min"),
        (144_125, "40 h 02 min"),
        (183_600, "2 d 3 h"),
    ],
)
def test_a_shown_duration_has_hours_and_days(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("0.5", 0.5),
        ("30s", 30),
        ("10m", 600),
        ("10min", 600),
        ("2H", 7200),
        ("1h30m", 5400),
        ("1 d", 86_400),
    ],
)
def test_a_duration_is_typed_with_its_unit_or_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1", "10x", "1h soon", "m"])
def test_another_text_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UserError, match=r"is not a duration\. Write, for example, 30s, 10m or 2h\."):
        parse_duration(text)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (0.5, "0.5s"), (90, "90s"), (1800, "30m"), (604_800, "7d")])
def test_a_default_is_shown_as_it_is_typed(seconds: float, text: str) -> None:
    assert typed_duration(seconds) == text
    assert parse_duration(text) == seconds
