"""When the next node step can begin: windows across midnight, clock changes, overlaps and freeze days."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.maintenance import Maintenance, parse_maintenance, refuse_never_open

BERLIN = "Europe/Berlin"
NIGHTS = f"0 22 * * Mon-Fri 6h {BERLIN}"


def at(text: str, zone: str = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def parsed(window: str = NIGHTS, *freeze: str) -> Maintenance:
    found = parse_maintenance(window, freeze)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("now", "is_open", "until"),
    [
        ("2026-11-30 21:59:59", False, "2026-11-30 22:00"),  # Monday
        ("2026-11-30 22:00", True, "2026-12-01 04:00"),
        ("2026-12-01 03:59:59", True, "2026-12-01 04:00"),
        ("2026-12-01 04:00", False, "2026-12-01 22:00"),
        ("2026-12-05 01:00", True, "2026-12-05 04:00"),  # opened on Friday
        ("2026-12-05 22:30", False, "2026-12-07 22:00"),  # Saturday
        ("2026-12-07 01:00", False, "2026-12-07 22:00"),  # would have opened on Sunday
    ],
)
def test_a_window_belongs_to_the_day_on_which_it_opens(now: str, is_open: bool, until: str) -> None:
    state = parsed().state_at(at(now))
    assert (state.is_open, state.until) == (is_open, at(until))


@pytest.mark.parametrize(
    ("window", "opens", "closes"),
    [
        ("0 22 * * Sat 6h", "2027-03-27T21:00Z", "2027-03-28T03:00Z"),
        ("30 2 * * Sun 1h", "2027-03-28T01:00Z", "2027-03-28T02:00Z"),  # 02:30 is skipped: opens at the change
        ("0 22 * * Sat 6h", "2026-10-24T20:00Z", "2026-10-25T02:00Z"),
        ("30 2 * * Sun 3h", "2026-10-25T00:30Z", "2026-10-25T04:30Z"),  # opens again at the second 02:30
    ],
)
def test_a_window_lasts_its_duration_also_when_the_clock_changes(window: str, opens: str, closes: str) -> None:
    begins, ends = (datetime.fromisoformat(text).timestamp() for text in (opens, closes))
    found = parsed(f"{window} {BERLIN}")
    assert found.state_at(begins - 1).until == begins
    assert found.state_at(begins).until == ends
    assert not found.state_at(ends).is_open


def test_windows_that_overlap_or_touch_are_one() -> None:
    found = parsed("0 20 * * * 3h UTC; 0 21 * * * 3h UTC; 0 0 * * * 2h UTC")
    state = found.state_at(at("2026-11-30 20:30", "UTC"))
    assert state.until == at("2026-12-01 02:00", "UTC")
    assert state.text == "open until Tue 2026-12-01 02:00 UTC"
    always = parsed("0 0 * * * 1d UTC").state_at(at("2026-11-30 20:30", "UTC"))
    assert (always.is_open, always.until, always.left_s(0.0)) == (True, None, float("inf"))


def test_freeze_days_are_whole_days_of_the_window_s_zone() -> None:
    found = parsed(NIGHTS, "2026-12-24..2027-01-03", "2026-12-02")
    assert found.state_at(at("2026-12-01 23:00")).until == at("2026-12-02 00:00")
    assert found.state_at(at("2026-12-02 00:00")).until == at("2026-12-03 00:00")  # opened on the frozen Wednesday
    assert found.state_at(at("2026-12-24 03:00")).until == at("2027-01-04 22:00")
    without_window = parsed("", "2026-12-24")
    assert without_window.state_at(at("2026-12-23 23:00", "UTC")).until == at("2026-12-24 00:00", "UTC")
    assert without_window.state_at(at("2026-12-24 12:00", "UTC")).until == at("2026-12-25 00:00", "UTC")


def test_the_schedule_leaves_out_what_does_not_fit() -> None:
    found = parsed("0 22 * * * 1h UTC")
    now = at("2026-11-30 22:30", "UTC")
    schedule = found.schedule(now, [1200.0] * 5)  # one fits into the rest, three into an hour
    assert (schedule.windows, schedule.ends_at) == (3, at("2026-12-02 22:20", "UTC"))
    with pytest.raises(UserError, match="no maintenance window of the next 400 days is that long"):
        found.schedule(now, [3601.0])


@pytest.mark.parametrize(
    ("window", "freeze", "sentence"),
    [
        ("0 22 * * Mon-Fri 6h Europe/Berln", (), "time zone 'Europe/Berln' .* is unknown"),
        ("0 22 * * Mon-Fri 6h ../../etc/passwd", (), "is unknown"),
        ("0 22 * * Mon-Fri 6h", (), "is not a maintenance window"),
        ("Mo-Fr 22:00-04:00 UTC", (), "is not a maintenance window"),
        ("0 25 * * * 6h UTC", (), "is not a maintenance window"),
        ("0 22 * * Mon-Xyz 6h UTC", (), "is not a maintenance window"),
        ("@daily 6h UTC", (), "is not a maintenance window"),
        ("*/5 22 * * * 6h UTC", (), "opens more than once in an hour"),
        ("0 22 31 2 * 6h UTC", (), "never opens"),
        ("0 22 * * * 04:00 UTC", (), "'04:00' is not a duration"),
        ("0 22 * * * 0h UTC", (), "is open for 0 s"),
        ("0 22 * * * 8d UTC", (), "is open for 8 d 0 h"),
        (NIGHTS, ("2026-13-01",), "not a freeze day"),
        ("", ("2027-01-03..2026-12-20",), "end before they begin"),
        ("", ("Christmas",), "'Christmas' is not a freeze day"),
    ],
)
def test_invalid_input_is_one_sentence(window: str, freeze: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        parse_maintenance(window, freeze)
    assert caught.value.remedy
    assert "\n" not in caught.value.sentence


def test_a_freeze_that_covers_everything_is_refused() -> None:
    now = at("2026-11-30 12:00")
    with pytest.raises(UserError, match="outside of the freeze days"):
        refuse_never_open(parsed(NIGHTS, "2026-01-01..2030-01-01"), now)
    refuse_never_open(parsed(NIGHTS, "2026-01-01..2027-06-01"), now)
    with pytest.raises(UserError, match="No maintenance window opens in the next 400 days"):
        refuse_never_open(parsed("0 22 29 2 * 6h UTC"), now)
    assert parse_maintenance("", ()) is None


DAYS_OF_WEEK = {"*": range(7), "Sat,Sun": (5, 6), "Fri-Mon": (4, 5, 6, 0), "Wed-Thu": (2, 3)}
Wanted = tuple[int, int, str, int, str]  # minute, hour, days, hours of its duration, zone
WINDOWS = st.lists(
    st.tuples(
        st.integers(0, 11).map(lambda five: five * 5),
        st.integers(0, 23),
        st.sampled_from(list(DAYS_OF_WEEK)),
        st.integers(1, 23),
        st.sampled_from([BERLIN, "UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]),
    ),
    min_size=1,
    max_size=3,
)
INSTANTS = st.integers(int(at("2026-01-01")), int(at("2028-01-01")))
DAYS = st.dates(date(2026, 1, 1), date(2027, 12, 31))


def typed(windows: list[Wanted]) -> str:
    return ";".join(f"{minute} {hour} * * {days} {hours}h {zone}" for minute, hour, days, hours, zone in windows)


def by_wall_clock(windows: list[Wanted], frozen: list[date], now: float) -> bool:
    """The definition, without intervals: what the wall clocks show. Not valid in the hours around a clock change."""
    for minute, hour, days, hours, zone in windows:
        local = datetime.fromtimestamp(now, ZoneInfo(zone)).replace(tzinfo=None)
        if local.date() in frozen:
            continue
        for day in (local.date(), local.date() - timedelta(days=1)):
            opens = datetime.combine(day, time(hour, minute))
            if day.weekday() in DAYS_OF_WEEK[days] and opens <= local < opens + timedelta(hours=hours):
                return True
    return False


def near_a_change(windows: list[Wanted], now: float) -> bool:
    for *_, zone in windows:
        offsets = {datetime.fromtimestamp(now + hours * 3600, ZoneInfo(zone)).utcoffset() for hours in range(-28, 28)}
        if len(offsets) > 1:
            return True
    return False


@given(windows=WINDOWS, frozen=st.lists(DAYS, max_size=3), now=INSTANTS)
def test_a_window_is_open_when_the_wall_clock_says_so(windows: list[Wanted], frozen: list[date], now: float) -> None:
    found = parsed(typed(windows), *(day.isoformat() for day in frozen))
    state = found.state_at(now)
    if not near_a_change(windows, now):
        assert state.is_open == by_wall_clock(windows, frozen, now)
    if state.until is not None:
        assert state.until > now
        assert found.state_at(state.until).is_open != state.is_open
        assert found.state_at((now + state.until) / 2).is_open == state.is_open
        assert found.state_at(state.until - 0.001).until == state.until


@given(windows=WINDOWS, now=INSTANTS, parts=st.lists(st.integers(60, 240), min_size=1, max_size=12))
def test_the_schedule_is_what_a_run_does_that_begins_only_what_fits(
    windows: list[Wanted], now: float, parts: list[int]
) -> None:
    found = parsed(typed(windows))
    clock, used, last = float(now), 0, None
    for part in parts:
        for _ in range(1000):
            state = found.state_at(clock)
            if state.left_s(clock) >= part:
                break
            assert state.until is not None
            clock = state.until
        else:
            raise AssertionError("never fits")
        if state.until != last:
            used, last = used + 1, state.until
        clock += part
    schedule = found.schedule(now, parts)
    assert schedule.ends_at == pytest.approx(clock)
    assert abs(schedule.windows - used) <= 1 if found.state_at(now).until is None else schedule.windows == used


def test_an_instant_is_shown_in_the_zone_of_the_first_window() -> None:
    instant = datetime(2026, 7, 1, 20, tzinfo=UTC) + timedelta(hours=1)
    assert parsed().at(instant.timestamp()) == "Wed 2026-07-01 23:00 CEST"
