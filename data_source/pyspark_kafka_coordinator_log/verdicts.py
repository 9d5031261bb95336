"""Verdicts per release over the rows of the data source, by the function of the scan (coordinator_logs.verdicts)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kafka_rollout.coordinator_logs.scan import ReleaseVerdict
    from kafka_rollout.releases.facts import Catalogue, Release

_KIND = ("topic", "key_version", "value_version", "broken", "damage")  # what the verdict of a record depends on
_VERDICT = StructType().add("release", StringType()).add("verdict", StringType()).add("reason", StringType())
_OF_LOG = (
    StructType()
    .add("release", StringType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("verdict", StringType())
    .add("ignored", LongType())
    .add("first_failure", LongType())
    .add("reason", StringType())
)


def verdicts(rows: DataFrame, *releases: str, classic_group_coordinator: bool = True) -> DataFrame:
    """Return each row once for each release, with the columns `release`, `verdict` and `reason`.

    `verdict` is one of those of docs/scan.md: what the coordinator of the release does with this record alone, as if it
    were the newest of its key. Problems that depend on several records are not found here: log_verdicts finds records
    at the end of a log, the scan finds groups whose records are out of order or that are deleted while a transaction is
    open. The verdict of a damaged part is `unknown`.

    `classic_group_coordinator`: brokers of 3.8 and 3.9 have no setting that starts their new group coordinator. If that
    is unknown, pass False: their verdict for committed offsets and groups is `unknown` then. A stream can be evaluated
    too. Raises UserError for a release that is not in the catalogue.
    """
    from pyspark.sql import functions

    asked, catalogue = _catalogue(releases, classic_group_coordinator)
    evaluated = functions.arrow_udf(  # type: ignore[attr-defined]  # mypy reads no name that PySpark adds at import
        _evaluation(catalogue, asked), ArrayType(_VERDICT)
    )
    columns = [functions.col(name) for name in rows.columns]
    found = rows.withColumn("_verdicts", functions.explode(evaluated(*(functions.col(name) for name in _KIND))))
    names = (f"_verdicts.{field.name}" for field in _VERDICT.fields)
    return found.select(*columns, *names)


def log_verdicts(rows: DataFrame, *releases: str, classic_group_coordinator: bool = True) -> DataFrame:
    """Return the verdict of each release for each partition with a row, the worst of its replicas.

    It is that of the scan for all that single records and the end of a log decide; see `verdicts`. `ignored` counts the
    records that the release skips, and `first_failure` is the offset of the first record that it does not load.
    """
    from pyspark.sql import functions

    asked, catalogue = _catalogue(releases, classic_group_coordinator)
    by = ["topic", "partition", "replica", "key_version", "value_version", "broken", "damage"]
    kinds = rows.groupBy(*by).agg(
        functions.count("*").alias("count"),
        functions.min("offset").alias("first_offset"),
        functions.max("batch_offset").alias("last_batch"),
    )
    found = _of_logs(catalogue, asked, [row.asDict() for row in kinds.collect()])
    return rows.sparkSession.createDataFrame([_as_row(one) for one in found], _OF_LOG)


def _as_row(one: ReleaseVerdict) -> tuple[Any, ...]:
    failure = one.first_failure
    first = (None, None) if failure is None else (failure.offset, failure.reason)
    return str(one.release), one.topic, one.partition, str(one.verdict), one.ignored, *first


def _catalogue(releases: Sequence[str], is_classic: bool) -> tuple[tuple[Release, ...], Catalogue]:
    """Return the releases and their facts alone, which a task gets."""
    from kafka_rollout.base.errors import UserError
    from kafka_rollout.base.system.settings import Settings
    from kafka_rollout.releases.documents.catalogue import load_catalogue
    from kafka_rollout.releases.facts import Catalogue, Release

    if not releases:
        raise UserError("No release was named.", remedy='Name at least one, such as verdicts(rows, "3.9.1").')
    catalogue = load_catalogue(*Settings.from_environment().catalogue_folders)
    asked = tuple(dict.fromkeys(map(Release.parse, releases)))
    only = Catalogue({release: catalogue.get(release) for release in asked})
    return asked, only.configured(new_group_coordinator=False if is_classic else None)


def _evaluation(catalogue: Catalogue, releases: Sequence[Release]) -> Callable[..., Any]:
    def evaluate(
        topic: pa.Array, key_version: pa.Array, value_version: pa.Array, broken: pa.Array, damage: pa.Array
    ) -> pa.Array:
        known: dict[Any, list[dict[str, str | None]]] = {}
        found = []
        columns = (topic, key_version, value_version, broken, damage)
        for kind in zip(*(column.to_pylist() for column in columns), strict=True):
            key = (*kind[:3], _hashable(kind[3]), kind[4])
            if key not in known:
                known[key] = _of_record(catalogue, releases, dict(zip(_KIND, kind, strict=True)))
            found.append(known[key])
        of_one = pa.struct([(field.name, pa.string()) for field in _VERDICT.fields])
        return pa.array(found, pa.list_(of_one))

    return evaluate


def _hashable(broken: Iterable[Mapping[str, Any]] | None) -> Any:
    if broken is None:
        return None
    return tuple((part["part"], tuple(part["releases"]), part["reason"]) for part in broken)


def _of_record(
    catalogue: Catalogue, releases: Sequence[Release], row: Mapping[str, Any]
) -> list[dict[str, str | None]]:
    of_row = {**row, "partition": 0, "replica": None, "count": 1, "first_offset": 0, "last_batch": 0}
    found: list[dict[str, str | None]] = []
    for one in _of_logs(catalogue, releases, [of_row], alone=True):
        reason = row["damage"] if one.first_failure is None else one.first_failure.reason
        found.append({"release": str(one.release), "verdict": str(one.verdict), "reason": reason})
    return found


def _of_logs(
    catalogue: Catalogue, releases: Sequence[Release], rows: Sequence[Mapping[str, Any]], *, alone: bool = False
) -> tuple[ReleaseVerdict, ...]:
    """Return the verdicts of these counts of rows. `alone`: without what the order of records decides."""
    from kafka_rollout.coordinator_logs.replicas import merge_replicas
    from kafka_rollout.coordinator_logs.scan import BrokenRecords, Damage
    from kafka_rollout.coordinator_logs.verdicts import evaluate_records, unknown_ends
    from kafka_rollout.formats.log_types import RecordKind
    from kafka_rollout.releases.facts import Release

    kinds: dict[Any, tuple[RecordKind, int]] = {}
    broken: list[BrokenRecords] = []
    damage: list[Damage] = []
    for row in rows:
        topic, partition = row["topic"], row["partition"]
        replicas = () if row["replica"] is None else (row["replica"],)
        if row["damage"] is not None:
            of_log = partial(Damage, topic=topic, partition=partition)
            damage.append(of_log(file="", position=0, log_bytes=0, sentence=row["damage"], offsets=1))
            continue
        kind = RecordKind(
            topic=topic,
            partition=partition,
            key_version=row["key_version"],
            value_version=row["value_version"],
            count=row["count"],
            first_offset=row["first_offset"],
            replicas=replicas,
        )
        place = topic, partition, row["replica"], kind.key_version, kind.value_version
        before, last = kinds.get(place, (kind, row["last_batch"]))
        if place in kinds:
            kind = replace(
                kind, count=before.count + kind.count, first_offset=min(before.first_offset, kind.first_offset)
            )
        kinds[place] = kind, max(last, row["last_batch"])
        broken += (
            BrokenRecords(
                topic=topic,
                partition=partition,
                key_version=kind.key_version,
                value_version=kind.value_version,
                part=part["part"],
                releases=tuple(map(Release.parse, part["releases"])),
                count=row["count"],
                first_offset=row["first_offset"],
                reason=part["reason"],
                replicas=replicas,
            )
            for part in row["broken"] or ()
            if kind.key_version is not None
        )
    if not alone:
        for replica in {place[2] for place in kinds}:
            broken += unknown_ends(catalogue, [kind for place, kind in kinds.items() if place[2] == replica], releases)
    return evaluate_records(
        catalogue, merge_replicas((kind for kind, _ in kinds.values()), {}), releases, broken=broken, damage=damage
    )
