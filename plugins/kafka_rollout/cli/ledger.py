"""The command family `ledger`: test traffic, and the comparison of acknowledged with consumed records."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from kafka_rollout.cli import show
from kafka_rollout.cli.options import AsJson, ClusterName, ConnectionFile, ledger_folder
from kafka_rollout.composition.background import start_traffic, stop_traffic
from kafka_rollout.composition.clusters import get_cluster
from kafka_rollout.composition.credentials import read_credentials
from kafka_rollout.domain.model.errors import FatalError, UserError
from kafka_rollout.settings import Settings

ledger_app = typer.Typer(help="Test traffic: compares acknowledged with consumed records.", no_args_is_help=True)


@ledger_app.command("start")
def ledger_start(
    cluster: ClusterName,
    folder: Annotated[Path | None, typer.Option(help="Folder for the journals; default: below the runs.")] = None,
    connection_file: ConnectionFile = None,
) -> None:
    """Start test traffic in the background."""
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
