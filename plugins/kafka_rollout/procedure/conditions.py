"""Conditions: why a step is skipped, in a sentence; None if it is not."""

from __future__ import annotations

from collections.abc import Callable

from kafka_rollout.model.plan import Lowering, Plan
from kafka_rollout.planning.request import FinalizePolicy, Request
from kafka_rollout.procedure.step import Condition, Events
from kafka_rollout.run.events import Observed, newest
from kafka_rollout.run.projections.nodes import has_stopped_nodes


def is_dry_run(plan: Plan | None, request: Request, events: Events) -> str | None:
    return "A dry run ends with the plan: nothing is stopped or changed." if request.dry_run else None


def nothing_to_scan(plan: Plan | None, request: Request, events: Events) -> str | None:
    """Skip the first scan if it is not requested, a node was stopped already, or every node runs the target."""
    if not request.scan:
        return "The run was started without a scan of the coordinator logs."
    if has_stopped_nodes(events):
        return "The run has stopped a node already: the logs were scanned before."
    observed = newest(events, Observed)
    if request.target is not None and observed is not None and set(observed.releases.values()) == {request.target}:
        return f"Every node already runs {request.target}, so no node is replaced."
    return None


def nothing_to_rehearse(plan: Plan | None, request: Request, events: Events) -> str | None:
    """Skip the rehearsal if it is not requested, the plan cannot be carried out, or nodes were stopped already."""
    if not request.rehearse:
        return "The run was started without a rehearsal."
    if plan is None or not (plan.release_steps or plan.feature_changes):
        return "The plan changes nothing."
    if plan.blockers:
        return "The plan has blockers."
    if has_stopped_nodes(events):
        return "The run has stopped a node already."
    return None


def no_scan_before_finalizing(plan: Plan | None, request: Request, events: Events) -> str | None:
    if not request.scan:
        return "The run was started without a scan of the coordinator logs."
    return no_features(plan, request, events)


def no_features(plan: Plan | None, request: Request, events: Events) -> str | None:
    """Skip if the plan changes no levels. The command line plans levels only if it must finalize them."""
    if not request.plans_features:
        return "The run was started without finalizing feature levels."
    return "Every feature level of the target is finalized." if plan is not None and not plan.feature_changes else None


def _unless(changes: Callable[[Plan], object], reason: str) -> Condition:
    """Return the condition that skips a step with this reason, unless there is a plan that `changes` something."""
    return lambda plan, request, events: None if plan is not None and changes(plan) else reason


replaces_no_node = _unless(lambda plan: plan.release_steps, "No node is replaced.")
changes_nothing = _unless(lambda plan: plan.release_steps or plan.feature_changes, "The plan changes nothing.")
changes_no_level = _unless(lambda plan: plan.feature_changes, "The plan changes no level.")
pins_no_default = _unless(lambda plan: plan.pinned_defaults, "The plan sets no cluster-wide default.")
keeps_controllers = _unless(
    lambda plan: plan.lowering is Lowering.LIVE,
    "The controllers are not stopped at the same time: no live downgrade is planned.",
)


def finalizes_later(plan: Plan | None, request: Request, events: Events) -> str | None:
    """Skip finalizing in a run that rolled nodes. A later run that finds nothing to roll finalizes."""
    if reason := no_features(plan, request, events):
        return reason
    if request.finalize is FinalizePolicy.LATER and plan is not None and plan.changes_release:
        return (
            "Every node is rolled. Feature levels are not finalized in this run. After the soak, run the same upgrade "
            "again: it finds nothing to roll and continues with the features."
        )
    return None


def without_traffic(plan: Plan | None, request: Request, events: Events) -> str | None:
    return None if request.traffic else "The run was started without test traffic."


def nothing_to_prove(plan: Plan | None, request: Request, events: Events) -> str | None:
    """Skip if the plan changes nothing, or if the run's own snapshot replaces the logs: no log is trimmed then."""
    if plan is None or plan.lowering is Lowering.OFFLINE:
        return "The snapshot at the new level is written while all nodes are stopped."
    if plan.lowering is Lowering.LIVE:
        return "The snapshot at the new level is written while the controllers are stopped."
    if not (plan.feature_changes or plan.release_steps):
        return "The plan changes nothing."
    return None


def rolls_nodes(plan: Plan | None, request: Request, events: Events) -> str | None:
    """Skip the offline section in an online downgrade."""
    if plan is not None and plan.lowering is Lowering.OFFLINE:
        return None
    how = (
        "A live downgrade lowers metadata.version"
        if plan is not None and plan.lowering is Lowering.LIVE
        else "Kafka lowers the levels itself"
    )
    return f"{how}: the nodes are not stopped all at once."


def does_not_wait(plan: Plan | None, request: Request, events: Events) -> str | None:
    """Skip gates of the command `features`: it refuses instead of waiting."""
    return None if request.waits else "The command does not wait: it refuses what a gate would wait for."
