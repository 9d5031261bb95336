"""The node steps of a run as spans of time, for its plot: from the history, or from the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kafka_rollout.report.run_report import DowngradeReport, RunReport
from kafka_rollout.run.events import Event
from kafka_rollout.run.step_events import LiveFailed, LiveLowered, OfflineEvent, OfflineStopping
from kafka_rollout.run.view import RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpan:
    """One node step: from the stop to the start, and to the end of its gate (epoch seconds). None: not yet."""

    name: str
    began_at: float
    started_at: float | None
    ended_at: float | None


def spans_of_run(view: RunView, names: Mapping[int, str]) -> tuple[NodeSpan, ...]:
    """Return all node steps that began, oldest first. `names`: of the nodes, by their ids."""
    spans = [
        NodeSpan(
            name=f"{names[node.node_id]} ({node.node_id})" if node.node_id in names else f"node {node.node_id}",
            began_at=node.began_at,
            started_at=node.started_at,
            ended_at=None if node.started_at is None else node.passed_at,
        )
        for node in view.nodes.values()
        if node.began_at is not None
    ]
    return _complete(spans, view.all(OfflineEvent))


def spans_of_report(report: RunReport) -> tuple[NodeSpan, ...]:
    """Return the same from the report of the run."""
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
    return _complete(spans, report.offline_steps if isinstance(report, DowngradeReport) else ())


def _complete(spans: Iterable[NodeSpan], switches: Iterable[Event]) -> tuple[NodeSpan, ...]:
    """Return the node steps, oldest first, with the stops of all controllers by live downgrades among `switches`.

    A node step that never passed its gate ends with the next one of its node: a rollback.
    """
    found: list[NodeSpan] = []
    for one in sorted(spans, key=lambda span: span.began_at, reverse=True):
        next_at = next((later.began_at for later in reversed(found) if later.name == one.name), None)
        started_at = next_at if one.started_at is None else one.started_at
        found.append(replace(one, started_at=started_at, ended_at=next_at if one.ended_at is None else one.ended_at))
    began_at: float | None = None
    for event in switches:
        match event:
            case OfflineStopping():
                began_at = event.at
            case LiveLowered() | LiveFailed() if began_at is not None:
                switch = NodeSpan(name="all controllers", began_at=began_at, started_at=event.at, ended_at=event.at)
                found.append(switch)
                began_at = None
    return tuple(sorted(found, key=lambda span: span.began_at))
