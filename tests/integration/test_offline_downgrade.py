"""Offline downgrades of real clusters across a level that Kafka refuses to lower: 4.3.1 at 30 to 4.2.1 at 29."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.adapters.local_cluster import LocalCluster
from kafka_rollout.adapters.settings import Settings
from kafka_rollout.adapters.workbench import open_workbench
from kafka_rollout.domain.downgrade_planning import WhereRefused
from kafka_rollout.domain.gate_watch import GatePolicy
from kafka_rollout.domain.plan import Plan
from kafka_rollout.domain.releases import METADATA_VERSION, Release
from kafka_rollout.steps import lock
from kafka_rollout.steps import offline as steps
from kafka_rollout.steps.approval import APPROVED, ApprovalOf, record_approval
from kafka_rollout.steps.downgrade_plan import plan_downgrade
from kafka_rollout.steps.gate import GateKind, GateRef, wait_for_gate
from kafka_rollout.steps.offline_facts import offline_facts
from kafka_rollout.steps.workbench import Workbench
from tests.integration.cluster_contents import WITH_ACLS, contents, fill
from tests.integration.conftest import MakeCluster

pytestmark = pytest.mark.integration

NEW, OLD = Release(4, 3, 1), Release(4, 2, 1)
GATE = GatePolicy(looks=2, interval_s=0.5, timeout_s=240, soak_s=0)


@contextmanager
def opened(cluster: LocalCluster, home: Path, run_id: str = "run") -> Iterator[Workbench]:
    settings = replace(Settings.from_environment(), clusters=cluster.inventory_path.parent, home=home)
    with open_workbench(cluster.spec.name, run_id, None, settings) as bench:
        yield bench
        lock.let_go(bench)


def approved_plan(bench: Workbench) -> Plan:
    plan = plan_downgrade(bench, OLD, where_refused=WhereRefused.OFFLINE)
    assert (plan.offline, plan.levels, [hop.key for hop in plan.hops]) == (
        True, {METADATA_VERSION: 29}, ["4.3.1-to-4.2.1"],
    )  # fmt: skip
    record_approval(bench, ApprovalOf.ROLL, "alice", APPROVED, "a test")
    return plan


def go_down(bench: Workbench, plan: Plan) -> None:
    steps.stop_all(bench, plan)
    steps.install_snapshot(bench, plan)
    steps.install_binaries(bench, plan)
    steps.start_controllers(bench, plan)
    steps.start_brokers(bench, plan)
    all_are_back(bench, plan, plan.hops[0].key)
    wait_for_gate(bench, plan, GateRef(kind=GateKind.METADATA_VERSION), GATE)


def all_are_back(bench: Workbench, plan: Plan, hop: str) -> None:
    for node in bench.cluster.nodes:
        wait_for_gate(bench, plan, GateRef(kind=GateKind.AFTER_START, hop=hop, node_id=node.node_id), GATE)


def levels(bench: Workbench) -> dict[int, dict[str, int]]:
    return {node.node_id: dict(bench.admin.features(node).finalized) for node in bench.cluster.nodes}


@pytest.mark.parametrize(
    ("layout", "quorum"),
    [
        ("combined", "static"),
        ("separate", "dynamic"),
        pytest.param("combined", "dynamic", marks=pytest.mark.full),
        pytest.param("separate", "static", marks=pytest.mark.full),
    ],
)
def test_everything_is_there_on_the_older_release_at_the_lower_level(
    make_cluster: MakeCluster, tmp_path: Path, layout: str, quorum: str
) -> None:
    cluster = make_cluster(str(NEW), layout=layout, quorum=quorum, extra_config=WITH_ACLS)
    fill(cluster)
    before = contents(cluster.spec)
    with opened(cluster, tmp_path / "home") as bench:
        finalized = levels(bench)[cluster.spec.nodes[0].node_id]
        plan = approved_plan(bench)
        estimated = offline_facts(bench, plan).outage.total_s
        began = time.monotonic()
        go_down(bench, plan)
        print(f"outage {time.monotonic() - began:.0f} s, estimated {estimated:.0f} s")
        assert set(map(str, levels(bench).values())) == {str({**finalized, METADATA_VERSION: 29})}
    assert contents(cluster.spec) == before
