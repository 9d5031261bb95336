"""The ledger's journals: one append-only text file per writer in the ledger's folder.

Lines are tab-separated. `acknowledged-*.tsv`: topic, partition, offset, record id, transaction or `-`.
`transactions-*.tsv`: transaction, outcome (a later line for the same transaction wins).
`consumed-<group>.tsv`: topic, partition, offset, record id. `gaps-*.tsv`: client, longest gap in seconds.
A torn last line (the writer was killed in the middle of it) is dropped: what it said was never acted upon.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

from kafka_rollout.domain.traffic_check import (
    ConsumedRecord,
    LedgerRecord,
    LedgerVerdict,
    Position,
    TransactionOutcome,
    compare,
    together,
)

NO_TRANSACTION = "-"
VERDICT = "verdict.json"
_STRETCH = "stretch-"  # folder of journals that were compared before traffic began anew


class Journal:
    """Appends lines; `flush` hands them to the system, so that they outlive the death of this process."""

    def __init__(self, path: Path) -> None:
        # 0600: record ids are harmless, but a folder of a run is nobody else's business.
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
    """Whole lines of a journal, split; a torn line has no newline or too few fields."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            parts = line.rstrip("\n").split("\t")
            if line.endswith("\n") and len(parts) == fields:
                yield parts


def _acknowledged(folder: Path) -> Iterator[LedgerRecord]:
    for path in sorted(folder.glob("acknowledged-*.tsv")):
        for topic, partition, offset, record_id, transaction in read_lines(path, 5):
            yield LedgerRecord(
                Position(topic, int(partition), int(offset)),
                record_id,
                None if transaction == NO_TRANSACTION else transaction,
            )


def _consumed(path: Path) -> Iterator[ConsumedRecord]:
    for topic, partition, offset, record_id in read_lines(path, 4):
        yield ConsumedRecord(Position(topic, int(partition), int(offset)), record_id)


def end_stretch(folder: Path) -> None:
    """Put the journals of traffic that was compared aside, for traffic that begins anew; nothing if it was not.

    Its topics may be gone by now, and a place in them means another record when they are made again. The verdict goes
    last: whoever is killed in the middle goes on with the same stretch.
    """
    if not (folder / VERDICT).exists():
        return
    aside = folder / f"{_STRETCH}{sum((path / VERDICT).exists() for path in _earlier(folder)) + 1}"
    aside.mkdir(exist_ok=True)
    for path in (*sorted(folder.glob("*.tsv")), folder / VERDICT):
        path.rename(aside / path.name)


def _earlier(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{_STRETCH}*"))


def compare_journals(folder: Path) -> LedgerVerdict:
    """The verdict over all journals of a ledger's folder, those of earlier stretches and killed processes included."""
    return together([_compare_stretch(stretch) for stretch in (*_earlier(folder), folder)])


def _compare_stretch(folder: Path) -> LedgerVerdict:
    transactions: dict[str, TransactionOutcome] = {}
    for path in sorted(folder.glob("transactions-*.tsv")):
        for name, outcome in read_lines(path, 2):
            transactions[name] = TransactionOutcome(outcome)
    gaps: dict[str, float] = {}
    for path in sorted(folder.glob("gaps-*.tsv")):
        for client, seconds in read_lines(path, 2):
            gaps[client] = max(gaps.get(client, 0.0), float(seconds))
    consumed = {path.stem.removeprefix("consumed-"): _consumed(path) for path in sorted(folder.glob("consumed-*.tsv"))}
    return compare(_acknowledged(folder), transactions, consumed, gaps)
