"""The nodes of a cluster that are copied for a rehearsal, and the memory and disk that it needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.internal_topics import COORDINATOR_TOPICS
from kafka_rollout.base.wording import count, few, nodes, size
from kafka_rollout.model.state import PartitionState
from kafka_rollout.model.topology import ClusterSpec

DEFAULT_LIMIT = 6
_MOST_COMBINATIONS = 2_000  # tried in about a second; beyond, the widest cover is taken first


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    nodes: tuple[int, ...]
    """Ids of the copied nodes, in the order of the inventory."""
    left_out: tuple[int, ...] = ()
    """Ids of the other nodes."""
    uncovered: tuple[str, ...] = ()
    """Coordinator partitions without enough in-sync replicas on copied nodes."""

    @property
    def not_covered(self) -> tuple[str, ...]:
        """Return sentences about what a rehearsal on these nodes does not show."""
        sentences = []
        if self.left_out:
            sentences.append(
                f"No copy of {nodes(self.left_out)}: configuration, directories and other partitions there are not "
                "rehearsed."
            )
        if self.uncovered:
            sentences.append(
                f"{count(len(self.uncovered), 'coordinator partition')} without min.insync.replicas on copied nodes: "
                f"{few(self.uncovered)}."
            )
        return tuple(sentences)


def select_nodes(cluster: ClusterSpec, partitions: Sequence[PartitionState], *, limit: int) -> Selection:
    """Select the nodes to copy: all nodes of a small cluster, else all controllers and the fewest brokers.

    The brokers have min.insync.replicas in-sync replicas of every coordinator partition, if `limit` (a number of nodes)
    permits it: below, the high watermark does not advance (KIP-966), and coordinators do not show what they loaded.
    Raises UserError if `limit` is too low for the controllers and one broker.
    """
    chosen = {node.node_id for node in cluster.controllers}
    brokers = {node.node_id for node in cluster.brokers}
    missing = _Missing.of([p for p in partitions if p.topic in COORDINATOR_TOPICS], brokers)
    if len(cluster.nodes) <= limit:
        chosen |= brokers
    else:
        least = len(chosen) + (0 if chosen & brokers else 1)
        if limit < least:
            raise UserError(
                f"A rehearsal of cluster {cluster.name} needs at least {least} nodes: the controllers and a broker.",
                remedy=f"Set the limit to {least} or more.",
            )
        found = _fewest(sorted(brokers - chosen), missing.without(chosen), limit - len(chosen))
        chosen |= found or (set() if chosen & brokers else {min(brokers)})
    return Selection(
        nodes=tuple(node.node_id for node in cluster.nodes if node.node_id in chosen),
        left_out=tuple(node.node_id for node in cluster.nodes if node.node_id not in chosen),
        uncovered=tuple(sorted(missing.without(chosen).names)),
    )


def find_spareless_topics(partitions: Sequence[PartitionState], nodes: Collection[int]) -> tuple[str, ...]:
    """Return the topics that become unavailable in the sandbox while one of its nodes restarts.

    They have a partition with no more in-sync replicas on `nodes` than its min.insync.replicas.
    """
    chosen = set(nodes)
    return tuple(sorted({p.topic for p in partitions if len(chosen.intersection(p.isr)) <= p.min_isr}))


@dataclass(frozen=True, slots=True)
class _Missing:
    """Partition → number of in-sync replicas that are still needed, and the brokers that have one."""

    needs: Mapping[str, tuple[int, frozenset[int]]]

    @classmethod
    def of(cls, partitions: Iterable[PartitionState], brokers: Collection[int]) -> _Missing:
        known = ((p, frozenset(p.isr).intersection(brokers)) for p in partitions)
        return cls({p.name: (max(1, min(p.min_isr, len(isr))), isr) for p, isr in known})

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.needs)

    def gain(self, broker: int) -> int:
        return sum(broker in isr for _, isr in self.needs.values())

    def without(self, chosen: Collection[int]) -> _Missing:
        """Return what is still needed in addition to these brokers."""
        left = {
            name: (need - len(isr.intersection(chosen)), isr - set(chosen)) for name, (need, isr) in self.needs.items()
        }
        return _Missing({name: (need, isr) for name, (need, isr) in left.items() if need > 0})


def _fewest(brokers: Sequence[int], missing: _Missing, limit: int) -> set[int]:
    """Return the smallest set of at most `limit` brokers that covers everything; else the widest cover found."""
    greedy: set[int] = set()
    left = missing
    while left.needs and len(greedy) < limit:
        best = max((broker for broker in brokers if broker not in greedy), key=left.gain, default=None)
        if best is None or not left.gain(best):
            break
        greedy.add(best)
        left = left.without([best])
    for number in range(1, min(limit + 1, len(greedy) if not left.needs else limit + 1)):
        if comb(len(brokers), number) > _MOST_COMBINATIONS:
            break
        for chosen in combinations(brokers, number):
            if not missing.without(chosen).needs:
                return set(chosen)
    return greedy


MIB = 1 << 20
_HEAP = 256 * MIB
_HEAP_OF_REPLICA = 56 << 10  # about 36 KiB are in use; with less, most of the CPU time is garbage collection
_NATIVE = 160 * MIB  # metaspace, code and threads of a broker
_NATIVE_OF_REPLICA = 8 << 10
_TOOL = 400 * MIB  # this tool, and the classes of a release in a JVM
_DISK_OF_NODE = 64 * MIB  # its log, and what it writes during the rehearsal
_DISK_OF_REPLICA = 32 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalEstimate:
    """Memory and disk of a rehearsal. Sizes in bytes."""

    heaps: Mapping[int, int]
    """Node id → maximum heap of its JVM."""
    memory: int
    copied: int
    disk: int
    partitions: int

    @property
    def sentence(self) -> str:
        return (
            f"{count(len(self.heaps), 'node')}, {count(self.partitions, 'replica')}: about {size(self.memory)} of "
            f"memory and {size(self.disk)} of disk, of which {size(self.copied)} are copied."
        )


def estimate(replicas: Mapping[int, int], copied: int) -> RehearsalEstimate:
    """Return the estimate. `replicas`: node id → number of its partition directories; `copied`: bytes to copy."""
    heaps = {node_id: -(-(_HEAP + number * _HEAP_OF_REPLICA) // MIB) * MIB for node_id, number in replicas.items()}
    partitions = sum(replicas.values())
    return RehearsalEstimate(
        heaps=heaps,
        memory=sum(heaps.values()) + len(heaps) * _NATIVE + partitions * _NATIVE_OF_REPLICA + _TOOL,
        copied=copied,
        disk=copied * 5 // 4 + len(heaps) * _DISK_OF_NODE + partitions * _DISK_OF_REPLICA,
        partitions=partitions,
    )


def find_shortage(needed: RehearsalEstimate, *, free_memory: int, free_disk: int) -> str:
    """Return why this machine cannot run the rehearsal, as a sentence; empty if it can."""
    if free_memory < needed.memory:
        return f"The rehearsal needs about {size(needed.memory)} of memory, and {size(free_memory)} are free."
    if free_disk < needed.disk:
        return f"The rehearsal needs about {size(needed.disk)} of disk, and {size(free_disk)} are free."
    return ""
