"""The run's first tasks: observe, plan, and what the plan passes by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import DownstreamTasksSkipped

from kafka_rollout.airflow.common.base import RolloutOperator, frozen_plan
from kafka_rollout.airflow.common.node_task_groups import APPROVE_CANARY, NodeTaskGroup

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_rollout.domain.model.plan import Plan
    from kafka_rollout.steps.common.cluster_ports import ClusterPorts

FINALIZE_LATER = "later"
FINALIZE_AFTER_APPROVAL = "after_approval"


def hold_to_plan(context: Context, ports: ClusterPorts) -> None:
    """Take the cluster's lock, unless this is a dry run: a second change is refused before it scans or asks, and what
    is planned does not change until it is done."""
    from kafka_rollout.steps.common.lock import acquire_lock

    if not context["params"]["dry_run"]:
        acquire_lock(ports, f"Plan, in {context['dag'].dag_id}.")


class ObserveOperator(RolloutOperator):
    """Take the cluster's lock, look at the whole cluster and record it; the task's log and XCom say what runs."""

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        from kafka_rollout.domain.planning.cluster_findings import cluster_findings
        from kafka_rollout.domain.run.events import Begun
        from kafka_rollout.steps.common.observe import observe
        from kafka_rollout.steps.planning.upgrade import record_observed

        ports.run.record(Begun(dag_id=context["dag"].dag_id))
        hold_to_plan(context, ports)
        state = observe(ports)
        record_observed(ports, state)
        for node in ports.cluster.nodes:
            seen = state.nodes[node.node_id]
            self.log.info("%s (node %s) runs %s. %s", node.name, node.node_id, seen.release, seen.problem)
            self.log.info("  Java %s", seen.metrics.java_version if seen.metrics else "unknown")
        self.log.info("Finalized: %s", dict(state.finalized))
        # Ghosts, quorum, partitions, groups, transactions, clients: everything that the plan will weigh.
        findings = cluster_findings(ports.cluster, ports.catalogue, state).findings
        for finding in findings:
            self.log.info("%s", finding)
        return {
            "cluster_id": state.cluster_id,
            "releases": {str(node_id): str(node.release) for node_id, node in state.nodes.items()},
            "finalized": dict(state.finalized),
            "java": {str(i): node.metrics.java_version if node.metrics else None for i, node in state.nodes.items()},
            "findings": [str(finding) for finding in findings],
            "unanswered": list(state.unanswered),
        }


class PlanUpgradeOperator(RolloutOperator):
    """Plan and freeze: every later task checks the hash that this one leaves."""

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        from kafka_rollout.domain.model.releases import Release
        from kafka_rollout.steps.planning.upgrade import plan_upgrade

        hold_to_plan(context, ports)  # anew: this task comes also after a first one that failed
        target = Release.parse(context["params"]["target_release"])
        interval_s = context["params"]["snapshot_interval_seconds"]
        plan = plan_upgrade(
            ports,
            target,
            finalize=True,
            snapshot_interval_ms=None if interval_s is None else 1000 * int(interval_s),
            with_logs=True,
        )
        return plan_for_xcom(self, plan)


def plan_for_xcom(task: RolloutOperator, plan: Plan) -> dict[str, Any]:
    """What a task that froze the plan leaves, and says in its log."""
    for finding in plan.findings:
        task.log.info("%s", finding)
    for release_step in plan.release_steps:
        task.log.info("%s → %s: %s", release_step.from_release, release_step.to_release, release_step.reason)
    return {
        "plan_hash": plan.hash,
        "origin": str(plan.source),
        "target": str(plan.target),
        "hops": [release_step.key for release_step in plan.release_steps],
        "features": {change.feature: [change.current, change.target] for change in plan.feature_changes},
        "findings": [str(finding) for finding in plan.findings],
        "blockers": len(plan.blockers),
    }


class DryRunOperator(RolloutOperator):
    """Ends a dry run here: everything between the plan and the report is skipped."""

    def __init__(self, *, skipped: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.skipped = list(skipped)

    def execute(self, context: Context) -> Any:
        if context["params"]["dry_run"]:
            self.log.info("A dry run ends with the plan: nothing is stopped or changed.")
            raise DownstreamTasksSkipped(tasks=self.skipped)

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        raise NotImplementedError


class BeginHopOperator(RolloutOperator):
    """Passes by the places of the graph that the plan does not use, so that no task starts only to say so."""

    def __init__(self, *, slots: Sequence[NodeTaskGroup], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.slots = list(slots)

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        plan = frozen_plan(ports, context)
        release_step = self.slots[0].release_step(plan)
        if release_step is None:
            self.log.info("The plan has no release step at this place.")
        else:
            self.log.info("%s → %s: %s", release_step.from_release, release_step.to_release, release_step.reason)
        unused = [task_id for slot in self.slots for task_id in self._unused(context, plan, slot)]
        if release_step is None:
            unused += [slot.passed_id for slot in self.slots]
        if unused:
            raise DownstreamTasksSkipped(tasks=unused)

    def _unused(self, context: Context, plan: Plan, slot: NodeTaskGroup) -> list[str]:
        node_step = slot.node_step(plan)
        if node_step is None:
            if (
                slot.node_id is not None
                and (release_step := slot.release_step(plan)) is not None
                and release_step.node_step(slot.node_id)
            ):
                self.log.info("Node %s is rolled last among the controllers, for it is the active one.", slot.node_id)
            return list(slot.task_ids)
        if slot.has_canary and not (slot.is_canary(plan) and context["params"]["canary_approval"]):
            return [f"{slot.group_id}.{APPROVE_CANARY}"]
        return []
