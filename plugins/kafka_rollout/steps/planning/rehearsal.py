"""The releases of a change that is rehearsed."""

from __future__ import annotations

from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.plan import Direction
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.planning.release_path import plan_release_steps, plan_steps_down, source_release
from kafka_rollout.steps.common.cluster_ports import ClusterPorts, observe


def planned_releases(ports: ClusterPorts, target: Release) -> tuple[Direction, tuple[Release, ...]]:
    """Return the direction and the releases of all release steps, the source first.

    Raises UserError if the nodes run different releases: a copy starts on one release.
    """
    state = observe(ports)
    source = source_release(ports.cluster, state)
    if len(state.releases) > 1:
        raise UserError(
            f"The nodes of {ports.cluster.name} run different releases: "
            f"{', '.join(str(release) for release in sorted(state.releases))}.",
            remedy="Finish the change that was interrupted. A copy starts on one release.",
        )
    if target < source:
        steps = plan_steps_down(ports.catalogue, source, target)
        return Direction.DOWNGRADE, (source, *(to for _, to, _ in steps))
    return Direction.UPGRADE, (source, *(to for _, to, _ in plan_release_steps(ports.catalogue, source, target)))
