"""Approval requests of the procedures: subject, text, and when no approval is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from kafka_rollout.base.durations import duration
from kafka_rollout.base.findings import Finding, Verdict, find_new, group_by_kind
from kafka_rollout.base.internal_topics import METADATA_TOPIC
from kafka_rollout.base.outside_text import REMEDY_LIMIT, escape_markdown, is_listed, listed_line, quote_markdown
from kafka_rollout.base.wording import count, nodes
from kafka_rollout.control.approval import refuse_blockers, shown_once
from kafka_rollout.feature_updates import levels
from kafka_rollout.feature_updates.update import requires_approval
from kafka_rollout.gates.control import PAUSES_ONCE
from kafka_rollout.lowering.outage_facts import shown_facts, shown_level_undos, shown_live_facts
from kafka_rollout.model.plan import (
    FeatureChange,
    Lowering,
    NodeStep,
    Plan,
    ReleaseStep,
    RunTerms,
    Undo,
    accepts_no_quorum,
)
from kafka_rollout.model.topology import ALWAYS
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import ReadRun, Run
from kafka_rollout.planning.batches import NODE_S, expected_s
from kafka_rollout.planning.findings.unreachable import SNAPSHOT_WAIT
from kafka_rollout.planning.lowering import LevelUndo
from kafka_rollout.preparation import frozen_plan, state_comparison
from kafka_rollout.preparation.earlier_runs import raises_level, record_earlier_runs
from kafka_rollout.preparation.lost_metadata import LOSSES
from kafka_rollout.preparation.pinned_min_isr import refuse_changed_min_isr
from kafka_rollout.preparation.proved_roll import refuse_unproved_nodes
from kafka_rollout.procedure.step import ApprovalRequest, Events, StepCall
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.roll.stop import unread_of_rollback
from kafka_rollout.run.events import ApprovalOf, newest
from kafka_rollout.run.projections.approvals import find_doubts_of_nodes, find_doubts_of_runs, find_doubts_of_traffic
from kafka_rollout.run.projections.nodes import has_stopped_nodes
from kafka_rollout.run.projections.observations import planned_trims, unproved_logs
from kafka_rollout.run.projections.offline import stop_has_begun
from kafka_rollout.run.step_events import ComparedAfter, ScanEvaluated

_SHOWN_OF_KIND = 40
_LISTED_NODES = 40  # of a release step; more are shown with ranges
_LISTED_RUNS = 60
NODE_LOGS = "node-logs"  # what `--accept-unknown` names to accept doubts about the logs of running nodes unread
TEST_TRAFFIC = "test-traffic"  # the same of lost or unknown test records
EARLIER_RUNS = "earlier-runs"  # the same of what earlier runs left open


def levels_body(run: Run, support: Verdict) -> str:
    """Return the Markdown text: losses first, then the levels, then the findings."""
    parts = [
        (
            f"**Downgrade of cluster {run.plan.cluster}: {run.plan.source} → {run.plan.target}. First the feature "
            "levels are lowered.**"
        ),
        *_type(run.plan),
        *losses_part(run),
        heading("Levels to lower, metadata.version last"),
        *features_in_full(run.plan.online_changes),
        *_later(run.plan),
        *findings_part(run.plan, _all(run.plan, support.findings)),
        _foot(run.plan, "The binary is replaced after a separate approval. Until then every node runs unchanged."),
    ]
    return "\n\n".join(parts)


def roll_body(run: Run, facts: Sequence[str] = ()) -> str:
    """Return the Markdown text: trims, order, findings.

    `facts`: of an offline or a live downgrade, with its losses.
    """
    special = (
        [*_outage(run.plan, facts), *losses_part(run)]
        if run.plan.lowering is not Lowering.ONLINE
        else _trims(run.ports)
    )
    traffic = _doubts_of_traffic(run.history.events())
    return "\n\n".join([*_title(run.plan), *traffic, *special, *_way(run.plan)])


def plan_body(run: Run, facts: Sequence[str] = ()) -> str:
    """Return the Markdown text of a dry run.

    It has no trims, because they are known only after the levels are lowered.
    """
    levels = [heading("Levels to lower, metadata.version last"), *features_in_full(run.plan.feature_changes)]
    outage = _outage(run.plan, facts) if run.plan.lowering is not Lowering.ONLINE else []
    return "\n\n".join([*_title(run.plan), *levels, *outage, *losses_part(run), *_way(run.plan)])


def _title(plan: Plan) -> list[str]:
    return [f"**Downgrade of cluster {plan.cluster}: {plan.source} → {plan.target}**", *_type(plan)]


def _outage(plan: Plan, facts: Sequence[str]) -> list[str]:
    title = (
        "All nodes will be stopped"
        if plan.lowering is Lowering.OFFLINE
        else "All controllers will be stopped, the brokers serve"
    )
    return [heading(title), "\n".join(f"- {escape_markdown(line)}" for line in facts)]


def _way(plan: Plan) -> list[str]:
    foot = _foot(plan, "Every finding is checked again before each stop.")
    parts = [*findings_part(plan, plan.findings), *unavailability_part(plan)]
    return [*parts, *release_steps_part(plan), *terms_part(plan), *config_part(plan), foot]


def losses_part(run: Run) -> list[str]:
    """Return the loss report: each real loss with its values, and the number of fields with default values."""
    level = run.plan.levels.get(METADATA_VERSION)
    report = run.history.attachment(LOSSES)
    if report is None:
        return [heading("Metadata lost: unknown")]
    losses, defaults = report["losses"], report["default_only"]
    lines = _lines_by_kind(losses, LOSSES)
    parts = [heading(f"Metadata lost: {len(losses) or 'none'}"), *(["\n".join(lines)] if lines else [])]
    if any(loss["kind"].endswith("log directories") for loss in losses):
        parts.append(
            "The metadata identifies directories by id (`directory.id` in `meta.properties`). The path is "
            "shown if this process can read the node's files."
        )
    if defaults:
        where = f"in {run.plan.target}" if level is None else f"at level {level}"
        parts.append(
            f"{len(defaults)} fields do not exist {where}. All of them hold default values, so nothing is lost."
        )
    if level is None:
        parts.append("metadata.version does not change.")
    return parts + [escape_markdown(note) for note in report["notes"]]


def _lines_by_kind(found: Iterable[Mapping[str, Any]], document: str) -> list[str]:
    """Return a line for each sentence, in the order of the kinds. Only further lines of a kind are left out, and their
    number is said: nothing hides behind many differences of another kind. `document`: has all.
    """
    by_kind: dict[str, list[str]] = {}
    for one in found:
        by_kind.setdefault(one["kind"], []).append(f"- {escape_markdown(one['sentence'])}")
    lines = list[str]()
    for kind, of_kind in by_kind.items():
        lines += of_kind[:_SHOWN_OF_KIND]
        if (more := len(of_kind) - _SHOWN_OF_KIND) > 0:
            lines.append(f"- … and {more} more ({escape_markdown(kind)}). `{document}` of the run history has all.")
    return lines


def _later(plan: Plan) -> list[str]:
    """Return what this approval does not cover: the change by a snapshot."""
    if plan.lowering is Lowering.ONLINE:
        return []
    levels = ", ".join(f"{escape_markdown(c.feature)} {c.current} → {c.target}" for c in plan.snapshot_changes)
    return [
        heading("Not part of this approval"),
        f"{levels}: with {_stopped(plan)} stopped, after an approval of its own. Metadata is lost at that time.",
    ]


def _type(plan: Plan) -> list[str]:
    if not plan.unsafe:
        return ["**SAFE**: the run stops if metadata in use would be lost."]
    return ["**UNSAFE**: the metadata in the warnings is lost."]


def _trims(ports: ClusterPorts) -> list[str]:
    events = ports.run.events()
    trimmed = planned_trims(events)
    unproved = unproved_logs(events, (node.node_id for node in ports.cluster.nodes))
    if not trimmed and not unproved:
        return [heading("Metadata logs"), "The older release can read the metadata log of every node."]
    unknown = [
        heading(f"Metadata logs not proved: {len(unproved)}"),
        f"No check has shown that the older release can read the metadata log of {nodes(unproved)}. Each stop checks "
        "the log of its node, and refuses one that cannot be read, or that needs a trim which this text does not list.",
    ]
    if not trimmed:
        return unknown
    names = "\n".join(f"- {ports.cluster.node(node_id).name} ({node_id})" for node_id in trimmed)
    return [
        *(unknown if unproved else ()),
        heading(f"Metadata logs to trim: {len(trimmed)}"),
        "The older release would stop at records before the newest snapshot. While each of these nodes is "
        "stopped, the run removes its log before that snapshot and keeps a backup in the log's own folder "
        "(`kafka-rollout-trim-…`). To restore it, run `kafka-rollout metadata trim --undo` before the node "
        "has written to the log.",
        names,
    ]


def _all(plan: Plan, support: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return (*plan.findings, *find_new(support, plan.findings))


def _foot(plan: Plan, sentence: str) -> str:
    return f"---\n\nPlan `{plan.hash[:12]}`. {sentence}"


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
        waits = [one for one in plan.findings if one.code == SNAPSHOT_WAIT.text]
        if waits:
            lines = [f"{escape_markdown(one.sentence)} {escape_markdown(one.remedy)}" for one in waits]
            parts += [heading("How long it lasts"), *lines]
        if scan:
            parts += [heading("Coordinator logs"), escape_markdown(scan)]
        parts += findings_part(plan, findings)
    else:
        parts += [
            *findings_part(plan, findings),
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


def findings_part(plan: Plan, findings: tuple[Finding, ...]) -> list[str]:
    """Return the findings, after what the plan could not check: there, finding nothing is no evidence."""
    unknown = _unknown_part(plan)
    if not findings:
        return [*unknown, heading("Findings: none")]
    groups = group_by_kind(findings)
    lines = [
        f"- **{group.severity.value}** {quote_markdown(group.code)} {escape_markdown(group.subjects)}: "
        f"{escape_markdown(group.sentence)}"
        + (f" **What to do:** {escape_markdown(group.remedy, limit=REMEDY_LIMIT)}" if group.remedy else "")
        for group in groups
    ]
    if len(groups) == len(findings):
        return [*unknown, heading(f"Findings: {len(findings)}"), "\n".join(lines)]
    kinds = heading(f"Findings: {len(findings):,}, of {count(len(groups), 'kind')}")
    more = "The report of the run and the result of --dry-run --json list every object."
    return [*unknown, kinds, "\n".join(lines), more]


def _unknown_part(plan: Plan) -> list[str]:
    if not (checks := plan.unknown_checks):
        return []
    lines = [f"- **{escape_markdown(one.check)}**: {escape_markdown(one.unknown)}" for one in checks]
    accepted = "Approve only if you know these facts from elsewhere. Or remove the cause, and start a new run."
    return [heading(f"Not checked completely: {len(checks)}"), "\n".join(lines), accepted]


def rollback_part(run: ReadRun) -> list[str]:
    """Return what a rollback could not compare now, for its approver; empty if it compares everything."""
    if not (sentences := unread_of_rollback(run)):
        return []
    at = datetime.fromtimestamp(run.ports.clock.now(), UTC)
    lines = "\n".join(map(listed_line, sentences))
    after = "A rollback must stay possible, so it goes on without these comparisons, and can lose what they would show."
    return [heading(f"A rollback cannot compare (at {at:%H:%M} UTC): {len(sentences)}"), lines, after]


def unlisted_of_rollback(run: ReadRun, text: str) -> tuple[str, ...]:
    """Return what a rollback could not compare now and the text of the request does not list."""
    return tuple(one for one in unread_of_rollback(run) if not is_listed(text, one))


def kept_rollback_part(run: Run, request: str) -> list[str]:
    """Return the part as it was when `request` was made first: Airflow compares the text of an approval."""
    return list(shown_once(run, f"approvals/rollback-{request}.json", lambda: {"parts": rollback_part(run)})["parts"])


def release_steps_part(plan: Plan) -> list[str]:
    if not plan.release_steps:
        return [f"Every node already runs {plan.target}: no node is restarted."]
    parts = []
    for release_step in plan.release_steps:
        way = f"{release_step.from_release} → {release_step.to_release}"
        if release_step.restarts:
            again = "Second restart" if plan.changes_release else "Restart"
            way = f"{again if release_step == plan.registration_step else 'Restart'} on {release_step.to_release}"
        if plan.lowering is Lowering.OFFLINE:
            parts.append(heading(f"{way}, all nodes at once"))
        elif release_step.batches:
            parts.append(heading(f"{way}, in {len(release_step.batches):,} batches"))
            parts.append("\n".join(_batches(plan, release_step)))
        else:
            parts.append(heading(f"{way}, one node at a time"))
            parts.append("\n".join(_order(release_step.order)))
        parts.append(escape_markdown(release_step.reason))
    return parts


def _listed(lines: Sequence[str], rest: str) -> list[str]:
    if len(lines) <= _LISTED_RUNS:
        return list(lines)
    more = f"- … and {len(lines) - _LISTED_RUNS:,} more lines; --dry-run --json prints {rest}"
    return [*lines[:_LISTED_RUNS], more]


def _order(steps: Sequence[NodeStep]) -> list[str]:
    """Return the lines of the order; of more than _LISTED_NODES nodes, one line for nodes with consecutive ids."""
    if len(steps) <= _LISTED_NODES:
        return [f"{place}. {_node(step)}" for place, step in enumerate(steps, start=1)]
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
    return _listed(lines, "the whole order")


def _batches(plan: Plan, release_step: ReleaseStep) -> list[str]:
    """Return a line for each batch with the reason why it ends, and the expected duration.

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
    soak_s = plan.terms.soak_s if plan.terms is not None else 0.0
    batches, single = expected_s(len(release_step.batches), soak_s), expected_s(len(release_step.order), soak_s)
    took = f"- Expected duration: {duration(batches)}, one node at a time {duration(single)}"
    return [*_listed(lines, "all batches"), f"{took} ({NODE_S:g} s for each restart, soak {soak_s:g} s)"]


