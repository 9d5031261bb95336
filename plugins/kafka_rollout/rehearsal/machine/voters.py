"""The voters of a dynamic quorum (KIP-853) in a copied metadata log, with the addresses of the sandbox.

They are control records of the log and its snapshots. A controller asks these addresses for votes, whatever its
configuration contains. Offsets, epochs and all other batches stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kafka_rollout.base.errors import UserError
from kafka_rollout.kafka.formats.messages import decode, encode
from kafka_rollout.metadata_log.disk.folder import (
    CONTROL_VOTERS,
    MetadataBatch,
    MetadataFolder,
    encode_batch,
    read_file,
    voters_layout,
)


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
    records = (
        replace(one, value=encode_voters(one.value, addresses)) if one.type == CONTROL_VOTERS else one
        for one in batch.records
    )
    return encode_batch(batch, tuple(records))


def encode_voters(record: bytes, addresses: Mapping[int, str]) -> bytes:
    """Return a VotersRecord with other addresses. Every voter keeps its directory id."""
    content = decode(voters_layout(), record).value
    for voter in content["voters"]:
        node_id = int(voter["voterId"])
        if node_id not in addresses:
            raise UserError(
                f"Controller {node_id} is a voter of the quorum, and it is not copied.",
                remedy="Add it to the inventory, or remove it from the quorum.",
            )
        host, _, port = addresses[node_id].rpartition(":")
        for endpoint in voter["endpoints"]:
            endpoint.update(host=host, port=int(port))
    return encode(voters_layout(), content)
