"""Whether brokers on an older release have loaded the coordinator partitions that moved to them.

Each stop of a rollback or a downgrade moves partitions to other brokers. One on the older release cannot load a record
of the newer one, and a client can make such a record between the reading of the logs and the stop. The gate after the
start asks the node that was stopped. So the gate before the next stop asks the other ones, and after the last stop the
gate after the start.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from kafka_rollout.base.internal_topics import COORDINATOR_TOPICS
from kafka_rollout.control.approval import accepted_doubts
from kafka_rollout.gates.coordinators import led_partitions
from kafka_rollout.gates.gate import GateCondition, join_of_nodes
from kafka_rollout.model.plan import ReleaseStep
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import at_once, observe_some
from kafka_rollout.observation.node_logs import read_broker_log
from kafka_rollout.observation.node_steps import check_coordinators
from kafka_rollout.observation.run import Run
from kafka_rollout.run.projections.nodes import find_last_node_event


@dataclass(frozen=True, slots=True)
class StopObservation:
    """The whole cluster before stops. Gates that are checked at the same time share it."""

    state: ClusterState
    moved: dict[frozenset[int], tuple[GateCondition, ...]] = field(default_factory=dict)
    """Ids of the nodes that stop next → what was found for them."""


def check_moved_coordinators(run: Run, observed: StopObservation, leaving: frozenset[int]) -> tuple[GateCondition, ...]:
    """Return the condition that each broker on the older release has loaded what moved to it, and shows no failed load
    of another partition that it leads; empty before the first stop of a rollback or a downgrade.

    `leaving`: ids of the nodes that are not asked, because they stop next or have a gate of their own.
    """
    if leaving not in observed.moved:
        observed.moved[leaving] = _check_others(run, observed.state, leaving)
    return observed.moved[leaving]


def _check_others(run: Run, state: ClusterState, leaving: Collection[int]) -> tuple[GateCondition, ...]:
    last = find_last_node_event(run.history.events())
    ways = [way for one in run.plan.release_steps for way in (one, one.reversed())]
    step = next((one for one in ways if last is not None and one.key == last.release_step), None)
    if step is None or not step.starts_older:
        return ()
    coordinators = tuple(one for one in state.partitions if one.topic in COORDINATOR_TOPICS)
    asked = [
        node
        for node in run.cluster.brokers
        if node.node_id not in leaving
        and led_partitions(coordinators, node.node_id)
        and state.nodes[node.node_id].release != step.from_release
    ]
    return (_check(run, step, asked, replace(state, partitions=coordinators)),) if asked else ()


def _check(run: Run, step: ReleaseStep, asked: Sequence[NodeSpec], coordinators: ClusterState) -> GateCondition:
    """`coordinators`: with their partitions alone."""
    state = replace(coordinators, nodes=observe_some(run.ports, asked, metrics=True, brokers=False).nodes)
    stops = {one.node_id: run.history.load_before_stop(step.key, one.node_id) for one in step.order}
    accepted = accepted_doubts(run)

    def check(node: NodeSpec) -> GateCondition:
        moved = {name for one in stops.values() if one and one.node_id != node.node_id for name in one.leads}
        # What the node led itself before its stops is loaded, or the gate after its start had not passed. The cluster
        # can give it another partition, of a node that was not stopped yet.
        if own := stops.get(node.node_id):
            before = run.history.load_before_stop(step.reversed().key, node.node_id) or own
            led = led_partitions(state.partitions, node.node_id)
            moved |= {one.name for one in led} - {*own.leads, *before.leads}
        log = read_broker_log(run.ports, node)
        return check_coordinators(run.ports, state, node, None, log=log, accepted=accepted, needed=moved)

    found = join_of_nodes(dict(zip((node.node_id for node in asked), at_once(check, asked), strict=True)))
    return replace(found, name=f"other {found.name}")  # the gate after a start has the condition of its node too