def _node(step: NodeStep) -> str:
    return f"{step.name} ({step.node_id}{', active controller' if step.active_controller else ''})"


def terms_part(plan: Plan) -> list[str]:
    """Return how the run carries out the plan, as its starter chose it; nothing if it restarts no node."""
    if plan.terms is None or not plan.release_steps:
        return []
    terms = plan.terms
    lines = [
        f"- Pace after each start: **{terms.pace}**, which means {terms.numbers.text}",
        f"- Gate timeout: {duration(terms.gate_timeout_s)}",
    ]
    if (most := terms.max_under_replicated) is not None:
        lines.append(f"- Limit before each stop: {count(most, 'under-replicated partition')} of other nodes")
    if skipped := ", ".join(terms.skip_conditions):
        lines.append(f"- Conditions from outside that the gates do **not** check: {skipped}")
    if after := terms.pause_after:
        after = f"the {after.replace('-', ' ')}" if after in PAUSES_ONCE else f"each {after}"
        lines.append(f"- Pause for an approver after {f'{after} nodes' if terms.pause_after.isdecimal() else after}")
    lines += [
        *window_lines(terms),
        f"- Rehearsal on a copy requested: {_yes(terms.rehearse)}",
        f"- Test traffic during the run: {_yes(terms.traffic)}",
    ]
    return [heading("How the run proceeds"), "\n".join(lines)]


