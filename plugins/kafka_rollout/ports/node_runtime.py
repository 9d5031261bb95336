"""Port for the process, the binaries and the files of one node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from kafka_rollout.domain.model.checkpoints import CheckpointFile
from kafka_rollout.domain.model.plan import ConfigChange
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.model.state import ProcessState, StartRecord
from kafka_rollout.domain.model.topology import NodeSpec


class NodeRuntime(Protocol):
    """How a node's binary is stopped, replaced and started. Every call is idempotent and may be repeated."""

    def process(self, node: NodeSpec) -> ProcessState: ...
    def stop(self, node: NodeSpec, *, deadline_s: float, force: bool = False) -> None:
        """Controlled shutdown; returns when the process has ended.

        After the deadline `force`, which an approver requests, kills the process; without it FatalError is raised.
        """
        ...

    def install(self, node: NodeSpec, release: Release, changes: Sequence[ConfigChange] = ()) -> None:
        """Make `release` the one that the next start runs, with its logging and configuration. Node must be stopped."""
        ...

    def start(self, node: NodeSpec) -> None:
        """Start the installed release unless the process is running already; does not wait for readiness."""
        ...

    def starts(self, node: NodeSpec) -> tuple[StartRecord, ...]: ...
    def log_tail(self, node: NodeSpec, lines: int = 40) -> tuple[str, ...]: ...
    def java_version(self, node: NodeSpec) -> int: ...
    def config(self, node: NodeSpec) -> Mapping[str, str]: ...
    def checkpoints(self, node: NodeSpec) -> tuple[CheckpointFile, ...]:
        """Snapshots of __cluster_metadata-0 on the node, oldest first; empty if the runtime cannot read files."""
        ...

    def copy_checkpoint(self, checkpoint: CheckpointFile, to: Path) -> None: ...

    def log_directories(self, node: NodeSpec) -> Mapping[str, str]:
        """directory.id → path of each of the node's directories that the runtime can read."""
        ...

    def metadata_log_dir(self, node: NodeSpec) -> Path | None:
        """The node's metadata.log.dir (by default the first of its log.dirs); None if the runtime cannot read files on
        the node's host."""
        ...
