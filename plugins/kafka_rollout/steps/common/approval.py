"""Approvals: who approved what, when and why. DAG and command line use the same records."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from kafka_rollout.base.durations import duration
from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.base.findings import Finding, Verdict, group_by_kind
from kafka_rollout.base.outside_text import REMEDY_LIMIT, escape_markdown, quote_markdown
from kafka_rollout.base.wording import count, nodes
from kafka_rollout.model.plan import FeatureChange, NodeStep, Plan, ReleaseStep, RunTerms, Undo
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.batches import NODE_S, expected_s
from kafka_rollout.planning.lowering import LevelUndo
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import (
    OF_ROLLS,
    Approval,
    ApprovalOf,
    Asked,
    AskingEnded,
    Begun,
    Channel,
    Decision,
    Event,
    Responder,
    TakenOver,
    has,
)
from kafka_rollout.run.ports import Answer, Answers, Question
from kafka_rollout.run.projections.approvals import find_invalidity, is_invalid, newest_decision
from kafka_rollout.run.projections.runs import find_dag_id
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.four_eyes import FOUR_EYES, refuse_claimed_name, refuse_starter
from kafka_rollout.steps.common.lock import keep_lock

_LISTED_NODES = 40  # of a release step; more are shown with ranges
_LISTED_RUNS = 60


def ask(ports: ClusterPorts, answers: Answers, question: Question, *, task_id: str = "") -> Answer | None:
    """Ask. While a terminal waits, the run history has the request, and the run keeps the lock."""
    terminal = answers.terminal
    if terminal is None:
        return answers.ask(question)
    subject = question.subject or f"Approve the {question.what.noun()} of cluster {ports.cluster.name}?"
    asked = Asked(
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
) -> Approval:
    """Record the decision of an approver on the run's plan, with the shown text.

    `of_run`: the approvers that a run named in its form; empty if it named none.

    Raises UserError without a name or a reason, RefusedError if the inventory does not allow the approver, and when
    the plan has blockers (they cannot be approved away) and the decision approves.
    """
    _require_name_and_reason(what, by, reason)
    refuse_unlisted_approver(ports.cluster, by, of_run)
    if decision == Decision.APPROVED and what in FOUR_EYES:
        refuse_starter(ports, by, responder)
    plan = ports.run.load_plan()
    if decision == Decision.APPROVED and what in {ApprovalOf.ROLL, ApprovalOf.FINALIZE}:
        refuse_blockers(plan)
    approval = Approval(
        what=what,
        by=by.strip(),
        decision=decision,
        reason=reason.strip(),
        plan_hash=plan.hash,
        responder=responder,
        text=text,
        text_sha256=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() if text else "",
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


def _require_name_and_reason(what: ApprovalOf, by: str, reason: str) -> None:
    if not by.strip():
        raise UserError(f"The approval of the {what.noun()} has no name.", remedy="Add the name of the approver.")
    if not reason.strip():
        raise UserError(
            f"The approval of the {what.noun()} by {by} has no reason.", remedy="Add the reason as a sentence."
        )


def refuse_blockers(plan: Plan) -> None:
    """Raise RefusedError with the plan's blockers, if it has any."""
    if plan.blockers:
        groups = group_by_kind(plan.blockers)
        raise RefusedError(
            f"The plan has {len(plan.blockers)} blocker(s), which cannot be approved: "
            f"{'; '.join(f'{group.code} {group.subjects}: {group.sentence}' for group in groups)}",
            remedy=" ".join(dict.fromkeys(group.remedy for group in groups)),
        )


def require_approval(ports: ClusterPorts, plan: Plan, what: ApprovalOf) -> Approval:
    """Return the newest decision on `what` for this plan; raise RefusedError unless it approves and is still valid.

    An approval is invalid after a new blocker, and superseded after a decision for the opposite. It never bypasses
    blockers: the plan's hash does not include findings, so the plan can have new ones.
    """
    events = ports.run.events()
    given = newest_decision(events, what, plan.hash)
    if given is None:
        raise RefusedError(
            f"The {what.noun(plan.direction)} of run {ports.run_id} on cluster {plan.cluster} is not approved.",
            remedy="Ask an approver to approve it first.",
        )
    if given.decision != Decision.APPROVED:
        raise RefusedError(
            f"{given.by} answered '{given.decision}' to the {what.noun(plan.direction)} of run {ports.run_id}: "
            f"{given.reason}",
            remedy="Solve the cause, then request the approval again.",
        )
    refuse_unproved(ports, given)
    if what in {ApprovalOf.ROLL, ApprovalOf.FINALIZE}:
        refuse_blockers(plan)
    if why := find_invalidity(events, given):
        raise RefusedError(
            f"The approval of the {what.noun(plan.direction)} by {given.by} is {why}.",
            remedy="Ask an approver to approve it again (in a DAG: clear its approval and all downstream tasks).",
        )
    return given