def window_lines(terms: RunTerms) -> list[str]:
    """Return when nodes can be stopped; nothing if the run has no window and no freeze days."""
    lines = []
    if terms.window:
        lines.append(f"- Nodes are stopped only in the maintenance window {quote_markdown(terms.window)}.")
    if terms.freeze_days:
        lines.append(f"- No node is stopped on the freeze days {quote_markdown(', '.join(terms.freeze_days))}.")
    if lines:
        lines.append("- A rollback waits neither for the window nor for the end of the freeze.")
    return lines


def _yes(chosen: bool) -> str:
    return "yes" if chosen else "**no**"


def unavailability_part(plan: Plan) -> list[str]:
    """Return what the approver accepts with the plan; nothing if the run accepts no unavailable topic."""
    if not plan.accept_unavailable:
        return []
    found = []
    if topics := [pattern for pattern in plan.accept_unavailable if pattern != METADATA_TOPIC]:
        found += [
            heading("Unavailable topics that you accept"),
            f"{', '.join(map(quote_markdown, topics))}. While a node restarts, their partitions can have no leader, or "
            "too few replicas in sync. Then acks=all fails, and from 3.7.0 on consumers get no new records, whatever "
            "their acks. The gates before the stops do not check them.",
        ]
    if accepts_no_quorum(plan.accept_unavailable):
        found += [
            heading("Unavailable metadata quorum that you accept"),
            "While a controller of a quorum of one or two voters restarts, no leader is elected, no ISR changes, and "
            "no topic is created. If a broker fails meanwhile, the partitions that it leads have no leader.",
        ]
    return found


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
            return f"**{found[change.feature].way}**. {escape_markdown(found[change.feature].reason)}"
        return f"**{change.undo.value}**. {escape_markdown(change.undo_source)}"

    return [
        f"#### {escape_markdown(c.feature)} {c.current} → {c.target}\n\n- Undo: {undo(c)}\n"
        f"- Loss on undo: {escape_markdown(c.loss)}"
        for c in changes
    ]


