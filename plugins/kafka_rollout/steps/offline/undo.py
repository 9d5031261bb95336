"""Undo of an offline downgrade: restore every node's directory from its backup, install the old binary, start all
nodes.

Possible until the first broker has registered at the new level. Every node's log shows this; the history does not
count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from kafka_rollout.base.errors import FatalError, RefusedError, RolloutError, TransientError
from kafka_rollout.base.wording import few
from kafka_rollout.gates.check import Gate, GateKind
from kafka_rollout.metadata_log.log_choice import UnreadableLogError, epoch_after_return, has_majority
from kafka_rollout.model.plan import Plan, ReleaseStep
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.run.events import ApprovalOf, newest
from kafka_rollout.run.projections.offline import (
    chosen_log,
    installed_on,
    is_undoing,
    restored_nodes,
    snapshot_is_written,
    stop_has_begun,
    unreached,
)
from kafka_rollout.run.step_events import OfflineRestored, OfflineUndoing, OfflineUndone
from kafka_rollout.steps.common import lock
from kafka_rollout.steps.common.approval import require_approval
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.node_steps import last_started_release, offline_release_step, record_start
from kafka_rollout.steps.offline.actions import READY_WITHIN_S, STOP_DEADLINE_S
from kafka_rollout.steps.offline.late_nodes import has_fetched_snapshot
from kafka_rollout.steps.offline.outage import watch_service
from kafka_rollout.steps.offline.snapshot import at_once, host_of, on_each, silent_hosts
from kafka_rollout.steps.planning.check import check_plan


def undo_offline(ports: ClusterPorts, plan: Plan) -> tuple[int, ...]:
    """Stop the nodes that run the target, restore every byte, install the old binary, start. Return the restored nodes.

    Each node is handled on its own. Idempotent and resumable. Raises RefusedError, with nothing changed, if it is too
    late, and TransientError if it is unknown; TransientError or FatalError, with the other nodes started, if a node
    could not be restored. The gates after the start show when the nodes are back.
    """
    plan = check_plan(ports, plan.hash)
    release_step = offline_release_step(plan)
    require_approval(ports, plan, ApprovalOf.ROLL_BACK)
    lock.acquire_lock(ports, f"Undo the offline downgrade of cluster {plan.cluster}.")
    acting = ports.lock.acting(ports.cluster.name, ports.run_id, "Undoing the offline downgrade")
    with acting, ports.runtime.short_timeouts():
        if not stop_has_begun(ports.run.events()):
            return ()
        if not is_undoing(ports.run.events()):
            _begin(ports, plan, release_step)
        failed = dict(on_each(lambda node: _restore_node(ports, plan, node), ports.cluster.nodes).failed)
        if any(ports.cluster.node(node_id).is_controller for node_id in failed):
            failed |= _raise_epochs(ports, plan, failed)
        for group in (ports.cluster.controllers, ports.cluster.brokers_alone):  # controllers first
            left = [node for node in group if node.node_id not in failed]
            failed |= on_each(lambda node: _start(ports, release_step, node), left, in_turn=host_of).failed
        restored = sorted(restored_nodes(ports.run.events()))
        if failed:
            _raise_for(failed, release_step)
        sentence = f"Nodes started on {release_step.from_release}; restored: {', '.join(map(str, restored)) or 'none'}."
        ports.run.record(OfflineUndone(nodes=tuple(restored), sentence=sentence))
        watch_service(ports, READY_WITHIN_S)
    return tuple(restored)


def _begin(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep) -> None:
    """Stop the nodes that run the target and record the undo, unless it is too late by the logs."""
    silent = silent_hosts(ports, ports.cluster.nodes)
    reached = [node for node in ports.cluster.nodes if node.node_id not in silent]
    _refuse_too_late(ports, plan, release_step, reached)

    def stop(node: NodeSpec) -> None:
        if _runs_target(ports, node, release_step):
            if node.commands_before_stop:
                ports.runtime.prepare_stop(node)
            ports.runtime.stop(node, deadline_s=STOP_DEADLINE_S, force=True)

    at_once(stop, reached)
    _refuse_used(ports, plan, reached)  # what was written until the stop
    logs = on_each(lambda node: ports.metadata_logs.node_log(node, cluster_id=plan.cluster_id), reached).done
    chosen = chosen_log(ports.run.events())
    epoch = 0 if chosen is None else epoch_after_return(chosen, logs.values())
    ports.run.record(OfflineUndoing(sentence="No broker has registered at the new level.", epoch=epoch))


def _raise_epochs(ports: ClusterPorts, plan: Plan, failed: Mapping[int, RolloutError]) -> Mapping[int, RolloutError]:
    """Store a later epoch on the controllers that were restored, because another one can still have the snapshot.

    It cannot win an election against them then (metadata_log/log_choice.py). Returns node id → error.
    """
    undoing, chosen = newest(ports.run.events(), OfflineUndoing), chosen_log(ports.run.events())
    if undoing is None or chosen is None or not snapshot_is_written(ports.run.events()):
        return {}
    epoch = undoing.epoch or epoch_after_return(chosen, ())

    def raise_epoch(node: NodeSpec) -> None:
        if ports.runtime.process(node).pid is None:
            with suppress(UnreadableLogError):  # its disk was lost
                ports.metadata_logs.raise_epoch(node, epoch=epoch, cluster_id=plan.cluster_id)

    return on_each(raise_epoch, [node for node in ports.cluster.controllers if node.node_id not in failed]).failed


def _start(ports: ClusterPorts, release_step: ReleaseStep, node: NodeSpec) -> None:
    if ports.runtime.process(node).pid is None:
        ports.runtime.install(node, release_step.from_release)
        ports.runtime.start(node)
        record_start(ports, release_step.reversed(), node)


def _raise_for(failed: Mapping[int, RolloutError], release_step: ReleaseStep) -> NoReturn:
    kind = TransientError if all(isinstance(one, TransientError) for one in failed.values()) else FatalError
    problems = [f"node {node_id}: {error.sentence}" for node_id, error in sorted(failed.items())]
    raise kind(
        f"The undo is not finished on every node: {few(problems)}",
        remedy=f"The other nodes were started on {release_step.from_release}. Fix the cause, or wait until the host "
        "responds, then repeat `kafka-rollout rollback`. Do not start this node by hand before.",
    )


def gates_after_undo(ports: ClusterPorts, plan: Plan) -> tuple[Gate, ...]:
    """Return one gate per node, in the rollback of the plan's release step."""
    back = offline_release_step(plan).reversed()
    return tuple(
        Gate(kind=GateKind.AFTER_START, release_step=back, node=ports.cluster.node(node_step.node_id))
        for node_step in back.order
    )


