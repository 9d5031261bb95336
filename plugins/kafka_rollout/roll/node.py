"""Replaces the binary of a node or of a batch of nodes, and rolls it back: stop, install, start.

It observes first, so a killed run continues where it stopped. Only the BeforeStop record is stored, before the stop,
because it cannot be observed later. Everything else (the process, its release, the last started release) is observed at
each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache, partial
from threading import Lock

from kafka_rollout.base import wording as words
from kafka_rollout.base.errors import FatalError, RefusedError, TransientError
from kafka_rollout.base.time_limits import LEASE_OF_STOP_S, STOP_S
from kafka_rollout.control import lock
from kafka_rollout.control.approval import require_approval
from kafka_rollout.control.claims import claiming
from kafka_rollout.model.plan import Lowering, Plan, ReleaseStep
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import observe
from kafka_rollout.observation.node_logs import read_last_error
from kafka_rollout.observation.node_starts import Starts, finish_starts, starting
from kafka_rollout.observation.node_steps import (
    NodeStepState,
    install_release,
    is_rollback_step,
    node_step_state,
    record_start,
    refuse_other_release,
    rollback_release_steps,
    run_commands_before_stop,
    running_release,
    stop_node,
)
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.planning.findings.hosts import CLOCK_SKEW_S
from kafka_rollout.preparation.frozen_plan import check_plan
from kafka_rollout.roll.gate_checks import check_stop_is_safe, load_before_stop, observe_all
from kafka_rollout.roll.metadata_logs import make_readable
from kafka_rollout.roll.moved_coordinators import StopObservation
from kafka_rollout.roll.stop import check_batch, files_once, prepare_stop, refuse_unread, refuse_unsafe_node_stop
from kafka_rollout.run.events import ApprovalOf
from kafka_rollout.run.projections.nodes import unfinished_starts

_METADATA_LOGS = Lock()  # Kafka's classes for metadata logs run in one JVM


def needs_replacement(at: NodeRun) -> bool:
    """Return False if the node already runs the release of this or a later release step; then only its gate remains."""
    return node_step_state(at) is NodeStepState.NEEDED


def replace_node(at: NodeRun) -> bool:
    """Replace the binary of one node, as `replace_nodes`. Return whether it was started now."""
    return bool(replace_nodes(at.run, at.release_step, (at.node,)))


def replace_nodes(
    run: Run, release_step: ReleaseStep, nodes: Sequence[NodeSpec], *, started: Sequence[NodeSpec] = ()
) -> tuple[int, ...]:
    """Replace the binary of the nodes of a batch: check findings and gates, record their states, stop, install, start.

    Returns the ids of the nodes that were started now. `started`: other nodes, whose commands after a start can be due.

    No node is stopped before every node can be stopped and has its state recorded. Then they are stopped and started at
    the same time. Returns after the starts and the operator's commands after them; the gate AFTER_START shows whether a
    node is back. Idempotent and resumable after a kill, with one start per release. Raises RefusedError (approval
    invalid, unknown release), TransientError (a gate before the stop does not pass now, or no response: call again),
    FatalError (a process is gone after the start: retry or roll back; a command after it failed, and this is no
    rollback: call again).
    """
    if run.plan.lowering is Lowering.OFFLINE:
        raise RefusedError(
            f"The plan of cluster {run.plan.cluster} is an offline downgrade, so nodes are not replaced one by one.",
            remedy="Use the offline steps. To undo, run `kafka-rollout rollback`.",
        )
    what = words.nodes(node.node_id for node in nodes)
    _begin(run, release_step, what, "Replace")
    with run.ports.lock.acting(run.cluster.name, run.ports.run_id, f"Replacing {what}"), ExitStack() as claimed:
        needed: list[NodeSpec] = []
        stopping: list[NodeSpec] = []
        for node in nodes:
            process = run.ports.runtime.process(node)
            if not needs_replacement(NodeRun(run, release_step, node)):
                continue
            _refuse_other_release(NodeRun(run, release_step, node))
            needed.append(node)
            if process.pid is not None:
                stopping.append(node)
            else:
                _refuse_unexplained_absence(NodeRun(run, release_step, node))
        claimed.enter_context(claiming(run.ports, needed))  # before the observations that allow the stop
        begun = False  # a pause does not begin between the drains of a batch
        whole, gates = cache(lambda: observe(run.ports)), cache(lambda: StopObservation(observe_all(run.ports)))
        files = files_once(run)
        once = cache(partial(refuse_unread, run, release_step, stopping, files))
        read = (lambda _: once()) if len(nodes) > 1 else None
        for node in stopping:
            others = tuple(one for one in nodes if one != node)
            shared = (whole, gates, files) if others and not begun else None  # a drain changes the cluster
            begun |= prepare_stop(NodeRun(run, release_step, node), others, has_begun=begun, read=read, shared=shared)
        if len(nodes) > 1 and stopping:
            check_batch(run, release_step, nodes, stopping, has_begun=begun)

        with starting(run, (*nodes, *(one for one in started if one not in nodes))) as starts:

            def act(node: NodeSpec) -> None:
                if node in stopping:
                    _stop(NodeRun(run, release_step, node))
                _start(NodeRun(run, release_step, node), starts)

            _at_the_same_time(act, needed)
        starts.raise_failed(goes_on=is_rollback_step(run.plan, release_step))
        return tuple(node.node_id for node in needed)


def finish_nodes(run: Run, release_step: ReleaseStep, nodes: Sequence[NodeSpec]) -> None:
    """Run the operator's commands after the starts of nodes again, if they failed or an earlier call was killed."""
    due = unfinished_starts(run.history.events())
    left = [node for node in nodes if node.node_id in due]
    if not left:
        return
    what = words.nodes(node.node_id for node in left)
    _begin(run, release_step, what, "Finish the start of")
    with run.ports.lock.acting(run.cluster.name, run.ports.run_id, f"Finishing the start of {what}"):
        finish_starts(run, left, goes_on=is_rollback_step(run.plan, release_step))


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