def _section_of(doubts: Sequence[str], title: str, meaning: str) -> list[str]:
    """Return heading, meaning and a line for each doubt, which an answer accepts; empty without one."""
    return [heading(f"{title}: {len(doubts)}"), meaning, doubts_part(doubts)] if doubts else []


def _doubts_of_nodes(events: Events) -> list[str]:
    return _section_of(
        find_doubts_of_nodes(events),
        "Not proved of the running nodes",
        "Their gates would ask the same. This approval accepts exactly these lines. Read the logs first: a failed load "
        "loses groups or transactions, and a restart of the node loads them again while a rollback is still possible.",
    )


def read_doubts(events: Events, what: ApprovalOf, text: str) -> tuple[str, ...]:
    """Return the doubts about running nodes, test traffic and earlier runs that an approval with this text accepts."""
    if what not in (ApprovalOf.FINALIZE, ApprovalOf.ROLL):
        return ()
    doubts = (*find_doubts_of_nodes(events), *find_doubts_of_traffic(events), *find_doubts_of_runs(events))
    return tuple(doubt for doubt in doubts if is_listed(text, doubt))


def doubts_part(doubts: Iterable[str]) -> str:
    """Return the Markdown list of doubts about logs of nodes that an answer accepts, a line for each."""
    return "\n".join(map(listed_line, doubts))


