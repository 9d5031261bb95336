"""Messages survive writing and reading; no bytes make the reader misbehave; it reads what Kafka's readers read."""

from __future__ import annotations

import pickle
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_rollout.formats.layouts import ZERO_UUID, Layout
from kafka_rollout.formats.messages import UNKNOWN_TAGS, MessageFormatError, SeenTag, decode, default_of, encode
from tests.definitions import schema
from tests.examples import examples
from tests.unit.formats.message_strategies import distinct_layouts, values

LAYOUTS = [pytest.param(layout, id=name) for name, layout in distinct_layouts()]
COMMIT_3 = schema("4.3.1", "OffsetCommitValue").layout(3)
COMMIT_4 = schema("4.3.1", "OffsetCommitValue").layout(4)
OLD_COMMIT_4 = schema("3.4.1", "OffsetCommitValue").layout(4)
TRANSACTION_1 = schema("4.3.1", "TransactionLogValue").layout(1)
MEMBER = schema("4.3.1", "ConsumerGroupMemberMetadataValue").layout(0)
STREAMS_MEMBER = schema("4.3.1", "StreamsGroupMemberMetadataValue").layout(0)
STREAMS = schema("4.3.1", "StreamsGroupMetadataValue").layout(0)

COMMIT = {"offset": 7, "leaderEpoch": -1, "metadata": "m", "commitTimestamp": 9}
COMMIT_BYTES = bytes(7) + b"\x07" + b"\xff" * 4 + b"\x02m" + bytes(7) + b"\x09"

few = settings(max_examples=examples(12), suppress_health_check=[HealthCheck.too_slow])


def pieces(layout: Layout, message: dict[str, Any]) -> int:
    """How many tagged fields of the message itself a writer has to write."""
    set_tags = [field for field in layout.struct.tagged.values() if message[field.name] != default_of(field)]
    return len(set_tags) + len(message.get(UNKNOWN_TAGS, ()))


@pytest.mark.parametrize("layout", LAYOUTS)
@given(data=st.data())
@few
def test_what_was_written_is_read_in_every_definition_and_version(layout: Layout, data: st.DataObject) -> None:
    message, before = data.draw(values(layout)), data.draw(st.binary(max_size=3))
    written = encode(layout, message)
    found = decode(layout, before + written + b"behind", at=len(before))
    assert found.value == message
    assert found.end == len(before) + len(written)
    assert sum(tag.path == "" for tag in found.tags) == pieces(layout, message)
    assert encode(layout, found.value) == written


