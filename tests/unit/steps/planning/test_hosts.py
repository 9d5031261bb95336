"""What a plan checks of each node's files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.domain.model.cluster.host_state import DirectoryFormat
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.steps.planning.hosts import host_findings
from kafka_rollout.steps.planning.plans import plan_downgrade, plan_upgrade
from tests.fakes.cluster import FakeCluster
from tests.fakes.kafka_classes import FakeClasses
from tests.fakes.ports import fake_bench

R381, R391, R431 = Release(3, 8, 1), Release(3, 9, 1), Release(4, 3, 1)
FORMAT = DirectoryFormat(meta=b"version=1", bootstrap=b"records", has_metadata_log=True)


@pytest.mark.parametrize(
    ("formats", "target", "expected"),
    [
        pytest.param({"/data": FORMAT}, R431, {"/data": FORMAT}, id="upgrade"),
        pytest.param({"/data": FORMAT}, R381, {"/data": replace(FORMAT, bootstrap=None)}, id="downgrade"),
        pytest.param(None, R431, None, id="unknown-upgrade"),
        pytest.param(None, R381, None, id="unknown-downgrade"),
    ],
)
def test_directories_are_checked_with_the_format_that_the_runtime_reads(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    formats: dict[str, DirectoryFormat] | None,
    target: Release,
    expected: dict[str, DirectoryFormat] | None,
) -> None:
    """A path of the configuration names another directory on this machine than on the host of the node.

    A downgrade lowers bootstrap.checkpoint itself.
    """
    checked: list[object] = []

    def record(classes: FakeClasses, release: Release, config: object, found: object) -> tuple[str, ...]:
        checked.append(found)
        return ()

    monkeypatch.setattr(FakeClasses, "config_problems", record)
    cluster = FakeCluster(R391)
    cluster.formats = formats
    ports = fake_bench(cluster, tmp_path)
    plan = plan_upgrade(ports, target, finalize=False) if target > R391 else plan_downgrade(ports, target)
    assert checked == [expected] * len(ports.cluster.nodes)
    (release_step,) = plan.release_steps
    ports.run.save_fingerprints({})  # before a stop, a configuration that changed is checked again
    host_findings(ports, plan, release_step, ports.cluster.nodes[0])
    assert checked == [expected] * (len(ports.cluster.nodes) + 1)


@pytest.mark.parametrize("arguments", [("java",), None], ids=["missing", "unknown"])
def test_an_oauth_url_that_the_jvm_does_not_allow_blocks_the_plan_and_the_stop(
    tmp_path: Path, arguments: tuple[str, ...] | None
) -> None:
    url = "listener.name.clients.oauthbearer.sasl.oauthbearer.jwks.endpoint.url"
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=https://idp/jwks"
    cluster = FakeCluster(R391)
    for fake in cluster.nodes.values():
        fake.config |= {"sasl.enabled.mechanisms": "OAUTHBEARER", url: "https://idp/jwks"}
        fake.jvm_arguments = ("java", allowed)
    ports = fake_bench(cluster, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    assert plan.blockers == ()
    (release_step,) = plan.release_steps
    node = ports.cluster.nodes[0]
    assert host_findings(ports, plan, release_step, node) == ()
    cluster.nodes[node.node_id].jvm_arguments = arguments
    (found,) = plan_upgrade(ports, R431, finalize=False).blockers
    assert (found.code, found.subject) == ("JVM-PROPERTY-MISSING", f"node {node.node_id}, release 4.3.1")
    assert allowed in found.remedy
    assert [one.code for one in host_findings(ports, plan, release_step, node)] == ["JVM-PROPERTY-MISSING"]
