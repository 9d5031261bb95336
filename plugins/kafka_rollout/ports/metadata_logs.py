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
        """What the cluster's metadata would lose at a lower metadata.version. Works on a copy; the node may run."""
        ...

    def scan(
        self, directory: Path, release: Release, *, cluster_id: str, settings: Mapping[str, str] | None = None
    ) -> MetadataScan:
        """Would a node of the release come through this log when it starts? Works on a copy; the node may run.
        `settings`: the node's configuration, for the times in the remedies."""
        ...

    def trim(self, directory: Path, *, release: Release, cluster_id: str) -> TrimResult:
        """Cut a stopped node's log below its newest snapshot, with a backup; called again, it finishes. Raises
        RefusedError where the release could not read what would be left, UserError for a running node."""
        ...

    def replace_bootstrap(self, directory: Path, *, level: int, release: Release, cluster_id: str) -> Path | None:
        """Write a stopped node's bootstrap.checkpoint anew, with no level above `level` and the release's; the copy of
        the old one, None where nothing had to be lowered. Raises RefusedError where the release cannot read it."""
        ...

    def undo_trim(self, directory: Path, *, cluster_id: str) -> TrimResult:
        """Put back what the newest trim removed; raises UserError where the node has written to the log since."""
        ...

    def node_log(self, directory: Path, node_id: int, *, cluster_id: str) -> NodeLog:
        """How far a stopped node's log goes, and what it knows of the quorum. Only reads. Raises UnreadableLogError
        where there is none or it is damaged."""
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
        """A snapshot of the end of a stopped node's log at a metadata.version and with features lowered, proved by
        the target's classes. Raises RefusedError where the target could not start from it."""
        ...

    def install(self, directory: Path, snapshot: Path, *, level: int, target: Release, cluster_id: str) -> str:
        """Put a snapshot in the place of a stopped node's whole log, and lower its bootstrap.checkpoint; with a
        backup. Called again, it finishes. A sentence with what was done. Raises UnreadableLogError where the
        directory holds no log, not even a damaged one."""
        ...

    def refuse_used(self, directory: Path, *, cluster_id: str) -> None:
        """Raise RefusedError where the newest installation cannot be taken back: a broker has registered on it."""
        ...

    def undo_install(self, directory: Path, *, cluster_id: str) -> str | None:
        """Put every file back as it was before the newest installation; None where there is none to be taken back.
        Raises RefusedError as `refuse_used` does."""
        ...
