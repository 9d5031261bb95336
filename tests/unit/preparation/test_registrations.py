"""What only the metadata log contains: levels of removed controllers, and an open migration from ZooKeeper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.findings import Severity
from kafka_rollout.metadata_log.record_types import MetadataRegistrations
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.cluster_ports import observe
from kafka_rollout.releases.facts import Release, VersionRange
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import plan_downgrade, plan_upgrade

R381, R391, R431 = Release(3, 8, 1), Release(3, 9, 1), Release(4, 3, 1)


def severities(plan: Plan, code: str) -> list[Severity]:
    return [finding.severity for finding in plan.findings if finding.code == code]


@pytest.mark.parametrize(("release", "target"), [(R391, R431), (R391, R381)], ids=["upgrade", "downgrade"])
def test_an_open_migration_blocks_every_roll(tmp_path: Path, release: Release, target: Release) -> None:
    cluster = FakeCluster(release)
    cluster.registrations = MetadataRegistrations(zk_migration=1)
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, target, finalize=True) if target > release else plan_downgrade(ports, target)
    assert severities(plan, "ZK-MIGRATION-OPEN") == [Severity.BLOCKER]


def test_a_removed_controller_blocks_until_its_registration_supports_the_target(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    cluster.find_unlisted_controllers.add(9)
    ports = fake_ports(cluster, tmp_path)
    assert severities(plan_upgrade(ports, R431, finalize=True), "UNLISTED-CONTROLLER") == [Severity.BLOCKER], "unknown"
    old = {9: {"metadata.version": VersionRange(1, 21)}}
    cluster.registrations = MetadataRegistrations(controllers=old)
    assert severities(plan_upgrade(ports, R431, finalize=True), "UNLISTED-CONTROLLER") == [Severity.BLOCKER]
    new = {9: {name: known.supported for name, known in ports.catalogue.get(R431).features.items()}}
    cluster.registrations = replace(cluster.registrations, controllers=new)
    plan = plan_upgrade(ports, R431, finalize=True)
    assert severities(plan, "UNLISTED-CONTROLLER") == [Severity.WARNING]
    assert plan.blockers == ()


def test_a_cluster_in_zookeeper_mode_gets_one_sentence(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    cluster.in_zookeeper_mode = True
    ports = fake_ports(cluster, tmp_path)
    brokers = tuple(replace(node, roles=frozenset(node.roles - {"controller"})) for node in cluster.spec.brokers)
    ports = replace(ports, cluster=replace(cluster.spec, nodes=brokers))
    with pytest.raises(RefusedError, match=r"^Cluster \S+ runs in ZooKeeper mode, which this tool does not support\."):
        observe(ports)
