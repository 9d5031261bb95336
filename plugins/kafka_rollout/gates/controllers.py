"""The gate before all controllers stop while the brokers serve (a live downgrade)."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_rollout.base.wording import count, few
from kafka_rollout.gates.check import Condition, GateCheck
from kafka_rollout.gates.node import answered
from kafka_rollout.model.state import ClusterState, Movements, check_current
from kafka_rollout.model.topology import ClusterSpec

SETTLED_S = 30.0
"""A node that was started more recently can still fail. Its partitions would stay without a leader."""


def check_before_controllers_stop(cluster: ClusterSpec, state: ClusterState, movements: Movements) -> GateCheck:
    """Check that no broker needs a controller soon.

    While no controller is active, no leader is elected and no ISR changes.
    """
    conditions = [
        answered(state.unanswered),
        _all_serve(cluster, state),
        _settled(cluster, state),
        _quorum(cluster, state),
        _none(
            "all replicas are in sync",
            [p.name for p in state.partitions if set(p.isr) != set(p.replicas) or p.leader not in p.isr],
            f"{count(len(state.partitions), 'partition')} have a leader and all replicas in sync",
        ),
        _none("no reassignment", movements.reassigned, "no partition is being reassigned"),
        _none("no directory move", movements.directories, "no replica moves to another directory"),
    ]
    return GateCheck(gate="controllers-stop", at=state.observed_at, conditions=tuple(conditions))


def _none(name: str, found: Iterable[str], otherwise: str) -> Condition:
    names = sorted(found)
    return Condition(name=name, is_met=not names, evidence=few(names) if names else otherwise).listing(names)


def _all_serve(cluster: ClusterSpec, state: ClusterState) -> Condition:
    registered = state.registered
    fenced = registered.fenced
    wrong = [] if fenced is not None else ["the fenced brokers cannot be listed"]
    for node in cluster.nodes:
        seen = state.nodes.get(node.node_id)
        if seen is None or seen.process.pid is None or seen.features is None:
            wrong.append(f"node {node.node_id} is down")
        elif node.is_broker and node.node_id not in registered.brokers - (fenced or frozenset()):
            wrong.append(f"broker {node.node_id} is fenced or not registered")
    unlisted = (registered.brokers | (fenced or frozenset())) - {node.node_id for node in cluster.brokers}
    wrong += [f"broker {node_id} is registered and not in the inventory" for node_id in sorted(unlisted)]
    return Condition(
        name="every node serves",
        is_met=not wrong,
        evidence=few(wrong) if wrong else f"{count(len(cluster.nodes), 'node')} respond; no broker is fenced",
    ).listing(wrong)


def _settled(cluster: ClusterSpec, state: ClusterState) -> Condition:
    young = []
    for node in cluster.nodes:
        seen = state.nodes.get(node.node_id)
        started_at = None if seen is None else seen.process.started_at
        if started_at is None:
            young.append(f"the start of node {node.node_id} is unknown")
        elif state.observed_at - started_at < SETTLED_S:
            young.append(f"node {node.node_id} was started {state.observed_at - started_at:.0f} s ago")
    return Condition(
        name="no recent restart",
        is_met=not young,
        evidence=few(young) if young else f"every node has run for {SETTLED_S:.0f} s or longer",
    ).listing(young)


def _quorum(cluster: ClusterSpec, state: ClusterState) -> Condition:
    if state.quorum is None:
        return Condition(name="every node is caught up", is_met=False, evidence="the quorum did not respond")
    behind = []
    for node in cluster.nodes:
        seen = state.nodes.get(node.node_id) if node.is_broker else None
        caught_up, evidence = check_current(state.quorum, node.node_id, seen)
        if not caught_up:
            behind.append(f"node {node.node_id}: {evidence}")
    return Condition(
        name="every node is caught up",
        is_met=not behind,
        evidence=few(behind) if behind else f"controller {state.quorum.leader_id} is active, no node is behind",
    ).listing(behind)
