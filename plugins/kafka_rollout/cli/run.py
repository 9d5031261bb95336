"""Runs of a procedure from a shell: what to do at Ctrl-C and after a failure, and the exit code."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from kafka_rollout.cli.services import ShellServices
from kafka_rollout.cli.show import as_text, err
from kafka_rollout.domain.model.errors import RefusedError, RolloutError
from kafka_rollout.domain.model.plan import Direction, Plan
from kafka_rollout.domain.planning.request import Request
from kafka_rollout.domain.run.projections.nodes import has_stopped_nodes
from kafka_rollout.domain.run.projections.offline import can_be_undone, is_undoing
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.runner import Runner
from kafka_rollout.steps.step import Procedure

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_rollout.ports.answers import Answers

INTERRUPTED = 130


def run_procedure(
    procedure: Procedure, ports: ClusterPorts, request: Request, answers: Answers, services: ShellServices
) -> int:
    """Run or resume a procedure; the exit code. The report is written however it ends."""
    with _runner(procedure, ports, request, answers, services) as runner:
        done = runner.run()
    if request.dry_run:
        return RefusedError.exit_code if runner.plan is not None and runner.plan.blockers else 0
    return 0 if done else _stopped(ports)


def roll_back_run(
    procedure: Procedure, ports: ClusterPorts, request: Request, answers: Answers, services: ShellServices
) -> int:
    """Return a run's nodes to their previous release; the exit code."""
    plan = ports.run.load_plan()
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
        )
        try:
            yield runner
        except KeyboardInterrupt:
            err.print(f"Interrupted. Continue with --run {as_text(ports.run_id)}: the run continues where it stopped.")
            raise
        except RolloutError:
            if runner.plan is not None:
                _show_ways_on(ports, runner.plan)
            raise


def _stopped(ports: ClusterPorts) -> int:
    command = command_of(ports, ports.run.load_plan())
    err.print(f"Stopped at a safe point. Continue with: {as_text(command)}", soft_wrap=True)
    return INTERRUPTED


def command_of(ports: ClusterPorts, plan: Plan, *, back: bool = False) -> str:
    """Return the command that continues a run."""
    words = "roll" if plan.direction is Direction.UPGRADE else "downgrade"
    words = "roll-back" if back else f"{words} --to {plan.target}"
    return f"kafka-rollout {words} --cluster {plan.cluster} --run {ports.run_id}"


def _show_ways_on(ports: ClusterPorts, plan: Plan) -> None:
    """Show the commands for the answers that the DAG offers after a failed gate."""
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
