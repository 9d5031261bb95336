"""Maintenance windows and freeze days: when the next part of a run can begin, and how many windows a run needs.

A window is `[DAYS ]HH:MM-HH:MM ZONE`, several are separated by `;`. A day is the one on which the window opens: `Fr
22:00-04:00` ends on Saturday. A freeze day is `2026-12-24` or `2026-12-20..2027-01-03`, whole days of the window's time
zone; without a window, of UTC. Only wall-clock times count, so a window can be an hour longer or shorter on the night
of a clock change. A time that this night skips is the moment of the change; a time that it repeats is the first one.

Instants are epoch seconds; this module reads no clock.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from kafka_rollout.base.durations import duration
from kafka_rollout.base.errors import UserError

HORIZON_DAYS = 400  # a run that cannot continue in this time never continues
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DAY_S, _DAY_MIN = 86_400, 24 * 60
_WINDOW = re.compile(r"(?:(?P<days>\S+)\s+)?(?P<opens>\d\d?:\d\d)\s*-\s*(?P<closes>\d\d?:\d\d)\s+(?P<zone>\S+)")
_SYNTAX = "Write, for example, Mo-Fr 22:00-04:00 Europe/Berlin; several windows are separated by ';'."
_FREEZE_SYNTAX = "Write a date such as 2026-12-24, or a range such as 2026-12-20..2027-01-03."

Span = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One weekly window. `days`: 0 is Monday. `closes_after_min`: minutes since the midnight before it opens."""

    days: frozenset[int]
    opens_after_min: int
    closes_after_min: int
    zone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowState:
    """`until`: when this ends, epoch seconds; None: not within HORIZON_DAYS."""

    is_open: bool
    until: float | None
    text: str

    def left_s(self, now: float) -> float:
        """Return the seconds in which the window stays open."""
        if not self.is_open:
            return 0.0
        return float("inf") if self.until is None else self.until - now


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How a run fits into the windows. `windows`: their number. `ends_at`: the earliest end, epoch seconds."""

    windows: int
    ends_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """When nodes can be stopped. No window: always. `frozen`: first and last day of each range."""

    windows: tuple[Window, ...]
    frozen: tuple[tuple[date, date], ...]

    def state_at(self, now: float) -> WindowState:
        """Return whether the window is open, and until when this stays so."""
        spans = self._spans(now)
        if not spans:
            return WindowState(is_open=False, until=None, text=f"closed for the next {HORIZON_DAYS} days")
        opens, closes = spans[0]
        if opens <= now:
            until = closes if closes < now + (HORIZON_DAYS - 2) * _DAY_S else None
            return WindowState(is_open=True, until=until, text=f"open until {self.at(closes)}" if until else "open")
        return WindowState(is_open=False, until=opens, text=f"closed until {self.at(opens)}")

    def longest_s(self, now: float) -> float:
        """Return the seconds of the longest open time from now on; 0 without one."""
        return max((closes - max(opens, now) for opens, closes in self._spans(now)), default=0.0)

    def schedule(self, now: float, parts: Sequence[float]) -> Schedule:
        """Return the windows that the parts need, one after the other. `parts`: their expected durations (s).

        Raises UserError if one of them fits into no window.
        """
        at, used = now, 0
        spans = iter(self._spans(now))
        closes = now
        for part in parts:
            while at + part > closes:
                found = next(spans, None)
                if found is None:
                    raise UserError(
                        f"A node step takes about {duration(part)}, and no maintenance window of the next "
                        f"{HORIZON_DAYS} days is that long.",
                        remedy="Choose a longer window, or a shorter soak.",
                    )
                if found[1] - max(at, found[0]) >= part:
                    at, closes = max(at, found[0]), found[1]
                    used += 1
            at += part
        return Schedule(windows=used, ends_at=at)

    def at(self, instant: float) -> str:
        """Return an instant in the zone of the first window: `Mo 2026-11-30 22:00 CET`."""
        zone = ZoneInfo(self.windows[0].zone) if self.windows else UTC
        local = datetime.fromtimestamp(instant, zone)
        return f"{_DAYS[local.weekday()][:2]} {local:%Y-%m-%d %H:%M %Z}"

    def _spans(self, now: float) -> list[Span]:
        """Return the open times that end after `now`, in their order, without overlaps."""
        found: list[Span] = []
        if not self.windows:
            found = _without([(now, now + HORIZON_DAYS * _DAY_S)], self._frozen("UTC"))
        for window in self.windows:
            today = datetime.fromtimestamp(now, ZoneInfo(window.zone)).date()
            opened = (
                (
                    _instant(day, window.opens_after_min, window.zone),
                    _instant(day, window.closes_after_min, window.zone),
                )
                for day in (today + timedelta(days=number) for number in range(-1, HORIZON_DAYS))
                if day.weekday() in window.days
            )
            found += _without(opened, self._frozen(window.zone))
        return [span for span in _merged(found) if span[1] > now]

    def _frozen(self, zone: str) -> list[Span]:
        return [(_instant(first, 0, zone), _instant(last + timedelta(days=1), 0, zone)) for first, last in self.frozen]


def parse_maintenance(window: str, freeze_days: Iterable[str]) -> Maintenance | None:
    """Return the windows and freeze days of a request; None if it has none. Raises UserError for invalid ones."""
    parts = [part.strip() for part in window.split(";") if part.strip()]
    frozen = tuple(_parse_freeze(text.strip()) for text in freeze_days if text.strip())
    if not parts and not frozen:
        return None
    return Maintenance(windows=tuple(map(_parse_window, parts)), frozen=frozen)


def refuse_never_open(maintenance: Maintenance, now: float) -> None:
    """Raise UserError if no window opens."""
    state = maintenance.state_at(now)
    if not state.is_open and state.until is None:
        raise UserError(
            f"The freeze days cover every maintenance window of the next {HORIZON_DAYS} days, so the run would never "
            "begin.",
            remedy="Shorten the freeze days.",
        )


def refuse_too_long(maintenance: Maintenance, now: float, commands_s: float, restart_s: float) -> None:
    """Raise UserError if no window has time for the commands before a stop, with their limit, and the restart."""
    if commands_s and commands_s + restart_s > maintenance.longest_s(now):
        raise UserError(
            f"The commands before a stop can take {duration(commands_s)} and the restart takes about "
            f"{duration(restart_s)}, and no maintenance window of the next {HORIZON_DAYS} days has time for both.",
            remedy="Choose a longer window, or a lower timeout_s of before_stop in the inventory.",
        )


def _parse_window(text: str) -> Window:
    found = _WINDOW.fullmatch(text)
    if found is None:
        raise UserError(f"'{text}' is not a maintenance window.", remedy=_SYNTAX)
    opens, closes = _parse_time(found["opens"], text), _parse_time(found["closes"], text)
    if opens in {closes, _DAY_MIN}:
        raise UserError(
            f"The maintenance window '{text}' never opens.", remedy="Choose another end; a whole day is 00:00-24:00."
        )
    zone = found["zone"]
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise UserError(
            f"The time zone '{zone}' of the maintenance window '{text}' is unknown.",
            remedy="Write a name of the time zone database, such as Europe/Berlin or UTC.",
        ) from None
    return Window(
        days=_parse_days(found["days"], text),
        opens_after_min=opens,
        closes_after_min=closes if closes > opens else closes + _DAY_MIN,
        zone=zone,
    )


def _parse_days(days: str | None, text: str) -> frozenset[int]:
    if days is None:
        return frozenset(range(7))
    found: set[int] = set()
    for part in days.split(","):
        first, _, last = part.partition("-")
        numbers = [_parse_day(name, text) for name in (first, last or first)]
        found.update(number % 7 for number in range(numbers[0], numbers[1] + (7 if numbers[1] < numbers[0] else 0) + 1))
    return frozenset(found)


def _parse_day(name: str, text: str) -> int:
    for number, day in enumerate(_DAYS):
        if len(name) > 1 and day.lower().startswith(name.lower()):
            return number
    raise UserError(
        f"The maintenance window '{text}' names an unknown day '{name}'.",
        remedy=f"The days are {', '.join(day[:2] for day in _DAYS)}.",
    )


def _parse_time(text: str, window: str) -> int:
    hours, minutes = map(int, text.split(":"))
    if minutes > 59 or hours > 24 or (hours == 24 and minutes):
        raise UserError(f"The maintenance window '{window}' has the time {text}, which no day has.", remedy=_SYNTAX)
    return hours * 60 + minutes


def _parse_freeze(text: str) -> tuple[date, date]:
    first, _, last = text.partition("..")
    try:
        found = date.fromisoformat(first.strip()), date.fromisoformat((last or first).strip())
    except ValueError:
        raise UserError(f"'{text}' is not a freeze day.", remedy=_FREEZE_SYNTAX) from None
    if found[1] < found[0]:
        raise UserError(f"The freeze days '{text}' end before they begin.", remedy=_FREEZE_SYNTAX)
    return found


@lru_cache(maxsize=8192)
def _instant(day: date, minutes: int, zone: str) -> float:
    """Return when the wall clock of a zone first shows this time or a later one. `minutes`: since midnight."""
    local = datetime.combine(day, time.min) + timedelta(minutes=minutes)
    found = ZoneInfo(zone)
    first, second = (local.replace(tzinfo=found, fold=fold).timestamp() for fold in (0, 1))
    if first <= second:
        return first
    # The clock skips this time: return the moment of the change, between both readings.
    seconds = range(int(second), int(first) + 1)
    before = datetime.fromtimestamp(second, found).utcoffset()
    changed = bisect_left(seconds, True, key=lambda at: datetime.fromtimestamp(at, found).utcoffset() != before)
    return float(seconds[changed])


def _without(spans: Iterable[Span], closed: Sequence[Span]) -> list[Span]:
    found: list[Span] = []
    for span in spans:
        left = [span]
        for first, last in closed:
            left = [
                part
                for opens, closes in left
                for part in ((opens, min(closes, first)), (max(opens, last), closes))
                if part[0] < part[1]
            ]
        found += left
    return found


def _merged(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for opens, closes in sorted(span for span in spans if span[0] < span[1]):
        if found and opens <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], closes))
        else:
            found.append((opens, closes))
    return found
