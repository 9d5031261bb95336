"""Separate feature changes: plan the requested changes, apply them, and report each result.

The plan is frozen in the run history, so a killed run continues with its request and reports existing levels as already
there. It is a plan without release steps: approval, gates and report are those of an upgrade.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

from kafka_rollout.base.errors import RefusedError, TransientError, UserError
from kafka_rollout.base.findings import (
    INFO,
    Check,
    Checked,
    CheckOf,
    Examined,
    Finding,
    FindingCode,
    Severity,
    Verdict,
    all_findings,
    find_new,
    results_of,
    sort_findings,
)
from kafka_rollout.base.wording import few_failures
from kafka_rollout.control import lock
from kafka_rollout.control.approval import refuse_blockers, require_approval
from kafka_rollout.feature_updates.levels import (
    CONTROLLER_CANNOT_VALIDATE,
    CONTROLLER_DISAGREES,
    CONTROLLER_UNANSWERED,
    NOT_SENT,
    ensure_levels,
    find_refusals,
    levels_of_changes,
    refusals,
    refuse,
    with_disagreement,
    with_dropped_ranges,
)
from kafka_rollout.feature_updates.open_gates import check_open_gates
from kafka_rollout.features.min_isr import MIN_ISR_CHECK, NOT_RAISED, raises_elr
from kafka_rollout.features.registrations import registered_levels
from kafka_rollout.features.requests import (
    DROPPED_RANGES,
    FEATURE_REFUSED,
    FeatureAction,
    FeatureOrder,
    FeatureOutcome,
    FeatureRequest,
    FeatureUpdateResult,
    FeatureUpdateStatus,
    feature_change,
    feature_request_batches,
    levels_of,
)
from kafka_rollout.features.rules import (
    BAD_INPUT,
    ELIGIBLE_LEADERS_LOST,
    FEATURE_DEPENDENCY,
    FEATURE_DOWNGRADE_REFUSED,
    GROUPS_LOSE_THEIR_PROTOCOL,
    HELD_BACK_CHECK,
    LEVELS_CHECK,
    METADATA_VERSION_BELOW_FLOOR,
    PRODUCERS_END_FATALLY,
    USERS_CHECK,
    check_feature_support,
    check_requests,
)
from kafka_rollout.features.support import (
    FEATURE_SUPPORT_UNKNOWN,
    FEATURE_UNSUPPORTED,
    format_levels,
    held_back_feature_findings,
)
from kafka_rollout.gates.counters import find_unchecked_counters
from kafka_rollout.groups.findings import leave_to_gate
from kafka_rollout.model.log_directories import ASSIGNED_FROM
from kafka_rollout.model.plan import Direction, FeatureChange, Plan, RunTerms, Undo
from kafka_rollout.model.rights import RIGHTS_CHECK, right_findings
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.state import ClusterState, find_ended_claims
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts, levels_now, observe, observe_some
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.findings.claims import check_claims
from kafka_rollout.planning.findings.configuration import DIRECTORIES_CHECK, directory_findings
from kafka_rollout.planning.findings.releases import GAPS_CHECK, OF_FEATURE_PLANS, gap_findings
from kafka_rollout.planning.plan_checks import unknown_responses
from kafka_rollout.preparation.earlier_runs import check_earlier_runs, raises_level, refuse_unaccepted_of_runs
from kafka_rollout.preparation.frozen_plan import check_run, refuse_what_stays
from kafka_rollout.preparation.metadata_errors import check_counters, count_apply_errors
from kafka_rollout.preparation.node_checks import readable_configs
from kafka_rollout.preparation.pinned_min_isr import plan_min_isr, refuse_changed_min_isr
from kafka_rollout.preparation.plan_making import freeze
from kafka_rollout.preparation.unknowns import judged
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.run.events import ApprovalOf
from kafka_rollout.run.projections.observations import observed_of
from kafka_rollout.run.step_events import FeatureResults

# Findings that the controller's validate-only request can confirm or deny. Changes without permission, and unknown
# features, are not sent.
_ABOUT_NODES_AND_USERS = frozenset(
    code.code
    for code in (
        FEATURE_SUPPORT_UNKNOWN,
        FEATURE_UNSUPPORTED,
        FEATURE_DEPENDENCY,
        FEATURE_DOWNGRADE_REFUSED,
        METADATA_VERSION_BELOW_FLOOR,
        GROUPS_LOSE_THEIR_PROTOCOL,
        PRODUCERS_END_FATALLY,
        ELIGIBLE_LEADERS_LOST,
    )
)


CONTROLLER_WOULD_ACCEPT = FindingCode(
    "CONTROLLER-WOULD-ACCEPT", INFO, "The controller would accept levels that this tool refuses."
)
CONTROLLER_CHECK = Check(
    "controller-validation",
    "Validate-only request to the active controller",
    "features.md#what-is-checked-before-the-request",
    (
        FEATURE_REFUSED,
        DROPPED_RANGES,
        CONTROLLER_UNANSWERED,
        CONTROLLER_CANNOT_VALIDATE,
        CONTROLLER_DISAGREES,
        CONTROLLER_WOULD_ACCEPT,
    ),
    of=(CheckOf.FEATURES, CheckOf.FINALIZING),
    needs=(),
    examines=Examined.LEVELS,
)


def plan_features(
    ports: ClusterPorts,
    order: FeatureOrder,
    *,
    unsafe: bool,
    waits: bool = False,
    pin: bool = False,
    terms: RunTerms | None = None,
) -> Plan:
    """Observe, apply every rule of KIP-584, send a validate-only request to the controller, and freeze the plan.

    `waits`: the run has a gate that waits for converted groups, so they do not block its plan. `pin`: the run sets the
    default of min.insync.replicas before it raises ELR. Raises TransientError if the finalized levels are unknown,
    and UserError for a request that no cluster supports (nothing is recorded). Refusals are blockers of the plan.
    """
    state = observe(ports)
    state.finalized.known()
    requests = order.requests(ports.cluster, ports.catalogue, state)
    verdict = check_requests(ports.cluster, ports.catalogue, state, requests, unsafe=unsafe)
    if waits:
        verdict = replace(verdict, findings=leave_to_gate(verdict.findings))
    impossible = [finding for finding in verdict.findings if finding.code in BAD_INPUT]
    if impossible:
        raise UserError(
            " ".join(finding.sentence for finding in impossible),
            remedy=" ".join(dict.fromkeys(finding.remedy for finding in impossible)),
        )
    changes = _changes(ports, state, requests)
    ports.run.record(observed_of(state))
    releases = state.releases if order.release is None else [order.release]  # whose default levels the order means
    effects = plan_min_isr(ports, changes, state.partitions, pin=pin)
    release = max(state.releases) if state.releases else max(ports.catalogue)
    checked = (
        *sort_findings(verdict.findings, (LEVELS_CHECK, USERS_CHECK)),
        *_check_nodes(ports, state, changes, release, unsafe=unsafe),
        check_claims(ports.cluster, state),
        GAPS_CHECK.ran(
            gap_findings(
                ports.catalogue, tuple(one for one in sorted(releases) if one in ports.catalogue), OF_FEATURE_PLANS
            ),
            unless="The request names every level." if order.named else "",
        ),
        check_earlier_runs(ports, changes),
        HELD_BACK_CHECK.ran(
            held_back_feature_findings(ports.cluster, ports.catalogue, state),
            unless="" if order.action is FeatureAction.UPGRADE_ALL else "The request names its features.",
        ),
        _second_opinion(ports, state, verdict, changes, unsafe=unsafe),
        MIN_ISR_CHECK.ran(effects.findings, unless="" if raises_elr(changes) else NOT_RAISED),
    )
    plan = Plan(
        cluster=ports.cluster.name,
        cluster_id=state.cluster_id,
        direction=Direction.DOWNGRADE if any(c.target < c.current for c in changes) else Direction.UPGRADE,
        source=release,
        target=release,
        release_steps=(),
        feature_changes=changes,
        config_changes=(),
        findings=all_findings(checked),
        checks=results_of(checked, unknown_responses(ports.cluster, state)),
        unsafe=unsafe,
        default_changes=effects.changes,
        unchecked=find_unchecked_counters(ports.cluster, state),
        other_claims=find_ended_claims(state),
        terms=terms,
    )
    # No node restarts, so metadata that a node could not apply stays missing.
    plan = plan.with_checked([check_counters(Run(ports, plan), state)], unknown_responses(ports.cluster, state))
    freeze(Run(ports, plan), RunOf.FEATURES, requests=requests)
    return plan


def _check_nodes(
    ports: ReadPorts, state: ClusterState, changes: Sequence[FeatureChange], release: Release, *, unsafe: bool
) -> tuple[Checked, ...]:
    """Return the checks of the running nodes, which a plan makes, and the run again right before its request.

    The counters of the nodes belong to them too. Their check needs the plan.
    """
    return (
        RIGHTS_CHECK.ran(right_findings(ports.cluster, state.missing_rights)),
        _directories(ports, state, changes, release, unsafe=unsafe),
        check_open_gates(ports, changes),
    )


def _directories(
    ports: ReadPorts, state: ClusterState, changes: Sequence[FeatureChange], release: Release, *, unsafe: bool
) -> Checked:
    """Return the check of the log directories. It reads files only at a level that does not support several."""
    level = state.finalized.known()[METADATA_VERSION]
    planned = levels_of_changes(changes).get(METADATA_VERSION, level)
    if min(level, planned) >= ASSIGNED_FROM:
        return DIRECTORIES_CHECK.ran(unless=f"metadata.version {min(level, planned)} supports several log directories.")
    configs, unread = readable_configs(ports, ports.cluster.brokers)
    erring = [
        node.node_id
        for node in ports.cluster.brokers
        if count_apply_errors(state, node) and node.node_id not in configs
    ]
    return DIRECTORIES_CHECK.ran(
        directory_findings(ports.cluster, {release: configs}, (release,), level, planned, unsafe=unsafe, unread=erring),
        unknown=unread if ports.cluster.manages_nodes else (),
    )


def observe_features(ports: ReadPorts) -> ClusterState:
    """Observe what `describe` needs: every node's response and the registrations, no partitions or groups."""
    state = observe_some(ports, ports.cluster.nodes, metrics=True, brokers=False)
    if not any(node.features for node in state.nodes.values()):
        raise TransientError(
            f"No node of cluster {ports.cluster.name} responds: {few_failures(state.unanswered, 'nodes')}",
            remedy="Check that the nodes run and that their addresses in the inventory are correct.",
        )
    try:
        return replace(state, registered=ports.admin.registered(), quorum=ports.admin.quorum())
    except (TransientError, RefusedError) as error:
        return replace(state, unanswered=(*state.unanswered, error.sentence))


