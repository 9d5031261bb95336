"""Approvals: who approved what, when and why. DAG and command line use the same records.

Airflow proves who answers. A shell proves only the operating system's user: the name of `--as` is a claim. So a
cluster with four eyes or `shell_approvers` accepts an answer at a shell, of every kind, only from a user whom the
inventory names in `shell_approvers`, as the approver that it names there: `refuse_answer` is the only check, and
everything that acts in an approver's name calls it.

Four eyes is a rule of its own: two users want the change. One triggers the run by hand, another one approves it. A run
that another DAG triggered, or that was planned again, has the name of a user who did not start it, and an approver who
rejected a plan of a run approves no other plan of it. Airflow tells the name of a DAG's starter, and the inventory the
id of an approver at a shell: they are compared only where the starter's name is an approver's id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka_rollout.base.errors import RefusedError, TransientError, UserError
from kafka_rollout.base.findings import group_by_kind
from kafka_rollout.base.wording import count
from kafka_rollout.control.lock import keep_lock, refuse_fenced
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts
from kafka_rollout.observation.run import ReadRun, Run
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    Asked,
    AskingEnded,
    Begun,
    Called,
    Channel,
    Decision,
    Event,
    Planned,
    Responder,
    StartedAtShell,
    TakenOver,
    events_of,
    has,
    newest,
)
from kafka_rollout.run.ports import Answer, Answers, Question
from kafka_rollout.run.projections.approvals import (
    events_read,
    find_acceptances,
    find_invalidity,
    is_invalid,
    is_refuted,
    newest_decision,
)
from kafka_rollout.run.projections.runs import find_dag_id

OUTAGE_FACTS = "offline/facts.json"
_BY_HAND = "manual"  # Airflow's DagRunType
_NEEDS_THE_PLAN = frozenset({ApprovalOf.ROLL, ApprovalOf.FINALIZE})
# The starter may roll back alone.
FOUR_EYES = frozenset(
    {ApprovalOf.ROLL, ApprovalOf.FINALIZE, ApprovalOf.DIFFERENCES, ApprovalOf.PAUSE, ApprovalOf.NODE_LOG}
)


def record_shell_start(ports: ClusterPorts, starter: Responder) -> None:
    """Record the operating system's user who starts a run. Does nothing for a run that has events."""
    if not ports.run.events():
        ports.run.record(StartedAtShell(starter=starter))


def record_call(ports: ClusterPorts, called: Called) -> None:
    """Record the options of a call, unless they are those of the last one."""
    last = newest(ports.run.events(), Called)
    if last is None or (last.options, last.command_config) != (called.options, called.command_config):
        ports.run.record(called)


def refuse_starter(ports: ReadPorts, by: str, responder: Responder | None) -> None:
    """Raise RefusedError if the inventory requires four eyes and `by` started the run, or the starter is unknown.

    A DAG's run was started by Airflow's user who triggered it by hand and is planned once, a run of the shell by the
    shell's user, who is also the approver that the inventory names for this user. A shell does not know the Airflow
    name of its approver, so a starter's name that is no approver's id cannot be compared there.
    """
    if not ports.cluster.four_eyes:
        return
    events = ports.run.events()
    began = events_of(events, Begun)
    for begun in began:
        if begun.run_type != _BY_HAND or begun.clears:
            of_type = f"is of the type {begun.run_type}" if begun.run_type else "is of an unknown type"
            why = "was cleared and planned again" if begun.clears else of_type
            raise RefusedError(
                f"Run {ports.run.number} {why}, so {begun.triggered_by or 'its user'} did not start it, and cluster "
                f"{ports.cluster.name} requires four eyes.",
                remedy="Trigger a new run by hand.",
            )
    if began and len(events_of(events, Planned)) > 1:  # of a clear that Airflow does not count, too
        raise RefusedError(
            f"Run {ports.run.number} was planned again, so {began[0].triggered_by or 'its user'} did not start this "
            f"plan, and cluster {ports.cluster.name} requires four eyes.",
            remedy="Trigger a new run by hand.",
        )
    starters = _starters(ports.cluster, events)
    if not starters:
        raise RefusedError(
            f"Run {ports.run.number} has no record of who started it, and cluster {ports.cluster.name} requires four "
            "eyes.",
            remedy="Start a new run as a named user.",
        )
    if starters & _names(by, responder):
        raise RefusedError(
            f"{by} started run {ports.run.number} and cannot approve it: cluster {ports.cluster.name} requires four "
            "eyes.",
            remedy="Have another approver answer.",
        )
    named = [begun.triggered_by for begun in began if begun.triggered_by not in ports.cluster.approvers]
    if named and (responder is None or responder.channel is not Channel.AIRFLOW):
        raise RefusedError(
            f"The starter of run {ports.run.number}, {named[0] or '(unknown)'}, is known by name only, so {by} can be "
            f"the same user, and cluster {ports.cluster.name} requires four eyes.",
            remedy="Answer in Airflow. In a run that was taken over, roll back, or start a new run at a shell.",
        )


