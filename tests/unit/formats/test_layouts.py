"""Message definitions resolve, version by version, to what Kafka's generator makes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_rollout.formats.layouts import FieldType, MessageSchema, SchemaError
from tests.definitions import distinct_definitions, schema


def definition(*fields: dict[str, Any], **more: Any) -> str:
    return json.dumps(
        {"name": "M", "validVersions": "0-4", "flexibleVersions": "2+", "fields": fields} | more,
    )


def test_every_definition_of_every_release_resolves_at_every_version_it_has() -> None:
    found = distinct_definitions().values()
    schemas = [schema(release, name) for release, name in found]
    assert [one.name for one in schemas] == [name for _, name in found]
    layouts = [one.layout(v) for one in schemas for v in range(one.valid_versions.min, one.valid_versions.max + 1)]
    assert len(layouts) > 130


def test_fields_come_and_go_with_versions() -> None:
    offset_commit = schema("4.3.1", "OffsetCommitValue")
    names = [[field.name for field in offset_commit.layout(version).struct.fields] for version in range(5)]
    assert names == [
        ["offset", "metadata", "commitTimestamp"],
        ["offset", "metadata", "commitTimestamp", "expireTimestamp"],
        ["offset", "metadata", "commitTimestamp"],
        ["offset", "leaderEpoch", "metadata", "commitTimestamp"],
        ["offset", "leaderEpoch", "metadata", "commitTimestamp"],
    ]
    tags = [dict(offset_commit.layout(version).struct.tagged) for version in range(5)]
    assert tags[:4] == [{}] * 4
    assert (tags[4][0].name, tags[4][0].type) == ("topicId", FieldType.UUID)


def test_lengths_are_compact_in_flexible_versions_only() -> None:
    members = [schema("3.4.1", "GroupMetadataValue").layout(version).struct.fields[-1] for version in (3, 4)]
    assert [field.compact for field in members] == [False, True]
    for field, compact in zip(members, (False, True), strict=True):
        assert field.struct is not None
        assert field.struct.flexible is compact
        assert {inner.compact for inner in field.struct.fields} == {compact}


def test_a_field_is_nullable_in_its_nullable_versions_only() -> None:
    layout = schema("4.3.1", "GroupMetadataValue").layout(3)
    assert {field.name for field in layout.struct.fields if field.nullable} == {"protocol", "leader"}


def test_a_tagged_field_without_versions_of_its_own_has_its_tagged_versions() -> None:
    transaction = schema("4.3.1", "TransactionLogValue")
    assert not transaction.layout(0).struct.tagged
    tagged = transaction.layout(1).struct.tagged
    assert {tag: (field.name, field.default) for tag, field in tagged.items()} == {
        0: ("previousProducerId", -1),
        1: ("nextProducerId", -1),
        2: ("clientTransactionVersion", 0),
        3: ("nextProducerEpoch", -1),
    }


def test_jsons_null_is_no_null_default_as_kafkas_generator_has_it() -> None:
    tagged = schema("4.3.1", "StreamsGroupMetadataValue").layout(0).struct.tagged
    assert tagged[1].default == ""
    endpoint = next(
        f
        for f in schema("4.3.1", "StreamsGroupMemberMetadataValue").layout(0).struct.fields
        if f.name.endswith("point")
    )
    assert endpoint.default is None


def test_a_field_that_overrides_flexible_versions_keeps_its_old_length() -> None:
    text = definition({"name": "a", "type": "string", "versions": "0+", "flexibleVersions": "4+"})
    found = [MessageSchema.parse(text).layout(version).struct.fields[0].compact for version in (1, 2, 3, 4)]
    assert found == [False, False, False, True]


def test_a_field_that_was_untagged_first_stays_so_in_those_versions() -> None:
    text = definition({"name": "A", "type": "int32", "versions": "0+", "taggedVersions": "2+", "tag": 7})
    layouts = [MessageSchema.parse(text).layout(version).struct for version in (1, 2)]
    assert [len(struct.fields) for struct in layouts] == [1, 0]
    assert layouts[1].tagged[7].name == "a"


def test_equal_layouts_of_two_releases_are_equal_and_hash_alike() -> None:
    layouts = {schema(release, "OffsetCommitValue").layout(3) for release in ("3.4.1", "3.9.1", "4.3.1")}
    assert len(layouts) == 1
    assert schema("3.4.1", "OffsetCommitValue").layout(4) != schema("4.3.1", "OffsetCommitValue").layout(4)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        definition({"name": "a", "type": "int12", "versions": "0+"}),
        definition({"name": "a", "type": "int8"}),
        definition({"name": "a", "type": "int8", "versions": "x"}),
        definition({"name": "a", "type": "Missing", "versions": "0+"}),
        definition({"name": "a", "type": "int8", "versions": "0+", "taggedVersions": "0+", "tag": 0}),
        definition({"name": "a", "type": "[]int8", "versions": "0+", "default": "1"}),
        definition(
            {"name": "a", "type": "A", "versions": "0+", "fields": [{"name": "a", "type": "A", "versions": "0+"}]}
        ),
    ],
)
def test_what_is_no_message_definition_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(SchemaError, match="not one of Kafka's"):
        MessageSchema.parse(text)


def test_a_version_that_a_message_does_not_have_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"OffsetCommitValue has the versions 0-3, not 4"):
        schema("3.4.0", "OffsetCommitValue").layout(4)
