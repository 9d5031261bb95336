"""A Spark data source over segment files: `spark.read.format("coordinator_log_segments")`.

Options: LogSource's, whose shares are of Pieces. The paths must be readable where the tasks run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from kafka_rollout.adapters.coordinator_logs.segments import (
    Piece,
    SegmentGoneError,
    boundary,
    index_positions,
    open_segment,
)
from kafka_rollout.wire.batch_headers import BatchHeader, header_at
from kafka_rollout_spark.decode.chunks import Chunk
from kafka_rollout_spark.rows import WORKER_ROWS, RowKind
from kafka_rollout_spark.source.splits import SPEC, LogReader, LogSource, from_option

FORMAT = "coordinator_log_segments"
CHUNK_BYTES = 2 * 1024 * 1024  # what the processor's cache holds: four times as much is a tenth slower


class SegmentFiles(LogSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options)


class _Reader(LogReader):
    def rows(self, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
        from kafka_rollout_spark.decode.decoding import worker_rows  # as in every source: see sharing.LogReader

        damage: list[dict[str, Any]] = []
        yield from worker_rows(segment_chunks(pieces, damage), from_option(self.options[SPEC]))
        yield pa.RecordBatch.from_pylist(damage, schema=WORKER_ROWS)


def segment_chunks(
    pieces: Sequence[Piece], damage: list[dict[str, Any]], chunk_bytes: int = CHUNK_BYTES
) -> Iterator[Chunk]:
    """Whole batches, in order; all chunks share one buffer. What is no batch becomes a row in `damage` and is left
    out, and reading goes on at the next place where the segment's index says that a batch begins, and where one does.
    """
    from kafka_rollout_spark.decode.decoding import whole_batches

    buffer = bytearray(chunk_bytes)
    for piece in pieces:
        log, path = piece.log, str(piece.segment.path)
        with open_segment(piece.segment) as descriptor:
            position = piece.begin
            while position < piece.end:
                held = _fill(descriptor, buffer, position, piece)
                if whole := whole_batches(held):
                    yield Chunk(
                        topic=log.topic,
                        partition=log.partition,
                        data=held[:whole],
                        start=log.start,
                        end=log.end,
                        file=path,
                        position=position,
                    )
                    position += whole
                    continue
                header = header_at(held, 0, position)
                if header is not None and len(held) < header.size <= piece.end - position:
                    buffer = bytearray(header.size)
                    continue
                go_on = boundary(descriptor, piece.segment, index_positions(piece.segment), position)
                until = min(go_on or piece.end, piece.end)
                damage.append(
                    {
                        "kind": RowKind.DAMAGE,
                        "topic": log.topic,
                        "partition": log.partition,
                        "file": path,
                        "position": position,
                        "log_bytes": until - position,
                        "sentence": _what_is_wrong(descriptor, piece, header, position, until),
                    }
                )
                position = until


def _fill(descriptor: int, buffer: bytearray, position: int, piece: Piece) -> memoryview:
    """As much of the piece as the buffer holds."""
    held = memoryview(buffer)[: piece.end - position]
    if os.preadv(descriptor, [held], position) < len(held):
        raise SegmentGoneError(f"Segment {piece.segment.path} was cut off while it was read.", remedy="Scan again.")
    return held


def _what_is_wrong(descriptor: int, piece: Piece, header: BatchHeader | None, position: int, until: int) -> str:
    if _zeros(descriptor, position, until):
        return "Only zero bytes follow, as in a file that was given its size before it was written."
    if until < piece.segment.size:
        return f"No record batch begins here; the next does at byte {until}."
    if header is not None:
        held = f"the file has {until - position} of its {header.size} bytes"
        return f"The batch at offset {header.base_offset} is cut off: {held}."
    return "No record batch begins here, and nothing after it in this segment could be read."


def _zeros(descriptor: int, position: int, until: int) -> bool:
    while position < until:
        block = os.pread(descriptor, min(CHUNK_BYTES, until - position), position)
        if block.count(0) < len(block) or not block:
            return False
        position += len(block)
    return True
