"""Ids of DAGs, links from a task to the pages of its run, and addresses of pages."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from airflow.sdk import BaseOperator, BaseOperatorLink
from airflow.sdk.configuration import conf

from kafka_rollout.notifications.due import Notification, Page

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey

TAG = "kafka-rollout"  # of all DAGs, also of a DAG that embeds an upgrade
SCAN_DAG_PREFIX = "kafka_compatibility_scan_"  # then the cluster's name
NOTIFICATIONS_DAG = "kafka_notifications"


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


class CheckLink(BaseOperatorLink):
    """The button "Check" of the task that checked the cluster."""

    name = "Check"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return check_page(ti_key.dag_id, ti_key.run_id)


def check_page(dag_id: str, run_id: str) -> str:
    """Return the address of the page of a run's check."""
    return _page(dag_id, "check", run_id=run_id)


def scan_page(dag_id: str, run_id: str, task_id: str) -> str:
    """Return the address of the scan page of a run."""
    return _page(dag_id, "scan", run_id=run_id, task_id=task_id)


def notification_page(notification: Notification) -> str:
    """Return the address of the page that a notification leads to."""
    dag_id, run_id = notification.dag_id, notification.run_id
    if notification.page is Page.SCAN:
        return notification.report
    if notification.page is Page.CLUSTERS or not dag_id:
        return f"{_base()}/kafka-rollout/"
    if notification.page is Page.REPORT:
        return _page(dag_id, "report", run_id=run_id)
    run = f"{_base()}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"
    return f"{run}/required_actions" if notification.page is Page.ANSWER else run


def _base() -> str:
    return str(conf.get("api", "base_url", fallback="")).rstrip("/")


def _page(dag_id: str, name: str, **query: str) -> str:
    return f"{_base()}/kafka-rollout/dags/{quote(dag_id)}/{name}?{urlencode(query)}"
