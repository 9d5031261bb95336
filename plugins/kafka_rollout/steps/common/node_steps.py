"""Turns: which release a node really runs, and where that puts it in the plan."""

from __future__ import annotations

from enum import StrEnum

from kafka_rollout.domain.model.errors import RefusedError, TransientError
from kafka_rollout.domain.model.plan import Plan, ReleaseStep
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.model.topology import NodeSpec
from kafka_rollout.steps.common.cluster_ports import ClusterPorts


class NodeStepState(StrEnum):
    """Where a node stands in a release step, as observed."""

    NEEDED = "needed"  # runs the hop's old release, or has no process
    RUNS_TARGET = "runs-target"  # runs the hop's new release: nothing to do but its gate
    PAST = "past"  # runs the release of a later release step: nothing to do, no gate


def node_step_state(ports: ClusterPorts, plan: Plan, release_step_key: str, node_id: int) -> NodeStepState:
    """Observe one node. Raises RefusedError for a release that the release step does not know, TransientError where a
    running node does not tell its release."""
    release_step, node = plan.release_step(release_step_key), ports.cluster.node(node_id)
    release = running_release(ports, node)
    if release is None or release == release_step.from_release:
        return NodeStepState.NEEDED
    if release == release_step.to_release:
        return NodeStepState.RUNS_TARGET
    if any(release == later.to_release for later in hops_from(plan, release_step)[1:]):
        return NodeStepState.PAST
    raise RefusedError(
        f"Node {node_id} runs {release}, but this release step goes from {release_step.from_release} to "
        f"{release_step.to_release}.",
        remedy="Roll the earlier release step first, or plan anew from what runs now.",
    )


def running_release(ports: ClusterPorts, node: NodeSpec) -> Release | None:
    """The release of the node's process; None when there is no process.

    By app-info; a process too young to answer is known by the runtime's own record of its start.
    """
    process = ports.runtime.process(node)
    if process.pid is None:
        return None
    try:
        told = ports.metrics.read(node).release
    except TransientError:
        told = None
    if told is not None:
        return told
    starts = ports.runtime.starts(node)
    if starts and starts[-1].pid == process.pid:
        return starts[-1].release
    raise TransientError(
        f"Node {node.node_id} runs (process {process.pid}) but does not tell its release (metric app-info).",
        remedy="Check its metrics agents, then call again.",
    )


def previous_release(ports: ClusterPorts, plan: Plan) -> Release:
    """The release that the cluster came from, which a way back would lead to.

    A run that finds the binary rolled (features are finalized later, by default) has its plan begin and end at one
    release: there the runtime's record of starts tells what the nodes ran before.
    """
    if plan.release_steps:
        return plan.source
    others = (
        (start.started_at, start.release)
        for node in ports.cluster.nodes
        for start in ports.runtime.starts(node)
        if start.release != plan.target and start.release in ports.catalogue
    )
    return max(others, default=(0.0, plan.source))[1]


def is_way_back(plan: Plan, release_step: ReleaseStep) -> bool:
    """Whether a release step is the reverse of one of the plan's."""
    return release_step.key not in {planned.key for planned in plan.release_steps}


def hops_from(plan: Plan, release_step: ReleaseStep) -> tuple[ReleaseStep, ...]:
    """The release step and those after it, in its own direction."""
    way = (
        tuple(h.reversed() for h in reversed(plan.release_steps))
        if is_way_back(plan, release_step)
        else plan.release_steps
    )
    keys = [h.key for h in way]
    return way[keys.index(release_step.key) :]


# The last is how a broker tells, as mere information, that the controller refused its registration.
_WRONG = ("ERROR", "FATAL", "Exception", "Unable to register")


def read_last_error(ports: ClusterPorts, node: NodeSpec) -> str:
    """The last line of the node's log that says something went wrong (no frame of a trace), else the last line."""
    lines = [line.strip() for line in ports.runtime.log_tail(node, lines=80) if line.strip()]
    if not lines:
        return "its log is empty"
    told = [line for line in lines if not line.startswith("at ")]
    wrong = [line for line in told if any(word in line for word in _WRONG)]
    return f"its log says: {(wrong or told or lines)[-1][:300]}"
