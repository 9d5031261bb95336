"""The programs that the scan is compared with: `cat`, the kernel without Spark, kafka-dump-log, a counting consumer."""

from __future__ import annotations

import hashlib
import multiprocessing
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from bench.scan.coordinator_log import TOPIC
from kafka_rollout.base.errors import FatalError
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.maven import Module, open_repository
from kafka_rollout.releases.jvm.java import java_binary
from kafka_rollout_spark.decode import worker_rows
from kafka_rollout_spark.kernel.programs import DecodingSpec
from kafka_rollout_spark.rows import RowKind
from kafka_rollout_spark.source import LogsToRead, SegmentFiles, Split

RELEASE = Release(4, 3, 1)
_TOOLS = Module("org.apache.kafka", "kafka-tools", str(RELEASE))  # has no lock: a broker does not need it
_TOOLS_SHA256 = "62f3c5dd7aa3442d4c5bc6a95f86e2502178ea09de8e27f74d9563bf955e253c"
_AT_ONCE = 10_000
_PATIENCE_S = 60.0


def segments(folders: Sequence[Path]) -> list[Path]:
    return [path for folder in folders for path in sorted(folder.glob("*.log"))]


def cat_s(folders: Sequence[Path]) -> float:
    began = time.monotonic()
    subprocess.run(["cat", *map(str, segments(folders))], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began


class BareKernel:
    """Reads and counts like the workers of the job, in two processes of this program that already run."""

    def __init__(self, processes: int = 2) -> None:
        self._processes = processes
        self._pool = multiprocessing.get_context("spawn").Pool(processes)

    def seconds(self, logs: LogsToRead, spec: DecodingSpec, records: int) -> float:
        began = time.monotonic()
        tasks = [(split, spec) for split in logs.splits(self._processes)]
        read = sum(self._pool.imap_unordered(_read_split, tasks))
        took = time.monotonic() - began
        if read != records:
            raise FatalError(f"The bare kernel read {read} of {records} records.", remedy="Find the cause.")
        return took

    def close(self) -> None:
        self._pool.terminate()
        self._pool.join()


def _read_split(task: tuple[Split, DecodingSpec]) -> int:
    split, spec = task
    damage: list[pa.RecordBatch] = []
    read = 0
    for rows in worker_rows(SegmentFiles().read(split, damage), spec):
        if rows.num_rows and rows["kind"][0].as_py() == RowKind.LOG:
            read += sum(rows["count"].to_pylist())
    return -1 if damage else read


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpLog:
    """kafka-dump-log --offsets-decoder, started like a tool of bin/kafka-run-class.sh; its output is discarded."""

    class_path: str

    @classmethod
    def fetch(cls, folder: Path, libs: Path) -> DumpLog:
        with open_repository() as repository:
            repository.jars([_TOOLS], folder)
        if hashlib.sha256((folder / _TOOLS.file).read_bytes()).hexdigest() != _TOOLS_SHA256:
            raise FatalError(
                f"{_TOOLS} has another SHA-256 than expected.", remedy="Check the network and the repository."
            )
        return cls(class_path=f"{folder}/*:{libs}/*")

    def seconds(self, folder: Path) -> float:
        command = [
            *(str(java_binary()), "-Xmx256M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
            *("-cp", self.class_path, "org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder"),
            *("--files", ",".join(map(str, segments([folder])))),
        ]
        began = time.monotonic()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return time.monotonic() - began


def consumer_s(servers: str, partitions: int) -> tuple[float, int]:
    """Return seconds and records of a consumer that reads to the current end and counts the keys' first two bytes."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "log_level": 0,
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",
            "queued.max.messages.kbytes": 256 << 10,  # larger than the default, which is never slower
            "fetch.message.max.bytes": 8 << 20,
        }
    )
    try:
        places = [TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(partitions)]
        began = time.monotonic()
        total = sum(high - low for low, high in (consumer.get_watermark_offsets(place) for place in places))
        consumer.assign(places)
        counts: Counter[bytes | None] = Counter()
        while (counted := counts.total()) < total:
            messages = consumer.consume(min(_AT_ONCE, total - counted), _PATIENCE_S)  # waits for this number of records
            if not messages:
                raise FatalError(f"The consumer stopped after {counted} of {total} records.", remedy="Find the cause.")
            counts.update((message.key() or b"")[:2] for message in messages)
        return time.monotonic() - began, counted
    finally:
        consumer.close()
