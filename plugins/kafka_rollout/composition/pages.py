"""Reports as HTML pages, and files that a command writes for its user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.model.plan import Plan
from kafka_rollout.releases.facts import Catalogue
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.procedures.lookup import build_report_of_run


def write_run_report(
    ports: ClusterPorts, plan: Plan, *, dry_run: bool = False, settings: Settings | None = None
) -> tuple[str, str]:
    """Build, render and store the report of a run. Return the locations of report.html and report.json."""
    data = build_report_of_run(ports, plan, dry_run=dry_run)
    return ports.run.write_report(render_run_page(data, settings=settings), data)


def render_run_page(data: Mapping[str, Any], *, settings: Settings | None = None) -> str:
    """Return the HTML page of a run's report. `data`: the JSON form of the report."""
    from kafka_rollout.report.run_report import render

    return render(data, settings=settings)


def render_scan_page(
    scan: ScanResult, catalogue: Catalogue, *, earlier: Sequence[ScanResult] = (), settings: Settings | None = None
) -> str:
    """Return the HTML page of a scan. `earlier`: scans of the same cluster, for the trend and the changes."""
    from kafka_rollout.coordinator_logs.page.report import render_scan

    return render_scan(scan, catalogue, earlier=earlier, settings=settings)


def write_file(path: Path, data: bytes) -> None:
    """Write a file completely or not at all. Raises UserError if it cannot be written."""
    from kafka_rollout.base.system.files import write_whole

    try:
        write_whole(path, data)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.", remedy="Use another file.") from None
