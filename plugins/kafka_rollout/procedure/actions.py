"""Actions of the steps that plans, downgrade and feature runs share. Each returns plain data (an XCom)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from kafka_rollout.base.errors import FatalError, RefusedError, SkippedStepError, TransientError
from kafka_rollout.base.findings import Verdict, all_findings
from kafka_rollout.base.internal_topics import COORDINATOR_TOPICS
from kafka_rollout.base.wording import few
from kafka_rollout.control.approval import require_approval
from kafka_rollout.control.lock import acquire_lock
from kafka_rollout.coordinator_logs.findings import check_rollback
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.feature_updates import levels, update
from kafka_rollout.feature_updates.levels import check_for_narrower_nodes
from kafka_rollout.features.requests import FeatureUpdateStatus
from kafka_rollout.model.contents import ClusterInventory
from kafka_rollout.model.plan import Direction, Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.observation.cluster_ports import observe
from kafka_rollout.observation.node_steps import previous_release
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.findings.cluster_state import check_cluster
from kafka_rollout.planning.release_path import refuse_direction
from kafka_rollout.preparation import pinned_min_isr, plan_making, state_comparison
from kafka_rollout.preparation.frozen_plan import replace_coordinator_log_findings
from kafka_rollout.preparation.lost_metadata import report_losses as report_metadata_losses
from kafka_rollout.preparation.proved_roll import read_broker_logs
from kafka_rollout.procedure.step import StepCall
from kafka_rollout.report.builders import SCAN_VERDICT
from kafka_rollout.roll import loop, metadata_logs
from kafka_rollout.run.events import ApprovalOf, Observed, Rolled, newest
from kafka_rollout.run.projections.observations import observed_of
from kafka_rollout.run.projections.open_batches import is_rollback_decided
from kafka_rollout.run.projections.runs import run_of
from kafka_rollout.run.proofs import find_unfinished_starts, find_unreturned
from kafka_rollout.run.step_events import ComparedAfter, ScanEvaluated


def _log(call: StepCall, lines: Iterable[object]) -> None:
    for line in lines:
        call.log.info("%s", line)


def acquire_for_planning(call: StepCall) -> None:
    """Take the cluster's lock, unless this is a dry run: a second change is refused before it scans or asks.

    Each step that plans again after a clear records it, whichever task was cleared.
    """
    if call.begun is not None and call.begun.clears:
        call.ports.run.record(call.begun)
    if not call.request.dry_run:
        acquire_lock(call.ports, f"Plan, in {call.begun.dag_id}." if call.begun else "Plan, on the command line.")


def observe_for_upgrade(call: StepCall) -> dict[str, Any]:
    """Observe as `observe_cluster`, and refuse a target below the running release before a scan begins."""
    found = observe_cluster(call)
    observed = newest(call.ports.run.events(), Observed)
    if observed is not None and (releases := [one for one in observed.releases.values() if one is not None]):
        refuse_direction(min(releases), call.request.target_release)
    return found


def observe_cluster(call: StepCall) -> dict[str, Any]:
    """Take the lock, observe the whole cluster and record the result."""
    ports = call.ports
    if call.begun is not None and not call.begun.clears:
        ports.run.record(call.begun)
    acquire_for_planning(call)
    state = observe(ports)
    ports.run.record(observed_of(state))
    for node in ports.cluster.nodes:
        seen = state.nodes[node.node_id]
        call.log.info("%s (node %s) runs %s. %s", node.name, node.node_id, seen.release, seen.problem)
        call.log.info("  Java %s", seen.metrics.java_version if seen.metrics else "unknown")
    call.log.info("Finalized: %s", dict(state.finalized.reported))
    findings = all_findings(check_cluster(ports.cluster, ports.catalogue, state))
    _log(call, findings)
    return {
        "cluster_id": state.cluster_id,
        "releases": {str(node_id): str(node.release) for node_id, node in state.nodes.items()},
        "finalized": dict(state.finalized.reported),
        "java": {str(i): node.metrics.java_version if node.metrics else None for i, node in state.nodes.items()},
        "findings": [str(finding) for finding in findings],
        "unanswered": list(state.unanswered),
    }


def plan_change(call: StepCall, run_of: RunOf) -> dict[str, Any]:
    """Plan a change of the nodes and freeze the plan: every later step checks its hash."""
    acquire_for_planning(call)  # again: this step also runs after a scan that failed
    terms = call.request.terms(call.ports.cluster)
    return planned(call, plan_making.plan_change(call.ports, call.request, run_of, terms=terms))


def rehearse(call: StepCall) -> dict[str, Any]:
    """Try the planned change on a copy of the cluster; its findings become part of the plan."""

    on_progress = call.on_progress or (lambda line: _log(call, [line]))
    result = plan_making.rehearse_plan(call.run, call.request, on_progress)
    _log(call, result.findings)
    return {"outcome": result.outcome.value, "seconds": result.seconds, "findings": [str(f) for f in result.findings]}


def plan_features(call: StepCall) -> dict[str, Any]:
    """Check the wanted levels by every rule of KIP-584, ask the controller, freeze the plan."""
    acquire_for_planning(call)
    plan = update.plan_features(
        call.ports,
        call.request.feature_order(),
        unsafe=call.request.unsafe,
        waits=call.request.waits,
        pin=call.request.pin_min_isr,
        terms=call.request.terms(call.ports.cluster),
    )
    outcomes = update.planned_outcomes(plan)
    _log(call, outcomes)
    would_be = {outcome.feature: f"{outcome.result} {outcome.sentence}".strip() for outcome in outcomes}
    return {**planned(call, plan), "would_be": would_be}


def planned(call: StepCall, plan: Plan) -> dict[str, Any]:
    """Log the plan and return its summary."""
    _log(call, plan.findings)
    for release_step in plan.release_steps:
        call.log.info("%s → %s: %s", release_step.from_release, release_step.to_release, release_step.reason)
    return {
        "plan_hash": plan.hash,
        "source": str(plan.source),
        "target": str(plan.target),
        "release_steps": [release_step.key for release_step in plan.release_steps],
        "features": {change.feature: [change.current, change.target] for change in plan.feature_changes},
        "findings": [str(finding) for finding in plan.findings],
        "blockers": len(plan.blockers),
    }


def check_features(call: StepCall) -> dict[str, Any]:
    """Check that every broker and controller supports the levels to be finalized (KIP-584)."""
    later = not call.request.finalizes(rolls=call.plan.changes_release)
    verdict = levels.check_support(call.run, later=later)
    _log(call, verdict.findings)
    levels.refuse(verdict)
    return {"question": verdict.question, "findings": [str(finding) for finding in verdict.findings]}


def evaluate_scan(call: StepCall) -> dict[str, Any]:
    """Check that the previous release could still load the coordinator logs as they are now."""
    ports = call.ports
    previous = previous_release(Run(ports, call.plan))
    result: ScanResult | None = ports.run.attachment(SCAN_VERDICT, ScanResult)
    verdict = check_rollback(result, previous)
    records = 0 if result is None else result.records
    if result is not None and not result.logs:
        # A current broker lists all partitions. Without a coordinator topic there is nothing to load.
        exist = sorted({one.topic for one in ports.admin.partitions() if one.topic in COORDINATOR_TOPICS})
        if exist:
            raise TransientError(
                f"The scan has read no coordinator log, and {few(exist)} exists.",
                remedy="Repeat the scan of the coordinator logs.",
            )
        verdict = Verdict(question=verdict.question)
    _log(call, verdict.findings)
    sentence = " ".join(finding.sentence for finding in verdict.findings) or (
        f"{previous} can still load all {records} records of the coordinator logs."
    )
    ports.run.record(
        ScanEvaluated(
            release=previous,
            records=records,
            partitions=0 if result is None else len(result.logs),
            ok=verdict.ok,
            sentence=sentence,
            findings=tuple(str(finding) for finding in verdict.findings),
        )
    )
    if not verdict.ok:
        raise RefusedError(" ".join(str(finding) for finding in verdict.blockers))
    return {"sentence": sentence, "records": records}


def record_rolled(call: StepCall) -> None:
    """Record that every node was rolled, in a run that rolled nodes.

    The logs of the brokers are read on: until a later run finalizes, they can be rotated.
    """
    if call.plan.release_steps:
        read_broker_logs(call.ports)
        call.ports.run.record(Rolled(target=call.plan.target))


def pin_min_isr(call: StepCall) -> dict[str, str]:
    """Set the planned default of min.insync.replicas. A repeated call reads the value first."""
    is_upgrade = run_of(call.ports.run.events()) is not RunOf.FEATURES
    state_comparison.refuse_unaccepted_differences(call.run)
    needs_approval = is_upgrade or update.requires_approval(call.plan)
    changes = pinned_min_isr.pin_min_isr(call.run, needs_approval=needs_approval)
    for change in changes:
        call.log.info("The cluster-wide default of %s is %s.", change.key, change.after)
    return {change.key: str(change.after) for change in changes}


def finalize(call: StepCall) -> list[dict[str, Any]]:
    """Finalize the planned levels. A repeated call reads the levels first and sends nothing twice."""
    if call.plan.direction is Direction.UPGRADE:
        state_comparison.refuse_unaccepted_differences(call.run)
    results = levels.finalize(call.run)
    for result in results:
        call.log.info("%s: %s %s", result.feature, result.error, result.message)
    return [asdict(result) for result in results]


def prove_snapshot(call: StepCall) -> dict[str, Any]:
    """Load one snapshot with the target release's own classes."""
    summary = levels.prove_snapshot(call.run)
    if summary is None:
        call.log.info("No node has written a metadata snapshot, and the plan changes no level.")
        return {}
    call.log.info("%s", asdict(summary))
    return asdict(summary)


