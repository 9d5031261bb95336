"""The effective min.insync.replicas of topics, kept between queries by topic id."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from uuid import UUID

from kafka_rollout.kafka.client.requests import (
    ClusterConnections,
    ResourceType,
    Target,
    describe_configs,
    error_name,
    raise_for_error,
)
from kafka_rollout.kafka.client.topic_metadata import TopicMetadata

_MIN_ISR = "min.insync.replicas"
_AT_ONCE = 2_000  # topics in one request: a broker builds all settings of each before it chooses one


class MinIsrValues:
    """Values of one process. A topic that was created again has another id, so it is queried."""

    def __init__(self, nodes: ClusterConnections, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._nodes, self._monotonic = nodes, monotonic
        self._known: dict[UUID, tuple[int, float]] = {}  # topic id → value, time of the query

    def of(self, topics: Mapping[str, TopicMetadata], target: Target, *, age_s: float) -> dict[str, int]:
        """Return name → value, none of them older than `age_s`; a topic that was just deleted is left out.

        `topics`: name → metadata as `target` reported it. Another broker may not know a new topic yet.
        """
        now = self._monotonic()
        kept = {
            name: known[0]
            for name, topic in topics.items()
            if (known := self._known.get(topic.topic_id)) is not None and now - known[1] < age_s
        }
        missing = sorted(topics.keys() - kept.keys())
        read: dict[str, int] = {}
        for begin in range(0, len(missing), _AT_ONCE):
            read |= self._read(missing[begin : begin + _AT_ONCE], target)
        # Only topics that still exist: ids of deleted ones are never reported again.
        if missing:
            self._known = {
                topics[name].topic_id: (value, now) if name in read else self._known[topics[name].topic_id]
                for name, value in (kept | read).items()
            }
        return kept | read

    def _read(self, names: list[str], target: Target) -> dict[str, int]:
        request = describe_configs([(ResourceType.TOPIC, name) for name in names], [_MIN_ISR])
        values: dict[str, int] = {}
        for result in self._nodes.ask(target, request).results:
            if error_name(result.error_code) == "UNKNOWN_TOPIC_OR_PARTITION":
                continue
            raise_for_error(
                result.error_code,
                what=f"DescribeConfigs of topic {result.resource_name}",
                who=target.who,
                right="DESCRIBE_CONFIGS on TOPIC",
                message=result.error_message,
            )
            values[result.resource_name] = next(int(c.value) for c in result.configs if c.name == _MIN_ISR)
        return values
