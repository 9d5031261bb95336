"""The command `kafka-rollout downgrade`: a whole downgrade with the steps, gates and run history of the DAG."""

# ruff: noqa: PLR0917 - a command's options are its parameters
from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_rollout.cli.background import run_background_checks
from kafka_rollout.cli.options import (
    Approved,
    ClusterName,
    ConnectionFile,
    Interval,
    Looks,
    Reason,
    RunId,
    Soak,
    Target,
    Timeout,
    Yes,
    open_bench,
)
from kafka_rollout.cli.show import ProgressLines, print_body
from kafka_rollout.cli.upgrade import Approver, report, run_to_report, scan_before_planning
from kafka_rollout.domain.gates.ref import GateKind, GateRef
from kafka_rollout.domain.gates.watch import GatePolicy
from kafka_rollout.domain.model.errors import FatalError, RefusedError, UserError
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.planning.downgrade import WhereRefused
from kafka_rollout.domain.run.events import ApprovalOf
from kafka_rollout.domain.run.projections.approvals import approvals
from kafka_rollout.domain.run.projections.offline import stop_has_begun
from kafka_rollout.domain.run.projections.runs import has_plan
from kafka_rollout.settings import Settings
from kafka_rollout.steps.common import lock
from kafka_rollout.steps.common.approval import refuse_blockers
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.downgrade.approval import levels_body, plan_body, roll_body
from kafka_rollout.steps.downgrade.contents import compare_inventory, take_inventory
from kafka_rollout.steps.downgrade.metadata_logs import report_losses, scan_metadata_logs
from kafka_rollout.steps.features.levels import check_support, finalize, pending_changes, refuse
from kafka_rollout.steps.features.snapshot import prove_snapshot
from kafka_rollout.steps.gates.waiting import wait_for_gate
from kafka_rollout.steps.offline.facts import shown_facts
from kafka_rollout.steps.offline.order import OfflineStep
from kafka_rollout.steps.planning.check import refuse_new_blockers
from kafka_rollout.steps.planning.downgrade import is_downgrade, plan_downgrade
from kafka_rollout.steps.planning.plan_findings import replace_coordinator_log_findings
from kafka_rollout.steps.roll.node import touched
from kafka_rollout.steps.runner import roll_release_steps

if TYPE_CHECKING:
    from kafka_rollout.composition.credentials import ClientSecurity

_SNAPSHOT_S = (
    2 * 3600.0
)  # a snapshot can take as long as the nodes' snapshot interval; the gate shows the expected time


@dataclass(frozen=True, slots=True, kw_only=True)
class DowngradeRequest:
    """The request on the command line."""

    target: Release
    level: int | None
    unsafe: bool
    where_refused: WhereRefused
    policy: GatePolicy
    approver: Approver
    dry_run: bool
    ledger: bool
    security: ClientSecurity | None
    security_file: Path | None


def downgrade(
    cluster: ClusterName,
    to: Target,
    level: Annotated[
        int | None,
        typer.Option(
            "--to-level", help=("The metadata.version to set; default: the highest that the target supports.")
        ),
    ] = None,
    unsafe: Annotated[
        bool,
        typer.Option("--unsafe/--safe", help=("Continue if metadata would be lost, and list the losses; or refuse.")),
    ] = False,
    where_refused: Annotated[WhereRefused, typer.Option(help="Action if Kafka refuses the level.")] = WhereRefused.STOP,
    approve_as: Approved = None,
    reason: Reason = None,
    soak: Soak = 30.0,
    looks: Looks = 3,
    interval: Interval = 1.0,
    timeout: Timeout = 600.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help=("Create the plan, the scans and the loss report, then stop."))
    ] = False,
    ledger: Annotated[
        bool,
        typer.Option(
            "--ledger", help=("Run test traffic during the downgrade and compare acknowledged with consumed records.")
        ),
    ] = False,
    yes: Yes = False,
    run: RunId = None,
    connection_file: ConnectionFile = None,
) -> None:
    """Downgrade a cluster to an older release and its levels: scans, loss report, levels, then node by node.

    Needs a named approval. Ctrl-C stops at the next safe point; --run resumes.
    """
    if not dry_run and run is None and (not approve_as or not reason):
        raise UserError(
            "A downgrade needs a named approval.", remedy="Add --approve-as NAME --reason TEXT, or --dry-run."
        )
    with open_bench(cluster, run, connection_file) as (ports, settings, security):
        request = DowngradeRequest(
            target=Release.parse(to),
            level=level,
            unsafe=unsafe,
            where_refused=where_refused,
            policy=GatePolicy(looks=looks, interval_s=interval, timeout_s=timeout, soak_s=soak),
            approver=Approver(name=approve_as, reason=reason, asks=not yes),
            dry_run=dry_run,
            ledger=ledger,
            security=security,
            security_file=connection_file,
        )
        raise typer.Exit(go_down(ports, settings, request))


