"""The scans of coordinator logs for the page. Read-only."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from croniter import croniter

from kafka_rollout.airflow.common.dag_ids import SCAN_DAG_PREFIX
from kafka_rollout.airflow.views.runs import page_of_run
from kafka_rollout.composition.records import open_scan_history
from kafka_rollout.domain.coordinator_logs.history import Alerted, Scanned
from kafka_rollout.domain.model.errors import FatalError, UserError
from kafka_rollout.domain.model.topology import NEVER, ClusterSpec
from kafka_rollout.json_forms import to_json
from kafka_rollout.settings import Settings
from kafka_rollout.steps.procedures.lookup import PROCEDURES

log = logging.getLogger(__name__)

ALERTS_SHOWN = 5  # per cluster

# Where the tasks of a run store their scans, by task id; the page is next to the result.
_FILES = {
    task_id: step.scan for procedure in PROCEDURES.values() for task_id, step in procedure if step.scan is not None
}


def scans_of(clusters: Iterable[ClusterSpec], settings: Settings) -> list[dict[str, Any]]:
    """Return the newest scan of each cluster, its alerts, and the error of the last attempt."""
    found = []
    for cluster in clusters:
        try:
            scan = _scan_of(cluster, settings)
        except Exception as error:
            log.warning("The scans of cluster %s cannot be shown: %r", cluster.name, error)
            scan = {
                "scan": None,
                "overdue": False,
                "failed": {"headline": "The scan history cannot be read:", "sentences": [str(error)]},
                "alerts": [],
            }
        if scan is not None:
            found.append({"cluster": cluster.name, "dag_id": f"{SCAN_DAG_PREFIX}{cluster.name}", **scan})
    return found


def _scan_of(cluster: ClusterSpec, settings: Settings) -> dict[str, Any] | None:
    events = open_scan_history(cluster.name, settings).events()
    if not events:
        return None
    scanned = [event for event in events if isinstance(event, Scanned)]
    alerts = [event for event in events if isinstance(event, Alerted)]
    scanned_at = scanned[-1].scanned_at if scanned else 0.0
    failed = alerts[-1] if alerts and alerts[-1].failed and alerts[-1] is events[-1] else None
    return {
        "scan": to_json(scanned[-1]) if scanned else None,
        "overdue": is_overdue(cluster.scan_schedule, scanned_at, time.time()),
        "failed": None if failed is None else _shown(failed),
        "alerts": [_shown(alert) for alert in reversed(alerts[-ALERTS_SHOWN:])],
    }


def is_overdue(schedule: str, scanned_at: float, now: float) -> bool:
    """Return whether there was no scan in the last full schedule interval."""
    if schedule == NEVER:
        return False
    times = croniter(schedule, datetime.fromtimestamp(now, UTC))
    times.get_prev(float)  # the scan of this interval may still run
    return scanned_at < float(times.get_prev(float))


def _shown(alert: Alerted) -> dict[str, Any]:
    return {key: getattr(alert, key) for key in ("at", "run_id", "headline", "sentences", "failed")}


def scan_page(dag_id: str, run_id: str, task_id: str, settings: Settings) -> str | None:
    """Return the report of a run's scan; None if there is none."""
    try:
        if dag_id.startswith(SCAN_DAG_PREFIX):
            return open_scan_history(dag_id.removeprefix(SCAN_DAG_PREFIX), settings).page_of_run(run_id)
        if task_id not in _FILES:
            return None
        return page_of_run(dag_id, run_id, str(PurePosixPath(_FILES[task_id]).with_suffix(".html")), settings)
    except (UserError, FatalError):  # UserError: not a run id
        return None