def refuse_answer(cluster: ClusterSpec, by: str, responder: Responder | None, of_run: Sequence[str] = ()) -> None:
    """Raise RefusedError for an answer in a name that is not an approver's, or that a shell only claims.

    `of_run`: the approvers that a run named in its form, which narrow the inventory's list.
    """
    refuse_unlisted_approver(cluster, by, of_run)
    refuse_claimed_name(cluster, by, responder)


def refuse_claimed_name(cluster: ClusterSpec, by: str, responder: Responder | None) -> None:
    """Raise RefusedError for a name at a shell that the inventory does not give to the operating system's user.

    Without four eyes and without `shell_approvers` every name counts.
    """
    if responder is not None and responder.channel is Channel.AIRFLOW:
        return
    if not (cluster.four_eyes or cluster.shell_approvers):
        return
    user = "" if responder is None else responder.user
    known = cluster.shell_approvers.get(user)
    if known is None or known != by.strip():
        why = "cluster {0} requires four eyes" if cluster.four_eyes else "cluster {0} lists its shell_approvers"
        raise RefusedError(
            f"At a shell, {by} is a name that the user {user or '(unknown)'} claims, and {why.format(cluster.name)}.",
            remedy="Answer in Airflow, or as the approver whom the inventory names for this user in shell_approvers"
            f" ({f'{user}: {known}' if known else 'it names none for this user'}).",
        )


def refuse_rejected(ports: ReadPorts, what: ApprovalOf) -> None:
    """Raise RefusedError if the inventory requires four eyes and an approver rejected a plan of the run before."""
    if not ports.cluster.four_eyes or what not in _NEEDS_THE_PLAN:
        return
    for given in events_of(ports.run.events(), Approval):
        if given.decision == Decision.REJECTED and given.what in {what, ApprovalOf.ROLL}:
            raise RefusedError(
                f"{given.by} rejected the {given.what.noun()} of run {ports.run.number}, and cluster "
                f"{ports.cluster.name} requires four eyes.",
                remedy="Start a new run. Another user then approves it.",
            )


def _starters(cluster: ClusterSpec, events: Sequence[Event]) -> set[str]:
    starters = {begun.triggered_by for begun in events_of(events, Begun)}
    users = {started.starter.user for started in events_of(events, StartedAtShell)}
    starters |= users | {cluster.shell_approvers.get(user, "") for user in users}
    return starters - {""}


def _names(by: str, responder: Responder | None) -> set[str]:
    """Return every name of the approver."""
    names = {by.strip()}
    if responder is not None:
        names |= {responder.name or by.strip(), *((responder.user,) if responder.channel is Channel.SHELL else ())}
    return names


def ask(ports: ClusterPorts, answers: Answers, question: Question, *, task_id: str = "") -> Answer | None:
    """Ask. While a terminal waits, the run history has the request, and the run keeps the lock."""
    terminal = answers.terminal
    if terminal is None:
        return answers.ask(question)
    subject = question.subject or f"Approve the {question.what.noun()} of cluster {ports.cluster.name}?"
    asked = Asked(
        what=question.what,
        task_id=task_id,
        record_id="",
        text=f"{subject}\n\n{question.body}",
        options=tuple(option.label for option in question.options),
        users=(terminal.approver,),
        terminal=terminal.at,
    )
    ports.run.record(asked)
    answer = None
    try:
        with keep_lock(ports):
            answer = answers.ask(question)
        return answer
    finally:
        if answer is None:
            ports.run.record(AskingEnded())


