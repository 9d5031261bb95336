"""The tasks that only a downgrade has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped

from kafka_rollout.airflow.common.base import RolloutOperator, frozen_plan
from kafka_rollout.airflow.operators.approvals import ApprovalOperator, ApprovePlanOperator
from kafka_rollout.airflow.operators.planning import hold_to_plan, plan_for_xcom

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from kafka_rollout.domain.model.plan import Plan
    from kafka_rollout.steps.common.cluster_ports import ClusterPorts

SAFE = "SAFE"
UNSAFE = "UNSAFE"


class PlanDowngradeOperator(RolloutOperator):
    """Plan and freeze: every later task checks the hash. What lies in the logs is weighed by the tasks after it."""

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        from kafka_rollout.domain.model.releases import Release
        from kafka_rollout.domain.planning.downgrade import WhereRefused
        from kafka_rollout.steps.planning.downgrade import plan_downgrade

        hold_to_plan(context, ports)
        params = context["params"]
        plan = plan_downgrade(
            ports,
            Release.parse(params["target_release"]),
            level=params["target_level"],
            unsafe=params["downgrade_type"] == UNSAFE,
            where_refused=WhereRefused(params["where_refused"]),
        )
        return plan_for_xcom(self, plan)


class ScanMetadataLogsOperator(RolloutOperator):
    """Could the older releases replay every node's metadata log and snapshot? Weighs the coordinator logs' scan too."""

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        from kafka_rollout.steps.downgrade.metadata_logs import scan_metadata_logs
        from kafka_rollout.steps.planning.plan_findings import replace_coordinator_log_findings

        plan = scan_metadata_logs(ports, frozen_plan(ports, context))
        plan = replace_coordinator_log_findings(ports, plan)
        for finding in plan.findings:
            self.log.info("%s", finding)
        return {"findings": [str(finding) for finding in plan.findings], "blockers": len(plan.blockers)}


class ReportLossesOperator(RolloutOperator):
    """What the lower metadata.version loses (KIP-1155), by Kafka's own image classes on a copy of a log."""

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        from kafka_rollout.steps.downgrade.metadata_logs import report_losses

        plan, report = report_losses(ports, frozen_plan(ports, context))
        if report is None:
            self.log.info("No level of metadata.version falls, or nobody knows: see the plan's findings.")
            return {"losses": None, "blockers": len(plan.blockers)}
        for loss in report.losses:
            self.log.warning("%s: %s", loss.kind, loss.sentence)
        self.log.info("%s real losses, %s only at their default.", len(report.losses), len(report.default_only))
        return {
            "from_level": report.from_level,
            "to_level": report.to_level,
            "losses": [loss.sentence for loss in report.losses[:100]],
            "default_only": len(report.default_only),
            "blockers": len(plan.blockers),
        }


class ApproveLevelsOperator(ApprovalOperator):
    """What each lower level loses. With blockers, a real loss under SAFE among them, it refuses instead of asking; the
    controller is asked (validate-only) only after that."""

    what = "finalize"

    def check(self, context: Context, ports: ClusterPorts, plan: Plan) -> None:
        from kafka_rollout.steps.common.approval import refuse_blockers
        from kafka_rollout.steps.features.levels import pending_changes
        from kafka_rollout.steps.planning.check import refuse_new_blockers

        refuse_blockers(plan)
        if not pending_changes(ports, plan):
            raise AirflowSkipException("The controller has no level to lower.")
        refuse_new_blockers(ports, plan, waits=True)

    def subject(self, plan: Plan) -> str:
        levels = ", ".join(f"{c.feature} {c.current} → {c.target}" for c in plan.online_changes)
        return f"Lower the features of {plan.cluster}: {levels}?"

    def body(self, context: Context, ports: ClusterPorts, plan: Plan) -> str:
        from kafka_rollout.steps.downgrade.approval import levels_body
        from kafka_rollout.steps.features.levels import check_support

        support = check_support(ports, plan, waits=True)
        if not support.ok:
            raise AirflowFailException(" ".join(str(finding) for finding in support.blockers))
        return levels_body(ports, plan, support)


class InventoryBeforeOperator(RolloutOperator):
    """Everything that is in the cluster, before anything is changed."""

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        from kafka_rollout.steps.downgrade.contents import take_inventory

        frozen_plan(ports, context)
        found = take_inventory(ports)
        self.log.info("%s", found.counts)
        return found.counts


class InventoryAfterOperator(RolloutOperator):
    """The same once more; fails where something is gone or less that the plan did not foretell."""

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        from kafka_rollout.steps.downgrade.contents import compare_inventory

        frozen_plan(ports, context)
        found = compare_inventory(ports)
        for difference in found:
            self.log.warning("%s%s", difference.sentence, " (foretold)" if difference.foretold else "")
        if amiss := [difference.sentence for difference in found if not difference.foretold]:
            raise AirflowFailException(" ".join(amiss[:20]))
        return {"differences": len(found)}


class PassLevelsOperator(RolloutOperator):
    """Passes by what the plan has no use for: offline no node gets a snapshot of its own, and no log is trimmed."""

    def __init__(self, *, skipped: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.skipped = list(skipped)

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        plan = frozen_plan(ports, context)
        if plan.offline or not (plan.feature_changes or plan.release_steps):
            self.log.info("The snapshot at the new level is written while all nodes are stopped.")
            raise DownstreamTasksSkipped(tasks=self.skipped)


class ApproveRollDownOperator(ApprovePlanOperator):
    """The binary, each trim included; of an offline downgrade the outage and its losses."""

    def subject(self, plan: Plan) -> str:
        if plan.offline:
            levels = ", ".join(f"{c.feature} {c.current} → {c.target}" for c in plan.offline_changes)
            return f"Stop all nodes of {plan.cluster} and take them from {plan.source} to {plan.target} ({levels})?"
        return f"Roll {plan.cluster} down from {plan.source} to {plan.target}?"

    def body(self, context: Context, ports: ClusterPorts, plan: Plan) -> str:
        from kafka_rollout.steps.downgrade.approval import roll_body
        from kafka_rollout.steps.offline.facts import shown_facts

        return roll_body(ports, plan, shown_facts(ports, plan) if plan.offline else ())
