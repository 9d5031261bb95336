"""The runs of the clusters and the scans of their coordinator logs, for the page. Read-only."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from croniter import croniter

from kafka_rollout.airflow.common.links import SCAN_DAG_PREFIX
from kafka_rollout.base.errors import FatalError, UserError
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.base.outside_text import escape_invisible
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.console.cluster_status import is_trial
from kafka_rollout.model.topology import NEVER, ClusterSpec
from kafka_rollout.notifications.due import Notification
from kafka_rollout.procedure.kinds import KINDS
from kafka_rollout.procedure.progress import Progress
from kafka_rollout.procedure.step import ScanStep
from kafka_rollout.run.ports import RunStore
from kafka_rollout.run.projections.runs import QUIET_S

if TYPE_CHECKING:
    from kafka_rollout.run.store.scans import KeptCheck

log = logging.getLogger(__name__)

RUNS_SHOWN = 10  # per cluster
# Without the reason, which has paths, and values of other clusters if the file names several.
NO_INVENTORY = (
    "The inventory of this cluster cannot be read, so its page has only what is stored. Correct the file: "
    "`kafka-rollout fleet` says why."
)


def shown(value: Any) -> Any:
    """Return the same data with each text as one visible line, because names and log lines come from the cluster."""
    if isinstance(value, str):
        return escape_invisible(value)
    if isinstance(value, Mapping):
        return {escape_invisible(str(key)): shown(item) for key, item in value.items()}
    return [shown(item) for item in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRun:
    """One run as the page shows it, except for what changes with the time."""

    shown: Mapping[str, Any]
    """The fields of the card."""
    last_at: float = 0.0
    """Time of the last event."""
    has_ended: bool = False
    """It has a report, or its last task failed."""

    def card(self, *, holder: str, now: float) -> dict[str, Any]:
        """Return the card at the time `now`. `holder`: the run that holds the lock."""
        began_at = float(self.shown["began_at"])
        holds = self.shown["run_id"] == holder
        is_trial = bool(self.shown.get("is_trial")) and not holds  # a plan or a dry run: it needs nobody
        is_active = not self.has_ended and not is_trial and (holds or now - self.last_at < QUIET_S)
        return {
            **self.shown,
            "is_trial": is_trial,
            "elapsed_s": round((now if is_active else self.last_at) - began_at),
            "state": "in progress" if is_active else "plan" if is_trial else "ended without a report",
        }


def runs_of(
    clusters: Mapping[str, ClusterSpec | UserError], settings: Settings, *, may_read: Callable[[str], bool]
) -> list[dict[str, Any]]:
    """Return the newest runs of each cluster and the holder of its lock.

    `clusters`: name → inventory, or why it cannot be used.

    `may_read`: whether the user can read the runs of a DAG. A run is shown to users who can read its own DAG, which can
    be a user's DAG that embeds the upgrade. A run without a known DAG is shown to users who can read all changing DAGs
    of the cluster. A cluster is omitted if the user can read neither one of its DAGs nor one of its runs.
    """
    from kafka_rollout.run.store.opening import database_of

    with database_of(settings).read_together():
        found = [_cluster(name, inventory, settings, may_read) for name, inventory in clusters.items()]
    return [cluster for cluster in found if cluster is not None]


def _cluster(
    cluster: str, inventory: ClusterSpec | UserError, settings: Settings, may_read: Callable[[str], bool]
) -> dict[str, Any] | None:
    """Return one cluster. Damaged parts are replaced by their error."""
    from kafka_rollout.notifications.store.sent import open_notifications
    from kafka_rollout.wiring.runs import can_see, list_runs_to_read

    found = list_runs_to_read(cluster, settings)
    newest = {one.channel: one for one in reversed(open_notifications(settings).problems(cluster))}
    runs: list[dict[str, Any]] = []
    for run_id, version in found.versions.items():
        if len(runs) >= RUNS_SHOWN and run_id not in found.never_hidden:
            continue
        card = _card(cluster, run_id, settings, version, found.holder)
        if can_see(cluster, card["dag_id"], may_read):
            runs.append(card)
    readable = [may_read(f"{kind.dag_prefix}{cluster}") for kind in KINDS.values()]
    if not runs and not any(readable):
        return None
    lock = None
    if found.lock is not None:
        # A holder without events has no DAG yet, so that it needs the right to read all of them.
        is_new = found.holder not in found.versions and all(readable)
        number = next((run["number"] for run in runs if run["run_id"] == found.holder), None)
        known = is_new or number is not None
        lock = {
            "holder": found.holder if known else "",
            "number": number,
            "purpose": found.lock.purpose if known else "",
            "expires_at": found.lock.expires_at,
        }
    problems = [
        NO_INVENTORY if isinstance(inventory, UserError) else "",
        found.problem,
        *(f"Notifications are not sent ({one.channel}): {one.problem}" for one in newest.values()),
    ]
    return {"cluster": cluster, "lock": lock, "runs": runs, "problem": " ".join(filter(None, problems))}


def _card(cluster: str, run_id: str, settings: Settings, version: str, holder: str) -> dict[str, Any]:
    """Return what the page shows of a run; of a damaged one its error. `holder`: the run that holds the lock."""
    try:
        return read_run(cluster, run_id, settings, version).card(holder=holder, now=time.time())
    except Exception as error:
        number, dag_id = (error.number, error.dag_id) if isinstance(error, _DamagedError) else (0, "")
        log.warning("The history of run %s of cluster %s cannot be shown: %s", number or run_id, cluster, error)
        sentence = f"The history of this run cannot be read: {error}"
        return {**_empty_card(run_id, number, dag_id), "state": "damaged history", "sentence": sentence}


class _DamagedError(Exception):
    def __init__(self, problem: str, number: int, dag_id: str) -> None:
        super().__init__(problem)
        self.number = number
        self.dag_id = dag_id


@lru_cache(maxsize=1000)
def read_run(cluster: str, run_id: str, settings: Settings, version: str) -> ShownRun:
    """Read a version of a run. A damaged one raises, so it is not kept: a restored document has no new version."""
    from kafka_rollout.wiring.runs import read_version

    run, dag_id = read_version(cluster, run_id, settings, version)
    if run.problem:
        raise _DamagedError(run.problem, run.number, dag_id)
    view, plan, end = run.view, run.plan, run.end
    lines = list(Progress().lines(plan, view.events))
    done = run.current_end is not None  # an active run has newer events
    shown = {
        **_empty_card(run.run_id, run.number, dag_id),
        "way": "" if plan is None else plan.way,
        "began_at": view.first_at or 0.0,
        "outcome": end.outcome if done and end else None,
        "sentence": end.sentence if done and end else "",
        "now": lines[-1] if lines else "",
        "has_report": end is not None,
        "is_trial": is_trial(run),
    }
    return ShownRun(shown=shown, last_at=view.last_at or 0.0, has_ended=done or view.failed is not None)


def _empty_card(run_id: str, number: int, dag_id: str) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "number": number,
        "dag_id": dag_id,
        "way": "",
        "began_at": 0.0,
        "elapsed_s": 0,
        "outcome": None,
        "state": "",
        "sentence": "",
        "now": "",
        "has_report": False,
        "is_trial": False,
    }


def page_of_run(dag_id: str, run_id: str, file: str, settings: Settings) -> str | None:
    """Return a page of a DAG's run; None if there is none, or if the run belongs to another DAG.

    The permission to read one DAG of a cluster does not include the runs of the others. The DAG can be a user's DAG
    that embeds an upgrade, so the run history names the cluster, not the id of the DAG.
    """
    found = find_run(dag_id, run_id, settings)
    try:
        return None if found is None else found[1].page(file)
    except FatalError:  # damaged
        return None


def find_run(dag_id: str, run_id: str, settings: Settings) -> tuple[str, RunStore] | None:
    """Return the cluster and the history of a DAG's run; None if there is none, or if it belongs to another DAG."""
    from kafka_rollout.run.store.history import list_clusters_of_run
    from kafka_rollout.run.store.opening import database_of, open_run
    from kafka_rollout.wiring.runs import dag_of

    for cluster in list_clusters_of_run(database_of(settings), run_id):
        try:
            store = open_run(cluster, run_id, settings)
            if dag_of(cluster, store.events()) == dag_id:
                return cluster, store
        except (UserError, FatalError):  # UserError: not a run id; FatalError: damaged
            continue
    return None


