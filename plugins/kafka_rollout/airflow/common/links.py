"""Links from a task to the pages of its run."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from airflow.sdk import BaseOperator, BaseOperatorLink
from airflow.sdk.configuration import conf

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey


class ReportLink(BaseOperatorLink):
    """The button "Report" of the report task."""

    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return _page(ti_key.dag_id, "report", run_id=ti_key.run_id)


class ScanLink(BaseOperatorLink):
    """The button "Scan" of a task that scanned the coordinator logs."""

    name = "Scan"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return scan_page(ti_key.dag_id, ti_key.run_id, ti_key.task_id)


def scan_page(dag_id: str, run_id: str, task_id: str) -> str:
    """Return the address of the scan page of a run."""
    return _page(dag_id, "scan", run_id=run_id, task_id=task_id)


def _page(dag_id: str, name: str, **query: str) -> str:
    base = conf.get("api", "base_url", fallback="").rstrip("/")
    return f"{base}/kafka-rollout/dags/{quote(dag_id)}/{name}?{urlencode(query)}"
