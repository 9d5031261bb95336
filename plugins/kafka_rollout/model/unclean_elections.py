"""For which topics controllers elect a leader that is not in sync (unclean.leader.election.enable)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_rollout.model.configs import DynamicConfigs, is_reference
from kafka_rollout.model.topology import ClusterSpec

ENABLE = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True, kw_only=True)
class UncleanElections:
    """The values of unclean.leader.election.enable.

    A topic without an own value has that of the active controller, which each controller can be: its own dynamic value,
    else that of all brokers, else that of its file (ConfigurationControlManager.uncleanLeaderElectionEnabledForTopic,
    KafkaConfigSchema.resolveEffectiveTopicConfig).
    """

    topics: Mapping[str, bool] = field(default_factory=dict)
    """Topics with an own value."""
    controllers: Mapping[int, bool | None] = field(default_factory=dict)
    """Controller → its value for the other topics; None if its file decides, and is unknown."""

    @property
    def default(self) -> bool | None:
        """The value of topics without an own one: true if one controller has it, None if one is unknown."""
        values = set(self.controllers.values())
        return True if True in values else None if None in values or not values else False

    def of(self, topic: str) -> bool | None:
        """Return whether controllers elect unclean leaders of the topic; None if that is unknown."""
        return self.topics.get(topic, self.default)


UNKNOWN_ELECTIONS = UncleanElections()
"""Nothing is known, so each topic can have an unclean leader."""


def unclean_elections(
    cluster: ClusterSpec, dynamic: DynamicConfigs, configs: Mapping[int, Mapping[str, str]]
) -> UncleanElections:
    """Return the values. `configs`: of the files by node; `dynamic.brokers` has the values of controllers too."""
    controllers: dict[int, bool | None] = {}
    for node in cluster.controllers:
        found = {**configs.get(node.node_id, {}), **dynamic.all_brokers, **dynamic.brokers.get(node.node_id, {})}
        is_known = ENABLE in found or node.node_id in configs
        value = found.get(ENABLE, "false")
        controllers[node.node_id] = _is_true(value) if is_known and not is_reference(value) else None
    topics = {topic: _is_true(own[ENABLE]) for topic, own in dynamic.topics.items() if ENABLE in own}
    return UncleanElections(topics=topics, controllers=controllers)


def _is_true(value: str) -> bool:
    return value.strip().lower() == "true"
