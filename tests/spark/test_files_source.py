"""Segments become chunks of whole batches, and what is no batch becomes damage: no byte is passed over silently."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.adapters.coordinator_logs.directories import DirectoryLogs, find_logs
from kafka_rollout.adapters.coordinator_logs.segments import Segment, SegmentGoneError
from kafka_rollout_spark.decode.chunks import Chunk
from kafka_rollout_spark.source.files import segment_chunks
from tests.spark.conftest import FixtureLogs

OFFSETS = "__consumer_offsets"
INDEX_EVERY = 3  # batches


@pytest.fixture
def folder(fixture_logs: FixtureLogs) -> Path:
    """One partition in one segment with an index."""
    folder = fixture_logs("4.3.1", times=20, segment_batches=10_000) / f"{OFFSETS}-0"
    (segment,) = folder.glob("*.log")
    entries = [offset.to_bytes(4) + at.to_bytes(4) for at, offset in boundaries(segment)[::INDEX_EVERY] if at]
    segment.with_suffix(".index").write_bytes(b"".join(entries))
    return folder


def boundaries(segment: Path) -> list[tuple[int, int]]:
    """(position, last offset) of every batch."""
    data, at, found = segment.read_bytes(), 0, []
    while at < len(data):
        found.append((at, int.from_bytes(data[at : at + 8]) + int.from_bytes(data[at + 23 : at + 27])))
        at += 12 + int.from_bytes(data[at + 8 : at + 12])
    return found


def look(folder: Path) -> tuple[DirectoryLogs, Segment]:
    found = find_logs([folder], [OFFSETS])
    return found, found.segments[found.ranges[0]][0]


def read(found: DirectoryLogs, *, most: int = 10**9, chunk: int = 1_000) -> tuple[bytes, list[dict[str, Any]]]:
    """Everything that the chunks held, one after another, and the damage."""
    damage: list[dict[str, Any]] = []
    data = b"".join(_checked(chunk) for chunk in segment_chunks(found.pieces(most), damage, chunk))
    return data, damage


def _checked(chunk: Chunk) -> bytes:
    assert chunk.file is not None
    data = bytes(chunk.data)
    assert data == Path(chunk.file).read_bytes()[chunk.position : chunk.position + len(data)]
    return data


@pytest.mark.parametrize("most", [500, 3_000, 10**9])
@pytest.mark.parametrize("chunk", [100, 1_000, 10**6])
def test_chunks_hold_every_batch_once_however_small_the_buffer(folder: Path, most: int, chunk: int) -> None:
    found, segment = look(folder)
    assert read(found, most=most, chunk=chunk) == (segment.path.read_bytes(), [])


def damaged(folder: Path, at: int, with_what: bytes) -> bytes:
    (path,) = folder.glob("*.log")
    data = path.read_bytes()
    path.write_bytes(data[:at] + with_what + data[at + len(with_what) :])
    return data


@pytest.mark.parametrize("junk", [b"\xff" * 17, bytes(17), b"\0" * 8 + b"\x7f\xff\xff\xff" + b"\0" * 4 + b"\x02"])
@pytest.mark.parametrize("chunk", [300, 10**6])
def test_behind_damage_reading_goes_on_where_the_index_knows_a_batch(folder: Path, junk: bytes, chunk: int) -> None:
    begins = [at for at, _ in boundaries(next(folder.glob("*.log")))]
    broken, next_known = begins[31], begins[33]
    data = damaged(folder, broken, junk)
    found, segment = look(folder)
    held, damage = read(found, chunk=chunk)
    assert held == data[:broken] + data[next_known:]
    (row,) = damage
    assert (row["file"], row["position"], row["log_bytes"]) == (str(segment.path), broken, next_known - broken)
    assert str(next_known) in row["sentence"] or "zero bytes" in row["sentence"]


def test_without_an_index_the_rest_of_the_segment_is_damage(folder: Path) -> None:
    (path,) = folder.glob("*.log")
    path.with_suffix(".index").unlink()
    broken = boundaries(path)[31][0]
    data = damaged(folder, broken, b"\xff" * 20)
    found, segment = look(folder)
    held, (row,) = read(found)
    assert (held, row["position"], row["log_bytes"]) == (data[:broken], broken, segment.size - broken)
    assert "nothing after it" in row["sentence"]


@pytest.mark.parametrize("missing", [1, 30, 60])
def test_a_batch_that_is_cut_off_at_the_end_is_told(folder: Path, missing: int) -> None:
    (path,) = folder.glob("*.log")
    data, (last, _) = path.read_bytes(), boundaries(path)[-1]
    os.truncate(path, len(data) - missing)
    held, (row,) = read(look(folder)[0])
    assert (held, row["position"]) == (data[:last], last)
    assert "is cut off: the file has" in row["sentence"]


def test_the_zeros_of_a_file_made_before_it_was_written_are_told_as_such(folder: Path) -> None:
    (path,) = folder.glob("*.log")
    data = path.read_bytes()
    with path.open("ab") as file:
        file.write(bytes(50_000))
    held, (row,) = read(look(folder)[0])
    assert (held, row["position"], row["log_bytes"]) == (data, len(data), 50_000)
    assert "zero bytes" in row["sentence"]


def test_a_segment_that_is_cut_off_while_it_is_read_is_noticed(folder: Path) -> None:
    found, segment = look(folder)
    chunks = segment_chunks(found.pieces(10**9), [], 500)
    next(chunks)
    os.truncate(segment.path, segment.size // 2)
    with pytest.raises(SegmentGoneError):
        list(chunks)


def test_planning_a_scan_does_not_load_what_decodes() -> None:
    """Spark starts a process for each of its two steps of planning: a scan's first rows wait for what they import."""
    planning = """
import pickle, sys
from kafka_rollout_spark.source.files import SegmentFiles
from kafka_rollout_spark.source.live import LiveLogs
from kafka_rollout_spark.source.splits import SHARES, to_option
for source in (SegmentFiles, LiveLogs):
    made = pickle.loads(pickle.dumps(source({SHARES: to_option(((1, 2), (3,)))})))
    assert len(made.reader(made.schema()).partitions()) == 2
sys.exit("numba" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", planning], check=True, timeout=300)


def test_a_worker_goes_once_through_what_it_has_loaded(folder: Path) -> None:
    """Spark's workers collect garbage after each task."""
    tasks = """
import gc, sys
from pathlib import Path
from kafka_rollout_spark.kernel.spec import DecodingSpec
from kafka_rollout_spark.source.splits import SHARES, SPEC, to_option
from kafka_rollout_spark.source.ranges import logs_in_directories
logs = logs_in_directories(cluster="c", directories=[Path(sys.argv[1])], topics=["__consumer_offsets"])
source = logs.source({**logs.options_for(1), SPEC: to_option(DecodingSpec())})
reader = source.reader(source.schema())
for _ in range(3):
    assert sum(len(rows) for share in reader.partitions() for rows in reader.read(share)) > 0
    print(gc.get_freeze_count())
"""
    done = subprocess.run([sys.executable, "-c", tasks, folder], check=True, timeout=300, stdout=subprocess.PIPE)
    first, *later = map(int, done.stdout.split())
    assert first > 10_000
    assert later == [first, first]
