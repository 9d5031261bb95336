"""The report of a run as one HTML page: self-contained, printable, light and dark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from kafka_rollout.base.finding_groups import group_by_kind
from kafka_rollout.base.system.html import clock, page_environment
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.report.event_form import feature_results
from kafka_rollout.report.run_report import Document, DowngradeReport, FeatureReport, NodeReport, Outcome, RunReport

TEMPLATE = "report.html.j2"

_OUTCOMES = {
    Outcome.FINISHED: ("good", "Finished"),
    Outcome.ROLLED_NOT_FINALIZED: ("fair", "Rolled, not finalized"),
    Outcome.ROLLED_BACK: ("fair", "Rolled back"),
    Outcome.STOPPED: ("bad", "Stopped"),
    Outcome.REFUSED: ("bad", "Refused"),
    Outcome.DRY_RUN: ("fair", "Dry run"),
}
_ROW_PX = 34
_WIDTH_PX = 860
_PX_PER_LETTER = 7.5
_LABEL_PX = (110, 300)  # at least, at most


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
        timeline=_timeline(report.nodes),
        groups=group_by_kind(report.findings),
        scan=_scan(report.scan),
    )


def _timeline(of_nodes: Sequence[NodeReport]) -> dict[str, Any] | None:
    """Return the bars of each node's steps, from stop to start and to the end of the gate, in pixels."""
    bars = [  # stopped, started, gate passed
        (
            node,
            [
                (began, up := step.started_at or began, step.ended_at or up)
                for step in node.node_steps
                if (began := step.began_at) is not None
            ],
        )
        for node in of_nodes
    ]
    shown = sorted(((node, spans) for node, spans in bars if spans), key=lambda found: found[1][0][0])
    if not shown:
        return None
    spans = [of_node for _, of_node in shown]
    first = min(down for of_node in spans for down, *_ in of_node)
    last = max(end for of_node in spans for *_, end in of_node)
    names = [f"{node.name} ({node.node_id})" for node, _ in shown]
    label = min(max(max(map(len, names)) * _PX_PER_LETTER + 12, _LABEL_PX[0]), _LABEL_PX[1])
    scale = (_WIDTH_PX - label) / max(last - first, 1.0)

    def bar(kind: str, begin: float, end: float) -> dict[str, Any]:
        x, width = round(label + (begin - first) * scale, 1), round((end - begin) * scale, 1)
        return {"kind": kind, "x": x, "w": max(2.0, width)}

    rows = [
        {
            "name": name,
            "y": number * _ROW_PX + 8,
            "bars": [found for down, up, end in of_node for found in (bar("down", down, up), bar("gate", up, end))],
        }
        for number, (name, of_node) in enumerate(zip(names, spans, strict=True))
    ]
    parts = [part / 4 for part in range(5)]
    ticks = [
        {"x": round(label + (_WIDTH_PX - label) * part, 1), "text": clock(first + (last - first) * part)}
        for part in parts
    ]
    return {"width": _WIDTH_PX + 40, "height": len(rows) * _ROW_PX + 30, "rows": rows, "ticks": ticks}


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
