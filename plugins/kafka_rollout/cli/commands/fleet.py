"""`kafka-rollout fleet`: all clusters in one table."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli import show
from kafka_rollout.cli.options import AsJson, CommandConfig
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.report.fleet import COLUMNS, FleetRow, Show, as_csv, cells, choose_rows
from kafka_rollout.run.events import Observed

_TABLE_WIDTH = 200  # of a terminal; in a narrower one each cluster is a list


def fleet(
    which: Annotated[
        Show, typer.Option("--show", help="Clusters that need a human, have a run in progress, or all.")
    ] = Show.ALL,
    text: Annotated[str, typer.Option(help="Only clusters with this text in a value.")] = "",
    live: Annotated[bool, typer.Option("--live", help="Query the clusters; default: only what is stored.")] = False,
    as_csv_text: Annotated[bool, typer.Option("--csv", help="Print the rows as CSV, and nothing else.")] = False,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
) -> None:
    """Show all clusters in one table: release, levels, health, scans, requests, runs, known defects, next action.

    The values are those that runs, scheduled checks and scans have stored, with their time. Exit code 2 if a file of
    the inventory cannot be read; the other clusters are shown.
    """
    from kafka_rollout.wiring.fleet import read_fleet

    if as_csv_text and as_json:
        raise UserError("--csv and --json exclude each other.", remedy="Use one of them.")
    if command_config is not None and not live:
        raise UserError("--command-config has credentials for queries.", remedy="Add --live.")
    settings = Settings.from_environment()
    rows, problems = read_fleet(settings, live=_observer(settings, command_config) if live else None)
    rows = choose_rows(rows, which, text)
    for problem in problems:
        show.say(problem, show.err)
    if as_json:
        show.print_json([to_json(row) for row in rows])
    elif as_csv_text:
        typer.echo(as_csv(rows), nl=False)
    else:
        _print_rows(rows)
    if problems:
        raise typer.Exit(UserError.exit_code)


def _observer(settings: Settings, command_config: Path | None) -> Callable[[ClusterSpec], Observed]:
    from kafka_rollout.kafka.client.security.credentials import read_credentials
    from kafka_rollout.wiring.fleet import observe_now

    return lambda spec: observe_now(spec, settings, lambda one: read_credentials(one, command_config))


def _print_rows(rows: list[FleetRow]) -> None:
    now = time.time()
    if show.out.width >= _TABLE_WIDTH:
        show.print_table([column.title for column in COLUMNS], (cells(row, now) for row in rows))
        return
    for row in rows:
        name, *values = cells(row, now)
        show.say_marked("!" if row.needs_human else "·", "red" if row.needs_human else "dim", name)
        for column, value in zip(COLUMNS[1:], values, strict=True):
            show.say(f"  {column.title}: {value}")
