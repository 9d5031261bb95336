"""The kernel, which is fast, and `wire`, which is plain, say the same of all bytes."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.formats.codecs import crc32c
from kafka_rollout.formats.coordinator_records import KindCounts, classify, decode_checked
from kafka_rollout.formats.documents.definitions import load_schemas
from kafka_rollout.formats.layouts import Layout
from kafka_rollout.formats.log_types import Codec, LogFormatError
from kafka_rollout.formats.messages import Decoded, MessageFormatError
from kafka_rollout.formats.messages import encode as encode_message
from kafka_rollout.formats.record_batch import batches, payload, records
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout_spark.decode import worker_rows
from kafka_rollout_spark.kernel import tables
from kafka_rollout_spark.kernel.programs import DecodingSpec, write_programs
from kafka_rollout_spark.result import damage_of
from kafka_rollout_spark.rows import ENDED, OPENED, LogBytes, RowKind, of_kind
from kafka_rollout_spark.scan import make_spec
from tests.examples import examples
from tests.paths import FIXTURES
from tests.unit.formats.message_strategies import values
from tests.unit.formats.test_codecs import GIGABYTE, of_zeros
from tests.unit.formats.test_record_batch import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES, a_record, encode

FETCHES = [
    *sorted(FIXTURES.glob("coordinator-logs-*/*.fetch")),
    *sorted(FIXTURES.glob("message-sets-*/*.bin")),
]
TOPIC = "__consumer_offsets"
END = 2**62


def rows(data: bytes, spec: DecodingSpec, *, start: int = 0, end: int = END, topic: str = TOPIC) -> Iterator[Any]:
    chunk = LogBytes(topic=topic, partition=0, data=memoryview(data), start=start, end=end, file="some.log")
    for batch in worker_rows(iter([chunk]), spec):
        yield from batch.to_pylist()


def by_kernel(data: bytes, *, start: int = 0, end: int = END) -> tuple[dict[Any, Any], int, str | None]:
    """Classes with count, first offset and last batch, control batches, and the sentence of the first damage."""
    classes, control, damage = {}, 0, None
    for row in rows(data, DecodingSpec(), start=start, end=end):
        if row["kind"] == RowKind.CLASS:
            classes[row["key_version"], row["value_version"]] = row["count"], row["first_offset"], row["last_offset"]
        elif row["kind"] == RowKind.LOG:
            control = row["control_batches"]
        elif row["kind"] == RowKind.DAMAGE:
            damage = damage or row["sentence"]
    return classes, control, damage


def by_wire(data: bytes, *, start: int = 0, end: int = END) -> tuple[dict[Any, Any], int, str | None]:
    counts, damage = KindCounts(), None
    try:
        counts.add(data, start=start, end=end)
    except LogFormatError as error:
        damage = error.sentence
    found = {key: (n, counts.first_offsets[key], counts.last_batches[key]) for key, n in counts.counts.items()}
    return found, counts.control_batches, damage


@pytest.mark.parametrize("file", FETCHES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_real_logs_count_alike(file: Path) -> None:
    data = file.read_bytes()
    kernel, wire = by_kernel(data), by_wire(data)
    if file.suffix == ".bin":  # of compressed messages wire tells no base offset
        kernel, wire = (({key: what[:2] for key, what in found[0].items()}, *found[1:]) for found in (kernel, wire))
    assert kernel == wire


some_batches = st.lists(
    st.tuples(st.lists(a_record, max_size=8), st.sampled_from(Codec), st.booleans()), min_size=1, max_size=5
)


def log_of(content: list[Any]) -> bytes:
    data, offset = b"", 3
    for part, codec, control in content:
        data += encode(part, base_offset=offset, codec=codec, control=control)
        offset += len(part) + 1
    return data


@given(content=some_batches, start=st.integers(0, 20), length=st.integers(0, 40))
def test_generated_logs_count_alike_from_any_offset_to_any(content: list[Any], start: int, length: int) -> None:
    data = log_of([part for part in content if part[0]])
    # A control batch counts once for the kernel, where its last offset lies; wire counts all that it sees.
    kernel, wire = (count(data, start=start, end=start + length) for count in (by_kernel, by_wire))
    assert (kernel[0], kernel[2]) == (wire[0], wire[2])


@given(
    content=st.lists(a_record, min_size=1, max_size=5),
    codec=st.sampled_from(Codec),
    places=st.lists(st.tuples(st.integers(HEADER_BYTES, 2000), st.integers(0, 255)), min_size=1, max_size=5),
)
def test_payloads_that_were_tampered_with_are_refused_alike(content: Any, codec: Codec, places: Any) -> None:
    batch = bytearray(encode(content, base_offset=7, codec=codec))
    for at, byte in places:
        batch[HEADER_BYTES + at % (len(batch) - HEADER_BYTES)] = byte
    struct.pack_into(">I", batch, CRC_AT, crc32c(bytes(batch[ATTRIBUTES_AT:])))
    data = bytes(batch)
    kernel, wire = by_kernel(data), by_wire(data)
    assert (kernel[2] is None) == (wire[2] is None)
    if wire[2] is None:
        assert kernel == wire
    else:
        assert kernel[2] in (wire[2], "The batch decompresses to more than 128 MiB.")


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD, Codec.GZIP])
def test_a_batch_that_decompresses_to_a_gigabyte_is_refused_by_both(codec: Codec) -> None:
    batch = bytearray(encode([(b"\0\1", b"\0\3")], codec=Codec.NONE)[:HEADER_BYTES] + of_zeros(codec, GIGABYTE))
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, ATTRIBUTES_AT, codec)
    struct.pack_into(">I", batch, CRC_AT, crc32c(bytes(batch[ATTRIBUTES_AT:])))
    kernel, wire = by_kernel(bytes(batch)), by_wire(bytes(batch))
    for sentence in (kernel[2], wire[2]):
        assert sentence is not None
        assert "decompresses to more than 128 MiB" in sentence


@cache
def deep_spec() -> DecodingSpec:
    include = Settings.from_environment().include
    catalogue = load_catalogue(include)
    return make_spec(catalogue, load_schemas(include), list(catalogue), catalogue.coordinator_topics)


def parses(layout: Layout, data: bytes) -> Decoded | str:
    try:
        return decode_checked(layout, data, 2)
    except MessageFormatError as error:
        return error.sentence


def deep_by_wire(data: bytes, topic: str) -> dict[RowKind, Any]:
    """What the deep rows are to say, record by record, in the plainest way."""
    log = deep_spec().logs.get(topic, write_programs((), ()))
    uses = {use.key_version: use for use in log.records}
    loaded = {(key, value - 1 if value else None) for key, value in np.argwhere(log.programs.loaded).tolist()}
    broken: dict[Any, Any] = {}
    counted: dict[RowKind, Counter[Any]] = {kind: Counter() for kind in (RowKind.OWNER, RowKind.COMMITS, RowKind.TAG)}
    state = {}
    groups: dict[Any, Any] = {}
    for batch in batches(data):
        held = payload(batch)
        for span in () if batch.is_control else records(batch, held):
            versions = classify(held, span)
            use = uses.get(versions[0]) if versions[0] is not None else None
            if use is None:
                continue
            key = held[span.key_at : span.key_at + span.key_length]
            value = held[span.value_at : span.value_at + span.value_length] if span.value_length >= 0 else None
            found = [(("key", one), parses(one.layout, key)) for one in use.keys]
            of_key = next((what for _, what in found if isinstance(what, Decoded)), None)
            tagged = None
            for one in use.values.get(versions[1], ()) if of_key and value is not None and len(value) >= 2 else ():
                found.append((("value", one), parses(one.layout, value)))
                tagged = tagged or (found[-1][1] if isinstance(found[-1][1], Decoded) else None)
            failed = {place: what for place, what in found if isinstance(what, str)}
            for (part, one), reason in failed.items():
                releases = ",".join(str(release) for release in one.releases)
                at = (*versions, part, releases)
                broken[at] = (broken.get(at, (0,))[0] + 1, *broken.get(at, (0, span.offset, reason))[1:])
            if of_key is None:
                continue
            if failed or versions not in loaded:
                counted[RowKind.OWNER][(*versions, *owner(of_key.value))] += 1
            if "group" in of_key.value and "topic" in of_key.value:
                counted[RowKind.COMMITS][(*versions, of_key.value["topic"])] += 1
                groups[(*versions, of_key.value["group"])] = span.offset
            for tag in {(tag.path, tag.tag) for tag in tagged.tags} if tagged else ():
                counted[RowKind.TAG][(*versions, *tag)] += 1
            if use.state:
                state[key] = (use.name, versions[0], span.offset, value)
    return {RowKind.BROKEN: broken, RowKind.STATE: state, RowKind.GROUP: groups, **counted}


def owner(key: dict[str, Any]) -> tuple[str, str]:
    if "transactionalId" in key:
        return "transactional_id", key["transactionalId"]
    group = key["group"] if "group" in key else key["groupId"]
    if "topicId" in key:
        return "share_partition", f"{group}:{key['topicId']}:{key['partition']}"
    return "group", group


def deep_by_kernel(data: bytes, topic: str) -> dict[RowKind, Any]:
    broken: dict[Any, Any] = {}
    state = {}
    groups: dict[Any, Any] = {}
    counted: dict[RowKind, Counter[Any]] = {kind: Counter() for kind in (RowKind.OWNER, RowKind.COMMITS, RowKind.TAG)}
    names = {RowKind.OWNER: ("owner", "name"), RowKind.COMMITS: ("name",), RowKind.TAG: ("path", "tag")}
    for row in rows(data, deep_spec(), topic=topic):
        versions = row["key_version"], row["value_version"]
        match row["kind"]:
            case RowKind.BROKEN:
                at = (*versions, row["part"], row["releases"])
                first = min(broken.get(at, (0, END, ""))[1:], (row["first_offset"], row["reason"] or ""))
                broken[at] = broken.get(at, (0,))[0] + row["count"], *first
            case RowKind.STATE:
                state[row["key"]] = row["record"], row["key_version"], row["last_offset"], row["value"]
            case RowKind.GROUP:
                at = (*versions, row["name"])
                groups[at] = max(groups.get(at, -1), row["last_offset"])
            case RowKind.OWNER | RowKind.COMMITS | RowKind.TAG as kind:
                counted[kind][(*versions, *(row[name] for name in names[kind]))] += row["count"]
    return {RowKind.BROKEN: broken, RowKind.STATE: state, RowKind.GROUP: groups, **counted}


@pytest.mark.parametrize("file", FETCHES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_real_logs_are_looked_into_alike(file: Path) -> None:
    data, topic = file.read_bytes(), file.stem.rpartition("-")[0]
    assert deep_by_kernel(data, topic) == deep_by_wire(data, topic)


def versioned(layout: Layout, version: int) -> st.SearchStrategy[bytes]:
    """A message behind its version; now and then cut off, changed in one byte or with one more."""
    whole = values(layout).map(lambda value: struct.pack(">h", version) + encode_message(layout, value))
    cut = st.tuples(whole, st.integers(2, 60)).map(lambda held: held[0][: held[1]])
    changed = st.tuples(whole, st.integers(2, 60), st.integers(0, 255)).map(
        lambda held: held[0][: held[1]] + bytes([held[2]]) + held[0][held[1] + 1 :]
    )
    return whole | cut | changed


@st.composite
def coordinator_records(draw: st.DrawFn) -> tuple[str, list[tuple[bytes, bytes | None]]]:
    topic = draw(st.sampled_from(sorted({use.topic for use in deep_spec().records})))
    found = []
    for _ in range(draw(st.integers(1, 6))):
        use = draw(st.sampled_from([use for use in deep_spec().records if use.topic == topic]))
        version = draw(st.sampled_from(sorted(use.values)))
        key = draw(versioned(draw(st.sampled_from(use.keys)).layout, use.key_version))
        value = draw(st.none() | versioned(draw(st.sampled_from(use.values[version])).layout, version))
        found += [(key, value)] * draw(st.integers(1, 2))
    return topic, found


@given(made=coordinator_records(), codec=st.sampled_from(Codec))
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_generated_records_are_looked_into_alike(made: Any, codec: Codec) -> None:
    topic, content = made
    data = encode(content[:2], base_offset=5, codec=codec) + encode(content, base_offset=20, codec=codec)
    assert deep_by_kernel(data, topic) == deep_by_wire(data, topic)


def test_damage_of_a_live_log_is_named_by_its_offsets_and_the_rest_is_read() -> None:
    first, second, third = (encode([(b"\0\1", b"\0\0")], base_offset=at) for at in (10, 11, 12))
    broken = second[:-1] + bytes([second[-1] ^ 1])
    for data, offsets, count in ((first + broken + third, (11, 11), 2), (first + b"\xff" * 90, (11, 12), 1)):
        chunk = LogBytes(topic=TOPIC, partition=0, data=memoryview(data), start=10, end=13)
        found = pa.Table.from_batches(worker_rows(iter([chunk]), DecodingSpec()))
        (damage,) = damage_of(found, {(TOPIC, 0, 0): "broker 1"})
        assert (damage.file, damage.position, damage.position + damage.offsets - 1) == ("", *offsets)
        assert of_kind(found, RowKind.LOG)["count"].to_pylist() == [count]


@given(data=st.binary(max_size=300))
@settings(max_examples=examples(200))
def test_what_is_no_batch_is_damage_and_no_error(data: bytes) -> None:
    found = list(rows(data, DecodingSpec()))
    assert [row["kind"] for row in found if row["kind"] == RowKind.DAMAGE] == ([RowKind.DAMAGE] if data else [])


some_transactions = st.lists(
    st.tuples(st.integers(-1, 5), st.booleans(), st.integers(0, 3), st.sampled_from([Codec.NONE, Codec.ZSTD])),
    max_size=30,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@pytest.mark.parametrize("slots", [1 << 12, 4])
@given(some_transactions, st.integers(0, 40), st.integers(20, 90))
def test_transactions_of_producers_are_told_alike(
    monkeypatch: pytest.MonkeyPatch, slots: int, written: list[tuple[int, bool, int, Codec]], start: int, end: int
) -> None:
    """Where the data of each producer and its markers lie: by the headers, however small the table."""
    monkeypatch.setattr(tables, "_PRODUCER_SLOTS", slots)
    data, base = b"", 0
    for producer, control, size, codec in written:
        content = [(b"\0\1key", b"\0\3value")] * size
        data += encode(
            content,
            base_offset=base,
            codec=Codec.NONE if control else codec,
            control=control and producer >= 0,
            transactional=producer >= 0,
            producer_id=producer,
        )
        base += max(1, size)
    expected: dict[tuple[int, str], tuple[int, int]] = {}
    for batch in batches(data):
        if batch.is_transactional and batch.record_count and batch.last_offset >= start and batch.base_offset < end:
            what = batch.producer_id, ENDED if batch.is_control else OPENED
            first = batch.last_offset if batch.is_control else batch.base_offset
            expected[what] = min(first, expected.get(what, (first, 0))[0]), batch.last_offset
    found: dict[tuple[int, str], tuple[int, int]] = {}
    for row in rows(data, deep_spec(), start=start, end=end):
        if row["kind"] == RowKind.PRODUCER:
            what, first, last = (row["key_hash"], row["part"]), row["first_offset"], row["last_offset"]
            known = found.get(what, (first, last))
            found[what] = min(known[0], first), max(known[1], last)
    markers = {what for what in expected if what[1] == ENDED}
    assert found.keys() == expected.keys()
    assert {what: found[what] if what not in markers else found[what][1] for what in found} == {
        what: expected[what] if what not in markers else expected[what][1] for what in expected
    }
    assert not any(row["kind"] == RowKind.PRODUCER for row in rows(data, DecodingSpec(), start=start, end=end))
