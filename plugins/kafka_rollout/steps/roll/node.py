"""Replaces the binary of a node or of a batch of nodes, and rolls it back: stop, install, start.

It observes first, so a killed run continues where it stopped. Only the BeforeStop record is stored, before the stop,
because it cannot be observed later. Everything else (the process, its release, the last started release) is observed at
each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from threading import Lock

from kafka_rollout.base import wording as words
from kafka_rollout.base.errors import FatalError, RefusedError, TransientError
from kafka_rollout.model.plan import NodeStep, Plan, ReleaseStep
from kafka_rollout.model.state import ProcessState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.planning.findings.hosts import CLOCK_SKEW_S, STOP_DEADLINE_S
from kafka_rollout.run.events import ApprovalOf
from kafka_rollout.run.projections.nodes import (
    has_acted_on_node,
)
from kafka_rollout.steps.common import lock
from kafka_rollout.steps.common.approval import require_approval
from kafka_rollout.steps.common.cluster_ports import ClusterPorts, observe
from kafka_rollout.steps.common.node_steps import (
    NodeStepState,
    is_rollback_step,
    node_step_state,
    read_last_error,
    record_start,
    run_commands_before_stop,
    running_release,
    stop_node,
)
from kafka_rollout.steps.downgrade.metadata_logs import make_readable
from kafka_rollout.steps.gates.checks import check_stop_is_safe, load_before_stop, observe_all
from kafka_rollout.steps.planning.check import check_plan
from kafka_rollout.steps.roll.stop import check_batch, prepare_stop, refuse_unsafe_node_stop, stop_is_under_way

_METADATA_LOGS = Lock()  # Kafka's classes for metadata logs run in one JVM


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReplaced:
    """Result of a replacement.

    `acted` False: the node already ran the release. `started_at`: epoch seconds; durations: s.
    """

    node_id: int
    release_step: str
    release: str
    acted: bool
    started_at: float | None
    stop_s: float = 0.0
    start_s: float = 0.0


def needs_replacement(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, node: NodeSpec) -> bool:
    """Return False if the node already runs the release of this or a later release step; then only its gate remains."""
    return node_step_state(ports, plan, release_step, node) is NodeStepState.NEEDED


def replace_node(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, node: NodeSpec) -> NodeReplaced:
    """Replace the binary of one node, as `replace_nodes`."""
    return replace_nodes(ports, plan, release_step, (node,))[0]


def replace_nodes(
    ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, nodes: Sequence[NodeSpec]
) -> tuple[NodeReplaced, ...]:
    """Replace the binary of the nodes of a batch: check findings and gates, record their states, stop, install, start.

    No node is stopped before every node can be stopped and has its state recorded. Then they are stopped and started at
    the same time. Returns after the starts; the gate AFTER_START shows whether a node is back. Idempotent and resumable
    after a kill, with one start per release. Raises RefusedError (approval invalid, unknown release), TransientError
    (a gate before the stop does not pass now, or no response: call again), FatalError (a process is gone after the
    start: retry or roll back).
    """
    if plan.offline:
        raise RefusedError(
            f"The plan of cluster {plan.cluster} is an offline downgrade, so nodes are not replaced one by one.",
            remedy="Use the offline steps. To undo, run `kafka-rollout rollback`.",
        )
    what = words.nodes(node.node_id for node in nodes)
    _begin(ports, plan, release_step, what, "Replace")
    with ports.lock.acting(ports.cluster.name, ports.run_id, f"Replacing {what}"):
        done: dict[int, NodeReplaced] = {}
        stopping: list[NodeSpec] = []
        for node in nodes:
            process = ports.runtime.process(node)
            state = node_step_state(ports, plan, release_step, node)
            if state is not NodeStepState.NEEDED:
                done[node.node_id] = _nothing_to_do(release_step, node, process)
                continue
            _refuse_other_release(ports, release_step, node)
            if process.pid is not None:
                stopping.append(node)
            else:
                _refuse_unexplained_absence(ports, release_step, node)
        begun = False  # a pause does not begin between the drains of a batch
        whole, gates = cache(lambda: observe(ports)), cache(lambda: observe_all(ports))
        for node in stopping:
            others = tuple(one for one in nodes if one != node)
            shared = (whole, gates) if others and not begun else None  # a drain changes the cluster
            begun |= prepare_stop(ports, plan, release_step, node, others, has_begun=begun, shared=shared)
        if len(nodes) > 1 and stopping:
            check_batch(ports, plan, release_step, nodes, stopping)

        def act(node: NodeSpec) -> NodeReplaced:
            stop_s = _stop(ports, release_step, node) if node in stopping else 0.0
            return _start(ports, plan, release_step, node, stop_s)

        acted = _at_the_same_time(act, [node for node in nodes if node.node_id not in done])
        return tuple(done.get(node.node_id) or acted[node.node_id] for node in nodes)


def is_under_way(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, node: NodeSpec) -> bool:
    """Return whether this run has stopped or started the node in the release step, so that it must be finished first.

    In a rollback, this is a node that the run stopped in either direction and that has no process.
    """
    if node_step_state(ports, plan, release_step, node) is not NodeStepState.NEEDED:
        return True
    if ports.runtime.process(node).pid is None:
        return was_stopped(ports, plan, release_step, node.node_id)
    return stop_is_under_way(ports, release_step, node)


def _at_the_same_time(act: Callable[[NodeSpec], NodeReplaced], nodes: Sequence[NodeSpec]) -> dict[int, NodeReplaced]:
    """Return the results by node. Every node is finished; then the worst error of one of them is raised."""
    if len(nodes) == 1:
        return {nodes[0].node_id: act(nodes[0])}
    if not nodes:
        return {}
    with ThreadPoolExecutor(max_workers=len(nodes), thread_name_prefix="replace") as pool:
        futures = {node.node_id: pool.submit(act, node) for node in nodes}
    errors = [error for future in futures.values() if (error := future.exception()) is not None]
    if errors:
        raise min(errors, key=lambda error: isinstance(error, TransientError))
    return {node_id: future.result() for node_id, future in futures.items()}


def retry_node(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, node: NodeSpec) -> NodeReplaced:
    """Carry out *Retry*: start a node again that this run stopped or started; for another node its node step begins
    again.
    """
    if has_acted_on_node(ports.run.events(), release_step.key, node.node_id):
        return restart_node(ports, plan, release_step, node)
    return replace_node(ports, plan, release_step, node)


def restart_node(
    ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, node: NodeSpec, together: Sequence[NodeSpec] = ()
) -> NodeReplaced:
    """Start the node on the release of the release step again; kill a hanging process first.

    `together`: nodes of its batch that are down too. Raises TransientError if the rest of the cluster cannot spare a
    process that still runs.
    """
    _begin(ports, plan, release_step, words.nodes([node.node_id]), "Retry")
    if not was_stopped(ports, plan, release_step, node.node_id):
        raise RefusedError(
            f"Node {node.node_id} was not stopped by this run in release step {release_step.key}, so it cannot be "
            "started again.",
            remedy="Wait for its node step.",
        )
    with ports.lock.acting(ports.cluster.name, ports.run_id, f"Restarting node {node.node_id}"):
        stop_s = 0.0
        _refuse_other_release(ports, release_step, node)
        if ports.runtime.process(node).pid is not None:
            run_commands_before_stop(ports, release_step, node)
            refuse_unsafe_node_stop(ports, release_step, node, check_stop_is_safe(ports, plan, node, together))
            # *Retry* comes from a named approver, which is required for a kill.
            stop_s = _stop(ports, release_step, node, force=True)
        return _start(ports, plan, release_step, node, stop_s)


def rollback_release_steps(plan: Plan) -> tuple[ReleaseStep, ...]:
    """Return the release steps of the rollback in their order: the last release step first, each reversed."""
    return tuple(release_step.reversed() for release_step in reversed(plan.release_steps))


def was_stopped(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, node_id: int) -> bool:
    """Return whether this run stopped the node in this release step (for a rollback: in either direction)."""
    return load_before_stop(ports, plan, release_step, node_id) is not None


def plan_rollback(ports: ClusterPorts, plan: Plan) -> tuple[tuple[ReleaseStep, NodeStep], ...]:
    """Return the node steps of the rollback, beginning with the node where the run stopped.

    It contains nodes that this run touched or that run a newer release of the plan, and no node that kept its old
    release.
    """
    refuse_restart(plan)
    return tuple(
        (release_step, node_step)
        for release_step in rollback_release_steps(plan)
        for node_step in release_step.order
        if must_roll_back(ports, plan, release_step, ports.cluster.node(node_step.node_id))
    )


def must_roll_back(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, node: NodeSpec) -> bool:
    """Return whether the rollback has the node in this release step, which is one of `rollback_release_steps`."""
    before = rollback_release_steps(plan)
    # A node with one of these releases is rolled back through the release steps before this one, and then this one.
    beyond = {earlier.from_release for earlier in before[: before.index(release_step)]}
    if running_release(ports, node) in beyond:
        return True
    state = node_step_state(ports, plan, release_step, node)
    ours = was_stopped(ports, plan, release_step, node.node_id)
    return (state is NodeStepState.NEEDED and (ours or not _is_down_since_another_step(ports, plan, node))) or (
        state is NodeStepState.RUNS_TARGET and ours
    )


def refuse_restart(plan: Plan) -> None:
    """Raise RefusedError if the run restarts nodes on their own release: its configuration is not the run's."""
    if plan.restarts:
        raise RefusedError(
            f"The run restarts nodes on {plan.target}, so there is no release to return to.",
            remedy="Correct the configuration of the node, then run `kafka-rollout retry`.",
        )


