"""Journals of the test traffic: one append-only text file per writer, in the folder of a traffic period.

Lines are tab-separated. `acknowledged-*.tsv`: topic, partition, offset, record id, transaction or `-`.
`transactions-*.tsv`: transaction, outcome (a later line for the same transaction wins).
`consumed-<group>.tsv`: topic, partition, offset, record id. `gaps-*.tsv`: client, longest gap in seconds.
`samples-*.tsv`: the fields of a `TrafficSample` as JSON values.
The last line is dropped if its writer was killed in the middle of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock

from kafka_rollout.features.users import ends_consumer_groups, ends_transactional_producers
from kafka_rollout.run.traffic_series import TrafficSample
from kafka_rollout.run.traffic_verdict import TRANSACTIONAL_PRODUCER, TrafficVerdict, TransactionOutcome
from kafka_rollout.traffic.check import CONSUMER_GROUP, ConsumedRecord, Position, ReadMarks, TrafficRecord, compare

NO_TRANSACTION = "-"


class Journal:
    """Appends lines. After `flush` they survive a kill of this process."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._lines: list[str] = []
        self._lock = Lock()

    def write(self, *fields: object) -> None:
        with self._lock:
            self._lines.append("\t".join(str(field) for field in fields) + "\n")

    def flush(self) -> None:
        with self._lock:
            data, self._lines = "".join(self._lines).encode(), []
            while data:
                data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        self.flush()
        os.close(self._descriptor)


def read_lines(path: Path, fields: int) -> Iterator[list[str]]:
    """The complete lines of a journal, split into fields."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            parts = line.rstrip("\n").split("\t")
            if line.endswith("\n") and len(parts) == fields:
                yield parts


def _acknowledged(folder: Path) -> Iterator[TrafficRecord]:
    for path in sorted(folder.glob("acknowledged-*.tsv")):
        for topic, partition, offset, record_id, transaction in read_lines(path, 5):
            yield TrafficRecord(
                Position(topic, int(partition), int(offset)),
                record_id,
                None if transaction == NO_TRANSACTION else transaction,
            )


def read_samples(folder: Path) -> Iterator[TrafficSample]:
    """The samples of one traffic period, those of killed processes included."""
    for path in sorted(folder.glob("samples-*.tsv")):
        for fields in read_lines(path, len(TrafficSample._fields)):
            yield TrafficSample(*map(json.loads, fields))


def _consumed(path: Path) -> Iterator[ConsumedRecord]:
    for topic, partition, offset, record_id in read_lines(path, 4):
        yield ConsumedRecord(Position(topic, int(partition), int(offset)), record_id)


def compare_journals(folder: Path, read_marks: ReadMarks, lowered: Mapping[str, int]) -> TrafficVerdict:
    """The result over all journals of one traffic period, those of killed processes included.

    `lowered`: levels that the run lowers. A client that they end has no journal if it never ran.
    """
    transactions: dict[str, TransactionOutcome] = {}
    for path in sorted(folder.glob("transactions-*.tsv")):
        for name, outcome in read_lines(path, 2):
            transactions[name] = TransactionOutcome(outcome)
    gaps: dict[str, float] = {}
    for path in sorted(folder.glob("gaps-*.tsv")):
        for client, seconds in read_lines(path, 2):
            gaps[client] = max(gaps.get(client, 0.0), float(seconds))
    consumed = {path.stem.removeprefix("consumed-"): _consumed(path) for path in sorted(folder.glob("consumed-*.tsv"))}
    left_out = []
    if ends_transactional_producers(lowered) and not any(folder.glob("transactions-*.tsv")):
        left_out.append(TRANSACTIONAL_PRODUCER)
    if ends_consumer_groups(lowered) and "consumer" not in consumed:
        left_out.append(CONSUMER_GROUP)
    return compare(
        _acknowledged(folder),
        transactions,
        consumed,
        gaps,
        read_marks,
        left_out=left_out,
        series=read_samples(folder),
    )