def refuse_unproved(ports: ClusterPorts, approval: Approval) -> None:
    """Check before the action that the approver is still allowed and that the answer came by the run's channel."""
    refuse_unlisted_approver(ports.cluster, approval.by)
    if approval.what in FOUR_EYES:
        refuse_starter(ports, approval.by, approval.responder)
    owner = run_owner(ports.run.events())
    given = approval.responder
    if owner is Channel.AIRFLOW and (given is None or given.channel is not Channel.AIRFLOW or not given.record_id):
        raise RefusedError(
            f"The approval of the {approval.what.noun()} by {approval.by} was not given in Airflow, but a DAG runs it.",
            remedy="Clear the approval's task with everything after it, and answer in Airflow.",
        )
    if owner is Channel.AIRFLOW:
        ports.confirm_approval(approval)


def run_owner(events: Sequence[Event]) -> Channel:
    """Return the channel of the run's answers: Airflow for a DAG's run, until an approver takes it over."""
    return Channel.AIRFLOW if has(events, Begun) and not has(events, TakenOver) else Channel.SHELL


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
            f"Run {ports.run_id} belongs to the DAG {dag_id}.",
            remedy="Continue it in Airflow. If Airflow cannot continue it, an approver can take it over: add "
            "--take-over --as NAME.",
        )
    refuse_unlisted_approver(ports.cluster, by)
    refuse_claimed_name(ports.cluster, by, responder)
    ports.run.record(TakenOver(by=by.strip(), dag_id=dag_id, responder=responder))


def renew_invalid_approvals(ports: ClusterPorts, plan: Plan, decision: Approval) -> None:
    """Record that an approver approves again after a blocker made the approval invalid.

    An approval that was never given, was rejected or is superseded stays so. Blockers are checked again before any
    change.
    """
    for what in OF_ROLLS:
        events = ports.run.events()
        given = newest_decision(events, what, plan.hash)
        if given is not None and given.decision == Decision.APPROVED and is_invalid(events, given):
            record_approval(
                ports,
                what,
                decision.by,
                Decision.APPROVED,
                decision.reason,
                responder=decision.responder,
                text=decision.text,
            )


OUTAGE_FACTS = "offline/facts.json"


def shown_once(ports: ClusterPorts, plan: Plan, name: str, compute: Callable[[], dict[str, Any]]) -> Mapping[str, Any]:
    """Return the facts that an approval shows: computed once per plan, so that a repeated request has the same text."""
    kept = ports.run.attachment(name)
    if kept is None or kept["plan"] != plan.hash:
        kept = {"plan": plan.hash, **compute()}
        ports.run.attach(name, kept)
    return kept


def expected_outage_s(ports: ClusterPorts) -> tuple[float, float] | None:
    """Return the seconds shown in the approval: if every controller stops by itself, and if one must be killed."""
    kept = ports.run.attachment(OUTAGE_FACTS)
    return None if kept is None else (kept["outage_s"], kept["outage_at_most_s"])