def _is_down_since_another_step(ports: ClusterPorts, plan: Plan, node: NodeSpec) -> bool:
    """A node that failed to start on the via release never reached the last release step, so nothing is to roll back
    there.
    """
    down = ports.runtime.process(node).pid is None
    return down and any(was_stopped(ports, plan, release_step, node.node_id) for release_step in plan.release_steps)


def _begin(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, nodes: str, verb: str) -> None:
    check_plan(ports, plan.hash)
    what = ApprovalOf.ROLL_BACK if is_rollback_step(plan, release_step) else ApprovalOf.ROLL
    require_approval(ports, plan, what)
    lock.acquire_lock(ports, f"{verb} {nodes} ({release_step.from_release} to {release_step.to_release}).")


def _refuse_other_release(ports: ClusterPorts, release_step: ReleaseStep, node: NodeSpec) -> None:
    """Raise RefusedError if a restart, which installs nothing, would start the node on another release."""
    if not release_step.restarts:
        return
    installed = ports.runtime.process(node).installed
    if installed != release_step.to_release:
        raise RefusedError(
            f"The next start of node {node.node_id} would be on {installed or 'an unknown release'}, and a restart "
            f"stays on {release_step.to_release}.",
            remedy=f"Set its installed release to {release_step.to_release} again, or start an upgrade or a downgrade.",
        )


