"""Breaks the lock of a cluster, which lets one run at a time change it."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli import show
from kafka_rollout.cli.answers import shell_responder
from kafka_rollout.cli.options import AsJson, ClusterName
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.control.approval import refuse_answer
from kafka_rollout.model.claims import Claim
from kafka_rollout.model.topology import ClusterSpec


def unlock(
    cluster: ClusterName,
    by: Annotated[
        str,
        typer.Option(
            "--as", metavar="NAME", help="Your name, one of the approvers; recorded with the shell user and the host."
        ),
    ],
    claims: Annotated[
        bool,
        typer.Option(
            "--claims", help="Also take over the nodes that runs of other databases have claimed on their hosts."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Break the lock of a run: another run can change the cluster then. Only an approver can do it.

    The run does nothing more, also if it was not killed, before a person continues it: with its command and --run, with
    `resume`, or by a clear of its failed task in Airflow. `status` shows the run that holds the lock, its purpose and
    when its lease expires.

    With --claims, a run of this database can change nodes that a run of another database has claimed: one that is gone,
    or of which this one was restored from a backup. If the other run goes on, it is refused at its
    next stop after a run of this database has claimed a node.
    """
    from kafka_rollout.run.store.opening import database_of, open_lock
    from kafka_rollout.run.store.run_names import name_run
    from kafka_rollout.wiring.runs import record_broken

    settings = Settings.from_environment()
    spec = get_cluster(cluster, settings)
    if not by.strip():
        raise UserError("Breaking a lock needs the name of an approver.", remedy="Add --as NAME.")
    user = shell_responder()
    refuse_answer(spec, by, user)
    lock, who = open_lock(settings), f"{by.strip()} ({user})"
    found, silent = _read_claims(spec, settings) if claims else ({}, {})
    if (lease := lock.break_(spec.name, who)) is not None:
        record_broken(spec.name, lease.holder, who, settings)
    new = lock.take_over_claims(spec.name, found, who)
    taken = [claim for nonce, claim in found.items() if nonce in new]
    if as_json:
        broken = lease and {"run": lease.holder, "purpose": lease.purpose}
        of_nodes = [{"node": one.node_id, "run": one.run_id, "database": one.database} for one in taken]
        show.print_json({"cluster": cluster, "broken": broken, "taken_over": of_nodes, "unread": sorted(silent)})
        return
    if lease is None:
        show.say("No run held the lock.")
    else:
        with database_of(settings).reading() as connection:
            held = name_run(connection, spec.name, lease.holder)
        show.say(f"The lock of run {held} ({lease.purpose}) was broken.")
    for one in taken:
        show.say(f"Node {one.node_id} was taken over from run {one.run_id} of database {one.database}.")
    for node_id, why in silent.items():
        show.say(f"The claims of node {node_id} are unknown: {why} Repeat the command when it can be read.")
    if claims and not taken and not silent:
        show.say("No other database has claimed a node.")


def _read_claims(spec: ClusterSpec, settings: Settings) -> tuple[dict[str, Claim], dict[int, str]]:
    """Return nonce → a claim with it, on any host, and node id → why its claims are unknown."""
    from kafka_rollout.observation.each_node import on_each
    from kafka_rollout.wiring.cluster_ports import open_ports_to_read

    spec.refuse_unmanaged()
    with open_ports_to_read(spec, settings=settings) as ports:
        seen = on_each(ports.runtime.process, spec.nodes)
    claims = {node_id: process.claims for node_id, process in seen.done.items()}
    found = {one.nonce: one for of_node in claims.values() for one in (*of_node.open, of_node.closed) if one}
    unread = {node_id: f"{of_node.problem}." for node_id, of_node in claims.items() if of_node.problem}
    return found, {**unread, **seen.problems}
