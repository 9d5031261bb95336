"""Commands for the lock and the test traffic."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from kafka_rollout.cli import show
from kafka_rollout.cli.options import (
    AsJson,
    ClusterName,
    ConnectionFile,
    ledger_folder,
)
from kafka_rollout.cli.shell_user import shell_responder
from kafka_rollout.composition.clusters import get_cluster
from kafka_rollout.composition.credentials import read_credentials
from kafka_rollout.composition.records import open_lock
from kafka_rollout.domain.model.errors import FatalError, UserError
from kafka_rollout.settings import Settings
from kafka_rollout.steps.common.approval import refuse_stranger

lock_app = typer.Typer(help="The lock of the cluster: one change at a time.", no_args_is_help=True)
ledger_app = typer.Typer(help="Test traffic: compares acknowledged with consumed records.", no_args_is_help=True)


@lock_app.command("show")
def lock_show(cluster: ClusterName) -> None:
    """Show the run that holds the cluster's lock, its purpose and when its lease expires."""
    settings = Settings.from_environment()
    held = open_lock(settings).holder(get_cluster(cluster, settings).name)
    if held is None:
        show.out.print(f"No run holds the lock of {cluster}.")
        return
    until = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(held.expires_at))
    show.out.print(show.as_text(f"Run {held.holder} holds the lock of {cluster} until {until}: {held.purpose}"))


@lock_app.command("break")
def lock_break(
    cluster: ClusterName,
    by: Annotated[
        str, typer.Option("--by", help="Your name, one of the approvers; recorded with the shell user and the host.")
    ],
) -> None:
    """Break the lock of a run that was killed. Only approvers of the inventory can."""
    settings = Settings.from_environment()
    spec = get_cluster(cluster, settings)
    if not by.strip():
        raise UserError("Breaking a lock needs the name of an approver.", remedy="Add --by NAME.")
    refuse_stranger(spec, by)
    held = open_lock(settings).break_(spec.name, f"{by.strip()} ({shell_responder()})")
    show.out.print(
        "No run held the lock." if held is None else show.as_text(f"Lock of {held.holder} ({held.purpose}) was broken.")
    )


@ledger_app.command("start")
def ledger_start(
    cluster: ClusterName,
    folder: Annotated[Path | None, typer.Option(help="Folder for the journals; default: below the runs.")] = None,
    connection_file: ConnectionFile = None,
) -> None:
    """Start test traffic in the background."""
    from kafka_rollout.composition.background import start_traffic

    settings = Settings.from_environment()
    spec = get_cluster(cluster, settings)
    read_credentials(spec, connection_file)
    where = folder or ledger_folder(settings, cluster)
    pid = start_traffic(spec, where, group=f"kafka-rollout-{cluster}", security_file=connection_file)
    show.out.print(f"process {pid}, journals in {where}", soft_wrap=True)


@ledger_app.command("stop")
def ledger_stop(
    cluster: ClusterName,
    folder: Annotated[Path | None, typer.Option(help="The folder of the start command.")] = None,
    as_json: AsJson = False,
) -> None:
    """Stop the traffic, read all records and compare. Exit code 1 if the check failed."""
    from kafka_rollout.composition.background import stop_traffic

    where = folder or ledger_folder(Settings.from_environment(), cluster)
    if not where.is_dir():
        raise UserError(f"There is no test traffic in {where}.", remedy="Start it first.")
    verdict = stop_traffic(where)
    if as_json:
        show.print_json({"ok": verdict.ok, "verdict": verdict})
    else:
        show.out.print(f"{verdict.acknowledged} records acknowledged, consumed {dict(verdict.consumed)}")
    if not verdict.ok:
        discrepancies = "; ".join(found.sentence for found in verdict.discrepancies) or (
            "one kind of test traffic produced or consumed nothing"
        )
        raise FatalError(f"The traffic check failed: {discrepancies}.", remedy=f"Read its journals in {where}.")


@ledger_app.command("run")
def ledger_run(
    cluster: ClusterName,
    folder: Annotated[Path | None, typer.Option(help="Folder for the journals.")] = None,
    connection_file: ConnectionFile = None,
) -> None:
    """Run test traffic until Ctrl-C, then compare."""
    ledger_start(cluster, folder, connection_file)
    show.err.print("Test traffic runs. Press Ctrl-C to stop and compare.")
    try:
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        ledger_stop(cluster, folder)
