"""A later epoch in the quorum-state of a stopped controller, without a vote."""

from __future__ import annotations

import json

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.metadata_log.changes.backup import Files, changing
from kafka_rollout.metadata_log.disk.folder import QUORUM_STATE, MetadataFolder
from kafka_rollout.metadata_log.disk.quorum import quorum_state

NO_DIRECTORY = "AAAAAAAAAAAAAAAAAAAAAA"  # Uuid.ZERO_UUID (ReplicaKey.NO_DIRECTORY_ID)


def raise_epoch(folder: MetadataFolder, epoch: int, *, files: Files | None = None) -> None:
    """Store an epoch without a vote in the quorum-state of a stopped controller, unless it knows this or a later epoch.

    The controller then takes part only in elections of later epochs. Raises RefusedError without a quorum-state.
    """
    files = files or Files()
    with files.stopped(folder), changing(folder.log):
        state, path = quorum_state(folder), folder.log / QUORUM_STATE
        if not state:
            raise RefusedError(
                f"{folder.log} has no {QUORUM_STATE}, so its node cannot get a later epoch.",
                remedy="Start this controller after the others have a leader.",
            )
        if int(state.get("leaderEpoch", 0)) >= epoch:
            return
        unvoted: dict[str, object] = {"leaderId": -1, "leaderEpoch": epoch, "votedId": -1}
        if "votedDirectoryId" in state:
            unvoted["votedDirectoryId"] = NO_DIRECTORY
        files.write(path, json.dumps({**state, **unvoted}), like=path)
        files.sync(folder.log)
