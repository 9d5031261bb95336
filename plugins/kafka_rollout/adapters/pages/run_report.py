"""The report as one HTML page: self-contained (nothing is fetched), printable, light and dark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kafka_rollout.adapters.pages.html import clock, page_environment
from kafka_rollout.settings import Settings

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
    """The page of a report's data; everything that comes from the data is escaped."""
    environment = page_environment(settings or Settings.from_environment())
    tone, title = _OUTCOMES.get(data["outcome"], ("fair", data["outcome"]))
    return environment.get_template(TEMPLATE).render(
        report=data, tone=tone, outcome_title=title, timeline=_timeline(data), scan=_scan(data)
    )


def _timeline(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Bars of every node's turns: stopping and starting, then the gate; positions in pixels of the picture."""
    node_steps = [
        node_step for node in data["nodes"] for node_step in node["turns"] if node_step["began_at"] is not None
    ]
    if not node_steps:
        return None
    first = min(node_step["began_at"] for node_step in node_steps)
    last = max((node_step["ended_at"] or node_step["started_at"] or node_step["began_at"]) for node_step in node_steps)
    longest = max(len(f"{node['name']} ({node['node_id']})") for node in data["nodes"] if node["turns"])
    label = min(max(longest * _PX_PER_LETTER + 12, _LABEL_PX[0]), _LABEL_PX[1])
    scale = (_WIDTH_PX - label) / max(last - first, 1.0)

    def x(at: float) -> float:
        return float(round(label + (at - first) * scale, 1))

    rows = []
    for number, node in enumerate(sorted((n for n in data["nodes"] if n["turns"]), key=_first_turn)):
        bars = []
        for node_step in node["turns"]:
            if node_step["began_at"] is None:
                continue
            up = node_step["started_at"] or node_step["began_at"]
            end = node_step["ended_at"] or up
            bars.append(
                {
                    "kind": "down",
                    "x": x(node_step["began_at"]),
                    "w": max(2.0, round((up - node_step["began_at"]) * scale, 1)),
                }
            )
            bars.append({"kind": "gate", "x": x(up), "w": max(2.0, round((end - up) * scale, 1))})
        rows.append({"name": f"{node['name']} ({node['node_id']})", "y": number * _ROW_PX + 8, "bars": bars})
    ticks = [
        {
            "x": round(label + (_WIDTH_PX - label) * part / 4, 1),
            "text": clock(first + (last - first) * part / 4),
        }
        for part in range(5)
    ]
    return {"width": _WIDTH_PX + 40, "height": len(rows) * _ROW_PX + 30, "rows": rows, "ticks": ticks}


def _first_turn(node: Mapping[str, Any]) -> float:
    return min(float(node_step["began_at"] or 0.0) for node_step in node["turns"])


def _scan(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the coordinator-log scan found, summed up: records by type, and what each release would do with them."""
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
