"""Levels of features: check their support (KIP-584), send one UpdateFeatures request, and prove them by a snapshot.

Only one request is in progress at a time; the callers hold the cluster's lock. The levels are read before and after, so
a lost response or a kill does no harm.

KIP-584's race: a broker with a narrower range registers while a level is being finalized. Kafka refuses one of both:
the controller refuses the level while such a broker is registered, or it refuses the registration afterwards; or the
broker exits when it replays the level. The result is a broker that is down or retries its registration.
`check_for_narrower_nodes` finds it and shows the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from kafka_rollout.base.errors import FatalError, RefusedError, TransientError
from kafka_rollout.base.findings import BLOCKER, WARNING, Check, CheckOf, Finding, FindingCode, Need, Verdict
from kafka_rollout.control import lock
from kafka_rollout.control.approval import require_approval
from kafka_rollout.features.registrations import keeps_registrations
from kafka_rollout.features.requests import (
    DROPPED_RANGES,
    UNSUPPORTED_VERSION,
    FeatureUpdateResult,
    dropped_ranges,
    feature_request_batches,
    refused_by_controller,
)
from kafka_rollout.features.rules import check_feature_support
from kafka_rollout.features.support import (
    FEATURE_UNSUPPORTED,
    find_lacking,
    format_levels,
    support_findings,
    unlisted_node_findings,
)
from kafka_rollout.groups.findings import leave_to_gate
from kafka_rollout.model.finalized_levels import FinalizedLevels
from kafka_rollout.model.plan import Direction, FeatureChange, Plan, Undo
from kafka_rollout.model.state import CheckpointFile, CheckpointSummary, ClusterState, NodeState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import (
    ClusterPorts,
    ReadPorts,
    levels_now,
    observe,
    observe_some,
    until,
    with_registered_levels,
)
from kafka_rollout.observation.node_logs import read_last_error
from kafka_rollout.observation.node_registrations import read_registered
from kafka_rollout.observation.run import ReadRun, Run
from kafka_rollout.preparation.earlier_runs import refuse_unaccepted_of_runs
from kafka_rollout.preparation.frozen_plan import check_run, refuse_new_blockers
from kafka_rollout.preparation.lost_metadata import refuse_new_losses
from kafka_rollout.preparation.pinned_min_isr import refuse_changed_min_isr
from kafka_rollout.preparation.proved_roll import refuse_unproved_nodes
from kafka_rollout.preparation.proved_traffic import refuse_unproved_traffic
from kafka_rollout.preparation.state_comparison import refuse_new_differences
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.run.events import ApprovalOf
from kafka_rollout.run.projections.observations import finalization
from kafka_rollout.run.step_events import FeatureRace, FeatureSupport, Finalized, Finalizing, SnapshotLoaded, Validated

# Brokers re-register after metadata.version changes. Until the controller has their new ranges it refuses other
# features.
_REGISTRATION_PATIENCE_S = 60.0
# Seconds in which the levels are read after a lost response, before the result counts as unknown.
_LOST_ANSWER_PATIENCE_S = 20.0
# Seconds to wait for a node that responds but does not report the level yet; a node without a connection may never
# report it.
_LAGGARD_PATIENCE_S = 10.0
_SENDS = 2

NOT_SENT = "NOT_SENT"  # used in place of Kafka's error name
_NOT_SENT_WHY = "Another feature of the same request was refused."


CONTROLLER_UNANSWERED = FindingCode(
    "CONTROLLER-UNANSWERED",
    BLOCKER,
    "The controller did not respond to the validate-only request.",
    "Repeat the command. A failed query blocks the plan.",
)
CONTROLLER_CANNOT_VALIDATE = FindingCode(
    "CONTROLLER-CANNOT-VALIDATE",
    WARNING,
    "The release of the controller has no validate-only request.",
    "UpdateFeatures has validate-only from version 1 (Kafka 3.3). Only this tool's own checks apply.",
)


def ensure_levels(
    ports: ClusterPorts, batch: Sequence[FeatureChange], *, unsafe: bool = False
) -> tuple[FeatureUpdateResult, ...]:
    """Read the levels, validate-only, update, read them again. A refused feature has Kafka's own error.

    After a lost response the request is sent again only if the nodes show for some time that it was not applied. Raises
    TransientError if the result, or the levels before the request, are unknown.
    """
    for attempt in range(_SENDS + 1):
        state = levels_now(ports)
        missing = state.finalized.lacking(levels_of_changes(batch))
        if not missing:
            ports.run.record(Finalized(levels=levels_of_changes(batch), epoch_after=highest_epoch(state)))
            return _answers(batch, {})
        if attempt == _SENDS:
            break
        if refused := _validate(ports, missing, unsafe=unsafe):
            not_sent = {f: FeatureUpdateResult(feature=f, error=NOT_SENT, message=_NOT_SENT_WHY) for f in missing}
            return _answers(batch, {**not_sent, **refused})
        ports.run.record(Finalizing(levels=missing, epoch_before=highest_epoch(state)))
        try:
            results = ports.admin.update_features(missing, validate_only=False, unsafe=unsafe)
        except TransientError:  # the result is unknown here; the nodes report it
            _wait_until_there(ports, missing)
            continue
        if refused := {result.feature: result for result in results if not result.accepted}:
            # Older controllers can apply a part of a request.
            taken = {feature: level for feature, level in missing.items() if feature not in refused}
            if taken and _wait_until_there(ports, taken):
                ports.run.record(Finalized(levels=taken, epoch_after=highest_epoch(levels_now(ports))))
            return _answers(batch, refused)
        if not _wait_until_there(ports, missing):
            break
    raise TransientError(
        f"It is unknown whether {format_levels(levels_of_changes(batch))} is finalized: the response was lost, or the "
        "nodes do not report the level.",
        remedy="Repeat the command. It reads the current level before it sends anything.",
    )


def find_refusals(
    ports: ClusterPorts, state: ClusterState, batches: Sequence[Sequence[FeatureChange]], *, unsafe: bool
) -> tuple[Finding, ...]:
    """Return the controller's refusals of the first request, by validate-only; later requests depend on its result.

    Where raising metadata.version does not make the brokers re-register, also the later features that a registration
    lacks. Each of them is sent alone, because one refused feature refuses the whole request.
    """
    first, *later = map(levels_of_changes, batches)
    found = _ask_controller(ports, state, first, unsafe=unsafe)
    if METADATA_VERSION in first and keeps_registrations(state.finalized.reported.get(METADATA_VERSION, 0)):
        for feature, level in (one for levels in later for one in levels.items() if one[1] > 0):
            answer = _ask_controller(ports, state, {feature: level}, unsafe=False)
            found += tuple(finding for finding in answer if finding.code == DROPPED_RANGES.code)
    levels = {name: level for one in (first, *later) for name, level in one.items()}
    return with_dropped_ranges(ports, state, found, levels)


def with_dropped_ranges(
    ports: ReadPorts, state: ClusterState, found: tuple[Finding, ...], levels: Mapping[str, int]
) -> tuple[Finding, ...]:
    """Return the refusals; those because of registrations as one finding that names every such broker."""
    dropped = [finding for finding in found if finding.code == DROPPED_RANGES.code]
    if not dropped:
        return found
    subjects = {finding.subject for finding in dropped}
    lacking = {feature: level for feature, level in levels.items() if f"feature {feature}" in subjects}
    seen = read_registered(
        ports, lacking, [node.node_id for node in ports.cluster.brokers], cluster_id=ports.admin.cluster_id()
    )
    rest = tuple(finding for finding in found if finding not in dropped)
    level = state.finalized.reported.get(METADATA_VERSION, 0)
    return (*rest, dropped_ranges(ports.cluster, seen, lacking, dropped, metadata_level=level))


def _ask_controller(
    ports: ClusterPorts, state: ClusterState, levels: Mapping[str, int], *, unsafe: bool
) -> tuple[Finding, ...]:
    """Return the findings of the controller's validate-only request; empty if it accepts."""
    try:
        results = ports.admin.update_features(levels, validate_only=True, unsafe=unsafe)
    except TransientError as error:
        return (
            CONTROLLER_UNANSWERED.found(
                "active controller", f"The controller did not respond to the validate-only request: {error.sentence}"
            ),
        )
    if all(result.error == UNSUPPORTED_VERSION for result in results):
        return (
            CONTROLLER_CANNOT_VALIDATE.found(
                "active controller", f"The controller cannot validate the request: {results[0].message}"
            ),
        )
    return refusals(state, levels, results)


