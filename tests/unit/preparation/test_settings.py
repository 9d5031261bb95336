"""Settings of nodes that a plan and a gate read from the files."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.findings import Severity
from kafka_rollout.model.plan import Lowering
from kafka_rollout.model.state import NodeMetrics, QuorumState
from kafka_rollout.model.topology import NodeSpec, Role
from kafka_rollout.observation.cluster_ports import AUTO_JOIN, observe
from kafka_rollout.preparation.plan_making import planned_releases
from kafka_rollout.releases.facts import Release
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import FakeAdmin, FakeMetrics, fake_ports
from tests.plans import plan_downgrade, plan_upgrade

R340, R341, R381, R391 = (Release.parse(text) for text in ("3.4.0", "3.4.1", "3.8.1", "3.9.1"))
R420, R431 = (Release.parse(text) for text in ("4.2.0", "4.3.1"))


@pytest.mark.parametrize("target", [R431, R381], ids=["upgrade", "downgrade"])
def test_brokers_without_a_controlled_shutdown_block_a_roll(tmp_path: Path, target: Release) -> None:
    cluster = FakeCluster(R391)
    ports = fake_ports(cluster, tmp_path)
    for fake in cluster.nodes.values():
        fake.config["controlled.shutdown.enable"] = "false"
    plan = plan_upgrade(ports, target, finalize=False) if target > R391 else plan_downgrade(ports, target)
    assert "CONTROLLED-SHUTDOWN-OFF" in {finding.code for finding in plan.blockers}


def test_several_log_directories_block_a_level_that_does_not_support_them(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports = fake_ports(cluster, tmp_path)
    for fake in cluster.nodes.values():
        fake.config["log.dirs"] = "/data/1,/data/2"
    for unsafe, severity in ((False, Severity.BLOCKER), (True, Severity.WARNING)):
        plan = plan_downgrade(ports, R381, level=16, unsafe=unsafe)
        found = [finding for finding in plan.findings if finding.code == "LOG-DIRECTORIES-UNSUPPORTED"]
        assert [finding.severity for finding in found] == [severity]


@pytest.mark.parametrize("source", [R391, R431], ids=["nodes restart", "levels alone"])
def test_errors_that_no_restart_of_the_run_ends_block_before_levels_are_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Release
) -> None:
    """The gate after finalizing reads the counters of all nodes."""
    cluster = FakeCluster(source, finalized={"metadata.version": 21})
    ports = fake_ports(cluster, tmp_path)
    read = FakeMetrics.read

    def with_errors(metrics: FakeMetrics, node: NodeSpec) -> NodeMetrics:
        return replace(read(metrics, node), counters={"metadata_apply_errors": int(node.node_id == 12)})

    monkeypatch.setattr(FakeMetrics, "read", with_errors)
    plan = plan_upgrade(ports, R431, finalize=True)
    (found,) = [finding for finding in plan.findings if finding.code == "METADATA-ERRORS"]
    assert found.severity is (Severity.WARNING if plan.release_steps else Severity.BLOCKER)


def test_a_release_that_writes_new_groups_by_its_configuration_is_reached_through_a_tolerant_one(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster(R340)
    ports = fake_ports(cluster, tmp_path)
    assert [step.to_release for step in plan_upgrade(ports, R391, finalize=False).release_steps] == [R391]
    overrides = {str(R391): {"group.coordinator.rebalance.protocols": "classic,consumer"}}
    ports = replace(ports, cluster=replace(ports.cluster, release_overrides=overrides))
    assert [step.to_release for step in plan_upgrade(ports, R391, finalize=False).release_steps] == [R341, R391]
    assert planned_releases(ports, R391)[1] == (R340, R341, R391), "a rehearsal takes the same way"


def test_a_downgrade_from_a_release_that_writes_new_groups_takes_a_tolerant_one_too(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports = fake_ports(cluster, tmp_path)
    assert [step.to_release for step in plan_downgrade(ports, R340).release_steps] == [R340]
    for node in ports.cluster.brokers:
        cluster.nodes[node.node_id].config["group.coordinator.rebalance.protocols"] = "classic,consumer"
    steps = [step.to_release for step in plan_downgrade(ports, R340).release_steps]
    assert len(steps) == 2
    assert steps[-1] == R340


def test_an_offline_downgrade_needs_no_tolerant_release(tmp_path: Path) -> None:
    whole = FakeCluster(R431).catalogue
    known = replace(whole, releases={release: whole.get(release) for release in (R340, R431)})
    ports = fake_ports(FakeCluster(R431, catalogue=known), tmp_path)
    combined = tuple(replace(node, roles=frozenset(Role)) for node in ports.cluster.nodes)
    ports = replace(ports, cluster=replace(ports.cluster, nodes=combined))
    plan = plan_downgrade(ports, R340, unsafe=True, lowering=Lowering.OFFLINE)
    assert plan.lowering is Lowering.OFFLINE
    assert plan.path == (R431, R340)


@pytest.mark.parametrize("target", [R381, Release(9, 9, 9)])
def test_nothing_is_recorded_of_a_target_that_cannot_be_planned(tmp_path: Path, target: Release) -> None:
    ports = fake_ports(FakeCluster(R391), tmp_path)
    with pytest.raises(UserError, match=str(target)):
        plan_upgrade(ports, target, finalize=False)
    assert ports.run.events() == ()


@pytest.mark.parametrize(("source", "target"), [(R391, R420), (R431, R420)], ids=["upgrade", "downgrade"])
def test_a_plan_of_either_direction_names_known_defects_and_what_no_gate_checks(
    tmp_path: Path, source: Release, target: Release
) -> None:
    cluster = FakeCluster(source)
    agents = tuple(replace(node, jolokia_url=f"http://{node.name}/jolokia") for node in cluster.spec.nodes)
    cluster.spec = replace(cluster.spec, nodes=agents)
    ports = fake_ports(cluster, tmp_path)
    for node in ports.cluster.brokers:
        cluster.nodes[node.node_id].config["remote.log.storage.system.enable"] = "true"
    plan = plan_upgrade(ports, target, finalize=False) if target > source else plan_downgrade(ports, target)
    defects = {one.subject.rpartition(", ")[2]: one.code for one in plan.findings if "ADVISORY" in one.code}
    assert defects["CVE-2026-111115"] == "RELEASE-ADVISORY"
    assert defects["KAFKA-20254"] == "ADVISORY-UNKNOWN"
    (result,) = (one for one in plan.checks if one.id == "known-defects")
    read = r"upgrade notes read for 3\.3\.0 to .*, until 2026-\S+; CVE list read for 3\.3\.0 to now, until 2026-\S+; "
    assert re.match(read + "fixed blocker and critical issues not read; ", result.reason), result.reason
    assert {"REMOTE-LOG-NOT-CHECKED", "COUNTERS-NOT-EXPORTED"} <= {finding.code for finding in plan.findings}
    assert plan.unchecked is not None
    brokers = {node.node_id for node in ports.cluster.brokers}
    assert set(plan.unchecked["metadata_apply_errors"]) == brokers
    assert set(plan.unchecked["remote_copy_errors"]) == set(plan.unchecked["remote_fetch_errors"]) == brokers
    lacking = [finding.sentence for finding in plan.findings if finding.code == "COUNTERS-NOT-EXPORTED"]
    assert any("RemoteFetchErrorsPerSec" in sentence for sentence in lacking)


def test_the_quorum_in_use_is_what_the_processes_report(tmp_path: Path) -> None:
    cluster = FakeCluster(R431)
    voters, bootstrap = "controller.quorum.voters", "controller.quorum.bootstrap.servers"
    for fake in cluster.nodes.values():
        fake.config |= {voters: "1@a:1,2@b:1,3@c:1", bootstrap: "a:1"}
    cluster.nodes[12].in_use = {voters: "1@a:1"}
    used = observe(fake_ports(cluster, tmp_path)).quorum_in_use
    assert used.keys() == cluster.nodes.keys()
    assert {node_id for node_id, lines in used.items() if lines[voters] == "1@a:1"} == {12}
    assert {node_id for node_id, lines in used.items() if lines.get(bootstrap) == "a:1"} == used.keys() - {12}


@pytest.mark.parametrize("joins", ["true", "false"])
def test_whether_a_controller_joins_by_itself_is_read_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joins: str
) -> None:
    cluster = FakeCluster(R431)
    ports = fake_ports(cluster, tmp_path)
    node = ports.cluster.controllers[0]
    cluster.nodes[node.node_id].config[AUTO_JOIN] = joins
    before = observe(ports).quorum
    assert before is not None
    assert not before.joins_itself, "no voter is replaced"
    quorum = FakeAdmin.quorum

    def with_two_directories(admin: FakeAdmin, *, through_brokers: bool = True) -> QuorumState:
        found = quorum(admin)
        return replace(found, observers=(*found.observers, replace(found.voters[0], log_end_offset=0)))

    monkeypatch.setattr(FakeAdmin, "quorum", with_two_directories)
    seen = observe(ports).quorum
    assert seen is not None
    assert seen.replaced_voters == {node.node_id}
    assert seen.joins_itself == ({node.node_id} if joins == "true" else set())


@pytest.mark.parametrize(("target", "is_found"), [(Release(4, 3, 1), True), (Release(4, 1, 1), False)])
def test_a_plan_names_a_line_that_only_its_target_obeys(tmp_path: Path, target: Release, *, is_found: bool) -> None:
    cluster = FakeCluster(Release(4, 0, 0))
    cluster.nodes[1].config["controller.quorum.auto.join.enable"] = "true"
    plan = plan_upgrade(fake_ports(cluster, tmp_path), target, finalize=False)
    subjects = [one.subject for one in plan.findings if one.code == "FILE-CHANGES-MEMBERSHIP"]
    assert subjects == (["controller.quorum.auto.join.enable=true of node 1"] if is_found else [])