def _refuse_too_late(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, reached: Sequence[NodeSpec]) -> None:
    for node in reached:
        if node.is_broker and _runs_target(ports, node, release_step):
            raise RefusedError(
                f"Broker {node.node_id} runs {release_step.to_release}, so the downgrade cannot be undone.",
                remedy="Finish the downgrade, then upgrade again.",
            )
    _refuse_used(ports, plan, reached)


def _refuse_used(ports: ClusterPorts, plan: Plan, reached: Sequence[NodeSpec]) -> None:
    """Raise RefusedError if a broker has registered on the snapshot.

    The registration is a committed record, so it is in a log of any majority of the controllers. Raises TransientError
    if fewer logs can be read.
    """
    read = []
    for node in reached:
        try:
            ports.metadata_logs.refuse_used(node, cluster_id=plan.cluster_id)
        except UnreadableLogError:
            continue  # no log, so no file was replaced
        read.append(node.node_id)
    chosen = chosen_log(ports.run.events())
    if chosen is None or not snapshot_is_written(ports.run.events()) or has_majority(chosen.voters, read):
        return
    found = len(set(chosen.voters) & set(read))
    raise TransientError(
        f"The logs of {found} of {len(chosen.voters)} controllers could be read. A majority is needed to know that no "
        "broker has registered at the new level.",
        remedy="Nothing was changed. Repeat the command when more hosts respond.",
    )


def _runs_target(ports: ClusterPorts, node: NodeSpec, release_step: ReleaseStep) -> bool:
    is_up = ports.runtime.process(node).pid is not None
    return is_up and last_started_release(ports, node) == release_step.to_release


def _restore_node(ports: ClusterPorts, plan: Plan, node: NodeSpec) -> None:
    events = ports.run.events()
    if ports.runtime.process(node).pid is not None:
        has_snapshot = node.node_id in installed_on(events) or node.node_id in unreached(events)
        if node.node_id in restored_nodes(events) or not has_snapshot:
            return  # it was not stopped, or it is already started again
        ports.runtime.stop(node, deadline_s=STOP_DEADLINE_S, force=True)  # something else started it
    try:
        sentence = ports.metadata_logs.undo_install(node, cluster_id=plan.cluster_id)
    except UnreadableLogError:
        return
    if sentence is None and has_fetched_snapshot(ports, plan, node):
        raise RefusedError(
            f"Node {node.node_id} was started during the downgrade and has fetched the snapshot, and no backup of its "
            "own log exists.",
            remedy="Empty its metadata log directory and format it, then repeat the command.",
        )
    if sentence is not None:
        ports.run.record(OfflineRestored(node_id=node.node_id, sentence=f"node {node.node_id}: {sentence}"))
