"""Removal actions for the records of one family, and the releases that are needed for them.

Sources: KIP-848 (conversion, and its notes on downgrades), KIP-932, KIP-1071, KIP-890, and GroupMetadataManager of
4.3.1 (`classicGroupJoin`, `convertToClassicGroup`, `maybeDeleteEmptyConsumerGroup`, `maybeDeleteEmptyStreamsGroup`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_rollout.base.wording import few
from kafka_rollout.coordinator_logs.incompatible_records import Family, IncompatibleRecords, facts_of_type
from kafka_rollout.releases.facts import Catalogue, RecordTypeFacts, Release, newest_patches


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalAction:
    """How to remove records. `through_releases`: possible only through one of these; empty: on the running release."""

    title: str
    sentence: str
    through_releases: tuple[Release, ...] = ()


# Families with one removal action for all record kinds. In other families each kind has its own action.
ONE_ACTION: Mapping[Family, RemovalAction] = {
    Family.CONSUMER_GROUPS: RemovalAction(
        title="First convert these groups to the classic protocol, or delete them",
        sentence=(
            "Restart their members one by one with group.protocol=classic. When the last member has restarted, "
            "the coordinator converts the group to a classic group and writes tombstones for its newer records. "
            "Its committed offsets stay. This needs group.consumer.migration.policy bidirectional (the default "
            "of 4.x) or downgrade. An empty group is converted when a classic member joins it. Or delete it with "
            "`kafka-consumer-groups.sh --delete`, which also deletes its offsets."
        ),
    ),
    Family.STREAMS_GROUPS: RemovalAction(
        title="Stop these streams applications and start them with group.protocol=classic, or delete the groups",
        sentence=(
            "A streams group with members cannot be converted. An empty one is converted when a classic member "
            "joins it, which writes tombstones for its newer records. Or delete it with `kafka-streams-groups.sh "
            "--delete`, which also deletes its offsets."
        ),
    ),
    Family.SHARE_GROUPS: RemovalAction(
        title="Stop the members of these share groups and delete the groups",
        sentence=(
            "A share group cannot be converted. `kafka-share-groups.sh --delete` writes tombstones for its "
            "records. Kafka then forgets which records were delivered and acknowledged."
        ),
    ),
    Family.LOG_ENDS: RemovalAction(
        title="Restart one transactional producer per partition: initTransactions() writes a new record",
        sentence=(
            "The release skips records of unknown types. If such records are the last in a `__transaction_state` "
            "partition, the coordinator reads them in an endless loop and never finishes loading. Restart one "
            "transactional producer for each of these partitions, immediately before a broker of the release "
            "leads the partition. Then scan again."
        ),
    ),
    Family.OPEN_TRANSACTIONS: RemovalAction(
        title="End the transactions that commit offsets for these deleted groups",
        sentence=(
            "Each group was deleted while a transaction had committed offsets for it. The release logs a load "
            "error after it has loaded the partition, and serves the partition with an empty group. Let the "
            "producer commit or abort, or stop it. The coordinator aborts a transaction that is open for longer "
            "than transaction.timeout.ms of the producer (1 minute by default). A transaction that no "
            "coordinator knows is hanging: list it with `kafka-transactions.sh find-hanging --topic "
            "__consumer_offsets --partition N` and end it with `kafka-transactions.sh abort`. Then scan again. "
            "You do not need to wait for the log cleaner."
        ),
    ),
    Family.OUT_OF_ORDER: RemovalAction(
        title="Delete these groups, or use a release that accepts this record order",
        sentence=(
            "The log cleaner kept an old record of each group, usually a committed offset, and removed the "
            "records before it. The release then assigns newer records to a wrong group type (KAFKA-20254). Save "
            "the committed offsets. Stop the members and delete the group, which also deletes its offsets. "
            "Restore the offsets after the group exists again. While the group exists, each rebalance followed "
            "by a cleaning pass can create this order again."
        ),
    ),
}
_SHADOWED_BY: Mapping[Family, str] = {
    Family.OFFSETS: "let every group commit all its offsets again",
    Family.TRANSACTIONAL_IDS: "restart the producer of every transactional id, or let the id expire",
    Family.CLASSIC_GROUPS: "let every group rebalance",
}


def choose_removal_action(
    catalogue: Catalogue, release: Release, family: Family, found: IncompatibleRecords
) -> RemovalAction:
    """Return how to remove the current records so that `release` can load the log."""
    if family in ONE_ACTION:
        return ONE_ACTION[family]
    if found.unreadable:
        return RemovalAction(
            title=f"Replace the unreadable records: {found.title}",
            sentence=(
                "No release of the catalogue wrote them. Copy the directory of the partition. Then supersede "
                "them with newer records: commit the offset again, let the group rebalance, restart the "
                "transactional producer, or delete the group. A record with an unreadable key cannot be "
                "superseded."
            ),
        )
    if family is Family.UNKNOWN or found.key_version is None or found.value_version is None:
        return RemovalAction(
            title=f"Find the writer of the records of key version {found.key_version}",
            sentence=(
                "No release of the catalogue knows this type. A newer Kafka release or another program wrote "
                "it. Only that writer can write the tombstones that let the log cleaner remove them."
            ),
        )
    return _newer_value(
        facts_of_type(catalogue, found.topic, found.key_version),
        release,
        family,
        what=f"{found.record} {found.value_version}",
        value_version=found.value_version,
    )


def _newer_value(
    known: Sequence[tuple[Release, RecordTypeFacts]], release: Release, family: Family, *, what: str, value_version: int
) -> RemovalAction:
    """Return the action for a known record type with a value version that is too new.

    A value version that depends on a feature level is no longer written below that level. A version that a release
    always writes can be removed only through another release.
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
            sentence=f"{what} is written only from {level.feature} {level.level}.{_LOWERING.get(family, '')}",
        )
    if not through:
        return RemovalAction(
            title=f"Supersede {what} with newer records",
            sentence=(
                f"No release of the catalogue both reads {what} and writes a version that {release} reads. To "
                f"remove the records, {shadow}, with an older version of the writer."
            ),
        )
    if not writers:
        return RemovalAction(
            title=f"On {few(newest_patches(through), limit=9)}, {shadow}",
            sentence=(
                f"No release of the catalogue writes {what}. These releases read it and write a version that "
                f"{release} reads."
            ),
        )
    return RemovalAction(
        title=f"Downgrade through {few(newest_patches(through), limit=9)} and {shadow} there",
        sentence=(
            f"{few(newest_patches(always), limit=9)} and their earlier patch releases always write {what}, whatever "
            "the feature levels. No conversion helps "
            f"while one of them runs. The listed releases read it and write a version that {release} reads. "
            "First do the actions for groups, because a release writes no tombstones for types that it does "
            f"not know (KIP-915). Then downgrade to one of the listed releases and {shadow}. Wait for the log "
            f"cleaner there, then continue to {release}."
        ),
        through_releases=through,
    )


_LOWERING: Mapping[Family, str] = {
    Family.TRANSACTIONAL_IDS: (
        " First commit or abort the open transactions and stop the producers: lowering the level causes a "
        "fatal error in running producers. A restarted producer writes the record of its id in the older "
        "version. The coordinator removes an unused id after transactional.id.expiration.ms (7 days by "
        "default)."
    )
}
