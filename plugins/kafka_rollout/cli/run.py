"""Runs of a procedure from a shell: exit codes, Ctrl-C, and the commands that continue after a failure."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from kafka_rollout.base.errors import RefusedError, RolloutError, StoppedError, UserError
from kafka_rollout.cli.answers import shell_responder
from kafka_rollout.cli.services import ShellServices
from kafka_rollout.cli.show import ProgressLines, err, say
from kafka_rollout.gates.check import Gate, GateKind, GateRef
from kafka_rollout.model.plan import NodeStep, Plan, ReleaseStep
from kafka_rollout.planning.request import Request
from kafka_rollout.run.events import ApprovalOf, Decision
from kafka_rollout.run.ports import Answers, Question
from kafka_rollout.run.projections.nodes import (
    find_last_node_event,
    gate_is_passed,
    has_acted_on_node,
    has_stopped_nodes,
    stop_is_unfinished,
)
from kafka_rollout.run.projections.offline import can_be_undone, is_undoing
from kafka_rollout.run.projections.runs import has_acted, is_plan_refused, run_of
from kafka_rollout.steps.common import lock
from kafka_rollout.steps.common.approval import ask, record_approval
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.four_eyes import record_shell_start
from kafka_rollout.steps.common.node_steps import is_rollback_step
from kafka_rollout.steps.gates.waiting import policy_of, wait_for_gate
from kafka_rollout.steps.procedures.kinds import continue_words
from kafka_rollout.steps.roll.node import refuse_restart, retry_node
from kafka_rollout.steps.runner import Runner
from kafka_rollout.steps.step import Procedure


def run_procedure(
    procedure: Procedure, ports: ClusterPorts, request: Request, answers: Answers, services: ShellServices
) -> int:
    """Run or resume a procedure that replaces nodes, and return the exit code. The report is written after every
    result."""
    if not request.dry_run:
        ports.cluster.refuse_unmanaged()
    with _runner(procedure, ports, request, answers, services) as runner:
        done = runner.run()
    if request.dry_run:
        return RefusedError.exit_code if runner.plan is not None and runner.plan.blockers else 0
    return 0 if done else _stopped(ports)


def roll_back_run(
    procedure: Procedure, ports: ClusterPorts, request: Request, answers: Answers, services: ShellServices
) -> int:
    """Roll the nodes of a run back to their previous release and return the exit code."""
    ports.cluster.refuse_unmanaged()
    plan = ports.run.load_plan()
    refuse_restart(plan)
    body = (
        f"**Undo the offline downgrade of cluster {plan.cluster}**\n\nRestores the backups, release {plan.source}."
        if plan.offline
        else f"**Roll back cluster {plan.cluster} to {plan.source}**\n\nThrough the same gates, from the node where "
        "the run stopped."
    )
    with _runner(procedure, ports, request, answers, services) as runner:
        done = runner.roll_back(body)
    return 0 if done else _stopped(ports)


@contextmanager
def _runner(
    procedure: Procedure, ports: ClusterPorts, request: Request, answers: Answers, services: ShellServices
) -> Iterator[Runner]:
    with stop_signal() as stop_asked:
        runner = Runner(
            ports=ports,
            procedure=procedure,
            request=request,
            answers=answers,
            services=services,
            progress=services.progress,
            stop_asked=stop_asked,
            started=lambda: record_shell_start(ports, shell_responder()),
        )
        try:
            yield runner
        except KeyboardInterrupt:
            raise _interrupted(ports, runner.plan) from None
        except RolloutError:
            if runner.plan is not None:
                _show_next_commands(ports, runner.plan)
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
    again = "Repeat the command" if not events else f"Repeat the command with --run {ports.run_id}"
    return StoppedError(
        f"Stopped by Ctrl-C. {left}",
        remedy=f"{again}." if plan is None else f"Continue with: {command_of(ports, plan)}",
    )


def _stopped(ports: ClusterPorts) -> int:
    command = command_of(ports, ports.run.load_plan())
    say(f"Stopped at a safe point. Continue with: {command}", err)
    return StoppedError.exit_code


def command_of(ports: ClusterPorts, plan: Plan, *, back: bool = False) -> str:
    """Return the command that continues a run."""
    words = "rollback" if back else continue_words(run_of(ports.run.events()), plan.target)
    return f"kafka-rollout {words} --cluster {plan.cluster} --run {ports.run_id}"


def _show_next_commands(ports: ClusterPorts, plan: Plan) -> None:
    """Show the command that plans again, or after a failed gate the commands for the answers that the DAG offers."""
    events = ports.run.events()
    if plan.release_steps and is_plan_refused(events, plan):
        again = f"{command_of(ports, plan)} --as NAME --reason REASON"
        say(f"Nothing was changed. Follow the remedies. Then plan again with: {again}", err)
    if not has_stopped_nodes(events):
        return
    again = f"kafka-rollout retry --cluster {plan.cluster} --run {ports.run_id}"
    back = ("roll back", command_of(ports, plan, back=True))
    if plan.offline:  # the offline steps start every node without a process
        commands = (
            [] if is_undoing(events) else [("continue and start the nodes that are down", command_of(ports, plan))]
        )
        commands += [back] if can_be_undone(events) else []
    else:
        commands = [("wait on", command_of(ports, plan)), ("restart the node", again)]
        commands += [] if plan.restarts else [back]
    for what, command in commands:
        say(f"{what}: {command}", err)


def start_node_again(ports: ClusterPorts, request: Request, answers: Answers) -> None:
    """Ask, start the node at which the run stopped, and wait for its gate after the start."""
    plan = ports.run.load_plan()
    release_step, node_step = _stopped_node_step(ports, plan)
    progress = ProgressLines()
    what = f"{node_step.name} ({node_step.node_id}) on {release_step.to_release}"
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
        node = ports.cluster.node(node_step.node_id)
        retry_node(ports, plan, release_step, node)
        gate = Gate(kind=GateKind.AFTER_START, release_step=release_step, node=node)
        wait_for_gate(ports, plan, gate, policy_of(ports, gate.kind, request, plan), progress.on_check)
    finally:
        lock.release_lock(ports)
    say(f"The gate passed. Continue with: {command_of(ports, plan, back=is_rollback_step(plan, release_step))}", err)


def _stopped_node_step(ports: ClusterPorts, plan: Plan) -> tuple[ReleaseStep, NodeStep]:
    """Return the node step at which the run stopped: the node that it stopped or started last.

    Of a batch, it is the first node that was stopped and whose gate has not passed.
    """
    events = ports.run.events()
    act = None if plan.offline else find_last_node_event(events)
    release_step = None if act is None else plan.release_step(act.release_step)
    node_step = None
    if act is not None and release_step is not None:
        key = release_step.key
        open_nodes = (
            node_id
            for node_id in release_step.batch_of(act.node_id)
            if has_acted_on_node(events, key, node_id)
            and not gate_is_passed(events, GateRef(kind=GateKind.AFTER_START, release_step=key, node_id=node_id))
        )
        node_step = release_step.node_step(next(open_nodes, act.node_id))
    if release_step is None or node_step is None:
        raise UserError(
            f"Run {ports.run_id} has not stopped a node, so there is no node to start again.",
            remedy=f"Continue the run: {command_of(ports, plan)}",
        )
    return release_step, node_step


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
