"""Tagged fields that releases ignore (KIP-482, KIP-915). Their content is lost although the log loads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka_rollout.base.findings import WARNING, Finding, FindingCode
from kafka_rollout.base.internal_topics import TRANSACTIONS_TOPIC
from kafka_rollout.base.wording import count, few
from kafka_rollout.coordinator_logs.incompatible_records import facts_of_type
from kafka_rollout.coordinator_logs.scan import OWNERS_OF_TAG, ScanResult, TaggedFields
from kafka_rollout.releases.facts import Catalogue, Release

DROPPED = FindingCode(
    "TAGGED-FIELD-DROPPED", WARNING, "A release of the path ignores a tagged field that current records have (KIP-482)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredTag:
    """One tagged field over all partitions, and the releases that load its records and ignore it."""

    topic: str
    record: str
    value_version: int
    path: str
    tag: int
    name: str | None
    """None if no release of the catalogue knows the tag."""
    count: int
    partitions: int
    known_by: tuple[Release, ...]
    ignored_by: tuple[Release, ...]
    owners: tuple[str, ...] | None
    """The groups or transactional ids whose current record has it; None if they are not listed."""
    owners_left_out: int
    loss: str
    """The effect of ignoring it, with the source."""


UNKNOWN_LOSS = "No release of the catalogue knows this tag. The effect of ignoring it is unknown."
UNSAID_LOSS = "The definitions of the releases that know it do not describe the effect of ignoring it."

# By record and field (lower camel case). Sources: the KIPs, the definitions, the Kafka issues.
_LOSSES: Mapping[tuple[str, str], str] = {
    ("ConsumerGroupMemberMetadata", "classicMemberMetadata"): (
        "Marks a member that uses the classic protocol during a conversion (KIP-848). Without it, the member "
        "counts as a member of the consumer protocol."
    ),
    ("ConsumerGroupMetadata", "metadataHash"): (
        "The hash of the subscribed topics' metadata (KIP-1101). The release computes its own."
    ),
    ("OffsetCommit", "topicId"): (
        "The id of the topic (KIP-848). If a topic is deleted and recreated with the same name, the old "
        "offset applies to the new topic."
    ),
    ("TransactionLog", "previousProducerId"): (
        "The producer id of the last transaction (KIP-890). A retry after an epoch overflow gets "
        "PRODUCER_FENCED (KAFKA-20310)."
    ),
    ("TransactionLog", "nextProducerId"): (
        "The next producer id (KIP-890). A transaction that is open during an epoch overflow cannot continue "
        "with the new id (KAFKA-20310)."
    ),
    ("TransactionLog", "clientTransactionVersion"): (
        "The transaction version of the client (KIP-890). The transaction ends as one of an older client, "
        "without the new epoch that fences late writes."
    ),
    ("ShareSnapshot", "deliveryCompleteCount"): (
        "The number of records after the start that are delivered (KIP-1226). The lag of the share partition "
        "is unknown until it is counted again."
    ),
    ("ConsumerGroupTargetAssignmentMetadata", "assignmentTimestamp"): (
        "The time of the last assignment (KIP-1263). The next assignment can come before its interval has elapsed."
    ),
    ("ConsumerGroupCurrentMemberAssignment", "assignmentEpochs"): (
        "The epoch in which a member got its partitions (KIP-1251). Late commits of members that lost them "
        "are fenced by the member epoch only."
    ),
}
_RECOMPUTED = frozenset({("ConsumerGroupMetadata", "metadataHash")})  # nothing is lost
_SAME_AS = {
    "ShareUpdate": "ShareSnapshot",
    "ShareGroupTargetAssignmentMetadata": "ConsumerGroupTargetAssignmentMetadata",
    "StreamsGroupTargetAssignmentMetadata": "ConsumerGroupTargetAssignmentMetadata",
    "StreamsGroupCurrentMemberAssignment": "ConsumerGroupCurrentMemberAssignment",
}


def ignored_tags(
    scan: ScanResult, catalogue: Catalogue, releases: Iterable[Release] | None = None
) -> tuple[IgnoredTag, ...]:
    """Return every tag of the logs that a release (default: of the scan's) ignores although it reads the record."""
    catalogue = catalogue.configured(new_group_coordinator=scan.new_group_coordinator)
    asked = scan.releases if releases is None else tuple(releases)
    by_tag: defaultdict[tuple[str, int, int, str, int], list[TaggedFields]] = defaultdict(list)
    for found in scan.tagged:
        by_tag[found.topic, found.key_version, found.value_version, found.path, found.tag].append(found)
    tags = (_ignored(catalogue, asked, fields) for _, fields in sorted(by_tag.items()))
    return tuple(tag for tag in tags if tag.ignored_by)


def _ignored(catalogue: Catalogue, asked: Iterable[Release], fields: list[TaggedFields]) -> IgnoredTag:
    first = fields[0]
    knowing = facts_of_type(catalogue, first.topic, first.key_version)
    record = knowing[-1][1].name if knowing else f"key version {first.key_version}"
    unlisted = any(found.owners is None for found in fields)
    reading = {release for release, facts in knowing if first.value_version in facts.reads}
    return IgnoredTag(
        topic=first.topic,
        record=record,
        value_version=first.value_version,
        path=first.path,
        tag=first.tag,
        name=first.name,
        count=sum(found.count for found in fields),
        partitions=len(fields),
        known_by=first.known_by,
        ignored_by=tuple(release for release in asked if release in reading and release not in first.known_by),
        owners=None if unlisted else tuple(sorted({name for found in fields for name in found.owners or ()})),
        owners_left_out=sum(found.owners_left_out for found in fields),
        loss=UNKNOWN_LOSS
        if first.name is None
        else _LOSSES.get((_SAME_AS.get(record, record), first.name), UNSAID_LOSS),
    )


def dropped_tag_findings(
    scan: ScanResult | None, catalogue: Catalogue, releases: Iterable[Release]
) -> tuple[Finding, ...]:
    """Return a warning for each tagged field that a release of the path drops although current records have it."""
    if scan is None:
        return ()
    return tuple(
        DROPPED.found(
            f"{release}, {tag.record} {tag.name or f'tag {tag.tag}'}",
            f"Kafka {release} loads {tag.record} records and ignores their field {tag.name or f'with tag {tag.tag}'}: "
            f"{_users(tag)}. {tag.loss}",
            _remedy(tag),
        )
        for release in releases
        for tag in ignored_tags(scan, catalogue, [release])
        if (tag.record, tag.name) not in _RECOMPUTED and (tag.owners is None or tag.owners)
    )


def _users(tag: IgnoredTag) -> str:
    if tag.owners is None:
        return f"{count(tag.count, 'record')} in {count(tag.partitions, 'partition')} of {tag.topic}"
    kind = "transactional id" if tag.topic == TRANSACTIONS_TOPIC else "group"
    return f"{count(len(tag.owners) + tag.owners_left_out, kind)} ({few(tag.owners, limit=OWNERS_OF_TAG)})"


def _remedy(tag: IgnoredTag) -> str:
    known = f"Choose a release that reads the field ({few(tag.known_by)}), or approve" if tag.known_by else "Approve"
    restart = (
        " Restart the producers of these transactional ids after the downgrade: initTransactions() writes a new record."
    )
    return f"{known} the plan only if this loss is acceptable.{restart if tag.topic == TRANSACTIONS_TOPIC else ''}"
