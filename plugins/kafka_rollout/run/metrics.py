"""Metrics of a run, from its plan and its history. Pure: `airflow/common/metrics.py` sends them.

The dashboard in `include/grafana/` shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from kafka_rollout.model.plan import Plan
from kafka_rollout.run.estimates import is_done
from kafka_rollout.run.view import GateState, RunView


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
    Metric.GATES_WAITING: MetricFacts("gauge", _TAGS, "1 while a gate has neither passed nor failed"),
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


def run_gauges(plan: Plan | None, view: RunView, *, is_parked: bool) -> Mapping[Metric, int]:
    """Return the gauges of a run as it is now. Without a plan, the number of nodes is unknown and left out.

    `is_parked`: the current task waits. A gate or a request of a task that ended otherwise waits for nothing.
    """
    gate_waits = view.failed is None and any(gate.state is not GateState.FAILED for gate in view.open_gates)
    waiting = {
        Metric.GATES_WAITING: int(is_parked and gate_waits),
        Metric.ANSWERS_WAITING: int(is_parked and view.question() is not None),
    }
    if plan is None:
        return waiting
    steps = [(step, node.node_id) for step in plan.release_steps for node in step.order]
    done = sum(
        is_done(view.nodes.get((step.key, node_id)))
        and (step.restarts or (step.reversed().key, node_id) not in view.nodes)
        for step, node_id in steps
    )
    return {Metric.NODES_DONE: done, Metric.NODES_LEFT: len(steps) - done, **waiting}
