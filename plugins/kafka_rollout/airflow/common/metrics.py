"""Sends metrics through Airflow's StatsD, DogStatsD or OpenTelemetry. A failure is a warning: it never fails a task.

Gauges come from tasks, the counter from the scheduler: a counter of a short process would always be 1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import wraps
from typing import ParamSpec

from airflow.sdk.configuration import conf

from kafka_rollout.coordinator_logs.scan import LoadVerdict
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import Planned
from kafka_rollout.run.metrics import Metric, run_gauges
from kafka_rollout.run.view import RunView

log = logging.getLogger(__name__)
_Given = ParamSpec("_Given")

NO_REPORT = "no_report"  # outcome of a run that ended before its report
VERDICTS: Mapping[LoadVerdict, int] = {
    LoadVerdict.LOADS: 0,
    LoadVerdict.LOADS_IGNORING: 1,
    LoadVerdict.NOT_LOADED: 2,
    LoadVerdict.UNKNOWN: 3,
    LoadVerdict.LOSES: 4,
    LoadVerdict.FAILS: 5,
}


def metrics_are_on() -> bool:
    return any(
        conf.getboolean("metrics", name, fallback=False) for name in ("statsd_on", "statsd_datadog_enabled", "otel_on")
    )


def _sends(function: Callable[_Given, None]) -> Callable[_Given, None]:
    """Make a function send metrics only if they are on, and never raise."""

    @wraps(function)
    def call(*args: _Given.args, **named: _Given.kwargs) -> None:
        try:
            if metrics_are_on():
                function(*args, **named)
        except Exception as error:
            log.warning("Metrics were not sent: %s", type(error).__name__)

    return call


@_sends
def send_run_gauges(ports: ClusterPorts, *, is_parked: bool) -> None:
    """Send the gauges of the run as it is now, with the tags `cluster` and `kind`. `is_parked`: the task waits."""
    from kafka_rollout.airflow.private_api import send_gauge

    view = RunView.of(ports.run.events())
    tags = {"cluster": ports.cluster.name, "kind": view.run_of.value}
    plan = ports.run.load_plan() if view.has(Planned) else None
    for metric, value in run_gauges(plan, view, is_parked=is_parked).items():
        send_gauge(metric.value, value, tags)


@_sends
def count_end(cluster: str, run_id: str) -> None:
    """Count a run that ended, with the tags `cluster`, `kind` and `outcome`. Called in the scheduler."""
    from kafka_rollout.airflow.private_api import count_in_scheduler
    from kafka_rollout.run.store.opening import open_run

    run = open_run(cluster, run_id)
    report = run.attachment("report.json") or {}
    kind = RunView.of(run.events()).run_of.value
    tags = {"cluster": cluster, "kind": kind, "outcome": report.get("outcome", NO_REPORT)}
    count_in_scheduler(Metric.RUNS_ENDED.value, tags)


@_sends
def send_verdicts(cluster: str, verdicts: Mapping[Release, LoadVerdict]) -> None:
    """Send the worst verdict of each release as a number, with the tags `cluster` and `release`."""
    from kafka_rollout.airflow.private_api import send_gauge

    for release, verdict in verdicts.items():
        send_gauge(Metric.SCAN_VERDICT.value, VERDICTS[verdict], {"cluster": cluster, "release": str(release)})