def refusals(
    state: ClusterState, levels: Mapping[str, int], results: Sequence[FeatureUpdateResult]
) -> tuple[Finding, ...]:
    """Return the controller's refusals with remedies."""
    return tuple(
        refused_by_controller(state, result.feature, levels[result.feature], result.error, result.message)
        for result in results
        if not result.accepted
    )


def levels_of_changes(changes: Sequence[FeatureChange]) -> dict[str, int]:
    return {change.feature: change.target for change in changes}


def highest_epoch(state: ClusterState) -> int | None:
    epochs = [n.features.epoch for n in state.nodes.values() if n.features and n.features.epoch is not None]
    return max(epochs, default=None)


def _validate(ports: ClusterPorts, levels: Mapping[str, int], *, unsafe: bool) -> dict[str, FeatureUpdateResult]:
    """Return the refusals of the validate-only request.

    Refusals because of a missing registration are retried once metadata.version is set. A controller without
    validate-only refuses nothing here.
    """
    raises = any(level > 0 for level in levels.values())
    results = until(
        ports.clock,
        lambda: ports.admin.update_features(levels, validate_only=True, unsafe=unsafe),
        lambda results: not any(_may_pass(result) for result in _refused(results).values()),
        for_s=_REGISTRATION_PATIENCE_S if METADATA_VERSION not in levels and raises else 0.0,
    )
    ports.run.record(
        Validated(levels=dict(levels), answers={r.feature: f"{r.error} {r.message}".strip() for r in results})
    )
    return _refused(results)