def restart_node(at: NodeRun, together: Sequence[NodeSpec] = ()) -> None:
    """Start the node on the release of the release step again; kill a hanging process first.

    `together`: nodes of its batch that are down too. Raises TransientError if the rest of the cluster cannot spare a
    process that still runs.
    """
    _begin(at.run, at.release_step, words.nodes([at.node_id]), "Retry")
    if not was_stopped(at.run, at.release_step, at.node_id):
        raise RefusedError(
            f"Node {at.node_id} was not stopped by this run in release step {at.key}, so it cannot be started again.",
            remedy="Wait for its node step.",
        )
    acting = at.ports.lock.acting(at.run.cluster.name, at.ports.run_id, f"Restarting node {at.node_id}")
    with acting, claiming(at.ports, [at.node]):
        _refuse_other_release(at)
        if at.ports.runtime.process(at.node).pid is not None:
            run_commands_before_stop(at)
            refuse_unsafe_node_stop(at, check_stop_is_safe(at.run, at.node, together))
            # *Retry* comes from a named approver, which is required for a kill.
            _stop(at, force=True)
        with starting(at.run, [at.node]) as starts:
            _start(at, starts)
        starts.raise_failed(goes_on=is_rollback_step(at.plan, at.release_step))


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


def must_roll_back(at: NodeRun) -> bool:
    """Return whether the rollback has the node in this release step, which is one of `rollback_release_steps`."""
    before = rollback_release_steps(at.plan)
    # A node with one of these releases is rolled back through the release steps before this one, and then this one.
    beyond = {earlier.from_release for earlier in before[: before.index(at.release_step)]}
    if running_release(at.ports, at.node) in beyond:
        return True
    state = node_step_state(at)
    ours = was_stopped(at.run, at.release_step, at.node_id)
    if state is not NodeStepState.NEEDED:
        return state is NodeStepState.RUNS_TARGET and ours
    # A node that failed to start on the via release never reached the last release step: nothing is to roll back there.
    is_down = at.ports.runtime.process(at.node).pid is None
    return ours or not (is_down and any(was_stopped(at.run, one, at.node_id) for one in at.plan.release_steps))


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


def _refuse_other_release(at: NodeRun) -> None:
    """Raise RefusedError if a restart, which installs nothing, would start the node on another release."""
    if not at.release_step.restarts:
        return
    refuse_other_release(at.node, at.release_step.to_release, at.ports.runtime.process(at.node).installed)


def _refuse_unexplained_absence(at: NodeRun) -> None:
    """Refuse a node without a process unless this run stopped it and has not started it since.

    A recorded start before this run's stop does not count: an operator can have started the node on another release.
    """
    before = at.history.load_before_stop(at.key, at.node_id)
    if before is None:
        before = at.history.load_before_stop(at.release_step.reversed().key, at.node_id)
        if before is None:
            raise RefusedError(
                f"Node {at.node_id} has no process, and this run did not stop it.",
                remedy=f"Find out why it is down ({read_last_error(at.ports, at.node)}), start it, then repeat the "
                "step.",
            )
        # Rolled back right after a failed start: its state was recorded before the stop of the upgrade.
        at.history.save_before_stop(at.key, before)
    since = [
        start
        for start in at.ports.runtime.starts(at.node)
        if start.started_at >= before.at - CLOCK_SKEW_S and start.pid != before.pid
    ]
    if since and since[-1].release == at.release_step.to_release:
        raise FatalError(
            f"Node {at.node_id} was started on {at.release_step.to_release}, but its process is gone: "
            f"{read_last_error(at.ports, at.node)}.",
            remedy="Fix the error in its log and retry the node"
            f"{'' if at.release_step.restarts else ', or roll back'}.",
        )


def _stop(at: NodeRun, *, force: bool = False) -> None:
    lock.acquire_lock(at.ports, f"Stop node {at.node_id}.", for_s=LEASE_OF_STOP_S)
    stop_node(at, deadline_s=STOP_S, force=force)


def _start(at: NodeRun, starts: Starts) -> None:
    began = at.ports.clock.monotonic()
    with _METADATA_LOGS:
        make_readable(at)
    release = at.release_step.to_release
    _refuse_other_release(at)  # again: the stop can have taken minutes
    if not at.release_step.restarts:
        install_release(at, release)
    starts.start(at.node)
    record_start(at, seconds=at.ports.clock.monotonic() - began)
