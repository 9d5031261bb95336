"""Batches: which nodes are restarted together, proved by the placement of the replicas.

The rule: a batch with two or more brokers of a partition leaves its min.insync.replicas and one further replica in sync
(`PartitionState.can_stop_together`). So with three replicas, a batch has one broker of each partition. A broker that
cannot be stopped alone is a finding of the cluster, in a batch or not. Controllers and combined nodes restart alone.
The first broker restarts alone: it shows that brokers start on the release.

Racks only group the brokers; what is safe follows from the replicas. `one_rack` needs racks that mean something. If a
broker has no rack, Kafka itself does not place by racks. Racks whose sizes differ by more than one broker do not fit to
one replica for each rack. In both cases all brokers restart one at a time.

Finding the fewest batches is graph colouring with colours of limited size. Small racks are searched completely, larger
ones are filled batch by batch, the most constrained brokers first (recursive largest first).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from kafka_rollout.base.durations import duration
from kafka_rollout.base.findings import INFO, Check, CheckOf, Finding, FindingCode
from kafka_rollout.base.maintenance import Maintenance, refuse_never_open, refuse_too_long
from kafka_rollout.base.wording import count, nodes
from kafka_rollout.model.configs import NodeConfigs
from kafka_rollout.model.plan import Batch, Lowering, NodeStep, Plan, ReleaseStep, find_acceptance
from kafka_rollout.model.state import PartitionState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.release_path import CONTROLLERS

RACK = "broker.rack"
NODE_S = 60.0  # assumed for stop, start and recovery of a node, until the run has measured it
_SEARCHED_NODES = 12  # of a rack that is searched completely, within _SEARCHED_STEPS
_SEARCHED_STEPS = 50_000
_FIRST = "the first broker restarts alone"
_CONTROLLER = "controllers restart one at a time"
_UNKNOWN = "no partition was reported, so brokers restart one at a time"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    max_size: int
    """Nodes of a batch."""
    one_rack: bool = True
    """All nodes of a batch are in one rack."""


def find_racks(cluster: ClusterSpec, configs: NodeConfigs) -> dict[int, str]:
    """Return broker.rack of each broker's configuration, by which Kafka places replicas; "" for none.

    The rack of the inventory does not count: it is a label.
    """
    return {node.node_id: configs.get(node.node_id, {}).get(RACK, "").strip() for node in cluster.brokers}


def with_batches(
    step: ReleaseStep,
    partitions: Iterable[PartitionState],
    racks: Mapping[int, str],
    limits: BatchLimits,
) -> ReleaseStep:
    """Return the release step with batches, and its nodes in their order; the same step if `max_size` is 1."""
    if limits.max_size <= 1 or not step.order:
        return step
    batches = find_batches(step.order, partitions, racks, limits)
    known = {node_step.node_id: node_step for node_step in step.order}
    order = tuple(known[node_id] for one in batches for node_id in one.node_ids)
    return replace(step, order=order, batches=batches)


def find_batches(
    order: Sequence[NodeStep],
    partitions: Iterable[PartitionState],
    racks: Mapping[int, str],
    limits: BatchLimits,
) -> tuple[Batch, ...]:
    """Return the batches of all nodes of `order`, each with the reason why it ends.

    `racks`: of all brokers of the cluster, "" for none. Topics that the run accepts as unavailable count too: what is
    accepted is the restart of one node. Brokers of one batch keep their order, and so do sections and racks.
    """
    placed = tuple(partitions)
    batches: list[Batch] = []
    for section, found in groupby(order, key=lambda node_step: node_step.section):
        ids = [node_step.node_id for node_step in found]
        if section == CONTROLLERS:
            batches += [Batch(node_ids=(node_id,), ends=_CONTROLLER) for node_id in ids]
        elif reason := _one_at_a_time(placed, racks, limits):
            batches += [Batch(node_ids=(node_id,), ends=reason) for node_id in ids]
        else:
            rack = _rack_of(ids[0], racks, limits)
            batches.append(Batch(node_ids=(ids[0],), ends=_FIRST, rack=rack))
            # The rack of the first broker is finished first.
            batches += _of_brokers(ids[1:], placed, racks, limits, {rack: []})
    return tuple(batches)


def split_batch(
    ids: Sequence[int], partitions: Iterable[PartitionState], accept_unavailable: Sequence[str] = ()
) -> tuple[Batch, ...]:
    """Return the parts of a planned batch that are safe with these partitions, usually all nodes in one part.

    A node that cannot be stopped alone now comes last, alone: its gate waits. `accept_unavailable`: as in Plan; these
    topics hold no node alone.
    """
    limits = BatchLimits(max_size=len(ids), one_rack=False)
    placed = tuple(partitions)
    if not placed:
        return tuple(Batch(node_ids=(node_id,), ends=_UNKNOWN) for node_id in ids)
    waiting: dict[int, str] = {}
    for partition in placed:
        if len(partition.isr) <= partition.min_isr and not find_acceptance(accept_unavailable, partition.topic):
            for node_id in partition.isr:
                waiting.setdefault(node_id, f"node {node_id} waits: {partition.name} has {len(partition.isr)} in sync")
    safe = tuple(_of_brokers([one for one in ids if one not in waiting], placed, {}, limits, {}))
    return (*safe, *(Batch(node_ids=(one,), ends=waiting[one]) for one in ids if one in waiting))


def expected_s(batches: int, soak_s: float) -> float:
    """Return the expected duration of the batches: their nodes restart at the same time, then soak."""
    return batches * (NODE_S + soak_s)


def _rack_of(node_id: int, racks: Mapping[int, str], limits: BatchLimits) -> str:
    return racks[node_id] if limits.one_rack else ""


def _one_at_a_time(partitions: Sequence[PartitionState], racks: Mapping[int, str], limits: BatchLimits) -> str:
    """Return why brokers cannot restart in batches at all; empty if they can."""
    if not partitions:
        return _UNKNOWN
    if not limits.one_rack:
        return ""
    if without := [node_id for node_id, rack in racks.items() if not rack]:
        has = "has" if len(without) == 1 else "have"
        return f"{nodes(without)} {has} no {RACK}, so brokers restart one at a time"
    sizes = Counter(racks.values()).most_common()
    (large, most), (small, least) = sizes[0], sizes[-1]
    if most - least > 1:
        return f"rack {large} has {most} brokers and rack {small} has {least}, so brokers restart one at a time"
    return ""


def _of_brokers(
    ids: Sequence[int],
    partitions: Sequence[PartitionState],
    racks: Mapping[int, str],
    limits: BatchLimits,
    groups: dict[str, list[int]],
) -> Iterator[Batch]:
    placement = _Placement(ids, partitions)
    for place, node_id in enumerate(ids):
        groups.setdefault(_rack_of(node_id, racks, limits), []).append(place)
    found = [(rack, placement.batches_of(group, limits.max_size)) for rack, group in groups.items() if group]
    blocking = placement.explain(
        [
            (batch, min(place for later in batches[number:] for place in later))
            for _, batches in found
            for number, batch in enumerate(batches[:-1], start=1)
            if len(batch) < limits.max_size
        ],
        partitions,
    )
    for rack, batches in found:
        for batch in batches:
            if len(batch) == limits.max_size:
                ends = f"the maximum is {limits.max_size}"
            elif batch is batches[-1]:
                ends = f"no other node of rack {rack} is left" if rack else "no other node is left"
            else:
                node_id, partition = blocking[tuple(batch)]
                replicas = ", ".join(map(str, partition.replicas))
                ends = (
                    f"node {node_id} has a replica of {partition.name} too (replicas {replicas}; {len(partition.isr)} "
                    f"in sync; min.insync.replicas {partition.min_isr})"
                )
            yield Batch(node_ids=tuple(ids[place] for place in batch), ends=ends, rack=rack)


class _Placement:
    """Which nodes have replicas of the same partitions. A node is its place in the order; a set of nodes is an int."""

    def __init__(self, ids: Sequence[int], partitions: Iterable[PartitionState]) -> None:
        self._ids = ids
        self._places = {node_id: place for place, node_id in enumerate(ids)}
        bits = {node_id: 1 << place for place, node_id in enumerate(ids)}
        self._apart = [0] * len(ids)  # nodes that cannot be in one batch with a node
        several: set[tuple[int, int]] = set()  # nodes of a partition of which more than one can stop, and how many
        for partition in partitions:
            members = 0
            for node_id in partition.replicas:
                members |= bits.get(node_id, 0)
            if not members & (members - 1):
                continue  # at most one node
            allowed = partition.can_stop_together
            if allowed > 1:
                several.add((members, allowed))
                continue
            for node_id in partition.replicas:
                if node_id in self._places:
                    self._apart[self._places[node_id]] |= members
        for place in range(len(ids)):
            self._apart[place] &= ~(1 << place)
        self._several: list[list[tuple[int, int]]] = [[] for _ in ids]
        for members, allowed in several:
            if members.bit_count() > allowed:
                for place in _places_of(members):
                    self._several[place].append((members, allowed))

    def batches_of(self, group: Sequence[int], most: int) -> list[list[int]]:
        """Return batches of a group of nodes. No node of a later batch could be added to an earlier one."""
        batches = self._fill(group, most)
        if len(group) <= _SEARCHED_NODES and len(batches) > -(-len(group) // most):
            batches = self._search(group, most, batches)
        batches = sorted(map(sorted, batches))
        for number, batch in enumerate(batches):
            for later in batches[number + 1 :]:
                for place in tuple(later):
                    if len(batch) < most and self._fits(place, _set_of(batch)):
                        batch.append(place)
                        later.remove(place)
        return [sorted(batch) for batch in batches if batch]

    def explain(
        self, ends: Iterable[tuple[Sequence[int], int]], partitions: Iterable[PartitionState]
    ) -> dict[tuple[int, ...], tuple[int, PartitionState]]:
        """Return for batches and a node that does not fit: the node's id, and a partition that would lose too much."""
        searched: dict[int, list[tuple[int, ...]]] = {}
        for batch, place in ends:
            searched.setdefault(self._ids[place], []).append(tuple(batch))
        found: dict[tuple[int, ...], tuple[int, PartitionState]] = {}
        members = {batch: {self._ids[place] for place in batch} for known in searched.values() for batch in known}
        for partition in partitions:
            for node_id in searched.keys() & partition.replicas:
                for batch in tuple(searched[node_id]):
                    if len(members[batch].intersection(partition.replicas)) + 1 > partition.can_stop_together:
                        if not members[batch].intersection(partition.replicas):
                            continue
                        found[batch] = (node_id, partition)
                        searched[node_id].remove(batch)
                if not searched[node_id]:
                    del searched[node_id]
            if not searched:
                break
        return found

    def _fits(self, place: int, batch: int) -> bool:
        if self._apart[place] & batch:
            return False
        grown = batch | 1 << place
        return all((members & grown).bit_count() <= allowed for members, allowed in self._several[place])

    def _fill(self, group: Sequence[int], most: int) -> list[list[int]]:
        """Fill one batch after the other: next the node that is apart from the most nodes that are excluded already."""
        left = list(group)
        batches: list[list[int]] = []
        while left:
            rest = _set_of(left)
            first = max(left, key=lambda place: ((self._apart[place] & rest).bit_count(), -place))
            batch, members, free = [first], 0, rest
            place = first
            while True:
                members |= 1 << place
                free &= ~(self._apart[place] | members)
                for nodes_of_partition, allowed in self._several[place]:
                    if (nodes_of_partition & members).bit_count() >= allowed:
                        free &= ~nodes_of_partition
                if not free or len(batch) == most:
                    break
                excluded = rest & ~(free | members)
                place = max(_places_of(free), key=lambda one: ((self._apart[one] & excluded).bit_count(), -one))
                batch.append(place)
            batches.append(batch)
            left = [place for place in left if not members >> place & 1]
        return batches

    def _search(self, group: Sequence[int], most: int, best: list[list[int]]) -> list[list[int]]:
        """Return fewer batches than `best` if there are, by trying every assignment within a number of steps."""
        order = sorted(group, key=lambda place: -self._apart[place].bit_count())
        least = -(-len(group) // most)
        steps = 0
        batches: list[list[int]] = []

        def assign(number: int) -> None:
            nonlocal best, steps
            steps += 1
            if steps > _SEARCHED_STEPS or len(batches) >= len(best) or len(best) == least:
                return
            if number == len(order):
                best = [list(batch) for batch in batches]
                return
            place = order[number]
            for batch in tuple(batches):
                if len(batch) < most and self._fits(place, _set_of(batch)):
                    batch.append(place)
                    assign(number + 1)
                    batch.pop()
            batches.append([place])
            assign(number + 1)
            batches.pop()

        assign(0)
        return best


def _set_of(places: Collection[int]) -> int:
    found = 0
    for place in places:
        found |= 1 << place
    return found


def _places_of(found: int) -> Iterator[int]:
    while found:
        lowest = found & -found
        yield lowest.bit_length() - 1
        found ^= lowest


WINDOWS_NEEDED = FindingCode(
    "MAINTENANCE-WINDOWS",
    INFO,
    "The number of maintenance windows that the run needs, and its earliest end.",
    "No action needed, unless the end is too late. Then choose longer windows, a shorter soak or batches.",
)
WINDOWS_CHECK = Check(
    "maintenance-windows",
    "Maintenance windows",
    "control.md#maintenance-windows",
    (WINDOWS_NEEDED,),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.RESTART),
    needs=(),
)


