"""The voters of a dynamic quorum (KIP-853) in a copied metadata log, with the addresses of the sandbox.

They are control records of the log and its snapshots. A controller asks these addresses for votes, whatever its
configuration contains. Offsets, epochs and all other batches stay as they are.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

import crc32c

from kafka_rollout.base.errors import UserError
from kafka_rollout.kafka.formats.varints import unsigned_varint, zigzag_varint
from kafka_rollout.metadata_log.disk.folder import (
    CONTROL_VOTERS,
    MetadataBatch,
    MetadataFolder,
    MetadataRecord,
    read_file,
)
from kafka_rollout.metadata_log.disk.quorum import decode_voters

_EPOCH_AT, _CRC_AT, _ATTRIBUTES_AT, _RECORDS_AT = 12, 17, 21, 61  # of a batch v2
_AFTER_LENGTH = 12


def rewrite_voters(log: Path, addresses: Mapping[int, str]) -> int:
    """Replace the addresses of all voters in a copied log; return the number of changed files.

    `log`: the folder of __cluster_metadata-0. `addresses`: node id → `host:port`. Raises UserError for a voter without
    an address, and for a damaged file.
    """
    folder = MetadataFolder(log=log, root=log.parent, cluster_id=None, node_id=None)
    segments = folder.segments
    changed = 0
    for path in (*segments, *(checkpoint.path for checkpoint in folder.checkpoints)):
        found = list(read_file(path, last=path in segments[-1:], outline=True))
        if any(_has_voters(batch) for batch in found):
            path.write_bytes(b"".join(_rewritten(batch, addresses) for batch in found))
            changed += 1
    return changed


def _has_voters(batch: MetadataBatch) -> bool:
    return batch.is_control and any(record.type == CONTROL_VOTERS for record in batch.records)


def _rewritten(batch: MetadataBatch, addresses: Mapping[int, str]) -> bytes:
    if not _has_voters(batch):
        return batch.data
    body = b"".join(_record(batch, record, addresses) for record in batch.records)
    after = batch.data[_ATTRIBUTES_AT:_RECORDS_AT] + body
    length = _ATTRIBUTES_AT - _AFTER_LENGTH + len(after)
    head = batch.data[: _AFTER_LENGTH - 4] + length.to_bytes(4) + batch.data[_EPOCH_AT:_CRC_AT]
    return head + crc32c.crc32c(after).to_bytes(4) + after


def _record(batch: MetadataBatch, record: MetadataRecord, addresses: Mapping[int, str]) -> bytes:
    value = encode_voters(record.value, addresses) if record.type == CONTROL_VOTERS else record.value
    key = bytes(2) + record.type.to_bytes(2)
    fields = b"\0\0" + zigzag_varint(record.offset - batch.base_offset) + zigzag_varint(len(key)) + key
    fields += zigzag_varint(len(value)) + value + b"\0"
    return zigzag_varint(len(fields)) + fields


def encode_voters(record: bytes, addresses: Mapping[int, str]) -> bytes:
    """Return a VotersRecord (version 0, flexible) with other addresses. Every voter keeps its directory id."""
    voters = decode_voters(record)
    encoded = record[:2] + unsigned_varint(len(voters) + 1)
    for voter in voters:
        node_id = int(voter["voterId"])
        if node_id not in addresses:
            raise UserError(
                f"Controller {node_id} is a voter of the quorum, and it is not copied.",
                remedy="Add it to the inventory, or remove it from the quorum.",
            )
        host, _, port = addresses[node_id].rpartition(":")
        encoded += node_id.to_bytes(4) + _uuid(voter["voterDirectoryId"]) + unsigned_varint(len(voter["endpoints"]) + 1)
        for endpoint in voter["endpoints"]:
            encoded += _text(endpoint["name"]) + _text(host) + int(port).to_bytes(2) + b"\0"
        versions = voter["kRaftVersionFeature"]
        encoded += b"".join(int(versions[name]).to_bytes(2) for name in ("minSupportedVersion", "maxSupportedVersion"))
        encoded += b"\0\0"  # no tagged fields in the versions and in the voter
    return encoded + b"\0"


def _uuid(text: str) -> bytes:
    return base64.urlsafe_b64decode(f"{text}==")


def _text(text: str) -> bytes:
    data = text.encode()
    return unsigned_varint(len(data) + 1) + data
