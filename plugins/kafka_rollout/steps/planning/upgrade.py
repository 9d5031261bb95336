"""Plan: decide what to do from what is observed, freeze it, and look at its findings again before each act."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.model.state import ClusterState
from kafka_rollout.domain.planning.upgrade import make_plan
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.observe import observe
from kafka_rollout.steps.planning.check import planned_overrides
from kafka_rollout.steps.planning.coordinator_logs import logs_findings, scan_before_roll
from kafka_rollout.steps.planning.hosts import (
    config_problems,
    java_versions,
    node_configs,
    releases_ahead,
)

BEGUN = "begun"  # kind of the first event in the record of a DAG's run


def plan_upgrade(
    ports: ClusterPorts,
    target: Release,
    *,
    finalize: bool,
    snapshot_interval_ms: int | None = None,
    with_logs: bool = False,
) -> Plan:
    """Observe, plan and record the plan in the run's store. `finalize`: feature levels are part of the plan.

    `snapshot_interval_ms` lowers the snapshot interval in the configuration that the last release step brings in
    anyway. `with_logs` weighs the run's scan of the coordinator logs; without its result that is unknown, and a
    blocker.
    """
    state = observe(ports)
    record_observed(ports, state)
    configs = node_configs(ports)
    plan = make_plan(
        ports.cluster,
        ports.catalogue,
        state,
        target,
        configs=configs,
        config_problems=config_problems(ports, releases_ahead(ports, state, target), configs),
        java=java_versions(ports),
        finalize=finalize,
        snapshot_interval_ms=snapshot_interval_ms,
    )
    if with_logs:
        plan = replace(plan, findings=(*plan.findings, *logs_findings(ports, scan_before_roll(ports), plan)))
    freeze(ports, plan)
    return plan


def freeze(ports: ClusterPorts, plan: Plan, **more: Any) -> None:
    """Keep the plan in the run's record; `more` goes into its event."""
    ports.run.save_plan(plan)
    ports.run.record(
        "plan",
        {
            "hash": plan.hash,
            "origin": str(plan.source),
            "target": str(plan.target),
            "hops": [release_step.key for release_step in plan.release_steps],
            "release_overrides": planned_overrides(ports, plan),
            "blockers": [str(finding) for finding in plan.blockers],
            **more,
        },
    )


def kind_of_run(events: Iterable[Mapping[str, Any]]) -> str:
    """What a run is of where it is not an upgrade's (a downgrade's, of features alone), by the record of its plan."""
    made = next((event for event in events if event.get("kind") == "plan"), {})
    return str(made.get("run_of", ""))


def begun_by(events: Iterable[Mapping[str, Any]]) -> str:
    """The DAG whose run it is, by what its first task wrote down; empty for a run of the command line."""
    return next((str(event["dag_id"]) for event in events if event.get("kind") == BEGUN), "")


def record_observed(ports: ClusterPorts, state: ClusterState) -> None:
    """Record what was seen in the run's record (releases and finalized levels, not every partition)."""
    ports.run.record(
        "observed",
        {
            "cluster_id": state.cluster_id,
            "releases": {
                str(node_id): str(node.release) if node.release else None for node_id, node in state.nodes.items()
            },
            "finalized": dict(state.finalized),
            "quorum_leader": state.quorum.leader_id if state.quorum else None,
            "partitions": len(state.partitions),
            "groups": len(state.groups),
            "unanswered": list(state.unanswered),
        },
    )
