"""Policy of a gate: how often it is checked, how many checks must pass, and when it fails."""

from __future__ import annotations

from kafka_rollout.domain.gates.ref import GateKind
from kafka_rollout.domain.gates.watch import GatePolicy
from kafka_rollout.domain.planning.request import Request
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.gates.checks import SNAPSHOT_INTERVAL

_SNAPSHOT_INTERVAL_DEFAULT_MS = 3_600_000
_GROUPS_INTERVALS = 10  # one check reads a whole log


def gate_policy(kind: GateKind, request: Request, *, snapshot_interval_s: float = 0.0) -> GatePolicy:
    """The policy of one kind of gate, the same for the DAG and the command line.

    Only a node that was just started must pass several consecutive checks and soak. A snapshot gets the nodes' own
    snapshot interval in addition to the gate timeout. Groups are checked every tenth interval.
    """
    after_start = kind is GateKind.AFTER_START
    return GatePolicy(
        looks=request.checks if after_start else 1,
        interval_s=request.interval_s * (_GROUPS_INTERVALS if kind is GateKind.GROUPS else 1),
        timeout_s=request.gate_timeout_s + (snapshot_interval_s if kind is GateKind.SNAPSHOT else 0.0),
        soak_s=request.soak_s if after_start else 0.0,
    )


def policy_of(ports: ClusterPorts, kind: GateKind, request: Request) -> GatePolicy:
    """`gate_policy` with the snapshot interval of the cluster's nodes."""
    longest = _longest_snapshot_interval_s(ports) if kind is GateKind.SNAPSHOT else 0.0
    return gate_policy(kind, request, snapshot_interval_s=longest)


def _longest_snapshot_interval_s(ports: ClusterPorts) -> float:
    intervals = (
        ports.runtime.config(node).get(SNAPSHOT_INTERVAL, _SNAPSHOT_INTERVAL_DEFAULT_MS) for node in ports.cluster.nodes
    )
    return max(int(interval) for interval in intervals) / 1000
