"""Messages that kafka-python lacks, from Kafka's own definitions (kafka-clients 4.3.1, common/message/*.json).

ShareGroupDescribe also has version 0, the only one of 4.0 (KIP-932's preview).
"""

from __future__ import annotations

import sys

from kafka.protocol.api_message import ApiMessage

# kafka-python reads a message's definition from the folder of the module it is given.
_HERE = sys.modules[__name__]


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_HERE):  # type: ignore[misc,call-arg]
    """KIP-848."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_HERE):  # type: ignore[misc,call-arg]
    """KIP-848."""


class ShareGroupDescribeRequest(ApiMessage, load_json=_HERE):  # type: ignore[misc,call-arg]
    """KIP-932."""


class ShareGroupDescribeResponse(ApiMessage, load_json=_HERE):  # type: ignore[misc,call-arg]
    """KIP-932."""


class UnregisterBrokerRequest(ApiMessage, load_json=_HERE):  # type: ignore[misc,call-arg]
    """KIP-631."""


class UnregisterBrokerResponse(ApiMessage, load_json=_HERE):  # type: ignore[misc,call-arg]
    """KIP-631."""


class StreamsGroupDescribeRequest(ApiMessage, load_json=_HERE):  # type: ignore[misc,call-arg]
    """KIP-1071."""


class StreamsGroupDescribeResponse(ApiMessage, load_json=_HERE):  # type: ignore[misc,call-arg]
    """KIP-1071."""


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=_HERE):  # type: ignore[misc,call-arg]
    """KIP-932."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=_HERE):  # type: ignore[misc,call-arg]
    """KIP-932."""
