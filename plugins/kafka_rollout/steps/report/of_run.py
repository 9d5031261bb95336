"""The report of a run in its machine form, whatever kind of run it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.run.events import RunOf
from kafka_rollout.domain.run.projections.runs import run_of
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.report.downgrade import build_downgrade_report
from kafka_rollout.steps.report.features import build_feature_report
from kafka_rollout.steps.report.run import build_report

_BUILDERS: Mapping[RunOf, Callable[..., dict[str, Any]]] = {
    RunOf.UPGRADE: build_report,
    RunOf.DOWNGRADE: build_downgrade_report,
    RunOf.FEATURES: build_feature_report,
}


def build_report_of_run(ports: ClusterPorts, plan: Plan, *, dry_run: bool = False) -> dict[str, Any]:
    """Build the report by the kind of the run: upgrade, downgrade or change of features."""
    return _BUILDERS[run_of(ports.run.events())](ports, plan, dry_run=dry_run)
