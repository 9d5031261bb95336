"""Plans of tests, as `upgrade --dry-run` makes them: without terms, and without a scan unless the test has one."""

from __future__ import annotations

from typing import Any

from kafka_rollout.gates.gate import GateKind, GateRef
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.planning.request import DowngradeType, FinalizePolicy, Request
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.preparation.state_comparison import BEFORE
from kafka_rollout.rehearsal.result import read_inventory
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.step_events import ComparedAfter, ContentsCompared, GatePassed

_SAFETY = {True: DowngradeType.UNSAFE, False: DowngradeType.SAFE}


def upgrade_request(target: Release, *, finalize: bool, scan: bool = False, **fields: Any) -> Request:
    """`finalize`: the plan has feature levels, and this run finalizes them."""
    policy = FinalizePolicy.AFTER_APPROVAL
    return Request(target=target, plans_features=finalize, finalize=policy, scan=scan, **fields)


def downgrade_request(target: Release, *, unsafe: bool = False, **fields: Any) -> Request:
    return Request(target=target, downgrade_type=_SAFETY[unsafe], **fields)


def plan_upgrade(ports: ClusterPorts, target: Release, *, finalize: bool, **fields: Any) -> Plan:
    return plan_change(ports, upgrade_request(target, finalize=finalize, **fields), RunOf.UPGRADE)


def plan_downgrade(ports: ClusterPorts, target: Release, **fields: Any) -> Plan:
    return plan_change(ports, downgrade_request(target, **fields), RunOf.DOWNGRADE)


def pass_gates(ports: ClusterPorts, plan: Plan) -> None:
    """Record that the gate after the start of each node has passed."""
    keep_state(ports)
    for batch in plan.batch_steps:
        for node_id in batch.node_ids:
            ref = GateRef(kind=GateKind.AFTER_START, release_step=batch.release_step.key, node_id=node_id)
            ports.run.record(GatePassed(ref=ref, gate=f"after node {node_id}", message="passed"))


def compare(ports: ClusterPorts) -> None:
    """Record that the cluster is as it was before the run."""
    keep_state(ports)
    ports.run.record(ContentsCompared(counts={}, differences=0, after=ComparedAfter.ROLL))


def keep_state(ports: ClusterPorts) -> None:
    """Keep the present state as that before the run."""
    state = read_inventory(ports.admin, ports.clock, ports.cluster.brokers, leaderless=True, kept=True)
    ports.run.attach(BEFORE, state)