def approval_body(
    plan: Plan,
    verdict: Verdict | None = None,
    *,
    what: ApprovalOf = ApprovalOf.ROLL,
    scan: str = "",
    undos: Iterable[LevelUndo] = (),
) -> str:
    """Return the Markdown text of an approval: the plan, its findings, and for `finalize` the loss of each feature.

    `undos`: how each level can be undone. `scan`: a sentence with the verdict of the coordinator-log scan. The text is
    read in a narrow panel next to the graph, so it uses lists instead of wide tables, the most important part first.
    """
    findings = verdict.findings if verdict is not None else plan.findings
    parts = [f"**{plan.direction.value.capitalize()} of cluster {plan.cluster}: {plan.way}**"]
    if what == ApprovalOf.FINALIZE:
        if plan.unsafe:
            parts.append("Levels are lowered with **UNSAFE_DOWNGRADE**: the metadata in the warnings is lost.")
        parts += [heading("Levels to finalize"), *features_in_full(plan.feature_changes, undos), *defaults_part(plan)]
        if scan:
            parts += [heading("Coordinator logs"), escape_markdown(scan)]
        parts += findings_part(findings)
    else:
        parts += [
            *findings_part(findings),
            *unavailability_part(plan),
            *release_steps_part(plan),
            *terms_part(plan),
            *config_part(plan),
            *_features_in_short(plan.feature_changes),
            *defaults_part(plan),
        ]
    when = "each stop" if plan.release_steps else "the first change"
    parts += ["---", f"Plan `{plan.hash[:12]}`. Every finding is checked again before {when}."]
    return "\n\n".join(parts)


def canary_body(plan: Plan) -> str:
    """Return the Markdown text of the approval after the first node."""
    release_step = plan.release_steps[0]
    rest = ", ".join(node_step.name for node_step in release_step.order[1:])
    was = (
        f"was restarted on {release_step.to_release}"
        if release_step.restarts
        else f"was moved from {release_step.from_release} to {release_step.to_release}"
    )
    return f"**{release_step.order[0].name}** {was} and its gate passed.\n\nRemaining nodes: {rest or 'none'}."


def first_batch_body(plan: Plan) -> str:
    """Return the Markdown text of the approval after the first batch of several nodes."""
    release_step = plan.release_steps[0]
    at = release_step.first_batch or 0
    names = {node_step.node_id: node_step.name for node_step in release_step.order}
    batch = ", ".join(names[node_id] for node_id in release_step.batches[at].node_ids)
    left = release_step.batches[at + 1 :]
    rest = f"{count(sum(len(one.node_ids) for one in left), 'node')} in {count(len(left), 'batch', 'batches')}"
    return (
        f"The first batch ({batch}) restarted together on {release_step.to_release}, and all its gates passed.\n\n"
        f"Remaining: {rest}."
    )


def findings_part(findings: tuple[Finding, ...]) -> list[str]:
    if not findings:
        return [heading("Findings: none")]
    groups = group_by_kind(findings)
    lines = [
        f"- **{group.severity.value}** {quote_markdown(group.code)} {escape_markdown(group.subjects)}: "
        f"{escape_markdown(group.sentence)}"
        + (f" **What to do:** {escape_markdown(group.remedy, limit=REMEDY_LIMIT)}" if group.remedy else "")
        for group in groups
    ]
    if len(groups) == len(findings):
        return [heading(f"Findings: {len(findings)}"), "\n".join(lines)]
    kinds = heading(f"Findings: {len(findings):,}, of {count(len(groups), 'kind')}")
    return [kinds, "\n".join(lines), "The report of the run and `kafka-rollout plan --json` list every object."]


def release_steps_part(plan: Plan) -> list[str]:
    if not plan.release_steps:
        return [f"Every node already runs {plan.target}: no node is restarted."]
    parts = []
    for release_step in plan.release_steps:
        order = "\n".join(_order(release_step.order))
        way = f"{release_step.from_release} → {release_step.to_release}"
        if release_step.restarts:
            way = f"Restart on {release_step.to_release}"
        if plan.offline:
            parts += [heading(f"{way}, all nodes at once"), escape_markdown(release_step.reason)]
        elif release_step.batches:
            order = "\n".join(_batches(plan, release_step))
            title = heading(f"{way}, in {len(release_step.batches):,} batches")
            parts += [title, order, escape_markdown(release_step.reason)]
        else:
            parts += [heading(f"{way}, one node at a time"), order, escape_markdown(release_step.reason)]
    return parts


