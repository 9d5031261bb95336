"""The facts of a live downgrade that its approval shows."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.metadata_log.outage import UNAVAILABLE, AbsenceEstimate, absence_estimate
from kafka_rollout.model.plan import Plan
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.steps.common.approval import shown_once
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.offline.outage import log_sizes

FACTS = "live/facts.json"


def estimate_absence(ports: ClusterPorts, plan: Plan) -> AbsenceEstimate:
    """Estimate the time without an active controller from the controllers' metadata logs."""
    return absence_estimate(log_sizes(ports, ports.cluster.controllers))


def live_facts(ports: ClusterPorts, plan: Plan) -> Sequence[str]:
    """Compute the facts from the current state of the controllers."""
    change = next(c for c in plan.snapshot_changes if c.feature == METADATA_VERSION)
    return (
        estimate_absence(ports, plan).sentence,
        *UNAVAILABLE,
        "The controllers are killed (SIGKILL): in an ordinary stop, the active one waits for a new leader, which the "
        "stopped controllers cannot elect. Every committed record is on the disks of a majority.",
        "If this fails before the controllers have a leader at the new level, the run starts them on their old logs.",
        f"After that, kafka_features can raise metadata.version to {change.current} again while every node runs "
        f"{plan.source}. Lost metadata is not restored.",
        "Each controller's metadata log and bootstrap.checkpoint are copied to "
        "__cluster_metadata-0/kafka-rollout-install-<snapshot> in its metadata.log.dir first. Remove that folder when "
        "you no longer need it.",
    )


def shown_live_facts(ports: ClusterPorts, plan: Plan) -> Sequence[str]:
    """Return the facts as the approval shows them."""
    return tuple(shown_once(ports, plan, FACTS, lambda: {"lines": list(live_facts(ports, plan))})["lines"])
