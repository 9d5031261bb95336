"""The procedure of a run, by its history, and the run's report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from kafka_rollout.model.plan import Plan, RunOf
from kafka_rollout.report.page.run_page import render
from kafka_rollout.report.run_report import RunReport
from kafka_rollout.run.projections.runs import run_of
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.procedures.downgrade import DOWNGRADE
from kafka_rollout.steps.procedures.features import FEATURES
from kafka_rollout.steps.procedures.upgrade import UPGRADE
from kafka_rollout.steps.report.kinds import build_downgrade_report, build_feature_report
from kafka_rollout.steps.report.run import build_report
from kafka_rollout.steps.step import Events, Procedure
from kafka_rollout.steps.step_history import step_lines

PROCEDURES: Mapping[RunOf, Procedure] = {
    RunOf.UPGRADE: UPGRADE,
    RunOf.DOWNGRADE: DOWNGRADE,
    RunOf.FEATURES: FEATURES,
}
_REPORTS: Mapping[str, Callable[..., RunReport]] = {
    UPGRADE.name: build_report,
    DOWNGRADE.name: build_downgrade_report,
    FEATURES.name: build_feature_report,
}


def procedure_of(events: Events) -> Procedure:
    """Return the procedure of the run's plan; UPGRADE before there is a plan."""
    return PROCEDURES[run_of(events)]


def build_report_of_run(
    ports: ClusterPorts, plan: Plan, *, dry_run: bool = False, procedure: Procedure | None = None
) -> RunReport:
    """Build the report of a run: upgrade, downgrade or change of features. `steps` lists the procedure's steps."""
    events = ports.run.events()
    procedure = procedure or procedure_of(events)
    report = _REPORTS[procedure.name](ports, plan, dry_run=dry_run, proofs=procedure.proofs)
    return replace(report, steps=step_lines(procedure, events))


def write_run_report(ports: ClusterPorts, plan: Plan, *, dry_run: bool = False) -> tuple[str, str]:
    """Build, render and store the report of a run. Return the locations of report.html and report.json."""
    report = build_report_of_run(ports, plan, dry_run=dry_run)
    return ports.run.write_report(render(report), report)