def requires_approval(plan: Plan) -> bool:
    """Return whether the run needs an approval, by the policy that its plan has or by its changes.

    It always does if a level is lowered or deleted, if Kafka could not undo the change, or if the controller or the run
    writes values of min.insync.replicas that stay when the level is lowered again, or if something unknown can hide a
    blocker.
    """
    changes = [change for change in plan.feature_changes if change.target != change.current]
    if plan.default_changes or plan.hidden or (plan.terms is not None and plan.terms.every_change):
        return True
    return any(change.target < change.current or change.undo is not Undo.POSSIBLE for change in changes)


def planned_outcomes(plan: Plan) -> tuple[FeatureOutcome, ...]:
    """Return the results of a dry run: accepted, or refused with the reason."""
    return tuple(_planned_outcome(plan, change) for change in plan.feature_changes)


def apply_features(run: Run) -> tuple[FeatureOutcome, ...]:
    """Set the plan's levels: metadata.version first when raised, last when lowered.

    Stops at the first refused request; the outcomes show what was changed before. A resumed run reports existing
    levels. Raises RefusedError (nothing was changed) if a check fails or a required approval is missing, TransientError
    if the levels are unknown.
    """
    run = check_run(run)
    lacking = levels_now(run.ports).finalized.lacking(levels_of_changes(run.plan.feature_changes))
    pending = [change for change in run.plan.feature_changes if change.feature in lacking]
    if pending:
        refuse_blockers(run.plan)
        if requires_approval(run.plan):
            require_approval(run, ApprovalOf.FINALIZE)
        if raises_level(pending):
            refuse_unaccepted_of_runs(run)
        lock.acquire_lock(run.ports, f"Set {format_levels(levels_of_changes(pending))}.")
    acting = (
        run.ports.lock.acting(run.cluster.name, run.ports.run_id, "Changing features") if pending else nullcontext()
    )
    with acting:
        if pending:
            _check_again(run, pending)
        outcomes = _apply(run, {change.feature for change in pending})
    run.history.record(FeatureResults(outcomes=outcomes))
    return outcomes


