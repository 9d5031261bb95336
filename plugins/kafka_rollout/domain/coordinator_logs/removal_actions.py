"""What ends the records of one family, and what only another release can end.

Sources: KIP-848 (conversion, and its notes on downgrades), KIP-932, KIP-1071, KIP-890, and GroupMetadataManager of
4.3.1 (`classicGroupJoin`, `convertToClassicGroup`, `maybeDeleteEmptyConsumerGroup`, `maybeDeleteEmptyStreamsGroup`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_rollout.domain.coordinator_logs.incompatible_records import Family, IncompatibleRecords, facts_of_type
from kafka_rollout.domain.model.releases import Catalogue, RecordTypeFacts, Release
from kafka_rollout.domain.model.wording import few


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalAction:
    """How records are ended. `through_releases`: by way of which alone it goes; empty: on the release that runs."""

    title: str
    sentence: str
    through_releases: tuple[Release, ...] = ()


_CONSUMER_GROUPS = RemovalAction(
    title="Take the consumers back first: convert these groups to the classic protocol, or delete them",
    sentence=(
        "Restart their members one by one with group.protocol=classic. When the last one has moved, the coordinator "
        "turns the group into a classic one and writes tombstones for its newer records; its committed offsets stay "
        "(needs group.consumer.migration.policy bidirectional, the default of 4.x, or downgrade). An empty group is "
        "turned when a classic member joins it, or goes with `kafka-consumer-groups.sh --delete`, its offsets with it."
    ),
)
_STREAMS_GROUPS = RemovalAction(
    title="Close these streams applications, then start them with group.protocol=classic, or delete the groups",
    sentence=(
        "A streams group with members cannot be converted. An empty one is turned into a classic group when a classic "
        "member joins it, which writes tombstones for its newer records, or goes with "
        "`kafka-streams-groups.sh --delete`, its offsets with it."
    ),
)
_SHARE_GROUPS = RemovalAction(
    title="Stop the members of these share groups and delete the groups",
    sentence=(
        "A share group has no classic form: `kafka-share-groups.sh --delete` writes tombstones for its records. What "
        "it had delivered and what was acknowledged is forgotten."
    ),
)
_LOG_ENDS = RemovalAction(
    title="Let a record that the release knows follow in these partitions",
    sentence=(
        "The release passes over records of types that it does not know, but where they end a partition of the "
        "transactions' log it reads them again and again and never finishes loading. Let a transactional id of each of "
        "these partitions begin anew, right before a broker of the release leads it, and scan again."
    ),
)
_OPEN_TRANSACTIONS = RemovalAction(
    title="Let the transactions end that commit offsets for these deleted groups",
    sentence=(
        "Each group was deleted while a transaction had committed offsets for it. The release complains of it when it "
        "has loaded the partition, and serves the partition all the same, with the group as an empty one. Let its "
        "producer commit or abort, or stop it: the coordinator aborts what is open for longer than the producer's "
        "transaction.timeout.ms (1 minute by default). A transaction that no coordinator knows any more hangs: "
        "`kafka-transactions.sh find-hanging --topic __consumer_offsets --partition N` names it, "
        "`kafka-transactions.sh abort` ends it. Then scan again. No cleaner is waited for."
    ),
)
_OUT_OF_ORDER = RemovalAction(
    title="Delete these groups, or go by way of a release that takes their records in this order",
    sentence=(
        "The cleaner kept an old record of each, most often a committed offset, and removed what lay before it; the "
        "release then takes the group's newer records for another group's (KAFKA-20254). Close the members and delete "
        "the group, its offsets with it: note them first, and set them again when it has begun anew. As long as the "
        "group lives, any rebalance and the next pass of the cleaner may bring such an order again."
    ),
)
_SHADOWED_BY: Mapping[Family, str] = {
    Family.OFFSETS: "let every group commit all its offsets anew",
    Family.TRANSACTIONAL_IDS: "let every transactional id begin anew or expire",
    Family.CLASSIC_GROUPS: "let every group rebalance",
}


def choose_removal_action(
    catalogue: Catalogue, release: Release, family: Family, offence: IncompatibleRecords
) -> RemovalAction:
    """How the live records of an offence are ended, so that `release` could load the log."""
    if family is Family.CONSUMER_GROUPS:
        return _CONSUMER_GROUPS
    if family is Family.STREAMS_GROUPS:
        return _STREAMS_GROUPS
    if family is Family.SHARE_GROUPS:
        return _SHARE_GROUPS
    if family is Family.LOG_ENDS:
        return _LOG_ENDS
    if family is Family.OPEN_TRANSACTIONS:
        return _OPEN_TRANSACTIONS
    if family is Family.OUT_OF_ORDER:
        return _OUT_OF_ORDER
    if offence.unreadable:
        return RemovalAction(
            title=f"Replace the unreadable records: {offence.title}",
            sentence=(
                "No coordinator of the catalogue's releases wrote them. Keep a copy of the partition's directory, then "
                "let newer records shadow them: commit the offset again, let the group rebalance or the transactional "
                "id begin anew, or delete the group. A key that cannot be read is shadowed by nothing."
            ),
        )
    if family is Family.UNKNOWN or offence.key_version is None or offence.value_version is None:
        return RemovalAction(
            title=f"Find out what wrote the records of key version {offence.key_version}",
            sentence=(
                "No release of the catalogue knows this type. A newer Kafka or another program wrote it; only that can "
                "write the tombstones after which the cleaner removes them."
            ),
        )
    return _newer_value(
        facts_of_type(catalogue, offence.topic, offence.key_version),
        release,
        family,
        what=f"{offence.record} {offence.value_version}",
        value_version=offence.value_version,
    )


def _newer_value(
    known: Sequence[tuple[Release, RecordTypeFacts]], release: Release, family: Family, *, what: str, value_version: int
) -> RemovalAction:
    """For a type that the release knows with a value that is too new.

    A value version bound to a feature level ends with that level; one that a release writes always ends only on
    another release.
    """
    reads = next((facts.reads for known_to, facts in known if known_to == release), None)
    writers = [(writer, facts) for writer, facts in known if value_version in facts.writes]
    always = [writer for writer, facts in writers if value_version not in facts.written_from]
    through = tuple(
        other
        for other, facts in known
        if reads is not None
        and value_version in facts.reads
        and facts.writes
        and all(version in reads for version in facts.writes if version not in facts.written_from)
    )
    shadow = _SHADOWED_BY[family]
    if writers and not always:
        level = writers[-1][1].written_from[value_version]
        return RemovalAction(
            title=f"Lower {level.feature} below {level.level}, then {shadow}",
            sentence=f"{what} is written only from {level.feature} {level.level} on.{_LOWERING.get(family, '')}",
        )
    if not through:
        return RemovalAction(
            title=f"Let newer records shadow {what}",
            sentence=(
                f"No release of the catalogue both reads {what} and writes what {release} reads: {shadow} with what "
                "wrote it, in an older version."
            ),
        )
    if not writers:
        return RemovalAction(
            title=f"On {few(through, limit=9)}, {shadow}",
            sentence=f"No release of the catalogue writes {what}; these read it and write what {release} reads.",
        )
    return RemovalAction(
        title=f"Go back by way of {few(through, limit=9)} and {shadow} there",
        sentence=(
            f"{few(always, limit=9)} always write {what}, whatever the feature levels: no conversion helps as long as "
            f"one of them runs. The releases named read it and write a version that {release} reads. Do what is to be "
            "done with groups before, for a release that does not know a type writes no tombstones for it (KIP-915); "
            f"then roll to one of these releases, {shadow}, and wait there for the cleaner before going on to "
            f"{release}. The other way is to restore: records written back at the highest version that is not "
            "flexible, as KIP-915 prescribes (`write_back` in wire/coordinator_records)."
        ),
        through_releases=through,
    )


_LOWERING: Mapping[Family, str] = {
    Family.TRANSACTIONAL_IDS: (
        " Commit or abort what is open and stop the producers first: lowering it under running producers ends them "
        "with a fatal error. A producer that starts again writes its id's record anew in the older version; an id "
        "that is not used goes after transactional.id.expiration.ms (7 days by default)."
    )
}