ALERTS_SHOWN = 5  # per cluster

# Where the tasks of a run store their scans, by task id; the page is next to the result.
_FILES = {
    task_id: step.scan for kind in KINDS.values() for task_id, step in kind.procedure if isinstance(step, ScanStep)
}


def scans_of(clusters: Mapping[str, ClusterSpec | UserError], settings: Settings) -> list[dict[str, Any]]:
    """Return the newest scan of each cluster, its alerts, and the error of the last attempt.

    `clusters`: name → inventory, or why it cannot be used: nobody scans this cluster, so its scan is overdue.
    """
    found = []
    for cluster, inventory in clusters.items():
        try:
            schedule = None if isinstance(inventory, UserError) else inventory.scan_times
            scan = _scan_of(cluster, schedule, settings)
        except Exception as error:
            log.warning("The scans of cluster %s cannot be shown: %r", cluster, error)
            scan = {
                "check": None,
                "scan": None,
                "overdue": False,
                "failed": {"headline": "The scan history cannot be read:", "sentences": [str(error)]},
                "alerts": [],
            }
        if scan is not None:
            found.append({"cluster": cluster, "dag_id": f"{SCAN_DAG_PREFIX}{cluster}", **scan})
    return found


def _scan_of(cluster: str, schedule: str | None, settings: Settings) -> dict[str, Any] | None:
    from kafka_rollout.notifications.store.sent import open_notifications
    from kafka_rollout.run.store.opening import open_scan_history
    from kafka_rollout.wiring.stored_state import read_newest_check

    scanned = open_scan_history(cluster, settings).scheduled()
    alerts = open_notifications(settings).alerts(cluster)
    if not scanned and not alerts:
        return None
    scanned_at = scanned[-1].scanned_at if scanned else 0.0
    is_newest = bool(alerts) and (not scanned or alerts[-1].at >= scanned[-1].at)
    failed = alerts[-1] if is_newest and alerts[-1].failed else None
    check = read_newest_check(cluster, settings)
    return {
        "check": None if check is None else _check_fields(check),
        "scan": to_json(scanned[-1]) if scanned else None,
        "overdue": schedule is None or is_overdue(schedule, scanned_at, time.time()),
        "failed": None if failed is None else _alert_fields(failed),
        "alerts": [_alert_fields(alert) for alert in reversed(alerts[-ALERTS_SHOWN:])],
    }


