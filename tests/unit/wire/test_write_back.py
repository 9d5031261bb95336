"""Records written back as KIP-915 prescribes say the same, or are refused; what is dropped is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_rollout.adapters.releases.definitions import load_schemas
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.wire.coordinator_records import RecordLayouts, write_back
from kafka_rollout.wire.layouts import ZERO_UUID
from kafka_rollout.wire.messages import UNKNOWN_TAGS, MessageFormatError, decode, default_of, encode
from tests.paths import INCLUDE
from tests.unit.wire.message_strategies import values

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
SCHEMAS = load_schemas(INCLUDE)


def record(topic: str, key_version: int, release: str = "4.3.1") -> RecordLayouts:
    found = SCHEMAS.layouts(Release.parse(release), topic, key_version)
    assert found is not None
    return found


COMMIT, GROUP, TRANSACTION = record(OFFSETS, 1), record(OFFSETS, 2), record(TRANSACTIONS, 0)


def value_of(layouts: RecordLayouts, version: int, message: dict[str, Any]) -> bytes:
    return version.to_bytes(2, "big") + encode(layouts.value.layout(version), message)


def nothing_new(layouts: RecordLayouts, version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Messages of a flexible version in which no tagged field is set."""
    layout = layouts.value.layout(version)

    def cleared(held: Any) -> Any:
        if isinstance(held, list):
            return [cleared(one) for one in held]
        if isinstance(held, dict):
            return {name: cleared(one) for name, one in held.items() if name != UNKNOWN_TAGS}
        return held

    defaults = {field.name: default_of(field) for field in layout.struct.tagged.values()}
    return values(layout).map(lambda message: cleared(message) | defaults)


@pytest.mark.parametrize(
    ("layouts", "flexible", "older"),
    [(COMMIT, 4, 3), (GROUP, 4, 3), (TRANSACTION, 1, 0)],
    ids=["OffsetCommit", "GroupMetadata", "TransactionLog"],
)
@given(data=st.data())
def test_a_flexible_value_says_the_same_at_the_version_that_kip_915_names(
    layouts: RecordLayouts, flexible: int, older: int, data: st.DataObject
) -> None:
    message = data.draw(nothing_new(layouts, flexible))
    back = write_back(layouts, value_of(layouts, flexible, message))
    assert back.value is not None
    assert not back.dropped
    assert int.from_bytes(back.value[:2], "big") == older
    said = decode(layouts.value.layout(older), back.value, 2)
    assert said.end == len(back.value)
    tagged = {field.name for field in layouts.value.layout(flexible).struct.tagged.values()}
    assert said.value == {name: held for name, held in message.items() if name not in tagged}
    assert write_back(layouts, back.value) == back


@given(raw=st.binary(max_size=80), layouts=st.sampled_from([COMMIT, GROUP, TRANSACTION]), version=st.integers(-1, 5))
def test_no_value_raises_anything_but_its_own_error(raw: bytes, layouts: RecordLayouts, version: int) -> None:
    try:
        write_back(layouts, version.to_bytes(2, "big", signed=True) + raw)
    except MessageFormatError:
        return


def test_the_topic_id_of_a_commit_is_dropped_and_told() -> None:
    message = {
        "offset": 7,
        "leaderEpoch": 2,
        "metadata": "m",
        "commitTimestamp": 9,
        "topicId": "AAECAwQFBgcICQoLDA0ODw",
    }
    back = write_back(COMMIT, value_of(COMMIT, 4, message))
    assert back.dropped == ("topicId",)
    del message["topicId"]
    assert back.value == value_of(COMMIT, 3, message)
    assert write_back(COMMIT, value_of(COMMIT, 4, {**message, "topicId": ZERO_UUID})).dropped == ()


@pytest.mark.parametrize(
    ("field", "held"), [("nextProducerId", 5), ("previousProducerId", 0), ("clientTransactionVersion", 2)]
)
def test_a_set_field_that_may_not_be_ignored_is_refused_by_name(field: str, held: int) -> None:
    with pytest.raises(MessageFormatError, match=f"TransactionLogValue version 0 cannot say {field}, which is set"):
        write_back(TRANSACTION, value_of(TRANSACTION, 1, {field: held}))


def test_a_tagged_field_that_nobody_knows_is_refused_wherever_it_stands() -> None:
    with pytest.raises(MessageFormatError, match=r"OffsetCommitValue version 3 cannot say the tagged field 9\."):
        write_back(COMMIT, value_of(COMMIT, 4, {UNKNOWN_TAGS: [(9, b"")]}))
    with pytest.raises(MessageFormatError, match=r"cannot say the tagged field 9 of members\[\]\."):
        write_back(GROUP, value_of(GROUP, 4, {"members": [{UNKNOWN_TAGS: [(9, b"")]}]}))


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_value_that_is_not_flexible_and_a_tombstone_stay_as_they_are(version: int) -> None:
    old = value_of(COMMIT, version, {"offset": 5})
    assert write_back(COMMIT, old).value == old
    assert write_back(COMMIT, None).value is None


def test_a_record_whose_every_version_is_flexible_is_refused_with_the_way_out() -> None:
    layouts = record(OFFSETS, 3)
    with pytest.raises(MessageFormatError, match=r"A ConsumerGroupMetadata record has no version .* delete the group"):
        write_back(layouts, value_of(layouts, 0, {"epoch": 1}))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "too short to hold a version"),
        (b"\x00\x05", "has the versions 0-4, not 5"),
        (b"\x00\x04\x00", "does not parse"),
    ],
)
def test_what_is_no_value_of_the_record_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(MessageFormatError, match=reason):
        write_back(COMMIT, raw)
