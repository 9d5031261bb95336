"""What a stopped node's directory says of the metadata quorum: how far its log goes, which epochs it knows, who votes.

A static quorum's voters stand in quorum-state, a dynamic one's in control records (KIP-853).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kafka_rollout.adapters.metadata_log.folder import (
    CONTROL_VOTERS,
    QUORUM_STATE,
    MetadataBatch,
    MetadataFolder,
    damaged,
    read_checkpoint,
    read_log,
)
from kafka_rollout.adapters.system.files import read_regular, reading
from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.offline.log_choice import NodeLog
from kafka_rollout.wire.layouts import MessageSchema
from kafka_rollout.wire.messages import decode


def _field(name: str, kind: str, *fields: dict[str, object]) -> dict[str, object]:
    return {"name": name, "type": kind, "versions": "0+", **({"fields": list(fields)} if fields else {})}


# common/message/VotersRecord.json of kafka-clients, the same since 3.9; 0 is its only version.
_ENDPOINT = (_field("Name", "string"), _field("Host", "string"), _field("Port", "uint16"))
_RANGE = (_field("MinSupportedVersion", "int16"), _field("MaxSupportedVersion", "int16"))
_VOTER = (
    _field("VoterId", "int32"),
    _field("VoterDirectoryId", "uuid"),
    _field("Endpoints", "[]Endpoint", *_ENDPOINT),
    _field("KRaftVersionFeature", "KRaftVersionFeature", *_RANGE),
)
_VOTERS_RECORD = {
    "type": "data",
    "name": "VotersRecord",
    "validVersions": "0",
    "flexibleVersions": "0+",
    "fields": [_field("Version", "int16"), _field("Voters", "[]Voter", *_VOTER)],
}


def node_log(folder: MetadataFolder, node_id: int) -> NodeLog:
    """Reads the newest snapshot and the log behind it, without taking records apart; raises UserError for damage."""
    checkpoints = folder.checkpoints
    newest = checkpoints[-1] if checkpoints else None
    epoch, end = (newest.epoch, newest.end_offset) if newest else (0, 0)
    state = quorum_state(folder)
    voters = frozenset(int(voter["voterId"]) for voter in state.get("currentVoters") or ())
    for batch, is_log in _batches(folder):
        if is_log:
            epoch, end = batch.epoch, batch.last_offset + 1
        for record in batch.records:
            if record.type == CONTROL_VOTERS:
                voters = voters_in(record.value)
    return NodeLog(
        node_id=node_id,
        epoch=epoch,
        end_offset=end,
        known_epoch=int(state.get("leaderEpoch", 0)),
        voters=voters,
    )


def quorum_state(folder: MetadataFolder) -> dict[str, Any]:
    """The quorum-state file; empty where there is none."""
    path = folder.log / QUORUM_STATE
    if not path.exists():
        return {}
    with reading(path):
        text = read_regular(path)
    try:
        found = json.loads(text)
        return dict(found)
    except (ValueError, TypeError, RecursionError):
        raise damaged(path, "it is no JSON object") from None


def voters_in(record: bytes) -> frozenset[int]:
    """The voters' ids in a VotersRecord."""
    schema = MessageSchema.parse(json.dumps(_VOTERS_RECORD))
    return frozenset(voter["voterId"] for voter in decode(schema.layout(0), record).value["voters"])


def _batches(folder: MetadataFolder) -> Iterator[tuple[MetadataBatch, bool]]:
    checkpoints = folder.checkpoints
    start = 0
    if checkpoints:
        yield from ((batch, False) for batch in read_checkpoint(checkpoints[-1].path, outline=True))
        start = checkpoints[-1].end_offset
    expected = start
    for batch in read_log(folder, start, outline=True):
        if batch.base_offset > expected:
            raise UserError(
                f"The metadata log {folder.log} begins at offset {batch.base_offset}, and no snapshot holds what lies "
                "before.",
                remedy="Take another node's log.",
            )
        expected = batch.last_offset + 1
        yield batch, True
