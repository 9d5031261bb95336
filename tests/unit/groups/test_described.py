from __future__ import annotations

from typing import Any

import pytest

from kafka_rollout.coordinator_logs.contents import StateRecord
from kafka_rollout.groups.group_records import logged_members, with_records
from kafka_rollout.model.groups import DescribedGroup, GroupMember


def record(name: str, key: dict[str, Any], value: dict[str, Any] | None) -> StateRecord:
    return StateRecord(topic="__consumer_offsets", partition=0, record=name, key=key, value=value, offset=1)


def member_record(member: str, assignors: list[str] | None, server: str | None = None) -> StateRecord:
    classic = None if assignors is None else {"SupportedProtocols": [{"Name": name} for name in assignors]}
    value = {"ServerAssignor": server, "ClassicMemberMetadata": classic}
    return record("ConsumerGroupMemberMetadata", {"GroupId": "g", "MemberId": member}, value)


CLASSIC_GROUP = record("GroupMetadata", {"group": "g"}, {"protocol": "range", "members": [{"memberId": "m"}]})


def test_a_classic_group_is_recorded_with_the_selected_assignor_alone() -> None:
    told = logged_members([CLASSIC_GROUP])["g"]["m"]
    assert (told.assignors, told.all_assignors_known) == (("range",), False)


@pytest.mark.parametrize(
    ("records", "assignors"),
    [
        ([member_record("m", ["range", "cooperative-sticky"])], ("range", "cooperative-sticky")),
        ([member_record("m", None, "uniform")], ("uniform",)),
        ([member_record("m", None)], ()),
    ],
)
def test_a_member_of_a_consumer_group_is_recorded_with_all_that_it_has(
    records: list[StateRecord], assignors: tuple[str, ...]
) -> None:
    told = logged_members(records)["g"]["m"]
    assert (told.assignors, told.all_assignors_known) == (assignors, True)


def test_a_tombstone_tells_nothing() -> None:
    assert logged_members([record("GroupMetadata", {"group": "g"}, None)]) == {}


def test_what_the_log_knows_of_a_member_is_added_to_what_its_coordinator_says() -> None:
    members = tuple(GroupMember(client_id="app", host="/h", member_id=name, assignors=("range",)) for name in "mn")
    group = DescribedGroup(group_id="g", type="consumer", state="Stable", members=members)
    known, other = with_records([group], [member_record("m", ["range", "sticky"])])[0].members
    assert (known.assignors, known.all_assignors_known) == (("range", "sticky"), True)
    assert (other.assignors, other.all_assignors_known) == (("range",), False)


@pytest.mark.parametrize(
    ("group_id", "protocol_type", "said"),
    [
        ("connect-cluster", "connect", "workers"),
        ("connect-sink", "consumer", "set in the Connect workers"),
        ("a", "consumer", ""),
    ],
)
def test_connects_groups_are_named(group_id: str, protocol_type: str, said: str) -> None:
    group = DescribedGroup(group_id=group_id, type="classic", state="Stable", protocol_type=protocol_type)
    assert said in group.connect
    assert bool(said) is bool(group.connect)
