"""A consumer for kafka-python that changes between eager and cooperative rebalancing by itself (KAFKA-12477)."""

from dynamic_protocol_consumer.consumer import DynamicProtocolConsumer
from dynamic_protocol_consumer.protocols import RebalanceProtocol

__all__ = ["DynamicProtocolConsumer", "RebalanceProtocol"]
