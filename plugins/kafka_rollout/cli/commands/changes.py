"""The commands that change a cluster node by node: roll, roll-back, downgrade and retry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from kafka_rollout.cli.answers import TerminalAnswers, shell_responder
from kafka_rollout.cli.options import (
    AcceptUnavailable,
    Approver,
    Checks,
    ClusterName,
    ConnectionFile,
    Interval,
    PinMinIsr,
    Reason,
    Rehearse,
    RunId,
    SnapshotInterval,
    Soak,
    TakeOver,
    Target,
    Timeout,
    Traffic,
    Yes,
    milliseconds,
    open_ports,
    require_name,
)
from kafka_rollout.cli.run import roll_back_run, run_procedure, start_node_again
from kafka_rollout.cli.services import ShellServices, shell_services
from kafka_rollout.gates.check import GatePolicy
from kafka_rollout.planning.lowering import WhereRefused
from kafka_rollout.planning.request import DowngradeType, FinalizePolicy, Request
from kafka_rollout.releases.facts import Release
from kafka_rollout.steps.common.approval import take_over_run
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.procedures.downgrade import DOWNGRADE
from kafka_rollout.steps.procedures.lookup import procedure_of
from kafka_rollout.steps.procedures.upgrade import UPGRADE

_OR_DRY_RUN = ", or --dry-run"


def roll(
    cluster: ClusterName,
    to: Target,
    approve_as: Approver = None,
    reason: Reason = None,
    soak: Soak = 30.0,
    checks: Checks = 3,
    interval: Interval = 1.0,
    timeout: Timeout = 600.0,
    finalize: Annotated[
        FinalizePolicy,
        typer.Option(help="after-approval: also finalize the feature levels in this run. later: in another run."),
    ] = FinalizePolicy.LATER,
    pin_min_insync_replicas: PinMinIsr = False,
    scan: Annotated[bool, typer.Option(help="Scan the coordinator logs before planning and before finalizing.")] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Create and print the plan, then stop. Changes nothing.")
    ] = False,
    snapshot_interval: SnapshotInterval = None,
    canary: Annotated[bool, typer.Option("--canary", help="Request a separate approval after the first node.")] = False,
    traffic: Traffic = False,
    rehearse: Rehearse = True,
    accept_unavailable: AcceptUnavailable = None,
    yes: Yes = False,
    take_over: TakeOver = False,
    run: RunId = None,
    connection_file: ConnectionFile = None,
) -> None:
    """Upgrade a cluster to a release, one node at a time. The next node is stopped after the gate of the previous node
    has passed.

    An upgrade needs --approve-as and --reason. Ctrl-C stops it at the next safe point; --run continues it. With
    --canary but without a terminal, the command exits after the first node (exit code 130). Check this node. To
    approve it, repeat the command with --run and --approve-as.
    """
    if not dry_run and run is None:
        require_name("An upgrade", approve_as, reason, remedy=_OR_DRY_RUN)
    request = Request(
        target=Release.parse(to),
        dry_run=dry_run,
        finalize=finalize,
        plans_features=finalize is FinalizePolicy.AFTER_APPROVAL,
        pin_min_isr=pin_min_insync_replicas,
        scan=scan,
        traffic=traffic,
        rehearse=rehearse,
        accept_unavailable=tuple(accept_unavailable or ()),
        canary=canary,
        snapshot_interval_ms=milliseconds(snapshot_interval),
        soak_s=soak,
        checks=checks,
        interval_s=interval,
        gate_timeout_s=timeout,
    )
    with _open_change(cluster, run, connection_file, approve_as, reason, yes=yes, take_over=take_over) as opened:
        ports, answers, services = opened
        raise typer.Exit(run_procedure(UPGRADE, ports, request, answers, services))


def downgrade(
    cluster: ClusterName,
    to: Target,
    level: Annotated[
        int | None,
        typer.Option(
            "--to-level", help="The metadata.version to set; default: the highest level that the target supports."
        ),
    ] = None,
    unsafe: Annotated[
        bool,
        typer.Option(
            "--unsafe/--safe",
            help="If metadata would be lost: --unsafe lists the losses and continues, --safe refuses.",
        ),
    ] = False,
    where_refused: Annotated[
        WhereRefused,
        typer.Option(
            help="If Kafka refuses the lower metadata.version: stop; live: stop only the controllers for some seconds; "
            "offline: live if possible, otherwise stop all nodes."
        ),
    ] = WhereRefused.STOP,
    approve_as: Approver = None,
    reason: Reason = None,
    soak: Soak = 30.0,
    checks: Checks = 3,
    interval: Interval = 1.0,
    timeout: Timeout = 600.0,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Create the plan, the scans and the loss report, then stop. Changes nothing."),
    ] = False,
    traffic: Traffic = False,
    rehearse: Rehearse = True,
    accept_unavailable: AcceptUnavailable = None,
    yes: Yes = False,
    take_over: TakeOver = False,
    run: RunId = None,
    connection_file: ConnectionFile = None,
) -> None:
    """Downgrade a cluster to an older release, one node at a time.

    Before the first node, the run scans the logs, reports the losses and lowers the feature levels. A downgrade needs
    --approve-as and --reason. Ctrl-C stops it at the next safe point; --run continues it.
    """
    if not dry_run and run is None:
        require_name("A downgrade", approve_as, reason, remedy=_OR_DRY_RUN)
    request = Request(
        target=Release.parse(to),
        dry_run=dry_run,
        traffic=traffic,
        rehearse=rehearse,
        accept_unavailable=tuple(accept_unavailable or ()),
        level=level,
        downgrade_type=DowngradeType.UNSAFE if unsafe else DowngradeType.SAFE,
        where_refused=where_refused,
        soak_s=soak,
        checks=checks,
        interval_s=interval,
        gate_timeout_s=timeout,
    )
    with _open_change(cluster, run, connection_file, approve_as, reason, yes=yes, take_over=take_over) as opened:
        ports, answers, services = opened
        raise typer.Exit(run_procedure(DOWNGRADE, ports, request, answers, services))


def roll_back(
    cluster: ClusterName,
    run: Annotated[str, typer.Option(help="Id of the run to roll back.")],
    approve_as: Approver = None,
    reason: Reason = None,
    soak: Soak = 0.0,
    checks: Checks = 3,
    interval: Interval = 1.0,
    timeout: Timeout = 600.0,
    yes: Yes = False,
    take_over: TakeOver = False,
    connection_file: ConnectionFile = None,
) -> None:
    """Roll back the nodes of a run to their previous release. Begins with the node at which the run stopped.

    For an offline downgrade, restores the metadata log of every node from its backup. This is possible until a broker
    has started.
    """
    request = Request(soak_s=soak, checks=checks, interval_s=interval, gate_timeout_s=timeout)
    with _open_change(cluster, run, connection_file, approve_as, reason, yes=yes, take_over=take_over) as opened:
        ports, answers, services = opened
        require_name("A rollback", approve_as, reason)
        raise typer.Exit(roll_back_run(procedure_of(ports.run.events()), ports, request, answers, services))


def retry(
    cluster: ClusterName,
    run: Annotated[str, typer.Option(help="Id of the run that stopped at a node.")],
    approve_as: Approver = None,
    reason: Reason = None,
    soak: Soak = 0.0,
    checks: Checks = 3,
    interval: Interval = 1.0,
    timeout: Timeout = 600.0,
    yes: Yes = False,
    take_over: TakeOver = False,
    connection_file: ConnectionFile = None,
) -> None:
    """Restart the node at which a run stopped, and wait for its gate. First fix the error in the node's log.

    If the process of the node hangs in its shutdown, the command kills it. Needs --approve-as and --reason.
    """
    require_name("A retry", approve_as, reason)
    policy = GatePolicy(checks=checks, interval_s=interval, timeout_s=timeout, soak_s=soak)
    with _open_change(cluster, run, connection_file, approve_as, reason, yes=yes, take_over=take_over) as opened:
        ports, answers, _ = opened
        start_node_again(ports, policy, answers)


@contextmanager
def _open_change(
    cluster: str,
    run: str | None,
    connection_file: Path | None,
    approve_as: str | None,
    reason: str | None,
    *,
    yes: bool,
    take_over: bool,
) -> Iterator[tuple[ClusterPorts, TerminalAnswers, ShellServices]]:
    """Open a new or an existing run; raises RefusedError for a DAG's run without `take_over` by an approver."""
    with open_ports(cluster, run, connection_file) as (ports, settings, security):
        take_over_run(ports, approve_as, shell_responder(), wanted=take_over)
        answers = TerminalAnswers(cluster=ports.cluster, name=approve_as, reason=reason, confirms=not yes)
        yield ports, answers, shell_services(ports, settings, security)
