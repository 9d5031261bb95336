"""Replaces the binary of a node or of a batch of nodes, and rolls it back: stop, install, start.

It observes first, so a killed run continues where it stopped. Only the BeforeStop record is stored, before the stop,
because it cannot be observed later. Everything else (the process, its release, the last started release) is observed at
each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Lock

from kafka_rollout.base import wording as words
from kafka_rollout.base.errors import FatalError, RefusedError, TransientError
from kafka_rollout.base.time_limits import LEASE_OF_STOP_S, STOP_S
from kafka_rollout.control import lock
from kafka_rollout.control.approval import require_approval
from kafka_rollout.model.plan import Lowering, Plan, ReleaseStep
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts, observe
from kafka_rollout.observation.node_logs import read_last_error
from kafka_rollout.observation.node_steps import (
    NodeStepState,
    is_rollback_step,
    node_step_state,
    record_start,
    rollback_release_steps,
    run_commands_before_stop,
    running_release,
    stop_node,
)
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.findings.hosts import CLOCK_SKEW_S
from kafka_rollout.preparation.frozen_plan import check_plan
from kafka_rollout.roll.gate_checks import check_stop_is_safe, load_before_stop, observe_all
from kafka_rollout.roll.metadata_logs import make_readable
from kafka_rollout.roll.stop import check_batch, prepare_stop, refuse_unsafe_node_stop
from kafka_rollout.run.events import ApprovalOf

_METADATA_LOGS = Lock()  # Kafka's classes for metadata logs run in one JVM


def needs_replacement(run: Run, release_step: ReleaseStep, node: NodeSpec) -> bool:
    """Return False if the node already runs the release of this or a later release step; then only its gate remains."""
    return node_step_state(run, release_step, node) is NodeStepState.NEEDED


def replace_node(run: Run, release_step: ReleaseStep, node: NodeSpec) -> bool:
    """Replace the binary of one node, as `replace_nodes`. Return whether it was started now."""
    return bool(replace_nodes(run, release_step, (node,)))


def replace_nodes(run: Run, release_step: ReleaseStep, nodes: Sequence[NodeSpec]) -> tuple[int, ...]:
    """Replace the binary of the nodes of a batch: check findings and gates, record their states, stop, install, start.

    Returns the ids of the nodes that were started now.

    No node is stopped before every node can be stopped and has its state recorded. Then they are stopped and started at
    the same time. Returns after the starts; the gate AFTER_START shows whether a node is back. Idempotent and resumable
    after a kill, with one start per release. Raises RefusedError (approval invalid, unknown release), TransientError
    (a gate before the stop does not pass now, or no response: call again), FatalError (a process is gone after the
    start: retry or roll back).
    """
    if run.plan.lowering is Lowering.OFFLINE:
        raise RefusedError(
            f"The plan of cluster {run.plan.cluster} is an offline downgrade, so nodes are not replaced one by one.",
            remedy="Use the offline steps. To undo, run `kafka-rollout rollback`.",
        )
    what = words.nodes(node.node_id for node in nodes)
    _begin(run, release_step, what, "Replace")
    with run.ports.lock.acting(run.cluster.name, run.ports.run_id, f"Replacing {what}"):
        needed: list[NodeSpec] = []
        stopping: list[NodeSpec] = []
        for node in nodes:
            process = run.ports.runtime.process(node)
            if not needs_replacement(run, release_step, node):
                continue
            _refuse_other_release(run.ports, release_step, node)
            needed.append(node)
            if process.pid is not None:
                stopping.append(node)
            else:
                _refuse_unexplained_absence(run.ports, release_step, node)
        begun = False  # a pause does not begin between the drains of a batch
        whole, gates = cache(lambda: observe(run.ports)), cache(lambda: observe_all(run.ports))
        for node in stopping:
            others = tuple(one for one in nodes if one != node)
            shared = (whole, gates) if others and not begun else None  # a drain changes the cluster
            begun |= prepare_stop(run, release_step, node, others, has_begun=begun, shared=shared)
        if len(nodes) > 1 and stopping:
            check_batch(run, release_step, nodes, stopping)

        def act(node: NodeSpec) -> None:
            if node in stopping:
                _stop(run.ports, release_step, node)
            _start(run, release_step, node)

        _at_the_same_time(act, needed)
        return tuple(node.node_id for node in needed)


def _at_the_same_time(act: Callable[[NodeSpec], None], nodes: Sequence[NodeSpec]) -> None:
    """Act on every node; then raise the worst error of one of them."""
    if len(nodes) < 2:
        for node in nodes:
            act(node)
        return
    with ThreadPoolExecutor(max_workers=len(nodes), thread_name_prefix="replace") as pool:
        futures = [pool.submit(act, node) for node in nodes]
    if errors := [error for future in futures if (error := future.exception()) is not None]:
        raise min(errors, key=lambda error: isinstance(error, TransientError))


def restart_node(run: Run, release_step: ReleaseStep, node: NodeSpec, together: Sequence[NodeSpec] = ()) -> None:
    """Start the node on the release of the release step again; kill a hanging process first.

    `together`: nodes of its batch that are down too. Raises TransientError if the rest of the cluster cannot spare a
    process that still runs.
    """
    _begin(run, release_step, words.nodes([node.node_id]), "Retry")
    if not was_stopped(run, release_step, node.node_id):
        raise RefusedError(
            f"Node {node.node_id} was not stopped by this run in release step {release_step.key}, so it cannot be "
            "started again.",
            remedy="Wait for its node step.",
        )
    with run.ports.lock.acting(run.cluster.name, run.ports.run_id, f"Restarting node {node.node_id}"):
        _refuse_other_release(run.ports, release_step, node)
        if run.ports.runtime.process(node).pid is not None:
            run_commands_before_stop(run.ports, release_step, node)
            refuse_unsafe_node_stop(run.ports, release_step, node, check_stop_is_safe(run, node, together))
            # *Retry* comes from a named approver, which is required for a kill.
            _stop(run.ports, release_step, node, force=True)
        _start(run, release_step, node)


def was_stopped(run: Run, release_step: ReleaseStep, node_id: int) -> bool:
    """Return whether this run stopped the node in this release step (for a rollback: in either direction)."""
    return load_before_stop(run, release_step, node_id) is not None


def find_down_first(run: Run) -> frozenset[int]:
    """Return the nodes that a rollback takes first: those without a process after a second restart.

    A node that failed in its only restart is the first of the reversed order. One that failed in its second restart is
    not, and the gates of the nodes before it would wait for it.
    """
    again = run.plan.registration_step
    if again is None:
        return frozenset()
    ids = [one.node_id for one in again.order]
    return frozenset(one for one in ids if run.ports.runtime.process(run.cluster.node(one)).pid is None)


def must_roll_back(run: Run, release_step: ReleaseStep, node: NodeSpec) -> bool:
    """Return whether the rollback has the node in this release step, which is one of `rollback_release_steps`."""
    before = rollback_release_steps(run.plan)
    # A node with one of these releases is rolled back through the release steps before this one, and then this one.
    beyond = {earlier.from_release for earlier in before[: before.index(release_step)]}
    if running_release(run.ports, node) in beyond:
        return True
    state = node_step_state(run, release_step, node)
    ours = was_stopped(run, release_step, node.node_id)
    if state is not NodeStepState.NEEDED:
        return state is NodeStepState.RUNS_TARGET and ours
    # A node that failed to start on the via release never reached the last release step: nothing is to roll back there.
    is_down = run.ports.runtime.process(node).pid is None
    return ours or not (is_down and any(was_stopped(run, one, node.node_id) for one in run.plan.release_steps))


def refuse_restart(plan: Plan) -> None:
    """Raise RefusedError if the run restarts nodes on their own release: its configuration is not the run's."""
    if plan.release_steps and not plan.changes_release:
        raise RefusedError(
            f"The run restarts nodes on {plan.target}, so there is no release to return to.",
            remedy="Correct the configuration of the node, then run `kafka-rollout retry`.",
        )


