"""Upgrades and rollbacks from a shell, with the steps, gates and run history of the DAG."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import typer

from kafka_rollout.cli.background import run_background_checks
from kafka_rollout.cli.show import ProgressLines, as_text, err, out, print_body
from kafka_rollout.composition.pages import write_run_report
from kafka_rollout.domain.coordinator_logs.scan import ScanResult
from kafka_rollout.domain.gates.ref import GateKind, GateRef
from kafka_rollout.domain.gates.watch import GatePolicy
from kafka_rollout.domain.model.errors import FatalError, RefusedError, RolloutError, TransientError, UserError
from kafka_rollout.domain.model.plan import Direction, Plan
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.run.events import APPROVED, ApprovalOf, CanaryAsked
from kafka_rollout.domain.run.projections.gates import gate_is_passed
from kafka_rollout.domain.run.projections.nodes import has_stopped_nodes
from kafka_rollout.domain.run.projections.offline import can_be_undone, is_undoing
from kafka_rollout.domain.run.projections.runs import canary_is_asked, has_plan
from kafka_rollout.settings import Settings
from kafka_rollout.steps.common import lock
from kafka_rollout.steps.common.approval import (
    approval_body,
    canary_body,
    record_approval,
    refuse_blockers,
    refuse_stranger,
    require_approval,
)
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.node_steps import previous_release
from kafka_rollout.steps.features.levels import check_support, finalize, pending_changes, undo_by_controller
from kafka_rollout.steps.features.snapshot import prove_snapshot
from kafka_rollout.steps.gates.waiting import wait_for_gate
from kafka_rollout.steps.offline.facts import expected_outage_s
from kafka_rollout.steps.offline.outage import outage_sentence
from kafka_rollout.steps.offline.undo import gates_after_undo, undo_offline
from kafka_rollout.steps.planning.coordinator_logs import SCAN_BEFORE_ROLL, scan_before_roll
from kafka_rollout.steps.planning.plan_findings import replace_coordinator_log_findings
from kafka_rollout.steps.planning.upgrade import plan_upgrade
from kafka_rollout.steps.report.run import SCAN_VERDICT
from kafka_rollout.steps.runner import roll_back, roll_release_steps

if TYPE_CHECKING:
    from kafka_rollout.composition.credentials import ClientSecurity

INTERRUPTED = 130


class FinalizePolicy(StrEnum):
    LATER = "later"
    AFTER_APPROVAL = "after-approval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approver:
    """Approver and reason. `asks` False: do not ask at the terminal."""

    name: str | None
    reason: str | None
    asks: bool

    def approve(
        self, ports: ClusterPorts, plan: Plan, what: ApprovalOf, body: str, *, decision: str = APPROVED
    ) -> None:
        """Show the decision, ask at the terminal, record the name. An approval in the run history stays valid."""
        print_body(body)
        if self.name is None:
            require_approval(ports, plan, what)
            return
        refuse_stranger(ports.cluster, self.name)
        if self.asks:
            if not sys.stdin.isatty():
                raise UserError(
                    f"There is no terminal to confirm the {what.value}.",
                    remedy="Run the command in a terminal, or confirm with --yes.",
                )
            if not typer.confirm(f"{self.name}, do you approve the {what.value}?", default=False, err=True):
                record_approval(ports, what, self.name, "rejected", self.reason or "declined at the terminal")
                remedy = (
                    "The cluster stays in its current state."
                    if has_stopped_nodes(ports.run.events())
                    else "Nothing was changed."
                )
                raise RefusedError(f"{self.name} did not approve the {what.value}.", remedy=remedy)
        record_approval(ports, what, self.name, decision, self.reason or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RollRequest:
    """The request on the command line."""

    target: Release
    policy: GatePolicy
    approver: Approver
    finalize: FinalizePolicy
    dry_run: bool
    scan: bool
    ledger: bool
    security: ClientSecurity | None
    security_file: Path | None
    snapshot_interval_ms: int | None = None
    canary: bool = False


def roll(ports: ClusterPorts, settings: Settings, request: RollRequest) -> int:
    """Run the whole upgrade and return the exit code. The report is always written."""
    with nullcontext() if request.dry_run else lock.lock_before_run(ports, f"Roll to {request.target}."):
        plan = _plan(ports, settings, request)
    if request.dry_run:
        print_body(approval_body(plan))
        report(ports, plan, settings, dry_run=True)
        return RefusedError.exit_code if plan.blockers else 0

    def act(stop_asked: Callable[[], bool], progress: ProgressLines) -> bool:
        refuse_blockers(plan)
        if plan.release_steps:
            request.approver.approve(ports, plan, ApprovalOf.ROLL, approval_body(plan))
        with run_background_checks(ports, settings, request.ledger, request.security_file):
            if plan.release_steps:
                _wait_for_groups(ports, plan, request.policy, progress)
            canary = _canary(ports, plan, request, progress)
            if plan.release_steps and not roll_release_steps(
                ports, plan, request.policy, on_progress=progress, stop_asked=stop_asked, canary=canary
            ):
                return False
            # The plan of a resumed run can contain levels that this call does not finalize.
            if plan.feature_changes and request.finalize is FinalizePolicy.AFTER_APPROVAL:
                _finalize(ports, plan, settings, request, progress)
        return True

    return run_to_report(ports, plan, settings, act)


def _wait_for_groups(ports: ClusterPorts, plan: Plan, policy: GatePolicy, progress: ProgressLines) -> None:
    """Wait until no group of an unsupported preview is left. After the first stop this gate has already passed."""
    gate = GateRef(kind=GateKind.GROUPS)
    if not gate_is_passed(ports.run.events(), gate):
        wait_for_gate(ports, plan, gate, replace(policy, looks=1, soak_s=0.0), progress.on_check)


def _canary(
    ports: ClusterPorts, plan: Plan, request: RollRequest, progress: ProgressLines
) -> Callable[[bool], bool] | None:
    """Request the approval after the first node, in this call or in a later one of the same run."""
    if request.canary:
        ports.run.record(CanaryAsked())
    if not canary_is_asked(ports.run.events()):
        return None

    def go_on(rolled_now: bool) -> bool:
        try:
            require_approval(ports, plan, ApprovalOf.CANARY)
            return True
        except RefusedError:
            pass
        if rolled_now and not (request.approver.asks and sys.stdin.isatty()):
            progress.say("the first node is upgraded and its gate passed: check it, then approve with the next call")
            return False
        request.approver.approve(ports, plan, ApprovalOf.CANARY, canary_body(plan))
        return True

    return go_on


def back(ports: ClusterPorts, settings: Settings, policy: GatePolicy, approver: Approver) -> int:
    """Roll back a run from a shell; return the exit code."""
    plan = ports.run.load_plan()
    lock.acquire_lock(ports, f"Roll back to {plan.source}.")

    def take_back(stop_asked: Callable[[], bool], progress: ProgressLines) -> bool:
        body = (
            f"**Undo the offline downgrade of cluster {plan.cluster}**\n\nRestores the backups, release {plan.source}."
        )
        approver.approve(ports, plan, ApprovalOf.ROLL_BACK, body)
        progress.say("offline downgrade: restoring the metadata log of every node")
        undo_offline(ports, plan)

        for gate in gates_after_undo(plan):
            wait_for_gate(ports, plan, gate, policy, progress.on_check)
        return True

    def act(stop_asked: Callable[[], bool], progress: ProgressLines) -> bool:
        body = (
            f"**Roll back cluster {plan.cluster} to {plan.source}**\n\nThrough the same gates, from the node "
            "where the run stopped."
        )
        approver.approve(ports, plan, ApprovalOf.ROLL_BACK, body)
        return roll_back(ports, plan, policy, on_progress=progress, stop_asked=stop_asked)

    return run_to_report(ports, plan, settings, take_back if plan.offline else act)


def _plan(ports: ClusterPorts, settings: Settings, request: RollRequest) -> Plan:
    """Return the plan of the run. A resumed run keeps its own; a plan of `plan` gets the findings of a scan first."""
    if has_plan(ports.run.events()):
        plan = ports.run.load_plan()
        if plan.target != request.target:
            raise UserError(
                f"The target of run {ports.run_id} is {plan.target}, not {request.target}.",
                remedy="Omit --run to start a new run.",
            )
        unscanned = scan_before_roll(ports) is None and not has_stopped_nodes(ports.run.events())
        if not (request.scan and plan.release_steps and unscanned):
            return plan
        scan_before_planning(ports, settings, request.security)
        return replace_coordinator_log_findings(ports, plan)
    if request.scan:
        scan_before_planning(ports, settings, request.security)
    return plan_upgrade(
        ports,
        request.target,
        finalize=request.finalize is FinalizePolicy.AFTER_APPROVAL,
        snapshot_interval_ms=request.snapshot_interval_ms,
        with_logs=request.scan,
    )


def scan_before_planning(ports: ClusterPorts, settings: Settings, security: ClientSecurity | None) -> None:
    try:
        scan_logs(ports, settings, security, SCAN_BEFORE_ROLL, ProgressLines())
    except (TransientError, FatalError) as error:
        err.print(as_text(f"scan: {error}"), soft_wrap=True)  # the plan has a finding about the missing scan


def run_to_report(
    ports: ClusterPorts, plan: Plan, settings: Settings, act: Callable[[Callable[[], bool], ProgressLines], bool]
) -> int:
    try:
        with stop_signal() as stop_asked:
            done = act(stop_asked, ProgressLines())
    except KeyboardInterrupt:
        err.print(f"Interrupted. Continue with --run {as_text(ports.run_id)}: the run continues where it stopped.")
        raise
    except RolloutError:
        lock.release_lock(ports)
        report(ports, plan, settings)
        _tell_ways_on(ports, plan)
        raise
    lock.release_lock(ports)
    report(ports, plan, settings)
    if not done:
        err.print(f"Stopped at a safe point. Continue with: {as_text(command_of(ports, plan))}", soft_wrap=True)
        return INTERRUPTED
    return 0


def command_of(ports: ClusterPorts, plan: Plan, *, back: bool = False) -> str:
    """Return the command that continues a run."""
    words = "roll" if plan.direction is Direction.UPGRADE else "downgrade"
    words = "roll-back" if back else f"{words} --to {plan.target}"
    return f"kafka-rollout {words} --cluster {plan.cluster} --run {ports.run_id}"


def _tell_ways_on(ports: ClusterPorts, plan: Plan) -> None:
    """Return the actions after a failed gate, as the DAG offers them."""
    events = ports.run.events()
    if not has_stopped_nodes(events):
        return
    again = f"kafka-rollout retry --cluster {plan.cluster} --run {ports.run_id}"
    back = ("roll back", command_of(ports, plan, back=True))
    if plan.offline:  # its own steps start every node without a process
        ways = [] if is_undoing(events) else [("continue and start the nodes that are down", command_of(ports, plan))]
        ways += [back] if can_be_undone(events) else []
    else:
        ways = [("wait on", command_of(ports, plan)), ("start the node again", again), back]
    for what, command in ways:
        err.print(as_text(f"{what}: {command}"), soft_wrap=True)


def _finalize(
    ports: ClusterPorts, plan: Plan, settings: Settings, request: RollRequest, progress: ProgressLines
) -> None:
    if pending_changes(ports, plan):
        progress.say("features: checking whether every node and the controller support the levels")
        support = check_support(ports, plan)
        if not support.ok:
            raise RefusedError(
                f"The levels are not finalized: {'; '.join(f.sentence for f in support.blockers)}",
                remedy=" ".join(dict.fromkeys(finding.remedy for finding in support.blockers)),
            )
        scanned = (
            _way_back(ports, plan, settings, request.security, progress) if request.scan else "not scanned (--no-scan)"
        )
        shown = replace(plan, feature_changes=undo_by_controller(ports, plan))
        request.approver.approve(
            ports, plan, ApprovalOf.FINALIZE, approval_body(shown, support, what=ApprovalOf.FINALIZE, scan=scanned)
        )
    progress.say("features: finalizing")
    finalize(ports, plan)

    for kind in (GateKind.FINALIZED, GateKind.SNAPSHOT, GateKind.METADATA_VERSION):
        # A snapshot can take as long as the nodes' snapshot interval; the message of the gate shows the expected
        # time.
        longest = 2 * 3600.0 if kind is GateKind.SNAPSHOT else request.policy.timeout_s
        policy = GatePolicy(looks=request.policy.looks, interval_s=request.policy.interval_s, timeout_s=longest)
        wait_for_gate(ports, plan, GateRef(kind=kind), policy, progress.on_check)
        if kind is GateKind.SNAPSHOT:
            progress.say("snapshot: loading one with the classes of the target release")
            prove_snapshot(ports, plan)


def _way_back(
    ports: ClusterPorts, plan: Plan, settings: Settings, security: ClientSecurity | None, progress: ProgressLines
) -> str:
    previous = previous_release(ports, plan)
    failing = scan_logs(ports, settings, security, SCAN_VERDICT, progress).failing(previous)
    if not failing:
        return f"{previous} can load every coordinator log as it is now."
    return f"{previous} can no longer load {len(failing)} partition(s) of the coordinator logs."


def scan_logs(
    ports: ClusterPorts, settings: Settings, security: ClientSecurity | None, file: str, progress: ProgressLines
) -> ScanResult:
    from kafka_rollout.composition.scans import scan_cluster

    def on_progress(line: str) -> None:
        progress.say(f"scan: {line}")

    progress.say("scan: starting Spark")
    with tempfile.TemporaryDirectory(prefix="kafka-rollout-scan-") as scratch, lock.keep_lock(ports):
        result = scan_cluster(
            ports.cluster,
            settings,
            security=security,
            json_file=Path(scratch) / "scan.json",
            on_progress=on_progress,
        )
    ports.run.attach(file, result.to_dict())
    return result


@contextmanager
def stop_signal() -> Iterator[Callable[[], bool]]:
    """Stop at the next safe point after the first Ctrl-C; exit at once after the second."""
    asked = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        err.print(
            "Stopping at the next safe point (a stopped node is started first). Press Ctrl-C again to exit at once."
        )

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


def report(ports: ClusterPorts, plan: Plan, settings: Settings, *, dry_run: bool = False) -> None:
    page, data = write_run_report(ports, plan, dry_run=dry_run, settings=settings)
    out.print(as_text(f"report: {page}"), soft_wrap=True)
    out.print(as_text(data), soft_wrap=True)
    if plan.offline and (took := outage_sentence(ports.run.events(), expected_outage_s(ports))):
        err.print(as_text(took), soft_wrap=True)
