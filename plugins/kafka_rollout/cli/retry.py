"""The command `retry`: the decision *Retry* of the DAG after a failed gate of a node."""

# ruff: noqa: PLR0917 - a command's options are its parameters
from __future__ import annotations

from typing import Annotated

import typer

from kafka_rollout.cli.answers import TerminalAnswers
from kafka_rollout.cli.options import (
    Approved,
    ClusterName,
    ConnectionFile,
    Interval,
    Looks,
    Reason,
    Soak,
    TakeOver,
    Timeout,
    Yes,
    continue_run,
    open_ports,
)
from kafka_rollout.cli.run import command_of
from kafka_rollout.cli.show import ProgressLines, as_text, err
from kafka_rollout.domain.gates.ref import GateKind, GateRef
from kafka_rollout.domain.gates.watch import GatePolicy
from kafka_rollout.domain.model.errors import RefusedError, UserError
from kafka_rollout.domain.model.plan import NodeStep, Plan, ReleaseStep
from kafka_rollout.domain.run.events import APPROVED, ApprovalOf
from kafka_rollout.domain.run.projections.nodes import last_act
from kafka_rollout.ports.answers import Answers, Question
from kafka_rollout.steps.common import lock
from kafka_rollout.steps.common.approval import record_approval
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.node_steps import is_way_back
from kafka_rollout.steps.gates.waiting import wait_for_gate
from kafka_rollout.steps.roll.node import retry_node


def retry(
    cluster: ClusterName,
    run: Annotated[str, typer.Option("--run", help="The run that stopped at a node.")],
    approve_as: Approved = None,
    reason: Reason = None,
    soak: Soak = 0.0,
    looks: Looks = 3,
    interval: Interval = 1.0,
    timeout: Timeout = 600.0,
    yes: Yes = False,
    take_over: TakeOver = False,
    connection_file: ConnectionFile = None,
) -> None:
    """Start the node again at which a run stopped, and wait for its gate. First fix the error in the node's log.

    A process that hangs in its shutdown is killed, which needs a named approver.
    """
    if not approve_as or not reason:
        raise UserError("A retry needs a named approver.", remedy="Add --approve-as NAME --reason TEXT.")
    policy = GatePolicy(looks=looks, interval_s=interval, timeout_s=timeout, soak_s=soak)
    with open_ports(cluster, run, connection_file) as (ports, _, _security):
        continue_run(ports, approve_as, take_over=take_over)
        answers = TerminalAnswers(cluster=ports.cluster, name=approve_as, reason=reason, confirms=not yes)
        start_once_more(ports, policy, answers)


def start_once_more(ports: ClusterPorts, policy: GatePolicy, answers: Answers) -> None:
    plan = ports.run.load_plan()
    release_step, node_step = _stopped_at(ports, plan)
    progress = ProgressLines()
    what = f"{node_step.name} ({node_step.node_id}) on {release_step.to_release}"
    with lock.lock_before_run(ports, f"Start {what} again."):
        question = Question(what=ApprovalOf.FAILED_GATE, body=f"**Start {what} again**")
        answer = answers.ask(question)
        if answer is None or answer.decision != APPROVED:
            raise RefusedError(f"{what} is not started again.", remedy="The cluster stays in its current state.")
        record_approval(
            ports,
            ApprovalOf.FAILED_GATE,
            answer.by,
            "Retry",
            answer.reason,
            responder=answer.responder,
            text=question.body,
        )
    try:
        progress.say(f"starting {what} again")
        retry_node(ports, plan, release_step.key, node_step.node_id)
        gate = GateRef(kind=GateKind.AFTER_START, release_step=release_step.key, node_id=node_step.node_id)
        wait_for_gate(ports, plan, gate, policy, progress.on_check)
    finally:
        lock.release_lock(ports)
    err.print(
        as_text(f"The gate passed. Continue with: {command_of(ports, plan, back=is_way_back(plan, release_step))}"),
        soft_wrap=True,
    )


def _stopped_at(ports: ClusterPorts, plan: Plan) -> tuple[ReleaseStep, NodeStep]:
    """Return the node step at which the run stopped: the node that it stopped or started last."""
    act = None if plan.offline else last_act(ports.run.events())
    release_step = None if act is None else plan.release_step(act.release_step)
    node_step = None if act is None or release_step is None else release_step.node_step(act.node_id)
    if release_step is None or node_step is None:
        raise UserError(
            f"Run {ports.run_id} has not stopped a node, so there is no node to start again.",
            remedy=f"Continue the run: {command_of(ports, plan)}",
        )
    return release_step, node_step