def _begin(run: Run, release_step: ReleaseStep, nodes: str, verb: str) -> None:
    check_plan(run.ports, run.plan.hash)
    what = ApprovalOf.ROLL_BACK if is_rollback_step(run.plan, release_step) else ApprovalOf.ROLL
    require_approval(run, what)
    lock.acquire_lock(run.ports, f"{verb} {nodes} ({release_step.from_release} to {release_step.to_release}).")


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


def _stop(ports: ClusterPorts, release_step: ReleaseStep, node: NodeSpec, *, force: bool = False) -> None:
    lock.acquire_lock(ports, f"Stop node {node.node_id}.", for_s=LEASE_OF_STOP_S)
    stop_node(ports, release_step, node, deadline_s=STOP_S, force=force)


def _start(run: Run, release_step: ReleaseStep, node: NodeSpec) -> None:
    began = run.ports.clock.monotonic()
    with _METADATA_LOGS:
        make_readable(run, release_step, node)
    release = release_step.to_release
    _refuse_other_release(run.ports, release_step, node)  # again: the stop can have taken minutes
    if not release_step.restarts:
        run.ports.runtime.install(node, release, run.plan.config_changes_of(node.node_id, release))
    run.ports.runtime.start(node)
    record_start(run.ports, release_step, node, seconds=run.ports.clock.monotonic() - began)
