"""`kafka-rollout downgrade`: options of a downgrade."""

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
    Soak,
    TakeOver,
    Target,
    Timeout,
    Yes,
    continue_run,
    open_ports,
)
from kafka_rollout.cli.run import run_procedure
from kafka_rollout.cli.services import shell_services
from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.planning.downgrade import WhereRefused
from kafka_rollout.domain.planning.request import DowngradeType, Request
from kafka_rollout.steps.procedures.downgrade import DOWNGRADE


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
    take_over: TakeOver = False,
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
    with open_ports(cluster, run, connection_file) as (ports, settings, security):
        continue_run(ports, approve_as, take_over=take_over)
        request = Request(
            target=Release.parse(to),
            dry_run=dry_run,
            traffic=ledger,
            level=level,
            downgrade_type=DowngradeType.UNSAFE if unsafe else DowngradeType.SAFE,
            where_refused=where_refused,
            soak_s=soak,
            checks=looks,
            interval_s=interval,
            gate_timeout_s=timeout,
        )
        answers = TerminalAnswers(cluster=ports.cluster, name=approve_as, reason=reason, confirms=not yes)
        services = shell_services(ports, settings, security, connection_file)
        raise typer.Exit(run_procedure(DOWNGRADE, ports, request, answers, services))
