"""The tasks of a run that changes features and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from kafka_rollout.airflow.common.base import RolloutOperator, frozen_plan
from kafka_rollout.airflow.operators.approvals import ApprovalOperator
from kafka_rollout.airflow.operators.planning import hold_to_plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

    from kafka_rollout.domain.features.requests import FeatureOrder
    from kafka_rollout.domain.model.plan import Plan
    from kafka_rollout.steps.common.cluster_ports import ClusterPorts

ALWAYS = "always"
WHERE_NEEDED = "where_needed"
SAFE = "SAFE"
UNSAFE = "UNSAFE"


def order_of(params: Mapping[str, Any]) -> FeatureOrder:
    """What the form asks for. What falls needs an approval anyway, so a release's levels may fall."""
    from kafka_rollout.domain.features.requests import FeatureAction, FeatureOrder, parse_requests
    from kafka_rollout.domain.model.releases import Release

    release = params["release_version"]
    action = FeatureAction(params["action"])
    named = parse_requests(params["upgrade"] or (), params["downgrade"] or (), params["delete"] or ())
    if named and action is not FeatureAction.UPDATE:
        raise AirflowFailException(f"Single features are named for an update, not for {action.value}. Empty the lists.")
    return FeatureOrder(action=action, named=named, release=Release.parse(release) if release else None)


class PlanFeaturesOperator(RolloutOperator):
    """Validate by every rule of KIP-584, ask the controller, freeze: every later task checks the hash."""

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        from kafka_rollout.steps.features.update import plan_features, planned_outcomes

        hold_to_plan(context, ports)
        params = context["params"]
        plan = plan_features(ports, order_of(params), unsafe=params["downgrade_type"] == UNSAFE, waits=True)
        for finding in plan.findings:
            self.log.info("%s", finding)
        outcomes = planned_outcomes(plan)
        for outcome in outcomes:
            self.log.info("%s", outcome)
        return {
            "plan_hash": plan.hash,
            "features": {change.feature: [change.current, change.target] for change in plan.feature_changes},
            "would_be": {outcome.feature: f"{outcome.result} {outcome.sentence}".strip() for outcome in outcomes},
            "blockers": len(plan.blockers),
        }


class ApproveFeaturesOperator(ApprovalOperator):
    """What each level means for those who use it. With blockers it refuses instead of asking.

    What falls, is deleted or cannot be taken back is asked for always; the rest unless the run leaves it out.
    """

    what = "finalize"

    def check(self, context: Context, ports: ClusterPorts, plan: Plan) -> None:
        from kafka_rollout.steps.common.approval import refuse_blockers
        from kafka_rollout.steps.features.levels import pending_changes
        from kafka_rollout.steps.features.update import needs_approval

        refuse_blockers(plan)
        if not pending_changes(ports, plan):
            raise AirflowSkipException("Every level is there already.")
        if context["params"]["approval"] == WHERE_NEEDED and not needs_approval(plan):
            raise AirflowSkipException("Nothing falls, and Kafka can take back what rises: no approval is needed.")

    def subject(self, plan: Plan) -> str:
        levels = ", ".join(f"{c.feature} {c.current} → {c.target}" for c in plan.feature_changes)
        return f"Change features of {plan.cluster}: {levels}?"

    def body(self, context: Context, ports: ClusterPorts, plan: Plan) -> str:
        from kafka_rollout.steps.common.approval import approval_body

        return approval_body(plan, what=self.what)


class UpdateFeaturesOperator(RolloutOperator):
    """Bring the levels about; a repeated call looks first and sends nothing twice."""

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        from kafka_rollout.domain.features.outcomes import Result
        from kafka_rollout.domain.model.errors import TransientError
        from kafka_rollout.steps.features.update import apply_features

        outcomes = apply_features(ports, frozen_plan(ports, context))
        for outcome in outcomes:
            self.log.info("%s", outcome)
        not_well = " ".join(str(outcome).strip() for outcome in outcomes if not outcome.result.well)
        if any(outcome.result is Result.UNKNOWN for outcome in outcomes):
            raise TransientError(not_well)  # the next try looks it up
        if not_well:
            raise AirflowFailException(not_well)
        return {outcome.feature: outcome.result.value for outcome in outcomes}


class LookAgainOperator(RolloutOperator):
    """KIP-584's race: did a node with a narrower range join while the levels were finalized?"""

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        from kafka_rollout.steps.features.race import look_for_narrower_nodes

        frozen_plan(ports, context)
        verdict = look_for_narrower_nodes(ports)
        if not verdict.ok:
            raise AirflowFailException(" ".join(str(finding) for finding in verdict.blockers))
        return {"question": verdict.question, "ok": verdict.ok}
