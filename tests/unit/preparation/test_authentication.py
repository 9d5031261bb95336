"""Wrong credentials and new settings in the plans of both directions, and before a stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.base.findings import Severity
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.probes import Probe, ProbeOutcome
from kafka_rollout.observation.run import Run
from kafka_rollout.preparation.node_checks import host_findings
from kafka_rollout.releases.facts import Release
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import plan_downgrade, plan_upgrade

R340, R341, R402, R411, R431 = (Release.parse(text) for text in ("3.4.0", "3.4.1", "4.0.2", "4.1.1", "4.3.1"))
FORGED = Probe(
    listener="A", mechanism="OAUTHBEARER", what="a token with a forged signature", outcome=ProbeOutcome.ACCEPTED
)
OAUTH = {
    "listeners": "A://:9092",
    "listener.security.protocol.map": "A:SASL_SSL",
    "listener.name.a.sasl.enabled.mechanisms": "OAUTHBEARER",
}
CODE, NEW = "OAUTH-TOKENS-UNVERIFIED", "CONFIG-NEW-SETTING"


def cluster_of(release: Release, config: dict[str, str]) -> FakeCluster:
    cluster = FakeCluster(release)
    for node in cluster.nodes.values():
        node.config.update(config)
    cluster.probes[R411] = (FORGED,)
    return cluster


def blockers(plan: Plan) -> set[str]:
    return {finding.code for finding in plan.findings if finding.severity is Severity.BLOCKER}


@pytest.mark.parametrize("source", [R402, R431], ids=["upgrade", "downgrade"])
def test_a_release_that_accepts_forged_tokens_blocks_a_plan_of_either_direction(
    tmp_path: Path, source: Release
) -> None:
    ports = fake_ports(cluster_of(source, OAUTH), tmp_path)
    plan = plan_upgrade(ports, R411, finalize=False) if source < R411 else plan_downgrade(ports, R411)
    assert CODE in blockers(plan)


def test_a_release_on_the_way_counts_as_well(tmp_path: Path) -> None:
    cluster = cluster_of(R340, OAUTH)
    cluster.probes = {R341: (FORGED,)}
    plan = plan_upgrade(fake_ports(cluster, tmp_path), R431, finalize=False)
    assert plan.path == (R340, R341, R431)
    (found,) = (finding for finding in plan.findings if finding.code == CODE)
    assert (found.severity, found.subject.rpartition(", ")[2]) == (Severity.BLOCKER, "release 3.4.1")


def test_what_runs_already_is_a_warning(tmp_path: Path) -> None:
    cluster = cluster_of(R402, OAUTH)
    cluster.probes[R402] = (FORGED,)
    plan = plan_upgrade(fake_ports(cluster, tmp_path), R411, finalize=False)
    assert {finding.severity for finding in plan.findings if finding.code == CODE} == {Severity.WARNING}


def test_without_sasl_nothing_is_asked_and_the_check_says_so(tmp_path: Path) -> None:
    plan = plan_upgrade(fake_ports(cluster_of(R402, {}), tmp_path), R411, finalize=False)
    (result,) = (one for one in plan.checks if one.id == "authentication")
    assert result.text == "not applicable: No listener uses SASL."


def test_a_file_that_changed_since_the_plan_is_asked_again_before_the_stop(tmp_path: Path) -> None:
    cluster = cluster_of(R402, {})
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R411, finalize=False)
    node = ports.cluster.brokers[0]
    assert CODE not in {one.code for one in host_findings(Run(ports, plan), plan.release_steps[0], node, {})}
    cluster.nodes[node.node_id].config.update(OAUTH)
    assert CODE in {one.code for one in host_findings(Run(ports, plan), plan.release_steps[0], node, {})}


def test_a_new_setting_of_a_used_area_is_explained_in_the_plan(tmp_path: Path) -> None:
    plan = plan_upgrade(fake_ports(cluster_of(R402, OAUTH), tmp_path), R411, finalize=False)
    found = {one.subject: one for one in plan.findings if one.code == NEW}
    validator = found["configuration sasl.oauthbearer.jwt.validator.class"]
    assert validator.severity is Severity.WARNING
    assert "What sasl.oauthbearer.jwt.validator.class does." in validator.sentence
