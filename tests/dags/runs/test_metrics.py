"""Metrics of a run, received by an OpenTelemetry endpoint; the dashboard shows exactly these."""

from __future__ import annotations

import atexit
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_rollout.run.events import ApprovalOf, Asked, Begun
from kafka_rollout.run.metrics import Metric
from tests.dags.conftest import DAG_ID, FakeRuns
from tools.demo.folder import PROJECT_ROOT

pytestmark = pytest.mark.airflow

DASHBOARD = PROJECT_ROOT / "include" / "grafana" / "kafka-rollout.json"


@dataclass
class Received:
    """The exported points: name, tags and value, in their order."""

    points: list[tuple[str, dict[str, str], float]] = field(default_factory=list)

    def add(self, body: bytes) -> None:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                for point in (*metric.gauge.data_points, *metric.sum.data_points):
                    tags = {tag.key: tag.value.string_value for tag in point.attributes}
                    self.points.append((metric.name, tags, point.as_double or float(point.as_int)))

    def newest(self, metric: Metric, **tags: str) -> float | None:
        name = f"airflow.{metric.value}"
        found = [value for at, own, value in self.points if at == name and tags.items() <= own.items()]
        return found[-1] if found else None


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    """An OTLP endpoint on loopback, to which tasks and scheduler export."""
    got = Received()

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.add(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", "True")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "3600000")  # the test exports
    yield got
    server.shutdown()
    server.server_close()


@pytest.fixture
def export(received: Received) -> Iterator[Any]:
    """Start Airflow's metrics as a task and as the scheduler do; the result exports what was measured until then."""
    from airflow._shared.observability.metrics import otel_logger as otel_of_scheduler
    from airflow._shared.observability.metrics.base_stats_logger import NoStatsLogger
    from airflow.observability import stats as of_scheduler
    from airflow.observability.metrics import stats_utils as for_scheduler
    from airflow.sdk._shared.observability.metrics import otel_logger as otel_of_task
    from airflow.sdk.observability import stats as of_task
    from airflow.sdk.observability.metrics import stats_utils as for_task

    loggers = []
    for module, utils in ((of_task, for_task), (of_scheduler, for_scheduler)):
        logger = utils.get_stats_factory()()
        loggers.append(logger)
        module.initialize(factory=lambda logger=logger: logger, export_legacy_names=False)  # type: ignore[misc]

    def now() -> None:
        for logger in loggers:
            logger.otel.force_flush()

    yield now
    for module in (of_task, of_scheduler):
        module.initialize(factory=NoStatsLogger, export_legacy_names=True)
    for otel in (otel_of_task, otel_of_scheduler):
        atexit.unregister(otel.flush_otel_metrics)
    for logger in loggers:
        logger.otel.shutdown()


@pytest.mark.usefixtures("combined")
def test_a_run_sends_how_far_it_is_what_it_waits_for_and_how_it_ended(
    runs: FakeRuns, received: Received, export: Any
) -> None:
    seen = {}

    def look(task: str) -> None:
        export()
        seen[task] = [received.newest(metric, cluster="fake") for metric in (Metric.NODES_DONE, Metric.NODES_LEFT)]

    runs.while_asked = look
    state, states, _ = runs.run(finalize="after_approval")
    assert state == "success", states
    assert seen == {"approve_plan": [0, 3], "approve_finalize": [3, 0]}
    export()
    answers = [value for name, _, value in received.points if name == f"airflow.{Metric.ANSWERS_WAITING.value}"]
    assert answers[-1] == 0
    assert received.newest(Metric.GATES_WAITING, cluster="fake", kind="upgrade") == 0
    assert received.newest(Metric.RUNS_ENDED, cluster="fake", kind="upgrade", outcome="finished") == 1


def test_a_task_that_is_parked_for_an_answer_waits_and_one_that_ends_does_not(
    runs: FakeRuns, received: Received, export: Any
) -> None:
    from airflow.sdk.exceptions import TaskAwaitingInput

    from kafka_rollout.airflow.common.base import cluster_ports

    context: Any = {"run_id": "run-1", "ti": SimpleNamespace(dag_id=DAG_ID)}
    asked = Asked(what=ApprovalOf.ROLL, task_id="approve_plan", record_id="r", text="", options=("Approve",))

    def ask() -> None:
        with cluster_ports("fake", context) as ports:
            ports.run.record(Begun(dag_id=DAG_ID))
            ports.run.record(asked)
            raise TaskAwaitingInput(method_name="confirm_answer", kwargs={}, timeout=None)

    with pytest.raises(TaskAwaitingInput):
        ask()
    export()
    assert received.newest(Metric.ANSWERS_WAITING, cluster="fake") == 1
    with cluster_ports("fake", context):
        pass  # the report, after the time for the answer
    export()
    assert received.newest(Metric.ANSWERS_WAITING, cluster="fake") == 0


def test_an_endpoint_that_is_gone_fails_no_task(runs: FakeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.observability import stats

    def fail(*_: object, **__: object) -> None:
        raise OSError("connection refused")

    monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", "True")
    monkeypatch.setattr(stats, "gauge", fail)
    state, states, _ = runs.run(dry_run=True)
    assert state == "success", states


def test_the_dashboard_shows_exactly_the_metrics_that_are_sent() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = " ".join(target["expr"] for panel in panels for target in panel["targets"])
    shown = {name.removesuffix("_total") for name in re.findall(r"\bairflow_kafka_rollout_[a-z_]+", queries)}
    assert shown == {f"airflow_{metric.value.replace('.', '_')}" for metric in Metric}
