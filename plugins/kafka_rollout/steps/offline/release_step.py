"""The release step of an offline plan, and the nodes that it started."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_rollout.domain.model.errors import RefusedError
from kafka_rollout.domain.model.plan import Plan, ReleaseStep


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedNodes:
    """The nodes that run the target now. `acted`: those that this call started."""

    node_ids: tuple[int, ...]
    acted: tuple[int, ...]


def offline_release_step(plan: Plan) -> ReleaseStep:
    """Return the only release step of an offline plan. Raises RefusedError for another plan."""
    if not plan.offline or len(plan.release_steps) != 1:
        raise RefusedError(
            f"The plan of cluster {plan.cluster} is not an offline downgrade.",
            remedy=("Start a downgrade with the action offline where Kafka refuses."),
        )
    return plan.release_steps[0]