def _refused(results: Sequence[FeatureUpdateResult]) -> dict[str, FeatureUpdateResult]:
    return {r.feature: r for r in results if not r.accepted and r.error != UNSUPPORTED_VERSION}


def _may_pass(result: FeatureUpdateResult) -> bool:
    return "not support" in result.message or "has not registered" in result.message


def _answers(
    batch: Sequence[FeatureChange], refused: Mapping[str, FeatureUpdateResult]
) -> tuple[FeatureUpdateResult, ...]:
    return tuple(refused.get(c.feature) or FeatureUpdateResult(feature=c.feature, error="NONE") for c in batch)


def _wait_until_there(ports: ReadPorts, levels: Mapping[str, int]) -> bool:
    """Return whether the levels are finalized, by the newest response.

    The controller responds before brokers have read the level. Brokers that lag get some time, because the caller will
    use the feature through any of them.
    """
    laggards_until = ports.clock.monotonic() + _LAGGARD_PATIENCE_S

    def is_there(state: ClusterState) -> bool:
        return _has(state, levels) and (ports.clock.monotonic() >= laggards_until or not _some_lag(state, levels))

    state = until(ports.clock, partial(levels_now, ports), is_there, for_s=_LOST_ANSWER_PATIENCE_S)
    return _has(state, levels)


def _some_lag(state: ClusterState, levels: Mapping[str, int]) -> bool:
    answers = (node.features for node in state.nodes.values() if node.features is not None)
    # Controllers before 3.5 report no levels.
    reporting = (FinalizedLevels(features.finalized) for features in answers if features.epoch is not None)
    return any(reported.is_known and bool(reported.lacking(levels)) for reported in reporting)


def _has(state: ClusterState, levels: Mapping[str, int]) -> bool:
    return state.finalized.is_known and not state.finalized.lacking(levels)


# A node that exits or re-registers has done so by then.
_RACE_PAUSES_S = (1.0, 2.0, 4.0, 8.0)


NODE_GONE_AFTER_FINALIZING = FindingCode(
    "NODE-GONE-AFTER-FINALIZING", BLOCKER, "A node does not respond after levels were finalized."
)
NARROWER_NODE_JOINED = FindingCode(
    "NARROWER-NODE-JOINED", BLOCKER, "A node with a narrower range registered while a level was finalized."
)
RACE_CHECK = Check(
    "nodes-after-finalizing",
    "Nodes, compared with the levels that were finalized",
    "features.md#responses-of-the-api-and-reactions",
    (NODE_GONE_AFTER_FINALIZING, NARROWER_NODE_JOINED),
    of=(CheckOf.FINALIZING,),
    needs=(Need.NODES,),
)


def check_for_narrower_nodes(ports: ClusterPorts) -> Verdict:
    """Check every registered node against the finalized levels; the result is recorded.

    A node that supports less, and a node whose support is unknown after several checks, are blockers: the levels are
    finalized, and an operator must act.
    """
    for pause_s in (*_RACE_PAUSES_S, None):
        verdict = _check_nodes(ports)
        if verdict.ok or pause_s is None:
            break
        ports.clock.sleep(pause_s)
    ports.run.record(FeatureRace(ok=verdict.ok, findings=tuple(str(finding) for finding in verdict.findings)))
    return verdict


