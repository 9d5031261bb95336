"""The columns of the data source. `include/schemas/coordinator-log.json` has them in Spark's JSON form.

The fields of a record type are those of all its versions in all releases of the catalogue. python -m
pyspark_kafka_coordinator_log.schema prints the JSON form of the present catalogue.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import types as spark_types

from kafka_rollout.base.errors import FatalError, UserError
from kafka_rollout.base.system.files import read_regular
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.reading.records import KEY, VALUE, KindLayouts
from kafka_rollout.formats.documents.definitions import load_schemas
from kafka_rollout.formats.layouts import FieldType, StructLayout

DOCUMENT = "schemas/coordinator-log.json"
COLUMNS = {
    "topic": ("string", "The coordinator log."),
    "partition": ("integer", "Its partition."),
    "replica": ("string", "The replica that was read: a broker, or the folder of a copy."),
    "offset": ("long", "Offset of the record; of a damaged part, its first offset, or null if it is unknown."),
    "batch_offset": ("long", "Base offset of the batch with the record."),
    "timestamp": ("timestamp", "When the record was written; null in message format v0."),
    "key_version": ("integer", "Record type; null if the key is null or too short to have a version."),
    "value_version": (
        "integer",
        "Version of the value; null for a tombstone, -1 if it is too short to have one.",
    ),
    "record": ("string", "Name of the record type; null if no release of the catalogue knows it."),
    "group": ("string", "The group of the record, if it has one."),
    "transactional_id": ("string", "The transactional id of the record, if it has one."),
    "fields": (
        "struct",
        "Key and value, in a struct with the name of the record type; all others are null. A field that the version of "
        "the record does not have is null.",
    ),
    "broken": (
        "broken",
        "Releases that know the type and version and do not parse this key or value, or reject its content.",
    ),
    "damage": ("string", "Why a part of the log could not be read. The row is not a record then."),
}
"""Column → type and description."""
_TYPES: dict[FieldType, type[spark_types.DataType]] = {
    FieldType.BOOL: spark_types.BooleanType,
    FieldType.INT8: spark_types.ByteType,
    FieldType.INT16: spark_types.ShortType,
    FieldType.UINT16: spark_types.IntegerType,
    FieldType.INT32: spark_types.IntegerType,
    FieldType.UINT32: spark_types.LongType,
    FieldType.INT64: spark_types.LongType,
    FieldType.FLOAT64: spark_types.DoubleType,
    FieldType.UUID: spark_types.StringType,
    FieldType.STRING: spark_types.StringType,
    FieldType.BYTES: spark_types.BinaryType,
    FieldType.RECORDS: spark_types.BinaryType,
}
_PLAIN: dict[str, spark_types.DataType] = {
    "string": spark_types.StringType(),
    "integer": spark_types.IntegerType(),
    "long": spark_types.LongType(),
    "timestamp": spark_types.TimestampType(),
    "broken": spark_types.ArrayType(
        spark_types.StructType()
        .add("part", spark_types.StringType())
        .add("releases", spark_types.ArrayType(spark_types.StringType()))
        .add("reason", spark_types.StringType())
    ),
}


def read_schema() -> spark_types.StructType:
    """Return the columns as they are documented."""
    path = Settings.from_environment().include / DOCUMENT
    try:
        return spark_types.StructType.fromJson(json.loads(read_regular(path)))
    except (OSError, ValueError) as error:
        raise UserError(
            f"The schema {path} cannot be read: {error}.", remedy="Install the distribution again."
        ) from None


def make_schema(kinds: Iterable[KindLayouts]) -> spark_types.StructType:
    """Return the columns for these record kinds."""
    parts: dict[str, dict[str, dict[str, Any]]] = {}
    for kind in kinds:
        for use in kind.uses:
            assert kind.name is not None  # noqa: S101 - a kind with a layout has a name
            of_record = parts.setdefault(kind.name, {KEY: {}, VALUE: {}})
            _merge(of_record[use.part], use.layout.struct, f"{kind.name}.{use.part}")
    fields = spark_types.StructType()
    for name, of_record in sorted(parts.items()):
        record = spark_types.StructType()
        for part in (KEY, VALUE):
            record.add(part, _struct(of_record[part]))
        fields.add(name, record)
    types = {**_PLAIN, "struct": fields}
    schema = spark_types.StructType()
    for name, (kind_of_column, comment) in COLUMNS.items():
        schema.add(name, types[kind_of_column], metadata={"comment": comment})
    return schema


def _merge(found: dict[str, Any], struct: StructLayout, path: str) -> None:
    """Add the fields of a struct: name → (type, is an array), or for a struct (its fields, is an array)."""
    for field in (*struct.fields, *struct.tagged.values()):
        here = f"{path}.{field.name}"
        content: Any = _TYPES[field.type] if field.struct is None else found.get(field.name, ({}, None))[0]
        if found.setdefault(field.name, (content, field.array)) != (content, field.array):
            raise FatalError(f"{here} has another type in another version or release.", remedy=_RENAME)
        if field.struct is not None:
            _merge(content, field.struct, here)


_RENAME = "Give the field of one of them another name in the schema of the data source."


def _struct(fields: dict[str, Any]) -> spark_types.StructType:
    struct = spark_types.StructType()
    for name, (content, is_array) in fields.items():
        one = _struct(content) if isinstance(content, dict) else content()
        struct.add(name, spark_types.ArrayType(one) if is_array else one)
    return struct


def present_schema() -> spark_types.StructType:
    """Return the columns for the record kinds of the installed catalogue."""
    from kafka_rollout.coordinator_logs.reading.records import kinds_of_log

    schemas = load_schemas(Settings.from_environment().include)
    releases = sorted(schemas.releases, reverse=True)
    topics = sorted({topic for _, topic in schemas.by_log})
    return make_schema(kind for topic in topics for kind in kinds_of_log(schemas, releases, topic).values())


def to_document(schema: spark_types.StructType) -> str:
    """Return the text of DOCUMENT."""
    return json.dumps(schema.jsonValue(), indent=1) + "\n"


def describe(schema: spark_types.StructType) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and description of each column."""
    for field in schema.fields:
        kind = "struct<record: struct<key, value>>" if field.name == "fields" else field.dataType.simpleString()
        yield field.name, kind, str(field.metadata["comment"])


if __name__ == "__main__":
    print(to_document(present_schema()), end="")
