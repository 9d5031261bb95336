"""Tagged fields that releases pass over (KIP-482, KIP-915): a log that loads may still lose what they say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka_rollout.domain.coordinator_logs.incompatible_records import facts_of_type
from kafka_rollout.domain.coordinator_logs.scan import ScanResult, TaggedFields
from kafka_rollout.domain.model.releases import Catalogue, Release


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredTag:
    """One tagged field, over all partitions, and the releases that load its records and pass it over.

    `name`: None if no release of the catalogue knows the tag. `loss`: what ignoring it loses, with its source.
    """

    topic: str
    record: str
    value_version: int
    path: str
    tag: int
    name: str | None
    count: int
    partitions: int
    known_by: tuple[Release, ...]
    ignored_by: tuple[Release, ...]
    loss: str


UNKNOWN_LOSS = "Unknown to every release of the catalogue: what it says, and what ignoring it loses, is not known."
UNSAID_LOSS = "The definitions of the releases that know it do not say what ignoring it loses."

# By record and field (in lower camel case). Sources: the KIPs named, the definitions' own words, the issues.
_LOSSES: Mapping[tuple[str, str], str] = {
    ("ConsumerGroupMemberMetadata", "classicMemberMetadata"): (
        "That the member speaks the classic protocol: it was converted on the way (KIP-848) and would be taken for one "
        "of the consumer protocol."
    ),
    ("ConsumerGroupMetadata", "metadataHash"): (
        "The hash by which the coordinator sees that subscribed topics changed (KIP-1101); the release computes its "
        "own."
    ),
    ("OffsetCommit", "topicId"): (
        "Which topic the offset belongs to (KIP-848): after a topic was deleted and made anew under the same name, "
        "the old offset counts for the new topic."
    ),
    ("TransactionLog", "previousProducerId"): (
        "The producer id of the last transaction (KIP-890): a retry after the epoch ran out is answered "
        "PRODUCER_FENCED (KAFKA-20310)."
    ),
    ("TransactionLog", "nextProducerId"): (
        "The producer id handed out next (KIP-890): a transaction that was open when the epoch ran out cannot go on "
        "with the new id (KAFKA-20310)."
    ),
    ("TransactionLog", "clientTransactionVersion"): (
        "The transaction version of the client (KIP-890): the transaction is ended as one of an older client, without "
        "the new epoch that fences late writes."
    ),
    ("ShareSnapshot", "deliveryCompleteCount"): (
        "How many records past the start were delivered for good (KIP-1226): the lag of the share partition is not "
        "known until it is counted anew."
    ),
    ("ConsumerGroupTargetAssignmentMetadata", "assignmentTimestamp"): (
        "When the assignment was computed (KIP-1263): the next one may come before its interval is over."
    ),
    ("ConsumerGroupCurrentMemberAssignment", "assignmentEpochs"): (
        "Since which epoch a member has its partitions (KIP-1251): late commits of members that lost them are fenced "
        "by the member's epoch alone."
    ),
}
_SAME_AS = {
    ("ShareUpdate", "deliveryCompleteCount"): ("ShareSnapshot", "deliveryCompleteCount"),
    ("ShareGroupTargetAssignmentMetadata", "assignmentTimestamp"): (
        "ConsumerGroupTargetAssignmentMetadata",
        "assignmentTimestamp",
    ),
    ("StreamsGroupTargetAssignmentMetadata", "assignmentTimestamp"): (
        "ConsumerGroupTargetAssignmentMetadata",
        "assignmentTimestamp",
    ),
    ("StreamsGroupCurrentMemberAssignment", "assignmentEpochs"): (
        "ConsumerGroupCurrentMemberAssignment",
        "assignmentEpochs",
    ),
}


def ignored_tags(
    scan: ScanResult, catalogue: Catalogue, releases: Iterable[Release] | None = None
) -> tuple[IgnoredTag, ...]:
    """Every tag of the logs that a release (default: of the scan's) passes over though it reads the record."""
    catalogue = catalogue.configured(new_group_coordinator=scan.new_group_coordinator)
    asked = sorted({verdict.release for verdict in scan.verdicts}) if releases is None else list(releases)
    by_tag: defaultdict[tuple[str, int, int, str, int], list[TaggedFields]] = defaultdict(list)
    for found in scan.tagged:
        by_tag[found.topic, found.key_version, found.value_version, found.path, found.tag].append(found)
    tags = (_ignored(catalogue, asked, held) for _, held in sorted(by_tag.items()))
    return tuple(tag for tag in tags if tag.ignored_by)


def _ignored(catalogue: Catalogue, asked: Iterable[Release], held: list[TaggedFields]) -> IgnoredTag:
    first = held[0]
    knowing = facts_of_type(catalogue, first.topic, first.key_version)
    record = knowing[-1][1].name if knowing else f"key version {first.key_version}"
    reading = {release for release, facts in knowing if first.value_version in facts.reads}
    return IgnoredTag(
        topic=first.topic,
        record=record,
        value_version=first.value_version,
        path=first.path,
        tag=first.tag,
        name=first.name,
        count=sum(found.count for found in held),
        partitions=len(held),
        known_by=first.known_by,
        ignored_by=tuple(release for release in asked if release in reading and release not in first.known_by),
        loss=_loss(record, first.name),
    )


def _loss(record: str, name: str | None) -> str:
    if name is None:
        return UNKNOWN_LOSS
    key = (record, name)
    return _LOSSES.get(_SAME_AS.get(key, key), UNSAID_LOSS)