def heading(text: str) -> str:
    return f"### {text}"


def differences_body(run: Run, after: ComparedAfter) -> str:
    """Return the Markdown text: one line for each difference that counts, then those that clients made.

    It has no times and no numbers: a text that Airflow showed before stays valid while it lists every difference.
    """
    compared = run.history.attachment(state_comparison.COMPARED[after])
    found: Sequence[Mapping[str, Any]] = () if compared is None else compared["differences"]
    counting = [one for one in found if state_comparison.counts(one)]
    when = {
        ComparedAfter.ROLL: "the nodes were replaced",
        ComparedAfter.LEVELS: "the levels were changed",
        ComparedAfter.DOWNGRADE: "the downgrade",
    }[after]
    parts = [
        f"**Cluster {run.plan.cluster} differs from its state before the run, after {when}.**",
        heading("Differences that the plan does not name"),
        "\n".join(_lines_by_kind(counting, state_comparison.COMPARED[after])),
    ]
    if after is ComparedAfter.DOWNGRADE and run.plan.lowering is Lowering.OFFLINE:
        parts.append("No client acted while all nodes were stopped: find what is missing before clients write again.")
    parts.append(
        "A client, the active controller or a changed file of a broker made these changes. To undo them, reject, "
        "correct the cause, and repeat the comparison (in a DAG: clear its task with all downstream tasks). An "
        "approval accepts exactly these differences, and the run continues. A fingerprint stands for all that a line "
        "is about, also what it leaves out."
    )
    return "\n\n".join([*parts, f"---\n\nPlan `{run.plan.hash[:12]}`."])


