"""The end of a demo, as a table on the terminal: read from the report, the same file that machines read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from kafka_rollout.domain.model.outside_text import escape_invisible
from kafka_rollout.steps.progress import duration


def succeeded(report: Mapping[str, Any]) -> bool:
    """The upgrade finished, and the ledger, which must be there, lost nothing."""
    ledger = report.get("ledger") or {}
    return report.get("outcome") == "finished" and bool(ledger.get("ok"))


def show(console: Console, report: Mapping[str, Any]) -> None:
    console.rule(f"[bold]{report['cluster']}: {report['origin']} → {report['target']}: {report['outcome']}")
    console.print(f"{report['sentence']} It took {duration(report['duration_s'])}.")
    console.print(_nodes(report))
    console.print(_features(report))
    for line in _ledger_lines(report.get("ledger")):
        console.print(line)
    gates = report["gates"]
    held = sum(gate["state"] in {"held", "holds"} for gate in gates)
    console.print(f"Gates: {held} of {len(gates)} held; the report has the evidence of each.")
    for approval in report["approvals"]:
        told = f"{approval['by']} {approval['decision']} '{approval['what']}': {approval['reason']}"
        console.print(escape_invisible(told), markup=False)


def _nodes(report: Mapping[str, Any]) -> Table:
    table = Table(title="Nodes", title_justify="left")
    for column in ("node", "runs", "starts", "turn took", "CurrentMetadataVersion"):
        table.add_column(column, no_wrap=column == "node")
    levels = {one["node_id"]: one for one in report["current_metadata_version"]}
    for node in report["nodes"]:
        node_steps = [
            duration(node_step["total_s"]) if node_step["total_s"] is not None else "-" for node_step in node["turns"]
        ]
        starts = ", ".join(f"{release}: {count}" for release, count in node["starts_per_release"].items())
        table.add_row(
            node["name"],
            str(node["release"]),
            starts or "none",
            ", ".join(node_steps) or "-",
            _level(levels.get(node["node_id"], {})),
        )
    return table


def _level(told: Mapping[str, Any]) -> str:
    agents = {told.get("prometheus"), told.get("jolokia")} - {None}
    if len(agents) == 1 and told.get("prometheus") == told.get("jolokia"):
        return f"{agents.pop()} by both agents"
    if agents:
        return f"Prometheus {told.get('prometheus')}, Jolokia {told.get('jolokia')}"
    return f"{told.get('api_versions')} (ApiVersions)"


def _features(report: Mapping[str, Any]) -> Table:
    table = Table(title="Finalized features", title_justify="left")
    for column in ("feature", "before", "after"):
        table.add_column(column)
    before, after = report["features"]["before"], report["features"]["after"]
    for feature in sorted({*before, *after}):
        table.add_row(feature, str(before.get(feature, 0)), str(after.get(feature, 0)))
    return table


def _ledger_lines(ledger: Mapping[str, Any] | None) -> list[str]:
    if not ledger:
        return ["Ledger: none."]
    consumed = ", ".join(f"{consumer} {count}" for consumer, count in ledger["consumed"].items())
    longest = max(ledger["unavailable_s"].values(), default=0.0)
    lines = [
        f"Ledger: {ledger['acknowledged']} records acknowledged; consumed: {consumed}; "
        f"longest unavailability {longest:.1f} s; {'nothing lost' if ledger.get('ok') else 'NOT IN ORDER'}."
    ]
    return lines + [str(one["sentence"]) for one in ledger.get("discrepancies", ())]
