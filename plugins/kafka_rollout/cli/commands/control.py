"""Pause, resume and stop a run of a DAG or of another shell."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_rollout.cli import show
from kafka_rollout.cli.answers import shell_responder
from kafka_rollout.cli.options import AnyRun, ClusterName, find_run
from kafka_rollout.clusters.inventory import get_cluster

ControlReason = Annotated[str, typer.Option("--reason", help="Reason as a sentence; stored in the run history.")]
Operator = Annotated[str | None, typer.Option("--as", metavar="NAME", help="Your name; default: the shell's user.")]


def pause(cluster: ClusterName, reason: ControlReason, run: AnyRun = None, operator: Operator = None) -> None:
    """Pause a run of a DAG or of another shell before its next node. The run keeps the lock of the cluster."""
    _control("pause", cluster, run, reason, operator)


def resume(cluster: ClusterName, reason: ControlReason, run: AnyRun = None, operator: Operator = None) -> None:
    """Let a paused run continue, or one whose lock was broken. Withdraws a stop that the run has not read yet."""
    _control("resume", cluster, run, reason, operator)


def stop(cluster: ClusterName, reason: ControlReason, run: AnyRun = None, operator: Operator = None) -> None:
    """End a run and each of its waits, and release the lock. The run can be continued or rolled back later.

    A node that the run has stopped is started first.
    """
    _control("stop", cluster, run, reason, operator)


def _control(action: str, cluster: str, run: str | None, reason: str, operator: str | None) -> None:
    from kafka_rollout.wiring.runs import control_request, request_control

    name, run_id, settings = find_run(cluster, run)
    request = control_request(get_cluster(name, settings), action, reason, shell_responder(), by=operator or "")
    show.say(request_control(name, run_id, request, settings))