def _check_roll(call: StepCall) -> str | None:
    plan = call.plan
    refuse_blockers(plan)
    if not plan.release_steps:
        return f"Every node already runs {plan.target}: no node has to be replaced."
    if plan.lowering is not Lowering.ONLINE and stop_has_begun(call.ports.run.events()):
        return f"The run has begun to stop {_stopped(plan)}: it cannot be approved again."
    if not has_stopped_nodes(call.ports.run.events()):  # later each stop checks the findings; a node can be down now
        frozen_plan.refuse_new_blockers(Run(call.ports, plan), waits=True)
    return None


def _check_roll_down(call: StepCall) -> str | None:
    if reason := _check_roll(call):
        return reason
    state_comparison.record_traffic_so_far(call.run)
    return None


def _stopped(plan: Plan) -> str:
    return "all nodes" if plan.lowering is Lowering.OFFLINE else "all controllers"


def _check_finalize(call: StepCall) -> str | None:
    refuse_blockers(call.plan)
    frozen_plan.refuse_new_blockers(call.run)
    refuse_changed_min_isr(call.run, before_pin=True)
    if not levels.pending_changes(call.run):
        return "Every planned level is already finalized."
    refuse_unproved_nodes(call.run, asks=True)
    record_earlier_runs(call.run)
    state_comparison.record_traffic_so_far(call.run)
    return None


def _finalize_body(call: StepCall) -> str:
    run = call.run
    support = levels.check_support(run)
    levels.refuse(support)
    events = run.history.events()
    scan = newest(events, ScanEvaluated)
    sentence = "The coordinator logs were not scanned (--no-scan)." if scan is None else scan.sentence
    undos = shown_level_undos(run, levels.undo_by_controller(run))
    body = approval_body(run.plan, support, what=ApprovalOf.FINALIZE, scan=sentence, undos=undos)
    doubts = (
        *_doubts_of_nodes(events),
        *_doubts_of_traffic(events),
        *_doubts_of_runs(events),
    )
    return "\n\n".join([*doubts, body])


def _doubts_of_traffic(events: Events) -> list[str]:
    return _section_of(
        find_doubts_of_traffic(events),
        "Test traffic that is lost or unknown",
        "Records of the cluster's clients can be lost in the same way. Find the cause first: this approval accepts "
        "exactly these lines, and what follows it cannot be undone.",
    )


def _doubts_of_runs(events: Events) -> list[str]:
    return _section_of(
        find_doubts_of_runs(events),
        "Not accepted after earlier runs",
        "No comparison of this run can show this, because the state before it has it already. Find the cause first, "
        "or roll back in the run that is named: this approval accepts exactly these lines, and raised levels can end "
        "the possibility of a rollback.",
    )


def _check_levels(call: StepCall) -> str | None:
    refuse_blockers(call.plan)
    if call.plan.lowering is not Lowering.ONLINE and stop_has_begun(call.ports.run.events()):
        return f"The run has begun to stop {_stopped(call.plan)}: the levels were lowered before."
    if not levels.pending_changes(call.run):
        return "The controller has no level to lower."
    if not has_stopped_nodes(call.ports.run.events()):
        frozen_plan.refuse_new_blockers(call.run, waits=True)
    return None


def _features_body(call: StepCall) -> str:
    undos = shown_level_undos(call.run, call.plan.feature_changes)
    doubts = _doubts_of_runs(call.run.history.events())
    return "\n\n".join([*doubts, approval_body(call.plan, what=ApprovalOf.FINALIZE, undos=undos)])


def _levels_body(call: StepCall) -> str:
    support = levels.check_support(call.run, waits=True)
    levels.refuse(support)
    return levels_body(call.run, support)


