"""min.insync.replicas of a cluster, for a plan that raises eligible.leader.replicas.version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kafka_rollout.base.errors import NotObservableError, RefusedError, RolloutError, TransientError
from kafka_rollout.features.min_isr import (
    MIN_ISR,
    MinIsr,
    MinIsrEffects,
    find_min_isr_effects,
    pin_refused,
    raises_elr,
    value_of_file,
)
from kafka_rollout.model.configs import SettingValues
from kafka_rollout.model.plan import FeatureChange
from kafka_rollout.model.state import PartitionState
from kafka_rollout.steps.common.cluster_ports import ClusterPorts


def plan_min_isr(
    ports: ClusterPorts,
    changes: Iterable[FeatureChange],
    partitions: Sequence[PartitionState],
    *,
    pin: bool,
    configs: Mapping[int, Mapping[str, str]] | None = None,
) -> MinIsrEffects:
    """Return what raising ELR changes besides the level. Nothing is read if no change raises it.

    `pin`: the run sets the default first; the controller validates this request. `configs`: configuration of the next
    start by node id, if nodes restart. A value that cannot be read is a blocker.
    """
    if not raises_elr(changes):
        return MinIsrEffects()
    try:
        found = observe_min_isr(ports, partitions, configs or {})
    except (TransientError, RefusedError) as error:
        found = MinIsr(values=SettingValues(), unknown=(error.sentence,))
    effects = find_min_isr_effects(found, pin=pin, bootstrap_servers=ports.cluster.bootstrap_servers)
    try:
        for change in effects.changes:
            if change.by_run and change.after is not None:
                ports.admin.set_default_config(change.key, change.after, validate_only=True)
    except RolloutError as error:
        return MinIsrEffects(findings=(pin_refused(error.sentence, error.remedy),))
    return effects


def observe_min_isr(
    ports: ClusterPorts, partitions: Sequence[PartitionState], configs: Mapping[int, Mapping[str, str]]
) -> MinIsr:
    """Return min.insync.replicas of brokers, topics and controllers.

    The files of controllers count only without a cluster-wide default. Raises TransientError where a broker does not
    respond, RefusedError without the right.
    """
    values = ports.admin.setting(MIN_ISR)
    replicas: dict[str, set[int]] = {}
    for partition in partitions:
        if partition.topic not in values.topics:
            replicas.setdefault(partition.topic, set()).update(partition.replicas)
    missing = sorted({node.node_id for node in ports.cluster.brokers} - values.brokers.keys())
    found = MinIsr(
        values=values,
        topics=replicas,
        unknown=tuple(f"Broker {node_id} did not report its {MIN_ISR}." for node_id in missing),
    )
    return found if values.default is not None else _with_files(ports, found, configs)


def _with_files(ports: ClusterPorts, found: MinIsr, configs: Mapping[int, Mapping[str, str]]) -> MinIsr:
    files: dict[int, set[str]] = {}
    unread: list[str] = []
    for node in ports.cluster.controllers:
        seen = files.setdefault(node.node_id, set())
        if node.node_id in configs:  # the process that becomes the active controller reads this file
            seen.add(value_of_file(configs[node.node_id]))
        try:
            seen.add(value_of_file(ports.admin.node_config(node)))
        except (NotObservableError, TransientError, RefusedError) as error:
            if not seen:
                unread.append(f"The {MIN_ISR} of controller {node.node_id} is unknown: {error.sentence}")
    return replace(found, files={i: frozenset(seen) for i, seen in files.items() if seen}, unread=tuple(unread))
