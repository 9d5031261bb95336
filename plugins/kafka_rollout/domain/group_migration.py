"""How a group of consumers gets to another protocol: steps, bounces, what blocks it.

Sources: KIP-429 (two bounces for released consumers), KAFKA-12477 (one for DynamicProtocolConsumer), KIP-848 and
GroupMetadataManager of 4.x (validateOnlineUpgrade, validateOnlineDowngrade…) for the consumer protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.domain.findings import Finding, Severity
from kafka_rollout.domain.rebalance.protocols import COOPERATIVE_STICKY

GROUP_VERSION = "group.version"
MIGRATION_POLICY = "group.consumer.migration.policy"
_EMPTY = frozenset({"empty", "dead"})
_STREAMS_ASSIGNOR = "stream"
_SINK_PREFIX = "connect-"


class Goal(StrEnum):
    COOPERATIVE = "cooperative"  # classic, incremental rebalances (KIP-429)
    CONSUMER = "consumer"  # the consumer protocol (KIP-848)
    CLASSIC = "classic"  # away from the newer types, as before group.version goes down


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """`uses_classic`: it speaks the classic protocol, also where the group is of type consumer already."""

    client_id: str
    host: str
    instance_id: str | None = None
    uses_classic: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """`type` is Kafka's: classic, consumer, share, streams; `assignor` the one in use, empty without members.

    Brokers tell the selected assignor alone; which others a member has, nobody can see from outside.
    """

    group_id: str
    type: str
    state: str
    protocol_type: str = ""
    assignor: str = ""
    members: tuple[GroupMember, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.members and self.state.lower() in _EMPTY

    @property
    def static_members(self) -> tuple[str, ...]:
        return tuple(sorted(member.instance_id for member in self.members if member.instance_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What brokers allow. `policies`: group.consumer.migration.policy by node id; None where a node tells none."""

    group_version: int
    policies: Mapping[int, str | None]

    def allows(self, direction: str) -> bool:
        """Whether all brokers convert groups with members in them, `direction` being upgrade or downgrade."""
        return bool(self.policies) and all(
            (policy or "").lower() in (direction, "bidirectional") for policy in self.policies.values()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """`bounces`: rolling restarts of all members, None where they have to stop together or nothing leads there."""

    group: DescribedGroup
    bounces: int | None
    steps: tuple[str, ...]
    finding: Finding | None = None


def plan_groups(groups: Iterable[DescribedGroup], goal: Goal, facts: ClusterFacts) -> tuple[GroupPlan, ...]:
    """A plan for each group, in the order in which to carry them out.

    On the way back, groups with members come first: their conversion writes the tombstones of the newer records, and
    only then may group.version go down ("consumers are downgraded first", KIP-848).
    """
    way = {Goal.COOPERATIVE: _to_cooperative, Goal.CONSUMER: _to_consumer, Goal.CLASSIC: _to_classic}[goal]
    plans = [way(group, facts) for group in groups]
    return tuple(sorted(plans, key=lambda plan: (not plan.steps, plan.group.is_empty, plan.group.group_id)))


def _to_cooperative(group: DescribedGroup, facts: ClusterFacts) -> GroupPlan:
    if group.type != "classic" or group.is_empty or group.assignor == _STREAMS_ASSIGNOR:
        return _done(group)  # the newer types rebalance incrementally, and so does Streams' own assignor since 2.4
    if group.protocol_type == "connect":
        if group.assignor != "default":
            return _done(group)
        return GroupPlan(
            group=group, bounces=1, steps=("Set connect.protocol=sessioned in the workers and restart one by one.",)
        )
    if group.protocol_type != "consumer":
        return _blocked(group, f"its members speak {group.protocol_type or 'an unknown protocol'}, no consumers'")
    if group.assignor == COOPERATIVE_STICKY.name:
        return _done(group)
    if group.group_id.startswith(_SINK_PREFIX):
        where = "the workers' consumer.partition.assignment.strategy (or the connector's consumer.override.…)"
        steps = (
            f"Set {where} to cooperative-sticky,{group.assignor}; restart the workers one by one.",
            f"Set {where} to cooperative-sticky alone; restart the workers one by one.",
        )
        return GroupPlan(group=group, bounces=2, steps=steps)
    return GroupPlan(
        group=group,
        bounces=2,
        steps=(
            f"Give all members cooperative-sticky before {group.assignor}; restart one by one. Members that are"
            " DynamicProtocolConsumers are cooperative after this bounce.",
            f"Take {group.assignor} away from the others; restart them one by one.",
        ),
    )


def _to_consumer(group: DescribedGroup, facts: ClusterFacts) -> GroupPlan:
    if group.type == "consumer" and not any(member.uses_classic for member in group.members):
        return _done(group)
    if group.type not in ("classic", "consumer"):
        return _blocked(group, f"it is a {group.type} group, which has a protocol of its own")
    if facts.group_version < 1:
        return _blocked(group, f"{GROUP_VERSION} is {facts.group_version}", remedy=f"Raise {GROUP_VERSION} to 1 first.")
    if group.is_empty:
        return _done(group)  # the first member of the consumer protocol converts it
    if group.assignor == _STREAMS_ASSIGNOR or group.protocol_type not in ("", "consumer"):
        return _blocked(group, "its members are no plain consumers (Streams, Connect's workers, …)")
    restart = "Set group.protocol=consumer, without partition.assignment.strategy; "
    if group.type == "consumer" or facts.allows("upgrade"):
        return GroupPlan(group=group, bounces=1, steps=(f"{restart}restart the members one by one.",))
    return GroupPlan(group=group, bounces=None, steps=(f"{restart}stop all members, then start them.",))


def _to_classic(group: DescribedGroup, facts: ClusterFacts) -> GroupPlan:
    if group.type == "classic":
        return _done(group)
    if group.type == "share":
        steps: tuple[str, ...] = ("Stop its members and delete it: share groups have no classic form.",)
        return GroupPlan(group=group, bounces=None, steps=steps)
    if group.type == "streams":
        steps = ("Stop all instances, then start them with group.protocol=classic.",)
        return GroupPlan(group=group, bounces=None, steps=steps)
    if group.is_empty:
        steps = ("Let a member with group.protocol=classic join once, or delete it: both write the tombstones.",)
        return GroupPlan(group=group, bounces=0, steps=steps)
    restart = "Set group.protocol=classic; "
    if facts.allows("downgrade"):
        steps = (f"{restart}restart the members one by one: as the last one leaves, the group is converted.",)
        return GroupPlan(group=group, bounces=1, steps=steps)
    steps = (f"{restart}stop all members, then start them ({MIGRATION_POLICY} does not let them be mixed).",)
    return GroupPlan(group=group, bounces=None, steps=steps)


def _done(group: DescribedGroup) -> GroupPlan:
    return GroupPlan(group=group, bounces=0, steps=())


def _blocked(group: DescribedGroup, why: str, *, remedy: str = "Leave it as it is.") -> GroupPlan:
    finding = Finding(
        code="GROUP-CANNOT-CHANGE",
        severity=Severity.WARNING,
        subject=f"group {group.group_id}",
        sentence=f"Nothing leads there: {why}.",
        remedy=remedy,
    )
    return GroupPlan(group=group, bounces=None, steps=(), finding=finding)
