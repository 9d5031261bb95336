"""Groups with their members, as the coordinators describe them, and what only the coordinator logs tell of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka_rollout.domain.coordinator_logs.contents import GROUP_METADATA, StateRecord, camel_fields

Partition = tuple[str, int]

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
CONNECT = "connect"  # protocol type of the groups in which Connect's workers find each other
SINK_PREFIX = "connect-"  # of the groups of its sink connectors

_EMPTY = frozenset({"empty", "dead"})
_REBALANCING = frozenset({"preparingrebalance", "completingrebalance"})
_MEMBER_METADATA = "ConsumerGroupMemberMetadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """`uses_classic`: it speaks the classic protocol, also where the group is of type consumer already.

    `assignors`: those it is known to have, its favourite first; a coordinator tells the selected one alone, so there
    may be others unless `all_assignors_known`. `kept_partitions`: it joined the last rebalance with partitions in its
    hands, so it is cooperative; False proves nothing. `assigned`: what it has now.
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
    """`type` is Kafka's: classic, consumer, share, streams; `assignor` the one in use, empty without members.

    `epoch`: of a group of the newer types; a classic group's generation is told by the coordinator log alone.
    `lag`: records behind the committed offsets, None where nobody asked or could say. `problem`: why the coordinator
    did not describe it.
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
        """A classic group between two generations: no coordinator tells its assignor or who has what."""
        return self.state.lower() in _REBALANCING

    @property
    def static_members(self) -> tuple[str, ...]:
        return tuple(sorted(member.instance_id for member in self.members if member.instance_id))

    @property
    def connect(self) -> str:
        """What it is to Kafka Connect; empty if nothing. A sink's group is known by its name's prefix alone."""
        if self.protocol_type == CONNECT:
            return "Connect's workers"
        if self.group_id.startswith(SINK_PREFIX):
            return "a sink connector's consumers: their assignor is set in the workers, not in an application"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedMember:
    """A member by the coordinator log's records."""

    assignors: tuple[str, ...]
    all_assignors_known: bool


def logged_members(records: Iterable[StateRecord]) -> dict[str, dict[str, LoggedMember]]:
    """By group and member id, of the newest record of each key.

    A classic group's record holds the selected assignor only. A classic member of a consumer group (a conversion under
    way) is recorded with all that it has, and a member of the new protocol with the server's that it asked for.
    """
    found: dict[str, dict[str, LoggedMember]] = {}
    for record in records:
        if record.value is None:
            continue
        if record.record == GROUP_METADATA:
            selected = tuple(filter(None, [record.value["protocol"]]))
            for member in record.value["members"]:
                told = LoggedMember(assignors=selected, all_assignors_known=False)
                found.setdefault(record.key["group"], {})[member["memberId"]] = told
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
    """The same groups, with the assignors of their members that only the coordinator logs tell."""
    logged = logged_members(records)
    return tuple(
        replace(group, members=tuple(_told(member, logged.get(group.group_id, {})) for member in group.members))
        for group in groups
    )


def _told(member: GroupMember, logged: Mapping[str, LoggedMember]) -> GroupMember:
    known = logged.get(member.member_id)
    if known is None or not known.all_assignors_known:
        return member
    return replace(member, assignors=known.assignors, all_assignors_known=True)
