"""The summary of a demo on the terminal, from the JSON report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from kafka_rollout.domain.model.outside_text import escape_invisible
from kafka_rollout.steps.progress import duration


def succeeded(report: Mapping[str, Any]) -> bool:
    """Return whether the run finished and the traffic check, which must exist, passed."""
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
    passed = sum(gate["state"] in {"held", "holds"} for gate in gates)
    console.print(f"Gates: {passed} of {len(gates)} passed; the report shows the evidence of each.")
    for approval in report["approvals"]:
        line = f"{approval['by']} {approval['decision']} '{approval['what']}': {approval['reason']}"
        console.print(escape_invisible(line), markup=False)


def _nodes(report: Mapping[str, Any]) -> Table:
    table = Table(title="Nodes", title_justify="left")
    for column in ("Node", "Release", "Starts", "Node step took", "CurrentMetadataVersion"):
        table.add_column(column, no_wrap=column == "Node")
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


def _level(levels: Mapping[str, Any]) -> str:
    agents = {levels.get("prometheus"), levels.get("jolokia")} - {None}
    if len(agents) == 1 and levels.get("prometheus") == levels.get("jolokia"):
        return f"{agents.pop()} by both agents"
    if agents:
        return f"Prometheus {levels.get('prometheus')}, Jolokia {levels.get('jolokia')}"
    return f"{levels.get('api_versions')} (ApiVersions)"


def _features(report: Mapping[str, Any]) -> Table:
    table = Table(title="Finalized features", title_justify="left")
    for column in ("Feature", "Before", "After"):
        table.add_column(column)
    before, after = report["features"]["before"], report["features"]["after"]
    for feature in sorted({*before, *after}):
        table.add_row(feature, str(before.get(feature, 0)), str(after.get(feature, 0)))
    return table


def _ledger_lines(ledger: Mapping[str, Any] | None) -> list[str]:
    if not ledger:
        return ["Test traffic: none."]
    consumed = ", ".join(f"{consumer} {count}" for consumer, count in ledger["consumed"].items())
    longest = max(ledger["unavailable_s"].values(), default=0.0)
    lines = [
        f"Test traffic: {ledger['acknowledged']} records acknowledged; consumed: {consumed}; "
        f"longest unavailability {longest:.1f} s; {'check passed' if ledger.get('ok') else 'CHECK FAILED'}."
    ]
    return lines + [str(one["sentence"]) for one in ledger.get("discrepancies", ())]