def record_approval(
    ports: ClusterPorts,
    what: ApprovalOf,
    by: str,
    decision: Decision,
    reason: str,
    *,
    responder: Responder | None = None,
    text: str = "",
    of_run: Sequence[str] = (),
    accepted: Sequence[str] = (),
    doubts: Sequence[str] = (),
) -> Approval:
    """Record the decision of an approver on the run's plan, with the shown text.

    `accepted`: what can hide a blocker and options named instead of a reader.
    `doubts`: those about logs of nodes that the text lists and the decision accepts.
    `of_run`: the approvers that a run named in its form; empty if it named none.

    Raises UserError without a name or a reason, RefusedError if the inventory does not allow the approver, and when
    the plan has blockers (they cannot be approved away) and the decision approves; LockBrokenError for an answer that
    comes after the stop of the run: it would continue what the operator has stopped.
    """
    if not by.strip():
        raise UserError(f"The approval of the {what.noun()} has no name.", remedy="Add the name of the approver.")
    if not reason.strip():
        sentence = f"The approval of the {what.noun()} by {by} has no reason."
        raise UserError(sentence, remedy="Add the reason as a sentence.")
    refuse_answer(ports.cluster, by, responder, of_run)
    refuse_fenced(ports)
    if decision == Decision.APPROVED and what in FOUR_EYES:
        refuse_starter(ports, by, responder)
    plan = ports.run.load_plan()
    if decision == Decision.APPROVED and what in _NEEDS_THE_PLAN:
        refuse_blockers(plan)
        refuse_rejected(ports, what)
    approval = Approval(
        what=what,
        by=by.strip(),
        decision=decision,
        reason=reason.strip(),
        plan_hash=plan.hash,
        responder=responder,
        text=text,
        text_sha256=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() if text else "",
        accepted_unknowns=tuple(accepted),
        doubts=tuple(doubts),
    )
    ports.run.record(approval)
    return approval


def refuse_unlisted_approver(cluster: ClusterSpec, by: str, of_run: Sequence[str] = ()) -> None:
    """Raise RefusedError for an Airflow user id, or a name given on a command line, that cannot approve.

    An inventory that names no approvers allows everybody whom the channel lets answer. `of_run`: the approvers that a
    run named in its form, which narrow the inventory's list.
    """
    for listed, where in ((cluster.approvers, "The inventory"), (of_run, "The run")):
        if listed and by.strip() not in listed:
            raise RefusedError(
                f"{by} is not an approver of cluster {cluster.name}.", remedy=f"{where} lists {', '.join(listed)}."
            )


def refuse_blockers(plan: Plan) -> None:
    """Raise RefusedError with the plan's blockers, if it has any."""
    if plan.blockers:
        groups = group_by_kind(plan.blockers)
        raise RefusedError(
            f"The plan has {count(len(plan.blockers), 'blocker')}, which cannot be approved: "
            f"{'; '.join(f'{group.code} {group.subjects}: {group.sentence}' for group in groups)}",
            remedy=" ".join(dict.fromkeys(group.remedy for group in groups)),
        )


def require_approval(run: Run, what: ApprovalOf) -> Approval:
    """Return the newest decision on `what` for this plan; raise RefusedError unless it approves and is still valid.

    An approval is invalid after a new blocker, and superseded after a decision for the opposite. It never bypasses
    blockers: the plan's hash does not include findings, so the plan can have new ones.
    """
    events = run.history.events()
    given = newest_decision(events, what, run.plan.hash)
    if given is None:
        raise RefusedError(
            f"The {what.noun(run.plan.direction)} of run {run.ports.run.number} on cluster {run.plan.cluster} is not "
            "approved.",
            remedy="Ask an approver to approve it first.",
        )
    if given.decision != Decision.APPROVED:
        raise RefusedError(
            f"{given.by} answered '{given.decision}' to the {what.noun(run.plan.direction)} of run "
            f"{run.ports.run.number}: {given.reason}",
            remedy="Solve the cause, then request the approval again.",
        )
    refuse_unproved(run.ports, given)
    if what in _NEEDS_THE_PLAN:
        refuse_blockers(run.plan)
    if why := find_invalidity(events, given):
        raise RefusedError(
            f"The approval of the {what.noun(run.plan.direction)} by {given.by} is {why}.",
            remedy="Ask an approver to approve it again (in a DAG: clear its approval and all downstream tasks).",
        )
    return given


def approved_events(run: ReadRun, *of: ApprovalOf) -> Sequence[Event]:
    """Return the history as the newest approver of one `of` these has read it; empty without an approval.

    An action takes from it every fact that the text of the approval lists: what a repeated check or report records
    later is not approved.
    """
    return events_read(run.history.events(), run.plan.hash, *of)