def _apply(run: Run, pending: set[str]) -> tuple[FeatureOutcome, ...]:
    outcomes: dict[str, FeatureOutcome] = {}
    stopped = False
    for batch in feature_request_batches(run.plan.feature_changes):
        if stopped:
            outcomes |= {
                c.feature: _outcome(c, FeatureUpdateStatus.NOT_SENT, "a previous request was refused") for c in batch
            }
            continue
        try:
            answers = ensure_levels(run.ports, batch, unsafe=run.plan.unsafe)
        except TransientError as error:
            outcomes |= {
                c.feature: _outcome(c, FeatureUpdateStatus.UNKNOWN, str(error)) for c in batch if c.feature in pending
            }
            stopped = True
            continue
        for change, answer in zip(batch, answers, strict=True):
            outcomes[change.feature] = _answered(run.ports, change, answer, already=change.feature not in pending)
        stopped = not all(answer.accepted for answer in answers)
    return tuple(outcomes[c.feature] for c in run.plan.feature_changes if c.feature in outcomes)


def _answered(ports: ReadPorts, change: FeatureChange, answer: FeatureUpdateResult, *, already: bool) -> FeatureOutcome:
    if answer.accepted:
        return _outcome(change, FeatureUpdateStatus.ALREADY_THERE if already else FeatureUpdateStatus.OK)
    if answer.error == NOT_SENT:
        return _outcome(change, FeatureUpdateStatus.NOT_SENT, answer.message)
    levels, state = {change.feature: change.target}, levels_now(ports)
    (found,) = with_dropped_ranges(ports, state, refusals(state, levels, (answer,)), levels)
    return _outcome(change, FeatureUpdateStatus.FAILED, f"{found.sentence} {found.remedy}")


