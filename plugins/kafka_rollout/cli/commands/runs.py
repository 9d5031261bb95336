"""Recorded runs of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.text import Text

from kafka_rollout.base.durations import iso, parse_duration
from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.base.system.files import write_file
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import count
from kafka_rollout.cli import show
from kafka_rollout.cli.answers import shell_responder
from kafka_rollout.cli.options import AsJson, ClusterName, require_run
from kafka_rollout.cli.status_screen import StatusScreen, Until, exit_code, follow, print_status
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.console.cluster_status import ClusterStatus
from kafka_rollout.run.projections.approvals import find_unconfirmed_approval

if TYPE_CHECKING:
    from kafka_rollout.run.store.history import SqlRunStore

app = typer.Typer(help=__doc__, no_args_is_help=True)

RunOption = Annotated[str, typer.Option(help="Id of the run (see `runs list`).")]
AnyRun = Annotated[
    str | None, typer.Option("--run", help="Id of the run (see `runs list`); default: the run that `status` shows.")
]

_LISTED = (
    *("run", "dag", "kind", "source_release", "target_release", "phase", "needs_human", "started", "started_by"),
    "updated",
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
        (status.started, status.kind, status.way or None, _state(status), status.started_by, status.run)
        for status in statuses
    )
    show.print_table(("Started", "Kind", "Releases", "State", "Started by", "Run"), rows)
    if more := len(run_ids) - len(statuses):
        show.say(f"{count(more, 'older run')}: add --last {len(run_ids)} to list all.", show.err)


def _state(status: ClusterStatus) -> Text:
    style = "red" if status.needs_human else ""
    return Text(status.phase.value.replace("-", " "), style)


@app.command("watch")
def runs_watch(cluster: ClusterName, run: AnyRun = None, as_json: AsJson = False) -> None:
    """Follow a run on one screen until it needs a human or ended. Ctrl-C ends only this command, not the run.

    The exit codes are those of `runs wait`.
    """
    name, run_id, settings = _find_run(cluster, run)
    with StatusScreen() as screen:
        status = follow(name, run_id, settings, on_status=screen.show, on_problem=screen.say)
    _end(status, as_json=as_json)


@app.command("wait")
def runs_wait(
    cluster: ClusterName,
    run: AnyRun = None,
    until: Annotated[
        Until | None,
        typer.Option(
            "--for",
            help="needs-human: until the run needs a human; end: until it ended or cannot continue by itself, and not "
            "at a request; default: until it needs a human or ended.",
        ),
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Such as 30s, 10m or 2h; default: no limit.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Wait for a run, without output. Exit code 0: it finished; with --for needs-human: it needs a human.

    Exit code 1: anything else, such as a request, a failure, a rollback or the timeout; 3: a check or an approver
    refused it. With --json, the result is the status of the run, after the timeout an error of the kind transient.
    """
    name, run_id, settings = _find_run(cluster, run)
    timeout_s = None if timeout is None else parse_duration(timeout)
    status = follow(name, run_id, settings, until=until, timeout_s=timeout_s)
    _end(status, until, as_json=as_json)


ControlReason = Annotated[str, typer.Option("--reason", help="Reason as a sentence; stored in the run history.")]
Operator = Annotated[str | None, typer.Option("--as", metavar="NAME", help="Your name; default: the shell's user.")]


@app.command("pause")
def runs_pause(cluster: ClusterName, reason: ControlReason, run: AnyRun = None, operator: Operator = None) -> None:
    """Pause a run of a DAG or of another shell before its next node. The run keeps the lock of the cluster."""
    _control("pause", cluster, run, reason, operator)


@app.command("resume")
def runs_resume(cluster: ClusterName, reason: ControlReason, run: AnyRun = None, operator: Operator = None) -> None:
    """Let a paused run continue with its next node. Withdraws a stop that the run has not read yet."""
    _control("resume", cluster, run, reason, operator)


@app.command("stop")
def runs_stop(cluster: ClusterName, reason: ControlReason, run: AnyRun = None, operator: Operator = None) -> None:
    """End a run before its next node or change, and release the lock. The run can be continued or rolled back later."""
    _control("stop", cluster, run, reason, operator)


def _control(action: str, cluster: str, run: str | None, reason: str, operator: str | None) -> None:
    from kafka_rollout.wiring.runs import control_request, request_control

    name, run_id, settings = _find_run(cluster, run)
    request = control_request(get_cluster(name, settings), action, reason, shell_responder(), by=operator or "")
    show.say(request_control(name, run_id, request, settings))


def _find_run(cluster: str, run: str | None) -> tuple[str, str, Settings]:
    """Return the names of cluster and run. Raises UserError if there is none."""
    from kafka_rollout.wiring.runs import read_status

    settings = Settings.from_environment()
    name = get_cluster(cluster, settings).name
    if run is not None:
        require_run(name, run, settings)
        return name, run, settings
    status = read_status(name, settings)
    if status is None or status.run is None:
        raise UserError(f"Cluster {name} has no run in progress.", remedy="Name a run with --run (see `runs list`).")
    return name, status.run, settings


