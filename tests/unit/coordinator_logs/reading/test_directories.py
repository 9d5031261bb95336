"""Brokers' log directories, made here from batches that a real broker wrote."""

from __future__ import annotations

import os
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from kafka_rollout.base.errors import TransientError, UserError
from kafka_rollout.coordinator_logs.reading.directories import (
    Segment,
    SegmentGoneError,
    boundary,
    find_logs,
    index_positions,
    open_segment,
    walk,
)
from kafka_rollout.formats.log_types import LogRange
from kafka_rollout.formats.record_batch import batches
from tests.paths import FIXTURES

OFFSETS = "__consumer_offsets"
TOPICS = [OFFSETS, "__transaction_state"]
LARGEST_BATCH = 1_000  # of the fixture
LOGS = FIXTURES / "coordinator-logs-4.3.1"


def real_batches(partition: int = 0) -> list[bytes]:
    return [bytes(batch.data) for batch in batches((LOGS / f"{OFFSETS}-{partition}.fetch").read_bytes())]


def moved(batch: bytes, base_offset: int) -> bytes:
    """The base offset lies outside of the CRC."""
    return base_offset.to_bytes(8) + batch[8:]


def write_log(folder: Path, groups: list[list[bytes]], *, index: bool = True) -> tuple[Path, int]:
    """A partition's folder with a segment for each group, offsets one after another; (folder, end offset)."""
    folder.mkdir(parents=True, exist_ok=True)
    offset = 0
    for group in groups:
        base, data, entries = offset, b"", b""
        for batch in group:
            last_delta = int.from_bytes(batch[23:27])
            if data:
                entries += (offset + last_delta - base).to_bytes(4) + len(data).to_bytes(4)
            data += moved(batch, offset)
            offset += last_delta + 1
        (folder / f"{base:020}.log").write_bytes(data)
        if index:
            (folder / f"{base:020}.index").write_bytes(entries + bytes(80))
    return folder, offset


