"""Compiles the kernel, so that no scan must wait for it: python -m kafka_rollout_spark.decode.compile_kernel.

The result stays in the cache ($KAFKA_ROLLOUT_CACHE/numba) until a source of the kernel changes.
"""

from __future__ import annotations

from contextlib import closing

import numpy as np

from kafka_rollout_spark.decode.log_reader import LogReader
from kafka_rollout_spark.kernel import keys, scanning, tables
from kafka_rollout_spark.kernel.cache import COMPLETE
from kafka_rollout_spark.kernel.spec import DecodingSpec
from kafka_rollout_spark.rows import LogBytes


def compile_kernel() -> None:
    """Call every function of the kernel that Python calls, with empty input."""
    with closing(LogReader(DecodingSpec(live=True))) as reader:
        reader.begin("", 0)
        for _ in (*reader.read(LogBytes(topic="", partition=0, data=memoryview(b""))), *reader.finish()):
            pass
    empty = tables.create_tables(deep=False, live=False, buckets=1)
    control = empty.control.ctypes.data
    counts = np.zeros(1, dtype=np.int64).ctypes.data
    keys.count_by_bucket(control, counts)
    keys.copy_to_buckets(control, 0, counts)
    keys.fill_table(0, 1, 0, 0, 0)
    keys.add_entries(0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
    scanning.batches_end(0, 0)
    scanning.count_batch(control, 0, 0, 0, 0, 0)
    COMPLETE.touch()


if __name__ == "__main__":
    compile_kernel()
