"""What an offline downgrade leaves in the run's record, and what a resumed one reads of it.

Remembered is only what cannot be seen afterwards: the voters as they were before the first stop, and which log was
chosen, for the chosen one is among those that are replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_rollout.domain.model.errors import RefusedError
from kafka_rollout.domain.model.plan import Plan, ReleaseStep
from kafka_rollout.domain.model.topology import NodeSpec
from kafka_rollout.steps.common.cluster_ports import ClusterPorts

STOPPING = "offline-stopping"
CHOSEN = "offline-chosen"
WRITTEN = "offline-snapshot"
INSTALLED = "offline-installed"
LEFT_BEHIND = "offline-left-behind"
NO_RETURN = "offline-no-return"
UNDOING = "offline-undoing"
PUT_BACK = "offline-put-back"
UNDONE = "offline-undone"
WRITABLE = "offline-writable"
SERVED = "offline-served"
LEFT_AS_IT_IS = "Left as it is"  # begins what is recorded as installed on a node without a log
SNAPSHOTS = "offline"  # folder of the run's private path


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Nodes that run the target now; `acted` are those that this call started."""

    node_ids: tuple[int, ...]
    acted: tuple[int, ...]


def offline_hop(plan: Plan) -> ReleaseStep:
    """The only release step of an offline plan; raises RefusedError for a plan that is none."""
    if not plan.offline or len(plan.release_steps) != 1:
        raise RefusedError(
            f"The plan of cluster {plan.cluster} is no offline downgrade.", remedy="Plan one where Kafka refuses."
        )
    return plan.release_steps[0]


def events_of_this_try(ports: ClusterPorts) -> Iterator[Mapping[str, Any]]:
    """Events since the last undo: what was done before it does not count any more."""
    events = ports.run.events()
    undone = [index for index, event in enumerate(events) if event.get("kind") == UNDONE]
    return iter(events[undone[-1] + 1 if undone else 0 :])


def last(ports: ClusterPorts, kind: str) -> Mapping[str, Any] | None:
    """The newest event of a kind since the last undo."""
    found = None
    for event in events_of_this_try(ports):
        if event.get("kind") == kind:
            found = event
    return found


def stop_has_begun(ports: ClusterPorts) -> bool:
    return last(ports, STOPPING) is not None


def lost_disk(ports: ClusterPorts, plan: Plan, node: NodeSpec) -> str:
    """What a person does about a node whose directory held no log when the snapshot was installed; empty for others."""
    if not installed_on(ports).get(node.node_id, "").startswith(LEFT_AS_IT_IS):
        return ""
    return (
        f"its metadata log was gone when the snapshot was installed: give it a new disk, format it on {plan.target} "
        f"(kafka-storage.sh format -t {plan.cluster_id} -c server.properties --ignore-formatted, in a dynamic quorum "
        "with --no-initial-controllers), and go on with this run, which starts it"
    )


def installed_on(ports: ClusterPorts) -> dict[int, str]:
    """Node id → what was done, of the nodes whose installation is recorded."""
    return {
        int(event["node_id"]): str(event["sentence"])
        for event in events_of_this_try(ports)
        if event.get("kind") == INSTALLED
    }
