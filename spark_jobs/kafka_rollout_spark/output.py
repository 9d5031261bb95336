"""A scan's files, written whole or not at all: JSON for machines, Parquet for tables."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.coordinator_logs.findings import check_rollback
from kafka_rollout.coordinator_logs.scan import (
    BrokenRecords,
    Damage,
    LogSize,
    OwnerRecords,
    ReleaseVerdict,
    ScanResult,
    TaggedFields,
)
from kafka_rollout.formats.log_types import RecordKind

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

STANDARD_OUTPUT = Path("-")
_ROWS_AT_ONCE = 50_000

_STAMP = {"cluster": pa.string(), "scanned_at": pa.timestamp("ms", tz="UTC")}
_INT32 = ("partition", "key_version", "value_version")
_TYPES = {
    **{"int": pa.int64(), "str": pa.string()},
    **dict.fromkeys(("tuple[Release, ...]", "tuple[str, ...]"), pa.list_(pa.string())),
}


def _columns(kind: type[DataclassInstance]) -> dict[str, pa.DataType]:
    """Return a column for each field of a kind of values."""
    types = {one.name: _TYPES[str(one.type).removesuffix(" | None")] for one in fields(kind)}
    return {name: pa.int32() if name in _INT32 else type_ for name, type_ in types.items()}


_TABLES: Mapping[str, Mapping[str, pa.DataType]] = {
    "classes": _columns(RecordKind),
    "verdicts": {
        **{"release": pa.string(), "topic": pa.string(), "partition": pa.int32(), "verdict": pa.string()},
        **{"ignored": pa.int64(), "failure_offset": pa.int64(), "failure_reason": pa.string()},
        "replicas": pa.list_(pa.string()),
    },
    "findings": dict.fromkeys(("topic", "release", "code", "severity", "subject", "sentence", "remedy"), pa.string()),
    "broken": _columns(BrokenRecords),
    "tagged": _columns(TaggedFields),
    "owners": {**_columns(OwnerRecords), "replica": pa.string()},
    "sizes": _columns(LogSize),
    "damage": _columns(Damage),
}


def write_json(result: ScanResult, target: Path) -> None:
    """`target` can be STANDARD_OUTPUT."""
    text = json.dumps(to_json(result), indent=1) + "\n"
    if target == STANDARD_OUTPUT:
        sys.stdout.write(text)
        return
    with _whole(target) as draft:
        draft.write_text(text, encoding="utf-8")


def write_parquet(result: ScanResult, owners: Iterable[tuple[OwnerRecords, str]], folder: Path) -> tuple[Path, ...]:
    """<table>-<time>.parquet in `folder`, a row for each thing found; earlier scans in it stay. `owners`: all of them,
    which may be more than the result lists, with their replica.
    """
    rows: dict[str, Iterable[dict[str, Any]]] = {
        "classes": map(to_json, result.classes),
        "verdicts": map(_verdict_row, result.verdicts),
        "findings": _finding_rows(result),
        "broken": map(to_json, result.broken),
        "tagged": map(to_json, result.tagged),
        "owners": ({**asdict(owner), "replica": replica} for owner, replica in owners),
        "sizes": map(asdict, result.sizes),
        "damage": map(asdict, result.damage),
    }
    stamp = {"cluster": result.cluster, "scanned_at": int(result.scanned_at * 1000)}
    return tuple(
        _write_table(
            ({**stamp, **row} for row in rows[table]),
            pa.schema({**_STAMP, **columns}.items()),
            folder / f"{table}-{stamp['scanned_at']}.parquet",
        )
        for table, columns in _TABLES.items()
    )


def _verdict_row(verdict: ReleaseVerdict) -> dict[str, Any]:
    row = to_json(verdict)
    failure = row.pop("first_failure") or {}
    return {**row, "failure_offset": failure.get("offset"), "failure_reason": failure.get("reason")}


def _finding_rows(result: ScanResult) -> Iterator[dict[str, Any]]:
    for release in result.standing:
        for finding in check_rollback(result, release).findings:
            topic = finding.subject.removeprefix("topic ")
            yield {"release": str(release), "topic": topic, **asdict(finding)}


def _write_table(rows: Iterable[dict[str, Any]], schema: pa.Schema, path: Path) -> Path:
    remaining = iter(rows)
    take: Callable[[], list[dict[str, Any]]] = lambda: list(islice(remaining, _ROWS_AT_ONCE))  # noqa: E731
    with _whole(path) as draft, pq.ParquetWriter(draft, schema) as writer:
        for some in iter(take, []):
            writer.write_batch(pa.RecordBatch.from_pylist(some, schema=schema))
    return path


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A name beside the target: the rename that publishes it stays within one file system."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        draft.replace(path)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror}.", remedy="Name another place for the output."
        ) from None
    finally:
        with suppress(OSError):
            draft.unlink()
