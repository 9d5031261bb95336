"""What a campaign may do to a cluster at once, and when a stop by the tool was unsafe. Pure.

The cluster is expected to survive one impaired broker (replication factor 3, min.insync.replicas 2) and one impaired
controller of three. A node is impaired while a fault lasts that takes it out, and until it is in sync again; the node
that the run replaces is impaired from the request for its stop until its gate has passed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from kafka_rollout.model.topology import NodeSpec
from tools.faults.kinds import FACTS, Hits, Kind
from tools.faults.plan import Fault

_RECOVERED_S = 3.0  # the observation of a node that is in sync again is this old at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Impaired:
    """A time in which a node could not be counted on. `until`: None while it lasts; epoch seconds."""

    node_id: int
    kind: Kind
    since: float
    until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The tool asked a node to stop."""

    node_id: int
    at: float


def choose_target(
    fault: Fault, nodes: Sequence[NodeSpec], *, here: int | None, impaired: Collection[int]
) -> NodeSpec | None:
    """Return the node that the fault hits; None if every node that it could hit must be left alone.

    `here`: the node of the moment. `impaired`: other nodes that cannot be counted on, with the one in its node step.
    """
    facts = FACTS[fault.kind]
    fitting = [node for node in nodes if _has_role(node, facts.hits)]
    if facts.impairs:
        fitting = [node for node in fitting if can_be_spared(node, nodes, impaired)]
    preferred = [node for node in fitting if (node.node_id != here) == fault.elsewhere] or fitting
    return preferred[fault.pick % len(preferred)] if preferred else None


def can_be_spared(node: NodeSpec, nodes: Sequence[NodeSpec], impaired: Collection[int]) -> bool:
    """Return whether no other broker is impaired, if the node is one, and no other controller, if it is one."""
    others = [each for each in nodes if each.node_id in impaired and each.node_id != node.node_id]
    return not any(
        (node.is_broker and each.is_broker) or (node.is_controller and each.is_controller) for each in others
    )


def _has_role(node: NodeSpec, hits: Hits) -> bool:
    if hits is Hits.BROKER:
        return node.is_broker
    return node.is_controller if hits is Hits.CONTROLLER else True


def unsafe_stops(
    stops: Iterable[Stop], impaired: Sequence[Impaired], nodes: Sequence[NodeSpec], *, after_s: float = 0.0
) -> tuple[str, ...]:
    """One sentence for each stop at a time when another node of the same role was known not to be counted on.

    `after_s` is added to the time after which a check must see a fault, for a slow machine.
    """
    by_id = {node.node_id: node for node in nodes}
    found = []
    for stop in stops:
        for one in impaired:
            known_after = FACTS[one.kind].known_after_s
            if one.node_id == stop.node_id or known_after is None:
                continue
            if can_be_spared(by_id[stop.node_id], nodes, {one.node_id}):
                continue
            ends = float("inf") if one.until is None else one.until - _RECOVERED_S
            if one.since + known_after + after_s < stop.at < ends:
                found.append(
                    f"Node {stop.node_id} was stopped {stop.at - one.since:.1f} s after {one.kind} began on node "
                    f"{one.node_id}, which was not in sync again."
                )
    return tuple(found)
