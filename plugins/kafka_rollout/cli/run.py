"""Runs of a procedure from a shell: exit codes, Ctrl-C, the commands that continue after a failure, and the services of
a run: the scan with Spark, background processes, the report.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import TYPE_CHECKING

from kafka_rollout.base.errors import FatalError, RefusedError, RolloutError, StoppedError, UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli.answers import shell_responder
from kafka_rollout.cli.show import ProgressLines, SafeConsole, err, out, say
from kafka_rollout.control import lock
from kafka_rollout.control.approval import (
    accept_doubts,
    ask,
    expected_outage_s,
    record_approval,
    record_call,
    record_shell_start,
)
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.gates.gate import GateKind
from kafka_rollout.lowering.outage_facts import outage_sentence
from kafka_rollout.model.plan import BatchStep, Lowering, Plan
from kafka_rollout.model.run_of import ROLLBACK, SIGNED
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
from kafka_rollout.procedure.approval_requests import doubts_part, rollback_part
from kafka_rollout.procedure.kinds import continue_words
from kafka_rollout.procedure.runner import Runner
from kafka_rollout.procedure.step import Procedure
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.builders import GROUPS_WATCHED, record_no_traffic, record_traffic
from kafka_rollout.roll.gate_checks import policy_of
from kafka_rollout.roll.loop import Roll, open_nodes, roll_of, start_again
from kafka_rollout.roll.node import refuse_restart
from kafka_rollout.roll.walk import wait_until_back
from kafka_rollout.run.events import Approval, ApprovalOf, Called, Decision, StartedAtShell, has, newest
from kafka_rollout.run.ports import Answers, Question
from kafka_rollout.run.projections.approvals import find_doubts
from kafka_rollout.run.projections.nodes import (
    find_last_node_event,
    has_stopped_nodes,
    stop_is_unfinished,
)
from kafka_rollout.run.projections.offline import can_be_undone, is_undoing
from kafka_rollout.run.projections.open_batches import RollOf
from kafka_rollout.run.projections.runs import has_acted, is_plan_refused
from kafka_rollout.run.proofs import has_open_traffic
from kafka_rollout.run.step_events import LiveLowered
from kafka_rollout.run.view import RunView

if TYPE_CHECKING:
    from kafka_rollout.client.security.client_security import ClientSecurity


def run_procedure(
    procedure: Procedure, ports: ClusterPorts, request: Request, answers: Answers, services: ShellServices
) -> int:
    """Run or resume a procedure that replaces nodes, and return the exit code. The report is written after every
    result."""
    if not request.dry_run:
        ports.cluster.refuse_unmanaged()
    events = ports.run.events()
    if request.dry_run and (has(events, Approval) or has_acted(events)):
        raise UserError(
            f"Run {ports.run.number} was approved: a dry run in it would hide what it does.",
            remedy="Omit --run to start a new dry run.",
        )
    services.is_new = not events
    with _runner(procedure, ports, request, answers, services) as runner:
        done = runner.run()
    if request.dry_run and runner.plan is None:
        return 0
    if request.dry_run:
        plan = ports.run.load_plan()
        if plan.exit_code == 0 and ports.cluster.manages_nodes and (plan.release_steps or plan.feature_changes):
            say(f"To carry out this plan: {command_of(Run(ports, plan))} {SIGNED}", err)
        return plan.exit_code
    return 0 if done else _stopped(ports, asks=runner.asks)


def roll_back_run(
    procedure: Procedure, ports: ClusterPorts, request: Request, answers: Answers, services: ShellServices
) -> int:
    """Roll the nodes of a run back to their previous release and return the exit code."""
    ports.cluster.refuse_unmanaged()
    plan = ports.run.load_plan()
    refuse_restart(plan)
    body = (
        f"**Undo the offline downgrade of cluster {plan.cluster}**\n\nRestores the backups, release {plan.source}."
        if plan.lowering is Lowering.OFFLINE
        else f"**Roll back cluster {plan.cluster} to {plan.source}**\n\nThrough the same gates, from the node where "
        "the run stopped."
    )
    body = "\n\n".join([body, *rollback_part(Run(ports, plan))])
    with _runner(procedure, ports, request, answers, services) as runner:
        done = runner.roll_back(body)
    return 0 if done else _stopped(ports)


@contextmanager
def _runner(
    procedure: Procedure, ports: ClusterPorts, request: Request, answers: Answers, services: ShellServices
) -> Iterator[Runner]:
    def record_start() -> None:
        record_shell_start(ports, shell_responder())
        if services.called is not None:
            record_call(ports, services.called)

    with stop_signal() as stop_asked:
        runner = Runner(
            ports=ports,
            procedure=procedure,
            request=request,
            answers=answers,
            services=services,
            progress=services.progress,
            named=services.named,
            stop_asked=stop_asked,
            started=record_start,
        )
        try:
            yield runner
        except KeyboardInterrupt:
            raise _interrupted(ports, runner.plan) from None
        except RolloutError:
            if runner.plan is not None:
                _show_next_commands(Run(ports, runner.plan))
            raise


def _interrupted(ports: ClusterPorts, plan: Plan | None) -> StoppedError:
    """Return what a run left that Ctrl-C stopped at once, and how to continue it."""
    events = ports.run.events()
    last = find_last_node_event(events)
    if not has_acted(events):
        left = "The run has changed nothing."
    elif last is not None and stop_is_unfinished(events, last.release_step, last.node_id):
        left = f"Node {last.node_id} was asked to stop and was not started again."
    else:
        left = "No node is stopped by this run."
    again = "Repeat the command" if not events else f"Repeat the command with --run {ports.run.number}"
    return StoppedError(
        f"Stopped by Ctrl-C. {left}",
        remedy=f"{again}." if plan is None else f"Continue with: {command_of(Run(ports, plan))}",
    )


def _stopped(ports: ClusterPorts, *, asks: bool = False) -> int:
    """`asks`: the next call must have the answer of an approver."""
    command = command_of(Run(ports, ports.run.load_plan()))
    command += f" {SIGNED}" if asks and SIGNED not in command else ""
    say(f"Stopped at a safe point. Continue with: {command}", err)
    return StoppedError.exit_code


def command_of(run: Run, *, back: bool = False) -> str:
    """Return the command that continues a run. `back`: that rolls it back, whatever it does now."""
    words = ROLLBACK if back else continue_words(RunView.of(run.history.events()), run.plan)
    command = f"kafka-rollout {words} --cluster {run.plan.cluster} --run {run.ports.run.number}"
    return f"{command} {SIGNED}" if words == ROLLBACK else command


def _show_next_commands(run: Run) -> None:
    """Show the command that plans again, or after a failed gate the commands for the answers that the DAG offers."""
    plan, events = run.plan, run.history.events()
    of_run = f"--cluster {plan.cluster} --run {run.ports.run.number}"
    if plan.release_steps and is_plan_refused(events, plan):
        again = f"{command_of(run)} {SIGNED}"
        say(f"Nothing was changed. Follow the remedies. Then plan again with: {again}", err)
    if not has_stopped_nodes(events):
        return
    again = f"kafka-rollout retry {of_run} {SIGNED}"
    back = ("roll back", command_of(run, back=True))
    if plan.lowering is Lowering.OFFLINE:  # the offline steps start every node without a process
        commands = [] if is_undoing(events) else [("continue and start the nodes that are down", command_of(run))]
        commands += [back] if can_be_undone(events) else []
    else:
        commands = [("wait on", command_of(run)), ("restart the node", again)]
        commands += [back] if plan.changes_release and back[1] != command_of(run) else []
    if find_doubts(events):
        commands.append(("accept the log", f"kafka-rollout accept {of_run} {SIGNED}"))
    for what, command in commands:
        say(f"{what}: {command}", err)


def start_node_again(ports: ClusterPorts, request: Request, answers: Answers) -> None:
    """Ask, start the nodes at which the run stopped, and wait for their gates after the start."""
    run = Run(ports, ports.run.load_plan())
    roll, batch = _stopped_batch(run)
    progress = ProgressLines()
    nodes = ", ".join(f"{node.name} ({node.node_id})" for node in open_nodes(roll, batch))
    what = f"{nodes} on {batch.release_step.to_release}"
    with lock.lock_before_run(ports, f"Start {what} again."):
        question = Question(what=ApprovalOf.FAILED_GATE, body=f"**Start {what} again**")
        answer = ask(ports, answers, question)
        if answer is None or answer.decision != Decision.APPROVED:
            raise RefusedError(f"{what} is not started again.", remedy="The cluster stays in its current state.")
        record_approval(
            ports,
            ApprovalOf.FAILED_GATE,
            answer.by,
            Decision.RETRY,
            answer.reason,
            responder=answer.responder,
            text=question.body,
        )
    try:
        progress.say(f"starting {what} again")
        start_again(roll, batch)
        policy = policy_of(ports, GateKind.AFTER_START, request, run.plan)
        wait_until_back(roll, batch, policy, lambda gate, seen, message: progress.on_check(seen, message))
    finally:
        lock.release_lock(ports)
    say(f"The gate passed. Continue with: {command_of(run)}", err)


def accept_logs(ports: ClusterPorts, answers: Answers) -> None:
    """Ask whether an approver accepts what logs of nodes show or do not show, of the gates that have not passed.

    Raises RefusedError if there is nothing to accept, or if the approver declines.
    """
    doubts = find_doubts(ports.run.events())
    body = f"**Accept, after reading the log:**\n\n{doubts_part(doubts)}"
    question = Question(what=ApprovalOf.NODE_LOG, body=body)
    with lock.lock_before_run(ports, "Accept the log of a node."):
        answer = ask(ports, answers, question) if doubts else None
        if doubts and (answer is None or answer.decision != Decision.APPROVED):
            raise RefusedError("Nothing was accepted.", remedy="Read the log, then fix the cause or retry the node.")
        by, reason = ("", "") if answer is None else (answer.by, answer.reason)
        accept_doubts(ports, doubts, by, reason, responder=None if answer is None else answer.responder, text=body)
    lock.release_lock(ports)
    say(f"Accepted. Continue with: {command_of(Run(ports, ports.run.load_plan()))}", err)


def _stopped_batch(run: Run) -> tuple[Roll, BatchStep]:
    """Return the batch at which the run stopped: the one with the node that it stopped or started last."""
    act = None if run.plan.lowering is Lowering.OFFLINE else find_last_node_event(run.history.events())
    for roll in () if act is None else (roll_of(run), roll_of(run, RollOf.ROLLBACK)):
        for batch in roll.batches:
            if act is not None and (act.release_step, act.node_id) in batch.key:
                return roll, batch
    raise UserError(
        f"Run {run.ports.run.number} has not stopped a node, so there is no node to start again.",
        remedy=f"Continue the run: {command_of(run)}",
    )


@contextmanager
def stop_signal() -> Iterator[Callable[[], bool]]:
    """Stop at the next safe point after the first Ctrl-C or SIGTERM; exit at once after the second."""
    asked = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        err.print(
            "Stopping at the next safe point (a stopped node is started first). Press Ctrl-C again to exit at once."
        )

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(slots=True)
class ShellServices:
    """The services of one command. The group monitor and the test traffic run until `stop`.

    The monitor runs no longer than this process.
    """

    ports: ClusterPorts
    settings: Settings
    security: ClientSecurity | None
    progress: ProgressLines = field(default_factory=ProgressLines)
    says: SafeConsole = out
    """Where the paths of the report are printed."""
    named: frozenset[str] = frozenset()
    """The fields of the request that this call has named."""
    called: Called | None = None
    """The options that the next call of the run keeps; None for a command that continues no run as it began."""
    is_new: bool = False
    """This call began the run."""
    _has_monitor: bool = False
    _has_traffic: bool = False

    def scan(self, file: str, releases: Sequence[Release]) -> None:
        scan_logs(self.ports, self.settings, self.security, file, releases, self.progress)

    def monitor_groups(self) -> None:
        from kafka_rollout.traffic.processes.of_run import start_group_monitor

        if not self._has_monitor:
            cluster, run_id = self.ports.cluster.name, self.ports.run_id
            start_group_monitor(cluster, run_id, security=self.security, only_with=os.getpid())
            self._has_monitor = True

    def start_traffic(self) -> None:
        from kafka_rollout.traffic.processes.of_run import start_traffic

        plan = self.ports.run.load_plan()
        start_traffic(
            self.ports.cluster,
            self.ports.run_id,
            security=self.security,
            lowered=plan.lowered,
            together=plan.batches,
            settings=self.settings,
        )
        self._has_traffic = True

    def stop(self) -> None:
        """Stop the background processes and attach their results. Raises FatalError if the traffic check failed.

        Test traffic of a call that was killed runs on: it is compared, also if this call began none.
        """
        from kafka_rollout.traffic.processes.of_run import stop_group_monitor, stop_traffic, traffic_folder

        cluster, run_id = self.ports.cluster.name, self.ports.run_id
        if self._has_monitor:
            self._has_monitor = False
            if (watched := stop_group_monitor(cluster, run_id, settings=self.settings)) is not None:
                self.ports.run.attach(GROUPS_WATCHED, watched)
        if self._has_traffic or has_open_traffic(self.ports.run.events()):
            self._has_traffic = False
            with lock.keep_lock(self.ports):
                verdict = stop_traffic(
                    self.ports.cluster,
                    run_id,
                    security=self.security,
                    settings=self.settings,
                    on_progress=self.progress.say,
                )
            if verdict is None:
                record_no_traffic(self.ports)
                return
            verdict = record_traffic(self.ports, verdict)
            if not verdict.ok:
                lost = "; ".join(found.sentence for found in verdict.discrepancies)
                raise FatalError(
                    f"The traffic check failed: {lost or 'one kind of test traffic produced or consumed nothing'}",
                    remedy=f"Read its journals in {traffic_folder(cluster, run_id, self.settings)}.",
                )

    def report(self, *, dry_run: bool) -> None:
        from kafka_rollout.wiring.runs import write_run_report
        from kafka_rollout.wiring.stored_state import keep_last_seen

        plan = self.ports.run.load_plan()
        if dry_run and self.called is not None:  # its run can be carried out, with the same options
            if self.is_new:  # who made the plan is its starter
                self.ports.run.record(StartedAtShell(starter=shell_responder()))
            options = {name: value for name, value in self.called.options.items() if name != "dry_run"}
            record_call(self.ports, replace(self.called, options=options))
        _, page, data = write_run_report(Run(self.ports, plan), dry_run=dry_run)
        keep_last_seen(self.ports.cluster, self.ports.run.events(), self.settings)
        say(f"report: {page}", self.says)
        say(data, self.says)
        if plan.lowering is Lowering.OFFLINE and (
            took := outage_sentence(RunView.of(self.ports.run.events()), expected_outage_s(self.ports))
        ):
            say(took, err)
        if lowered := newest(self.ports.run.events(), LiveLowered):
            say(lowered.sentence, err)


def scan_logs(
    ports: ClusterPorts,
    settings: Settings,
    security: ClientSecurity | None,
    file: str,
    releases: Sequence[Release],
    progress: ProgressLines,
) -> ScanResult:
    """Scan with Spark in a separate process and attach the result to the run."""
    from kafka_rollout.coordinator_logs.spark.submit import scan_command
    from kafka_rollout.observation.planned_coordinators import planned_group_coordinator

    def on_progress(line: str) -> None:
        progress.say(f"scan: {line}")

    progress.say("scan: starting Spark")
    with lock.keep_lock(ports):
        _, result = scan_command(
            ports.cluster,
            settings,
            new_group_coordinator=planned_group_coordinator(ports, releases),
            security=security,
            on_progress=on_progress,
        )
    ports.run.attach(file, result)
    return result