def _order(steps: Sequence[NodeStep]) -> Iterator[str]:
    """Yield the lines of the order; of more than _LISTED_NODES nodes, one line for nodes with consecutive ids."""
    if len(steps) <= _LISTED_NODES:
        yield from (f"{place}. {_node(step)}" for place, step in enumerate(steps, start=1))
        return
    lines: list[str] = []
    place = 1
    for _, run in groupby(enumerate(steps), key=lambda item: (item[1].section, item[1].node_id - item[0])):
        some = [step for _, step in run]
        last = place + len(some) - 1
        if len(some) < 3 or any(step.active_controller for step in some):
            lines += [f"- {number:,}: {_node(step)}" for number, step in enumerate(some, start=place)]
        else:
            first, end = some[0], some[-1]
            lines.append(f"- {place:,} to {last:,}: {first.name} to {end.name} ({first.node_id} to {end.node_id})")
        place = last + 1
    yield from lines[:_LISTED_RUNS]
    if len(lines) > _LISTED_RUNS:
        yield f"- … and {len(lines) - _LISTED_RUNS:,} more lines; `kafka-rollout plan --json` prints the whole order"


def _batches(plan: Plan, release_step: ReleaseStep) -> Iterator[str]:
    """Yield a line for each batch with the reason why it ends, and the expected duration.

    Batches of one node with the same reason, one after the other, are one line if there are many.
    """
    steps = {step.node_id: step for step in release_step.order}
    lines: list[str] = []
    first = 1
    many = len(release_step.order) > _LISTED_NODES
    for (alone, ends), found in groupby(release_step.batches, key=lambda one: (len(one.node_ids) == 1, one.ends)):
        some = list(found)
        if many and alone and len(some) > 2:
            ids = [one.node_ids[0] for one in some]
            lines.append(f"- {first:,} to {first + len(some) - 1:,}: {nodes(ids)}, each alone: {escape_markdown(ends)}")
        else:
            for number, one in enumerate(some, start=first):
                names = nodes(one.node_ids) if many else ", ".join(_node(steps[node_id]) for node_id in one.node_ids)
                lines.append(f"- {number:,}: {names}. Ends here: {escape_markdown(ends)}")
        first += len(some)
    yield from lines[:_LISTED_RUNS]
    if len(lines) > _LISTED_RUNS:
        yield f"- … and {len(lines) - _LISTED_RUNS:,} more lines; `kafka-rollout plan --json` prints all batches"
    soak_s = plan.terms.soak_s if plan.terms is not None else 0.0
    batches, single = expected_s(len(release_step.batches), soak_s), expected_s(len(release_step.order), soak_s)
    yield (
        f"- Expected duration: {duration(batches)}, one node at a time {duration(single)} "
        f"({NODE_S:g} s for each restart, soak {soak_s:g} s)"
    )


def _node(step: NodeStep) -> str:
    return f"{step.name} ({step.node_id}{', active controller' if step.active_controller else ''})"


def terms_part(plan: Plan) -> list[str]:
    """Return how the run carries out the plan, as its starter chose it; nothing if it restarts no node."""
    if plan.terms is None or not plan.release_steps:
        return []
    terms = plan.terms
    gate = f"{terms.checks} consecutive {'check' if terms.checks == 1 else 'checks'} after each start"
    soak = f"then a soak of {terms.soak_s:g} s" if terms.soak_s else "**no soak** after that"
    most = terms.max_under_replicated
    lines = [
        f"- Gates: {gate}, {soak}. The gate timeout is {terms.gate_timeout_s:g} s.",
        *(
            []
            if most is None
            else [f"- Limit before each stop: {count(most, 'under-replicated partition')} of other nodes"]
        ),
        *(
            [f"- Conditions from outside that the gates do **not** check: {', '.join(terms.skip_conditions)}"]
            if terms.skip_conditions
            else []
        ),
        *([f"- Pause for an approver after each {_after(terms.pause_after)}"] if terms.pause_after else []),
        *window_lines(terms),
        f"- Rehearsal on a copy requested: {_yes(terms.rehearse)}",
        f"- Approval after the first node: {_yes(terms.canary)}",
        f"- Test traffic during the run: {_yes(terms.traffic)}",
    ]
    if plan.has_batches:
        lines.insert(3, f"- Approval after the first batch: {_yes(terms.first_batch)}")
    return [heading("How the run proceeds"), "\n".join(lines)]


def _after(pause_after: str) -> str:
    return f"{pause_after} nodes" if pause_after.isdecimal() else pause_after


