"""Space for the backup that is made before a node's metadata log is changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafka_rollout.base.findings import BLOCKER, Finding, FindingCode
from kafka_rollout.base.wording import size
from kafka_rollout.metadata_log.scan import MetadataScan, Readiness
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.topology import ClusterSpec

BACKUP_SPACE = FindingCode(
    "BACKUP-SPACE-SHORT",
    BLOCKER,
    "A file system has no space for the backup of a metadata log that the run changes.",
    "Free space on this file system.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpace:
    """`log_bytes`: of the metadata log with its snapshots. `free_bytes`: of its file system."""

    node_id: int
    log_bytes: int
    free_bytes: int


def space_for_backup(log_bytes: int) -> int:
    """Return the bytes that a change of the log needs: for the backup, and for the files that replace the log."""
    return 2 * log_bytes


def nodes_with_backup(cluster: ClusterSpec, plan: Plan, scans: Iterable[tuple[int, MetadataScan]]) -> frozenset[int]:
    """Return the nodes whose metadata log the run changes. `scans`: (node id, scan) for the releases of the path."""
    trimmed = frozenset(node_id for node_id, scan in scans if scan.readiness is Readiness.TRIM)
    if plan.offline:
        return frozenset(node.node_id for node in cluster.nodes)
    return trimmed | (frozenset(node.node_id for node in cluster.controllers) if plan.live else frozenset())


def backup_space_findings(spaces: Iterable[LogSpace]) -> tuple[Finding, ...]:
    return tuple(
        BACKUP_SPACE.found(
            f"node {space.node_id}",
            f"The file system of node {space.node_id}'s metadata log has {size(space.free_bytes)} left. The run backs "
            f"up the log before it changes it, and needs {size(needed)}.",
        )
        for space in spaces
        if space.free_bytes < (needed := space_for_backup(space.log_bytes))
    )
