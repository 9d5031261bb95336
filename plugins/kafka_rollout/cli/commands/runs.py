"""Recorded runs of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from kafka_rollout.base.durations import iso
from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.base.system.files import write_file
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import count
from kafka_rollout.cli import show
from kafka_rollout.cli.options import AsJson, ClusterName, CommandConfig, open_ports, require_run
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.console.cluster_status import ClusterStatus
from kafka_rollout.observation.run import Run
from kafka_rollout.report.run_report import Outcome, stored_end
from kafka_rollout.run.projections.approvals import find_unconfirmed_approval

if TYPE_CHECKING:
    from kafka_rollout.run.store.history import SqlRunStore

app = typer.Typer(help=__doc__, no_args_is_help=True)

_LISTED = (
    *("run", "number", "dag", "kind", "source_release", "target_release"),
    *("phase", "needs_human", "started", "started_by", "updated"),
)  # keys of a status


@app.command("list")
def runs_list(
    cluster: ClusterName,
    last: Annotated[int, typer.Option(min=1, help="Number of runs.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the runs of a cluster, the last changed first: start (UTC), kind, releases, state, and who started it."""
    from kafka_rollout.run.store.history import list_runs
    from kafka_rollout.run.store.opening import database_of
    from kafka_rollout.wiring.runs import read_run_status

    settings = Settings.from_environment()
    name = get_cluster(cluster, settings).name
    run_ids = list_runs(database_of(settings), name)
    statuses = [read_run_status(name, run_id, settings)[0] for run_id in run_ids[:last]]
    if as_json:
        show.print_json([{key: status.to_json()[key] for key in _LISTED} for status in statuses])
        return
    if not statuses:
        show.say(f"Cluster {name} has no run yet.")
        return
    rows = (
        (
            status.started,
            status.kind,
            status.way or None,
            _state(status),
            status.started_by,
            str(status.number or status.run),
        )
        for status in statuses
    )
    show.print_table(("Started", "Kind", "Releases", "State", "Started by", "Run"), rows)
    if more := len(run_ids) - len(statuses):
        show.say(f"{count(more, 'older run')}: add --last {len(run_ids)} to list all.", show.err)


def _state(status: ClusterStatus) -> Text:
    style = show.TONES[status.tone] if status.needs_human else ""
    return Text(status.phase.value.replace("-", " "), style)


@app.command("report")
def runs_report(
    cluster: ClusterName,
    run: Annotated[
        str | None, typer.Option(help="Number of the run (see `runs list`); default: the run that changed last.")
    ] = None,
    events: Annotated[
        bool, typer.Option("--events", help="Show the events of the run with their time (UTC) instead, oldest first.")
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Compare with this earlier run instead: path, durations, gates, test traffic, findings and terms.",
        ),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Observe the cluster, and write the report again before it is shown.")
    ] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the page into this file.")] = None,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
) -> None:
    """Show the report of a run: outcome, failed gate, what was proved, next action. Reads only the database.

    Exit code 3 if events are missing, if the plan or a document is damaged, or if an approval has no request of
    Airflow. This detects damage. A user who can write to the database can also write the SHA-256 of a document.
    """
    if events and (against is not None or write or html is not None):
        raise UserError("--events excludes --against, --write and --html.", remedy="Remove one of them.")
    if against is not None and (write or html is not None):
        raise UserError("--against excludes --write and --html.", remedy="Remove one of them.")
    if command_config is not None and not write:
        raise UserError("--command-config has credentials for queries.", remedy="Add --write.")
    name, settings = get_cluster(cluster).name, Settings.from_environment()
    history = _open_run(name, require_run(name, run) if run else _last_changed(name, settings))
    if events:
        _print_events(history, as_json=as_json)
        return
    _refuse_damage(history)
    if against is not None:
        _print_comparison(_open_run(name, require_run(name, against)), history, as_json=as_json)
        return
    if write:
        _write_again(history, command_config)
    _print_report(history, html, as_json=as_json)


def _last_changed(cluster: str, settings: Settings) -> str:
    from kafka_rollout.run.store.history import list_runs
    from kafka_rollout.run.store.opening import database_of

    known = list_runs(database_of(settings), cluster)
    if not known:
        raise UserError(f"Cluster {cluster} has no run yet.", remedy="Start one, for example with `upgrade --dry-run`.")
    return known[0]


