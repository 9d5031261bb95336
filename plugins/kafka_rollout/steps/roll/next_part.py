"""The next part of a node step, observed: gate before the stop, replacement, gate after the start, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from kafka_rollout.gates.check import GateKind, GateRef
from kafka_rollout.model.plan import Plan, ReleaseStep
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.run.events import Event
from kafka_rollout.run.projections.nodes import gate_is_passed, last_act_on_node
from kafka_rollout.run.step_events import GateFailed, Started
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.node_steps import NodeStepState, node_step_state, running_release
from kafka_rollout.steps.roll.node import is_under_way, needs_replacement


class Part(StrEnum):
    GATE_BEFORE = "gate before the stop"
    REPLACEMENT = "replacement"
    GATE_AFTER = "gate after the start"
    NOTHING = "nothing"


def next_part(
    ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, node: NodeSpec, events: Sequence[Event]
) -> Part:
    """Return what is left of a node step. `events`: of the run, with all of this node.

    After a kill during the stop or the start, the replacement continues without the gate before. A node that this run
    started waits for its gate, also if its process is gone: the gate fails, and an approver decides. Raises
    RefusedError for a release outside the release step, TransientError if the node does not respond.
    """
    state = node_step_state(ports, plan, release_step, node)
    if state is NodeStepState.PAST:
        return Part.NOTHING
    after = GateRef(kind=GateKind.AFTER_START, release_step=release_step.key, node_id=node.node_id)
    passed = gate_is_passed(events, after)
    if state is NodeStepState.RUNS_TARGET:
        return Part.NOTHING if passed else Part.GATE_AFTER
    last = last_act_on_node(events, release_step.key, node.node_id)
    if isinstance(last, Started):
        # With another release after a passed gate, an operator has started it: its node step begins again.
        reverted = passed and running_release(ports, node) is not None
        return Part.GATE_BEFORE if reverted else Part.GATE_AFTER
    return Part.GATE_BEFORE if last is None else Part.REPLACEMENT


def next_part_of_batch(
    ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, nodes: Sequence[NodeSpec], events: Sequence[Event]
) -> tuple[Part, tuple[NodeSpec, ...]]:
    """Return the next part of the node steps of a batch, and its nodes. What this run has begun is finished first.

    The gates after the start are one part of all nodes that have begun, so that their soaks are at the same time. A
    replacement also has the nodes that already run the release: they can still be recovering.
    """
    of_part: dict[Part, list[NodeSpec]] = {part: [] for part in Part}
    for node in nodes:
        part = next_part(ports, plan, release_step, node, events)
        if part is Part.GATE_BEFORE and is_under_way(ports, plan, release_step, node):
            part = Part.REPLACEMENT
        of_part[part].append(node)
    if replaced := of_part[Part.REPLACEMENT]:
        started = [one for one in of_part[Part.GATE_AFTER] if not needs_replacement(ports, plan, release_step, one)]
        return Part.REPLACEMENT, (*replaced, *started)
    for part in (Part.GATE_AFTER, Part.GATE_BEFORE):
        if of_part[part]:
            return part, tuple(of_part[part])
    return Part.NOTHING, ()


def has_failed(ports: ClusterPorts, release_step: ReleaseStep, node: NodeSpec, events: Sequence[Event]) -> bool:
    """Return whether *Retry* starts the node again: its stop hangs, its process is gone or its last gate failed."""
    if not isinstance(last_act_on_node(events, release_step.key, node.node_id), Started):
        return True
    gates = (
        event
        for event in reversed(events)
        if isinstance(event, Started | GateFailed) and _node_of(event) == node.node_id
    )
    return isinstance(next(gates, None), GateFailed) or ports.runtime.process(node).pid is None


def _node_of(event: Started | GateFailed) -> int | None:
    return event.node_id if isinstance(event, Started) else event.ref.node_id
