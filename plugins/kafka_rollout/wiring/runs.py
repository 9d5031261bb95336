"""The runs of a cluster: its status by their histories and the lock, requests to a run in progress, and its report."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Lock as ThreadLock

from kafka_rollout.base.durations import iso
from kafka_rollout.base.errors import RefusedError, RolloutError, UserError
from kafka_rollout.base.lease import NEWEST_CALL, Lock
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import nodes
from kafka_rollout.console.cluster_status import (
    ENDED,
    ClusterStatus,
    Phase,
    RunState,
    build_status,
    is_trial,
    status_of,
)
from kafka_rollout.control.approval import refuse_claimed_name
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.findings.runs_in_progress import RunInProgress
from kafka_rollout.procedure.kinds import KINDS, build_report_of_run, continue_words, kind_of
from kafka_rollout.procedure.step_lines import step_lines
from kafka_rollout.report.run_report import RunReport, stored_end
from kafka_rollout.run.events import (
    CONTROLS,
    ControlAsked,
    Event,
    LockedOut,
    PauseAsked,
    Responder,
    ResumeAsked,
    StopAsked,
    StoppedByOperator,
    TakenOver,
    Unknown,
)
from kafka_rollout.run.projections.runs import find_dag_id, find_stop
from kafka_rollout.run.store.history import ReadHistory, list_asking_runs, list_run_versions
from kafka_rollout.run.store.opening import database_of, open_lock, open_run
from kafka_rollout.run.store.run_names import find_number
from kafka_rollout.run.view import RunView

_RUNS_READ = 50  # to find those that the reader can read, and the newest one that is not a plan or a dry run
_IN_PROGRESS = frozenset({*Phase} - ENDED - {Phase.IDLE, Phase.FAILED, Phase.UNKNOWN})  # also without the lock
_MOST_REASON = 2000  # every page and every gate reads it


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRuns:
    """Runs of a cluster."""

    lock: Lock | None
    problem: str
    """Why the lock cannot be read."""
    never_hidden: tuple[str, ...]
    """The holder of the lock, the runs that ask, and one that was requested."""
    versions: Mapping[str, str]
    """Of the newest runs and of these, the last changed first."""
    runs: tuple[RunState, ...] = ()
    """Those that were read, the last changed first; not all of them."""
    dag_ids: Mapping[str, str] = field(default_factory=dict)
    """Their DAGs, by run id."""

    @property
    def holder(self) -> str:
        return "" if self.lock is None else self.lock.holder


def read_status(
    cluster: str, settings: Settings, *, may_read: Callable[[str], bool] = lambda dag_id: True
) -> ClusterStatus | None:
    """Return the status of a cluster; None if the reader can read neither one of its DAGs nor one of its runs.

    `may_read`: as in `read_cluster_runs`.
    """
    found = read_cluster_runs(cluster, settings, may_read=may_read)
    return None if found is None else build_status(cluster, found.runs, found.lock, time.time(), problem=found.problem)


def read_run_in_progress(cluster: str, settings: Settings) -> RunInProgress | None:
    """Return the run that holds the cluster's lock, waits for an answer, or is paused. Creates no database.

    Raises errors of this project if the lock or the histories cannot be read.
    """
    database = database_of(settings)
    if database.file is not None and not database.file.exists():
        return None  # no run was ever made with these settings
    lock = open_lock(settings).holder(cluster)
    status = read_status(cluster, settings)
    if status is None or (lock is None and status.phase not in _IN_PROGRESS):
        return None
    step = status.step or ("" if lock is None else lock.purpose.rstrip("."))
    node = "" if status.node is None else f"release step {status.node.release_step}"
    return RunInProgress(
        name=str(status.number or status.run or ("" if lock is None else lock.holder)),
        by=status.started_by or "",
        since=status.started or ("" if lock is None else iso(lock.acquired_at)),
        doing=", ".join(filter(None, (status.phase.value, status.way, step, node))),
        command=f"kafka-rollout status --cluster {cluster}",
    )


def list_runs_to_read(cluster: str, settings: Settings, also: str = "") -> ClusterRuns:
    """Return the runs of a cluster that can matter, without reading one. `also`: a run that was requested."""
    problem, lock = "", None
    try:
        lock = open_lock(settings).holder(cluster)
    except (RolloutError, OSError, ValueError) as error:
        problem = str(error)
    database = database_of(settings)
    versions = list_run_versions(database, cluster, _RUNS_READ)
    first = ("" if lock is None else lock.holder, *list_asking_runs(database, cluster), also)
    never_hidden = tuple(one for one in first if one)
    if set(never_hidden) - versions.keys():  # older than the newest runs
        versions |= {run: one for run, one in list_run_versions(database, cluster).items() if run in never_hidden}
    return ClusterRuns(lock=lock, problem=problem, never_hidden=never_hidden, versions=versions)


def read_cluster_runs(
    cluster: str, settings: Settings, *, may_read: Callable[[str], bool], also: str = ""
) -> ClusterRuns | None:
    """Return the runs that can matter; None if the reader can read neither one of the cluster's DAGs nor one of them.

    `may_read`: whether the reader can read the runs of a DAG. A run without a known DAG needs the right to read all
    changing DAGs of the cluster. At first the holder of the lock, the runs that ask and the run `also` are read, then
    the newest runs until one is not a plan or a dry run.
    """
    found = list_runs_to_read(cluster, settings, also)
    runs, dag_ids = list[RunState](), dict[str, str]()
    for run_id in dict.fromkeys([*found.never_hidden, *found.versions]):
        if run_id not in found.never_hidden and any(not is_trial(run) for run in runs):
            break
        if run_id == also and run_id not in found.versions:
            continue
        run, dag_id = read_version(cluster, run_id, settings, found.versions.get(run_id, ""))
        if can_see(cluster, dag_id, may_read):
            runs.append(with_process(cluster, replace(run, has_lock=run_id == found.holder), settings))
            dag_ids[run_id] = dag_id
    if not runs and not any(may_read(f"{kind.dag_prefix}{cluster}") for kind in KINDS.values()):
        return None
    at = {run_id: number for number, run_id in enumerate(found.versions)}
    runs.sort(key=lambda run: at.get(run.run_id, len(at)))
    return replace(found, runs=tuple(runs), dag_ids=dag_ids)


def can_see(cluster: str, dag_id: str, may_read: Callable[[str], bool]) -> bool:
    """Return whether a reader can see a run. Without a known DAG, it needs the right to read all changing DAGs."""
    return may_read(dag_id) if dag_id else all(may_read(f"{kind.dag_prefix}{cluster}") for kind in KINDS.values())


def read_run_status(cluster: str, run_id: str, settings: Settings) -> tuple[ClusterStatus, RunState]:
    """Return the status of a cluster by one of its runs, and the run."""
    lock = open_lock(settings).holder(cluster)
    run = replace(read_run(cluster, run_id, settings)[0], has_lock=lock is not None and lock.holder == run_id)
    run = with_process(cluster, run, settings)
    with database_of(settings).reading() as connection:
        number = None if lock is None else find_number(connection, cluster, lock.holder)
    return status_of(cluster, run, lock, time.time(), number=number), run


def with_process(cluster: str, run: RunState, settings: Settings) -> RunState:
    """Return a run with the state of its process. Only a run of a shell that has not ended has one."""
    if run.current_end is not None or not run.view.events or (run.view.dag_id and not run.view.has(TakenOver)):
        return run
    return replace(run, call=open_lock(settings).find_call(cluster, run.run_id))


def read_version(cluster: str, run_id: str, settings: Settings, version: str) -> tuple[RunState, str]:
    """Return a run and the id of its DAG. Nothing is read if it was read in this version (`list_run_versions`).

    A history that cannot be read is read again: a document that is restored has no new version.
    """
    return _READ.get(cluster, run_id, settings, version)


def read_run(cluster: str, run_id: str, settings: Settings) -> tuple[RunState, str]:
    """Return a run and the id of its DAG: for a run of the command line, the DAG of the same procedure.

    The id is empty if the history cannot say it. A history that cannot be read is in the result's `problem`. Of a run
    that was read before, only new events are read.
    """
    return _READ.get(cluster, run_id, settings, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """A run as this process has read it."""

    version: str
    """Of the history before it was read; empty if unknown."""
    history: ReadHistory
    run: RunState
    dag_id: str


@dataclass(slots=True)
class ReadRuns:
    """The runs that this process has read last. Together they have at most `most_events` events."""

    most_events: int
    _runs: OrderedDict[tuple[str, ...], _Read] = field(default_factory=OrderedDict)
    _guard: ThreadLock = field(default_factory=ThreadLock)

    def get(self, cluster: str, run_id: str, settings: Settings, version: str) -> tuple[RunState, str]:
        """Return a run and the id of its DAG. One run is read at a time: several users need the same runs."""
        key = (str(settings), cluster, run_id)
        with self._guard:
            known = self._runs.pop(key, None)
            if known is None or not version or known.version != version:
                known = _read(cluster, run_id, settings, version, known)
            if not known.run.problem:
                self._runs[key] = known
                self._forget_oldest()
        return known.run, known.dag_id

    def _forget_oldest(self) -> None:
        events = sum(len(one.run.view.events) for one in self._runs.values())
        while events > self.most_events and len(self._runs) > 1:
            _, oldest = self._runs.popitem(last=False)
            events -= len(oldest.run.view.events)


_READ = ReadRuns(most_events=30_000)


def _read(cluster: str, run_id: str, settings: Settings, version: str, known: _Read | None) -> _Read:
    """Read a run. `known`: as it was read before."""
    store = open_run(cluster, run_id, settings)
    history, dag_id = ReadHistory(), ""
    try:
        history = store.read_history(None if known is None else known.history)
        dag_id = dag_of(cluster, history.events)
        if known is not None and not history.has_documents:
            plan, end = known.run.plan, known.run.end
        else:
            plan, end = None, stored_end(store)
            with suppress(RolloutError):  # none yet
                plan = store.load_plan()
    except RolloutError as error:
        run = RunState(run_id=run_id, number=store.number, problem=str(error))
        return _Read(version="", history=history, run=run, dag_id=dag_id)
    if known is not None and not history.has_documents and history.version == known.history.version:
        return replace(known, version=version)
    events = [event for event in history.events if event.at]
    view = RunView() if known is None else known.run.view
    view = view.followed_by(events[len(view.events) :])
    kind = KINDS[view.run_of]
    steps = step_lines(kind.procedure, view, plan)
    command = kind.command if plan is None else continue_words(view, plan)
    run = RunState(run_id=run_id, number=history.number, view=view, plan=plan, end=end, steps=steps, command=command)
    return _Read(version=version, history=history, run=run, dag_id=dag_id)


def dag_of(cluster: str, events: tuple[Event, ...]) -> str:
    """Return the DAG of the run by its first event; for a run of the command line, the DAG of the same procedure."""
    if not events or isinstance(events[0], Unknown):  # it can contain the name of its DAG
        return ""
    return find_dag_id(events) or f"{kind_of(events).dag_prefix}{cluster}"


def control_request(
    cluster: ClusterSpec, action: str, reason: str, responder: Responder, *, by: str = ""
) -> ControlAsked:
    """Return the event of a request. `by`: the name of the operator; by default the user.

    Raises UserError for an unknown action, without a reason, or for a long one; RefusedError for a name that a shell
    cannot claim.
    """
    kind = CONTROLS.get(action)
    if kind is None:
        raise UserError(f"A run has no action '{action}'.", remedy=f"Choose one of: {', '.join(CONTROLS)}.")
    if not reason.strip():
        raise UserError(f"The request to {action} the run has no reason.", remedy="Add the reason as a sentence.")
    if len(reason) > _MOST_REASON:
        raise UserError(f"The reason has {len(reason):,} characters.", remedy=f"Write at most {_MOST_REASON:,}.")
    name = by.strip() or responder.name or responder.user
    if by.strip() and by.strip() != responder.user:  # a name at a shell is only claimed
        refuse_claimed_name(cluster, by, responder)
        name = f"{name} (user {responder.user})"
    return kind(by=name, reason=reason.strip(), responder=responder)


def request_control(cluster: str, run_id: str, asked: ControlAsked, settings: Settings) -> str:
    """Record the request in the run history, and return what follows as a sentence.

    The run reads it at each check of a gate and before each step. A run that waits for an answer, or that no process
    carries out, is stopped here, unless one of its nodes is down: its next call starts the node first. Raises
    RefusedError if the run has ended, or the request changes nothing.
    """
    status, run = read_run_status(cluster, run_id, settings)
    if run.problem:
        raise RefusedError(f"The history of run {run.number} cannot be read. {run.problem}", remedy=status.next_action)
    is_fenced, history, lock = run.is_fenced, open_run(cluster, run_id, settings), open_lock(settings, call=NEWEST_CALL)
    resumes = isinstance(asked, ResumeAsked) and run.current_end is None
    if resumes and not run.has_lock:
        is_fenced = is_fenced or lock.is_fenced(cluster, run_id)  # a stop can be killed before it is in the history
    if status.phase in ENDED and not (resumes and is_fenced):
        raise RefusedError(f"Run {run.number} of cluster {cluster} has ended.", remedy=status.next_action)
    pause, stop = run.view.pause, find_stop(run.view.events)
    if isinstance(asked, PauseAsked) and pause is not None:
        raise RefusedError(
            f"Run {run.number} is already {pause.text}, since {iso(pause.at)}.", remedy="Resume or stop it."
        )
    if isinstance(asked, ResumeAsked) and pause is None and stop is None and not is_fenced:
        raise RefusedError(f"Run {run.number} is not paused.", remedy=status.next_action)
    if isinstance(asked, ResumeAsked) and is_fenced:
        lock.admit(cluster, run_id, asked.by)
    history.record(asked)
    follows = asked.follows
    if isinstance(asked, StopAsked) and run.plan is not None and (run.question() is not None or is_fenced):
        # No process of it would read the request, or none before the answer.
        if down := sorted(run.view.down):
            them = "it" if len(down) == 1 else "them"
            follows = f"It has stopped {nodes(down)}. Its next call starts {them}, then ends it. {status.next_action}"
        else:
            with suppress(RefusedError):  # it was answered meanwhile, so the run reads the request
                lock.stop(cluster, run_id, asked.by)
                history.record(StoppedByOperator(target=run.plan.target))
                follows = "It has ended, and holds no lock."
    if isinstance(asked, ResumeAsked) and is_fenced:
        follows = f"It can acquire the lock again. {read_run_status(cluster, run_id, settings)[0].next_action}"
    return f"Run {run.number} was {asked.text}. {follows}"


def record_broken(cluster: str, run_id: str, by: str, settings: Settings) -> None:
    """Record in the history of a run that an approver broke its lock. A run that has not begun has none."""
    run = open_run(cluster, run_id, settings)
    if run.events():
        run.record(LockedOut(sentence=f"{by} broke the lock of run {run.number} of cluster {cluster}.", is_broken=True))


def write_run_report(run: Run, *, dry_run: bool = False) -> tuple[RunReport, str, str]:
    """Build, render and store the report of a run. Return it with the locations of report.html and report.json."""
    from kafka_rollout.report.page.pages import render_run

    report = build_report_of_run(run, dry_run=dry_run)
    page, data = run.history.write_report(render_run(report), report)
    return report, page, data