def update_features(call: StepCall) -> dict[str, str]:
    """Change the levels. A repeated call reads the levels first and sends nothing twice."""
    outcomes = update.apply_features(call.run)
    call.results["update"] = outcomes
    _log(call, outcomes)
    failed = " ".join(str(outcome).strip() for outcome in outcomes if not outcome.result.ok)
    if any(outcome.result is FeatureUpdateStatus.UNKNOWN for outcome in outcomes):
        raise TransientError(failed)  # the next try reads the level
    if failed:
        raise RefusedError(failed)
    return {outcome.feature: outcome.result.value for outcome in outcomes}


def check_narrower_nodes(call: StepCall) -> dict[str, Any]:
    """Check that no node with a narrower range joined while the levels were finalized (KIP-584)."""
    verdict = check_for_narrower_nodes(call.ports)
    call.results["look_again"] = verdict
    levels.refuse_narrower_nodes(verdict)
    return {"question": verdict.question, "ok": verdict.ok}


def scan_metadata_logs(call: StepCall) -> dict[str, Any]:
    """Replay every node's metadata log and snapshot by the older releases; adds the coordinator logs' findings."""
    plan = metadata_logs.scan_metadata_logs(call.run)
    plan = replace_coordinator_log_findings(Run(call.ports, plan))
    _log(call, plan.findings)
    return {"findings": [str(finding) for finding in plan.findings], "blockers": len(plan.blockers)}