def _check_nodes(ports: ReadPorts) -> Verdict:
    state = with_registered_levels(ports, observe_some(ports, ports.cluster.nodes, metrics=True))
    findings: list[Finding] = []
    levels = {feature: level for feature, level in sorted(state.finalized.known().items()) if level > 0}
    for feature, level in levels.items():
        for found in support_findings(ports.cluster, ports.catalogue, state, feature, level):
            if found.code == FEATURE_UNSUPPORTED.code:
                sentence = f"A node with a narrower range registered while {feature} was finalized at {level}."
                sentence = f"{sentence} {found.sentence}"
                findings.append(NARROWER_NODE_JOINED.found(found.subject, sentence, _remedy(feature)))
    for node in ports.cluster.nodes:
        seen = state.nodes[node.node_id]
        if seen.features is None:
            findings.append(_unresponsive(ports, node, seen, levels))
    findings += unlisted_node_findings(ports.cluster, state, levels)
    return Verdict(question="Does every node support the finalized levels?", findings=tuple(findings))


def _unresponsive(ports: ReadPorts, node: NodeSpec, seen: NodeState, levels: Mapping[str, int]) -> Finding:
    """Return a finding for a node that does not respond, with the facts of its installed release."""
    installed = seen.process.installed
    details = f"{seen.problem} {read_last_error(ports, node)}".strip()
    if installed is None or installed not in ports.catalogue:
        sentence = f"may support less than {format_levels(levels)}: {details}"
        remedy = (
            "If its log shows that it does not support a level, upgrade it to a release that does. Otherwise start it."
        )
    elif lacking := find_lacking(ports.catalogue.get(installed), levels):
        sentence = f"its installed release {installed} does not support {format_levels(lacking)}: {details}"
        remedy = _remedy(*lacking)
    else:
        sentence = f"its installed release {installed} supports every level: {details}"
        remedy = "Read in its log why it is down, and start it."
    return NODE_GONE_AFTER_FINALIZING.found(
        f"node {node.node_id}", f"Node {node.node_id} does not respond after finalizing, and {sentence}", remedy
    )


def _remedy(*features: str) -> str:
    ways = [f"--downgrade {feature}:LEVEL" for feature in features]
    ways += [f"--downgrade {feature}:0" for feature in features if feature != METADATA_VERSION]
    return (
        "Stop that node and upgrade it to a release that supports the level. Or lower the level (`features "
        f"set` with {' or '.join(ways)}) while it is not in use."
    )


CONTROLLER_DISAGREES = FindingCode(
    "CONTROLLER-DISAGREES",
    WARNING,
    "Every node supports the levels, and the controller refuses them.",
    "Read the controller's response: it evaluates the registrations of the nodes.",
)


def check_support(run: Run, *, waits: bool = False, later: bool = False) -> Verdict:
    """Validate the levels by our own rules, then by the controller's validate-only request.

    A disagreement is a finding. An empty set of changes gives an ok verdict. `waits`: the gate of the groups comes
    later, so groups that lose their type do not block yet. `later`: another run raises the levels, and restarts the
    nodes that must register again first.
    """
    state = observe(run.ports)
    pending = _pending(state, run.plan)
    targets = levels_of_changes(pending)
    own = check_feature_support(run.cluster, run.ports.catalogue, state, targets, unsafe=run.plan.unsafe)
    if waits:
        own = replace(own, findings=leave_to_gate(own.findings))
    findings = list(own.findings)
    if targets and own.ok:
        refused = find_refusals(run.ports, state, feature_request_batches(pending), unsafe=run.plan.unsafe)
        findings += with_disagreement(tuple(one for one in refused if not (later and one.code == DROPPED_RANGES.code)))
    verdict = Verdict(question=own.question, findings=tuple(findings))
    run.history.record(
        FeatureSupport(levels=targets, ok=verdict.ok, findings=tuple(str(finding) for finding in verdict.findings))
    )
    return verdict


