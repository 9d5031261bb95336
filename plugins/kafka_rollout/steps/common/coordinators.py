"""Whether a started broker has loaded its coordinator partitions, and whether its tiered storage works."""

from __future__ import annotations

from kafka_rollout.base.errors import TransientError
from kafka_rollout.gates.check import BeforeStop, Condition
from kafka_rollout.gates.coordinators import (
    CONDITION,
    CoordinatorAnswers,
    coordinators_condition,
    led_partitions,
)
from kafka_rollout.gates.counters import Unchecked
from kafka_rollout.gates.remote_storage import check_remote_requests, check_tiered_storage, uses_tiered_storage
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import Release
from kafka_rollout.steps.common.cluster_ports import ClusterPorts

LOG_LINES = 20_000  # the start of a broker with many partitions


def coordinated_by(ports: ClusterPorts, state: ClusterState, node: NodeSpec) -> CoordinatorAnswers | None:
    """Return what a node coordinates before its stop; None for a node without a broker, or one that does not respond.

    Raises RefusedError for a missing right: the gate after the start needs it too.
    """
    if not node.is_broker:
        return None
    try:
        return ports.admin.coordinators(node, state.partitions)
    except TransientError:
        return None


def check_coordinators(
    ports: ClusterPorts, state: ClusterState, node: NodeSpec, before: BeforeStop | None
) -> Condition:
    """Check a broker whose leaderships are back."""
    try:
        answers = ports.admin.coordinators(node, state.partitions)
    except TransientError as error:
        return Condition(name=CONDITION, is_met=False, evidence=error.sentence)
    led = led_partitions(state.partitions, node.node_id)
    log = ports.runtime.log_tail(node, lines=LOG_LINES) if led else ()
    return coordinators_condition(state.partitions, node.node_id, answers, before, log)


def check_remote_storage(
    ports: ClusterPorts, state: ClusterState, node: NodeSpec, release: Release, unchecked: Unchecked
) -> tuple[Condition, ...]:
    """Check a broker of `release` with tiered storage; empty for a broker without it.

    `state`: with the metrics of the node. `unchecked`: as in Plan.
    """
    config = ports.runtime.config(node)
    if not uses_tiered_storage(config):
        return ()
    initialised = check_tiered_storage(node, config, release, ports.runtime.log_tail(node, lines=LOG_LINES))
    requests = check_remote_requests(node, config, release, state, unchecked)
    return tuple(condition for condition in (initialised, requests) if condition is not None)
