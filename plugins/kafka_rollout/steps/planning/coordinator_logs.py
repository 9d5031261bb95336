"""The coordinator logs of a run: scanned before its plan is made, read on right before the first node goes down."""

from __future__ import annotations

from dataclasses import replace

from kafka_rollout.domain.coordinator_logs.path_findings import CLEANED_AT_GATE, path_findings
from kafka_rollout.domain.coordinator_logs.scan import ScanResult
from kafka_rollout.domain.model.findings import Finding, Severity
from kafka_rollout.domain.model.plan import Direction, Plan, ReleaseStep
from kafka_rollout.domain.run.log_events import IncrementalScan
from kafka_rollout.steps.common.cluster_ports import ClusterPorts

SCAN_BEFORE_ROLL = "scan/before-roll.json"
_THEN = "Then start a new run: its plan is made with what is there."


def scan_before_roll(ports: ClusterPorts) -> ScanResult | None:
    """The run's scan of the logs before anything was stopped; None if it has none (nothing to roll, or not asked)."""
    data = ports.run.attachment(SCAN_BEFORE_ROLL)
    return None if data is None else ScanResult.from_dict(data)


def logs_findings(ports: ClusterPorts, scan: ScanResult | None, plan: Plan) -> tuple[Finding, ...]:
    """What a scan means for the plan. Only on the way down the gate of the groups asks what releases can load."""
    gated = ports.catalogue if plan.direction is Direction.DOWNGRADE else None
    return path_findings(
        scan, plan.source, [release_step.to_release for release_step in plan.release_steps], gated=gated
    )


def new_in_logs(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep) -> tuple[Finding, ...]:
    """Findings of what the logs hold by now that the plan does not have; only infos are none.

    A warning counts as well: whoever approved the plan has not seen it. Where the gate of the groups waited for the
    cleaner, all of the logs is read again: a scan that is carried on keeps what was cleaned since.
    """
    scanned = scan_before_roll(ports)
    if scanned is None:
        return ()
    began = ports.clock.monotonic()
    cleaned = any(finding.code == CLEANED_AT_GATE for finding in plan.findings)
    now = ports.logs.scan_on(scanned, anew=cleaned)
    approved = {finding.identity for finding in plan.findings if finding.code != CLEANED_AT_GATE}
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
