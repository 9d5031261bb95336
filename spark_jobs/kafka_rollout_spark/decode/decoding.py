"""Decodes bytes of a log to rows (rows.py). The rest of the Spark job uses only these functions to decode."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from kafka_rollout_spark.decode.log_bytes import LogBytes
from kafka_rollout_spark.decode.log_reader import LogReader
from kafka_rollout_spark.kernel.scanning import batches_end
from kafka_rollout_spark.kernel.spec import DecodingSpec


def whole_batches(data: memoryview) -> int:
    """Return the number of bytes at the start of `data` that are whole batches, by length and magic of their headers.

    A source ends its chunk there. The result also ends at a place where no batch can begin. The source then searches
    for the next batch.
    """
    return batches_end(np.frombuffer(data, dtype=np.uint8).ctypes.data, len(data))


def worker_rows(chunks: Iterator[LogBytes], spec: DecodingSpec) -> Iterator[pa.RecordBatch]:
    """Yield the partial rows (rows.py) of the chunks. Chunks of one partition should be consecutive."""
    with LogReader(spec) as reader:
        for chunk in chunks:
            if reader.log != (chunk.topic, chunk.partition):
                yield from reader.finish()
                reader.begin(chunk.topic, chunk.partition)
            yield from reader.read(chunk)
        yield from reader.finish()
