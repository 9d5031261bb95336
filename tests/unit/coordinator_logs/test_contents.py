"""Groups and transactional ids out of the newest records of their keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_rollout.coordinator_logs import contents as scan_inventory
from kafka_rollout.coordinator_logs.contents import (
    GroupCount,
    GroupSummary,
    StateRecord,
    TransactionalIdSummary,
    take_inventory,
)

MEMBER = {"ServerAssignor": None, "ClassicMemberMetadata": None}


def record(name: str, key: Mapping[str, Any], value: Mapping[str, Any] | None, *, partition: int = 3) -> StateRecord:
    return StateRecord(topic="t", partition=partition, record=name, key=key, value=value, offset=1)


def classic(name: str, members: int) -> StateRecord:
    value = {"protocolType": "consumer", "protocol": "range", "members": [{"memberId": str(n)} for n in range(members)]}
    return record("GroupMetadata", {"group": name}, value if members else {**value, "protocol": None})


def modern(
    kind: str,
    *,
    epoch: int,
    target: int,
    members: Mapping[str, Mapping[str, Any]],
    member_epoch: int = 0,
    state: int = 0,
) -> list[StateRecord]:
    key = {"GroupId": "g"}
    made = [
        record(f"{kind}GroupMetadata", key, {"Epoch": epoch}),
        record(f"{kind}GroupTargetAssignmentMetadata", key, {"AssignmentEpoch": target}),
    ]
    for member, metadata in members.items():
        member_key = {**key, "MemberId": member}
        made.append(record(f"{kind}GroupMemberMetadata", member_key, metadata))
        current = {"MemberEpoch": member_epoch, "State": state}
        made.append(record(f"{kind}GroupCurrentMemberAssignment", member_key, current))
    return made


def only_group(records: list[StateRecord]) -> GroupSummary:
    (group,) = take_inventory(records).groups
    return group


def test_a_classic_group_is_stable_with_members_and_empty_without() -> None:
    inventory = take_inventory([classic("b", 2), classic("a", 0)])
    assert [(g.name, g.state, g.members, g.assignor) for g in inventory.groups] == [
        ("a", "Empty", 0, None),
        ("b", "Stable", 2, "range"),
    ]
    assert inventory.group_counts == (
        GroupCount(type="classic", state="Empty", groups=1, members=0),
        GroupCount(type="classic", state="Stable", groups=1, members=2),
    )


def test_a_deleted_group_is_not_listed() -> None:
    assert take_inventory([record("GroupMetadata", {"group": "gone"}, None)]).groups == ()


def test_a_group_that_only_committed_offsets_is_an_empty_classic_one() -> None:
    records = [classic("described", 2), record("GroupMetadata", {"group": "deleted"}, None)]
    inventory = take_inventory(records, {"orders": 9}, {"described": 3, "deleted": 3, "simple": 7})
    assert [group for group in inventory.groups if group.offsets_only] == [
        GroupSummary(name="deleted", type="classic", state="Empty", members=0, partition=3, offsets_only=True),
        GroupSummary(name="simple", type="classic", state="Empty", members=0, partition=7, offsets_only=True),
    ]
    assert sum(counted.groups for counted in inventory.group_counts) == 3


def test_a_consumer_group_goes_from_assigning_over_reconciling_to_stable() -> None:
    one = {"m": MEMBER}
    assert only_group(modern("Consumer", epoch=3, target=2, members=one)).state == "Assigning"
    assert only_group(modern("Consumer", epoch=3, target=3, members=one, member_epoch=2)).state == "Reconciling"
    assert (
        only_group(modern("Consumer", epoch=3, target=3, members=one, member_epoch=3, state=1)).state == "Reconciling"
    )
    assert only_group(modern("Consumer", epoch=3, target=3, members=one, member_epoch=3)).state == "Stable"
    assert only_group(modern("Consumer", epoch=3, target=3, members={})).state == "Empty"


def test_members_that_still_speak_the_classic_protocol_are_counted() -> None:
    members = {"new": {**MEMBER, "ServerAssignor": "uniform"}, "old": {**MEMBER, "ClassicMemberMetadata": {}}}
    group = only_group(modern("Consumer", epoch=1, target=1, members=members, member_epoch=1))
    assert (group.type, group.members, group.classic_members, group.assignor) == ("consumer", 2, 1, "uniform")


def test_a_streams_group_without_its_topology_is_not_ready() -> None:
    records = modern("Streams", epoch=1, target=1, members={"m": {}}, member_epoch=1)
    assert only_group(records).state == "NotReady"
    records.append(record("StreamsGroupTopology", {"GroupId": "g"}, {"Epoch": 1}))
    assert only_group(records).state == "Stable"


def test_a_share_group_has_the_share_partitions_whose_state_is_kept() -> None:
    snapshots = [
        record("ShareSnapshot", {"GroupId": "g", "TopicId": "t", "Partition": n}, {"StateBatches": []})
        for n in range(2)
    ]
    group = only_group([*snapshots, *modern("Share", epoch=1, target=0, members={"m": {}})])
    assert (group.type, group.state, group.share_partitions) == ("share", "Stable", 2)


def test_a_transactional_id_has_the_state_and_partitions_of_its_newest_record() -> None:
    def transaction(name: str, status: int, topics: list[dict[str, Any]] | None) -> StateRecord:
        value = {
            "TransactionStatus": status,
            "TransactionPartitions": topics,
            "TransactionLastUpdateTimestampMs": 77,
        }
        return record("TransactionLog", {"TransactionalId": name}, value)

    topics = [{"Topic": "a", "PartitionIds": [0, 1]}, {"Topic": "b", "PartitionIds": [5]}]
    inventory = take_inventory([transaction("two", 4, None), transaction("one", 1, topics), transaction("x", 42, [])])
    assert inventory.transactional_ids[0] == TransactionalIdSummary(
        name="one", state="Ongoing", partition=3, partitions=3, updated_at=77
    )
    assert inventory.transactional_id_counts == {"CompleteCommit": 1, "Ongoing": 1, "unknown (42)": 1}


def test_a_shortened_inventory_lists_only_some_groups_and_counts_all(monkeypatch: Any) -> None:
    inventory = take_inventory([classic("a", 0), classic("b", 2), classic("c", 1)], {"orders": 5})
    assert inventory.shortened().commits == {"orders": 5}
    monkeypatch.setattr(scan_inventory, "LISTED", 2)
    cut = inventory.shortened()
    assert [group.name for group in cut.groups] == ["b", "c"]
    assert (cut.groups_left_out, sum(count.groups for count in cut.group_counts)) == (1, 3)