def with_disagreement(refused: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return the controller's refusals, and a finding if every node reports support."""
    named = [finding for finding in refused if finding.subject.startswith("feature ")]
    if not named:
        return refused
    return (
        *refused,
        CONTROLLER_DISAGREES.found(
            f"features {', '.join(finding.subject.removeprefix('feature ') for finding in named)}",
            "Every node reports that it supports the levels, but the controller refuses them.",
        ),
    )


def pending_changes(run: ReadRun) -> tuple[FeatureChange, ...]:
    """Return the changes to request from the controller that are not finalized yet, by the responses of all nodes.

    Raises TransientError if the levels are unknown.
    """
    return _pending(levels_now(run.ports), run.plan)


def finalize(run: Run) -> tuple[FeatureUpdateResult, ...]:
    """Finalize the plan's levels: metadata.version first when raised, last when lowered.

    For each request: read the levels, validate-only, update. If a response is lost, the levels are read before anything
    is sent again. Then every node is checked again. Raises RefusedError with Kafka's response if the controller
    refuses, or if the approval is invalid. Raises FatalError if a node does not support the finalized levels.
    """
    run = check_run(run)
    pending = pending_changes(run)
    if pending:
        if run.plan.direction is Direction.UPGRADE:
            refuse_unproved_traffic(run)
        refuse_unproved_nodes(run)
        require_approval(run, ApprovalOf.FINALIZE)
        if run.plan.direction is Direction.UPGRADE:
            refuse_unaccepted_of_runs(run)
            refuse_new_differences(run)
        lock.acquire_lock(run.ports, f"Finalize {format_levels(levels_of_changes(pending))}.")
    acting = run.ports.lock.acting(run.cluster.name, run.ports.run_id, "Finalizing") if pending else nullcontext()
    with acting:
        if pending:
            refuse_new_blockers(run)
            refuse_new_losses(run)
            refuse(check_support(run))
            refuse_changed_min_isr(run)
        results: list[FeatureUpdateResult] = []
        for batch in feature_request_batches(run.plan.online_changes):
            answers = ensure_levels(run.ports, batch, unsafe=run.plan.unsafe)
            _raise_refusals(run.ports, batch, answers)
            results += answers
    if pending:
        refuse_narrower_nodes(check_for_narrower_nodes(run.ports))
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


def undo_by_controller(run: Run) -> tuple[FeatureChange, ...]:
    """Return the plan's changes with the controller's own answer about the undo (validate-only downgrade).

    The controller can answer only for a finalized level; before that, the catalogue's answer stays.
    """
    finalized, wanted = levels_now(run.ports).finalized, levels_of_changes(run.plan.feature_changes)
    pending = finalized.lacking(wanted) if finalized.is_known else wanted
    return tuple(
        change if change.feature in pending else _asked_undo(run.ports, change) for change in run.plan.feature_changes
    )


def _raise_refusals(
    ports: ReadPorts, batch: tuple[FeatureChange, ...], results: tuple[FeatureUpdateResult, ...]
) -> None:
    if all(result.accepted for result in results):
        return
    levels = levels_of_changes(batch)
    state = levels_now(ports)
    found = with_dropped_ranges(ports, state, refusals(state, levels, results), levels)
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
    pending = state.finalized.lacking(levels_of_changes(plan.online_changes))
    return tuple(change for change in plan.online_changes if change.feature in pending)


PRIVATE_COPY = "metadata.checkpoint"


def prove_snapshot(run: Run) -> CheckpointSummary | None:
    """Copy the newest checkpoint to the run's private folder (0600) and load it with the target release's classes.

    Records its hash and a redacted summary. None if no node has written a snapshot and the plan changes no level: a
    node replays its log then, which has a gate of its own. Raises RefusedError if the snapshot does not contain the
    planned levels, or if there is none.
    """
    newest = _newest(run.ports)
    if newest is None and not run.plan.feature_changes:
        return None
    if newest is None:
        raise RefusedError(
            f"The runtime {run.cluster.runtime} finds no metadata snapshot on any node.",
            remedy="Add the directories of the nodes to the inventory, or copy a snapshot by hand.",
        )
    copy = run.history.private_path(PRIVATE_COPY)
    _copy_privately(run.ports, newest, copy)
    summary = run.ports.classes.load_checkpoint(run.plan.target, copy)
    asked = finalization(run.history.events())
    wrong = [
        f"{change.feature} {summary.features.get(change.feature, 0)} instead of {change.target}"
        for change in run.plan.feature_changes
        if summary.features.get(change.feature, 0) != change.target
    ]
    run.history.record(
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


def _newest(ports: ReadPorts) -> CheckpointFile | None:
    seen = [checkpoint for node in ports.cluster.nodes for checkpoint in ports.runtime.checkpoints(node)]
    return max(seen, key=lambda checkpoint: (checkpoint.epoch, checkpoint.end_offset), default=None)


def _copy_privately(ports: ReadPorts, checkpoint: CheckpointFile, to: Path) -> None:
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
