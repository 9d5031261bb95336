"""The lock of the cluster: one change at a time."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_rollout.base.durations import iso
from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli import show
from kafka_rollout.cli.answers import shell_responder
from kafka_rollout.cli.options import AsJson, ClusterName
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.control.approval import refuse_answer

app = typer.Typer(help=__doc__, no_args_is_help=True)


@app.command("show")
def lock_show(cluster: ClusterName, as_json: AsJson = False) -> None:
    """Show the run that holds the cluster's lock, its purpose and when its lease expires."""
    from kafka_rollout.run.store.opening import open_lock

    settings = Settings.from_environment()
    lease = open_lock(settings).holder(get_cluster(cluster, settings).name)
    if as_json:
        held = lease and {"run": lease.holder, "purpose": lease.purpose, "expires_at": iso(lease.expires_at)}
        show.print_json({"cluster": cluster, "lock": held})
        return
    if lease is None:
        show.out.print(f"No run holds the lock of {cluster}.")
        return
    show.say(f"Run {lease.holder} holds the lock of {cluster} until {iso(lease.expires_at)}: {lease.purpose}")


@app.command("break")
def lock_break(
    cluster: ClusterName,
    by: Annotated[
        str,
        typer.Option(
            "--as", metavar="NAME", help="Your name, one of the approvers; recorded with the shell user and the host."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Break the lock of a run that was killed. Only an approver in the inventory's list can break a lock."""
    from kafka_rollout.run.store.opening import open_lock

    settings = Settings.from_environment()
    spec = get_cluster(cluster, settings)
    if not by.strip():
        raise UserError("Breaking a lock needs the name of an approver.", remedy="Add --as NAME.")
    user = shell_responder()
    refuse_answer(spec, by, user)
    lease = open_lock(settings).break_(spec.name, f"{by.strip()} ({user})")
    if as_json:
        show.print_json({"cluster": cluster, "broken": lease and {"run": lease.holder, "purpose": lease.purpose}})
        return
    show.say("No run held the lock." if lease is None else f"Lock of {lease.holder} ({lease.purpose}) was broken.")
