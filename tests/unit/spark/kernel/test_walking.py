"""Programs made of layouts take, refuse and find what formats.messages.decode takes, refuses and finds."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_rollout.formats.coordinator_records import decode_checked, is_bad_subscription
from kafka_rollout.formats.layouts import Layout
from kafka_rollout.formats.messages import MessageFormatError, decode, encode
from kafka_rollout.releases.facts import Release
from kafka_rollout_spark.kernel import walking
from kafka_rollout_spark.kernel.programs import LayoutUse, LogPrograms, RecordUse, write_programs
from kafka_rollout_spark.kernel.walking import FAILED, MARKS, TAGS_AT_ONCE, TAGS_SEEN, walk
from tests.definitions import schema
from tests.examples import examples
from tests.unit.formats.message_strategies import distinct_layouts, layouts_with_rules, values

LAYOUTS = [pytest.param(layout, id=name) for name, layout in (*distinct_layouts(), *layouts_with_rules())]
KEY = schema("4.3.1", "GroupMetadataKey").layout(0)

Walked = tuple[int, list[tuple[str, int]]]


def layout_with_rules(message: str) -> Layout:
    """The layout of a message and version (`GroupMetadataValue-v3`) in the newest release that has rules for it."""
    return next(layout for name, layout in layouts_with_rules() if name.startswith(f"{message}-"))


@cache
def programs_of(layout: Layout) -> LogPrograms:
    use = LayoutUse(layout=layout, releases=(Release(4, 3, 1),))
    keys = (LayoutUse(layout=KEY, releases=use.releases),)
    record = RecordUse(topic="log", key_version=2, name="Some", keys=keys, values={0: (use,)}, state=False)
    return write_programs([record], ())


def walked(layout: Layout, raw: bytes, skip: int = 0) -> Walked:
    log = programs_of(layout)
    programs, paths = log.programs, log.paths
    data, marks = np.frombuffer(raw or b"\0", dtype=np.uint8), np.zeros(MARKS, dtype=np.int64)
    seen = np.zeros((TAGS_AT_ONCE, 2), dtype=np.int64)
    at, start = data.ctypes.data, programs.starts[programs.values[2, 0, 0]]
    steps, tags, marked, noted = (table.ctypes.data for table in (programs.steps, programs.tags, marks, seen))
    end = walk(steps, tags, start, at, at + len(raw), marked, noted, skip)
    if end == FAILED:
        return FAILED, []
    count = min(max(int(marks[TAGS_SEEN]) - skip, 0), TAGS_AT_ONCE)
    return end - at, [(paths[path], tag) for path, tag in seen[:count].tolist()]


def decoded(layout: Layout, raw: bytes) -> Walked:
    try:
        found = decode_checked(layout, raw)
    except MessageFormatError:
        return FAILED, []
    return found.end, [(tag.path, tag.tag) for tag in found.tags][:TAGS_AT_ONCE]


@pytest.mark.parametrize("layout", LAYOUTS)
@given(data=st.data())
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_programs_walk_as_wire_decodes(layout: Layout, data: st.DataObject) -> None:
    written = bytearray(encode(layout, data.draw(values(layout))))
    assert walked(layout, bytes(written)) == decoded(layout, bytes(written))
    if written:
        for _ in range(data.draw(st.integers(1, 3))):
            written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(written)))
    for raw in (bytes(written), bytes(written[:cut]), data.draw(st.binary(max_size=100))):
        assert walked(layout, raw) == decoded(layout, raw)


@given(raw=st.binary(max_size=60))
@settings(max_examples=examples(2000), deadline=None)
def test_any_bytes_walk_as_wire_decodes_them(raw: bytes) -> None:
    for name in ("StreamsGroupMetadataValue", "TransactionLogValue", "ConsumerGroupMemberMetadataValue"):
        one = schema("4.3.1", name)
        layout = one.layout(one.valid_versions.max)
        assert walked(layout, raw) == decoded(layout, raw)


def test_more_tags_than_fit_at_once_are_found_in_turns() -> None:
    layout = schema("4.3.1", "ConsumerGroupMetadataValue").layout(0)
    count = 3 * TAGS_AT_ONCE + 5
    many = b"".join(bytes([0x80 | tag & 0x7F, 1 + (tag >> 7)]) + b"\x00" for tag in range(count))
    raw = bytes(4) + bytes([0x80 | count & 0x7F, count >> 7]) + many
    expected = [("", tag.tag) for tag in decode(layout, raw).tags]
    found = [tag for skip in range(0, count, TAGS_AT_ONCE) for tag in walked(layout, raw, skip)[1]]
    assert len(found) == count
    assert found == expected


some_lengths = st.sampled_from(
    [b"\0", b"\0\0", b"\0\1", b"\0\0\0\1", b"\xff\xff", b"\xff\xff\xff\xff", b"\x7f\xff", b"t"]
)


@given(raw=st.lists(some_lengths, max_size=8).map(b"".join) | st.binary(max_size=40))
@settings(max_examples=examples(2000), deadline=None)
def test_subscriptions_are_read_alike(raw: bytes) -> None:
    data = np.frombuffer(raw or b"\0", dtype=np.uint8)
    at = data.ctypes.data
    assert walking.is_bad_subscription(at, at + len(raw)) == is_bad_subscription(raw)


def test_a_subscription_is_read_of_consumers_that_have_chosen_a_protocol_only() -> None:
    layout = layout_with_rules("GroupMetadataValue-v3")
    bad = {"memberId": "m", "clientId": "c", "clientHost": "h", "subscription": b"\0\0\xff\xff\xff\xff"}
    group = {"protocolType": "consumer", "protocol": "range", "leader": "m", "members": [bad]}
    expected = {"consumer": True, "consumes": False, "connect": False}
    for protocol_type, is_refused in expected.items():
        raw = encode(layout, {**group, "protocolType": protocol_type})
        assert (walked(layout, raw) == decoded(layout, raw) == (FAILED, [])) == is_refused
    raw = encode(layout, {**group, "protocol": None})
    assert walked(layout, raw) == decoded(layout, raw) == (len(raw), [])


def test_of_a_tagged_field_that_stands_twice_the_last_is_checked() -> None:
    layout = layout_with_rules("TransactionLogValue-v1")
    plain = encode(layout, {"transactionPartitions": []})[:-1]
    known, unknown = b"\2\2\0\2", b"\2\2\0\x09"
    for tags, is_refused in ((known + unknown, True), (unknown + known, False)):
        raw = plain + b"\2" + tags
        assert (walked(layout, raw)[0] == FAILED) == (decoded(layout, raw)[0] == FAILED) == is_refused


@pytest.mark.parametrize("status", [-128, -1, 0, 1, 7, 8, 127])
def test_a_transaction_s_status_and_the_partitions_that_it_needs(status: int) -> None:
    for version in (0, 1):
        layout = layout_with_rules(f"TransactionLogValue-v{version}")
        for partitions in ([], None):
            raw = encode(layout, {"transactionStatus": status, "transactionPartitions": partitions})
            takes = 0 <= status <= 7 and (status == 0 or partitions is not None)
            assert walked(layout, raw) == decoded(layout, raw)
            assert (walked(layout, raw)[0] != FAILED) == takes
