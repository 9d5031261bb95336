"""The decoder of Metadata reads what kafka-python writes and reads, and refuses other bytes."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata import MetadataResponse

from kafka_rollout.client.requests import TOPICS_VERSION, decode_topics

_TOPIC = MetadataResponse.MetadataResponseTopic
_ID = st.integers(-1, 2**31 - 1)
_NODES = st.one_of(st.lists(_ID, max_size=4), st.lists(_ID, min_size=126, max_size=130))
_PARTITIONS = st.builds(
    _TOPIC.MetadataResponsePartition,
    error_code=st.integers(-1, 100),
    partition_index=_ID,
    leader_id=_ID,
    leader_epoch=_ID,
    replica_nodes=_NODES,
    isr_nodes=_NODES,
    offline_replicas=_NODES,
)
_TOPICS = st.builds(
    _TOPIC,
    error_code=st.integers(-1, 100),
    name=st.text(max_size=200),
    topic_id=st.uuids(),
    is_internal=st.booleans(),
    partitions=st.lists(_PARTITIONS, max_size=3),
)
_BROKERS = st.builds(
    MetadataResponse.MetadataResponseBroker, node_id=_ID, host=st.text(), port=_ID, rack=st.none() | st.text()
)


def _encoded(topics: list[Any], brokers: list[Any] | None = None) -> bytes:
    body: bytes = MetadataResponse(
        version=TOPICS_VERSION,
        throttle_time_ms=1,
        brokers=brokers or [],
        cluster_id="cluster",
        controller_id=1,
        topics=topics,
    ).encode()
    return body


@given(topics=st.lists(_TOPICS, max_size=4), brokers=st.lists(_BROKERS, max_size=3))
def test_it_reads_what_kafka_python_reads(topics: list[Any], brokers: list[Any]) -> None:
    encoded = _encoded(topics, brokers)
    expected = MetadataResponse[TOPICS_VERSION].decode(encoded).topics
    found = decode_topics(memoryview(encoded))
    assert [(one.error_code, one.name, one.topic_id) for one in found] == [
        (one.error_code, one.name, UUID(str(one.topic_id))) for one in expected
    ]
    for one, other in zip(found, expected, strict=True):
        assert sorted(one.partitions) == sorted(
            (p.partition_index, p.leader_id, tuple(p.replica_nodes), tuple(p.isr_nodes)) for p in other.partitions
        )


@given(topics=st.lists(_TOPICS, min_size=1, max_size=3), data=st.data())
def test_an_incomplete_response_is_no_response(topics: list[Any], data: st.DataObject) -> None:
    encoded = _encoded(topics)
    end = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises((ValueError, IndexError, struct.error)):
        decode_topics(memoryview(encoded[:end]))


def test_bytes_after_the_end_are_refused() -> None:
    topic = _TOPIC(error_code=0, name="a", topic_id=uuid4(), is_internal=False, partitions=[])
    with pytest.raises(ValueError, match="1 bytes are left"):
        decode_topics(memoryview(_encoded([topic]) + b"\x00"))


def test_a_length_of_many_bytes_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="more than five bytes"):
        decode_topics(memoryview(b"\xff" * 2_000))
