"""A consumer that changes between eager and cooperative rebalancing by itself (KAFKA-12477)."""

from __future__ import annotations

from typing import Any, ClassVar

from kafka import KafkaConsumer

from dynamic_protocol_consumer.assignors import BY_NAME
from dynamic_protocol_consumer.coordinator import DynamicCoordinator, check_kafka_python
from dynamic_protocol_consumer.protocols import COOPERATIVE_STICKY, RANGE, RebalanceProtocol


class DynamicProtocolConsumer(KafkaConsumer):  # type: ignore[misc]
    """kafka-python's KafkaConsumer; replace the class and bounce the members of the group once, in any order.

    `partition_assignment_strategy` takes names and classes. The differences to KafkaConsumer: a rebalance listener
    that is no coroutine runs in a thread of its own and may commit; in an eager rebalance positions come from the
    committed offsets, as Java's do; and poll() raises CommitFailedError after a rebalance in which offsets were not
    committed because their partitions might have been another member's already.

    Raises ValueError for an unknown assignor or for assignors without a common protocol, and RuntimeError for a version
    of kafka-python that this class does not support.
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = {
        **KafkaConsumer.DEFAULT_CONFIG,
        "partition_assignment_strategy": (COOPERATIVE_STICKY.name, RANGE.name),
    }

    def __init__(self, *topics: str, **configs: Any) -> None:
        check_kafka_python()
        strategy = configs.get("partition_assignment_strategy", self.DEFAULT_CONFIG["partition_assignment_strategy"])
        configs["partition_assignment_strategy"] = tuple(_assignor(given) for given in strategy)
        super().__init__(*topics, **configs)
        self._dynamic = DynamicCoordinator.take_over(self)

    @property
    def rebalance_protocol(self) -> RebalanceProtocol:
        """The protocol this member uses in its next rebalance."""
        return self._dynamic.member.protocol


def _assignor(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    if given not in BY_NAME:
        raise ValueError(f"Assignor {given} is unknown; use one of {', '.join(BY_NAME)}, or a class.")
    return BY_NAME[given]