def window_lines(terms: RunTerms) -> list[str]:
    """Return when nodes can be stopped; nothing if the run has no window and no freeze days."""
    if not terms.window and not terms.freeze_days:
        return []
    window = (
        f"- Nodes are stopped only in the maintenance window {quote_markdown(terms.window)}." if terms.window else ""
    )
    days = quote_markdown(", ".join(terms.freeze_days))
    freeze = f"- No node is stopped on the freeze days {days}." if terms.freeze_days else ""
    return [*filter(None, (window, freeze)), "- A rollback waits neither for the window nor for the end of the freeze."]


def _yes(chosen: bool) -> str:
    return "yes" if chosen else "**no**"


def unavailability_part(plan: Plan) -> list[str]:
    """Return what the approver accepts with the plan; nothing if the run accepts no unavailable topic."""
    if not plan.accept_unavailable:
        return []
    listed = ", ".join(quote_markdown(pattern) for pattern in plan.accept_unavailable)
    return [
        heading("Unavailable topics that you accept"),
        f"{listed}. While a node restarts, their partitions can have no leader, or too few replicas in sync. Then "
        "acks=all fails, and from 3.7.0 on consumers get no new records, whatever their acks. The gates before the "
        "stops do not check them.",
    ]


def config_part(plan: Plan) -> list[str]:
    if not plan.config_changes:
        return []
    alike: dict[tuple[Release, str, str | None, str], list[int]] = {}
    for change in plan.config_changes:
        alike.setdefault((change.release, change.key, change.value, change.reason), []).append(change.node_id)
    lines = [
        f"- {nodes(ids)} on {release}: {quote_markdown(key)} "
        f"{f'= {quote_markdown(value)}' if value else 'is removed'}. "
        f"{escape_markdown(reason)}"
        for (release, key, value, reason), ids in alike.items()
    ]
    return [heading("Configuration changes"), "\n".join(lines)]


def defaults_part(plan: Plan) -> list[str]:
    """Return the dynamic configuration that changes with the feature levels."""
    if not plan.default_changes:
        return []
    lines = []
    for change in plan.default_changes:
        what = f"{quote_markdown(change.key)} = {quote_markdown(change.after)}" if change.after is not None else ""
        what = what or f"{quote_markdown(change.key)} (now {quote_markdown(str(change.before))}) is deleted"
        where = "all brokers (cluster-wide default)" if change.node_id is None else f"node {change.node_id}"
        who = "set by this run before the levels" if change.by_run else "by the active controller, with the levels"
        lines.append(f"- {where}: {what}, {who}")
    return [heading("Dynamic configuration that changes with the levels"), "\n".join(lines)]


def _features_in_short(changes: tuple[FeatureChange, ...]) -> list[str]:
    if not changes:
        return []
    lines = []
    for undo in (Undo.IMPOSSIBLE, Undo.UNKNOWN, Undo.POSSIBLE):
        levels = [f"{escape_markdown(c.feature)} {c.current} → {c.target}" for c in changes if c.undo == undo]
        if levels:
            lines.append(f"- undo by the controller **{undo.value}**: {', '.join(levels)}")
    parts = [heading("Levels to finalize later, with a separate approval"), "\n".join(lines)]
    if any(c.undo is not Undo.POSSIBLE for c in changes):
        parts.append(
            "The approval to finalize shows if a live or an offline downgrade can undo what the controller cannot undo."
        )
    return parts


def features_in_full(changes: tuple[FeatureChange, ...], undos: Iterable[LevelUndo] = ()) -> list[str]:
    """Return each level with its loss. Without `undos`, whether the controller can undo it."""
    if not changes:
        return ["No feature level is finalized."]
    found = {undo.feature: undo for undo in undos}

    def undo(change: FeatureChange) -> str:
        if change.feature in found:
            return f"**{found[change.feature].method}**. {escape_markdown(found[change.feature].reason)}"
        return f"**{change.undo.value}**. {escape_markdown(change.undo_source)}"

    return [
        "\n".join(
            [
                f"#### {escape_markdown(c.feature)} {c.current} → {c.target}",
                "",
                f"- Undo: {undo(c)}",
                f"- Loss on undo: {escape_markdown(c.loss)}",
            ]
        )
        for c in changes
    ]


def heading(text: str) -> str:
    return f"### {text}"