def _check_again(run: Run, pending: Sequence[FeatureChange]) -> None:
    state = observe(run.ports)
    if state.cluster_id != run.plan.cluster_id:
        raise RefusedError(
            f"The cluster id is {state.cluster_id}, but the plan was made for {run.plan.cluster_id}.",
            remedy="Correct the inventory's addresses, or start a new run.",
        )
    now = state.finalized.known()
    opposite = [c.feature for c in pending if (c.target < c.current) != (c.target < now.get(c.feature, 0))]
    if opposite:
        raise RefusedError(
            f"Another client changed {', '.join(opposite)} after the plan was made. The planned change would "
            "now go in the opposite direction.",
            remedy="Start a new run: it plans from the current state.",
        )
    targets = levels_of_changes(pending)
    refuse(check_feature_support(run.cluster, run.ports.catalogue, state, targets, unsafe=run.plan.unsafe))
    first = iter((state,))
    refuse_what_stays(run, lambda: _find_new_of_nodes(run, pending, next(first, None)))
    refuse_changed_min_isr(run)


def _find_new_of_nodes(run: Run, pending: Sequence[FeatureChange], state: ClusterState | None) -> tuple[Finding, ...]:
    """Return the blockers of the running nodes that the plan does not contain: days can lie between plan and request.

    `state`: of the whole cluster, else it is observed. Raises TransientError for what is unknown now and was not when
    the plan was approved.
    """
    plan, state = run.plan, state or observe(run.ports)
    checked = (
        *_check_nodes(run.ports, state, pending, plan.target, unsafe=plan.unsafe),
        check_counters(run, state),
    )
    found = judged(plan, checked, unknown_responses(run.cluster, state))
    return find_new((one for one in found if one.severity is Severity.BLOCKER), plan.blockers)


