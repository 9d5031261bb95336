"""Waiting for a gate in one process, and recording the result."""

from __future__ import annotations

from collections.abc import Callable

from kafka_rollout.domain.gates.check import GateCheck
from kafka_rollout.domain.gates.ref import GateRef
from kafka_rollout.domain.gates.watch import GatePolicy, GateWatch, WatchState, WatchStatus
from kafka_rollout.domain.model.errors import RefusedError
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.run.node_events import GateFailed, GatePassed
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.gates.checks import look
from kafka_rollout.steps.gates.recent import RECENT


def wait_for_gate(
    ports: ClusterPorts,
    plan: Plan,
    ref: GateRef,
    policy: GatePolicy,
    on_check: Callable[[GateCheck, str], None] | None = None,
) -> GateCheck:
    """Check until the gate passes by its policy. `on_check` receives every check and the watch's message.

    For the command line; the DAG's sensors defer instead. Raises RefusedError if the gate fails or its timeout expires.
    """
    watch = GateWatch(policy=policy)
    while True:
        seen = look(ports, plan, ref)
        status = watch.add(seen, ports.clock.now())
        if on_check is not None:
            on_check(seen, status.message)
        record_outcome(ports, ref, seen, status)
        if status.state is WatchState.HELD:
            return seen
        if status.state is WatchState.FAILED:
            ways = (
                "fix the cause, then continue the same run" if plan.offline else "wait on, retry the node, or roll back"
            )
            raise RefusedError(
                f"The gate {seen.gate} {status.message}.", remedy=f"No other node is changed. Next: {ways}."
            )
        ports.clock.sleep(policy.interval_s)


def record_outcome(ports: ClusterPorts, ref: GateRef, seen: GateCheck, status: WatchStatus) -> None:
    """Record that the watch is over, with its last check; does nothing while it waits."""
    if not status.done:
        return
    RECENT.record(ports, ref, seen, last=True)
    ports.run.record(
        GatePassed(ref=ref, gate=seen.gate, message=status.message)
        if status.state is WatchState.HELD
        else GateFailed(ref=ref, gate=seen.gate, message=status.message)
    )
