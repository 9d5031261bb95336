"""The documented columns are those of the catalogue's definitions."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_rollout.base.errors import FatalError
from kafka_rollout.coordinator_logs.reading.records import KEY, KindLayouts, PartUse
from kafka_rollout.formats.layouts import MessageSchema
from pyspark_kafka_coordinator_log.schema import DOCUMENT, make_schema, present_schema, read_schema, to_document
from tests.golden import assert_same_as_recorded
from tests.paths import INCLUDE


def test_the_documented_columns_are_those_of_the_catalogue() -> None:
    present = to_document(present_schema())
    assert_same_as_recorded(INCLUDE / DOCUMENT, present.splitlines())
    assert to_document(read_schema()) == present


def test_every_version_of_a_record_has_its_fields() -> None:
    fields: Any = read_schema()["fields"].dataType
    known = {"OffsetCommit", "GroupMetadata", "ConsumerGroupMetadata", "ShareSnapshot", "TransactionLog"}
    assert known <= set(fields.names)
    commit = fields["OffsetCommit"].dataType["value"].dataType
    assert {"commitTimestamp", "expireTimestamp", "leaderEpoch", "topicId"} <= set(commit.names)
    assert commit["offset"].dataType.simpleString() == "bigint"
    members = fields["GroupMetadata"].dataType["value"].dataType["members"].dataType.elementType
    assert members["subscription"].dataType.simpleString() == "binary"


def _kind(kind: str) -> KindLayouts:
    field = f'{{"name": "what", "type": "{kind}", "versions": "0+"}}'
    text = f'{{"name": "KindKey", "validVersions": "0", "flexibleVersions": "none", "fields": [{field}]}}'
    layout = MessageSchema.parse(text).layout(0)
    return KindLayouts(name="Kind", uses=(PartUse(part=KEY, layout=layout, releases=()),))


def test_a_field_with_two_types_is_refused() -> None:
    fields: Any = make_schema([_kind("int32"), _kind("int32")])["fields"].dataType
    assert fields.names == ["Kind"]
    for other in ("string", "[]int32"):
        with pytest.raises(FatalError, match=r"Kind\.key\.what has another type in another version or release"):
            make_schema([_kind("int32"), _kind(other)])
