"""The gate of the groups: whether they are converted and their records can be loaded, before a step that needs it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kafka_rollout.gates.check import Condition, GateCheck
from kafka_rollout.groups.findings import find_unserved_on_path
from kafka_rollout.groups.records import conversion_conditions, no_members_condition
from kafka_rollout.model.contents import SERVED_BY
from kafka_rollout.model.plan import Direction, Plan
from kafka_rollout.releases.facts import Release
from kafka_rollout.steps.common.cluster_ports import ClusterPorts

GATE = "groups"


def find_lowered_types(plan: Plan) -> frozenset[str]:
    """Return the group types that brokers no longer serve after the plan's features; empty if losses were accepted."""
    if plan.unsafe:
        return frozenset()
    return frozenset(
        SERVED_BY[change.feature]
        for change in plan.feature_changes
        if change.feature in SERVED_BY and change.target < 1 <= change.current
    )


def check_groups(ports: ClusterPorts, plan: Plan) -> GateCheck:
    """Check what the plan's next step needs of groups.

    An upgrade lowers no feature. But a release can require a feature that is not finalized before all nodes run it:
    groups of an earlier release's preview then lose their coordinator when the first node starts.
    """
    releases = [release_step.to_release for release_step in plan.release_steps]
    if plan.direction is Direction.DOWNGRADE:
        return check_conversion(ports, find_lowered_types(plan), releases)
    finalized = ports.admin.features(ports.cluster.brokers[0]).finalized if releases else {}
    unserved = find_unserved_on_path(ports.catalogue, finalized, releases)
    conditions = (no_members_condition(ports.admin.groups(), unserved),) if unserved else ()
    return GateCheck(gate=GATE, at=ports.clock.now(), conditions=conditions)


def check_conversion(ports: ClusterPorts, kinds: Collection[str], releases: Sequence[Release]) -> GateCheck:
    """Check whether groups of these types are converted, and whether the releases can load their records."""
    conditions: tuple[Condition, ...] = ()
    if kinds or releases:
        groups = ports.admin.groups() if kinds else ()
        conditions = conversion_conditions(
            groups,
            ports.logs.group_records(by_spark=True),
            kinds,
            catalogue=ports.catalogue,
            releases=tuple(dict.fromkeys(releases)),
        )
    return GateCheck(gate=GATE, at=ports.clock.now(), conditions=conditions)
