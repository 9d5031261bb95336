"""The clusters for their pages: the console and the downgrade options of one, and the table of all. Read-only."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from kafka_rollout.airflow.common.links import SCAN_DAG_PREFIX
from kafka_rollout.airflow.views.records import runs_of
from kafka_rollout.base.errors import UserError
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.base.lease import CallState
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.tones import Tone
from kafka_rollout.base.wording import count
from kafka_rollout.console.cluster_status import ENDED, WAITS, ClusterStatus, Phase, RunState, build_status, choose_run
from kafka_rollout.console.fleet import COLUMNS, NO_ACTION, FleetRow, Show, cells, choose_rows
from kafka_rollout.console.run_console import Console, TimedLine, build_console, group_by_rack
from kafka_rollout.model.plan import Lowering
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.notifications.due import ClusterHistory, RunHistory, due_notifications
from kafka_rollout.procedure.kinds import KINDS
from kafka_rollout.procedure.progress import Progress
from kafka_rollout.run.events import Asked

LINES_SHOWN = 200
_PIECE = 1000  # characters


def console_of(
    name: str,
    inventory: ClusterSpec | UserError,
    settings: Settings,
    *,
    may_read: Callable[[str], bool],
    may_answer: Callable[[str, Collection[str]], bool],
    may_control: Callable[[str], bool],
    run_id: str = "",
) -> dict[str, Any] | None:
    """Return the run that matters now, the other runs as cards, and the lock; None for a reader without any right.

    `may_read`: whether the user can read the runs of a DAG. `may_answer`: whether the user, who is one of the assigned
    ids if there are any, can answer a request of a DAG. `may_control`: whether the user can change its runs.
    `run_id`: show this run instead. `inventory`: or why it cannot be used.
    """
    from kafka_rollout.wiring.runs import read_cluster_runs

    found = read_cluster_runs(name, settings, may_read=may_read, also=run_id)
    listed = runs_of({name: inventory}, settings, may_read=may_read)
    if found is None or not listed:
        return None
    (card,) = listed
    now = time.time()
    matters = choose_run(found.runs, now)
    run = next((one for one in found.runs if one.run_id == run_id), None) if run_id else matters
    # The status of exactly this run: the cluster's own can be about another one.
    of_run = found.runs if run is None else (run,)
    status = build_status(name, of_run, found.lock, now, problem=found.problem)
    shown = {
        **card,
        "now": now,
        "runs": [one for one in card["runs"] if run is None or one["run_id"] != run.run_id],
        "status": status.to_json(),
        "run": None,
        "other": matters.run_id if run and matters and matters.run_id != run.run_id else "",
    }
    if run is None:
        return shown
    version, dag_id = found.versions.get(run.run_id, ""), found.dag_ids[run.run_id]
    of_now: Any = {"has_lock": run.has_lock, "call": run.call, "phase": status.phase}
    of_now["has_credentials"] = not isinstance(inventory, UserError) and any(inventory.connection_ids)
    console = _console(name, settings, run_id=run.run_id, version=version, **of_now)
    nodes = () if isinstance(inventory, UserError) else inventory.nodes
    asked = run.question() if console.request is not None else None
    shown["run"] = {
        **to_json(console),
        "racks": [to_json(rack) for rack in group_by_rack(nodes, console.nodes)],
        "dag_id": dag_id,
        "has_report": run.end is not None,
        "can_answer": asked is not None and may_answer(dag_id, asked.users),
        "asked": _asked(run.number, asked) if asked is not None and may_answer(dag_id, asked.users) else None,
        "controls": _controls(run, status.phase) if may_control(dag_id) else (),
        "has_traffic": bool(run.plan and run.plan.terms and run.plan.terms.traffic),
        "notified": _notified(name, run, status, settings, now),
    }
    return shown


def _asked(run: int, asked: Asked) -> dict[str, Any]:
    """Return the lines of a request, each in short pieces that stay whole, and the name that an answer to them gives.

    The page compares them with Airflow's text, with which they begin: a user who can write to the run history can add
    lines, but hide none.
    """
    from kafka_rollout.airflow.approvals.airflow_records import instance_name, request_name

    place = instance_name(asked.task_id, asked.map_index)
    lines = [
        [line[at : at + _PIECE] for at in range(0, len(line), _PIECE)]
        for line in asked.text.partition("\n\n")[2].split("\n")
    ]
    return {"lines": lines, "name": request_name(run, place, asked.what, asked.text)}


def _controls(run: RunState, phase: Phase) -> tuple[str, ...]:
    """Return what an operator can ask of the run now, as `POST dags/{dag_id}/control` takes it."""
    is_open = (
        run.has_lock or phase in {Phase.ROLLING, Phase.FINALIZING} | WAITS
    )  # after its last change, without a lock
    if phase in ENDED or not is_open or not (run.plan and (run.plan.release_steps or run.plan.feature_changes)):
        return ()
    if run.view.pause is not None:
        return ("resume", "stop")
    return () if run.plan.lowering is Lowering.OFFLINE and run.view.stop_has_begun else ("pause", "stop")


@lru_cache(maxsize=32)
def _console(
    cluster: str,
    settings: Settings,
    *,
    run_id: str,
    version: str,
    has_lock: bool,
    call: CallState,
    phase: Phase,
    has_credentials: bool,
) -> Console:
    """Return the console of a version of a run; `has_lock`, `call` and `phase` change with the time too."""
    from kafka_rollout.wiring.runs import read_version

    run = replace(read_version(cluster, run_id, settings, version)[0], has_lock=has_lock, call=call)
    lines = [TimedLine(at=at, text=text) for at, text in Progress().timed_lines(run.plan, run.view.events)]
    status = replace(build_status(cluster, (run,), None, time.time()), phase=phase)
    return build_console(run, status, lines[-LINES_SHOWN:], has_credentials=has_credentials)


def _notified(
    cluster: str, run: RunState, status: ClusterStatus, settings: Settings, now: float
) -> list[dict[str, Any]]:
    """Return who was notified about what the run needs now, by channel."""
    from kafka_rollout.notifications.store.sent import open_notifications

    if not status.needs_human:
        return []
    history = RunHistory(run_id=run.run_id, number=run.number, view=run.view, end=run.end, has_lock=run.has_lock)
    due = due_notifications(ClusterHistory(cluster=cluster, runs=(history,)), now=now)
    about = [] if run.view.last_at is None else [one for one in due if one.at >= run.view.last_at - 60.0]
    return [to_json(one) for one in open_notifications(settings).deliveries(about)]


def options_of(
    cluster: ClusterSpec,
    settings: Settings,
    *,
    may_read: Callable[[str], bool],
    may_trigger: Callable[[str], bool],
) -> dict[str, Any] | None:
    """Return the options with the ids of the DAGs; None for a reader without any right to the cluster.

    `may_read`: whether the user can read the runs of a DAG. `may_trigger`: whether the user can start runs of it.
    """
    from kafka_rollout.wiring.stored_state import read_options

    scan_dag = f"{SCAN_DAG_PREFIX}{cluster.name}"
    found = read_options(cluster, settings, may_read=may_read, sees_scans=may_read(scan_dag))
    if found is None:
        return None
    dag_id = f"{KINDS[RunOf.DOWNGRADE].dag_prefix}{cluster.name}"
    can = {"can_start": may_trigger(dag_id), "can_scan": may_trigger(scan_dag)}
    return {**to_json(found), "dag_id": dag_id, "scan_dag_id": scan_dag, **can}


def read_rows(may_read: Callable[[str], bool]) -> tuple[list[FleetRow], list[str]]:
    """Return the rows of the clusters that the user can see, and why files of the inventory have none."""
    from kafka_rollout.wiring.stored_state import read_fleet

    return read_fleet(
        Settings.from_environment(),
        may_read=may_read,
        sees_scans=lambda cluster: may_read(f"{SCAN_DAG_PREFIX}{cluster}"),
    )


def fleet_table(rows: Sequence[FleetRow], problems: Sequence[str], chosen: Sequence[FleetRow]) -> dict[str, Any]:
    """Return what the page shows of the chosen rows, and the number of rows of each filter."""
    return {
        "now": time.time(),
        "totals": {show.value: len(choose_rows(rows, show)) for show in Show},
        # Their texts have paths, and values of clusters that the user may not see.
        "problems": [f"{count(len(problems), 'part')} of the inventory cannot be read."] if problems else [],
        "rows": [_fleet_line(row) for row in chosen],
    }


def _fleet_line(row: FleetRow) -> dict[str, Any]:
    """Return a row in five cells: cluster, state, why and since when, release, health."""
    text = dict(zip((column.id for column in COLUMNS), cells(row), strict=True))
    is_open = row.needs_human or bool(row.in_progress)
    action = "" if row.next_action == NO_ACTION else row.next_action
    shown = {name: getattr(row, name) for name in ("cluster", "needs_human", "tone", "since", "done")}
    return {
        **shown,
        "state": "" if row.phase is Phase.IDLE else text["state"],
        "is_open": is_open,
        "why": row.why.replace(f"{row.cluster}: ", "") if is_open else action,
        "release": row.way or text["release"],
        "health": "ok" if row.problems == () else text["health"],
        "health_tone": row.health or Tone.SOFT,
        "observed": row.observed,
    }
