"""kafka-python's assignors with the metadata that members of other clients need.

Leaders of Java and librdkafka accept a claim of owned partitions only with its generation: a field of the subscription
from version 2 on, the assignor's user data before. kafka-python sends neither.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from kafka.coordinator.assignors import cooperative_sticky
from kafka.coordinator.assignors.abstract import RebalanceProtocol as KafkaProtocol
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription
from kafka.structs import TopicPartition

_GENERATION = struct.Struct(">i")  # CooperativeStickyAssignor.COOPERATIVE_STICKY_ASSIGNOR_USER_DATA_V0


class CooperativeStickyAssignor(cooperative_sticky.CooperativeStickyAssignor):  # type: ignore[misc]
    """Cooperative and eager as in Java, so that a consumer can use it together with an eager assignor."""

    version = 2

    def supported_protocols(self) -> list[KafkaProtocol]:
        return [KafkaProtocol.COOPERATIVE, KafkaProtocol.EAGER]

    def claim(self, owned: Iterable[TopicPartition], generation: int) -> None:
        """Set the owned partitions for the next subscription, independent of the assignor that was selected last."""
        self.member_assignment = sorted(owned)
        self.generation = generation

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        base = super().metadata(topics)
        return ConsumerProtocolSubscription(
            version=self.version,
            topics=base.topics,
            user_data=_GENERATION.pack(self.generation),
            owned_partitions=base.owned_partitions,
            generation_id=self.generation,
        )

    @classmethod
    def parse_member_metadata(cls, metadata: ConsumerProtocolSubscription) -> Any:
        parsed = super().parse_member_metadata(metadata)
        if parsed.generation < 0 and len(metadata.user_data or b"") == _GENERATION.size:  # Java before 3.2
            parsed = parsed._replace(generation=_GENERATION.unpack(metadata.user_data)[0])
        return parsed


class RangeAssignor(RangePartitionAssignor):  # type: ignore[misc]
    """kafka-python's loses members if static and dynamic ones alternate; this class sorts them first."""

    @classmethod
    def assign(cls, cluster: Any, members: Sequence[Any]) -> Any:
        return super().assign(cluster, sorted(members, key=lambda member: member.group_instance_id is None))


BY_NAME = {assignor.name: assignor for assignor in (CooperativeStickyAssignor, RangeAssignor)}
