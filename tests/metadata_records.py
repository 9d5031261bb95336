"""Records that a test adds to a kept metadata log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kafka_rollout.formats.messages import encode, unsigned_varint
from kafka_rollout.metadata_log.classes.known_releases import known_releases, metadata_schemas
from kafka_rollout.metadata_log.disk.folder import MetadataFolder, MetadataRecord, encode_batch, read_log
from kafka_rollout.metadata_log.record_types import RecordType
from tests.paths import INCLUDE

Added = tuple[str, int, Mapping[str, Any]]
"""Name of the record's definition, version, fields; a field that is left out has its default."""


def append_records(folder: MetadataFolder, *added: Added) -> None:
    """Add one batch to the end of the log, by the definitions of the newest release."""
    schemas = {schema.name: (kind, schema) for kind, schema in _schemas().items()}
    last = list(read_log(folder))[-1]
    offset = last.last_offset + 1
    records = []
    for number, (name, version, fields) in enumerate(added):
        kind, schema = schemas[name]
        frame = b"".join(map(unsigned_varint, (1, kind, version)))
        value = frame + encode(schema.layout(version), fields)
        records.append(
            MetadataRecord(offset=offset + number, frame=1, type=kind, version=version, value=value, body_at=len(frame))
        )
    batch = replace(last, base_offset=offset, last_offset=offset + len(added) - 1, is_control=False)
    with folder.segments[-1].open("ab") as file:
        file.write(encode_batch(batch, records))


def empty_records(folder: MetadataFolder, *offsets: int) -> None:
    """Replace the records at these offsets by records without an effect (NoOpRecord)."""
    data = b""
    for batch in read_log(folder):
        if not set(offsets) & {record.offset for record in batch.records}:
            data += batch.data
            continue
        kept = [
            replace(record, type=RecordType.NO_OP, value=bytes([1, RecordType.NO_OP, 0, 0]))
            if record.offset in offsets
            else record
            for record in batch.records
        ]
        data += encode_batch(batch, kept)
    (segment,) = folder.segments
    segment.write_bytes(data)


def _schemas() -> Mapping[int, Any]:
    return metadata_schemas(known_releases(INCLUDE)[-1], INCLUDE)


def acl(number: int, **fields: Any) -> Added:
    """An AccessControlEntryRecord: User:alice may READ topic orders from everywhere."""
    of = {"resourceType": 2, "resourceName": "orders", "patternType": 3, "principal": "User:alice", "host": "*"}
    return (
        "AccessControlEntryRecord",
        0,
        {"id": f"{number:021}A", **of, "operation": 3, "permissionType": 3, **fields},
    )
