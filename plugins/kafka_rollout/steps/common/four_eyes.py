"""Four eyes: the operator who started a run cannot approve it.

Airflow proves who answers. A shell proves only the operating system's user: the name of `--as` is a claim. So a
cluster with four eyes accepts an approval at a shell only from a user whom the inventory names in `shell_approvers`, as
the approver that it names there.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.run.events import OF_ROLLS, ApprovalOf, Begun, Channel, Event, Responder, StartedAtShell, events_of
from kafka_rollout.steps.common.cluster_ports import ClusterPorts

# The starter may roll back alone.
FOUR_EYES = frozenset({*OF_ROLLS, ApprovalOf.FINALIZE, ApprovalOf.DIFFERENCES, ApprovalOf.PAUSE})


def record_shell_start(ports: ClusterPorts, starter: Responder) -> None:
    """Record the operating system's user who starts a run. Does nothing for a run that has events."""
    if not ports.run.events():
        ports.run.record(StartedAtShell(starter=starter))


def refuse_starter(ports: ClusterPorts, by: str, responder: Responder | None) -> None:
    """Raise RefusedError if the inventory requires four eyes and `by` started the run, or the starter is unknown.

    A DAG's run was started by Airflow's user who triggered it, a run of the shell by the shell's user, who is also the
    approver that the inventory names for this user.
    """
    refuse_claimed_name(ports.cluster, by, responder)
    if not ports.cluster.four_eyes:
        return
    starters = _starters(ports.cluster, ports.run.events())
    if not starters:
        raise RefusedError(
            f"Run {ports.run_id} has no record of who started it, and cluster {ports.cluster.name} requires four eyes.",
            remedy="Start a new run as a named user.",
        )
    if starters & _names(by, responder):
        raise RefusedError(
            f"{by} started run {ports.run_id} and cannot approve it: cluster {ports.cluster.name} requires four eyes.",
            remedy="Have another approver answer.",
        )


def refuse_claimed_name(cluster: ClusterSpec, by: str, responder: Responder | None) -> None:
    """Raise RefusedError for a name at a shell that the inventory does not give to the operating system's user.

    Without four eyes and without `shell_approvers` every name counts.
    """
    if responder is not None and responder.channel is Channel.AIRFLOW:
        return
    if not (cluster.four_eyes or cluster.shell_approvers):
        return
    user = "" if responder is None else responder.user
    known = cluster.shell_approvers.get(user)
    if known is None or known != by.strip():
        why = "cluster {0} requires four eyes" if cluster.four_eyes else "cluster {0} lists its shell_approvers"
        raise RefusedError(
            f"At a shell, {by} is a name that the user {user or '(unknown)'} claims, and {why.format(cluster.name)}.",
            remedy="Approve in Airflow, or as the approver whom the inventory names for this user in shell_approvers"
            f" ({f'{user}: {known}' if known else 'it names none for this user'}).",
        )


def _starters(cluster: ClusterSpec, events: Sequence[Event]) -> set[str]:
    starters = {begun.triggered_by for begun in events_of(events, Begun)}
    users = {started.starter.user for started in events_of(events, StartedAtShell)}
    starters |= users | {cluster.shell_approvers.get(user, "") for user in users}
    return starters - {""}


def _names(by: str, responder: Responder | None) -> set[str]:
    """Return every name of the approver."""
    names = {by.strip()}
    if responder is not None:
        names |= {responder.name or by.strip(), *((responder.user,) if responder.channel is Channel.SHELL else ())}
    return names
