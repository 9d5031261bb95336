"""Metrics of a run, from its plan and its history. Pure: `airflow/common/metrics.py` sends them.

The dashboard in `include/grafana/` shows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from kafka_rollout.model.plan import Plan
from kafka_rollout.run.events import Event, TaskFailed
from kafka_rollout.run.projections.approvals import open_question
from kafka_rollout.run.projections.nodes import GateState, NodeProgress, gate_histories, node_progress
from kafka_rollout.run.step_events import GateChecked, GateFailed, GatePassed


class Metric(StrEnum):
    """The values are names of Airflow's metrics, below its prefix. They stay."""

    NODES_DONE = "kafka_rollout.nodes_done"
    NODES_LEFT = "kafka_rollout.nodes_left"
    GATES_WAITING = "kafka_rollout.gates_waiting"
    ANSWERS_WAITING = "kafka_rollout.answers_waiting"
    RUNS_ENDED = "kafka_rollout.runs_ended"
    SCAN_VERDICT = "kafka_rollout.scan_verdict"


class MetricFacts(NamedTuple):
    """What docs/monitoring.md says about a metric."""

    kind: str
    tags: tuple[str, ...]
    value: str


_TAGS = ("cluster", "kind")
METRICS: Mapping[Metric, MetricFacts] = {
    Metric.NODES_DONE: MetricFacts(
        "gauge", _TAGS, "node steps of the plan whose gate passed, without those that were rolled back"
    ),
    Metric.NODES_LEFT: MetricFacts("gauge", _TAGS, "the other node steps of the plan"),
    Metric.GATES_WAITING: MetricFacts("gauge", _TAGS, "1 while the newest gate has neither passed nor failed"),
    Metric.ANSWERS_WAITING: MetricFacts("gauge", _TAGS, "1 while the run waits for an approval or a decision"),
    Metric.RUNS_ENDED: MetricFacts(
        "counter", (*_TAGS, "outcome"), "runs that ended; `outcome` as in the report, or `no_report`"
    ),
    Metric.SCAN_VERDICT: MetricFacts(
        "gauge",
        ("cluster", "release"),
        "the worst verdict of the newest scan: 0 loads, 1 loads and ignores records, 2 not loaded, 3 unknown, "
        "4 loses the state of transactional ids, 5 fails",
    ),
}


def run_gauges(plan: Plan | None, events: Sequence[Event], *, is_parked: bool) -> Mapping[Metric, int]:
    """Return the gauges of a run as it is now. Without a plan, the number of nodes is unknown and left out.

    `is_parked`: the current task waits. A gate or a request of a task that ended otherwise waits for nothing.
    """
    waiting = {
        Metric.GATES_WAITING: int(is_parked and _gate_waits(events)),
        Metric.ANSWERS_WAITING: int(is_parked and open_question(events) is not None),
    }
    if plan is None:
        return waiting
    progress = node_progress(events)
    done = left = 0
    for release_step in plan.release_steps:
        back = release_step.reversed().key
        for node in release_step.order:
            is_passed = progress.get((release_step.key, node.node_id)) is NodeProgress.DONE
            is_done = is_passed and (release_step.restarts or (back, node.node_id) not in progress)
            done, left = done + is_done, left + (not is_done)
    return {Metric.NODES_DONE: done, Metric.NODES_LEFT: left, **waiting}


def _gate_waits(events: Sequence[Event]) -> bool:
    """Return whether the newest gate has neither passed nor failed. A passed gate is checked again before some acts."""
    ends = GateChecked | GatePassed | GateFailed | TaskFailed
    newest = next((event for event in reversed(events) if isinstance(event, ends)), None)
    if not isinstance(newest, GateChecked):
        return False
    gate = next(gate for gate in gate_histories(events) if gate.ref == newest.ref)
    return gate.state in {GateState.WAITS, GateState.PASSES}
