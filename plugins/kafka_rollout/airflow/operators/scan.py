"""The scans of a run: before its plan, and before the point of no return."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from kafka_rollout.airflow.common.base import cluster_ports, frozen_plan, skip_if
from kafka_rollout.airflow.common.links import ScanLink
from kafka_rollout.airflow.common.requests import request_of
from kafka_rollout.airflow.operators.spark_scan import SparkScanOperator
from kafka_rollout.composition.pages import render_scan_page
from kafka_rollout.domain.coordinator_logs.scan import ScanResult
from kafka_rollout.steps.step import Step
from kafka_rollout.steps.step_history import record_done

if TYPE_CHECKING:
    from pathlib import Path


def page_of(name: str) -> str:
    """Return the name of the page of a scan result."""
    return str(PurePosixPath(name).with_suffix(".html"))


class ScanForRunOperator(SparkScanOperator):
    """Scan, and store result and page in the run as `file` (and .html)."""

    operator_extra_links = (ScanLink(),)

    def __init__(self, *, step: Step, has_plan: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if step.scan is None:
            raise TypeError(f"Step {step.id} scans nothing.")
        self.step = step
        self.file = step.scan
        self.has_plan = has_plan

    def execute(self, context: Context) -> Any:
        with cluster_ports(self.cluster, context) as ports:
            plan = frozen_plan(ports, context) if self.has_plan else None
            skip_if(self.step.skip(plan, request_of(context["params"]), ports.run.events()), ports, self.task_id)
            ports.run.detach(self.file)  # the result of an earlier attempt must not be used
            return super().execute(context)

    def keep(self, context: Context, result: ScanResult, scratch: Path) -> dict[str, Any]:
        with cluster_ports(self.cluster, context) as ports:
            ports.run.attach_page(page_of(self.file), render_scan_page(result, ports.catalogue))
            ports.run.attach(self.file, result)
            record_done(ports, self.task_id)
            where = ports.run.location(self.file)
        self.log.info("%s records in %s partitions: %s", result.records, len(result.logs), where)
        return {"records": result.records, "partitions": len(result.logs), "file": where}
