"""Checks of a frozen plan before each action: still the approved plan, and no new blocker.

The coordinator logs are scanned before the plan, and incrementally before the first node stops. What scans find is
added to the frozen plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache
from typing import NoReturn

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.findings import Checked, Finding, Severity, Verdict, all_findings, codes_of, find_new
from kafka_rollout.coordinator_logs.findings import (
    CLEANED_AT_GATE,
    LOGS_CHECK,
    LOGS_UNREADABLE,
    path_findings,
    refuse_unread_replicas,
)
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.coordinator_logs.tagged_fields import dropped_tag_findings
from kafka_rollout.features.requests import range_findings
from kafka_rollout.groups.findings import group_findings, leave_to_gate
from kafka_rollout.model.configs import NodeConfigs
from kafka_rollout.model.plan import Direction, Lowering, Plan, ReleaseStep
from kafka_rollout.model.rights import right_findings
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts, observe, once_per_node
from kafka_rollout.observation.outage import stop_of_all_is_under_way
from kafka_rollout.observation.planned_coordinators import planned_group_coordinator
from kafka_rollout.observation.run import ReadRun, Run
from kafka_rollout.planning.findings.claims import CLAIMS_CHECK
from kafka_rollout.planning.findings.cluster_state import check_cluster
from kafka_rollout.planning.lowering import OF_ROLLS
from kafka_rollout.planning.plan_checks import NO_RESTART
from kafka_rollout.preparation.changes_on_disk import unapproved_changes
from kafka_rollout.preparation.node_checks import (
    check_hosts,
    check_log_folders,
    check_log_folders_again,
    host_findings,
    node_configs,
    recheck_agreement,
    recheck_dynamic_configs,
)
from kafka_rollout.preparation.quorum_start import recheck_quorum_start
from kafka_rollout.preparation.unknowns import judged
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import ApprovalOf, Voided
from kafka_rollout.run.projections.approvals import has_readers
from kafka_rollout.run.projections.runs import find_planned
from kafka_rollout.run.step_events import IncrementalScan

SCAN_BEFORE_ROLL = "scan/before-roll.json"
_LIST_FINDINGS = frozenset({ApprovalOf.ROLL, ApprovalOf.FINALIZE})
_PAUSES_S = (1.0, 3.0, 6.0, 10.0)


def check_plan(ports: ReadPorts, plan_hash: str) -> Plan:
    """Return the run's plan. Raises RefusedError if its hash differs or the inventory changed after the plan."""
    plan = ports.run.load_plan()
    again = "Start a new run: it plans from the current state."
    if plan.hash != plan_hash:
        raise RefusedError(
            f"The plan of run {ports.run.number} is not the approved plan (hash {plan.hash[:12]}, not "
            f"{plan_hash[:12]}).",
            remedy=again,
        )
    if plan.cluster != ports.cluster.name:
        raise RefusedError(f"The plan is for cluster {plan.cluster}, not for {ports.cluster.name}.", remedy=again)
    inventory = {node.node_id for node in ports.cluster.nodes}
    for release_step in plan.release_steps:
        planned = {node_step.node_id for node_step in release_step.order}
        different = planned - inventory if release_step.restarts else planned ^ inventory  # a restart can name nodes
        if different:
            changed = ", ".join(str(node_id) for node_id in sorted(different))
            raise RefusedError(
                f"The inventory of cluster {plan.cluster} changed after the plan was made (nodes {changed}).",
                remedy=again,
            )
    made = find_planned(ports.run.events(), plan.hash)
    if made is not None and made.release_overrides not in (None, planned_overrides(plan, ports.cluster)):
        # The runtime reads them from the inventory, so a changed value would not be approved.
        raise RefusedError(
            f"The release_overrides of cluster {plan.cluster} changed after the plan was made.",
            remedy=f"Restore the previous values. {again}",
        )
    return plan


def check_run(run: Run) -> Run:
    """Return the run with its plan as it was frozen. Raises as `check_plan`."""
    return Run(run.ports, check_plan(run.ports, run.plan.hash))


def planned_overrides(plan: Plan, cluster: ClusterSpec) -> dict[Release, dict[str, str]]:
    """Return the configuration that the run sets with each release, from the inventory."""
    releases = [release_step.to_release for release_step in plan.release_steps]
    return {release: dict(cluster.release_overrides.get(str(release), {})) for release in releases}


