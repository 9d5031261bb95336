"""Tagged fields that a release loads and passes over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_rollout.adapters.releases.catalogue import load_catalogue
from kafka_rollout.domain.coordinator_logs.scan import ScanResult, TaggedFields
from kafka_rollout.domain.coordinator_logs.tagged_fields import (
    _LOSSES,
    _SAME_AS,
    UNKNOWN_LOSS,
    UNSAID_LOSS,
    ignored_tags,
)
from kafka_rollout.domain.model.releases import Catalogue, Release
from kafka_rollout.wire.layouts import StructLayout
from tests.definitions import distinct_definitions, schema
from tests.paths import INCLUDE

R340, R401, R431 = Release(3, 4, 0), Release(4, 0, 1), Release(4, 3, 1)
KNOWN = (Release(4, 1, 1), Release(4, 2, 1), R431)


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue(INCLUDE)


def scan(*tagged: TaggedFields) -> ScanResult:
    return ScanResult(cluster="orders", scanned_at=0.0, logs=(), classes=(), verdicts=(), tagged=tagged)


def tag(
    name: str | None, *, number: int = 0, key: int = 1, partition: int = 0, known_by: tuple[Release, ...] = KNOWN
) -> TaggedFields:
    return TaggedFields(
        topic="__consumer_offsets",
        partition=partition,
        key_version=key,
        value_version=4 if key == 1 else 0,
        path="",
        tag=number,
        count=3,
        first_offset=1,
        name=name,
        known_by=known_by if name else (),
    )


def test_a_release_that_reads_the_record_and_not_the_tag_ignores_it_and_says_what_is_lost(catalogue: Catalogue) -> None:
    (found,) = ignored_tags(scan(tag("topicId"), tag("topicId", partition=1)), catalogue, [R340, R401, R431])
    assert found.ignored_by == (R401,)  # 3.4.0 does not read OffsetCommit 4 at all: it fails, it does not ignore
    assert (found.record, found.count, found.partitions) == ("OffsetCommit", 6, 2)
    assert "KIP-848" in found.loss


def test_a_tag_that_no_release_knows_is_ignored_by_all_that_read_the_record(catalogue: Catalogue) -> None:
    (found,) = ignored_tags(scan(tag(None, number=9)), catalogue, [R340, R401, R431])
    assert found.ignored_by == (R401, R431)
    assert found.loss == UNKNOWN_LOSS


def test_a_tag_whose_loss_nobody_says_is_not_called_harmless(catalogue: Catalogue) -> None:
    (found,) = ignored_tags(scan(tag("Other", number=1)), catalogue, [R401])
    assert found.loss == UNSAID_LOSS


def test_every_loss_is_of_a_tag_that_the_catalogues_definitions_have() -> None:
    known = set()
    for release, message in distinct_definitions().values():
        if not message.endswith("Value"):
            continue
        one = schema(release, message)
        for version in range(one.valid_versions.min, one.valid_versions.max + 1):
            known |= {(message.removesuffix("Value"), name) for name in tags_of(one.layout(version).struct)}
    assert _LOSSES.keys() <= known
    assert _SAME_AS.keys() | set(_SAME_AS.values()) <= {record for record, _ in known}


def tags_of(struct: StructLayout) -> Iterator[str]:
    yield from (field.name for field in struct.tagged.values())
    for field in (*struct.fields, *struct.tagged.values()):
        if field.struct is not None:
            yield from tags_of(field.struct)


def test_a_tag_that_all_know_is_not_listed(catalogue: Catalogue) -> None:
    assert ignored_tags(scan(tag("topicId")), catalogue, [R431]) == ()
