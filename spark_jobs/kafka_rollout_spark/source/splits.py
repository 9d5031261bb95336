"""What the driver hands to the data sources' tasks: pieces of logs in shares of about the same size, and the spec."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kafka_rollout.adapters.coordinator_logs.segments import Piece
from kafka_rollout.domain.coordinator_logs.scan import LogRange
from kafka_rollout_spark.rows import WORKER_ROWS
from kafka_rollout_spark.source.collecting import set_aside_what_is_loaded

SHARES, SPEC = "shares", "spec"

Shares = tuple[tuple[LogRange | Piece, ...], ...]


def size(piece: LogRange | Piece) -> int:
    """Offsets of a range, bytes of a segment's piece."""
    return piece.end - (piece.start if isinstance(piece, LogRange) else piece.begin)


def share_out(pieces: Sequence[LogRange | Piece], parts: int) -> Shares:
    """The pieces in at most `parts` shares of about the same size, in their order: those of one log stay together, so
    that few tasks see the same keys.
    """
    total = sum(size(piece) + 1 for piece in pieces)
    shares: list[list[LogRange | Piece]] = [[] for _ in range(parts)]
    before = 0
    for piece in pieces:
        weight = size(piece) + 1
        shares[(2 * before + weight) * parts // (2 * total)].append(piece)  # where its middle lies
        before += weight
    return tuple(tuple(share) for share in shares if share)


def to_option(value: object) -> str:
    """A value of the driver's as an option of a data source. Never a secret: options are part of query plans."""
    return base64.b85encode(pickle.dumps(value)).decode()


def from_option(text: str) -> Any:
    return pickle.loads(base64.b85decode(text))  # noqa: S301 - what the driver of this very job wrote


@dataclass
class Share(InputPartition):
    """What one task reads."""

    pieces: tuple[Any, ...]


class LogSource(DataSource):
    """Its rows are rows.WORKER_ROWS. Options: SHARES and SPEC (a DecodingSpec), both by to_option."""

    def schema(self) -> StructType:
        return from_arrow_schema(WORKER_ROWS)


class LogReader(DataSourceReader):
    """Spark makes one in a process of its own for each of two steps of planning, one after the other; what decodes is
    loaded by those alone that read.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        return [Share(share) for share in from_option(self.options[SHARES])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)  # noqa: S101 - what partitions() gave
        yield from self.rows(partition.pieces)
        set_aside_what_is_loaded()

    def rows(self, pieces: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        """What is in the pieces of one share."""
        raise NotImplementedError
