"""Requests to a run in progress, from another shell or from Airflow: pause, resume, stop before the next change."""

from __future__ import annotations

from kafka_rollout.base.durations import iso
from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.report.cluster_status import ENDED
from kafka_rollout.run.events import CONTROLS, ControlAsked, PauseAsked, Responder, ResumeAsked
from kafka_rollout.run.projections.runs import find_pause, find_stop, run_of
from kafka_rollout.run.store.opening import open_run
from kafka_rollout.wiring.run_status import read_run_status

MOST_REASON = 2000  # every page and every gate reads it


def control_request(action: str, reason: str, responder: Responder, *, by: str = "") -> ControlAsked:
    """Return the event of a request. `by`: the name of the operator; by default the user.

    Raises UserError for an unknown action, without a reason, or for a long one.
    """
    kind = CONTROLS.get(action)
    if kind is None:
        raise UserError(f"A run has no action '{action}'.", remedy=f"Choose one of: {', '.join(CONTROLS)}.")
    if not reason.strip():
        raise UserError(f"The request to {action} the run has no reason.", remedy="Add the reason as a sentence.")
    if len(reason) > MOST_REASON:
        raise UserError(f"The reason has {len(reason):,} characters.", remedy=f"Write at most {MOST_REASON:,}.")
    name = by.strip() or responder.name or responder.user
    if by.strip() and by.strip() != responder.user:  # a name at a shell is only claimed
        name = f"{name} (user {responder.user})"
    return kind(by=name, reason=reason.strip(), responder=responder)


def request_control(cluster: str, run_id: str, asked: ControlAsked, settings: Settings) -> str:
    """Record the request in the run history, and return what follows as a sentence.

    The run reads it before its next node or change. Raises RefusedError if the run has ended, or the request
    changes nothing.
    """
    status, run = read_run_status(cluster, run_id, settings)
    if run.problem:
        raise RefusedError(f"The history of run {run_id} cannot be read. {run.problem}", remedy=status.next_action)
    restarts_none = run_of(run.events) is RunOf.FEATURES
    if restarts_none or status.phase in ENDED:
        what = "restarts no node" if restarts_none else "has ended"
        raise RefusedError(f"Run {run_id} of cluster {cluster} {what}.", remedy=status.next_action)
    pause, stop = find_pause(run.events), find_stop(run.events)
    if isinstance(asked, PauseAsked) and pause is not None:
        raise RefusedError(f"Run {run_id} is already {pause.text}, since {iso(pause.at)}.", remedy="Resume or stop it.")
    if isinstance(asked, ResumeAsked) and pause is None and stop is None:
        raise RefusedError(f"Run {run_id} is not paused.", remedy=status.next_action)
    open_run(cluster, run_id, settings).record(asked)
    return f"Run {run_id} was {asked.text}. {asked.follows}"