def refuse_unproved(ports: ClusterPorts, approval: Approval) -> None:
    """Check before the action that the approver is still allowed and that the answer came by the run's channel."""
    refuse_answer(ports.cluster, approval.by, approval.responder)
    if approval.what in FOUR_EYES:
        refuse_starter(ports, approval.by, approval.responder)
    refuse_rejected(ports, approval.what)
    events, given = ports.run.events(), approval.responder
    if ports.confirm_approval is None and (not has(events, Begun) or has(events, TakenOver)):
        return  # at a shell: its own run, or one that an approver took over
    if given is None or given.channel is not Channel.AIRFLOW or not given.record_id:
        raise RefusedError(
            f"The approval of the {approval.what.noun()} by {approval.by} was not given in Airflow, but a DAG runs it.",
            remedy="Clear the approval's task with everything after it, and answer in Airflow.",
        )
    if ports.confirm_approval is None:
        raise RefusedError(
            f"{approval.by} approved the {approval.what.noun()} in Airflow, and a shell cannot compare it there.",
            remedy="Continue the run in Airflow, or take it over.",
        )
    ports.confirm_approval(approval)  # in a task, whatever the history says about who owns the run


def accept_doubts(
    ports: ClusterPorts,
    doubts: Sequence[str],
    by: str,
    reason: str,
    *,
    responder: Responder | None = None,
    text: str = "",
    of_run: Sequence[str] = (),
) -> Approval:
    """Record that an approver accepts these doubts about logs of nodes. Raises as `record_approval`.

    `text`: what was shown; it lists them.
    """
    if not doubts:
        raise RefusedError(
            "There is nothing to accept: what the failed gate waits for is not a doubt about a node's log.",
            remedy="Read what the gate waits for and fix it, then wait on or retry the node.",
        )
    return record_approval(
        ports,
        ApprovalOf.NODE_LOG,
        by,
        Decision.APPROVED,
        reason,
        responder=responder,
        text=text,
        of_run=of_run,
        doubts=doubts,
    )


def accepted_doubts(run: Run) -> Mapping[str, str]:
    """Return doubt → who accepted it and why, for a sentence.

    The only place that reads acceptances: a gate that rests on one proves it at each check, as an action proves its
    approval. One that is not proved does not count, and the gate waits.
    """
    found = find_acceptances(run.history.events(), run.plan.hash)
    proved = {id(given) for given in {id(one): one for one in found.values()}.values() if _is_proved(run.ports, given)}
    return {doubt: f"{given.by} ({given.reason})" for doubt, given in found.items() if id(given) in proved}


def _is_proved(ports: ClusterPorts, given: Approval) -> bool:
    try:
        refuse_unproved(ports, given)
    except (RefusedError, TransientError):
        return False
    return True


def take_over_run(ports: ClusterPorts, by: str | None, responder: Responder, *, wanted: bool) -> None:
    """Record that `by` takes the run over from its DAG; does nothing for a run of the shell.

    Repeating it records it again. Raises RefusedError for a DAG's run without `wanted` or without a name, and where
    the inventory does not allow the name, or requires more than the claim of a shell's user.
    """
    dag_id = find_dag_id(ports.run.events())
    if not dag_id:
        return
    if not (wanted and by):
        raise RefusedError(
            f"Run {ports.run.number} belongs to the DAG {dag_id}.",
            remedy="Continue it in Airflow. If Airflow cannot continue it, an approver can take it over: add "
            "--take-over --as NAME.",
        )
    refuse_answer(ports.cluster, by, responder)
    ports.run.record(TakenOver(by=by.strip(), dag_id=dag_id, responder=responder))


def renew_invalid_approval(run: Run, decision: Approval) -> None:
    """Record that an approver approves the plan again after a blocker made the approval invalid.

    So it is after Airflow did not confirm the approval, because a later answer to the same task replaced its record. An
    approval that was never given, was rejected or is superseded stays so. Blockers are checked again before any change.
    """
    events = run.history.events()
    given = newest_decision(events, ApprovalOf.ROLL, run.plan.hash)
    if given is None or given.decision != Decision.APPROVED:
        return
    if is_invalid(events, given) or is_refuted(events, given):
        record_approval(
            run.ports,
            ApprovalOf.ROLL,
            decision.by,
            Decision.APPROVED,
            decision.reason,
            responder=decision.responder,
            text=decision.text,
        )


def shown_once(run: Run, name: str, compute: Callable[[], dict[str, Any]]) -> Mapping[str, Any]:
    """Return the facts that an approval shows: computed once per plan, so that a repeated request has the same text."""
    kept = run.history.attachment(name)
    if kept is None or kept["plan"] != run.plan.hash:
        kept = {"plan": run.plan.hash, **compute()}
        run.history.attach(name, kept)
    return kept


def expected_outage_s(ports: ReadPorts) -> tuple[float, float] | None:
    """Return the seconds shown in the approval: if every controller stops by itself, and if one must be killed."""
    kept = ports.run.attachment(OUTAGE_FACTS)
    return None if kept is None else (kept["outage_s"], kept["outage_at_most_s"])