def write_epochs(folder: Path, *epochs: int) -> None:
    lines = "".join(f"{epoch} {number}\n" for number, epoch in enumerate(epochs))
    (folder / "leader-epoch-checkpoint").write_text(f"0\n{len(epochs)}\n{lines}")


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log directory with one partition in three segments, and much beside it that is no part of the log."""
    held = real_batches() * 5
    folder, _ = write_log(tmp_path / "data" / f"{OFFSETS}-0", [held[:40], held[40:50], held[50:]])
    for suffix in ("deleted", "swap", "cleaned"):
        (folder / f"{7:020}.log.{suffix}").write_bytes(b"not of the log")
    write_epochs(folder, 0)
    for name in (f"{OFFSETS}-1.0a1b-delete", f"{OFFSETS}-2.0a1b-future", "orders-0", f"{OFFSETS}-3.0a1b-stray"):
        write_log(tmp_path / "data" / name, [held])
    (tmp_path / "data" / "meta.properties").write_text("version=1\n")
    return tmp_path / "data"


def test_only_segments_of_partitions_of_the_logs_asked_for_are_found(log_dir: Path) -> None:
    found = find_logs([log_dir], TOPICS)
    ((log, segments),) = found.segments.items()
    assert (log.topic, log.partition, log.start) == (OFFSETS, 0, 0)
    assert log.end == sum(int.from_bytes(batch[23:27]) + 1 for batch in real_batches() * 5)
    assert [s.path.suffix for s in segments] == [".log"] * 3
    assert [(copy.chosen, copy.why) for copy in found.copies] == [(True, "It is the only copy.")]


def test_directories_of_two_clusters_are_not_read_as_one(log_dir: Path, tmp_path: Path) -> None:
    other = shutil.copytree(log_dir, tmp_path / "other")
    (log_dir / "meta.properties").write_text("cluster.id=a\n")
    (other / "meta.properties").write_text("cluster.id=b\n")
    for directories in ([log_dir, other], [other / "__consumer_offsets-0", log_dir]):
        with pytest.raises(UserError, match="belong to different clusters"):
            find_logs(directories, TOPICS)


def test_one_partitions_folder_is_enough_and_named_twice_is_read_once(log_dir: Path) -> None:
    alone = find_logs([log_dir / f"{OFFSETS}-0"], TOPICS)
    assert alone == find_logs([log_dir, log_dir / f"{OFFSETS}-0", log_dir], TOPICS)


def test_the_log_begins_where_the_brokers_checkpoint_says(log_dir: Path) -> None:
    (log_dir / "log-start-offset-checkpoint").write_text(f"0\n2\norders 0 9\n{OFFSETS} 0 17\n")
    (log,) = find_logs([log_dir], TOPICS).ranges
    assert log.start == 17


def test_the_log_ends_before_what_is_no_batch(log_dir: Path) -> None:
    (before,) = find_logs([log_dir], TOPICS).ranges
    last = find_logs([log_dir], TOPICS).segments[before][-1]
    for tail in (bytes(4096), real_batches()[0][:50], b"\xff" * 100):
        with last.path.open("ab") as file:
            file.write(tail)
        assert find_logs([log_dir], TOPICS).ranges == (before,)
        os.truncate(last.path, last.size)
    last.path.with_suffix(".index").unlink()
    assert find_logs([log_dir], TOPICS).ranges == (before,)


def test_an_empty_active_segment_tells_the_end(log_dir: Path) -> None:
    (before,) = find_logs([log_dir], TOPICS).ranges
    (log_dir / f"{OFFSETS}-0" / f"{before.end + 5:020}.log").touch()
    assert find_logs([log_dir], TOPICS).ranges[0].end == before.end + 5


def copies(tmp_path: Path, **held: tuple[int, tuple[int, ...]]) -> dict[str, Path]:
    """Log directories by name, each with so many batches and these leader epochs."""
    made = {}
    for name, (count, epochs) in held.items():
        folder, _ = write_log(tmp_path / name / f"{OFFSETS}-0", [real_batches()[:count]])
        write_epochs(folder, *epochs)
        made[name] = tmp_path / name
    return made


@pytest.mark.parametrize(
    ("held", "chosen", "because"),
    [
        ({"a": (5, (0,)), "b": (9, (0,)), "c": (7, (0,))}, "b", "the longest"),
        ({"a": (9, (0, 1)), "b": (5, (0, 1, 4))}, "b", "leader epoch 4"),
        ({"a": (5, (0,)), "b": (5, (0,))}, "a", "first of the longest"),
    ],
)
def test_of_several_copies_each_is_read_and_one_comes_first(
    tmp_path: Path, held: dict[str, tuple[int, tuple[int, ...]]], chosen: str, because: str
) -> None:
    found = find_logs(list(copies(tmp_path, **held).values()), TOPICS)
    assert sorted(log.copy for log in found.ranges) == list(range(len(held)))
    assert set(found.names.values()) == {str(tmp_path / name / f"{OFFSETS}-0") for name in held}
    assert len(found.copies) == len(held)
    (read,) = (copy for copy in found.copies if copy.chosen)
    assert read.directory == str(tmp_path / chosen / f"{OFFSETS}-0")
    assert because in read.why
    assert all(str(tmp_path / chosen) in str(s.path) for s in found.segments[found.ranges[0]])


@pytest.mark.parametrize("most_bytes", [200, 1_000, 5_000, 10**9])
@pytest.mark.parametrize("index", ["right", "none", "a byte too far"])
def test_pieces_hold_every_byte_once_and_begin_at_batches(log_dir: Path, most_bytes: int, index: str) -> None:
    for path in log_dir.glob("*/*.index"):
        if index == "none":
            path.unlink()
        elif index == "a byte too far":
            data = path.read_bytes()
            path.write_bytes(bytes((byte + (at % 8 == 7)) % 256 for at, byte in enumerate(data.rstrip(b"\0"))))
    found = find_logs([log_dir], TOPICS)
    ranges = found.cut(most_bytes)
    for segment in found.segments[found.ranges[0]]:
        mine = [part for part in ranges if part.segment == segment]
        assert (mine[0].begin, mine[-1].end) == (0, segment.size)
        assert all(one.end == other.begin for one, other in pairwise(mine))
        with open_segment(segment) as descriptor:
            begins = {header.position for header in walk(descriptor, 0, segment.size)}
        assert {part.begin for part in mine} <= begins
        assert all(part.end - part.begin < most_bytes + LARGEST_BATCH for part in mine)


def test_after_damage_the_index_tells_where_to_go_on(log_dir: Path) -> None:
    found = find_logs([log_dir], TOPICS)
    segment = found.segments[found.ranges[0]][0]
    with open_segment(segment) as descriptor:
        begins = [header.position for header in walk(descriptor, 0, segment.size)]
    data = bytearray(segment.path.read_bytes())
    data[begins[4] : begins[4] + 20] = b"\xff" * 20
    segment.path.write_bytes(data)
    with open_segment(segment) as descriptor:
        assert [header.position for header in walk(descriptor, 0, segment.size)] == begins[:4]
        assert boundary(descriptor, segment, index_positions(segment), begins[4]) == begins[5]


def test_a_segment_that_the_cleaner_set_aside_is_still_read_and_a_new_one_of_its_name_is_not(log_dir: Path) -> None:
    found = find_logs([log_dir], TOPICS)
    segment = found.segments[found.ranges[0]][0]
    before = segment.path.read_bytes()
    aside = segment.path.with_name(segment.path.name + ".deleted")
    segment.path.rename(aside)
    segment.path.write_bytes(b"cleaned" * 10_000)
    with open_segment(segment) as descriptor:
        assert os.pread(descriptor, segment.size, 0) == before
    aside.unlink()
    with pytest.raises(SegmentGoneError, match=segment.path.name), open_segment(segment):
        pass


def test_a_segment_that_was_cut_off_is_not_taken_for_the_one_looked_at(log_dir: Path) -> None:
    found = find_logs([log_dir], TOPICS)
    segment = found.segments[found.ranges[0]][0]
    os.truncate(segment.path, segment.size - 1)
    with pytest.raises(SegmentGoneError), open_segment(segment):
        pass


def test_looking_and_cutting_leave_the_directory_as_it_was(log_dir: Path) -> None:
    def state() -> dict[Path, tuple[int, int]]:
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(log_dir.rglob("*"))}

    before = state()
    find_logs([log_dir], TOPICS).cut(500)
    assert state() == before


def test_folders_that_cannot_be_scanned_are_named_in_a_sentence(log_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    shutil.copy(log_dir / "meta.properties", tmp_path / "file")
    for folder, says in (("nowhere", "does not exist"), ("file", "is not a folder"), ("empty", f"{OFFSETS}-0")):
        with pytest.raises(UserError, match=says) as raised:
            find_logs([log_dir, tmp_path / folder], TOPICS)
        assert str(tmp_path / folder) in str(raised.value)


def test_a_segment_that_cannot_be_read_is_named(log_dir: Path) -> None:
    (log_dir / f"{OFFSETS}-0" / f"{99_999:020}.log").mkdir()
    with pytest.raises(UserError, match=f"{99_999:020}.log is a folder, not a file"):
        find_logs([log_dir], TOPICS)


def test_the_segments_place_in_the_log_is_its_name() -> None:
    assert Segment(path=Path("00000000000000001234.log"), inode=1, size=2).base_offset == 1234


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", [f"{0:020}.log", "leader-epoch-checkpoint"])
def test_a_fifo_with_the_name_of_a_file_of_the_log_is_refused(log_dir: Path, name: str) -> None:
    path = log_dir / f"{OFFSETS}-0" / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises(UserError, match=r"is a FIFO, not a file"):
        find_logs([log_dir], TOPICS)


@pytest.mark.timeout(60)
def test_an_index_that_is_a_fifo_is_not_needed(log_dir: Path) -> None:
    before = find_logs([log_dir], TOPICS)
    for index in log_dir.glob("*/*.index"):
        index.unlink()
        os.mkfifo(index)
    after = find_logs([log_dir], TOPICS)
    assert after.ranges == before.ranges
    assert after.cut(LARGEST_BATCH) == before.cut(LARGEST_BATCH)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (
            "log-start-offset-checkpoint",
            f"0\n1\n{OFFSETS} 0 {'9' * 5_000}\n",
            "is not a topic, a partition and an offset",
        ),
        (
            "log-start-offset-checkpoint",
            f"0\n1\n{OFFSETS} 0 \u0662\n",
            "is not a topic, a partition and an offset",
        ),
        (f"{OFFSETS}-0/leader-epoch-checkpoint", f"0\n1\n{'1' * 5_000} 0\n", "is not an epoch and its start offset"),
        (f"{OFFSETS}-0/leader-epoch-checkpoint", "0\n1\n7\n", "'7' is not an epoch and its start offset"),
    ],
)
def test_a_number_that_kafka_does_not_write_is_named_with_its_checkpoint(
    log_dir: Path, name: str, text: str, why: str
) -> None:
    (log_dir / name).write_text(text)
    with pytest.raises(UserError, match=why) as caught:
        find_logs([log_dir], TOPICS)
    assert str(log_dir / name) in caught.value.sentence
    assert len(caught.value.sentence) < 500


@pytest.mark.parametrize("name", [f"{OFFSETS}-{'7' * 200}", f"{OFFSETS}-0/{'9' * 20}.log"])
def test_names_with_numbers_beyond_kafkas_are_refused(log_dir: Path, name: str) -> None:
    (log_dir / name).mkdir() if name.endswith("7") else (log_dir / name).write_bytes(b"")
    with pytest.raises(UserError, match=r"in the name of .* is not valid"):
        find_logs([log_dir], TOPICS)


def test_a_folder_without_a_segment_is_not_complete_and_a_log_begins_at_its_first_segment(log_dir: Path) -> None:
    folder, checkpoint = log_dir / f"{OFFSETS}-0", log_dir / "log-start-offset-checkpoint"
    first, second, *_ = sorted(folder.glob("*.log"))
    (log_dir / f"{OFFSETS}-5").mkdir()
    found = find_logs([log_dir], TOPICS)
    assert [(one.partition, one.file) for one in found.damage] == [(5, str(log_dir / f"{OFFSETS}-5"))]
    assert "has no segment" in found.damage[0].sentence
    (log_dir / f"{OFFSETS}-5").rmdir()
    first.unlink()
    assert "leader-epoch-checkpoint at 0, so segments are missing" in find_logs([log_dir], TOPICS).damage[0].sentence
    (folder / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {int(second.stem)}\n")
    assert find_logs([log_dir], TOPICS).damage == (), "retention has removed it"
    checkpoint.write_text(f"0\n1\n{OFFSETS} 0 3\n")
    found = find_logs([log_dir], TOPICS)
    assert (found.damage, found.ranges[0].start) == ((), int(second.stem)), "Kafka begins at the first segment too"
    assert f"{checkpoint.name} has 3, and can be a minute old" in found.copies[0].why


def test_a_copy_without_its_last_segments_is_not_complete(log_dir: Path) -> None:
    (log,) = find_logs([log_dir], TOPICS).ranges
    of_epochs, folder = log_dir / f"{OFFSETS}-0" / "leader-epoch-checkpoint", log_dir / f"{OFFSETS}-0"
    files = ("replication-offset-checkpoint", "recovery-point-offset-checkpoint")
    of_epochs.write_text(f"0\n2\n0 0\n1 {log.end}\n")
    for name in files:
        (log_dir / name).write_text(f"0\n2\n{OFFSETS} 0 {log.end}\norders 0 {log.end + 9}\n")
    assert find_logs([log_dir], TOPICS).damage == (), "an epoch without a record begins at the end of the log"
    last = sorted(folder.glob("*.log"))[-1]
    aside = last.rename(log_dir / "aside")
    sentence = find_logs([log_dir], TOPICS).damage[0].sentence
    assert (
        f"and the log reached offset {log.end} by leader-epoch-checkpoint and {log.end} by {files[0]} and" in sentence
    )
    for name in files:
        (log_dir / name).unlink()
    of_epochs.write_text("0\n1\n0 0\n")
    assert find_logs([log_dir], TOPICS).damage == (), "nothing tells how far the log went"
    aside.rename(last)
    assert find_logs([log_dir], TOPICS).ranges == (log,)


def test_a_log_that_begins_after_its_end_is_not_complete(log_dir: Path) -> None:
    (log,) = find_logs([log_dir], TOPICS).ranges
    (log_dir / "log-start-offset-checkpoint").write_text(f"0\n1\n{OFFSETS} 0 {log.end + 1}\n")
    found = find_logs([log_dir], TOPICS)
    assert found.ranges[0].end == found.ranges[0].start == log.end
    assert "Kafka deletes them when it starts" in found.damage[0].sentence


def test_zeros_at_the_end_of_the_newest_segment_are_a_note_and_elsewhere_damage(log_dir: Path) -> None:
    before = find_logs([log_dir], TOPICS)
    *_, older, newest = sorted((log_dir / f"{OFFSETS}-0").glob("*.log"))
    os.truncate(newest, newest.stat().st_size + 4096)
    after = find_logs([log_dir], TOPICS)
    assert after.log_bytes == before.log_bytes
    assert after.copies[0].why.endswith("4096 zero bytes at the end of the newest segment were allocated in advance.")
    os.truncate(older, older.stat().st_size + 4096)
    assert find_logs([log_dir], TOPICS).log_bytes == before.log_bytes + 4096


def test_a_swap_is_read_also_after_the_broker_has_renamed_it(log_dir: Path) -> None:
    folder = log_dir / f"{OFFSETS}-0"
    for path in folder.glob("*.cleaned"):
        path.unlink()
    for path in folder.glob("*.swap"):
        path.unlink()
    for suffix in ("log", "index"):
        (folder / f"{0:020}.{suffix}").rename(folder / f"{0:020}.{suffix}.swap")
    found = find_logs([log_dir], TOPICS)
    ((log, segments),) = found.segments.items()
    assert (log.start, segments[0].is_swap, segments[0].base_offset) == (0, True, 0)
    assert len(index_positions(segments[0])) > 0
    assert "replaces the segments in its range" in found.copies[0].why
    (folder / f"{0:020}.log.swap").rename(folder / f"{0:020}.log")
    with open_segment(segments[0]) as descriptor:
        assert len(list(walk(descriptor, 0, segments[0].size))) == 40


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(TransientError, match="cannot begin at offset 37 and end at 36"):
        LogRange(topic=OFFSETS, partition=0, start=37, end=36)
