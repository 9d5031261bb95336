"""The release steps of a downgrade by KIP-915's coordinator classes, and the node order.

A release that stops at unknown record types never runs together with a release that writes them. So a downgrade from an
emitting release to an intolerant one goes through a tolerant one, as an upgrade does. The scan of the coordinator logs
then decides whether the last release step is possible.
"""

from __future__ import annotations

from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.plan import NodeStep, ReleaseStep
from kafka_rollout.domain.model.releases import Catalogue, CoordinatorClass, Release
from kafka_rollout.domain.model.state import ClusterState
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.domain.planning.release_path import (
    BROKERS,
    CONTROLLERS,
    node_order,
    running_releases,
    tolerant_between,
)


def highest_running(cluster: ClusterSpec, state: ClusterState) -> Release:
    """Return the highest running release: an interrupted downgrade continues with the nodes that still run it."""
    return max(running_releases(cluster, state))


def plan_steps_down(
    catalogue: Catalogue, source: Release, target: Release, *, together: bool = True
) -> tuple[tuple[Release, Release, str], ...]:
    """Return the release steps (from, to, reason) from source down to target; empty if they are equal.

    `together` False: the two releases never run at the same time (offline), so no release step is needed in between.
    Raises UserError for a release that is not in the catalogue and for a target above the source.
    """
    facts, below = catalogue.get(source), catalogue.get(target)
    if target > source:
        raise UserError(
            f"Target {target} is newer than the running release {source}.",
            remedy="Use kafka_upgrade for a newer release.",
        )
    if target == source:
        return ()
    if not together:
        return ((source, target, f"All nodes are stopped, so {source} and {target} never run at the same time."),)
    intolerant = below.coordinator_class is CoordinatorClass.INTOLERANT
    if not (intolerant and facts.coordinator_class is CoordinatorClass.EMITTING):
        return ((source, target, f"Releases {source} and {target} can run at the same time (KIP-915)."),)
    via = tolerant_between(catalogue, target, source)
    reason = f"KIP-915: {target} cannot load coordinator records that {source} writes, so all nodes first move to {via}"
    return (
        (source, via, f"{reason}, which ignores records of unknown types."),
        (via, target, f"KIP-915: no node still writes records that {target} does not support."),
    )


def order_nodes_down(cluster: ClusterSpec, active_controller_id: int | None) -> tuple[NodeStep, ...]:
    """Return the node order: brokers, then controllers (combined nodes included), the active controller last; else by
    id.

    The controllers keep the newer release while a broker runs it. A controller serves older brokers; it need not serve
    newer ones.
    """
    order = node_order(cluster, active_controller_id)
    return tuple(node_step for section in (BROKERS, CONTROLLERS) for node_step in order if node_step.section == section)


def plan_downgrade_steps(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, target: Release, *, together: bool
) -> tuple[ReleaseStep, ...]:
    """Return the release steps with their node order."""
    active = state.quorum.leader_id if state.quorum else None
    order = order_nodes_down(cluster, active)
    ways = plan_steps_down(catalogue, highest_running(cluster, state), target, together=together)
    return tuple(ReleaseStep(from_release=a, to_release=b, reason=reason, order=order) for a, b, reason in ways)
