"""The action that a metadata log needs before a release can start on it."""

from __future__ import annotations

from enum import StrEnum

from kafka_rollout.domain.metadata_log.scan import MetadataScan


class Readiness(StrEnum):
    """The action that a metadata log needs before a release can start on it."""

    READY = "ready"
    TRIM = "trim"  # remove the log before the newest snapshot, while the node is stopped
    SNAPSHOT = "snapshot"  # wait for a later snapshot first
    LEVELS = "levels"  # the current metadata cannot be replayed
    NEVER = "never"


def readiness(scan: MetadataScan) -> Readiness:
    """Return the action for a metadata log. A bootstrap.checkpoint with a level that is too high does not change it."""
    if any(failure.where == "quorum-state" for failure in scan.failures):
        return Readiness.NEVER
    if scan.way is None:
        return Readiness.READY
    if scan.way.end_problem:
        return Readiness.LEVELS
    usable = scan.way.newest_snapshot is not None and not scan.way.starts_from_snapshot
    return Readiness.TRIM if usable else Readiness.SNAPSHOT


def bootstrap_fails(scan: MetadataScan) -> bool:
    """Return whether the release cannot read bootstrap.checkpoint, which it reads at every start."""
    return any(failure.where == "bootstrap" for failure in scan.failures)


def why_not(scan: MetadataScan) -> str:
    """Return the offset and reason at which the release stops, as one sentence; empty if it does not stop."""
    first = scan.first_failure
    if first is None:
        return ""
    return f"{scan.release} would stop at offset {first.offset} of {first.file}: {first.reason}"
