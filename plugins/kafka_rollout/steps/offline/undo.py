"""Take an offline downgrade back: every node's directory from its backup, the old binary, all nodes started again.

Possible until the first broker has registered on the new level: that is asked of every node's log, not remembered.
"""

from __future__ import annotations

from kafka_rollout.domain.model.errors import RefusedError
from kafka_rollout.domain.model.plan import Hop, Plan
from kafka_rollout.domain.model.topology import NodeSpec
from kafka_rollout.domain.offline.log_choice import UnreadableLogError
from kafka_rollout.steps.common import lock
from kafka_rollout.steps.common.approval import ApprovalOf, require_approval
from kafka_rollout.steps.common.cluster_ports import Workbench
from kafka_rollout.steps.common.directories import metadata_directory
from kafka_rollout.steps.gates.checks import GateKind, GateRef
from kafka_rollout.steps.offline.actions import READY_WITHIN_S, STOP_DEADLINE_S
from kafka_rollout.steps.offline.outage import watch_service
from kafka_rollout.steps.offline.record import (
    NO_RETURN,
    PUT_BACK,
    UNDOING,
    UNDONE,
    events_of_this_try,
    last,
    offline_hop,
    stop_has_begun,
)
from kafka_rollout.steps.planning.upgrade import check_plan


def undo_offline(bench: Workbench, plan: Plan) -> tuple[int, ...]:
    """Stop what runs on the target, put every byte back, install the old binary, start; the nodes that were put back.

    Idempotent and resumable. Raises RefusedError, with nothing changed, where it is too late: then the way is forward.
    The gates after the start (of the hop's way back) tell when the nodes are well.
    """
    plan = check_plan(bench, plan.hash)
    hop = offline_hop(plan)
    require_approval(bench, plan, ApprovalOf.ROLL_BACK)
    lock.hold(bench, f"Take the offline downgrade of cluster {plan.cluster} back.")
    with bench.lock.acting(bench.cluster.name, "Taking the offline downgrade back"):
        if not stop_has_begun(bench):
            return ()
        if last(bench, UNDOING) is None:
            _refuse_too_late(bench, plan, hop)
            for node in bench.cluster.nodes:
                if _runs_target(bench, node, hop):
                    bench.runtime.stop(node, deadline_s=STOP_DEADLINE_S, force=True)
            _refuse_used(bench, plan)  # what was written until the stop
            bench.run.record(UNDOING, {"sentence": "No broker has registered on the new level."})
        put_back = [node.node_id for node in bench.cluster.nodes if _put_back(bench, plan, node)]
        for node in bench.cluster.controllers_first:
            if bench.runtime.process(node).pid is None:
                bench.runtime.install(node, hop.from_release)
                bench.runtime.start(node)
                _record_start(bench, node, hop)
        restored = sorted({*put_back, *_restored_before(bench)})
        sentence = f"Nodes started on {hop.from_release}; put back: {', '.join(map(str, restored)) or 'none'}."
        bench.run.record(UNDONE, {"nodes": restored, "sentence": sentence})
        watch_service(bench, READY_WITHIN_S)
    return tuple(restored)


def can_be_undone(bench: Workbench) -> bool:
    """Whether the point of no return is ahead, by the run's record; `undo_offline` asks the logs."""
    return stop_has_begun(bench) and last(bench, NO_RETURN) is None


def gates_after_undo(plan: Plan) -> tuple[GateRef, ...]:
    """One for each node, on the way back of the plan's hop."""
    back = offline_hop(plan).reversed()
    return tuple(GateRef(kind=GateKind.AFTER_START, hop=back.key, node_id=turn.node_id) for turn in back.order)


def _refuse_too_late(bench: Workbench, plan: Plan, hop: Hop) -> None:
    for node in bench.cluster.nodes:
        if node.is_broker and _runs_target(bench, node, hop):
            raise RefusedError(
                f"Broker {node.node_id} runs {hop.to_release}: the downgrade cannot be taken back any more.",
                remedy="Go forward: finish it, then upgrade again.",
            )
    _refuse_used(bench, plan)


def _refuse_used(bench: Workbench, plan: Plan) -> None:
    for node in bench.cluster.nodes:
        try:
            bench.metadata_logs.refuse_used(metadata_directory(bench, node), cluster_id=plan.cluster_id)
        except UnreadableLogError:
            continue  # no log, so nothing of it was replaced


def _runs_target(bench: Workbench, node: NodeSpec, hop: Hop) -> bool:
    if bench.runtime.process(node).pid is None:
        return False
    starts = bench.runtime.starts(node)
    return bool(starts) and starts[-1].release == hop.to_release


def _put_back(bench: Workbench, plan: Plan, node: NodeSpec) -> bool:
    if bench.runtime.process(node).pid is not None:
        return False  # it was not stopped, or it is started again already
    try:
        sentence = bench.metadata_logs.undo_install(metadata_directory(bench, node), cluster_id=plan.cluster_id)
    except UnreadableLogError:
        return False
    if sentence is not None:
        bench.run.record(PUT_BACK, {"node_id": node.node_id, "sentence": f"node {node.node_id}: {sentence}"})
    return sentence is not None


def _restored_before(bench: Workbench) -> list[int]:
    return [event["node_id"] for event in events_of_this_try(bench) if event.get("kind") == PUT_BACK]


def _record_start(bench: Workbench, node: NodeSpec, hop: Hop) -> None:
    bench.run.record(
        "started",
        {
            "node_id": node.node_id,
            "hop": hop.reversed().key,
            "release": str(hop.from_release),
            "pid": bench.runtime.process(node).pid,
            "seconds": 0.0,
        },
    )