def is_overdue(schedule: str, scanned_at: float, now: float) -> bool:
    """Return whether there was no scan in the last full schedule interval."""
    if schedule == NEVER:
        return False
    times = croniter(schedule, datetime.fromtimestamp(now, UTC))
    times.get_prev(float)  # the scan of this interval may still run
    return scanned_at < float(times.get_prev(float))


def _check_fields(check: KeptCheck) -> dict[str, Any]:
    kept = {key: check.document[key] for key in ("change", "path", "target", "totals", "sentence", "checked_at")}
    return {"run_id": check.run_id, **kept}


def _alert_fields(alert: Notification) -> dict[str, Any]:
    return {key: getattr(alert, key) for key in ("at", "run_id", "headline", "sentences", "failed")}


def check_page(dag_id: str, run_id: str, settings: Settings) -> str | None:
    """Return the page of a scheduled run's check; None if there is none."""
    from kafka_rollout.run.store.opening import open_check_history

    if not dag_id.startswith(SCAN_DAG_PREFIX):
        return None
    return open_check_history(dag_id.removeprefix(SCAN_DAG_PREFIX), settings).page_of_run(run_id)


def scan_page(dag_id: str, run_id: str, task_id: str, settings: Settings) -> str | None:
    """Return the report of a run's scan; None if there is none."""
    from kafka_rollout.run.store.opening import open_scan_history

    try:
        if dag_id.startswith(SCAN_DAG_PREFIX):
            return open_scan_history(dag_id.removeprefix(SCAN_DAG_PREFIX), settings).page_of_run(run_id)
        if task_id not in _FILES:
            return None
        return page_of_run(dag_id, run_id, str(PurePosixPath(_FILES[task_id]).with_suffix(".html")), settings)
    except (UserError, FatalError):  # UserError: not a run id
        return None
