"""Weigh what scans and reports of a run say: findings of the same frozen plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kafka_rollout.domain.model.findings import Finding
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.planning.downgrade_findings import LOG_CODES
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.planning.coordinator_logs import logs_findings, scan_before_roll


def replace_findings(ports: ClusterPorts, codes: frozenset[str], findings: Iterable[Finding]) -> Plan:
    """The frozen plan with `findings` in place of those with `codes` that it had: a repeated scan counts once.

    Findings are no part of the plan's hash: it stays the same plan.
    """
    plan = ports.run.load_plan()
    weighed = replace(plan, findings=(*(f for f in plan.findings if f.code not in codes), *findings))
    ports.run.save_plan(weighed)
    return weighed


def replace_coordinator_log_findings(ports: ClusterPorts, plan: Plan) -> Plan:
    """What the run's scan of the coordinator logs means for the releases of the path; without its result that is
    unknown, and a blocker."""
    return replace_findings(ports, LOG_CODES, logs_findings(ports, scan_before_roll(ports), plan))
