"""Recorded runs of a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_rollout.base.durations import iso
from kafka_rollout.base.errors import FatalError
from kafka_rollout.cli import show
from kafka_rollout.cli.options import AsJson, ClusterName, require_run
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.run.projections.approvals import find_unconfirmed_approval

app = typer.Typer(help=__doc__, no_args_is_help=True)

Run = Annotated[str, typer.Option(help="Id of the run (see `runs list`).")]


@app.command("list")
def runs_list(cluster: ClusterName, as_json: AsJson = False) -> None:
    """List the runs of a cluster, the newest first."""
    from kafka_rollout.run.store.opening import database_of
    from kafka_rollout.run.store.runs import list_runs

    known = list_runs(database_of(), get_cluster(cluster).name)
    if as_json:
        show.print_json(list(known))
        return
    for run_id in known:
        show.say(run_id)


@app.command("show")
def runs_show(cluster: ClusterName, run: Run, as_json: AsJson = False) -> None:
    """Show the events of a run with their time (UTC), oldest first."""
    from kafka_rollout.run.store.event_codec import encode
    from kafka_rollout.run.store.opening import open_run

    history = open_run(_require_run_of_cluster(cluster, run), run)
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


@app.command("verify")
def runs_verify(cluster: ClusterName, run: Run, as_json: AsJson = False) -> None:
    """Find events of a run that were altered, removed or reordered, and changed documents. Exit code 1 if there are."""
    from kafka_rollout.run.store.opening import open_run

    history = open_run(_require_run_of_cluster(cluster, run), run)
    wrong = history.verify_chain()
    if wrong:
        raise FatalError(
            f"The history of run {run} of cluster {cluster} was changed. {wrong}",
            remedy="Compare it with a backup of the database. Do not rely on the approvals after this event.",
        )
    if forged := find_unconfirmed_approval(history.events()):
        raise FatalError(
            f"The history of run {run} of cluster {cluster} has an approval that Airflow does not confirm. {forged}",
            remedy="Find out who can write to the database. Ask the approver, and do not continue this run.",
        )
    if as_json:
        show.print_json({"run": run, "ok": True})
    else:
        show.say(f"The history of run {run} is complete and unchanged.")


def _require_run_of_cluster(cluster: str, run: str) -> str:
    name = get_cluster(cluster).name
    require_run(name, run)
    return name
