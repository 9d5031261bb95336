"""The order in which stopped brokers start, so that no controller elects a leader that lacks acknowledged records.

While all brokers stop, each ISR shrinks to the broker that stops last, which acknowledges records until then; its
partitions have no leader afterwards. When a broker is unfenced, the controller elects leaders of all partitions without
one: a member of the ISR, or with unclean.leader.election.enable=true any replica that is unfenced
(ReplicationControlManager.handleBrokerUnfenced, PartitionChangeBuilder.electAnyLeader). The members of the ISR then
truncate what this leader lacks. So a broker that is not in the ISR must not be unfenced before a member.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kafka_rollout.model.configs import DynamicConfigs
from kafka_rollout.model.unclean_elections import UncleanElections


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedPartition:
    """A partition as a metadata log has it."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    """Eligible leader replicas (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def clean_leaders(self) -> tuple[int, ...]:
        """The replicas that a controller elects before any other (PartitionChangeBuilder.isValidNewLeader)."""
        return self.isr or self.elr or self.last_known_elr


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedPartitions:
    """The partitions of a metadata log, with what decides about their leaders."""

    partitions: tuple[LoggedPartition, ...]
    unfenced: frozenset[int]
    """Brokers that are registered and not fenced."""
    dynamic: DynamicConfigs = field(default_factory=DynamicConfigs)
    """unclean.leader.election.enable of topics, of nodes and of all brokers; no other setting."""


def find_partitions_at_risk(
    partitions: Iterable[LoggedPartition], elections: UncleanElections
) -> tuple[LoggedPartition, ...]:
    """Return the partitions of which a controller can elect a replica that is not in sync. Unknown is not safe."""
    return tuple(
        one for one in partitions if set(one.replicas) - set(one.clean_leaders) and elections.of(one.topic) is not False
    )


def find_waiting(
    at_risk: Iterable[LoggedPartition], left: Collection[int], serving: Collection[int]
) -> Mapping[int, tuple[LoggedPartition, ...]]:
    """Return broker → the partitions for which it must not start yet; brokers of `left` without any can start.

    `left`: the brokers to start. `serving`: those that are started and unfenced.
    """
    waiting: dict[int, list[LoggedPartition]] = {}
    for partition in at_risk:
        members = partition.clean_leaders
        if not members or set(members) & set(serving):
            continue  # no replica is known to be in sync, or the controller elects a member
        for node_id in set(partition.replicas) & set(left) - set(members):
            waiting.setdefault(node_id, []).append(partition)
    return {node_id: tuple(found) for node_id, found in sorted(waiting.items())}
