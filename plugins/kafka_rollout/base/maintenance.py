"""Maintenance windows and freeze days: when the next part of a run can begin, and how many windows a run needs.

A window is a cron expression with the times at which it opens, a duration and a time zone: `0 22 * * Mon-Fri 6h
Europe/Berlin`; several are separated by `;`. The duration is elapsed time, also on the night of a clock change. A time
that this night skips is the moment of the change; at a time that it repeats, the window opens twice (croniter). A
freeze day is `2026-12-24` or `2026-12-20..2027-01-03`, whole days of the window's time zone; without a window, of UTC.

Instants are epoch seconds; this module reads no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import takewhile
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, croniter

from kafka_rollout.base.durations import duration, parse_duration
from kafka_rollout.base.errors import UserError

HORIZON_DAYS = 400  # a run that cannot continue in this time never continues
_DAY_S = 86_400
_LONGEST_S = 7 * _DAY_S
_SYNTAX = (
    "Write a cron expression, a duration and a time zone, for example 0 22 * * Mon-Fri 6h Europe/Berlin; several "
    "windows are separated by ';'."
)
_FREEZE_SYNTAX = "Write a date such as 2026-12-24, or a range such as 2026-12-20..2027-01-03."

Span = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    cron: str
    """When it opens, in five fields."""
    length_s: float
    zone: str

    def spans(self, now: float) -> list[Span]:
        """Return the times in which it is open, from those that are open at `now` to the end of the horizon."""
        first = datetime.fromtimestamp(now - self.length_s, ZoneInfo(self.zone)).date()
        return [(at, at + self.length_s) for at in _openings(self.cron, self.zone, first)]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowState:
    is_open: bool
    until: float | None
    """When this ends, epoch seconds; None: not within HORIZON_DAYS."""
    text: str

    def left_s(self, now: float) -> float:
        """Return the seconds in which the window stays open."""
        if not self.is_open:
            return 0.0
        return float("inf") if self.until is None else self.until - now


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How a run fits into the windows."""

    windows: int
    """Their number."""
    ends_at: float
    """The earliest end, epoch seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """When nodes can be stopped. No window: always."""

    windows: tuple[Window, ...]
    frozen: tuple[tuple[date, date], ...]
    """First and last day of each range."""

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
        """Return an instant in the zone of the first window: `Mon 2026-11-30 22:00 CET`."""
        zone = ZoneInfo(self.windows[0].zone) if self.windows else UTC
        local = datetime.fromtimestamp(instant, zone)
        return f"{local:%a %Y-%m-%d %H:%M %Z}"

    def _spans(self, now: float) -> list[Span]:
        """Return the open times that end after `now`, in their order, without overlaps."""
        found: list[Span] = []
        if not self.windows:
            found = _without([(now, now + HORIZON_DAYS * _DAY_S)], self._frozen("UTC"))
        for window in self.windows:
            found += _without(window.spans(now), self._frozen(window.zone))
        return [span for span in _merged(found) if span[1] > now]

    def _frozen(self, zone: str) -> list[Span]:
        return [(_midnight(first, zone), _midnight(last + timedelta(days=1), zone)) for first, last in self.frozen]


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
            f"No maintenance window opens in the next {HORIZON_DAYS} days outside of the freeze days, so the run would "
            "never begin.",
            remedy="Shorten the freeze days, or choose another window.",
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
    words = text.split()
    cron, length, zone = " ".join(words[:5]), " ".join(words[5:6]), " ".join(words[6:7])
    if len(words) != 7 or not croniter.is_valid(cron):
        raise UserError(f"'{text}' is not a maintenance window.", remedy=_SYNTAX)
    if not words[0].isdigit():
        raise UserError(
            f"The maintenance window '{text}' opens more than once in an hour.",
            remedy="Begin the cron expression with one minute, for example 0.",
        )
    length_s = parse_duration(length)
    if not 0 < length_s <= _LONGEST_S:
        raise UserError(
            f"The maintenance window '{text}' is open for {duration(length_s)}.",
            remedy=f"Choose a duration of more than 0 s and at most {duration(_LONGEST_S)}.",
        )
    try:
        croniter(cron, datetime(2000, 1, 1, tzinfo=ZoneInfo(zone))).get_next()
    except CroniterBadDateError:
        raise UserError(f"The maintenance window '{text}' never opens.", remedy="Choose a date that exists.") from None
    except (KeyError, ValueError, OSError):
        raise UserError(
            f"The time zone '{zone}' of the maintenance window '{text}' is unknown.",
            remedy="Write a name of the time zone database, such as Europe/Berlin or UTC.",
        ) from None
    return Window(cron=cron, length_s=length_s, zone=zone)


def _parse_freeze(text: str) -> tuple[date, date]:
    first, _, last = text.partition("..")
    try:
        found = date.fromisoformat(first.strip()), date.fromisoformat((last or first).strip())
    except ValueError:
        raise UserError(f"'{text}' is not a freeze day.", remedy=_FREEZE_SYNTAX) from None
    if found[1] < found[0]:
        raise UserError(f"The freeze days '{text}' end before they begin.", remedy=_FREEZE_SYNTAX)
    return found


@lru_cache(maxsize=64)
def _openings(cron: str, zone: str, first: date) -> tuple[float, ...]:
    """Return when a window opens from this day on, to the end of the horizon."""
    before = datetime.combine(first, time.min, ZoneInfo(zone)) - timedelta(seconds=1)
    end = before.timestamp() + (HORIZON_DAYS + 2) * _DAY_S
    return tuple(takewhile(lambda at: at < end, croniter(cron, before).all_next(float)))


def _midnight(day: date, zone: str) -> float:
    return datetime.combine(day, time.min, ZoneInfo(zone)).timestamp()


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
