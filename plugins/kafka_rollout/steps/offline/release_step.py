"""The release step of an offline plan, and the nodes that it started."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_rollout.domain.model.errors import RefusedError
from kafka_rollout.domain.model.plan import Plan, ReleaseStep


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedNodes:
    """Nodes that run the target now; `acted` are those that this call started."""

    node_ids: tuple[int, ...]
    acted: tuple[int, ...]


def offline_release_step(plan: Plan) -> ReleaseStep:
    """The only release step of an offline plan; raises RefusedError for a plan that is none."""
    if not plan.offline or len(plan.release_steps) != 1:
        raise RefusedError(
            f"The plan of cluster {plan.cluster} is no offline downgrade.", remedy="Plan one where Kafka refuses."
        )
    return plan.release_steps[0]