def _end(status: ClusterStatus, until: Until | None = None, *, as_json: bool) -> NoReturn:
    show.print_json(status.to_json()) if as_json else print_status(status)
    raise typer.Exit(exit_code(status, until))


@app.command("show")
def runs_show(cluster: ClusterName, run: RunOption, as_json: AsJson = False) -> None:
    """Show the events of a run with their time (UTC), oldest first."""
    from kafka_rollout.run.store.event_json import encode

    history = _open_run(cluster, run)
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


@app.command("report")
def runs_report(
    cluster: ClusterName,
    run: RunOption,
    as_json: AsJson = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the page into this file.")] = None,
) -> None:
    """Show the stored report of a run: outcome, failed gate, what was proved, next action. Reads only the database."""
    history = _open_run(cluster, run)
    page, report = history.page("report.html"), history.attachment("report.json")
    if page is None or report is None:
        raise _without_report(cluster, run)
    if html is not None:
        write_file(html, page.encode())
    if as_json:
        show.print_json(report)
        return
    show.say(f"{report['outcome']}: {report['sentence']}")
    if failed := report["failed_gate"]:
        show.say(f"Failed gate: {failed['gate']}")
        for condition in failed["unmet"]:
            show.say_marked("not met:", "red", f"{condition['name']}: {condition['evidence']}")
    for sentence in report["proved"]:
        show.say_marked("proved:", "green", sentence)
    for sentence in report["not_proved"]:
        show.say_marked("not proved:", "yellow", sentence)
    show.say(f"Next action: {report['next_action'] or 'read the report'}")
    show.say(f"report: {history.location('report.html')}" if html is None else f"report: {html}")


@app.command("compare")
def runs_compare(
    first: Annotated[str, typer.Argument(metavar="RUN1", help="Id of the first run (see `runs list`).")],
    second: Annotated[str, typer.Argument(metavar="RUN2", help="Id of the run to compare with it.")],
    cluster: ClusterName,
    as_json: AsJson = False,
) -> None:
    """Compare two runs by their reports: path, durations, gates, test traffic, findings and terms."""
    from kafka_rollout.base.json_forms import to_json
    from kafka_rollout.report.run_comparison import ComparedRun, compare_runs

    def read(run: str) -> ComparedRun:
        history = _open_run(cluster, run)
        report = history.attachment("report.json")
        if report is None:
            raise _without_report(cluster, run)
        return ComparedRun(run_id=run, report=report, terms=history.load_plan().terms)

    comparison = compare_runs(get_cluster(cluster).name, read(first), read(second))
    if as_json:
        show.print_json(to_json(comparison))
        return
    for section in comparison.sections:
        show.say(f"\n{section.title}")
        rows = [(row.name, row.unit.show(row.first), row.unit.show(row.second), row.change) for row in section.rows]
        show.print_table(("", first, second, "Change"), rows)
    for title, style, findings in (("new:", "yellow", comparison.new), ("gone:", "green", comparison.gone)):
        for finding in findings:
            show.say_marked(title, style, f"{finding.code} {finding.subject}: {finding.sentence}")


def _without_report(cluster: str, run: str) -> UserError:
    return UserError(
        f"Run {run} of cluster {cluster} has no report: it is written when the run ends.",
        remedy=f"To write it now: kafka-rollout report --cluster {cluster} --run {run}.",
    )


@app.command("verify")
def runs_verify(cluster: ClusterName, run: RunOption, as_json: AsJson = False) -> None:
    """Find missing events, a damaged plan, changed documents and approvals without a request of Airflow. Exit code 3
    if there are any.

    It detects damage. A user who can write to the database can also write the SHA-256 of a document.
    """
    history = _open_run(cluster, run)
    if damage := history.find_damage():
        raise RefusedError(
            f"The history of run {run} of cluster {cluster} is damaged. {damage}",
            remedy="Restore the database and the documents from a backup.",
        )
    if forged := find_unconfirmed_approval(history.events()):
        raise RefusedError(
            f"The history of run {run} of cluster {cluster} has an approval that Airflow does not confirm. {forged}",
            remedy="Find out who can write to the database. Ask the approver, and do not continue this run.",
        )
    if as_json:
        show.print_json({"run": run, "ok": True})
    else:
        show.say(f"The history of run {run} is complete, and its plan and documents are as they were written.")


def _open_run(cluster: str, run: str) -> SqlRunStore:
    """Open the history of a run of the cluster. Raises UserError if there is none."""
    from kafka_rollout.run.store.opening import open_run

    name = get_cluster(cluster).name
    require_run(name, run)
    return open_run(name, run)
