"""Segments are read as whole batches; anything else is reported as damage. No byte is skipped without a report."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkContext

from kafka_rollout.coordinator_logs.reading.directories import DirectoryLogs, Segment, SegmentGoneError, find_logs
from kafka_rollout_spark.rows import LogBytes
from kafka_rollout_spark.source import SegmentFiles
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


def find(folder: Path) -> tuple[DirectoryLogs, Segment]:
    found = find_logs([folder], [OFFSETS])
    return found, found.segments[found.ranges[0]][0]


def read(found: DirectoryLogs, *, most: int = 10**9, buffer_bytes: int = 1_000) -> tuple[bytes, list[dict[str, Any]]]:
    """All bytes that were read, and the damage."""
    damage: list[pa.RecordBatch] = []
    data = b"".join(_checked(block) for block in SegmentFiles(buffer_bytes).read(found.cut(most), damage))
    return data, [row for batch in damage for row in batch.to_pylist()]


def _checked(block: LogBytes) -> bytes:
    assert block.file is not None
    data = bytes(block.data)
    assert data == Path(block.file).read_bytes()[block.position : block.position + len(data)]
    return data


@pytest.mark.parametrize("most", [500, 3_000, 10**9])
@pytest.mark.parametrize("buffer_bytes", [100, 1_000, 10**6])
def test_every_batch_is_read_once_however_small_the_buffer(folder: Path, most: int, buffer_bytes: int) -> None:
    found, segment = find(folder)
    assert read(found, most=most, buffer_bytes=buffer_bytes) == (segment.path.read_bytes(), [])


def damaged(folder: Path, at: int, with_what: bytes) -> bytes:
    (path,) = folder.glob("*.log")
    data = path.read_bytes()
    path.write_bytes(data[:at] + with_what + data[at + len(with_what) :])
    return data


@pytest.mark.parametrize("junk", [b"\xff" * 17, bytes(17), b"\0" * 8 + b"\x7f\xff\xff\xff" + b"\0" * 4 + b"\x02"])
@pytest.mark.parametrize("buffer_bytes", [300, 10**6])
def test_behind_damage_reading_goes_on_where_the_index_knows_a_batch(
    folder: Path, junk: bytes, buffer_bytes: int
) -> None:
    begins = [at for at, _ in boundaries(next(folder.glob("*.log")))]
    broken, next_known = begins[31], begins[33]
    data = damaged(folder, broken, junk)
    found, segment = find(folder)
    held, damage = read(found, buffer_bytes=buffer_bytes)
    assert held == data[:broken] + data[next_known:]
    (row,) = damage
    assert (row["file"], row["position"], row["log_bytes"]) == (str(segment.path), broken, next_known - broken)
    assert str(next_known) in row["sentence"] or "zero bytes" in row["sentence"]


def test_without_an_index_the_rest_of_the_segment_is_damage(folder: Path) -> None:
    (path,) = folder.glob("*.log")
    path.with_suffix(".index").unlink()
    broken = boundaries(path)[31][0]
    data = damaged(folder, broken, b"\xff" * 20)
    found, segment = find(folder)
    held, (row,) = read(found)
    assert (held, row["position"], row["log_bytes"]) == (data[:broken], broken, segment.size - broken)
    assert "nothing after it" in row["sentence"]


@pytest.mark.parametrize("missing", [1, 30, 60])
def test_a_batch_that_is_cut_off_at_the_end_is_told(folder: Path, missing: int) -> None:
    (path,) = folder.glob("*.log")
    data, (last, _) = path.read_bytes(), boundaries(path)[-1]
    os.truncate(path, len(data) - missing)
    held, (row,) = read(find(folder)[0])
    assert (held, row["position"]) == (data[:last], last)
    assert "is cut off: the file has" in row["sentence"]


def test_the_zeros_of_a_file_made_before_it_was_written_are_no_damage_at_the_end_and_told_elsewhere(
    folder: Path,
) -> None:
    (path,) = folder.glob("*.log")
    data = path.read_bytes()
    with path.open("ab") as file:
        file.write(bytes(50_000))
    assert read(find(folder)[0]) == (data, [])
    (folder / f"{10**6:020}.log").touch()
    held, (row,) = read(find(folder)[0])
    assert (held, row["position"], row["log_bytes"]) == (data, len(data), 50_000)
    assert "zero bytes" in row["sentence"]


def test_a_segment_that_is_cut_off_while_it_is_read_is_noticed(folder: Path) -> None:
    found, segment = find(folder)
    blocks = SegmentFiles(500).read(found.cut(10**9), [])
    next(blocks)
    os.truncate(segment.path, segment.size // 2)
    with pytest.raises(SegmentGoneError):
        list(blocks)


def test_the_driver_does_not_load_numba() -> None:
    """Only workers decode: the driver would wait half a second for the import."""
    program = "import sys, kafka_rollout_spark.job; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


@pytest.mark.spark
def test_workers_do_not_collect_what_their_daemon_imported(spark: SparkContext) -> None:
    """Spark's workers collect garbage after each task."""
    frozen = spark.parallelize([0], 1).map(lambda _: gc.get_freeze_count()).collect()
    assert frozen[0] > 10_000
