"""The metadata quorum in a stopped node's directory: end of its log, epochs that it knows, voters.

The voters of a static quorum are in quorum-state, those of a dynamic one in control records (KIP-853).
"""

from __future__ import annotations

import json
from typing import Any

from kafka_rollout.base.system.files import read_regular, reading
from kafka_rollout.kafka.formats.layouts import Layout, MessageSchema
from kafka_rollout.kafka.formats.leader_epochs import LEADER_EPOCHS, Epochs, parse_epochs
from kafka_rollout.kafka.formats.messages import decode
from kafka_rollout.metadata_log.disk.folder import (
    CONTROL_VOTERS,
    QUORUM_STATE,
    MetadataFolder,
    damaged,
    read_start,
)
from kafka_rollout.metadata_log.log_choice import NodeLog


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
    """Read the newest snapshot and the log after it, without decoding records; raises UserError for damage."""
    checkpoints = folder.checkpoints
    newest = checkpoints[-1] if checkpoints else None
    epoch, end = (newest.epoch, newest.end_offset) if newest else (0, 0)
    state = quorum_state(folder)
    voters = frozenset(int(voter["voterId"]) for voter in state.get("currentVoters") or ())
    newest_epoch = max([epoch, *(one for one, _ in leader_epochs(folder))])
    for batch, is_log in read_start(folder, newest, outline=True):
        if is_log:
            epoch, end = batch.epoch, batch.last_offset + 1
            newest_epoch = max(newest_epoch, epoch)
        for record in batch.records:
            if record.type == CONTROL_VOTERS:
                voters = frozenset(voter["voterId"] for voter in decode_voters(record.value))
    return NodeLog(
        node_id=node_id,
        epoch=epoch,
        end_offset=end,
        known_epoch=int(state.get("leaderEpoch", 0)),
        voters=voters,
        newest_epoch=newest_epoch,
        leader_id=int(state.get("leaderId", -1)),
        voted_id=int(state.get("votedId", -1)),
        snapshots=frozenset(path.name for path in folder.log.iterdir() if ".checkpoint" in path.name),
    )


def leader_epochs(folder: MetadataFolder) -> Epochs:
    """(epoch, start offset) of leader-epoch-checkpoint; empty without the file. Raises UserError for a damaged one."""
    path = folder.log / LEADER_EPOCHS
    if not path.exists():
        return ()
    with reading(path):
        return parse_epochs(read_regular(path).decode(errors="replace"))


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
        raise damaged(path, "it is not a JSON object") from None


def decode_voters(record: bytes) -> list[dict[str, Any]]:
    """The voters in a VotersRecord, with the names of its definition."""
    return list(decode(voters_layout(), record).value["voters"])


def voters_layout() -> Layout:
    return MessageSchema.parse(json.dumps(_VOTERS_RECORD)).layout(0)