def window_findings(
    plan: Plan, cluster: ClusterSpec, maintenance: Maintenance, soak_s: float, now: float
) -> Iterator[Finding]:
    """Yield the estimate, if nodes are replaced one by one. Raises UserError if no window opens, or none is long enough
    for a node step with the commands before its stop."""
    refuse_never_open(maintenance, now)
    commands_s = max(
        sum(cluster.node(node_id).commands_before_stop_s for node_id in node_ids)
        for step in plan.release_steps
        for node_ids in step.node_ids_together
    )
    refuse_too_long(maintenance, now, commands_s, NODE_S if plan.lowering is Lowering.OFFLINE else NODE_S + soak_s)
    if plan.lowering is Lowering.OFFLINE:
        return
    parts = [len(step.batches) or len(step.order) for step in plan.release_steps]
    found = maintenance.schedule(now, [NODE_S + soak_s] * sum(parts))
    steps = count(sum(parts), "node step" if sum(parts) == sum(len(s.order) for s in plan.release_steps) else "batch")
    yield WINDOWS_NEEDED.found(
        "maintenance windows",
        f"The run needs {count(found.windows, 'maintenance window')} for {steps} of about "
        f"{duration(NODE_S + soak_s)}. Its earliest end is {maintenance.at(found.ends_at)}, without the time of "
        f"approvals{' and of the commands before the stops' if commands_s else ''}.",
    )
