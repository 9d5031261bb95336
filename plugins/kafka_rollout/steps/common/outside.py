"""Conditions from outside in the gates of nodes: which apply, and their values now."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from kafka_rollout.base.findings import Checked
from kafka_rollout.gates.check import Condition, Gate, GateKind, GatePolicy
from kafka_rollout.gates.outside import OUTSIDE_CHECK, Reading, evaluate, outside_finding
from kafka_rollout.model.plan import Plan, ReleaseStep
from kafka_rollout.model.topology import AppliesTo, OutsideCondition
from kafka_rollout.run.projections.nodes import last_act_at
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.node_steps import is_rollback_step

_POINTS: dict[GateKind, AppliesTo] = {
    GateKind.BEFORE_STOP: "before_stop",
    GateKind.CONTROLLERS_STOP: "before_stop",
    GateKind.NODES_STOP: "before_stop",
    GateKind.AFTER_START: "after_start",
}
_AT_ONCE = 8


def check_outside(
    ports: ClusterPorts, plan: Plan, release_step: ReleaseStep | None, point: AppliesTo, *, not_before: float = 0.0
) -> tuple[Condition, ...]:
    """Return the conditions from outside that apply before a stop or after a start, with their values now.

    `release_step`: None for the stop of all nodes or controllers. A value from before the run's last stop or start says
    nothing about its effect, so it does not count, nor does one from before `not_before` (epoch seconds).
    """
    applying = _applying(ports, plan, release_step, point)
    if not applying:
        return ()
    readings = _read(ports, applying, max(not_before, last_act_at(ports.run.events())))
    return tuple(evaluate(one, reading) for one, reading in zip(applying, readings, strict=True))


def with_outside_time(ports: ClusterPorts, plan: Plan, gate: Gate, policy: GatePolicy) -> GatePolicy:
    """Return the policy in which every check passes at least as long as the conditions from outside require."""
    point = _POINTS.get(gate.kind)
    if point is None:
        return policy
    applying = _applying(ports, plan, gate.release_step, point)
    return replace(policy, soak_s=max(policy.soak_s, *(one.for_s for one in applying), 0.0))


def find_outside(ports: ClusterPorts, skipped: Sequence[str] = ()) -> Checked:
    """Evaluate each condition from outside once, for a plan or the check of an inventory."""
    known = [one for one in ports.cluster.conditions if one.name not in skipped]
    findings = (outside_finding(one, reading) for one, reading in zip(known, _read(ports, known), strict=True))
    return OUTSIDE_CHECK.ran(findings, unless="" if known else "The inventory has no condition from outside.")


def _applying(
    ports: ClusterPorts, plan: Plan, release_step: ReleaseStep | None, point: AppliesTo
) -> tuple[OutsideCondition, ...]:
    """A rollback has none: the value can be bad because of the release that it removes."""
    if release_step is not None and is_rollback_step(plan, release_step):
        return ()
    skipped = () if plan.terms is None else plan.terms.skip_conditions
    return tuple(one for one in ports.cluster.conditions if point in one.applies_to and one.name not in skipped)


def _read(ports: ClusterPorts, conditions: Sequence[OutsideCondition], not_before: float = 0.0) -> list[Reading]:
    if not conditions:
        return []
    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="outside") as pool:
        return list(pool.map(partial(ports.outside.read, not_before=not_before), conditions))