def _roll_down_subject(plan: Plan) -> str:
    if plan.lowering is Lowering.OFFLINE:
        changes = _levels(plan.snapshot_changes)
        return f"Stop all nodes of {plan.cluster} and take them from {plan.source} to {plan.target} ({changes})?"
    if plan.lowering is Lowering.LIVE:
        changes = _levels(plan.snapshot_changes)
        way = f"from {plan.source} to {plan.target}"
        return f"Stop the controllers of {plan.cluster} ({changes}), then roll it down {way}?"
    return f"Roll {plan.cluster} down from {plan.source} to {plan.target}?"


def _check_features(call: StepCall) -> str | None:
    refuse_blockers(call.plan)
    if not (pending := levels.pending_changes(call.run)):
        return "Every level is already as requested."
    left = record_earlier_runs(call.run) if raises_level(pending) else ()
    if call.ports.cluster.feature_approval != ALWAYS and not requires_approval(call.plan) and not left:
        return "No level is lowered, Kafka can undo every raise, and no blocker can be hidden: no approval is needed."
    return None


def upgrade_body(call: StepCall) -> str:
    """Markdown of an upgrade's plan."""
    return approval_body(call.plan)


def downgrade_body(call: StepCall) -> str:
    """Markdown of a downgrade's plan."""
    return plan_body(call.run, _facts(call))


def _facts(call: StepCall) -> Sequence[str]:
    if call.plan.lowering is Lowering.LIVE:
        return shown_live_facts(call.run)
    return shown_facts(call.run) if call.plan.lowering is Lowering.OFFLINE else ()


def _differences_subject(plan: Plan) -> str:
    return f"Accept the differences of {plan.cluster} from its state before the run?"


def _levels(changes: Iterable[FeatureChange]) -> str:
    return ", ".join(f"{c.feature} {c.current} → {c.target}" for c in changes)


PLAN = ApprovalRequest(
    of=ApprovalOf.ROLL,
    subject=lambda plan: f"Upgrade {plan.cluster} from {plan.source} to {plan.target}?",
    body=upgrade_body,
    check=_check_roll,
)
RESTART = replace(PLAN, subject=lambda plan: f"Restart the nodes of {plan.cluster} on {plan.target}?")
FINALIZE = ApprovalRequest(
    of=ApprovalOf.FINALIZE,
    subject=lambda plan: f"Finalize the features of {plan.cluster} at {plan.target}? This is the point of no return.",
    body=_finalize_body,
    check=_check_finalize,
    offers_roll_back=True,
)
LEVELS = ApprovalRequest(
    of=ApprovalOf.FINALIZE,
    subject=lambda plan: f"Lower the features of {plan.cluster}: {_levels(plan.online_changes)}?",
    body=_levels_body,
    check=_check_levels,
)
ROLL_DOWN = ApprovalRequest(
    of=ApprovalOf.ROLL,
    subject=_roll_down_subject,
    body=lambda call: roll_body(call.run, _facts(call)),
    check=_check_roll_down,
)
ROLL_DIFFERENCES = ApprovalRequest(
    of=ApprovalOf.DIFFERENCES,
    subject=_differences_subject,
    body=lambda call: differences_body(call.run, ComparedAfter.ROLL),
    check=lambda call: state_comparison.needs_no_acceptance(call.run, ComparedAfter.ROLL),
    offers_roll_back=True,
)
LEVEL_DIFFERENCES = ApprovalRequest(
    of=ApprovalOf.DIFFERENCES,
    subject=_differences_subject,
    body=lambda call: differences_body(call.run, ComparedAfter.LEVELS),
    check=lambda call: state_comparison.needs_no_acceptance(call.run, ComparedAfter.LEVELS),
)
DOWNGRADE_DIFFERENCES = replace(
    LEVEL_DIFFERENCES,
    body=lambda call: differences_body(call.run, ComparedAfter.DOWNGRADE),
    check=lambda call: state_comparison.needs_no_acceptance(call.run, ComparedAfter.DOWNGRADE),
)
FEATURES = ApprovalRequest(
    of=ApprovalOf.FINALIZE,
    subject=lambda plan: f"Change features of {plan.cluster}: {_levels(plan.feature_changes)}?",
    body=_features_body,
    check=_check_features,
)
