"""Claims: the lock is a row of one database, so a run also leaves on the host of each node that it changes.

1. Before the first change of a node, a process writes a claim there: an open one, with a nonce that its database has
   stored before. It stays open until the run releases the lock with the node back, so that it also shows a run that
   waits or was killed.
2. Before a stop, the claims of all nodes are read, after the own claim was written. A claim that this database does not
   know refuses: an open one, and a closed one that the approved plan has not seen. So two runs of two databases that
   write at the same time both see the other, and neither stops a node. A database that was copied, or restored from a
   backup, does not know the claims since then.
3. A claim that cannot be read refuses. That a host does not respond is judged by the gates, which know its node as
   down: its node can be the one that a rollback starts again.
4. Claims are below the home of the SSH user, so runs with two SSH users do not see each other. A folder that every user
   can write would let any of them stop the runs of others.
5. `lock.fence_cluster_ports` asks for the claim at each change of a node, so no caller can leave it out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from kafka_rollout.base import wording as words
from kafka_rollout.base.errors import (
    LockBrokenError,
    LockedOutError,
    LockHeldError,
    RolloutError,
    TransientError,
    UserError,
)
from kafka_rollout.model.claims import Claim, Claims
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts, without_known
from kafka_rollout.observation.each_node import on_each
from kafka_rollout.planning.findings.claims import TAKE_OVER, describe_claims
from kafka_rollout.run.events import LockedOut
from kafka_rollout.run.projections.nodes import find_unfinished_nodes
from kafka_rollout.run.view import RunView


@contextmanager
def claiming(ports: ClusterPorts, nodes: Sequence[NodeSpec]) -> Iterator[None]:
    """Claim nodes of which at least one is stopped next. An error withdraws the claims of those that are unchanged."""
    try:
        claim_nodes(ports, nodes)
        with recording_lockout(ports):
            yield
    except RolloutError:
        _withdraw(ports, nodes)
        raise


@contextmanager
def recording_lockout(ports: ClusterPorts) -> Iterator[None]:
    """Record in the history that another run refuses a change: by the lock, or by its claim; or that the lock was
    broken. Every change and every gate passes here.

    A run that has not begun records nothing, and one that repeats a refused step does not record it again.
    """
    try:
        yield
    except (LockedOutError, LockBrokenError) as error:
        seen = LockedOut(sentence=error.sentence, is_broken=isinstance(error, LockBrokenError))
        view = RunView.of(ports.run.events())
        if view.events and (view.locked_out, view.lock_is_broken) != (seen.sentence, seen.is_broken):
            ports.run.record(seen)
        raise


def claim_nodes(ports: ClusterPorts, nodes: Sequence[NodeSpec]) -> None:
    """Leave a claim on the host of each of the nodes that this action has not claimed yet.

    A host that does not respond is left out: the change of its node raises. Raises as `refuse_other_claims`, by the
    claims that these hosts have.
    """
    process, claimed = ports.lock.acting_process(ports.cluster.name), ports.claimed
    with claimed.guard:
        claimed.begin(process.nonce)
        new = [node for node in nodes if node.node_id not in claimed.written]

    def write(node: NodeSpec) -> Claims:
        claim = Claim(
            cluster_id=_cluster_id(ports),
            node_id=node.node_id,
            run_id=ports.run_id,
            nonce=process.nonce,
            at=ports.clock.now(),
            database=process.database,
        )
        found = ports.runtime.claim(node, claim)
        with claimed.guard:
            claimed.written[node.node_id] = claim, ports.clock.monotonic()
        return found

    written = on_each(write, new)
    for error in written.failed.values():
        if not isinstance(error, TransientError) or len(nodes) == 1:
            raise error
    with recording_lockout(ports):
        _refuse_found(ports, without_known(ports, written.done)[0])


def refuse_other_claims(ports: ReadPorts, state: ClusterState) -> None:
    """Raise if a run of another database changes the cluster now, or has changed it since the plan of this run.

    Raises LockHeldError for a run that has not ended, LockedOutError for one that has, and for claims that cannot be
    read.
    """
    _refuse_found(ports, {node_id: node.other_claims for node_id, node in state.nodes.items()})
    if state.nodes.keys() >= {node.node_id for node in ports.cluster.nodes}:
        with ports.claimed.guard:
            ports.claimed.seen_at = max(ports.claimed.seen_at, state.asked_at)


def refuse_unclaimed(ports: ClusterPorts, change: str, node: NodeSpec) -> None:
    """Claim a node before a change of it, unless this action has claimed it. A stop needs the claims of all nodes."""
    with claiming(ports, [node]):
        if change == "stop":
            with ports.claimed.guard:  # of several stops at the same time, one reads
                if not ports.claimed.is_checked(node.node_id):
                    refuse_claims_on_hosts(ports)
    ports.claimed.changed.add(node.node_id)


def refuse_claims_on_hosts(ports: ClusterPorts) -> None:
    """Read the claims of all nodes whose hosts respond. Raises as `refuse_other_claims`."""
    asked_at = ports.clock.monotonic()
    seen = on_each(ports.runtime.process, ports.cluster.nodes).done
    with recording_lockout(ports):
        _refuse_found(ports, without_known(ports, {node_id: one.claims for node_id, one in seen.items()})[0])
    ports.claimed.seen_at = max(ports.claimed.seen_at, asked_at)


def end_claims(ports: ClusterPorts) -> None:
    """End the claims that runs of this database have left, when a run releases the lock.

    Those of nodes that this run has stopped or started stay open until their gate has passed, and those of hosts that
    do not respond. They do not refuse a run of this database.
    """
    if not ports.cluster.manages_nodes or not ports.lock.has_claimed(ports.cluster.name, ports.run_id):
        return
    unfinished = find_unfinished_nodes(ports.run.events())

    def end(node: NodeSpec) -> None:
        claims = ports.runtime.process(node).claims
        known = ports.run.known_claims(claims.nonces) or ()
        if ours := [one for one in claims.open if one.nonce in known]:
            ports.runtime.end_claims(node, ours, changed=True)

    with suppress(RolloutError), ports.lock.acting(ports.cluster.name, ports.run_id, "Ending the claims"):
        nodes = ports.cluster.nodes
        on_each(end, [] if unfinished is None else [node for node in nodes if node.node_id not in unfinished])


def _cluster_id(ports: ClusterPorts) -> str:
    lease = ports.lock.holder(ports.cluster.name)
    return "" if lease is None else lease.cluster_id


def _withdraw(ports: ClusterPorts, nodes: Sequence[NodeSpec]) -> None:
    """Remove the claims of nodes that this action has not changed, as far as their hosts respond.

    Another run that claimed its nodes at the same time has seen them, and can go on then.
    """
    claimed = ports.claimed
    with claimed.guard:
        unchanged = [one for one in nodes if one.node_id in claimed.written and one.node_id not in claimed.changed]
        claims = {node.node_id: claimed.written.pop(node.node_id)[0] for node in unchanged}
    on_each(lambda node: ports.runtime.end_claims(node, [claims[node.node_id]], changed=False), unchanged)


def _refuse_found(ports: ReadPorts, others: Mapping[int, Claims]) -> None:
    take_over = TAKE_OVER.format(cluster=ports.cluster.name)
    if opened := describe_claims((one for claims in others.values() for one in claims.open), ended=False):
        raise LockHeldError(
            f"Nothing was changed. {' '.join(opened.values())}",
            remedy=take_over,
        )
    ended = [one.closed for one in others.values() if one.closed is not None]
    seen = _seen_by_plan(ports) if ended else None
    newer = [] if seen is None else [one for one in ended if one.nonce not in seen]
    if closed := describe_claims(newer, ended=True):
        raise LockedOutError(
            f"Nothing was changed. {' '.join(closed.values())} The plan of this run does not know this change.",
            remedy=f"Start a new run, which plans from the current state. {take_over}",
        )
    if unread := {node_id: claims.problem for node_id, claims in others.items() if claims.problem}:
        node_id, problem = next(iter(unread.items()))
        raise LockedOutError(
            f"Nothing was changed. Whether another run changes {words.nodes(unread)} is unknown: node {node_id}: "
            f"{problem}.",
            remedy="Make the files of the claims readable for the user of this tool, then repeat the step.",
        )


def _seen_by_plan(ports: ReadPorts) -> Collection[str] | None:
    """Return what the plan has seen; None for a change without a plan, which does not rest on an earlier state."""
    try:
        return ports.run.load_plan().other_claims
    except UserError:
        return None
