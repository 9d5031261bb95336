"""The steps that move a consumer group to another protocol: rolling restarts and blockers.

Sources: KIP-429 (two bounces for released consumers), KAFKA-12477 (one for DynamicProtocolConsumer), KIP-848 and
GroupMetadataManager of 4.x (validateOnlineUpgrade, validateOnlineDowngrade…) for the consumer protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.base.findings import WARNING, Check, CheckOf, Examined, Finding, FindingCode, Need
from kafka_rollout.base.wording import few
from kafka_rollout.coordinator_logs.remedies import EMPTY_GROUP_EXPIRES
from kafka_rollout.model.groups import (
    CLASSIC,
    CLASSIC_SETTINGS,
    CONNECT,
    CONSUMER,
    COOPERATIVE_STICKY,
    MIGRATION_POLICY,
    REMOTE_ASSIGNOR,
    SHARE,
    SINK_PREFIX,
    STREAMS,
    STREAMS_TO_CLASSIC,
    DescribedGroup,
)
from kafka_rollout.releases.facts import GROUP_VERSION

_STREAMS_ASSIGNOR = "stream"
_CONSUMERS_ASSIGNORS = frozenset({"range", "roundrobin", "sticky", COOPERATIVE_STICKY})
_ORDER = (CLASSIC, CONSUMER, STREAMS, SHARE)


_MAY_BE_EAGER = (
    "No member kept its partitions in the last rebalance. Released members that also have an eager assignor "
    "still use EAGER. Repeat the command after the next rebalance."
)


GROUP_CANNOT_CHANGE = FindingCode(
    "GROUP-CANNOT-CHANGE", WARNING, "The group cannot change its protocol.", "Keep the group as it is."
)
GROUP_NO_COMMON_ASSIGNOR = FindingCode(
    "GROUP-NO-COMMON-ASSIGNOR", WARNING, "The classic members of the group have no common assignor."
)
GROUP_REBALANCES = FindingCode("GROUP-REBALANCES", WARNING, "The group is rebalancing, so its assignor is unknown.")
GROUP_UNKNOWN = FindingCode("GROUP-UNKNOWN", WARNING, "The coordinator does not describe the group.")
MIGRATION_CHECK = Check(
    "group-migration",
    "Groups that can change their protocol (KIP-848)",
    "rebalance.md#the-groups-of-a-cluster-kafka-rollout-groups",
    (GROUP_CANNOT_CHANGE, GROUP_NO_COMMON_ASSIGNOR, GROUP_REBALANCES, GROUP_UNKNOWN),
    of=(CheckOf.GROUPS,),
    needs=(Need.GROUPS,),
    examines=Examined.GROUPS,
)


class Goal(StrEnum):
    COOPERATIVE = "cooperative"  # classic, incremental rebalances (KIP-429)
    CONSUMER = "consumer"  # the consumer protocol (KIP-848)
    CLASSIC = "classic"  # away from the newer types, before group.version is lowered


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionSettings:
    """The conversion settings of the brokers."""

    group_version: int
    policies: Mapping[int, str | None]
    """Node id → group.consumer.migration.policy; None if not reported."""

    def allows(self, direction: str) -> bool:
        """Return whether all brokers convert groups that have members. `direction`: upgrade or downgrade."""
        return bool(self.policies) and all(
            (policy or "").lower() in (direction, "bidirectional") for policy in self.policies.values()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """The plan for one group.

    `bounces` is None if all members must stop together, or if the goal cannot be reached.
    """

    group: DescribedGroup
    bounces: int | None
    """Number of rolling restarts of all members."""
    steps: tuple[str, ...]
    finding: Finding | None = None
    note: str = ""
    """A fact for the operator when no step is needed."""


def plan_groups(groups: Iterable[DescribedGroup], goal: Goal, facts: ConversionSettings) -> tuple[GroupPlan, ...]:
    """Return a plan for each group, in the order in which to carry them out.

    For the goal classic, groups with members come first, consumer groups before the other types. Their conversion
    writes the tombstones of the newer records, and group.version can be lowered only after that (KIP-848).
    """
    way = {Goal.COOPERATIVE: _to_cooperative, Goal.CONSUMER: _to_consumer, Goal.CLASSIC: _to_classic}[goal]
    return tuple(sorted((_undescribed(group, goal) or way(group, facts) for group in groups), key=_order))


def _order(plan: GroupPlan) -> tuple[bool, bool, int, str]:
    group = plan.group
    return not plan.steps, group.is_empty, _ORDER.index(group.type) if group.type in _ORDER else -1, group.group_id


def _undescribed(group: DescribedGroup, goal: Goal) -> GroupPlan | None:
    """Return a blocked plan if the description of the group is incomplete; else None."""
    if group.problem:
        return _blocked(
            group, group.problem, code=GROUP_UNKNOWN, remedy=("Repeat the command when its coordinator responds.")
        )
    if group.is_rebalancing and goal is not Goal.CLASSIC:
        remedy = (
            "Repeat the command when the group is Stable. If it never is, find the member that does not call poll()."
        )
        return _blocked(group, "it is rebalancing, so its assignor is unknown", code=GROUP_REBALANCES, remedy=remedy)
    return None


def _to_cooperative(group: DescribedGroup, facts: ConversionSettings) -> GroupPlan:
    if group.type != CLASSIC or group.is_empty or group.assignor == _STREAMS_ASSIGNOR:
        return _done(group)  # the newer types rebalance incrementally, and so does Streams' own assignor since 2.4
    if group.protocol_type == CONNECT:
        if group.assignor != "default":
            return _done(group)
        return GroupPlan(
            group=group,
            bounces=1,
            steps=(("Set connect.protocol=sessioned in the workers and restart them one by one."),),
        )
    if group.protocol_type != "consumer":
        return _blocked(
            group, (f"its members use {group.protocol_type or 'an unknown protocol'}, not the consumer protocol type")
        )
    if group.assignor == COOPERATIVE_STICKY:
        return _done(group, note="" if any(member.kept_partitions for member in group.members) else _MAY_BE_EAGER)
    if group.group_id.startswith(SINK_PREFIX):
        where = "consumer.partition.assignment.strategy of the workers (or consumer.override.… of the connector)"
        steps = (
            f"Set {where} to cooperative-sticky,{group.assignor}. Restart the workers one by one.",
            f"Set {where} to cooperative-sticky alone. Restart the workers one by one.",
        )
        return GroupPlan(group=group, bounces=2, steps=steps)
    return GroupPlan(
        group=group,
        bounces=2,
        steps=(
            f"Put cooperative-sticky before {group.assignor} in all members. Restart them one by one. Members "
            "that are DynamicProtocolConsumers are cooperative after this bounce.",
            f"Remove {group.assignor} from the other members. Restart them one by one.",
        ),
    )


def _to_consumer(group: DescribedGroup, facts: ConversionSettings) -> GroupPlan:
    if group.type == CONSUMER and not any(member.uses_classic for member in group.members):
        return _done(group)
    if group.type not in (CLASSIC, CONSUMER):
        return _blocked(group, f"it is a {group.type} group, which has its own protocol")
    if facts.group_version < 1:
        return _blocked(group, f"{GROUP_VERSION} is {facts.group_version}", remedy=f"Raise {GROUP_VERSION} to 1 first.")
    if group.is_empty:
        return _done(group)  # the first member of the consumer protocol converts it
    if group.assignor == _STREAMS_ASSIGNOR or group.protocol_type not in ("", "consumer"):
        return _blocked(group, "its members are not plain consumers (Streams, Connect workers, …)")
    if group.assignor not in _CONSUMERS_ASSIGNORS and group.type == CLASSIC:
        return _blocked(
            group,
            (
                f"its members use the custom assignor {group.assignor}; the consumer protocol has only the "
                "brokers' assignors"
            ),
            remedy="Change the members to one of Kafka's assignors, or keep the group as it is.",
        )
    restart = f"Set group.protocol=consumer, without {few(CLASSIC_SETTINGS)}; "
    if group.group_id.startswith(SINK_PREFIX):
        restart = (
            "Set consumer.group.protocol=consumer in the workers (or consumer.override.… of the connector), without "
            f"{few(f'consumer.{one}' for one in CLASSIC_SETTINGS)}; members are the connector's tasks: "
        )
    if group.type == CONSUMER or facts.allows("upgrade"):
        return GroupPlan(group=group, bounces=1, steps=(f"{restart}restart the members one by one.",))
    return GroupPlan(group=group, bounces=None, steps=(f"{restart}stop all members, then start them.",))


def _to_classic(group: DescribedGroup, facts: ConversionSettings) -> GroupPlan:
    if group.type == CLASSIC:
        return _done(group)
    if group.type == SHARE:
        steps: tuple[str, ...] = ("Stop its members and delete the group: share groups cannot be converted.",)
        return GroupPlan(group=group, bounces=None, steps=steps)
    if group.type == STREAMS:
        return GroupPlan(group=group, bounces=None, steps=(f"{STREAMS_TO_CLASSIC} {EMPTY_GROUP_EXPIRES}",))
    if group.is_empty:
        steps = (
            "Let a member with group.protocol=classic join once: it keeps the committed offsets. Or delete the group, "
            "which also deletes them: export them first (kafka-consumer-groups.sh --reset-offsets --to-current "
            f"--export), or its consumers begin where auto.offset.reset says. {EMPTY_GROUP_EXPIRES}",
        )
        return GroupPlan(group=group, bounces=0, steps=steps)
    common = _common_assignors(group)
    if common is not None and not common:
        return _blocked(
            group,
            "its classic members have no common assignor",
            code=GROUP_NO_COMMON_ASSIGNOR,
            remedy=f"Give {few(_named(group))} one common assignor, for example range, and restart them.",
        )
    restart = f"Set group.protocol=classic, without {REMOTE_ASSIGNOR}" + (
        f", and an assignor that the classic members have ({few(sorted(common))}); " if common else "; "
    )
    if facts.allows("downgrade"):
        steps = (
            (f"{restart}restart the members one by one. When the last member has restarted, the group is converted."),
        )
        return GroupPlan(group=group, bounces=1, steps=steps)
    stop = f"stop all members, then start them ({MIGRATION_POLICY} does not allow mixed protocols)"
    steps = (f"{restart}{stop}. {EMPTY_GROUP_EXPIRES}",)
    return GroupPlan(group=group, bounces=None, steps=steps)


def _common_assignors(group: DescribedGroup) -> frozenset[str] | None:
    """Return the assignors that all classic members of a consumer group have.

    A member that has none of them is rejected (ConsumerGroup.supportsClassicProtocols). None: no such members, or the
    logs were not read.
    """
    classic = [member for member in group.members if member.uses_classic]
    if not classic or not all(member.all_assignors_known for member in classic):
        return None
    return frozenset(classic[0].assignors).intersection(*(member.assignors for member in classic[1:]))


def _named(group: DescribedGroup) -> list[str]:
    return sorted({member.client_id for member in group.members if member.uses_classic})


def _done(group: DescribedGroup, *, note: str = "") -> GroupPlan:
    return GroupPlan(group=group, bounces=0, steps=(), note=note)


def _blocked(
    group: DescribedGroup, why: str, *, code: FindingCode = GROUP_CANNOT_CHANGE, remedy: str | None = None
) -> GroupPlan:
    finding = code.found(f"group {group.group_id}", f"This group cannot be planned: {why}.", remedy)
    return GroupPlan(group=group, bounces=None, steps=(), finding=finding)
