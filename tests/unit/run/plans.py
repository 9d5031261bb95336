"""Plans of two release steps, without a cluster."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.model.plan import Batch, Direction, NodeStep, Plan, ReleaseStep
from kafka_rollout.releases.facts import Release


def _step(source: str, target: str, ids: Sequence[int], batches: Sequence[Sequence[int]] = ()) -> ReleaseStep:
    return ReleaseStep(
        from_release=Release.parse(source),
        to_release=Release.parse(target),
        reason="why",
        order=tuple(NodeStep(node_id=one, name=f"node-{one}", section="brokers") for one in ids),
        batches=tuple(Batch(node_ids=tuple(ids), ends="why") for ids in batches),
    )


def two_steps(via: Sequence[int], target: Sequence[int], *, batches: Sequence[Sequence[int]] = ()) -> Plan:
    """From 3.4.0 through 3.4.1 to 4.3.1, with these nodes. `batches`: of the first release step."""
    steps = (_step("3.4.0", "3.4.1", via, batches), _step("3.4.1", "4.3.1", target))
    return Plan(
        cluster="fake",
        cluster_id="id",
        direction=Direction.UPGRADE,
        source=Release.parse("3.4.0"),
        target=Release.parse("4.3.1"),
        release_steps=tuple(step for step in steps if step.order),
        feature_changes=(),
        config_changes=(),
        findings=(),
    )
