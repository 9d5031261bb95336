"""Undo of an offline downgrade: restore every node's directory from its backup, install the old binary, start all
nodes.

Possible until the first broker has registered at the new level. Every node's log shows this; the history does not
count.
"""

from __future__ import annotations

from kafka_rollout.domain.gates.check import GateKind, GateRef
from kafka_rollout.domain.model.cluster.topology import NodeSpec
from kafka_rollout.domain.model.errors import RefusedError
from kafka_rollout.domain.model.plan import Plan, ReleaseStep
from kafka_rollout.domain.offline.log_choice import UnreadableLogError
from kafka_rollout.domain.run.events import ApprovalOf
from kafka_rollout.domain.run.offline_events import OfflineRestored, OfflineUndoing, OfflineUndone
from kafka_rollout.domain.run.projections.offline import is_undoing, restored_nodes, stop_has_begun
from kafka_rollout.steps.common import lock
from kafka_rollout.steps.common.approval import require_approval
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.node_steps import last_started_release, offline_release_step, record_start
from kafka_rollout.steps.offline.actions import READY_WITHIN_S, STOP_DEADLINE_S
from kafka_rollout.steps.offline.outage import watch_service
from kafka_rollout.steps.planning.check import check_plan


def undo_offline(ports: ClusterPorts, plan: Plan) -> tuple[int, ...]:
    """Stop the nodes that run the target, restore every byte, install the old binary, start. Return the restored nodes.

    Idempotent and resumable. Raises RefusedError, with nothing changed, if it is too late. The gates after the start
    show when the nodes are back.
    """
    plan = check_plan(ports, plan.hash)
    release_step = offline_release_step(plan)
    require_approval(ports, plan, ApprovalOf.ROLL_BACK)
    lock.acquire_lock(ports, f"Undo the offline downgrade of cluster {plan.cluster}.")
    with ports.lock.acting(ports.cluster.name, ports.run_id, "Undoing the offline downgrade"):
        if not stop_has_begun(ports.run.events()):
            return ()
        if not is_undoing(ports.run.events()):
            _refuse_too_late(ports, plan, release_step)
            for node in ports.cluster.nodes:
                if _runs_target(ports, node, release_step):
                    ports.runtime.stop(node, deadline_s=STOP_DEADLINE_S, force=True)
            _refuse_used(ports, plan)  # what was written until the stop
            ports.run.record(OfflineUndoing(sentence="No broker has registered at the new level."))
        for node in ports.cluster.nodes:
            _restore_node(ports, plan, node)
        for node in ports.cluster.controllers_first:
            if ports.runtime.process(node).pid is None:
                ports.runtime.install(node, release_step.from_release)
                ports.runtime.start(node)
                record_start(ports, release_step.reversed(), node)
        restored = sorted(restored_nodes(ports.run.events()))
        sentence = f"Nodes started on {release_step.from_release}; restored: {', '.join(map(str, restored)) or 'none'}."
        ports.run.record(OfflineUndone(nodes=tuple(restored), sentence=sentence))
        watch_service(ports, READY_WITHIN_S)
    return tuple(restored)


def gates_after_undo(plan: Plan) -> tuple[GateRef, ...]:
    """Return one gate per node, in the rollback of the plan's release step."""
    back = offline_release_step(plan).reversed()
    return tuple(
        GateRef(kind=GateKind.AFTER_START, release_step=back.key, node_id=node_step.node_id) for node_step in back.order
    )


def _refuse_too_late(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep) -> None:
    for node in ports.cluster.nodes:
        if node.is_broker and _runs_target(ports, node, release_step):
            raise RefusedError(
                f"Broker {node.node_id} runs {release_step.to_release}, so the downgrade cannot be undone.",
                remedy="Finish the downgrade, then upgrade again.",
            )
    _refuse_used(ports, plan)


def _refuse_used(ports: ClusterPorts, plan: Plan) -> None:
    for node in ports.cluster.nodes:
        try:
            ports.metadata_logs.refuse_used(node, cluster_id=plan.cluster_id)
        except UnreadableLogError:
            continue  # no log, so no file was replaced


def _runs_target(ports: ClusterPorts, node: NodeSpec, release_step: ReleaseStep) -> bool:
    is_up = ports.runtime.process(node).pid is not None
    return is_up and last_started_release(ports, node) == release_step.to_release


def _restore_node(ports: ClusterPorts, plan: Plan, node: NodeSpec) -> None:
    if ports.runtime.process(node).pid is not None:
        return  # it was not stopped, or it is already started again
    try:
        sentence = ports.metadata_logs.undo_install(node, cluster_id=plan.cluster_id)
    except UnreadableLogError:
        return
    if sentence is not None:
        ports.run.record(OfflineRestored(node_id=node.node_id, sentence=f"node {node.node_id}: {sentence}"))
