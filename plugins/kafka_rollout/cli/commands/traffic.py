"""Test traffic without a run."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from kafka_rollout.base.errors import FatalError, RefusedError, TransientError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.system.signals import interrupt_on_sigterm
from kafka_rollout.cli import show
from kafka_rollout.cli.options import AsJson, ClusterName, CommandConfig, new_run_id
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.run.background import BackgroundKey


def traffic(
    cluster: ClusterName,
    folder: Annotated[
        Path | None, typer.Option(help="Folder for the journals of the clients; default: in the folder of the runs.")
    ] = None,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
) -> None:
    """Run test traffic until Ctrl-C or SIGTERM, then compare acknowledged with consumed records.

    Exit code 3 if the comparison fails. With --traffic, a change runs the same traffic.
    """
    from kafka_rollout.client.security.credentials import read_credentials
    from kafka_rollout.traffic.processes.of_run import start_traffic, stop_traffic

    settings, run_id = Settings.from_environment(), new_run_id()
    spec = get_cluster(cluster, settings)
    security = read_credentials(spec, command_config)
    with interrupt_on_sigterm():
        started = start_traffic(
            spec, run_id, security=security, folder=folder, leased=False, only_with=os.getpid(), settings=settings
        )
        show.say(f"Test traffic runs, with journals in {started.folder}.", show.err)
        show.say("Press Ctrl-C to stop and compare.", show.err)
        with suppress(KeyboardInterrupt):
            _wait_for_end(started.key, settings)
        say = show.ProgressLines().say
        verdict = stop_traffic(spec, run_id, security=security, settings=settings, on_progress=say)
    if verdict is None:
        raise FatalError("The record of the test traffic was removed.", remedy="Repeat the command.")
    if as_json:
        show.print_json({"ok": verdict.is_clean, "verdict": verdict})
    else:
        show.say(f"{verdict.acknowledged} records acknowledged, consumed {dict(verdict.consumed)}")
    if not verdict.is_clean:
        discrepancies = "; ".join(found.sentence for found in verdict.discrepancies) or (
            "one kind of test traffic produced or consumed nothing"
        )
        raise RefusedError(
            f"The traffic check failed: {discrepancies}.", remedy=f"Read the journals in {started.folder}."
        )


def _wait_for_end(key: BackgroundKey, settings: Settings) -> None:
    """Wait until the process has ended by itself. Without an answer of the database, it counts as running."""
    from kafka_rollout.run.store.background import SqlBackground
    from kafka_rollout.run.store.opening import database_of

    while True:
        with suppress(TransientError):
            process = SqlBackground(database_of(settings)).read(key)
            if process is None or process.has_ended:
                return
        time.sleep(1)
