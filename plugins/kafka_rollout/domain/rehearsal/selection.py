"""The nodes of a cluster that are copied for a rehearsal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

from kafka_rollout.domain.gates.coordinators import GROUPS_TOPIC, SHARE_TOPIC, TRANSACTIONS_TOPIC
from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.state import PartitionState
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.domain.model.wording import count, few, nodes

COORDINATOR_TOPICS = frozenset({GROUPS_TOPIC, TRANSACTIONS_TOPIC, SHARE_TOPIC})
DEFAULT_LIMIT = 6
_MOST_COMBINATIONS = 100_000  # tried in less than a second; beyond, the largest cover is taken first


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """`nodes`: ids of the copied nodes, in the order of the inventory. `left_out`: ids of the other nodes.

    `uncovered`: coordinator partitions without an in-sync replica on a copied node.
    """

    nodes: tuple[int, ...]
    left_out: tuple[int, ...] = ()
    uncovered: tuple[str, ...] = ()

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
                f"{count(len(self.uncovered), 'coordinator partition')} without an in-sync replica on a copied node: "
                f"{few(self.uncovered)}."
            )
        return tuple(sentences)


def select_nodes(cluster: ClusterSpec, partitions: Sequence[PartitionState], *, limit: int) -> Selection:
    """Select the nodes to copy: all nodes of a small cluster, else all controllers and the fewest brokers.

    The brokers have an in-sync replica of every coordinator partition, if `limit` (a number of nodes) permits it.
    Raises UserError if `limit` is too low for the controllers and one broker.
    """
    covers = _covers(cluster, partitions)
    chosen = {node.node_id for node in cluster.controllers}
    if len(cluster.nodes) <= limit:
        chosen = {node.node_id for node in cluster.nodes}
    else:
        least = len(chosen) + (0 if chosen & covers.keys() else 1)
        if limit < least:
            raise UserError(
                f"A rehearsal of cluster {cluster.name} needs at least {least} nodes: the controllers and a broker.",
                remedy=f"Set the limit to {least} or more.",
            )
        brokers = {node_id: cover for node_id, cover in covers.items() if node_id not in chosen}
        wanted = _union(covers.values()) - _union(covers[i] for i in chosen & covers.keys())
        found = _fewest(brokers, wanted, limit - len(chosen))
        chosen |= found or (set() if chosen & covers.keys() else {min(brokers)})
    names = frozenset(p.name for p in partitions if p.topic in COORDINATOR_TOPICS)
    return Selection(
        nodes=tuple(node.node_id for node in cluster.nodes if node.node_id in chosen),
        left_out=tuple(node.node_id for node in cluster.nodes if node.node_id not in chosen),
        uncovered=tuple(sorted(names - _union(covers[i] for i in chosen & covers.keys()))),
    )


def find_spareless_topics(partitions: Sequence[PartitionState], nodes: Collection[int]) -> tuple[str, ...]:
    """Return the topics that become unavailable in the sandbox while one of its nodes restarts.

    They have a partition with no more in-sync replicas on `nodes` than its min.insync.replicas.
    """
    chosen = set(nodes)
    return tuple(sorted({p.topic for p in partitions if len(chosen.intersection(p.isr)) <= p.min_isr}))


def _covers(cluster: ClusterSpec, partitions: Sequence[PartitionState]) -> dict[int, frozenset[str]]:
    """Return broker id → coordinator partitions of which it has an in-sync replica."""
    ours = [p for p in partitions if p.topic in COORDINATOR_TOPICS]
    return {node.node_id: frozenset(p.name for p in ours if node.node_id in p.isr) for node in cluster.brokers}


def _union(covers: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*covers)


def _fewest(brokers: Mapping[int, frozenset[str]], wanted: frozenset[str], limit: int) -> set[int]:
    """Return the smallest set of at most `limit` brokers that covers `wanted`; without one, the widest cover found."""
    greedy: set[int] = set()
    missing = wanted
    while missing and len(greedy) < limit:
        best = max(sorted(brokers), key=lambda i: len(brokers[i] & missing), default=None)
        if best is None or not brokers[best] & missing:
            break
        greedy.add(best)
        missing -= brokers[best]
    for size in range(1, min(limit, len(greedy) - (0 if missing else 1)) + 1):
        if comb(len(brokers), size) > _MOST_COMBINATIONS:
            break
        for chosen in combinations(sorted(brokers), size):
            if wanted <= _union(brokers[i] for i in chosen):
                return set(chosen)
    return greedy
