"""What the active controller reports while controllers stop and start: each question of these steps to the quorum.

A controller that was just started refuses even right credentials, because it has no SCRAM credentials and no ACLs until
it knows the high watermark (MetadataLoader). So an error is an answer here: it says why nothing is known yet, and the
caller repeats the question or decides without it. Nothing of the tool is raised, because nobody else starts controllers
that a step has stopped.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.model.state import NodeFeatures
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ReadPorts
from kafka_rollout.releases.facts import METADATA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveController:
    """The active controller, as far as it is known."""

    node: NodeSpec | None = None
    features: NodeFeatures | None = None
    """None if they were not asked for, or not reported."""
    lacks: str = ""
    """Why something is unknown, as a sentence."""

    @property
    def level(self) -> int | None:
        """The finalized metadata.version that it reports; None if that is unknown."""
        return None if self.features is None else self.features.finalized.get(METADATA_VERSION)


def find_active(ports: ReadPorts, *, through_brokers: bool = False) -> ActiveController:
    """Return the active controller without its features. `through_brokers`: also one that only brokers reach."""
    try:
        leader = ports.admin.quorum(through_brokers=through_brokers).leader_id
        if leader < 0:
            return ActiveController(lacks="the quorum has no leader.")
        return ActiveController(node=ports.cluster.node(leader))
    except RolloutError as error:
        return ActiveController(lacks=error.sentence)


def ask_active(ports: ReadPorts) -> ActiveController:
    """Return the active controller with its features. It has replayed everything that is finalized; a follower can be
    slightly behind."""
    found = find_active(ports)
    if found.node is None:
        return found
    try:
        return ActiveController(node=found.node, features=ports.admin.features(found.node))
    except RolloutError as error:
        return ActiveController(node=found.node, lacks=error.sentence)