def _open_run(cluster: str, run_id: str) -> SqlRunStore:
    from kafka_rollout.run.store.opening import open_run

    return open_run(cluster, run_id)


def _refuse_damage(history: SqlRunStore) -> None:
    if damage := history.find_damage():
        raise RefusedError(
            f"The history of run {history.number} of cluster {history.cluster} is damaged. {damage}",
            remedy="Restore the database and the documents from a backup. --events shows the events that can be read.",
        )
    if forged := find_unconfirmed_approval(history.events()):
        raise RefusedError(
            f"The history of run {history.number} of cluster {history.cluster} has an approval that Airflow does "
            f"not confirm. {forged}",
            remedy="Find out who can write to the database. Ask the approver, and do not continue this run.",
        )


def _write_again(history: SqlRunStore, command_config: Path | None) -> None:
    from kafka_rollout.wiring.runs import write_run_report

    with open_ports(history.cluster, str(history.number), command_config) as (ports, _, _security):
        stored = stored_end(ports.run)
        dry_run = stored is not None and stored.outcome == Outcome.DRY_RUN
        write_run_report(Run(ports, ports.run.load_plan()), dry_run=dry_run)


def _print_events(history: SqlRunStore, *, as_json: bool) -> None:
    from kafka_rollout.run.store.event_json import encode

    encoded = ((event.at, *encode(event)) for event in history.events())
    events = [{"at": at, "kind": kind, **data} for at, kind, data in encoded]
    if as_json:
        show.print_json(events)
        return
    rows = []
    for event in events:
        content = ", ".join(f"{key}={value}" for key, value in event.items() if key not in {"at", "kind"})
        rows.append((iso(float(event["at"])), event["kind"], content[:300]))
    show.print_table(("Time", "Event", "Content"), rows)


def _print_report(history: SqlRunStore, html: Path | None, *, as_json: bool) -> None:
    page, report = history.page("report.html"), history.attachment("report.json")
    if page is None or report is None:
        raise _without_report(history)
    if html is not None:
        write_file(html, page.encode())
    if as_json:
        show.print_json(report)
        return
    show.say(f"{report['outcome']}: {report['sentence']}")
    if failed := report["failed_gate"]:
        show.say_marked(f"Failed gate {failed['gate']}:", "red", failed["reason"] or failed["message"])
    for sentence in report["proved"]:
        show.say_marked("proved:", "green", sentence)
    for sentence in report["not_proved"]:
        show.say_marked("not proved:", "yellow", sentence)
    show.say("The history of the run is complete, and its plan and documents are as they were written.")
    if report["next_action"]:
        show.say(f"Next action: {report['next_action']}")
    show.say(f"report: {history.location('report.html')}" if html is None else f"report: {html}")


def _print_comparison(first: SqlRunStore, second: SqlRunStore, *, as_json: bool) -> None:
    from kafka_rollout.base.json_forms import to_json
    from kafka_rollout.report.run_comparison import ComparedRun, compare_runs

    def read(history: SqlRunStore) -> ComparedRun:
        report = history.attachment("report.json")
        if report is None:
            raise _without_report(history)
        return ComparedRun(run_id=history.run_id, report=report, terms=history.load_plan().terms)

    comparison = compare_runs(first.cluster, read(first), read(second))
    if as_json:
        show.print_json(to_json(comparison))
        return
    for section in comparison.sections:
        show.say(f"\n{section.title}")
        rows = [(row.name, row.unit.show(row.first), row.unit.show(row.second), row.change) for row in section.rows]
        show.print_table(("", f"Run {first.number}", f"Run {second.number}", "Change"), rows)
    for title, style, findings in (("new:", "yellow", comparison.new), ("gone:", "green", comparison.gone)):
        for finding in findings:
            show.say_marked(title, style, f"{finding.code} {finding.subject}: {finding.sentence}")


def _without_report(history: SqlRunStore) -> UserError:
    cluster, run = history.cluster, history.number
    return UserError(
        f"Run {run} of cluster {cluster} has no report: it is written when the run ends.",
        remedy=f"To write it now: kafka-rollout runs report --cluster {cluster} --run {run} --write.",
    )
