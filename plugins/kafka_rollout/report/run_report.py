"""The report of a run as one HTML page: self-contained, printable, light and dark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kafka_rollout.base.system.html import clock, page_environment
from kafka_rollout.base.system.settings import Settings

TEMPLATE = "report.html.j2"

_OUTCOMES = {
    "finished": ("good", "Finished"),
    "rolled_not_finalized": ("fair", "Rolled, not finalized"),
    "rolled_back": ("fair", "Rolled back"),
    "stopped": ("bad", "Stopped"),
    "refused": ("bad", "Refused"),
    "dry_run": ("fair", "Dry run"),
}
_ROW_PX = 34
_WIDTH_PX = 860
_PX_PER_LETTER = 7.5
_LABEL_PX = (110, 300)  # at least, at most


def render(data: Mapping[str, Any], *, settings: Settings | None = None) -> str:
    """Return the page of a report. All values are escaped."""
    environment = page_environment(settings or Settings.from_environment())
    tone, title = _OUTCOMES.get(data["outcome"], ("fair", data["outcome"]))
    return environment.get_template(TEMPLATE).render(
        report=data, tone=tone, outcome_title=title, timeline=_timeline(data), scan=_scan(data)
    )


def _timeline(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the bars of each node's steps, from stop to start and to the end of the gate, in pixels."""
    nodes = [(node, [step for step in node["node_steps"] if step["began_at"] is not None]) for node in data["nodes"]]
    nodes = sorted(((node, steps) for node, steps in nodes if steps), key=lambda found: found[1][0]["began_at"])
    if not nodes:
        return None
    spans = [  # stopped, started, gate passed
        [(step["began_at"], up := step["started_at"] or step["began_at"], step["ended_at"] or up) for step in steps]
        for _, steps in nodes
    ]
    first = min(down for of_node in spans for down, *_ in of_node)
    last = max(end for of_node in spans for *_, end in of_node)
    names = [f"{node['name']} ({node['node_id']})" for node, _ in nodes]
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


def _scan(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Sum up the coordinator-log scan: records by type, and verdicts by release."""
    scan = data.get("scan")
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
