"""Fixtures of the rooms that work through ports: a fake cluster on 3.9.1, its ports, and an approved plan to 4.3.1."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.control.approval import record_approval
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.run.events import ApprovalOf, Decision
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import plan_upgrade


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the disk: what is written here is not kept."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(R391)


@pytest.fixture
def ports(cluster: FakeCluster, tmp_path: Path) -> ClusterPorts:
    return fake_ports(cluster, tmp_path, run_id=tmp_path.name)


@pytest.fixture
def plan(ports: ClusterPorts) -> Plan:
    plan = plan_upgrade(ports, R431, finalize=True)
    assert plan.blockers == ()
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    return plan
