"""Features of an upgrade: check the support of their levels (KIP-584), finalize them, and prove them by a snapshot."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from kafka_rollout.base.errors import FatalError, RefusedError, TransientError
from kafka_rollout.base.findings import WARNING, Finding, FindingCode, Verdict
from kafka_rollout.features.requests import FeatureUpdateResult, feature_request_batches
from kafka_rollout.features.rules import check_feature_support
from kafka_rollout.groups.findings import leave_to_gate
from kafka_rollout.model.plan import FeatureChange, Plan, Undo
from kafka_rollout.model.state import CheckpointFile, CheckpointSummary, ClusterState
from kafka_rollout.run.events import ApprovalOf
from kafka_rollout.run.projections.observations import finalization
from kafka_rollout.run.step_events import FeatureSupport, SnapshotLoaded
from kafka_rollout.steps.common import lock
from kafka_rollout.steps.common.approval import require_approval
from kafka_rollout.steps.common.cluster_ports import ClusterPorts, observe
from kafka_rollout.steps.features.min_isr import refuse_changed_min_isr
from kafka_rollout.steps.features.race import check_for_narrower_nodes
from kafka_rollout.steps.features.sending import (
    ensure_levels,
    find_refusals,
    levels_now,
    levels_of_changes,
    named,
    refusals,
)
from kafka_rollout.steps.planning.check import check_plan, refuse_new_blockers

CONTROLLER_DISAGREES = FindingCode(
    "CONTROLLER-DISAGREES",
    WARNING,
    "Every node supports the levels, and the controller refuses them.",
    "Read the controller's response: it evaluates the registrations of the nodes.",
)


def check_support(ports: ClusterPorts, plan: Plan, *, waits: bool = False) -> Verdict:
    """Validate the levels by our own rules, then by the controller's validate-only request.

    A disagreement is a finding. An empty set of changes gives an ok verdict. `waits`: the gate of the groups comes
    later, so groups that lose their type do not block yet.
    """
    state = observe(ports)
    pending = _pending(state, plan)
    targets = levels_of_changes(pending)
    own = check_feature_support(ports.cluster, ports.catalogue, state, targets, unsafe=plan.unsafe)
    if waits:
        own = replace(own, findings=leave_to_gate(own.findings))
    findings = list(own.findings)
    if targets and own.ok:
        findings += with_disagreement(find_refusals(ports, state, feature_request_batches(pending), unsafe=plan.unsafe))
    verdict = Verdict(question=own.question, findings=tuple(findings))
    ports.run.record(
        FeatureSupport(levels=targets, ok=verdict.ok, findings=tuple(str(finding) for finding in verdict.findings))
    )
    return verdict


def with_disagreement(refused: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return the controller's refusals, and a finding if every node reports support."""
    named_ = [finding for finding in refused if finding.subject.startswith("feature ")]
    if not named_:
        return refused
    return (
        *refused,
        CONTROLLER_DISAGREES.found(
            f"features {', '.join(finding.subject.removeprefix('feature ') for finding in named_)}",
            "Every node reports that it supports the levels, but the controller refuses them.",
        ),
    )


def pending_changes(ports: ClusterPorts, plan: Plan) -> tuple[FeatureChange, ...]:
    """Return the changes to request from the controller that are not finalized yet, by the responses of all nodes."""
    return _pending(levels_now(ports), plan)


