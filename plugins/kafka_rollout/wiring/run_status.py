"""Reads the status of a cluster from the run histories and the lock."""

from __future__ import annotations

import time
from collections.abc import Callable

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.report.cluster_status import ClusterStatus, RunState, build_status, is_trial, status_of
from kafka_rollout.report.run_report import stored_end
from kafka_rollout.run.events import Event, Unknown
from kafka_rollout.run.projections.runs import find_dag_id, run_of
from kafka_rollout.run.store.opening import database_of, open_lock, open_run
from kafka_rollout.run.store.runs import list_asking_runs, list_run_versions
from kafka_rollout.steps.procedures.kinds import KINDS, continue_words, kind_of
from kafka_rollout.steps.step_history import step_lines

_RUNS_READ = 50  # to find the newest one that is not a plan or a dry run


def read_status(
    cluster: str, settings: Settings, *, may_read: Callable[[str], bool] = lambda dag_id: True
) -> ClusterStatus | None:
    """Return the status of a cluster; None if the reader can read neither one of its DAGs nor one of its runs.

    `may_read`: whether the reader can read the runs of a DAG. A run without a known DAG needs the right to read all
    changing DAGs of the cluster. At first the holder of the lock and the runs that ask are read, then the newest runs
    until one is not a plan or a dry run.
    """
    problem, lock = "", None
    try:
        lock = open_lock(settings).holder(cluster)
    except (RolloutError, OSError, ValueError) as error:
        problem = str(error)
    readable = [may_read(f"{kind.dag_prefix}{cluster}") for kind in KINDS.values()]
    holder = "" if lock is None else lock.holder
    database = database_of(settings)
    newest = list(list_run_versions(database, cluster, _RUNS_READ))
    first = [*([holder] if holder else []), *list_asking_runs(database, cluster)]
    runs = list[RunState]()
    for run_id in dict.fromkeys([*first, *newest]):
        if run_id not in first and any(not is_trial(run) for run in runs):
            break
        run, dag_id = read_run(cluster, run_id, settings, holder=holder)
        if may_read(dag_id) if dag_id else all(readable):
            runs.append(run)
    if not runs and not any(readable):
        return None
    at = {run_id: number for number, run_id in enumerate(newest)}
    runs.sort(key=lambda run: at.get(run.run_id, len(at)))
    return build_status(cluster, runs, lock, time.time(), problem=problem)


def read_run_status(cluster: str, run_id: str, settings: Settings) -> tuple[ClusterStatus, RunState]:
    """Return the status of a cluster by one of its runs, and the run."""
    lock = open_lock(settings).holder(cluster)
    run, _ = read_run(cluster, run_id, settings, holder=lock.holder if lock else "")
    return status_of(cluster, run, lock, time.time()), run


def read_run(cluster: str, run_id: str, settings: Settings, *, holder: str = "") -> tuple[RunState, str]:
    """Return a run and the id of its DAG: for a run of the command line, the DAG of the same procedure.

    The id is empty if the history cannot say it. A history that cannot be read is in the result's `problem`.
    """
    store = open_run(cluster, run_id, settings)
    has_lock, dag_id = run_id == holder, ""
    try:
        recorded = store.events()
        dag_id = dag_of(cluster, recorded)
        events = tuple(event for event in recorded if event.at)
        end = stored_end(store)
    except RolloutError as error:
        return RunState(run_id=run_id, has_lock=has_lock, problem=str(error)), dag_id
    try:
        plan = store.load_plan()
    except RolloutError:  # none yet
        plan = None
    kind = kind_of(events)
    steps = step_lines(kind.procedure, events)
    command = kind.command if plan is None else continue_words(run_of(events), plan.target)
    run = RunState(run_id=run_id, events=events, plan=plan, end=end, steps=steps, has_lock=has_lock, command=command)
    return run, dag_id


def dag_of(cluster: str, events: tuple[Event, ...]) -> str:
    """Return the DAG of the run by its first event; for a run of the command line, the DAG of the same procedure."""
    if not events or isinstance(events[0], Unknown):  # it can contain the name of its DAG
        return ""
    return find_dag_id(events) or f"{kind_of(events).dag_prefix}{cluster}"
