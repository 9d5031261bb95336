"""Test traffic: produces and consumes test records, then compares acknowledged with consumed records."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli import show
from kafka_rollout.cli.options import AsJson, ClusterName, CommandConfig
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.run.background import BackgroundKey, BackgroundKind, BackgroundProcess

_RUN_ID = "traffic"  # the run id of test traffic without a run

app = typer.Typer(help=__doc__, no_args_is_help=True)


@app.command("start")
def traffic_start(
    cluster: ClusterName,
    folder: Annotated[
        Path | None, typer.Option(help="Folder for the journals of the clients; default: in the folder of the runs.")
    ] = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Start test traffic in the background."""
    from kafka_rollout.client.security.credentials import read_credentials
    from kafka_rollout.traffic.processes.of_run import start_traffic

    settings = Settings.from_environment()
    spec = get_cluster(cluster, settings)
    security = read_credentials(spec, command_config)
    group = f"kafka-rollout-{cluster}"
    started = start_traffic(
        spec, _RUN_ID, security=security, group=group, folder=folder, leased=False, settings=settings
    )
    if as_json:
        show.print_json({"cluster": cluster, "traffic": started})
    else:
        show.say(f"process {started.pid}, journals in {started.folder}")


@app.command("show")
def traffic_show(cluster: ClusterName, as_json: AsJson = False) -> None:
    """Show the host, the process id, the state and the last report of the test traffic."""
    process = _traffic_of(cluster, None)
    show.print_json({"cluster": cluster, "traffic": process}) if as_json else show.say(process.sentence)


@app.command("stop")
def traffic_stop(
    cluster: ClusterName,
    folder: Annotated[Path | None, typer.Option(help="The folder that was given to `traffic start`.")] = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Stop the test traffic, read all its records and compare. Exit code 3 if the traffic check failed.

    This command can run on any host that uses the same database.
    """
    from kafka_rollout.client.security.credentials import read_credentials
    from kafka_rollout.traffic.processes.of_run import stop_traffic

    settings = Settings.from_environment()
    process = _traffic_of(cluster, folder)
    spec = get_cluster(cluster, settings)
    security = read_credentials(spec, command_config) if command_config else None
    verdict = stop_traffic(spec, _RUN_ID, security=security, settings=settings, on_progress=show.ProgressLines().say)
    if verdict is None:
        return
    if as_json:
        show.print_json({"ok": verdict.is_clean, "verdict": verdict})
    else:
        show.out.print(f"{verdict.acknowledged} records acknowledged, consumed {dict(verdict.consumed)}")
    if not verdict.is_clean:
        discrepancies = "; ".join(found.sentence for found in verdict.discrepancies) or (
            "one kind of test traffic produced or consumed nothing"
        )
        raise RefusedError(
            f"The traffic check failed: {discrepancies}.",
            remedy=f"Read its journals in {process.folder} on host {process.host}.",
        )


@app.command("run")
def traffic_run(
    cluster: ClusterName,
    folder: Annotated[Path | None, typer.Option(help="Folder for the journals of the clients.")] = None,
    command_config: CommandConfig = None,
) -> None:
    """Run test traffic until Ctrl-C, then compare acknowledged with consumed records."""
    from kafka_rollout.base.system.signals import interrupt_on_sigterm

    with interrupt_on_sigterm():
        traffic_start(cluster, folder, command_config)
        show.err.print("Test traffic runs. Press Ctrl-C to stop and compare.")
        try:
            while True:
                time.sleep(1)
        except KeyboardInterrupt:
            traffic_stop(cluster, folder, command_config)


def _traffic_of(cluster: str, folder: Path | None) -> BackgroundProcess:
    """Return the traffic of the command `traffic`. Raises UserError without one, or without one in that folder."""
    from kafka_rollout.run.store.background import SqlBackground
    from kafka_rollout.run.store.opening import database_of

    key = BackgroundKey(cluster=cluster, run_id=_RUN_ID, kind=BackgroundKind.TRAFFIC)
    found = SqlBackground(database_of()).read(key)
    if found is None or (folder is not None and not Path(found.folder).is_relative_to(folder)):
        where = f" in {folder}" if folder else ""
        raise UserError(f"There is no test traffic of cluster {cluster}{where}.", remedy="Start it first.")
    return found