def recheck(
    run: Run,
    stop: tuple[ReleaseStep, NodeSpec] | None = None,
    *,
    waits: bool = False,
    state: ClusterState | None = None,
) -> Verdict:
    """Check the findings again; the result contains blockers that the approved plan does not contain.

    Call it while every node is up. `stop`: the node that stops next; its host is checked for the release of the release
    step. `waits`: the gate of the groups comes later. `state`: of the whole cluster, else it is observed. A verdict
    that is not ok makes the approval invalid.
    """
    state = state or observe(run.ports)
    if state.cluster_id != run.plan.cluster_id:
        raise RefusedError(
            f"The cluster id is {state.cluster_id}, but the plan was made for {run.plan.cluster_id}.",
            remedy="Correct the addresses in the inventory, or start a new run.",
        )
    now = check_cluster(
        run.cluster,
        run.ports.catalogue,
        state,
        target=run.plan.target,
        accept_unavailable=run.plan.accept_unavailable,
        stops=run.plan.only_stops,
    )
    # Levels that the plan lowers are lowered before a node starts on the target.
    ranges = range_findings(run.ports.catalogue, state, run.plan.target, planned=run.plan.lowered)
    unserved = () if run.plan.unsafe else group_findings(run.ports.catalogue, state, run.plan.target)
    if waits:
        unserved = leave_to_gate(unserved)
    host: tuple[Finding, ...] = ()
    read_files = cache(lambda: node_configs(run.ports))
    if run.plan.release_steps:
        release, stops = (run.plan.target, None) if stop is None else (stop[0].to_release, stop[1])
        host = recheck_agreement(run, state, release, stops, files=read_files())
    if stop is None and run.plan.lowering is not Lowering.ONLINE and not stop_of_all_is_under_way(run):
        host = (*host, *_recheck_stop_of_all(run, state, read_files()))
    if stop is not None:
        with run.ports.classes.keep_processes():
            of_stop = (
                *host_findings(run, *stop, read_files()),
                *recheck_dynamic_configs(run, stop[0].to_release, files=read_files(), state=state),
            )
        host = (
            *host,
            *of_stop,
            *judged(
                run.plan,
                [
                    unapproved_changes(run, [stop[1]], state, read_files()),
                    check_log_folders_again(run.ports, *stop, read_files()),
                ],
            ),
        )
    found = (
        *all_findings(now),
        *right_findings(run.cluster, state.missing_rights),
        *ranges.findings,
        *unserved,
        *host,
    )
    # A run of another database makes no approval invalid: control/claims.py refuses the change.
    left_out = {*codes_of([CLAIMS_CHECK]), *(OF_ROLLS if run.plan.lowering is Lowering.OFFLINE else ())}
    verdict = Verdict(
        question=f"Is there a blocker on cluster {run.plan.cluster} that the approved plan does not contain?",
        findings=tuple(f for f in found if f.code not in left_out),
    )
    verdict = replace(verdict, findings=(*verdict.new_blockers_since(run.plan.blockers), *verdict.warnings))
    if stop is not None and verdict.ok:  # a blocker says more than what is unknown because of it
        judged(run.plan, now)
    return verdict


def _recheck_stop_of_all(run: ReadRun, state: ClusterState, files: NodeConfigs) -> tuple[Finding, ...]:
    """Check the hosts of the nodes that a live or offline downgrade stops together, and what they would read at their
    starts. The controllers of a live one start again as they are."""
    is_live = run.plan.lowering is Lowering.LIVE
    stopped = run.cluster.controllers if is_live else run.cluster.nodes
    in_use = once_per_node(run.ports.admin.settings_in_use)
    releases = (run.plan.source if is_live else run.plan.target,)
    hosts = check_hosts(run.ports, releases, stopped, changes=run.plan.config_changes, restarts=is_live)
    folders = check_log_folders(run.ports, releases, {node.node_id: files[node.node_id] for node in stopped})
    found = judged(run.plan, [unapproved_changes(run, stopped, state, files, in_use), hosts, folders])
    return (*recheck_quorum_start(run, files, state, in_use), *found)


def refuse_new_blockers(
    run: Run,
    stop: tuple[ReleaseStep, NodeSpec] | None = None,
    *,
    waits: bool = False,
    state: ClusterState | None = None,
) -> None:
    """Raise RefusedError if `recheck` finds a new blocker that stays. `state`: for its first check."""
    first = iter((state,))
    refuse_what_stays(run, lambda: recheck(run, stop, waits=waits, state=next(first, None)).blockers)


def refuse_what_stays(run: Run, find: Callable[[], Sequence[Finding]]) -> None:
    """Raise RefusedError if each of several calls of `find` returns a finding: the approval is invalid.

    A leader election or one lost response is gone at the next call. What stays for several calls is real.
    """
    for pause_s in (*_PAUSES_S, None):
        if not (found := find()):
            return
        if pause_s is not None:
            run.ports.clock.sleep(pause_s)
    refuse_as_invalid(run, found)


def refuse_as_invalid(run: Run, found: Sequence[Finding]) -> NoReturn:
    """Record that the findings make the approval invalid, and raise RefusedError."""
    run.history.record(Voided(plan_hash=run.plan.hash, blockers=tuple(str(finding) for finding in found)))
    raise RefusedError(
        "The approval is no longer valid. New findings since then: "
        f"{'; '.join(f'{finding.code} {finding.subject}: {finding.sentence}' for finding in found)}",
        remedy=" ".join(dict.fromkeys(finding.remedy for finding in found)),
    )


