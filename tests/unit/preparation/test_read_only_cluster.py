"""A cluster without a runtime, of which the inventory lists the brokers alone: questions have answers, changes do not
begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.findings import Finding
from kafka_rollout.control.approval import record_approval
from kafka_rollout.feature_updates.update import apply_features, plan_features
from kafka_rollout.features.requests import FeatureAction, FeatureOrder, FeatureUpdateStatus
from kafka_rollout.model.plan import Lowering
from kafka_rollout.nodes.runtimes.no_runtime import NoRuntime
from kafka_rollout.observation.cluster_ports import ClusterPorts, observe
from kafka_rollout.observation.run import Run
from kafka_rollout.preparation.lost_metadata import report_losses
from kafka_rollout.preparation.node_checks import check_inventory
from kafka_rollout.preparation.pinned_min_isr import pin_min_isr
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.report.check_registry import verify
from kafka_rollout.roll.metadata_logs import scan_metadata_logs
from kafka_rollout.run.events import ApprovalOf, Decision
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import FakeAdmin, hidden_bench
from tests.plans import plan_downgrade, plan_upgrade

NOT_OBSERVABLE = "NOT-OBSERVABLE"


@pytest.fixture
def ports(cluster: FakeCluster, tmp_path: Path) -> ClusterPorts:
    return hidden_bench(cluster, tmp_path)


def unseen(findings: tuple[Finding, ...]) -> set[str]:
    return {found.subject for found in findings if found.code == NOT_OBSERVABLE}


def test_verify_finds_the_levels_in_what_the_brokers_answer(ports: ClusterPorts) -> None:
    seen = verify(ports)
    assert (seen.verdict.ok, seen.ok, seen.exit_code) == (True, False, 5), "a blocker on the hosts is not excluded"
    assert unseen(seen.verdict.findings) == {"hosts", "controllers 1, 2, 3"}
    for condition in seen.metadata_version.conditions:
        assert condition.evidence == "the inventory lists no metrics agent; ApiVersions reports 21"


def test_a_finding_about_the_cluster_itself_still_blocks(cluster: FakeCluster, ports: ClusterPorts) -> None:
    cluster.add_partition("alone", 0, [11])
    assert [found.code for found in verify(ports).verdict.blockers] == ["RF-ONE-TOPIC"]


def test_a_node_without_a_metrics_agent_has_the_release_of_its_levels(ports: ClusterPorts) -> None:
    state = observe(ports)
    assert state.releases == {Release(3, 9, 0)}  # of 3.9.0, 3.9.1 and 3.9.2
    (found,) = (f for f in verify(ports).verdict.findings if f.code == "RELEASE-BY-LEVELS")
    assert found.sentence.startswith("Nodes 11, 12, 13 support metadata.version 1-21, as Kafka 3.9 does, ")
    assert '{"metadata.version 1-21": "3.9.2"}' in found.remedy


def test_a_metrics_agent_reports_the_release(cluster: FakeCluster, tmp_path: Path) -> None:
    ports = hidden_bench(cluster, tmp_path, metrics=True)
    assert observe(ports).releases == {R391}
    assert "RELEASE-BY-LEVELS" not in {found.code for found in verify(ports).verdict.findings}


def test_a_right_that_the_service_does_not_grant_is_not_observable(
    ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: FakeAdmin) -> None:
        raise RefusedError("Node 11 does not allow DescribeQuorum for this user.", remedy="Allow DESCRIBE on CLUSTER.")

    monkeypatch.setattr(FakeAdmin, "quorum", refuse)
    seen = verify(ports)
    assert (seen.verdict.ok, seen.exit_code) == (True, 5)
    assert "Node 11 does not allow DescribeQuorum for this user." in unseen(seen.verdict.findings)


def test_a_plan_lists_what_is_not_observable_and_is_not_blocked_by_it(
    cluster: FakeCluster, ports: ClusterPorts
) -> None:
    plan = plan_upgrade(ports, R431, finalize=True)
    assert {found.code for found in plan.blockers} == {"ELR-CHANGES-MIN-ISR"}, "no controller reports its value"
    plan = plan_upgrade(ports, R431, finalize=True, pin_min_isr=True)
    assert plan.blockers == ()
    assert "Java versions of nodes 11, 12, 13" in unseen(plan.findings)
    assert [step.key for step in plan.release_steps] == ["3.9.0-to-4.3.1"]
    cluster.config_problems[R431] = ("log.dirs is wrong",)
    other = hidden_bench(cluster, ports.run.private_path("x").parent, run_id="run-2")
    again = plan_upgrade(other, R431, finalize=True, pin_min_isr=True)
    assert {found.code for found in again.blockers} == {"CONFIG-REJECTED"}


def test_a_plan_down_names_the_logs_that_it_cannot_read(cluster: FakeCluster, ports: ClusterPorts) -> None:
    cluster.unseen = {node.node_id for node in cluster.spec.nodes}
    plan = plan_downgrade(ports, Release(3, 8, 1), lowering=Lowering.OFFLINE)
    plan = scan_metadata_logs(Run(ports, plan))
    plan, losses = report_losses(Run(ports, plan))
    assert losses is None
    codes = {found.code: found.severity for found in plan.findings}
    assert (codes["METADATA-LOG-UNSEEN"], codes["LOSSES-UNKNOWN"]) == ("warning", "warning")


def test_levels_are_changed_through_the_brokers(tmp_path: Path) -> None:
    cluster = FakeCluster(R431, finalized={METADATA_VERSION: 30})
    ports = hidden_bench(cluster, tmp_path)
    plan = plan_features(ports, FeatureOrder(action=FeatureAction.UPGRADE_ALL), unsafe=False, pin=True)
    assert plan.blockers == ()
    pin_min_isr(Run(ports, plan), needs_approval=False)
    subjects = {f.subject: f.severity for f in plan.findings if f.code == "FEATURE-SUPPORT-UNKNOWN"}
    assert subjects == {f"controller {number}": "warning" for number in (1, 2, 3)}
    record_approval(ports, ApprovalOf.FINALIZE, "alice", Decision.APPROVED, "CHG-1")
    assert {outcome.result for outcome in apply_features(Run(ports, plan))} == {FeatureUpdateStatus.OK}
    assert (cluster.finalized["group.version"], cluster.finalized["transaction.version"]) == (1, 2)


def test_the_check_of_the_inventory_does_not_need_a_host(ports: ClusterPorts) -> None:
    nodes, verdict = check_inventory(ports, [])
    assert verdict.ok
    assert unseen(verdict.findings) == {"node 11", "node 12", "node 13"}
    assert [checked.process for checked in nodes] == [None] * 3


def test_a_change_of_a_node_is_refused_in_one_sentence(ports: ClusterPorts) -> None:
    node, runtime = ports.cluster.nodes[0], NoRuntime(ports.cluster, ports.admin, ports.metrics)
    for change in (
        lambda: runtime.stop(node, deadline_s=1),
        lambda: runtime.install(node, R431),
        lambda: runtime.start(node),
    ):
        with pytest.raises(RefusedError, match=r"^Cluster fake has runtime none, so its nodes cannot be stopped"):
            change()
