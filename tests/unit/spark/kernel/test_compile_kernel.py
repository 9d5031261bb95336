"""What set-up compiles is all that a scan calls."""

from __future__ import annotations

import subprocess
import sys

from tests.paths import ROOT

SCAN_AFTER_IT = """
import importlib, pkgutil
from bench.scan.coordinator_log import make_batches
from kafka_rollout.formats.log_types import Codec
from kafka_rollout_spark import kernel
from kafka_rollout_spark.merge import newest
from kafka_rollout_spark.rows import LogBytes
from kafka_rollout_spark.decode import compile_kernel, worker_rows, whole_batches
from kafka_rollout_spark.merge.newest import reduce_entries
from kafka_rollout_spark.kernel import tables
from kafka_rollout_spark.kernel import COMPLETE
from tests.unit.spark.kernel.test_tables import LOGS, chunks, deep

def compiled():
    names = [f"{kernel.__name__}.{found.name}" for found in pkgutil.iter_modules(kernel.__path__)]
    modules = [importlib.import_module(name) for name in names]
    functions = {one for module in modules for one in vars(module).values() if hasattr(one, "nopython_signatures")}
    return {(one.__module__, one.__name__, str(signature)) for one in functions for signature in one.signatures}

compile_kernel()
assert COMPLETE.exists()
before = compiled()
tables._FIRST_KEY_SLOTS = newest._FIRST_SLOTS = 128  # so that they grow
made = make_batches((Codec.NONE,), 10)
data = b"".join(bytes(next(made)) for _ in range(10))
many = LogBytes(topic="__consumer_offsets", partition=9, data=memoryview(data))
held = [*chunks(LOGS), many]
assert all(whole_batches(chunk.data) for chunk in held if chunk.data)
assert sum(len(rows) for rows in reduce_entries(worker_rows(iter(held), deep(live=True, buckets=2)))) > 0
print(len(before), sorted(compiled() - before))
"""


def test_a_scan_compiles_nothing_after_set_up() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCAN_AFTER_IT], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    compiled, _, late = done.stdout.strip().partition(" ")
    assert int(compiled) > 5
    assert late == "[]"
