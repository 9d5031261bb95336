"""What the page shows of the clusters' runs, read from their records. Nothing in here writes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka_rollout.adapters.store.leases import FileChangeLock
from kafka_rollout.adapters.store.runs import FileRunStore, list_runs
from kafka_rollout.airflow.common.dag_ids import (
    CHANGING_DAG_PREFIXES,
    DAG_PREFIX,
    DOWNGRADE_DAG_PREFIX,
    FEATURES_DAG_PREFIX,
)
from kafka_rollout.demo.progress import Progress
from kafka_rollout.domain.model.errors import RolloutError, UserError
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.settings import Settings
from kafka_rollout.steps.features.update import FEATURES
from kafka_rollout.steps.planning.downgrade import DOWNGRADE
from kafka_rollout.steps.planning.upgrade import begun_by, kind_of_run

RUNS_SHOWN = 10  # of each cluster
LINES_SHOWN = 30  # of each run
QUIET_S = 120  # a run that goes on holds the lock, but for its first steps


def runs_of(clusters: Iterable[str], settings: Settings) -> list[dict[str, Any]]:
    """The newest runs of each cluster, and who holds its lock."""
    lock = FileChangeLock(settings.home)
    found = []
    for cluster in clusters:
        held = lock.holder(cluster)
        found.append(
            {
                "cluster": cluster,
                "lock": None
                if held is None
                else {"holder": held.holder, "purpose": held.purpose, "expires_at": held.expires_at},
                "runs": [
                    run_of(cluster, run_id, settings, holder=held.holder if held else "")
                    for run_id in list_runs(settings.home, cluster)[:RUNS_SHOWN]
                ],
            }
        )
    return found


def run_of(cluster: str, run_id: str, settings: Settings, *, holder: str = "") -> dict[str, Any]:
    """One run: its progress in the words of its record, and how it ended. `holder` is the run with the lock."""
    store = FileRunStore(settings.home, cluster, run_id)
    events = [event for event in store.events() if "at" in event]
    try:
        plan = store.load_plan()
    except RolloutError:
        plan = None
    progress = Progress()
    lines = list(progress.lines(plan, events, {}))
    report = _report(store)
    began, last = (float(events[0]["at"]), float(events[-1]["at"])) if events else (0.0, 0.0)
    done = report is not None and report.get("ended_at", 0.0) >= last - 1.0  # a run that goes on has newer events
    failed = bool(events) and events[-1].get("kind") == "task-failed"
    going_on = not done and not failed and (run_id == holder or time.time() - last < QUIET_S)
    return {
        "run_id": run_id,
        "dag_id": _dag_id(cluster, events),
        "way": "" if plan is None else plan.way,
        "began_at": began,
        "elapsed_s": round((time.time() if going_on else last) - began) if events else 0,
        "outcome": report["outcome"] if done and report else None,
        "state": "under way" if going_on else "ended without a report",
        "sentence": report.get("sentence", "") if done and report else "",
        "now": lines[-1] if lines else "",
        "estimate": "" if not going_on else progress.estimate(plan),
        "nodes": _nodes(plan, events),
        "lines": lines[-LINES_SHOWN:],
        "has_report": report is not None,
    }


def _nodes(plan: Plan | None, events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The plan's turns in their order: `state` is done, now or to come. Empty once nodes are taken back."""
    if plan is None:
        return []
    states: dict[tuple[str, int], str] = {}
    for event in events:
        if event.get("kind") == "stopping":
            states[(event["hop"], event["node_id"])] = "now"
        elif event.get("kind") == "gate-held" and event.get("kind_of_gate") == "after-start":
            states[(event["hop"], event["node_id"])] = "done"
    node_steps = [(release_step, node_step) for release_step in plan.release_steps for node_step in release_step.order]
    if states.keys() - {(release_step.key, node_step.node_id) for release_step, node_step in node_steps}:
        return []
    return [
        {
            "name": node_step.name,
            "release": str(release_step.to_release),
            "state": states.get((release_step.key, node_step.node_id), "to come"),
        }
        for release_step, node_step in node_steps
    ]


def report_page(dag_id: str, run_id: str, settings: Settings) -> str | None:
    """The run's report; None while it has none, and where the run is another DAG's: the right to see one DAG of a
    cluster is none to see the runs of the others."""
    prefix = next((prefix for prefix in CHANGING_DAG_PREFIXES if dag_id.startswith(prefix)), None)
    if prefix is None:
        return None
    try:
        cluster = dag_id.removeprefix(prefix)
        store = FileRunStore(settings.home, cluster, run_id)
        if _dag_id(cluster, store.events()) != dag_id:
            return None
        return (store.folder / "report.html").read_text(encoding="utf-8")
    except (FileNotFoundError, UserError):  # UserError: a text that names no run
        return None


def _dag_id(cluster: str, events: Sequence[Mapping[str, Any]]) -> str:
    """Whose run it is, by what its first task wrote down; a run of the command line is told by its plan."""
    return begun_by(events) or f"{_dag_prefix(events)}{cluster}"


def _dag_prefix(events: Iterable[Mapping[str, Any]]) -> str:
    return {FEATURES: FEATURES_DAG_PREFIX, DOWNGRADE: DOWNGRADE_DAG_PREFIX}.get(kind_of_run(events), DAG_PREFIX)


def _report(store: FileRunStore) -> dict[str, Any] | None:
    try:
        data = json.loads((store.folder / "report.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return data if isinstance(data, dict) else None
