"""Port for the metadata logs in nodes' directories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from kafka_rollout.domain.metadata_log.losses import LossReport
from kafka_rollout.domain.metadata_log.scan import MetadataScan
from kafka_rollout.domain.metadata_log.trim import TrimResult
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.offline.log_choice import NodeLog, WrittenSnapshot


class MetadataLogs(Protocol):
    """The metadata logs in nodes' directories (NodeRuntime.metadata_log_dir), read and changed with Kafka's classes.

    Every call raises UserError for the log of another cluster than `cluster_id`, and for a damaged one.
    """

    def losses(self, directory: Path, to_level: int, *, cluster_id: str) -> LossReport:
        """The losses of the cluster's metadata at a lower metadata.version. Reads a copy; the node can run."""
        ...

    def scan(
        self, directory: Path, release: Release, *, cluster_id: str, settings: Mapping[str, str] | None = None
    ) -> MetadataScan:
        """Whether a node of the release can start with this log. Reads a copy; the node can run. `settings`: the node's
        configuration, for the times in the remedies."""
        ...

    def trim(self, directory: Path, *, release: Release, cluster_id: str) -> TrimResult:
        """Remove a stopped node's log before its newest snapshot, with a backup; a repeated call finishes. Raises
        RefusedError if the release could not read the rest, UserError for a running node."""
        ...

    def replace_bootstrap(self, directory: Path, *, level: int, release: Release, cluster_id: str) -> Path | None:
        """Write a stopped node's bootstrap.checkpoint again, with no level above `level` and the release's; the copy of
        the old one, None if no level was lowered. Raises RefusedError if the release cannot read it."""
        ...

    def undo_trim(self, directory: Path, *, cluster_id: str) -> TrimResult:
        """Restore the log before the newest trim. Raises UserError if the node has written to the log since."""
        ...

    def node_log(self, directory: Path, node_id: int, *, cluster_id: str) -> NodeLog:
        """The end of a stopped node's log, and its quorum state. Only reads. Raises UnreadableLogError for a missing or
        damaged log."""
        ...

    def log_bytes(self, directory: Path, *, cluster_id: str) -> int:
        """Size of the log and its snapshots on disk."""
        ...

    def write_snapshot(
        self,
        directory: Path,
        out: Path,
        *,
        level: int,
        features: Mapping[str, int],
        epoch: int,
        target: Release,
        cluster_id: str,
    ) -> WrittenSnapshot:
        """Write a snapshot of the end of a stopped node's log at a metadata.version and with lowered features. The
        target's classes load it. Raises RefusedError if the target cannot start from it."""
        ...

    def install(self, directory: Path, snapshot: Path, *, level: int, target: Release, cluster_id: str) -> str:
        """Replace a stopped node's whole log by a snapshot and lower its bootstrap.checkpoint, with a backup; a
        repeated call finishes. Returns a sentence. Raises UnreadableLogError for a directory without a log."""
        ...

    def refuse_used(self, directory: Path, *, cluster_id: str) -> None:
        """Raise RefusedError if the newest installation cannot be undone: a broker has registered on it."""
        ...

    def undo_install(self, directory: Path, *, cluster_id: str) -> str | None:
        """Restore every file as before the newest installation; None without one. Raises RefusedError as `refuse_used`
        does."""
        ...
