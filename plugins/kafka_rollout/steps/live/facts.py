"""The facts of a live downgrade that its approval shows."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.model.releases import METADATA_VERSION
from kafka_rollout.domain.offline.absence import UNAVAILABLE, absence_estimate
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.directories import metadata_directory
from kafka_rollout.steps.live.actions import STOP_S

FACTS = "live/facts.json"


def live_facts(ports: ClusterPorts, plan: Plan) -> Sequence[str]:
    """Compute the facts from the controllers' metadata logs."""
    sizes = []
    for node in ports.cluster.controllers:
        try:
            sizes.append(ports.metadata_logs.log_bytes(metadata_directory(ports, node), cluster_id=plan.cluster_id))
        except UserError:
            continue  # a controller without a readable log; the choice of the log reports it
    change = next(c for c in plan.snapshot_changes if c.feature == METADATA_VERSION)
    return (
        absence_estimate(sizes, stop_s=STOP_S).sentence,
        *UNAVAILABLE,
        f"A controller that has not stopped after {STOP_S:.0f} s is killed. Its log is replaced, without a recovery.",
        "If this fails before the controllers have a leader at the new level, the run starts them on their old logs.",
        f"After that, kafka_features can raise metadata.version to {change.current} again while every node runs "
        f"{plan.source}. Lost metadata is not restored.",
        "Each controller's metadata log and bootstrap.checkpoint are copied to "
        "__cluster_metadata-0/kafka-rollout-install-<snapshot> in its metadata.log.dir first. Remove that folder when "
        "you no longer need it.",
    )


def shown_live_facts(ports: ClusterPorts, plan: Plan) -> Sequence[str]:
    """Return the facts as the approval shows them: computed once, so that a repeated request has the same text."""
    kept = ports.run.attachment(FACTS)
    if kept is None or kept["plan"] != plan.hash:
        kept = {"plan": plan.hash, "lines": list(live_facts(ports, plan))}
        ports.run.attach(FACTS, kept)
    return tuple(kept["lines"])
