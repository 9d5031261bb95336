"""Checking, finalizing and proving features."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from kafka_rollout.airflow.common.base import RolloutOperator, frozen_plan
from kafka_rollout.airflow.operators.traffic import keep_ledger_running

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_rollout.steps.common.cluster_ports import ClusterPorts


class CheckFeaturesOperator(RolloutOperator):
    """Does every registered broker and controller support the levels to be finalized (KIP-584)?"""

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        from kafka_rollout.steps.features.levels import check_support

        verdict = check_support(ports, frozen_plan(ports, context))
        for finding in verdict.findings:
            self.log.info("%s", finding)
        if not verdict.ok:
            raise AirflowFailException(" ".join(str(finding) for finding in verdict.blockers))
        return {"question": verdict.question, "findings": [str(finding) for finding in verdict.findings]}


class FinalizeOperator(RolloutOperator):
    """Finalize the planned levels; a repeated call looks first and sends nothing twice."""

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        from kafka_rollout.steps.features.levels import finalize

        plan = frozen_plan(ports, context)
        keep_ledger_running(context, ports)
        results = finalize(ports, plan)
        for result in results:
            self.log.info("%s: %s %s", result.feature, result.error, result.message)
        return [asdict(result) for result in results]


class ProveSnapshotOperator(RolloutOperator):
    """Load one snapshot with the target release's own classes: it carries the new metadata.version."""

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        from kafka_rollout.steps.features.snapshot import prove_snapshot

        summary = asdict(prove_snapshot(ports, frozen_plan(ports, context)))
        self.log.info("%s", summary)
        return summary