def report_losses(call: StepCall) -> dict[str, Any]:
    """Report what the lower metadata.version loses (KIP-1155), by Kafka's own image classes on a copy of a log."""
    plan, report = report_metadata_losses(call.run)
    if report is None:
        call.log.info("metadata.version is not lowered, or the loss report failed: see the plan's findings.")
        return {"losses": None, "blockers": len(plan.blockers)}
    for loss in report.losses:
        call.log.warning("%s: %s", loss.kind, loss.sentence)
    call.log.info("%s losses, %s fields only at their default.", len(report.losses), len(report.default_only))
    return {
        "from_level": report.from_level,
        "to_level": report.to_level,
        "losses": [loss.sentence for loss in report.losses[:100]],
        "default_only": len(report.default_only),
        "blockers": len(plan.blockers),
    }


def record_state(call: StepCall) -> dict[str, int]:
    """Record configuration, contents and ACLs before anything is changed."""
    return _counts(call, state_comparison.record_state(call.ports))


def record_all_contents(call: StepCall) -> dict[str, int]:
    """Do the same when each partition has a leader, before anything is changed."""
    return _counts(call, state_comparison.record_state(call.ports, leaderless=False))


def _counts(call: StepCall, found: ClusterInventory) -> dict[str, int]:
    call.log.info("%s", found.counts)
    return dict(found.counts)


def compare_after_roll(call: StepCall) -> dict[str, int]:
    """Compare the cluster with its state before the run; the next step asks for differences that count."""
    return _compare(call, ComparedAfter.ROLL)


def compare_after_levels(call: StepCall) -> dict[str, int]:
    """Do the same after the levels were changed."""
    return _compare(call, ComparedAfter.LEVELS)


def compare_after_downgrade(call: StepCall) -> dict[str, int]:
    """Do the same after a downgrade."""
    return _compare(call, ComparedAfter.DOWNGRADE)


def compare_after_rollback(call: StepCall) -> dict[str, int]:
    """Do the same after a rollback: the report and the next run of the cluster tell what differs.

    Raises SkippedStepError if it ended before the source of the plan, which the state before belongs to.
    """
    if why := find_unreturned(call.ports.run.events(), call.plan):
        raise SkippedStepError(f"The cluster is not compared with its state before the run: {why}.")
    return _compare(call, ComparedAfter.ROLLBACK)


def _compare(call: StepCall, after: ComparedAfter) -> dict[str, int]:
    """Compare, as a part of every run that starts nodes. Raises FatalError, when it has compared, if commands after a
    start of the run have not ended without an error."""
    found = state_comparison.compare_with_state(call.run, after)
    for difference in found:
        if difference.fails:
            call.log.warning("Not in the plan: %s", difference.sentence)
        else:
            by = "accepted" if difference.accepted else "expected" if difference.foretold else "by clients"
            call.log.info("%s (%s)", difference.sentence, by)
    if left := find_unfinished_starts(call.ports.run.events(), call.ports.cluster):
        raise FatalError(f"{left.sentence[0].upper()}{left.sentence[1:]}.", remedy=left.remedy)
    return {"differences": len(found), "not_in_the_plan": sum(difference.fails for difference in found)}


def list_batches(call: StepCall) -> list[dict[str, Any]]:
    """List the batches of the roll. The parts of a batch find it by its place in the plan."""
    return _listed(loop.roll_of(call.run))


def begin_rollback(call: StepCall) -> list[dict[str, Any]]:
    """List the batches of the rollback, after the decision of an approver."""
    if not is_rollback_decided(call.ports.run.events()):
        raise SkippedStepError("No approver decided to roll back.")
    require_approval(call.run, ApprovalOf.ROLL_BACK)
    return _listed(loop.begin_rollback(call.run))


def _listed(roll: loop.Roll) -> list[dict[str, Any]]:
    of = len(roll.batches)
    return [
        {"nodes": list(one.node_ids), "name": f"{one.index + 1} of {of}: {loop.short_name_of(roll.run.cluster, one)}"}
        for one in roll.batches
    ]
