"""What a node's metadata log needs before a release can start on it."""

from __future__ import annotations

from enum import StrEnum

from kafka_rollout.domain.metadata_log.scan import MetadataScan


class Readiness(StrEnum):
    """What a node's metadata log needs before a release can start on it."""

    READY = "ready"
    TRIM = "trim"  # below its newest snapshot, while the node is stopped
    SNAPSHOT = "snapshot"  # a later one first
    LEVELS = "levels"  # the metadata as it is now cannot be replayed
    NEVER = "never"


def readiness(scan: MetadataScan) -> Readiness:
    """By the facts behind the scan's remedies; a bootstrap.checkpoint that is too new is not part of it."""
    if any(failure.where == "quorum-state" for failure in scan.failures):
        return Readiness.NEVER
    if scan.way is None:
        return Readiness.READY
    if scan.way.end_problem:
        return Readiness.LEVELS
    usable = scan.way.newest_snapshot is not None and not scan.way.starts_from_snapshot
    return Readiness.TRIM if usable else Readiness.SNAPSHOT


def bootstrap_fails(scan: MetadataScan) -> bool:
    """Whether the release could not read bootstrap.checkpoint, which every start does."""
    return any(failure.where == "bootstrap" for failure in scan.failures)


def why_not(scan: MetadataScan) -> str:
    """Where and why the release would stop, in one sentence; empty where it would not."""
    first = scan.first_failure
    if first is None:
        return ""
    return f"{scan.release} would stop at offset {first.offset} of {first.file}: {first.reason}"
