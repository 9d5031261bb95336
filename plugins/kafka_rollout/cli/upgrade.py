"""`kafka-rollout roll` and `roll-back`: options of an upgrade, and of the return to the previous release."""

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
    RunId,
    SnapshotInterval,
    Soak,
    TakeOver,
    Target,
    Timeout,
    Yes,
    continue_run,
    milliseconds,
    open_ports,
)
from kafka_rollout.cli.run import roll_back_run, run_procedure
from kafka_rollout.cli.services import shell_services
from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.planning.request import FinalizePolicy, Request
from kafka_rollout.steps.procedures.of_run import procedure_of
from kafka_rollout.steps.procedures.upgrade import UPGRADE


def roll(
    cluster: ClusterName,
    to: Target,
    approve_as: Approved = None,
    reason: Reason = None,
    soak: Soak = 30.0,
    looks: Looks = 3,
    interval: Interval = 1.0,
    timeout: Timeout = 600.0,
    finalize: Annotated[
        FinalizePolicy, typer.Option(help="When to finalize the feature levels.")
    ] = FinalizePolicy.LATER,
    scan: Annotated[bool, typer.Option(help="Scan the coordinator logs before planning and before finalizing.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Create the plan and stop.")] = False,
    snapshot_interval: SnapshotInterval = None,
    canary: Annotated[bool, typer.Option("--canary", help="Request a separate approval after the first node.")] = (
        False
    ),
    ledger: Annotated[
        bool,
        typer.Option(
            "--ledger", help=("Run test traffic during the upgrade and compare acknowledged with consumed records.")
        ),
    ] = False,
    yes: Yes = False,
    take_over: TakeOver = False,
    run: RunId = None,
    connection_file: ConnectionFile = None,
) -> None:
    """Upgrade a cluster to a release, node by node through the gates. --finalize after-approval continues with its
    features.

    Needs a named approval. Ctrl-C stops at the next safe point; --run resumes. With --canary and no terminal the
    command exits after the first node (130): check the node, then approve with the same command, --run and your name.
    """
    if not dry_run and run is None and (not approve_as or not reason):
        raise UserError(
            "An upgrade needs a named approval.", remedy="Add --approve-as NAME --reason TEXT, or --dry-run."
        )
    with open_ports(cluster, run, connection_file) as (ports, settings, security):
        continue_run(ports, approve_as, take_over=take_over)
        request = Request(
            target=Release.parse(to),
            dry_run=dry_run,
            finalize=finalize,
            plans_features=finalize is FinalizePolicy.AFTER_APPROVAL,
            scan=scan,
            traffic=ledger,
            canary=canary,
            snapshot_interval_ms=milliseconds(snapshot_interval),
            soak_s=soak,
            checks=looks,
            interval_s=interval,
            gate_timeout_s=timeout,
        )
        answers = TerminalAnswers(cluster=ports.cluster, name=approve_as, reason=reason, confirms=not yes)
        services = shell_services(ports, settings, security, connection_file)
        raise typer.Exit(run_procedure(UPGRADE, ports, request, answers, services))


def roll_back(
    cluster: ClusterName,
    run: Annotated[str, typer.Option("--run", help="The run to roll back.")],
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
    """Roll back the nodes of a run to their previous release, from the node where it stopped.

    For an offline downgrade: restore the metadata log of every node from its backup, as long as no broker has started.
    """
    with open_ports(cluster, run, connection_file) as (ports, settings, security):
        continue_run(ports, approve_as, take_over=take_over)
        ports.run.load_plan()
        if not approve_as or not reason:
            raise UserError("A rollback needs a named approval.", remedy="Add --approve-as NAME --reason TEXT.")
        request = Request(soak_s=soak, checks=looks, interval_s=interval, gate_timeout_s=timeout)
        answers = TerminalAnswers(cluster=ports.cluster, name=approve_as, reason=reason, confirms=not yes)
        services = shell_services(ports, settings, security, connection_file)
        procedure = procedure_of(ports.run.events())
        raise typer.Exit(roll_back_run(procedure, ports, request, answers, services))