def _changes(ports: ReadPorts, state: ClusterState, requests: Sequence[FeatureRequest]) -> tuple[FeatureChange, ...]:
    """Return every request as a change. Existing levels are reported and not sent."""
    release = max((r for r in state.releases if r in ports.catalogue), default=max(ports.catalogue))
    facts = ports.catalogue.get(release)
    return tuple(
        feature_change(facts, feature, state.finalized.reported.get(feature, 0), level)
        for feature, level in levels_of(requests).items()
    )


def _second_opinion(
    ports: ClusterPorts, state: ClusterState, own: Verdict, changes: Sequence[FeatureChange], *, unsafe: bool
) -> Checked:
    """Return the result of the controller's validate-only requests; a disagreement is a finding."""
    batches = feature_request_batches(c for c in changes if c.target != c.current)
    if not batches or not {finding.code for finding in own.blockers} <= _ABOUT_NODES_AND_USERS:
        return CONTROLLER_CHECK.ran(unless="There is nothing that the controller could validate.")
    levels = levels_of_changes(batches[0])
    found = find_refusals(ports, state, batches, unsafe=unsafe)
    if own.ok:
        return CONTROLLER_CHECK.ran(with_disagreement(found))
    subjects = {f"feature {feature}" for feature in levels}
    blocked = [f.subject for f in own.blockers if f.subject in subjects]
    if found or not blocked:
        return CONTROLLER_CHECK.ran()
    return CONTROLLER_CHECK.ran(
        [
            CONTROLLER_WOULD_ACCEPT.found(
                ", ".join(blocked),
                f"The controller would accept {format_levels(levels)} (validate-only), but this tool refuses: the "
                "controller checks fewer nodes and features, and not their users.",
            ),
        ]
    )


def _planned_outcome(plan: Plan, change: FeatureChange) -> FeatureOutcome:
    about = [f for f in plan.blockers if f.subject == f"feature {change.feature}"]
    dropped = any(f.code == DROPPED_RANGES.code for f in plan.blockers)
    others = [f for f in plan.blockers if f not in about and f.code != DROPPED_RANGES.code]
    if dropped and not about and change.feature in registered_levels([change]):
        # The finding names all features and brokers, once.
        return _outcome(
            change, FeatureUpdateStatus.FAILED, f"Registrations of brokers lack it ({DROPPED_RANGES.code})."
        )
    if dropped and not about and not others:
        return _outcome(change, FeatureUpdateStatus.NOT_SENT, f"Another level is refused ({DROPPED_RANGES.code}).")
    if about:
        return _outcome(change, FeatureUpdateStatus.FAILED, " ".join(f"{f.sentence} {f.remedy}" for f in about))
    if others:
        return _outcome(change, FeatureUpdateStatus.NOT_SENT, " ".join(dict.fromkeys(f.sentence for f in others)))
    return _outcome(
        change, FeatureUpdateStatus.ALREADY_THERE if change.target == change.current else FeatureUpdateStatus.ACCEPTED
    )


def _outcome(change: FeatureChange, result: FeatureUpdateStatus, sentence: str = "") -> FeatureOutcome:
    return FeatureOutcome(
        feature=change.feature, existing=change.current, new=change.target, result=result, sentence=sentence
    )