@pytest.mark.parametrize("layout", LAYOUTS)
@given(data=st.data())
@few
def test_no_bytes_raise_anything_but_the_readers_own_error(layout: Layout, data: st.DataObject) -> None:
    written = bytearray(encode(layout, data.draw(values(layout))))
    if written:
        for _ in range(data.draw(st.integers(0, 3))):
            written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(written)))
    for raw in (bytes(written), bytes(written[:cut]), data.draw(st.binary(max_size=100))):
        try:
            found = decode(layout, raw)
        except MessageFormatError:
            continue
        assert found.end <= len(raw)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_and_time_are_bounded_by_the_bytes_there_are(layout: Layout) -> None:
    for filler in (b"\x00", b"\x01", b"\x02", b"\x7f", b"\xff", b"\x00\x01", b"\x00\x00\x00\x02"):
        raw = filler * (4000 // len(filler))
        tracemalloc.start()
        began = time.process_time()  # a busy machine takes longer, but not more CPU time
        try:
            decode(layout, raw)
        except MessageFormatError:
            pass
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 300 * len(raw)
        assert time.process_time() - began < 20


def test_bytes_of_a_known_message_are_read_field_by_field() -> None:
    assert decode(COMMIT_4, COMMIT_BYTES + b"\x00").value == {**COMMIT, "topicId": ZERO_UUID}
    assert encode(COMMIT_4, {**COMMIT, "topicId": ZERO_UUID}) == COMMIT_BYTES + b"\x00"


def test_a_tag_that_the_definition_does_not_have_is_kept_and_told() -> None:
    raw = COMMIT_BYTES + b"\x01\x00\x10" + bytes(range(16))
    new, old = decode(COMMIT_4, raw), decode(OLD_COMMIT_4, raw)
    assert new.value["topicId"] == "AAECAwQFBgcICQoLDA0ODw"
    assert new.tags == (SeenTag(path="", tag=0, size=16, known=True),)
    assert old.value[UNKNOWN_TAGS] == [(0, bytes(range(16)))]
    assert old.tags == (SeenTag(path="", tag=0, size=16, known=False),)
    assert encode(OLD_COMMIT_4, old.value) == encode(COMMIT_4, new.value) == raw


def test_tags_within_the_structs_of_an_array_have_a_path() -> None:
    member = {"memberId": "m", "groupInstanceId": None, "clientId": "c", "clientHost": "h", "rebalanceTimeout": 1}
    member |= {"sessionTimeout": 2, "subscription": b"", "assignment": b"", UNKNOWN_TAGS: [(5, b"xyz")]}
    group = schema("4.3.1", "GroupMetadataValue").layout(4)
    message = {"protocolType": "consumer", "generation": 1, "protocol": None, "leader": None, "members": [member]}
    found = decode(group, encode(group, message))
    assert found.tags == (SeenTag(path="members[]", tag=5, size=3, known=False),)


def test_the_declared_size_of_a_known_tag_is_not_believed_as_kafka_does_not_either() -> None:
    found = decode(COMMIT_4, COMMIT_BYTES + b"\x01\x00\x63" + bytes(range(16)))
    assert found.value["topicId"] == "AAECAwQFBgcICQoLDA0ODw"


def test_of_two_fields_with_one_tag_the_last_wins() -> None:
    raw = COMMIT_BYTES + b"\x02" + b"\x00\x10" + bytes(16) + b"\x00\x10" + bytes(range(16))
    assert decode(COMMIT_4, raw).value["topicId"] == "AAECAwQFBgcICQoLDA0ODw"


def test_a_negative_count_of_tagged_fields_is_none_at_all_as_javas_loop_has_it() -> None:
    found = decode(COMMIT_4, COMMIT_BYTES + b"\xff\xff\xff\xff\x0f")
    assert (found.tags, found.end) == ((), len(COMMIT_BYTES) + 5)


def test_a_nullable_struct_has_a_marker_of_its_own_kind_when_it_is_tagged() -> None:
    member = {"instanceId": None, "rackId": None, "clientId": "", "clientHost": "", "subscribedTopicNames": []}
    member |= {"subscribedTopicRegex": None, "rebalanceTimeoutMs": 0, "serverAssignor": None}
    head = encode(MEMBER, member)[:-1]
    without = decode(MEMBER, head + b"\x00").value["classicMemberMetadata"]
    assert without == {"sessionTimeoutMs": 0, "supportedProtocols": []}
    null = encode(MEMBER, {**member, "classicMemberMetadata": None})
    assert null == head + b"\x01" + b"\x00\x01\x00"
    assert decode(MEMBER, null).value["classicMemberMetadata"] is None
    classic = encode(MEMBER, {**member, "classicMemberMetadata": {"sessionTimeoutMs": 5, "supportedProtocols": []}})
    assert classic == head + b"\x01" + b"\x00\x07\x01" + b"\x00\x00\x00\x05\x01\x00"
    endpoint = {"topologyEpoch": 0, "userEndpoint": None}
    assert b"\xff" in encode(STREAMS_MEMBER, endpoint)
    assert decode(STREAMS_MEMBER, encode(STREAMS_MEMBER, endpoint)).value["userEndpoint"] is None


def test_a_null_that_is_not_the_default_of_a_tagged_field_is_written() -> None:
    held = {"epoch": 1, "metadataHash": 2, "validatedTopologyEpoch": -1, "lastAssignmentConfigs": None}
    assert encode(STREAMS, held)[-4:] == b"\x01\x01\x01\x00"
    assert decode(STREAMS, encode(STREAMS, held)).value == held


def test_bytes_that_are_no_utf_8_are_replaced_not_refused_as_java_does() -> None:
    raw = bytes(8) + b"\xff" * 4 + b"\x03\xff\xfe" + bytes(8) + b"\x00"
    assert decode(COMMIT_4, raw).value["metadata"] == "\ufffd\ufffd"


@pytest.mark.parametrize(
    ("layout", "raw", "reason"),
    [
        (COMMIT_3, b"", "it ends within field offset"),
        (COMMIT_3, bytes(12) + b"\xff\xff", "non-nullable field metadata was serialized as null"),
        (COMMIT_3, bytes(12) + b"\x00\x05ab", "it ends within field metadata: 5 bytes are announced and 2 remain"),
        (COMMIT_4, bytes(12) + b"\x81\x80\x04", "string field metadata had invalid length 65536"),
        (COMMIT_4, bytes(12) + b"\x80\x80\x80\x80\x80\x00", "Varint is too long in metadata"),
        (COMMIT_4, COMMIT_BYTES, "it ends within its tagged fields"),
        (COMMIT_4, COMMIT_BYTES + b"\x01\x00\x10", "it ends within field topicId"),
        (OLD_COMMIT_4, COMMIT_BYTES + b"\x01\x07\x10abc", "it ends within tag 7 of it"),
        (OLD_COMMIT_4, COMMIT_BYTES + b"\x01\x07\xff\xff\xff\xff\x0f", "it ends within tag 7 of it: -1 bytes"),
        (
            TRANSACTION_1,
            bytes(15) + b"\x7f\x00",
            "Tried to allocate a collection of size 126 for field transactionPartitions, but there are only 1 bytes",
        ),
        (TRANSACTION_1, bytes(15) + b"\x02\x00xx", r"non-nullable field transactionPartitions\[\].topic was"),
    ],
)
def test_what_does_not_parse_says_where_and_why(layout: Layout, raw: bytes, reason: str) -> None:
    with pytest.raises(MessageFormatError, match=reason):
        decode(layout, raw)


@pytest.mark.parametrize(
    ("layout", "message", "reason"),
    [
        (COMMIT_3, {**COMMIT, "metadata": None}, "field metadata is null"),
        (COMMIT_3, {**COMMIT, "metadata": "x" * 0x8000}, "field metadata is too long"),
        (COMMIT_3, {**COMMIT, "metadata": 5}, "field metadata cannot be 5"),
        (COMMIT_3, {**COMMIT, "metadata": "\ud800"}, "field metadata cannot be"),
        (COMMIT_3, {**COMMIT, "offset": 1 << 63}, "field offset cannot be 9223372036854775808"),
        (COMMIT_3, {**COMMIT, "topicId": ZERO_UUID}, "the message has no field topicId"),
        (COMMIT_3, {**COMMIT, UNKNOWN_TAGS: [(0, b"")]}, "tagged fields were set, and this version does not have them"),
        (COMMIT_4, {**COMMIT, "topicId": "short"}, "field topicId cannot be 'short'"),
        (COMMIT_4, {**COMMIT, UNKNOWN_TAGS: [(0, b"")]}, "tag 0 of the message is out of order or was set twice"),
        (
            COMMIT_4,
            {**COMMIT, UNKNOWN_TAGS: [(3, b""), (3, b"")]},
            "tag 3 of the message is out of order or was set twice",
        ),
        (TRANSACTION_1, {"transactionPartitions": 5}, "field transactionPartitions cannot be 5"),
        (TRANSACTION_1, {"transactionPartitions": [None]}, "field transactionPartitions cannot be"),
    ],
)
def test_what_a_layout_cannot_say_is_refused(layout: Layout, message: dict[str, Any], reason: str) -> None:
    with pytest.raises(MessageFormatError, match=f"version {layout.version} cannot be written: {reason}"):
        encode(layout, message)


def test_the_error_survives_pickling_as_spark_does_it() -> None:
    with pytest.raises(MessageFormatError) as caught:
        decode(COMMIT_3, b"")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301
