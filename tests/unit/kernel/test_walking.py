"""Programs made of layouts take, refuse and find what wire.messages.decode takes, refuses and finds."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_rollout.domain.releases import Release
from kafka_rollout.wire.layouts import Layout
from kafka_rollout.wire.messages import MessageFormatError, decode, encode
from kafka_rollout_spark.decoding_spec import DecodingSpec, LayoutUse, RecordUse
from kafka_rollout_spark.kernel.programs import Programs, write_programs
from kafka_rollout_spark.kernel.walking import FAILED, MARKS, TAGS_AT_ONCE, TAGS_SEEN, walk
from tests.unit.wire.message_strategies import distinct_layouts, schema, values

LAYOUTS = [pytest.param(layout, id=name) for name, layout in distinct_layouts()]
KEY = schema("4.3.1", "GroupMetadataKey").layout(0)

Walked = tuple[int, list[tuple[str, int]]]


@cache
def programs_of(layout: Layout) -> tuple[Programs, tuple[str, ...]]:
    use = LayoutUse(layout=layout, releases=(Release(4, 3, 1),))
    keys = (LayoutUse(layout=KEY, releases=use.releases),)
    record = RecordUse(topic="log", key_version=2, name="Some", keys=keys, values={0: (use,)}, state=False)
    return write_programs(DecodingSpec(records=(record,)), "log")


def walked(layout: Layout, raw: bytes, skip: int = 0) -> Walked:
    programs, paths = programs_of(layout)
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
        found = decode(layout, raw)
    except MessageFormatError:
        return FAILED, []
    return found.end, [(tag.path, tag.tag) for tag in found.tags][:TAGS_AT_ONCE]


@pytest.mark.parametrize("layout", LAYOUTS)
@given(data=st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
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
@settings(max_examples=2000, deadline=None)
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
