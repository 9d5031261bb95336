"""Tagged fields that a release loads and passes over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kafka_rollout.base.findings import Severity
from kafka_rollout.coordinator_logs.scan import ScanResult, TaggedFields
from kafka_rollout.coordinator_logs.tagged_fields import (
    _LOSSES,
    _SAME_AS,
    UNKNOWN_LOSS,
    UNSAID_LOSS,
    dropped_tag_findings,
    ignored_tags,
)
from kafka_rollout.formats.layouts import StructLayout
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Catalogue, Release
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
    name: str | None,
    *,
    number: int = 0,
    key: int = 1,
    partition: int = 0,
    known_by: tuple[Release, ...] = KNOWN,
    owners: tuple[str, ...] | None = None,
    topic: str = "__consumer_offsets",
) -> TaggedFields:
    return TaggedFields(
        topic=topic,
        partition=partition,
        key_version=key,
        value_version=4 if key == 1 else 0,
        path="",
        tag=number,
        count=3,
        first_offset=1,
        name=name,
        known_by=known_by if name else (),
        owners=owners,
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


def test_a_downgrade_names_the_groups_that_lose_a_field_and_what_is_lost(catalogue: Catalogue) -> None:
    found = scan(tag("topicId", owners=("billing",)), tag("topicId", partition=1, owners=("audit",)))
    (finding,) = dropped_tag_findings(found, catalogue, [R401, R431])
    assert (finding.severity, finding.subject) == (Severity.WARNING, "4.0.1, OffsetCommit topicId")
    assert "ignores their field topicId: 2 groups (audit, billing). The id of the topic (KIP-848)." in finding.sentence
    assert "4.1.1, 4.2.1, 4.3.1" in finding.remedy


def test_transactional_ids_are_named_with_the_remedy_of_their_producers(catalogue: Catalogue) -> None:
    one = tag("nextProducerId", number=1, key=0, owners=("payments",), topic="__transaction_state")
    (finding,) = dropped_tag_findings(scan(replace(one, value_version=1)), catalogue, [Release(3, 4, 1)])
    assert "1 transactional id (payments)" in finding.sentence
    assert "KAFKA-20310" in finding.sentence
    assert "initTransactions()" in finding.remedy


def test_a_field_in_superseded_records_or_one_that_is_computed_again_is_no_finding(catalogue: Catalogue) -> None:
    computed = tag("metadataHash", key=3, owners=("billing",))
    assert dropped_tag_findings(scan(tag("topicId", owners=()), computed), catalogue, [R401]) == ()
    assert [one.name for one in ignored_tags(scan(computed), catalogue, [R401])] == ["metadataHash"]
    (unlisted,) = dropped_tag_findings(scan(tag("topicId")), catalogue, [R401])
    assert "3 records in 1 partition of __consumer_offsets" in unlisted.sentence