def refuse_new_in_logs(run: Run, release_step: ReleaseStep) -> None:
    """Raise RefusedError if new records in the coordinator logs make a verdict worse than in the approved plan."""
    if new := find_new_in_logs(run, release_step):
        refuse_as_invalid(run, new)


def scan_before_roll(ports: ReadPorts) -> ScanResult | None:
    """Return the run's scan from before the first stop; None if it has none."""
    scan: ScanResult | None = ports.run.attachment(SCAN_BEFORE_ROLL, ScanResult)
    return scan


def logs_findings(run: ReadRun, scan: ScanResult | None) -> tuple[Finding, ...]:
    """Return the findings of a scan for the plan.

    Only in a downgrade the gate of the groups checks the logs, and the releases can be older than those that wrote
    tagged fields.
    """
    source, path, catalogue = run.plan.source, run.plan.path[1:], run.ports.catalogue
    if run.plan.direction is not Direction.DOWNGRADE:
        return path_findings(scan, source, path)
    return (*path_findings(scan, source, path, gated=catalogue), *dropped_tag_findings(scan, catalogue, path))


def find_new_in_logs(run: Run, release_step: ReleaseStep) -> tuple[Finding, ...]:
    """Return findings of the current logs that the plan does not contain, except infos.

    A warning counts too, because the approver has not read it. If the gate of the groups waited for the log cleaner,
    all logs are read again, because an incremental scan keeps records that were removed. Raises TransientError if
    nothing is new but that a broker does not return its replica.
    """
    scanned = scan_before_roll(run.ports)
    if scanned is None:
        return ()
    began = run.ports.clock.monotonic()
    cleaned = any(finding.code == CLEANED_AT_GATE.code for finding in run.plan.findings)
    planned = planned_group_coordinator(run.ports, run.plan.path[1:])
    now = run.ports.logs.scan_new_records(scanned, planned=planned, complete=cleaned)
    approved = [finding for finding in run.plan.findings if finding.code != CLEANED_AT_GATE.code]
    shown = [finding for finding in logs_findings(run, now) if finding.severity is not Severity.INFO]
    new = tuple(
        replace(finding, remedy=f"{finding.remedy} Then start a new run, which plans from the current state.")
        for finding in find_new(shown, approved)
    )
    if {finding.code for finding in new} == {LOGS_UNREADABLE.code}:
        for release in run.plan.path[1:]:
            refuse_unread_replicas(now, release)
    run.history.record(
        IncrementalScan(
            release_step=release_step.key,
            offsets=sum(log.end for log in now.logs) - sum(log.end for log in scanned.logs),
            since=scanned.scanned_at,
            seconds=round(run.ports.clock.monotonic() - began, 3),
            findings=tuple(str(finding) for finding in new),
        )
    )
    return new


def replace_findings(ports: ClusterPorts, checked: Checked) -> Plan:
    """Return the frozen plan with the findings of this check instead of its earlier ones, so a repeated scan counts
    once.
    """
    plan = ports.run.load_plan().with_checked([checked])
    keep_plan(ports, plan)
    return plan


def keep_plan(ports: ClusterPorts, plan: Plan) -> None:
    """Store the plan of the run, or the same plan with other findings.

    Neither findings nor what is unknown are part of the plan's hash. So what no approver has read makes the approvals
    invalid, also of a request that waits, before it is in the plan.
    """
    events = ports.run.events()
    if has_readers(events, plan.hash, *_LIST_FINDINGS):
        kept = ports.run.load_plan()
        read = (kept.findings, kept.unknowns, kept.hidden) if kept.hash == plan.hash else ((), {}, {})
        if new := _not_read(plan, *read):
            ports.run.record(Voided(plan_hash=plan.hash, blockers=new))
    ports.run.save_plan(plan)


def _not_read(
    plan: Plan, findings: Sequence[Finding], unknowns: Collection[str], hidden: Collection[str]
) -> tuple[str, ...]:
    """Return, as sentences, what the plan has beside these findings and names of unknown and hidden values."""
    found = find_new((one for one in plan.findings if one.severity is not Severity.INFO), findings)
    unread = {*plan.unknowns} - {*unknowns} | {*plan.hidden} - {*hidden}
    unknown = (f"unknown, {name}: {what.sentence}" for name, what in plan.unknowns.items() if name in unread)
    return (*map(str, found), *unknown)


def replace_coordinator_log_findings(run: Run) -> Plan:
    """Replace the findings about the coordinator logs; a missing scan result is a blocker."""
    return replace_findings(run.ports, check_logs(run))


def check_logs(run: ReadRun) -> Checked:
    """Check the run's scan from before the first stop for the plan."""
    return LOGS_CHECK.ran(
        logs_findings(run, scan_before_roll(run.ports)),
        unless="" if run.plan.changes_release else NO_RESTART,
    )
