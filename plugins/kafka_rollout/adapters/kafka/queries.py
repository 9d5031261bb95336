"""Requests that more than one module sends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

LATEST, EARLIEST = -1, -2  # special timestamps of ListOffsets
READ_UNCOMMITTED = 0


class ResourceType(IntEnum):
    """org.apache.kafka.common.config.ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


def all_topics() -> Any:
    """Metadata of all topics."""
    return MetadataRequest(topics=None, allow_auto_topic_creation=False)


def describe_configs(resources: Iterable[tuple[int, str]], keys: Sequence[str] | None = None) -> Any:
    """DescribeConfigs of resources (type, name). `keys`: names of the settings; None: all."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(
        resources=[
            resource(resource_type=int(kind), resource_name=name, configuration_keys=keys) for kind, name in resources
        ],
        include_synonyms=False,
        include_documentation=False,
    )


def list_offsets(topics: Mapping[str, Sequence[int]], timestamp: int) -> Any:
    """ListOffsets of partitions (topic → numbers) at LATEST or EARLIEST."""
    kind = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=READ_UNCOMMITTED,
        topics=[
            kind(
                name=topic,
                partitions=[
                    kind.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=timestamp)
                    for number in numbers
                ],
            )
            for topic, numbers in topics.items()
        ],
        min_version=2,
        max_version=7,
    )
