"""Groups with their members, from the coordinators' descriptions and from the coordinator logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka_rollout.coordinator_logs.contents import GROUP_METADATA, StateRecord, camel_fields
from kafka_rollout.model.groups import DescribedGroup, GroupMember

_MEMBER_METADATA = "ConsumerGroupMemberMetadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedMember:
    """A member as recorded in the coordinator log."""

    assignors: tuple[str, ...]
    all_assignors_known: bool


def logged_members(records: Iterable[StateRecord]) -> dict[str, dict[str, LoggedMember]]:
    """Return group id → member id → member, from the newest record of each key.

    The record of a classic group contains only the selected assignor. A classic member of a consumer group (during a
    conversion) is recorded with all its assignors, and a member of the new protocol with its requested server assignor.
    """
    found: dict[str, dict[str, LoggedMember]] = {}
    for record in records:
        if record.value is None:
            continue
        if record.record == GROUP_METADATA:
            selected = tuple(filter(None, [record.value["protocol"]]))
            for member in record.value["members"]:
                logged = LoggedMember(assignors=selected, all_assignors_known=False)
                found.setdefault(record.key["group"], {})[member["memberId"]] = logged
        elif record.record == _MEMBER_METADATA:
            key = camel_fields(record.key)
            found.setdefault(key["groupId"], {})[key["memberId"]] = _of_consumer_group(camel_fields(record.value))
    return found


def _of_consumer_group(value: Mapping[str, Any]) -> LoggedMember:
    classic = value.get("classicMemberMetadata")
    if classic is not None:
        names = tuple(camel_fields(protocol)["name"] for protocol in camel_fields(classic)["supportedProtocols"])
        return LoggedMember(assignors=names, all_assignors_known=True)
    asked = value["serverAssignor"]
    return LoggedMember(assignors=(asked,) if asked else (), all_assignors_known=True)


def with_records(groups: Iterable[DescribedGroup], records: Iterable[StateRecord]) -> tuple[DescribedGroup, ...]:
    """Return the same groups with the assignors of their members that only the coordinator logs contain."""
    logged = logged_members(records)
    return tuple(
        replace(group, members=tuple(_with_record(member, logged.get(group.group_id, {})) for member in group.members))
        for group in groups
    )


def _with_record(member: GroupMember, logged: Mapping[str, LoggedMember]) -> GroupMember:
    known = logged.get(member.member_id)
    if known is None or not known.all_assignors_known:
        return member
    return replace(member, assignors=known.assignors, all_assignors_known=True)
