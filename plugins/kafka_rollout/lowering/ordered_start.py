"""Starts stopped brokers in the order of `metadata_log/start_order.py`, by the log of the active controller.

Each start of several brokers while no other in-sync replica serves must pass here. Only brokers of topics with
unclean.leader.election.enable=true wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kafka_rollout.base.errors import TransientError
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.features.rules import METADATA_VERSION_FLOOR
from kafka_rollout.lowering.active_controller import ask_active
from kafka_rollout.metadata_log.start_order import LoggedPartition, find_partitions_at_risk, find_waiting
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.model.unclean_elections import ENABLE, unclean_elections
from kafka_rollout.observation.cluster_ports import until
from kafka_rollout.observation.each_node import on_each
from kafka_rollout.observation.run import ReadRun, Run
from kafka_rollout.preparation.node_checks import controller_configs

_CHECK_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What the active controller knows of the brokers that serve."""

    serving: frozenset[int]
    waiting: Mapping[int, Sequence[LoggedPartition]]
    """Broker → the partitions for which it must not start yet."""
    level: int = 0
    """The finalized metadata.version; 0 if it is unknown."""
    unknown: str = ""
    """Why this is not known."""


def start_in_order(
    run: Run, brokers: Sequence[NodeSpec], start: Callable[[Sequence[NodeSpec]], None], *, within_s: float
) -> Mapping[int, TransientError]:
    """Start the brokers; each before which others must serve waits for them, at most `within_s` seconds.

    `start`: starts some brokers that have no process; it raises nothing for a host that does not respond. Returns
    broker → why it was not started.
    """
    has_process = on_each(lambda node: run.ports.runtime.process(node).pid is not None, brokers).done
    left = {node.node_id: node for node in brokers if not has_process.get(node.node_id)}
    while left:
        seen = _watch(run, left, within_s)
        ready = [node for node_id, node in left.items() if not seen.unknown and node_id not in seen.waiting]
        if not ready:
            return {node_id: _error(run.cluster, seen, node_id) for node_id in left}
        start(ready)
        for node in ready:
            del left[node.node_id]
    return {}


def _watch(run: ReadRun, left: Mapping[int, NodeSpec], within_s: float) -> _Seen:
    """Check until one of the brokers can start. Each broker that is not left counts, whatever started it."""
    others = [node for node in run.cluster.brokers if node.node_id not in left]
    last: _Seen | None = None

    def check() -> _Seen:
        nonlocal last
        # A broker that responds has registered since its start.
        answering = frozenset(on_each(run.ports.admin.features, others).done)
        if last is None or last.unknown or answering != last.serving:  # else the log can show nothing new
            last = _observe(run, left, answering)
        return last

    return until(
        run.ports.clock,
        check,
        lambda seen: not seen.unknown and len(seen.waiting) < len(left),
        for_s=within_s,
        every_s=_CHECK_S,
    )


def _observe(run: ReadRun, left: Mapping[int, NodeSpec], answering: frozenset[int]) -> _Seen:
    active = ask_active(run.ports)
    if active.node is None or active.lacks:
        return _Seen(serving=frozenset(), waiting={}, unknown=active.lacks)
    try:
        logged = run.ports.metadata_logs.partitions(active.node, cluster_id=run.plan.cluster_id)
    except TransientError as error:
        return _Seen(serving=frozenset(), waiting={}, unknown=error.sentence)
    elections = unclean_elections(run.cluster, logged.dynamic, controller_configs(run.ports))
    serving = answering & logged.unfenced
    at_risk = find_partitions_at_risk(logged.partitions, elections)
    return _Seen(serving=serving, waiting=find_waiting(at_risk, left.keys(), serving), level=active.level or 0)


def _error(cluster: ClusterSpec, seen: _Seen, node_id: int) -> TransientError:
    if seen.unknown:
        return TransientError(
            f"Broker {node_id} is not started, because the in-sync replicas are unknown: {seen.unknown}",
            remedy="Repeat the step when the controllers have a leader whose host responds.",
        )
    lacking = seen.waiting[node_id]
    members = sorted({member for one in lacking for member in one.clean_leaders})
    return TransientError(
        f"Broker {node_id} is not started yet: {few(one.name for one in lacking)} have in-sync replicas only on "
        f"{nodes(members)}, where no broker serves, and {ENABLE} is not false. The controller would elect broker "
        f"{node_id} and lose acknowledged records.",
        remedy=f"Read the logs of {nodes(members)} and fix what keeps them fenced, then repeat the step. To start the "
        "other brokers without them, an approver must accept that these partitions have no leader. "
        f"{_way_out(cluster, seen)}",
    )


def _way_out(cluster: ClusterSpec, seen: _Seen) -> str:
    """Return how Kafka's tools set the value of a topic now.

    They reach controllers from the level on at which these register (DescribeCluster, KIP-919). A new broker has no
    replica that a controller could elect.
    """
    before = ""
    if serving := [node for node in cluster.brokers if node.node_id in seen.serving]:
        through = f"--bootstrap-server {','.join(str(node.broker_address) for node in serving)}"
    elif seen.level >= METADATA_VERSION_FLOOR:
        addresses = ",".join(str(node.controller_address) for node in cluster.controllers)
        through = f"--bootstrap-controller {addresses}"
    else:
        through = "--bootstrap-server NEW-BROKER"
        before = (
            "Start a broker with an unused node.id and an empty, formatted directory, on the release of the "
            f"controllers: below metadata.version {METADATA_VERSION_FLOOR}, Kafka's tools reach no controller. "
        )
    after = (
        " Stop the new broker, and unregister it when the others serve (kafka-cluster.sh unregister)." if before else ""
    )
    return (
        f"{before}For each of their topics: kafka-configs.sh {through} --alter --entity-type topics "
        f"--entity-name TOPIC --add-config {ENABLE}=false.{after} Then repeat the step."
    )
