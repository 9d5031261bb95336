"""Adds the findings of scans and reports to the frozen plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kafka_rollout.domain.model.findings import Finding
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.planning.downgrade_findings import LOG_CODES
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.planning.coordinator_logs import logs_findings, scan_before_roll


def replace_findings(ports: ClusterPorts, codes: frozenset[str], findings: Iterable[Finding]) -> Plan:
    """Return the frozen plan with `findings` instead of its findings with these `codes`, so a repeated scan counts
    once.

    Findings are not part of the plan's hash.
    """
    plan = ports.run.load_plan()
    weighed = replace(plan, findings=(*(f for f in plan.findings if f.code not in codes), *findings))
    ports.run.save_plan(weighed)
    return weighed


def replace_coordinator_log_findings(ports: ClusterPorts, plan: Plan) -> Plan:
    """Replace the findings about the coordinator logs; a missing scan result is a blocker."""
    return replace_findings(ports, LOG_CODES, logs_findings(ports, scan_before_roll(ports), plan))
