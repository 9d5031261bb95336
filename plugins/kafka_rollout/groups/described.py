"""Groups with their members, from the coordinators' descriptions and from the coordinator logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka_rollout.coordinator_logs.contents import GROUP_METADATA, StateRecord, camel_fields

Partition = tuple[str, int]

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
CONNECT = "connect"  # protocol type of the groups that Connect workers form
SINK_PREFIX = "connect-"  # group name prefix of sink connectors

_EMPTY = frozenset({"empty", "dead"})
_REBALANCING = frozenset({"preparingrebalance", "completingrebalance"})
_MEMBER_METADATA = "ConsumerGroupMemberMetadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """One member. `uses_classic`: it uses the classic protocol, possibly in a group of type consumer.

    `assignors`: its known assignors in order of preference. A coordinator reports only the selected one, so there can
    be others unless `all_assignors_known`. `kept_partitions`: it joined the last rebalance while it owned partitions,
    so it is cooperative; False proves nothing. `assigned`: its current partitions.
    """

    client_id: str
    host: str
    member_id: str = ""
    instance_id: str | None = None
    uses_classic: bool = True
    assignors: tuple[str, ...] = ()
    all_assignors_known: bool = False
    kept_partitions: bool = False
    assigned: tuple[Partition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """One group. `type`: classic, consumer, share or streams, as in Kafka. `assignor`: the selected one; empty without
    members.

    `epoch`: only for groups of the newer types; the generation of a classic group is only in the coordinator log.
    `lag`: records after the committed offsets; None if it was not queried or not reported. `problem`: the reason why
    the coordinator did not describe the group.
    """

    group_id: str
    type: str
    state: str
    protocol_type: str = ""
    assignor: str = ""
    members: tuple[GroupMember, ...] = ()
    epoch: int | None = None
    lag: int | None = None
    problem: str = ""

    @property
    def is_empty(self) -> bool:
        return not self.members and self.state.lower() in _EMPTY

    @property
    def is_rebalancing(self) -> bool:
        """A classic group during a rebalance. No coordinator reports its assignor or its assignment then."""
        return self.state.lower() in _REBALANCING

    @property
    def static_members(self) -> tuple[str, ...]:
        return tuple(sorted(member.instance_id for member in self.members if member.instance_id))

    @property
    def connect(self) -> str:
        """Its role in Kafka Connect; empty if none. The group of a sink is detected by its name prefix only."""
        if self.protocol_type == CONNECT:
            return "Connect workers"
        if self.group_id.startswith(SINK_PREFIX):
            return "consumers of a sink connector: their assignor is set in the Connect workers, not in an application"
        return ""


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
