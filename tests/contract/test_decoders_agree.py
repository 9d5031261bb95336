"""What we read and write of a record is what the release's own generated classes read and write of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kafka_rollout.formats.coordinator_records import VERSION_BYTES, RecordLayouts
from kafka_rollout.formats.documents.definitions import load_schemas
from kafka_rollout.formats.layouts import Layout
from kafka_rollout.formats.messages import MessageFormatError, decode, encode
from kafka_rollout.formats.record_batch import batches, payload, records
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.jvm import run_jvm
from tests.contract.kafka_messages import KafkaMessages
from tests.examples import examples
from tests.paths import INCLUDE, ROOT
from tests.unit.formats.message_strategies import values

pytestmark = pytest.mark.jvm

SCHEMAS = load_schemas(INCLUDE)
LOGS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
ASKED = ("3.4.0", "3.9.1", "4.3.1")
RELEASES = [
    pytest.param(release, id=str(release), marks=() if str(release) in ASKED else pytest.mark.full)
    for release in SCHEMAS.releases
]
# Share groups were early access in 4.0: their records changed later, without another version.
CHANGED_SINCE_4_0 = {"ShareGroupMetadata", "ShareGroupStatePartitionMetadata", "ShareSnapshot", "ShareUpdate"}
# Record types that the fixtures have no value of.
NEVER_SEEN = {
    "LegacyOffsetCommit",
    "ConsumerGroupPartitionMetadata",
    "ConsumerGroupRegularExpression",
    "StreamsGroupTargetAssignmentMember",
    "StreamsGroupTargetAssignmentMetadata",
}

generated = settings(
    max_examples=examples(300),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> Release:
    assert isinstance(request.param, Release)
    return request.param


@pytest.fixture(scope="module")
def kafka(release: Release, release_cache: ReleaseCache) -> Iterator[KafkaMessages]:
    with run_jvm(release_cache.libs(release)) as jvm:
        yield KafkaMessages(jvm)


def record_types(release: Release) -> list[RecordLayouts]:
    return [layouts for topic in LOGS for layouts in SCHEMAS.log(release, topic).values()]


def message_layouts(release: Release) -> list[Layout]:
    found = []
    for record in record_types(release):
        versions = record.value.valid_versions
        found += [record.key, *(record.value.layout(version) for version in range(versions.min, versions.max + 1))]
    return found


def comparable(held: Any) -> Any:
    """Java puts one U+FFFD for some malformed sequences for which Python puts one for each byte."""
    if isinstance(held, str):
        return re.sub("\ufffd+", "\ufffd", held)
    if isinstance(held, list):
        return [comparable(one) for one in held]
    if isinstance(held, dict):
        return {name: comparable(one) for name, one in held.items()}
    return held


def assert_agreement(kafka: KafkaMessages, layout: Layout, data: bytes, at: int = 0) -> bool:
    """Both fail, or both read the same fields, end at the same place and write the same bytes. True if they read."""
    theirs = kafka.read(layout, data, at)
    try:
        ours = decode(layout, data, at)
    except MessageFormatError as error:
        if theirs is not None:
            raise AssertionError(f"Kafka reads {data.hex()}") from error
        return False
    assert theirs is not None, f"Kafka does not read {data.hex()}: {ours}"
    message, end = theirs
    assert end == ours.end
    assert comparable(kafka.fields(message, layout.struct)) == comparable(ours.value)
    if "\ufffd" not in str(ours.value):
        try:
            written = encode(layout, ours.value)
        except MessageFormatError:
            written = None
        assert kafka.write(message, layout.version) == written
    return True


def fixture_records() -> Iterator[tuple[str, bytes, bytes | None]]:
    """(topic, key, value) of every record that real brokers wrote."""
    for path in sorted((ROOT / "tests" / "fixtures").glob("coordinator-logs-*/*.fetch")):
        for batch in batches(path.read_bytes()):
            if batch.is_control:
                continue
            data = payload(batch)
            for span in records(batch, data):
                value = None if span.value_length < 0 else data[span.value_at : span.value_at + span.value_length]
                yield path.name.rsplit("-", 1)[0], data[span.key_at : span.key_at + span.key_length], value


def test_every_record_of_real_brokers_has_the_same_fields(kafka: KafkaMessages, release: Release) -> None:
    read: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    for topic, key, value in dict.fromkeys(fixture_records()):
        record = SCHEMAS.layouts(release, topic, int.from_bytes(key[:VERSION_BYTES], "big"))
        if record is None:
            continue
        assert assert_agreement(kafka, record.key, key, VERSION_BYTES)
        version = -1 if value is None else int.from_bytes(value[:VERSION_BYTES], "big")
        if value is not None and version in record.value.valid_versions:
            parsed = assert_agreement(kafka, record.value.layout(version), value, VERSION_BYTES)
            (read if parsed else broken)[record.name] += 1
    assert set(broken) == (CHANGED_SINCE_4_0 if (release.major, release.minor) == (4, 0) else set())
    if release == max(SCHEMAS.releases):
        assert {record.name for record in record_types(release)} - set(read) == NEVER_SEEN


def test_the_same_bytes_are_read_or_not_read_and_written_the_same(kafka: KafkaMessages, release: Release) -> None:
    """Whole messages, some of their bytes changed, cut off or arbitrary."""
    layouts = message_layouts(release)
    outcomes: Counter[bool] = Counter()

    @generated
    @given(data=st.data())
    def compare(data: st.DataObject) -> None:
        layout = data.draw(st.sampled_from(layouts))
        written = bytearray(encode(layout, data.draw(values(layout))))
        outcomes[assert_agreement(kafka, layout, bytes(written))] += 1
        for _ in range(data.draw(st.integers(0, 3)) if written else 0):
            written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))
        cut = bytes(written[: data.draw(st.integers(0, len(written)))])
        for raw in (bytes(written), cut, data.draw(st.binary(max_size=60))):
            outcomes[assert_agreement(kafka, layout, raw)] += 1

    compare()
    assert min(outcomes[True], outcomes[False]) > 100, "the test has to see both outcomes"


def test_mutated_records_of_real_brokers_are_read_by_both_or_by_neither(kafka: KafkaMessages, release: Release) -> None:
    known = []
    for topic, key, value in dict.fromkeys(fixture_records()):
        record = SCHEMAS.layouts(release, topic, int.from_bytes(key[:VERSION_BYTES], "big"))
        if record is not None and value is not None:
            version = int.from_bytes(value[:VERSION_BYTES], "big")
            if version in record.value.valid_versions:
                known.append((record.value.layout(version), value))

    @generated
    @given(data=st.data())
    def compare(data: st.DataObject) -> None:
        layout, value = data.draw(st.sampled_from(known))
        mutated = bytearray(value)
        for _ in range(data.draw(st.integers(1, 3))):
            mutated[data.draw(st.integers(VERSION_BYTES, len(mutated) - 1))] = data.draw(st.integers(0, 255))
        assert_agreement(kafka, layout, bytes(mutated), VERSION_BYTES)

    compare()
