"""Outcome: how a run ended, in a word and a sentence, by what is observed before what is remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from kafka_rollout.domain.features.checks import feature_changes
from kafka_rollout.domain.gates.ref import GateKind
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.model.state import ClusterState
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.lock import LOCKED_OUT
from kafka_rollout.steps.roll.node import ROLLED
from kafka_rollout.steps.roll.rollback import CLOSED

_TURNS = frozenset({"started", "finalizing", CLOSED, ROLLED})  # what says which way a run was going last
_GOES_ON = frozenset({"approval", "started", "finalizing", "gate-held"})  # what a run without the lock does not do


class Outcome(StrEnum):
    FINISHED = "finished"
    ROLLED_NOT_FINALIZED = "rolled_not_finalized"
    ROLLED_BACK = "rolled_back"
    STOPPED = "stopped"
    REFUSED = "refused"
    DRY_RUN = "dry_run"


def outcome_of(
    ports: ClusterPorts,
    plan: Plan,
    state: ClusterState | None,
    events: Sequence[Mapping[str, Any]],
    gates: Sequence[Mapping[str, Any]],
    *,
    dry_run: bool,
) -> tuple[Outcome, str]:
    """The outcome and a sentence. `gates` are the report's."""
    if dry_run:
        return Outcome.DRY_RUN, f"A dry run: nothing was touched; the plan has {len(plan.blockers)} blocker(s)."
    started = [event for event in events if event.get("kind") == "started"]
    if state is None:
        return Outcome.STOPPED, "The cluster did not answer when the report was written: see the last gate."
    back = {release_step.reversed().key for release_step in plan.release_steps}
    newest: Mapping[str, Any] = next((event for event in reversed(events) if event.get("kind") in _TURNS), {})
    if started and (started[-1]["hop"] in back or newest.get("kind") == CLOSED):
        if _all_run(ports, state, plan.source):
            return Outcome.ROLLED_BACK, f"Every node runs {plan.source} again."
        why = next((f" {event['sentence']}" for event in reversed(events) if event.get("kind") == CLOSED), "")
        return Outcome.STOPPED, f"The roll back to {plan.source} is not done: {_running(state)}.{why}"
    if _all_run(ports, state, plan.target):
        return _after_the_roll(ports, plan, state, gates)
    if not started:
        return Outcome.REFUSED, f"Nothing was touched: {_refusal(plan, events)}"
    return Outcome.STOPPED, f"The roll to {plan.target} stopped: {_running(state)}. {_last_failure(events)}".strip()


def _after_the_roll(
    ports: ClusterPorts, plan: Plan, state: ClusterState, gates: Sequence[Mapping[str, Any]]
) -> tuple[Outcome, str]:
    left = feature_changes(ports.catalogue, state, plan.target)
    if left:
        levels = ", ".join(f"{change.feature} {change.current} → {change.target}" for change in left)
        return (
            Outcome.ROLLED_NOT_FINALIZED,
            f"Every node runs {plan.target}; not finalized yet: {levels}. A new run goes on there.",
        )
    if plan.feature_changes:
        passed = {gate["kind"] for gate in gates if gate["state"] in {"held", "holds"}}
        open_ = [k.value for k in (GateKind.FINALIZED, GateKind.SNAPSHOT, GateKind.METADATA_VERSION) if k not in passed]
        if open_:
            return (
                Outcome.STOPPED,
                f"Every node runs {plan.target} and its levels are finalized, but not proved: {', '.join(open_)}.",
            )
    return Outcome.FINISHED, f"Every node runs {plan.target}, and every feature of it is finalized."


def _all_run(ports: ClusterPorts, state: ClusterState, release: Release) -> bool:
    return all(
        (seen := state.nodes.get(node.node_id)) is not None and seen.release == release for node in ports.cluster.nodes
    )


def _running(state: ClusterState) -> str:
    told = sorted((node_id, str(node.release or "no response")) for node_id, node in state.nodes.items())
    return ", ".join(f"node {node_id}: {release}" for node_id, release in told)


def _refusal(plan: Plan, events: Sequence[Mapping[str, Any]]) -> str:
    if plan.blockers:
        return (
            f"the plan has {len(plan.blockers)} blocker(s), first {plan.blockers[0].code}: {plan.blockers[0].sentence}"
        )
    for event in reversed(events):
        if event.get("kind") == "void":
            return f"the approval is void: {'; '.join(event['blockers'])}"
        if event.get("kind") == "approval" and event["decision"] != "approved":
            return f"{event['by']} answered '{event['decision']}' ({event['reason']})."
    return _last_failure(events) or "nobody approved it."


def locked_out(events: Sequence[Mapping[str, Any]]) -> str:
    """Who has the cluster, where that was the last thing that kept this run from going on; empty where it was not."""
    kinds = _GOES_ON | {LOCKED_OUT}
    newest: Mapping[str, Any] = next((event for event in reversed(events) if event.get("kind") in kinds), {})
    return str(newest["sentence"]) if newest.get("kind") == LOCKED_OUT else ""


def _last_failure(events: Sequence[Mapping[str, Any]]) -> str:
    if told := locked_out(events):
        return told
    for event in reversed(events):
        if event.get("kind") == "gate-failed":
            return f"Gate {event['gate']}: {event['message']}."
        if event.get("kind") == "void":
            return f"The approval is void: {'; '.join(event['blockers'])}"
    return ""
