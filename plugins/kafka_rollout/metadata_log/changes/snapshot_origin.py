"""Of which log a snapshot file was written, in a file beside it: Kafka's own has neither the cluster nor the log's end.

A snapshot that is installed by hand gets an epoch above every epoch of the nodes, so Kafka itself refuses neither the
snapshot of another cluster nor that of an older copy of the log.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.base.json_forms import parse_json
from kafka_rollout.base.system.files import read_if_exists, write_whole
from kafka_rollout.metadata_log.disk.folder import MetadataFolder, checkpoint_of, node_log

_SUFFIX = ".origin.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOrigin:
    """The log that a snapshot contains."""

    cluster_id: str | None
    epoch: int
    """Of the last record of the log."""
    end_offset: int

    @classmethod
    def of(cls, folder: MetadataFolder) -> Self:
        log = node_log(folder, -1)
        return cls(cluster_id=folder.cluster_id, epoch=log.epoch, end_offset=log.end_offset)

    @classmethod
    def beside(cls, snapshot: Path) -> Self | None:
        """Read the file beside a snapshot; None without one. Raises UserError for a damaged one."""
        content = read_if_exists(_path(snapshot))
        if content is None:
            return None
        try:
            data = parse_json(content)
            cluster_id = data["cluster_id"]
            return cls(
                cluster_id=None if cluster_id is None else str(cluster_id),
                epoch=int(data["epoch"]),
                end_offset=int(data["end_offset"]),
            )
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{_path(snapshot)} is damaged.", remedy="Write the snapshot again (`kafka-rollout metadata snapshot`)."
            ) from None

    def write(self, snapshot: Path) -> None:
        write_whole(_path(snapshot), json.dumps(asdict(self)).encode())


def refuse_other_log(
    folder: MetadataFolder, snapshot: Path, *, cluster_id: str | None, discards_records: bool = False
) -> None:
    """Raise RefusedError unless a snapshot is of the cluster of a directory and contains all records of its log.

    `cluster_id`: the one that the operator named, if the file beside the snapshot is missing. `discards_records`: the
    log may have records that the snapshot lacks.
    """
    new = checkpoint_of(snapshot)
    if new is None or any(one.name == new.name for one in folder.checkpoints):
        return  # `install` refuses the name, and finishes its own installation
    origin = SnapshotOrigin.beside(snapshot)
    of = (origin.cluster_id if origin is not None else None) or cluster_id
    if of is None:
        raise RefusedError(
            f"The cluster of {snapshot.name} is unknown: there is no {_path(snapshot).name} beside it, which `metadata "
            "snapshot` writes.",
            remedy="Copy this file too, or name the cluster whose log the snapshot contains (--cluster-id).",
        )
    if folder.cluster_id != of:
        raise RefusedError(
            f"{snapshot.name} is of cluster {of}, and {folder.root} belongs to cluster "
            f"{folder.cluster_id or 'unknown, because meta.properties is missing'}.",
            remedy="Use the directory and the snapshot of one cluster. Nothing was changed.",
        )
    log = node_log(folder, -1)
    is_ahead = log.end_offset > new.end_offset
    if origin is not None:
        is_ahead = (log.epoch, log.end_offset) > (origin.epoch, origin.end_offset)
    if is_ahead and not discards_records:
        raise RefusedError(
            f"The log in {folder.root} ends at offset {log.end_offset} in epoch {log.epoch}, after the log of which "
            f"{snapshot.name} was written: records would be lost.",
            remedy="Write the snapshot again, with this directory too (`kafka-rollout metadata snapshot`). If it "
            "compared a majority of the voters and these records were never committed: --discard-later-records.",
        )


def _path(snapshot: Path) -> Path:
    return snapshot.with_name(snapshot.name + _SUFFIX)
