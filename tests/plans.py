"""Plans of tests, as `kafka-rollout plan` makes them: without terms, and without a scan unless the test has one."""

from __future__ import annotations

from typing import Any

from kafka_rollout.model.plan import Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.planning.request import DowngradeType, FinalizePolicy, Request
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.releases.facts import Release

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