def go_down(ports: ClusterPorts, settings: Settings, request: DowngradeRequest) -> int:
    """Run the whole downgrade and return the exit code. The report is always written."""
    with nullcontext() if request.dry_run else lock.lock_before_run(ports, f"Downgrade to {request.target}."):
        plan = _plan(ports, settings, request)
    if request.dry_run:
        print_body(plan_body(ports, plan, _facts(ports, plan)))
        report(ports, plan, settings, dry_run=True)
        return RefusedError.exit_code if plan.blockers else 0

    def act(stop_asked: Callable[[], bool], progress: ProgressLines) -> bool:
        refuse_blockers(plan)
        # Resumed after the first stop: nodes can be down, so the conditions before that stop are not checked again. A
        # rolling downgrade checks before each stop anyway, and its approval can have become invalid. Offline no node
        # responds.
        stopping = stop_has_begun(ports.run.events()) if plan.offline else _roll_has_begun(ports, plan)
        pending = () if plan.offline and stopping else pending_changes(ports, plan)
        lowered = stopping and not pending
        if pending:
            support = check_support(ports, plan, waits=True)
            refuse(support)
            request.approver.approve(ports, plan, ApprovalOf.FINALIZE, levels_body(ports, plan, support))
        if not lowered:  # before the inventory, so that changes by others during the wait do not count
            _wait(ports, plan, GateRef(kind=GateKind.GROUPS), request.policy, progress)
        take_inventory(ports)
        with run_background_checks(ports, settings, request.ledger, request.security_file):
            if not lowered:
                _lower(ports, plan, request, progress)
            if plan.release_steps and not (plan.offline and stopping):
                if not lowered:
                    refuse_new_blockers(ports, plan)
                body = roll_body(ports, plan, _facts(ports, plan))
                request.approver.approve(ports, plan, ApprovalOf.ROLL, body)
            if plan.offline:
                _offline(ports, plan, request, progress)
            elif not roll_release_steps(ports, plan, request.policy, on_progress=progress, stop_asked=stop_asked):
                return False
            for kind in (GateKind.LEVELS, GateKind.FINAL_METADATA_VERSION):
                _wait(ports, plan, GateRef(kind=kind), request.policy, progress)
            if amiss := [one.sentence for one in compare_inventory(ports) if not one.foretold]:
                raise FatalError(" ".join(amiss[:20]), remedy="Restore the missing objects before clients use them.")
        return True

    return run_to_report(ports, plan, settings, act)


def _roll_has_begun(ports: ClusterPorts, plan: Plan) -> bool:
    return any(
        touched(ports, plan, release_step.key, node_step.node_id)
        for release_step in plan.release_steps
        for node_step in release_step.order
    )


def _facts(ports: ClusterPorts, plan: Plan) -> Sequence[str]:
    """Return the facts of an offline downgrade for the approver; empty for other downgrades."""
    return shown_facts(ports, plan) if plan.offline else ()


def _plan(ports: ClusterPorts, settings: Settings, request: DowngradeRequest) -> Plan:
    """Return the plan of the run with its scan results.

    A resumed run keeps its plan and is scanned until it is approved.
    """
    if has_plan(ports.run.events()):
        plan = ports.run.load_plan()
        if plan.target != request.target or not is_downgrade(ports):
            raise UserError(
                f"Run {ports.run_id} is a {plan.direction} to {plan.target}.",
                remedy="Omit --run to start a new run.",
            )
        if approvals(ports.run.events()):
            return plan
    else:
        plan = plan_downgrade(
            ports, request.target, level=request.level, unsafe=request.unsafe, where_refused=request.where_refused
        )
    progress = ProgressLines()
    if plan.release_steps:
        scan_before_planning(ports, settings, request.security)
    progress.say("metadata logs: replaying the log of every node with the classes of the older release")
    replace_coordinator_log_findings(ports, scan_metadata_logs(ports, plan))
    progress.say("losses: writing the metadata at the lower level")
    weighed, _ = report_losses(ports, plan)
    return weighed


def _lower(ports: ClusterPorts, plan: Plan, request: DowngradeRequest, progress: ProgressLines) -> None:
    progress.say("features: lowering, metadata.version last")
    finalize(ports, plan)
    _wait(ports, plan, GateRef(kind=GateKind.FINALIZED), request.policy, progress)
    if plan.offline or not (plan.release_steps or plan.feature_changes):
        return
    longer = replace(request.policy, timeout_s=_SNAPSHOT_S)
    _wait(ports, plan, GateRef(kind=GateKind.SNAPSHOT), longer, progress)
    prove_snapshot(ports, plan)
    for kind in (GateKind.METADATA_VERSION, GateKind.METADATA_LOG):
        _wait(ports, plan, GateRef(kind=kind), request.policy, progress)


def _offline(ports: ClusterPorts, plan: Plan, request: DowngradeRequest, progress: ProgressLines) -> None:
    for step in OfflineStep:
        progress.say(f"offline: {step.words}")
        step.act(ports, plan)
    for node in ports.cluster.controllers_first:
        ref = GateRef(kind=GateKind.AFTER_START, release_step=plan.release_steps[0].key, node_id=node.node_id)
        _wait(ports, plan, ref, request.policy, progress)


def _wait(ports: ClusterPorts, plan: Plan, ref: GateRef, policy: GatePolicy, progress: ProgressLines) -> None:
    # Only a node that was just started needs a soak and several consecutive passing checks.
    after_start = ref.kind is GateKind.AFTER_START
    wait_for_gate(ports, plan, ref, policy if after_start else replace(policy, soak_s=0.0, looks=1), progress.on_check)
