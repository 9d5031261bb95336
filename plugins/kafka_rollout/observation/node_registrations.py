"""Observes whether brokers' registrations have the levels to raise: by the controller, else in its metadata log."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.features.registrations import SeenRegistrations, evaluate_registrations, registered_levels
from kafka_rollout.model.plan import FeatureChange
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts, read_registrations
from kafka_rollout.observation.run import NodeRun
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import RegistrationsRead


def observe_registrations(
    ports: ClusterPorts, changes: Iterable[FeatureChange], node_ids: Collection[int], *, cluster_id: str
) -> SeenRegistrations:
    """Ask the controller to validate the levels; if it refuses them, read the registrations in its metadata log.

    A validate-only request names only the first broker that lacks a level. Nothing is changed.
    """
    changes = tuple(changes)
    raised = {change.feature: change.target for change in changes if change.target > change.current}
    with suppress(TransientError, RefusedError):
        results = ports.admin.update_features(raised, validate_only=True)
        if {one.feature for one in results if one.accepted} >= set(raised):
            return SeenRegistrations(complete=tuple(sorted(node_ids)))
    return read_registered(ports, registered_levels(changes), node_ids, cluster_id=cluster_id)


def read_registered(
    ports: ReadPorts, levels: Mapping[str, int], node_ids: Collection[int], *, cluster_id: str
) -> SeenRegistrations:
    """Compare the registrations in the metadata log of the active controller with the levels."""
    leader_id = None
    with suppress(TransientError, RefusedError):
        leader_id = ports.admin.quorum().leader_id
    read = read_registrations(ports, leader_id, cluster_id) if ports.cluster.manages_nodes else None
    return evaluate_registrations(None if read is None else read.brokers, node_ids, levels)


def registration_is_complete(at: NodeRun) -> bool:
    """Return whether a node of the plan's `registration_step` is registered with all levels that the plan raises.

    The result is recorded with the node's process: only a restart renews its registration. An unknown registration is
    not complete.
    """
    pid = at.ports.runtime.process(at.node).pid
    for event in reversed(events_of(at.history.events(), RegistrationsRead)):
        if at.node_id in event.pids:
            if event.pids[at.node_id] == pid:
                return at.node_id in event.seen.complete
            break
    ids = [node_step.node_id for node_step in at.release_step.order]
    pids = {node_id: at.ports.runtime.process(at.run.cluster.node(node_id)).pid for node_id in ids}
    seen = observe_registrations(at.ports, at.plan.feature_changes, ids, cluster_id=at.plan.cluster_id)
    at.history.record(RegistrationsRead(release_step=at.key, seen=seen, pids=pids))
    return at.node_id in seen.complete
