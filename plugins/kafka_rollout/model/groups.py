"""Groups with their members, as their coordinators describe them."""

from __future__ import annotations

from dataclasses import dataclass

MIGRATION_POLICY = "group.consumer.migration.policy"

PartitionId = tuple[str, int]

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"

COOPERATIVE_STICKY = "cooperative-sticky"  # the cooperative assignor of Kafka's clients (KIP-429)

CONNECT = "connect"  # protocol type of the groups that Connect workers form

# Consumers refuse the first ones with group.protocol=consumer, and the last one with classic. Source: ConsumerConfig.
CLASSIC_SETTINGS = ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms")
REMOTE_ASSIGNOR = "group.remote.assignor"

SINK_PREFIX = "connect-"  # group name prefix of sink connectors

# GroupMetadataManager.classicGroupJoin of 4.1.2 and 4.2.1.
STREAMS_TO_CLASSIC = (
    "Stop all instances, so that the group is empty. Where every broker runs 4.2 or later, start them with "
    "group.protocol=classic: the first member converts the group, which keeps its committed offsets. Brokers of 4.1 "
    "refuse such a member (INCONSISTENT_GROUP_PROTOCOL). There, save the committed offsets, delete the group with "
    "`kafka-consumer-groups.sh --delete`, which keeps its internal topics, set the offsets again "
    "(`--reset-offsets --from-file`), and start the instances only then."
)

_EMPTY = frozenset({"empty", "dead"})

_REBALANCING = frozenset({"preparingrebalance", "completingrebalance"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """One member."""

    client_id: str
    host: str
    member_id: str = ""
    instance_id: str | None = None
    uses_classic: bool = True
    """It uses the classic protocol, possibly in a group of type consumer."""
    assignors: tuple[str, ...] = ()
    """Its known assignors in order of preference. A coordinator reports only the selected one, so there can be others
    unless `all_assignors_known`."""
    all_assignors_known: bool = False
    kept_partitions: bool = False
    """It joined the last rebalance while it owned partitions, so it is cooperative; False proves nothing."""
    assigned: tuple[PartitionId, ...] = ()
    """Its current partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """One group."""

    group_id: str
    type: str
    """Classic, consumer, share or streams, as in Kafka."""
    state: str
    protocol_type: str = ""
    assignor: str = ""
    """The selected one; empty without members."""
    members: tuple[GroupMember, ...] = ()
    epoch: int | None = None
    """Only for groups of the newer types; the generation of a classic group is only in the coordinator log."""
    lag: int | None = None
    """Records after the committed offsets; None if it was not queried or not reported."""
    problem: str = ""
    """The reason why the coordinator did not describe the group."""

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
