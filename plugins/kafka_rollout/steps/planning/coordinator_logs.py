"""The coordinator logs of a run: scanned before the plan, and incrementally before the first node stops.

Their findings are added to the frozen plan.
"""

from __future__ import annotations

from dataclasses import replace

from kafka_rollout.base.findings import Checked, Finding, Severity
from kafka_rollout.coordinator_logs.findings import CLEANED_AT_GATE, LOGS_CHECK, path_findings
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.coordinator_logs.tagged_fields import dropped_tag_findings
from kafka_rollout.model.plan import Direction, Plan, ReleaseStep
from kafka_rollout.planning.checks import NO_RESTART
from kafka_rollout.run.step_events import IncrementalScan
from kafka_rollout.steps.common.cluster_ports import ClusterPorts

SCAN_BEFORE_ROLL = "scan/before-roll.json"
_THEN = "Then start a new run, which plans from the current state."


def scan_before_roll(ports: ClusterPorts) -> ScanResult | None:
    """Return the run's scan from before the first stop; None if it has none."""
    scan: ScanResult | None = ports.run.attachment(SCAN_BEFORE_ROLL, ScanResult)
    return scan


def logs_findings(ports: ClusterPorts, scan: ScanResult | None, plan: Plan) -> tuple[Finding, ...]:
    """Return the findings of a scan for the plan.

    Only in a downgrade the gate of the groups checks the logs, and the releases can be older than those that wrote
    tagged fields.
    """
    path = [release_step.to_release for release_step in plan.release_steps]
    if plan.direction is not Direction.DOWNGRADE:
        return path_findings(scan, plan.source, path)
    return (
        *path_findings(scan, plan.source, path, gated=ports.catalogue),
        *dropped_tag_findings(scan, ports.catalogue, path),
    )


def find_new_in_logs(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep) -> tuple[Finding, ...]:
    """Return findings of the current logs that the plan does not contain, except infos.

    A warning counts too, because the approver has not read it. If the gate of the groups waited for the log cleaner,
    all logs are read again, because an incremental scan keeps records that were removed.
    """
    scanned = scan_before_roll(ports)
    if scanned is None:
        return ()
    began = ports.clock.monotonic()
    cleaned = any(finding.code == CLEANED_AT_GATE.code for finding in plan.findings)
    now = ports.logs.scan_new_records(scanned, complete=cleaned)
    approved = {finding.identity for finding in plan.findings if finding.code != CLEANED_AT_GATE.code}
    new = tuple(
        replace(finding, remedy=f"{finding.remedy} {_THEN}")
        for finding in logs_findings(ports, now, plan)
        if finding.severity is not Severity.INFO and finding.identity not in approved
    )
    ports.run.record(
        IncrementalScan(
            release_step=release_step.key,
            offsets=sum(log.end for log in now.logs) - sum(log.end for log in scanned.logs),
            since=scanned.scanned_at,
            seconds=round(ports.clock.monotonic() - began, 3),
            findings=tuple(str(finding) for finding in new),
        )
    )
    return new


def replace_findings(ports: ClusterPorts, checked: Checked) -> Plan:
    """Return the frozen plan with the findings of this check instead of its earlier ones, so a repeated scan counts
    once.

    Findings are not part of the plan's hash.
    """
    changed = ports.run.load_plan().with_checked([checked])
    ports.run.save_plan(changed)
    return changed


def replace_coordinator_log_findings(ports: ClusterPorts, plan: Plan) -> Plan:
    """Replace the findings about the coordinator logs; a missing scan result is a blocker."""
    return replace_findings(ports, check_logs(ports, plan))


def check_logs(ports: ClusterPorts, plan: Plan) -> Checked:
    """Check the run's scan from before the first stop for the plan."""
    return LOGS_CHECK.ran(
        logs_findings(ports, scan_before_roll(ports), plan), unless="" if plan.release_steps else NO_RESTART
    )
