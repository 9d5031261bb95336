"""The one decoding boundary: from bytes of a log to rows (rows.py). Nothing else here decodes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from kafka_rollout_spark.decode.log_bytes import LogBytes
from kafka_rollout_spark.decode.log_reader import LogReader
from kafka_rollout_spark.kernel.scanning import batches_end
from kafka_rollout_spark.kernel.spec import DecodingSpec


def whole_batches(data: memoryview) -> int:
    """How many bytes from the start of `data` are whole batches, going by their headers' lengths and magic alone.

    A source cuts its chunks there. It also ends where no batch can begin: the source looks for the next place.
    """
    return batches_end(np.frombuffer(data, dtype=np.uint8).ctypes.data, len(data))


def worker_rows(chunks: Iterator[LogBytes], spec: DecodingSpec) -> Iterator[pa.RecordBatch]:
    """Partial rows (see rows.py) of what the chunks hold; those of one partition should follow each other."""
    with LogReader(spec) as reader:
        for chunk in chunks:
            if reader.log != (chunk.topic, chunk.partition):
                yield from reader.finish()
                reader.begin(chunk.topic, chunk.partition)
            yield from reader.read(chunk)
        yield from reader.finish()
