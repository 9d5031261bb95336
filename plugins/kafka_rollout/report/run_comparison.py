"""The comparison of two runs by their stored reports: path, durations, gates, traffic, findings and terms. Pure.

A report can be of an earlier version: what it lacks is unknown, and shown as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kafka_rollout.base.durations import iso, seconds_in_words
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.model.plan import RunTerms
from kafka_rollout.run.traffic import TrafficSample

FORMAT = 1
Value = str | float | int | None


class Unit(StrEnum):
    TEXT = "text"
    NUMBER = "number"
    SECONDS = "s"
    MILLISECONDS = "ms"

    def show(self, value: Value) -> str:
        """Return a value for people. None: it is unknown, or the run does not have it."""
        if value is None:
            return "–"
        if isinstance(value, str):
            return value
        if self is Unit.SECONDS:
            return seconds_in_words(value)
        return f"{value:,.0f} ms" if self is Unit.MILLISECONDS else f"{value:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    name: str
    first: Value
    second: Value
    unit: Unit = Unit.TEXT

    @property
    def differs(self) -> bool:
        return self.first != self.second

    @property
    def change(self) -> str:
        """The second value minus the first one, for numbers; else whether they differ."""
        if not isinstance(self.first, int | float) or not isinstance(self.second, int | float):
            return "differs" if self.differs else ""
        change = round(self.second - self.first, 3)
        if not change:
            return ""
        percent = f" ({change / self.first:+.0%})" if self.first else ""
        return f"{'+' if change > 0 else '−'}{self.unit.show(abs(change))}{percent}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSection:
    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundIn:
    """A finding that only one of the two plans has."""

    code: str
    severity: str
    subject: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    format: int = FORMAT
    cluster: str
    first: str
    """Ids of the runs."""
    second: str
    """Ids of the runs."""
    sections: tuple[ComparisonSection, ...]
    new: tuple[FoundIn, ...]
    """Findings of the second run alone."""
    gone: tuple[FoundIn, ...]
    """Findings of the first run alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """A run with its report.json."""

    run_id: str
    report: Mapping[str, Any]
    terms: RunTerms | None
    """Of its plan; None in plans of earlier versions."""


def compare_runs(cluster: str, first: ComparedRun, second: ComparedRun) -> RunComparison:
    """Compare two runs of a cluster. A part that neither run has is left out."""
    one, other = first.report, second.report
    found = [
        _section("Run", _facts(one), _facts(other)),
        _section("Terms", _terms(first.terms), _terms(second.terms)),
        _section("Steps: time since the step before", _steps(one), _steps(other)),
        _section("Node steps: stop to passed gate", _node_steps(one), _node_steps(other)),
        _section("Waiting for gates", _gates(one), _gates(other)),
        _section("Test traffic", _traffic(one), _traffic(other)),
    ]
    return RunComparison(
        cluster=cluster,
        first=first.run_id,
        second=second.run_id,
        sections=tuple(section for section in found if section.rows),
        new=_only(other, one),
        gone=_only(one, other),
    )


Values = Iterable[tuple[str, Value, Unit]]


def _section(title: str, first: Values, second: Values) -> ComparisonSection:
    """Join the values of both runs by their names, in the order of the first run, then of the second."""
    before = {name: (value, unit) for name, value, unit in first}
    after = {name: (value, unit) for name, value, unit in second}
    rows = (
        Row(
            name=name,
            first=before.get(name, (None, Unit.TEXT))[0],
            second=after.get(name, (None, Unit.TEXT))[0],
            unit=(before.get(name) or after[name])[1],
        )
        for name in dict.fromkeys((*before, *after))
    )
    return ComparisonSection(
        title=title, rows=tuple(row for row in rows if row.first is not None or row.second is not None)
    )


def _facts(report: Mapping[str, Any]) -> Iterator[tuple[str, Value, Unit]]:
    yield "Path", report.get("way"), Unit.TEXT
    yield "Outcome", report.get("outcome"), Unit.TEXT
    yield "Start", iso(report["began_at"]) if report.get("began_at") else None, Unit.TEXT
    yield "Duration", report.get("duration_s"), Unit.SECONDS
    yield "Nodes", len(report["nodes"]) if "nodes" in report else None, Unit.NUMBER
    yield "Plan", report["plan_hash"][:12] if "plan_hash" in report else None, Unit.TEXT


def _terms(terms: RunTerms | None) -> Iterator[tuple[str, Value, Unit]]:
    for name, value in ({} if terms is None else to_json(terms)).items():
        shown = ", ".join(value) if isinstance(value, list) else str(value)
        yield name, shown or "none", Unit.TEXT


def _steps(report: Mapping[str, Any]) -> Iterator[tuple[str, Value, Unit]]:
    since = report.get("began_at")
    done = [step for step in report.get("steps", ()) if step["state"] == "done" and step.get("at")]
    for step in sorted(done, key=lambda step: float(step["at"])):
        yield step["label"], None if since is None else round(max(0.0, step["at"] - since), 1), Unit.SECONDS
        since = step["at"]


def _node_steps(report: Mapping[str, Any]) -> Iterator[tuple[str, Value, Unit]]:
    for node in report.get("nodes", ()):
        for step in node["node_steps"]:
            where = f"{node['name']} ({node['node_id']}), {step['release_step'].replace('-to-', ' → ')}"
            yield where, step["total_s"], Unit.SECONDS
            yield f"{where}: stop", step["stop_s"], Unit.SECONDS
            yield f"{where}: start", step["start_s"], Unit.SECONDS


def _gates(report: Mapping[str, Any]) -> Iterator[tuple[str, Value, Unit]]:
    for gate in report.get("gates", ()):
        step = (gate["release_step"] or "").replace("-to-", " → ")
        yield f"{gate['gate']} {step}".strip(), gate["waited_s"], Unit.SECONDS


def _traffic(report: Mapping[str, Any]) -> Iterator[tuple[str, Value, Unit]]:
    traffic = report.get("traffic")
    if not traffic:
        return
    yield "Check", "passed" if traffic["ok"] else "failed", Unit.TEXT
    yield "Acknowledged records", traffic["acknowledged"], Unit.NUMBER
    yield "Discrepancies", sum(one["count"] for one in traffic["discrepancies"]), Unit.NUMBER
    for client, seconds in sorted(traffic["unavailable_s"].items()):
        yield f"Longest time without a response, {client}", seconds, Unit.SECONDS
    samples = [TrafficSample(*one) for one in traffic.get("series", ())]
    if samples:
        yield "Failed requests, lost connections", sum(one.failed for one in samples), Unit.NUMBER
        yield "Worst latency", _most(one.worst_latency_ms for one in samples), Unit.MILLISECONDS
        yield "Most under-replicated partitions", _most(one.under_replicated for one in samples), Unit.NUMBER
        yield "Highest consumer lag (records)", _most(one.lag for one in samples), Unit.NUMBER


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _only(report: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[FoundIn, ...]:
    known = {(one["code"], one["subject"]) for one in other.get("findings", ())}
    return tuple(
        FoundIn(code=one["code"], severity=one["severity"], subject=one["subject"], sentence=one["sentence"])
        for one in report.get("findings", ())
        if (one["code"], one["subject"]) not in known
    )
