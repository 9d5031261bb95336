"""The way down: KIP-915's classes backwards, and the order in which nodes take their turn.

A release that stops at record types it does not know is never rolled together with one that writes them. So the way
down from an emitting release to an intolerant one leads through a tolerant one, as the way up does; and what the
emitting one has written by then decides whether the last release step can be taken at all (the scan of the coordinator
logs).
"""

from __future__ import annotations

from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.findings import Finding, Severity
from kafka_rollout.domain.model.plan import NodeStep, ReleaseStep
from kafka_rollout.domain.model.releases import Catalogue, CoordinatorClass, Release
from kafka_rollout.domain.model.state import ClusterState
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.domain.model.wording import nodes
from kafka_rollout.domain.planning.release_path import (
    BROKERS,
    CONTROLLERS,
    node_order,
    running_releases,
    tolerant_between,
)


def highest_running(cluster: ClusterSpec, state: ClusterState) -> Release:
    """Where a roll down was interrupted, the way starts again from the nodes that are still above."""
    return max(running_releases(cluster, state))


def hops_down(
    catalogue: Catalogue, source: Release, target: Release, *, together: bool = True
) -> tuple[tuple[Release, Release, str], ...]:
    """The release steps (from, to, reason) from origin down to target; none when they are equal.

    `together` False: no node of the one runs beside a node of the other (offline), and there is no release step
    between. Raises UserError for a release that the catalogue does not know and for a target above the origin.
    """
    facts, below = catalogue.get(source), catalogue.get(target)
    if target > source:
        raise UserError(
            f"Target {target} is newer than the running release {source}.", remedy="Use kafka_upgrade to go up."
        )
    if target == source:
        return ()
    if not together:
        return ((source, target, f"All nodes are stopped, so {source} and {target} never run side by side."),)
    intolerant = below.coordinator_class is CoordinatorClass.INTOLERANT
    if not (intolerant and facts.coordinator_class is CoordinatorClass.EMITTING):
        return ((source, target, f"Releases {source} and {target} may run side by side (KIP-915)."),)
    via = tolerant_between(catalogue, target, source)
    reason = f"KIP-915: {target} cannot load coordinator records that {source} writes, so all nodes first go to {via}"
    return (
        (source, via, f"{reason}, which ignores what it does not know."),
        (via, target, f"KIP-915: no node writes records any more that {target} does not know."),
    )


def order_down(cluster: ClusterSpec, active_controller_id: int | None) -> tuple[NodeStep, ...]:
    """Brokers first, then controllers (combined nodes are controllers), the active one last; else by id.

    The controllers stay on the newer release for as long as a broker runs it: a controller serves older brokers, an
    older one need not serve newer ones.
    """
    order = node_order(cluster, active_controller_id)
    return tuple(node_step for section in (BROKERS, CONTROLLERS) for node_step in order if node_step.section == section)


def plan_hops(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, target: Release, *, together: bool
) -> tuple[ReleaseStep, ...]:
    """The release steps with the nodes' order."""
    active = state.quorum.leader_id if state.quorum else None
    order = order_down(cluster, active)
    ways = hops_down(catalogue, highest_running(cluster, state), target, together=together)
    return tuple(ReleaseStep(from_release=a, to_release=b, reason=reason, order=order) for a, b, reason in ways)


def behind_first_hop(state: ClusterState, first_stop: Release) -> Finding | None:
    """Nodes that run a release below the first hop's: rolling them would take them up unasked."""
    behind = {i: n.release for i, n in state.nodes.items() if n.release is not None and n.release < first_stop}
    if not behind:
        return None
    running = ", ".join(sorted({str(release) for release in behind.values()}))
    return Finding(
        code="NODE-BEHIND",
        severity=Severity.BLOCKER,
        subject=nodes(behind),
        sentence=f"{nodes(behind).capitalize()} run {running}, which is below {first_stop}, where the roll goes first.",
        remedy=f"Choose target {min(behind.values())}, or bring these nodes to the others' release first.",
    )