def _nothing_to_do(release_step: ReleaseStep, node: NodeSpec, process: ProcessState) -> NodeReplaced:
    return NodeReplaced(
        node_id=node.node_id,
        release_step=release_step.key,
        release=str(release_step.to_release),
        acted=False,
        started_at=process.started_at,
    )


def _refuse_unexplained_absence(ports: ClusterPorts, release_step: ReleaseStep, node: NodeSpec) -> None:
    """Refuse a node without a process unless this run stopped it and has not started it since.

    A recorded start before this run's stop does not count: an operator can have started the node on another release.
    """
    before = ports.run.load_before_stop(release_step.key, node.node_id)
    if before is None:
        before = ports.run.load_before_stop(release_step.reversed().key, node.node_id)
        if before is None:
            raise RefusedError(
                f"Node {node.node_id} has no process, and this run did not stop it.",
                remedy=f"Find out why it is down ({read_last_error(ports, node)}), start it, then repeat the step.",
            )
        # Rolled back right after a failed start: its state was recorded before the stop of the upgrade.
        ports.run.save_before_stop(release_step.key, before)
    since = [
        start
        for start in ports.runtime.starts(node)
        if start.started_at >= before.at - CLOCK_SKEW_S and start.pid != before.pid
    ]
    if since and since[-1].release == release_step.to_release:
        raise FatalError(
            f"Node {node.node_id} was started on {release_step.to_release}, but its process is gone: "
            f"{read_last_error(ports, node)}.",
            remedy=f"Fix the error in its log and retry the node{'' if release_step.restarts else ', or roll back'}.",
        )


def _stop(ports: ClusterPorts, release_step: ReleaseStep, node: NodeSpec, *, force: bool = False) -> float:
    lock.acquire_lock(ports, f"Stop node {node.node_id}.", for_s=lock.LEASE_S + STOP_DEADLINE_S)
    return stop_node(ports, release_step, node, deadline_s=STOP_DEADLINE_S, force=force)


def _start(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, node: NodeSpec, stop_s: float) -> NodeReplaced:
    began = ports.clock.monotonic()
    with _METADATA_LOGS:
        make_readable(ports, plan, release_step, node)
    release = release_step.to_release
    _refuse_other_release(ports, release_step, node)  # again: the stop can have taken minutes
    if not release_step.restarts:
        ports.runtime.install(node, release, plan.config_changes_of(node.node_id, release))
    ports.runtime.start(node)
    took = ports.clock.monotonic() - began
    started = record_start(ports, release_step, node, seconds=took)
    return NodeReplaced(
        node_id=node.node_id,
        release_step=release_step.key,
        release=str(release),
        acted=True,
        started_at=started.started_at,
        stop_s=stop_s,
        start_s=took,
    )
