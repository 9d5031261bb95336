"""Places in log files: real files that are written, renamed, and copied and cut."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kafka_rollout.model.host_state import StartRecord
from kafka_rollout.nodes.runtimes import log_files
from kafka_rollout.nodes.runtimes.local_process import _end_of, _reader_of
from kafka_rollout.nodes.runtimes.log_files import (
    BEGIN_UNKNOWN,
    BYTES_BEFORE,
    NO_FILE,
    ROTATED,
    TOO_LONG,
    log_part,
    parse_place,
    read_on,
)
from kafka_rollout.releases.facts import Release

LONG = "x" * 400


def write(log: Path, *lines: str) -> None:
    with log.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def test_only_lines_after_the_place_are_read_and_each_once(log: Path) -> None:
    write(log, "of an earlier process", LONG)
    begin = _end_of(log)
    write(log, "first", "a line with \x0c, \x85 and \u2028")
    lines, place, problem, _ = read_on(begin, _reader_of(log))
    assert (lines, problem) == (("first", "a line with \x0c, \x85 and \u2028"), "")
    write(log, LONG, LONG)
    with log.open("a") as file:
        file.write("half a li")
    lines, place, *_ = read_on(parse_place(str(place)) or NO_FILE, _reader_of(log))
    assert lines == (LONG, LONG)
    write(log, "ne")
    assert read_on(place, _reader_of(log))[:3:2] == (("half a line",), "")


def test_a_file_that_the_process_makes_is_its_own_from_the_first_byte(log: Path) -> None:
    begin = _end_of(log)
    assert read_on(begin, _reader_of(log)) == ((), NO_FILE, "", False)
    write(log, "first")
    assert read_on(begin, _reader_of(log))[0] == ("first",)


@pytest.mark.parametrize("before", [(), (LONG,), ("short",)], ids=["from its start", "long", "short"])
def test_a_file_that_was_renamed_is_a_gap(log: Path, before: tuple[str, ...]) -> None:
    write(log, *before, "seen")
    place = _end_of(log)
    write(log, "an error that nobody has read")
    os.rename(log, log.with_suffix(".log.2026-11-28-10"))
    assert read_on(place, _reader_of(log)) == ((), place, "", False), "in the moment between"
    write(log, "new")
    lines, after, problem, _ = read_on(place, _reader_of(log))
    assert (lines, problem) == (("new",), ROTATED)
    write(log, "newer")
    assert read_on(after, _reader_of(log))[:3:2] == (("newer",), "")


@pytest.mark.parametrize("more", [0, 100], ids=["shorter", "already longer"])
def test_a_file_that_was_copied_and_cut_is_a_gap(log: Path, more: int) -> None:
    write(log, LONG, "seen")
    place = _end_of(log)
    write(log, "an error that nobody has read")
    shutil.copy(log, log.with_suffix(".1"))
    os.truncate(log, 0)
    write(log, "new", *[f"{LONG} {number}" for number in range(more)])
    lines, _, problem, _ = read_on(place, _reader_of(log))
    assert lines[0] == "new"
    assert problem == ROTATED


def test_a_line_that_is_longer_than_a_reading_is_passed_and_is_no_evidence(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "MOST_BYTES", 1000)
    write(log, "before", f"{'x' * 2100}[INFO] Finished loading", "after")

    def read(offset: int) -> tuple[int, bytes]:
        inode, data = _reader_of(log)(offset) or (0, b"")
        return inode, data[: BYTES_BEFORE + 1000]

    place, seen = NO_FILE, []
    while True:
        lines, place, problem, is_cut = read_on(parse_place(str(place)) or NO_FILE, read)
        seen.append((lines, problem))
        if not is_cut:
            break
    assert seen == [(("before",), ""), ((), TOO_LONG), ((), TOO_LONG), (("after",), "")]
    write(log, "more")
    assert read_on(place, read)[0] == ("more",)


def test_the_end_of_a_line_that_is_left_out_can_be_written_later(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "MOST_BYTES", 1000)
    with log.open("a") as file:
        file.write("x" * 1000)
    _, place, problem, _ = read_on(NO_FILE, _reader_of(log))
    assert (problem, place.is_within) == (TOO_LONG, True)
    with log.open("a") as file:
        file.write(" begins")
    assert read_on(place, _reader_of(log)) == ((), place, "", False)
    write(log, " and ends", "next")
    assert read_on(place, _reader_of(log))[0] == ("next",)


def test_a_process_that_this_tool_did_not_start_has_no_known_begin(log: Path) -> None:
    write(log, "whose line?")
    part = log_part(7, 1.0, None, "", _reader_of(log))
    assert (part.lines, part.problem) == ((), BEGIN_UNKNOWN)
    started = StartRecord(release=Release(3, 9, 1), started_at=1.0, pid=7, log_place=str(NO_FILE))
    part = log_part(7, 1.0, started, "", _reader_of(log))
    assert (part.lines, part.is_first, part.problem) == (("whose line?",), True, "")
    write(log, "next")
    assert log_part(7, 1.0, started, part.position, _reader_of(log)).lines == ("next",)
