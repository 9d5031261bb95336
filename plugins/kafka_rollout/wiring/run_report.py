"""Writes the report of a run: its values are built by the steps, its page by the room `report`."""

from __future__ import annotations

from kafka_rollout.model.plan import Plan
from kafka_rollout.report.page.pages import render_run
from kafka_rollout.report.run_report import RunReport
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.procedures.kinds import build_report_of_run


def write_run_report(ports: ClusterPorts, plan: Plan, *, dry_run: bool = False) -> tuple[RunReport, str, str]:
    """Build, render and store the report of a run. Return it with the locations of report.html and report.json."""
    report = build_report_of_run(ports, plan, dry_run=dry_run)
    page, data = ports.run.write_report(render_run(report), report)
    return report, page, data
