"""The assets of a cluster: other DAGs can be scheduled on them, for example clients that need a feature level."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset, AssetAlias, Context

from kafka_rollout.model.plan import Plan
from kafka_rollout.report.run_report import Outcome, proved_by


def scan_asset(cluster: str) -> Asset:
    """One event per scan of the coordinator logs, with the verdict of each release as its extra."""
    return Asset(f"kafka-rollout/{cluster}/coordinator-log-scan")


def release_asset(cluster: str) -> Asset:
    """One event per run that moved every node to another release."""
    return Asset(f"kafka-rollout/{cluster}/release-rolled")


def levels_asset(cluster: str) -> Asset:
    """One event per run whose levels are finalized and proved on every node."""
    return Asset(f"kafka-rollout/{cluster}/levels-finalized")


def run_alias(cluster: str) -> AssetAlias:
    """The outlet of the report task. Airflow writes an event only for an asset that the task adds to it."""
    return AssetAlias(f"kafka-rollout/{cluster}/run")


def add_proved(context: Context, cluster: str, plan: Plan, outcome: Outcome) -> None:
    """Write the events of what the run proved."""
    proved = proved_by(plan, outcome)
    run: dict[str, Any] = {"run_id": str(context["run_id"]), "plan": plan.hash}
    events = context["outlet_events"][run_alias(cluster)]
    if proved.release is not None:
        events.add(release_asset(cluster), extra={**run, "from": str(plan.source), "to": str(proved.release)})
    if proved.levels:
        events.add(levels_asset(cluster), extra={**run, "levels": dict(proved.levels)})
