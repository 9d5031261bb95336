"""Compares reading by the data source with reading by the scan: rows of all records, and the counts of the kernel.

    python -m bench.data_source [--mebibytes 16] [--rounds 7]

Both read the same segments in this process, as one task does, in turn. Prints the ratio of the times of each round and
writes bench/results/data_source.json.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

from bench.scan.coordinator_log import LogPlan, write_log
from bench.scan.figures import line, ratios, spread
from kafka_rollout.base.errors import FatalError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout_spark.rows import RowKind, of_kind
from kafka_rollout_spark.scan import Documents, make_spec
from kafka_rollout_spark.source import read_split
from pyspark_kafka_coordinator_log.schema import read_schema
from pyspark_kafka_coordinator_log.source import LogReader, Reading
from tools.demo.folder import PROJECT_ROOT

RESULTS = PROJECT_ROOT / "bench" / "results" / "data_source.json"


def rows_s(reader: LogReader) -> tuple[float, int]:
    """Return the seconds and the number of records of the data source."""
    began = time.monotonic()
    found = sum(batch.num_rows for split in reader.partitions() for batch in reader.read(split))
    return time.monotonic() - began, found


def counts_s(reading: Reading, documents: Documents) -> tuple[float, int]:
    """Return the seconds and the number of records of the scan's workers, with every field parsed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    began = time.monotonic()
    logs = reading.find()
    topics = {log.topic for log in logs.logs}
    spec = make_spec(documents.catalogue, documents.schemas, tuple(documents.catalogue), topics)
    rows = pa.Table.from_batches(read_split(logs.source, spec, logs.ranges))
    found = pc.sum(of_kind(rows, RowKind.CLASS)["count"]).as_py()
    return time.monotonic() - began, int(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    documents = Documents.load(Settings.from_environment().catalogue_folders)
    with tempfile.TemporaryDirectory(prefix="bench-data-source-") as name:
        folder = Path(name)
        log_bytes = options.mebibytes << 20
        written = write_log(folder, LogPlan(log_bytes=log_bytes, keys=options.mebibytes * 1000, partitions=2))
        records = sum(one.records for one in written)
        reading = Reading.of({"path": str(folder)}, read_schema())
        reader = LogReader(reading)
        counts_s(reading, documents)  # the kernel is loaded
        source: list[float] = []
        scan: list[float] = []
        for _ in range(options.rounds):
            for times, (took, found) in ((scan, counts_s(reading, documents)), (source, rows_s(reader))):
                if found != records:
                    raise FatalError(f"{found} of {records} records were read.", remedy="Find the cause.")
                times.append(took)
    figures = {
        "data source, records/s": spread([records / took for took in source]),
        "scan, records/s": spread([records / took for took in scan]),
        "data source / scan, time": ratios(source, scan),
    }
    for what, values in figures.items():
        print(line(what, values, ""))
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)},
        "log": {"mebibytes": options.mebibytes, "records": records, "rounds": options.rounds},
        "figures": figures,
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
