"""Prove that a metadata snapshot contains the new metadata.version."""

from __future__ import annotations

from pathlib import Path

from kafka_rollout.domain.model.errors import RefusedError, TransientError
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.model.state import CheckpointFile, CheckpointSummary
from kafka_rollout.domain.run.projections.levels import finalization
from kafka_rollout.domain.run.step_events import SnapshotLoaded
from kafka_rollout.steps.common.cluster_ports import ClusterPorts

PRIVATE_COPY = "metadata.checkpoint"


def prove_snapshot(ports: ClusterPorts, plan: Plan) -> CheckpointSummary:
    """Copy the newest checkpoint to the run's private folder (0600) and load it with the target release's classes.

    Records its hash and a redacted summary. Raises RefusedError if it does not contain the planned levels, or if the
    runtime finds no checkpoint.
    """
    newest = _newest(ports)
    copy = ports.run.private_path(PRIVATE_COPY)
    _copy_privately(ports, newest, copy)
    summary = ports.classes.load_checkpoint(plan.target, copy)
    asked = finalization(ports.run.events())
    wrong = [
        f"{change.feature} {summary.features.get(change.feature, 0)} instead of {change.target}"
        for change in plan.feature_changes
        if summary.features.get(change.feature, 0) != change.target
    ]
    ports.run.record(
        SnapshotLoaded(
            summary=summary,
            node_id=newest.node_id,
            end_offset=newest.end_offset,
            epoch=newest.epoch,
            finalized_by_offset=asked.epoch_after if asked else None,
            proved=not wrong,
        )
    )
    if wrong:
        raise RefusedError(
            f"The newest snapshot of node {newest.node_id} (end offset {newest.end_offset}) does not contain "
            f"the levels: {', '.join(wrong)}.",
            remedy="Wait for the next snapshot (the gate shows the time), then repeat the step.",
        )
    return summary


def _newest(ports: ClusterPorts) -> CheckpointFile:
    seen = [checkpoint for node in ports.cluster.nodes for checkpoint in ports.runtime.checkpoints(node)]
    if not seen:
        raise RefusedError(
            f"The runtime {ports.cluster.runtime} finds no metadata snapshot on any node.",
            remedy="Add the directories of the nodes to the inventory, or copy a snapshot by hand.",
        )
    return max(seen, key=lambda checkpoint: (checkpoint.epoch, checkpoint.end_offset))


def _copy_privately(ports: ClusterPorts, checkpoint: CheckpointFile, to: Path) -> None:
    """A snapshot contains password verifiers, so the file is private from its first byte."""
    to.unlink(missing_ok=True)
    to.touch(mode=0o600)
    try:
        ports.runtime.copy_checkpoint(checkpoint, to)
    except FileNotFoundError as error:
        # Kafka deletes old snapshots when it has written a new one.
        raise TransientError(
            f"The snapshot {Path(checkpoint.path).name} of node {checkpoint.node_id} was deleted.",
            remedy="Repeat the step: there is a newer snapshot.",
        ) from error
    finally:
        to.chmod(0o600)
