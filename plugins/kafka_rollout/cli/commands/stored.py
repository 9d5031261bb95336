"""What is stored of clusters: the status, all clusters in one table, the downgrade options."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from kafka_rollout.base.durations import duration, iso, parse_duration
from kafka_rollout.base.errors import UserError
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import count, few
from kafka_rollout.cli import show
from kafka_rollout.cli.options import AnyRun, AsJson, ClusterName, CommandConfig, find_run, require_run
from kafka_rollout.cli.status_screen import StatusScreen, Until, exit_code, follow, print_status
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.console.downgrade_options import OptionState
from kafka_rollout.console.fleet import COLUMNS, FleetRow, Show, as_csv, cells, choose_rows
from kafka_rollout.console.option_details import DowngradeOptions, Option
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.run.events import Observed

_TABLE_WIDTH = 200  # of a terminal; in a narrower one each cluster is a list
_MARKS = {OptionState.OPEN: ("✔", "green"), OptionState.CLOSED: ("✖", "red"), OptionState.UNKNOWN: ("?", "yellow")}
_POSSIBLE = {True: "possible", False: "not possible", None: "unknown"}


def status(
    cluster: ClusterName,
    run: AnyRun = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow the run on one screen until it needs a human or ended.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="The same without output.")] = False,
    until: Annotated[
        Until | None,
        typer.Option(
            "--for",
            help="For --watch and --wait. needs-human: until the run needs a human; end: until it ended or cannot "
            "continue by itself, and not at a request; default: until it needs a human or ended.",
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="For --watch and --wait: such as 30s, 10m or 2h; default: no limit."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what happens on a cluster: phase, node, what the run waits for, and what an operator must do.

    Reads the run histories and the lock, not the cluster. With --json, docs/cluster-status.schema.json describes the
    result. The exit code is 0 in every phase.

    With --watch or --wait, the exit code is 0 if the run finished, or with --for needs-human if it needs a human; 3 if
    a check or an approver refused it; 1 for anything else, such as a request, a failure, a rollback or the timeout.
    Ctrl-C ends only this command, not the run.
    """
    from kafka_rollout.wiring.runs import read_run_status, read_status

    if watch and wait:
        raise UserError("--watch and --wait exclude each other.", remedy="Use one of them.")
    if (until or timeout) and not (watch or wait):
        raise UserError("--for and --timeout belong to --watch and --wait.", remedy="Add one of the two.")
    if watch or wait:
        name, run_id, settings = find_run(cluster, run)
        timeout_s = None if timeout is None else parse_duration(timeout)
        if watch:
            with StatusScreen() as screen:
                found = follow(
                    *(name, run_id, settings),
                    until=until,
                    timeout_s=timeout_s,
                    on_status=screen.show,
                    on_problem=screen.say,
                )
        else:
            found = follow(name, run_id, settings, until=until, timeout_s=timeout_s)
        code = exit_code(found, until)
    else:
        settings, code = Settings.from_environment(), 0
        name = get_cluster(cluster, settings).name
        if run is not None:
            found, _ = read_run_status(name, require_run(name, run, settings), settings)
        elif (of_cluster := read_status(name, settings)) is not None:
            found = of_cluster
        else:
            raise UserError(f"Cluster {cluster} has no status.")
    show.print_json(found.to_json()) if as_json else print_status(found)
    if code:
        raise typer.Exit(code)


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
    from kafka_rollout.wiring.stored_state import read_fleet

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
    from kafka_rollout.client.security.credentials import read_credentials
    from kafka_rollout.wiring.stored_state import observe_now

    return lambda spec: observe_now(spec, settings, lambda one: read_credentials(one, command_config))


def _print_rows(rows: list[FleetRow]) -> None:
    now = time.time()
    if show.out.width >= _TABLE_WIDTH:
        show.print_table([column.title for column in COLUMNS], (cells(row, now) for row in rows))
        return
    for row in rows:
        name, *values = cells(row, now)
        show.say_marked("!" if row.needs_human else "·", show.TONES[row.tone] if row.needs_human else "dim", name)
        for column, value in zip(COLUMNS[1:], values, strict=True):
            show.say(f"  {column.title}: {value}")


def print_downgrade_options(spec: ClusterSpec, settings: Settings, *, as_json: bool) -> None:
    """Print to which older releases a cluster can go down. Reads the stored scans, checks and runs, not the cluster."""
    from kafka_rollout.wiring.stored_state import read_options

    found = read_options(spec, settings)
    if found is None:
        raise UserError(f"Cluster {spec.name} has no options.")
    if as_json:
        show.print_json(to_json(found))
    else:
        _print_options(found)


def _print_options(found: DowngradeOptions) -> None:
    show.say(f"{found.cluster}: release {few(found.releases) or 'unknown'}")
    for what, at in (("observed", found.observed_at), ("scanned", found.scanned_at), ("checked", found.checked_at)):
        show.say(f"{what}: {'never' if at is None else f'{iso(at)} ({duration(time.time() - at)} ago)'}")
    if found.problem:
        show.say(found.problem)
    for option in found.options:
        if option.is_newest_patch or option.is_origin:
            _print_option(found, option)
    others = [f"{one.release} {one.state}" for one in found.options if not (one.is_newest_patch or one.is_origin)]
    if others:
        show.say(f"older patches (details with --json): {', '.join(others)}")
    for change in found.of_methods:
        show.say(f"{iso(change.at)}  {change.sentence}")


def _print_option(found: DowngradeOptions, option: Option) -> None:
    mark, style = _MARKS[option.state]
    came = ", from which the cluster came" if option.is_origin else ""
    show.say_marked(mark, style, f"{option.release} {option.state}{came}")
    for reason in option.reasons:
        show.say(
            "  " + " ".join(filter(None, (f"[{reason.code}]" if reason.code else "", reason.sentence, reason.remedy)))
        )
    for log in option.logs:
        if log.records or log.verdict is None or log.verdict.badness:
            show.say(f"  {log.log}: {log.sentence}")
        for records in log.records:
            verb = "stop it" if records.stops else "are ignored"
            current = "" if records.current is None else f", {records.current:,} current"
            show.say(f"    {records.title}: {count(records.count, 'record')}{current} {verb}: {few(records.first)}")
        if log.kinds > len(log.records):
            show.say(
                f"    {log.kinds - len(log.records)} more kinds: kafka-rollout scans report --cluster {found.cluster}"
            )
    if option.state is not OptionState.CLOSED:
        for change in option.lowered:
            show.say(f"  lower first: {change}")
        for method in option.methods:
            show.say(f"  {method.name}: {_POSSIBLE[method.is_possible]}. {method.why}")
            if method.command:
                show.say(f"    outage: {method.outage}")
                show.say(f"    restarts: {method.restarts}. {method.takes}")
                show.say(f"    undo: {method.undo}")
                show.say(f"    dry run: {method.command}")
    if option.last_plan is not None:
        blockers = option.last_plan.blockers
        show.say(
            f"  last plan: {iso(option.last_plan.at)}, run {option.last_plan.run}, {count(len(blockers), 'blocker')}"
        )
    for past in option.history:
        show.say(f"  {iso(past.at)}  {past.sentence}")
