"""Waiting for a gate: how often it is checked, when it passes or fails, and recording the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.wording import few
from kafka_rollout.gates.check import (
    HELD_INTERVAL_S,
    Gate,
    GateCheck,
    GateKind,
    GatePolicy,
    GateRef,
    GateWatch,
    WatchState,
    WatchStatus,
)
from kafka_rollout.model.plan import Plan
from kafka_rollout.planning.findings.configuration import snapshot_interval_ms
from kafka_rollout.planning.request import Request
from kafka_rollout.run.step_events import GateFailed, GatePassed
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.node_steps import read_log_excerpt
from kafka_rollout.steps.common.outside import with_outside_time
from kafka_rollout.steps.gates.checks import MIN_ISR_AGE_S, RECENT, check_gate, observe_all

_GROUPS_INTERVALS = 10  # one check reads a whole log


def gate_policy(kind: GateKind, request: Request, *, snapshot_interval_s: float = 0.0) -> GatePolicy:
    """Return the policy of a kind of gate, the same for the DAG and the command line.

    Only a node that was just started must pass several consecutive checks and soak. A snapshot gets the nodes' own
    snapshot interval in addition to the gate timeout. Groups are checked every tenth interval.
    """
    after_start = kind is GateKind.AFTER_START
    return GatePolicy(
        checks=request.checks if after_start else 1,
        interval_s=request.interval_s * (_GROUPS_INTERVALS if kind is GateKind.GROUPS else 1),
        timeout_s=request.gate_timeout_s + (snapshot_interval_s if kind is GateKind.SNAPSHOT else 0.0),
        soak_s=request.soak_s if after_start else 0.0,
    )


def policy_of(ports: ClusterPorts, kind: GateKind, request: Request, plan: Plan | None = None) -> GatePolicy:
    """Return `gate_policy` with the longest snapshot interval of the nodes.

    Soak and checks are at least those of the inventory, and those that were approved with the plan.
    """
    longest = _longest_snapshot_interval_s(ports) if kind is GateKind.SNAPSHOT else 0.0
    effective = request.at_least(ports.cluster, None if plan is None else plan.terms)
    return gate_policy(kind, effective, snapshot_interval_s=longest)


def _longest_snapshot_interval_s(ports: ClusterPorts) -> float:
    return max(snapshot_interval_ms(ports.runtime.config(node)) for node in ports.cluster.nodes) / 1000


def watch_of(ports: ClusterPorts, plan: Plan, gate: Gate, policy: GatePolicy) -> GateWatch:
    """Return a new watch of a gate, which also keeps the time that conditions from outside require."""
    return GateWatch(policy=with_outside_time(ports, plan, gate, policy))


def wait_for_gate(
    ports: ClusterPorts,
    plan: Plan,
    gate: Gate,
    policy: GatePolicy,
    on_check: Callable[[GateCheck, str], None] | None = None,
) -> GateCheck:
    """Check until the gate passes by its policy. `on_check` receives every check and the watch's message.

    For the command line; the DAG's sensors defer instead. Raises RefusedError if the gate fails or its timeout expires.
    """

    def on_check_of(gate: Gate, seen: GateCheck, message: str) -> None:
        if on_check is not None:
            on_check(seen, message)

    return wait_for_gates(ports, plan, (gate,), policy, on_check_of)[0]


def wait_for_gates(
    ports: ClusterPorts,
    plan: Plan,
    gates: Sequence[Gate],
    policy: GatePolicy,
    on_check: Callable[[Gate, GateCheck, str], None],
) -> tuple[GateCheck, ...]:
    """Check gates in turn until each passes; return their last checks.

    A gate that fails does not end the wait for the others. Raises RefusedError if one has failed.
    """
    watches = [watch_of(ports, plan, gate, policy) for gate in gates]
    checks: dict[GateRef, GateCheck] = {}

    def keep(gate: Gate, seen: GateCheck, message: str) -> None:
        checks[gate.ref] = seen
        on_check(gate, seen, message)

    while not check_gates(ports, plan, gates, watches, keep).done:
        held = any(watch.is_held for watch in watches)
        ports.clock.sleep(HELD_INTERVAL_S if held else policy.interval_s)
    if failed := [
        f"The gate {gate.name} {watch.status.message}."
        for gate, watch in zip(gates, watches, strict=True)
        if watch.status is not None and watch.status.state is WatchState.FAILED
    ]:
        ways = "wait on, or retry the node" if plan.restarts else "wait on, retry the node, or roll back"
        if plan.offline:
            ways = "fix the cause, then continue the same run"
        raise RefusedError(" ".join(failed), remedy=f"No other node is changed. Next: {ways}.")
    return tuple(checks[gate.ref] for gate in gates)


def log_of(node_id: int) -> str:
    """Return the name of the document with the log of a node when its gate failed last."""
    return f"logs/node-{node_id}.json"


def check_gates(
    ports: ClusterPorts,
    plan: Plan,
    gates: Sequence[Gate],
    watches: Sequence[GateWatch],
    on_check: Callable[[Gate, GateCheck, str], None] | None = None,
) -> WatchStatus:
    """Check once each gate whose watch is not over, and record the result of each that ends.

    Return the status of all: it waits until every watch is over, and then fails if one has failed.
    """
    # The gates before the stops of a batch are of one moment. Older values can only make a gate pass or wait: the check
    # right before the stop reads all of them again.
    observed = cache(lambda: observe_all(ports, min_isr_age_s=MIN_ISR_AGE_S))
    for gate, watch in zip(gates, watches, strict=True):
        if watch.is_done:
            continue
        seen = check_gate(ports, plan, gate, observed)
        status = watch.add(seen, ports.clock.now())
        if on_check is not None:
            on_check(gate, seen, status.message)
        record_outcome(ports, gate.ref, seen, status)
    return _joined(gates, watches)


def _joined(gates: Sequence[Gate], watches: Sequence[GateWatch]) -> WatchStatus:
    found = [(gate, watch.status) for gate, watch in zip(gates, watches, strict=True) if watch.status is not None]
    for state in (WatchState.WAITING, WatchState.FAILED, WatchState.PASSED):
        of_state = [(gate, status.message) for gate, status in found if status.state is state]
        if of_state and len(gates) == 1:
            return WatchStatus(state=state, message=of_state[0][1])
        if of_state:
            shown = few([f"{gate.name} {message}" for gate, message in of_state], limit=3)
            return WatchStatus(state=state, message=shown)
    raise ValueError("No gate was checked.")


def record_outcome(ports: ClusterPorts, ref: GateRef, seen: GateCheck, status: WatchStatus) -> None:
    """Record that the watch is over, with its last check; does nothing while it waits."""
    if not status.done:
        return
    RECENT.record(ports, ref, seen, last=True)
    if status.state is WatchState.FAILED and ref.node_id is not None:  # a retry or a rollback writes on into the log
        ports.run.attach(log_of(ref.node_id), read_log_excerpt(ports, ports.cluster.node(ref.node_id)))
    ports.run.record(
        GatePassed(ref=ref, gate=seen.gate, message=status.message)
        if status.state is WatchState.PASSED
        else GateFailed(ref=ref, gate=seen.gate, message=status.message)
    )
