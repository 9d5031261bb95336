"""A plan of two release steps and two nodes."""

from __future__ import annotations

from kafka_rollout.base.findings import Finding
from kafka_rollout.model.plan import Direction, NodeStep, Plan, ReleaseStep
from kafka_rollout.releases.facts import Release

OLD, MIDDLE, NEW = Release(3, 4, 0), Release(3, 4, 1), Release(4, 3, 1)
ORDER = (
    NodeStep(node_id=101, name="controller-101", section="controllers"),
    NodeStep(node_id=1, name="broker-1", section="brokers"),
)


def plan(*findings: Finding) -> Plan:
    return Plan(
        cluster="demo",
        cluster_id="x",
        direction=Direction.UPGRADE,
        source=OLD,
        target=NEW,
        release_steps=(
            ReleaseStep(from_release=OLD, to_release=MIDDLE, reason="KIP-915", order=ORDER),
            ReleaseStep(from_release=MIDDLE, to_release=NEW, reason="target", order=ORDER),
        ),
        feature_changes=(),
        config_changes=(),
        findings=findings,
    )
