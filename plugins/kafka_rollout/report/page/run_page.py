"""The report of a run as one HTML page: self-contained, printable, light and dark."""

from __future__ import annotations

from collections import Counter
from typing import Any

from markupsafe import Markup

from kafka_rollout.base.finding_groups import group_by_kind
from kafka_rollout.base.json_forms import from_json
from kafka_rollout.base.system.html import page_environment
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.report.event_form import feature_results
from kafka_rollout.report.page.traffic_plot import INSTALL, can_plot, traffic_plot
from kafka_rollout.report.run_report import Document, DowngradeReport, FeatureReport, Outcome, RunReport
from kafka_rollout.run.projections.nodes import NodeSpan, complete_spans
from kafka_rollout.run.traffic_series import TrafficSeries

TEMPLATE = "report.html.j2"

_OUTCOMES = {
    Outcome.FINISHED: ("good", "Finished"),
    Outcome.ROLLED_NOT_FINALIZED: ("fair", "Rolled, not finalized"),
    Outcome.ROLLED_BACK: ("fair", "Rolled back"),
    Outcome.STOPPED: ("bad", "Stopped"),
    Outcome.REFUSED: ("bad", "Refused"),
    Outcome.DRY_RUN: ("fair", "Dry run"),
}


def render(report: RunReport, *, settings: Settings | None = None) -> str:
    """Return the page of a report. All values are escaped."""
    environment = page_environment(settings or Settings.from_environment())
    tone, title = _OUTCOMES[report.outcome]
    return environment.get_template(TEMPLATE).render(
        report=report,
        downgrade=report if isinstance(report, DowngradeReport) else None,
        results=feature_results(report.results) if isinstance(report, FeatureReport) and report.results else {},
        tone=tone,
        outcome_title=title,
        direction="feature change" if isinstance(report, FeatureReport) else report.direction,
        plot=_plot(report),
        plot_missing="" if can_plot() else INSTALL,
        groups=group_by_kind(report.findings),
        scan=_scan(report.scan),
    )


def _plot(report: RunReport) -> Markup:
    samples = from_json(TrafficSeries, report.traffic or {}).series
    return Markup(traffic_plot(samples, spans_of(report), now=report.ended_at))  # noqa: S704 - its names are escaped


def spans_of(report: RunReport) -> tuple[NodeSpan, ...]:
    spans = [
        NodeSpan(
            name=f"{node.name} ({node.node_id})",
            began_at=step.began_at,
            started_at=step.started_at,
            ended_at=step.ended_at,
        )
        for node in report.nodes
        for step in node.node_steps
        if step.began_at is not None
    ]
    return complete_spans(spans, report.offline_steps if isinstance(report, DowngradeReport) else ())


def _scan(scan: Document | None) -> dict[str, Any] | None:
    """Sum up the coordinator-log scan: records by type, and verdicts by release."""
    if not scan:
        return None
    records: Counter[tuple[str, str, str]] = Counter()
    for found in scan.get("classes", ()):
        value = "tombstone" if found["value_version"] is None else str(found["value_version"])
        records[(found["topic"], str(found["key_version"]), value)] += found["count"]
    releases: dict[str, Counter[str]] = {}
    failures = []
    for verdict in scan.get("verdicts", ()):
        releases.setdefault(verdict["release"], Counter())[verdict["verdict"]] += 1
        if verdict["first_failure"]:
            failures.append(verdict)
    return {
        "records": [(*key, count) for key, count in sorted(records.items())],
        "releases": {release: dict(verdicts) for release, verdicts in releases.items()},
        "failures": failures[:20],
    }
