"""Durations and times, as an operator types them and as sentences show them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from kafka_rollout.base.errors import UserError

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_PART = re.compile(r"(\d+(?:\.\d+)?) *(ms|min|[smhd])", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def parse_duration(text: str) -> float:
    """Return the seconds of `30s`, `10m`, `2h`, `1d`, `1h30m` or of a plain number of seconds.

    Raises UserError for another text.
    """
    typed = text.strip()
    if _NUMBER.fullmatch(typed):
        return float(typed)
    parts = _PART.findall(typed)
    if not parts or _PART.sub("", typed).strip():
        raise UserError(f"'{text}' is not a duration.", remedy="Write, for example, 30s, 10m or 2h.")
    return float(sum(float(number) * _UNITS[unit.lower()] for number, unit in parts))


def typed_duration(seconds: float) -> str:
    """Return a duration as an operator types it, in the largest unit that has no fraction: `90s`, `30m`, `7d`."""
    for unit in ("d", "h", "m"):
        number = seconds / _UNITS[unit]
        if number >= 1 and number.is_integer():
            return f"{number:.0f}{unit}"
    return f"{seconds:g}s"


def duration(seconds: float) -> str:
    """Return a duration in two units: `8 s`, `2 min 05 s`, `40 h 02 min`, from two days on `2 d 3 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def seconds_in_words(seconds: float | None) -> str:
    """Return a measured duration: `12.3 s`, from 90 s on as `duration`. None: –."""
    if seconds is None:
        return "–"
    return f"{seconds:.1f} s" if seconds < 90 else duration(seconds)


def iso(at: float) -> str:
    """Return epoch seconds as `2026-11-25T02:14:07Z`."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def epoch(at: str) -> float:
    """Return the epoch seconds of `iso`."""
    return datetime.fromisoformat(at).timestamp()