def finalize(ports: ClusterPorts, plan: Plan) -> tuple[FeatureUpdateResult, ...]:
    """Finalize the plan's levels: metadata.version first when raised, last when lowered.

    For each request: read the levels, validate-only, update. If a response is lost, the levels are read before anything
    is sent again. Then every node is checked again. Raises RefusedError with Kafka's response if the controller
    refuses, or if the approval is invalid. Raises FatalError if a node does not support the finalized levels.
    """
    plan = check_plan(ports, plan.hash)
    pending = pending_changes(ports, plan)
    if pending:
        require_approval(ports, plan, ApprovalOf.FINALIZE)
        lock.acquire_lock(ports, f"Finalize {named(levels_of_changes(pending))}.")
    acting = ports.lock.acting(ports.cluster.name, ports.run_id, "Finalizing") if pending else nullcontext()
    with acting:
        if pending:
            refuse_new_blockers(ports, plan)
            refuse(check_support(ports, plan))
            refuse_changed_min_isr(ports, plan)
        results: list[FeatureUpdateResult] = []
        for batch in feature_request_batches(plan.online_changes):
            answers = ensure_levels(ports, batch, unsafe=plan.unsafe)
            _raise_refusals(ports, batch, answers)
            results += answers
    if pending:
        refuse_narrower_nodes(check_for_narrower_nodes(ports))
    return tuple(results)


def refuse(support: Verdict) -> None:
    """Raise RefusedError with all blockers, if there are any."""
    if not support.ok:
        raise RefusedError(
            f"The levels are not finalized: {'; '.join(f.sentence for f in support.blockers)}",
            remedy=" ".join(dict.fromkeys(finding.remedy for finding in support.blockers)),
        )


def refuse_narrower_nodes(race: Verdict) -> None:
    """Raise FatalError if a node does not support the finalized levels."""
    if not race.ok:
        raise FatalError(
            " ".join(finding.sentence for finding in race.blockers),
            remedy=" ".join(dict.fromkeys(finding.remedy for finding in race.blockers)),
        )


def undo_by_controller(ports: ClusterPorts, plan: Plan) -> tuple[FeatureChange, ...]:
    """Return the plan's changes with the controller's own answer about the undo (validate-only downgrade).

    The controller can answer only for a finalized level; before that, the catalogue's answer stays.
    """
    finalized = levels_now(ports).finalized
    return tuple(
        _asked_undo(ports, change) if finalized.get(change.feature, 0) == change.target else change
        for change in plan.feature_changes
    )


def _raise_refusals(
    ports: ClusterPorts, batch: tuple[FeatureChange, ...], results: tuple[FeatureUpdateResult, ...]
) -> None:
    if all(result.accepted for result in results):
        return
    found = refusals(levels_now(ports), levels_of_changes(batch), results)
    raise RefusedError(
        " ".join(finding.sentence for finding in found),
        remedy=" ".join(dict.fromkeys(finding.remedy for finding in found)),
    )


def _asked_undo(ports: ClusterPorts, change: FeatureChange) -> FeatureChange:
    try:
        (answer,) = ports.admin.update_features({change.feature: change.current}, validate_only=True)
    except TransientError:
        return change
    source = f"the controller's validate-only: {answer.error} {answer.message}".strip()
    return replace(change, undo=Undo.POSSIBLE if answer.accepted else Undo.IMPOSSIBLE, undo_source=source)


def _pending(state: ClusterState, plan: Plan) -> tuple[FeatureChange, ...]:
    return tuple(c for c in plan.online_changes if state.finalized.get(c.feature, 0) != c.target)


PRIVATE_COPY = "metadata.checkpoint"


def prove_snapshot(ports: ClusterPorts, plan: Plan) -> CheckpointSummary | None:
    """Copy the newest checkpoint to the run's private folder (0600) and load it with the target release's classes.

    Records its hash and a redacted summary. None if no node has written a snapshot and the plan changes no level: a
    node replays its log then, which has a gate of its own. Raises RefusedError if the snapshot does not contain the
    planned levels, or if there is none.
    """
    newest = _newest(ports)
    if newest is None and not plan.feature_changes:
        return None
    if newest is None:
        raise RefusedError(
            f"The runtime {ports.cluster.runtime} finds no metadata snapshot on any node.",
            remedy="Add the directories of the nodes to the inventory, or copy a snapshot by hand.",
        )
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


def _newest(ports: ClusterPorts) -> CheckpointFile | None:
    seen = [checkpoint for node in ports.cluster.nodes for checkpoint in ports.runtime.checkpoints(node)]
    return max(seen, key=lambda checkpoint: (checkpoint.epoch, checkpoint.end_offset), default=None)


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
