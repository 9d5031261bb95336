"""A cluster of which only the listeners are known: its inventory is written, then its questions are answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_rollout.cli.app import run_main
from kafka_rollout.clusters.inventory import load_cluster
from kafka_rollout.model.topology import NodeSpec
from tests.integration.conftest import MakeCluster
from tests.integration.harness.shell import DRY_RUN
from tools.demo.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

Call = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def cluster(make_shared_cluster: MakeCluster) -> LocalCluster:
    return make_shared_cluster("4.2.1", name="hidden", size=1)


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run `kafka-rollout` with an empty folder of inventories."""
    (tmp_path / "clusters").mkdir()
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(tmp_path / "clusters"))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))

    def run(*words: str) -> tuple[int, str]:
        code = run_main(words)
        said = capsys.readouterr()
        return code, said.out + said.err if code and "--json" not in words else said.out

    return run


def facts_of(node: NodeSpec) -> tuple[object, ...]:
    return node.roles, node.broker_address, node.controller_address, node.rack


@pytest.mark.full
def test_the_inventory_of_a_running_cluster_answers_the_questions_of_a_read_only_one(
    cluster: LocalCluster, call: Call, tmp_path: Path
) -> None:
    code, said = call("inventory", "init", "--bootstrap-server", cluster.spec.bootstrap_servers, "--name", "found")
    assert code == 0, said
    assert said.strip() == str(tmp_path / "clusters" / "found.yaml")
    found = load_cluster(Path(said.strip()))
    assert {n.node_id: facts_of(n) for n in found.nodes} == {n.node_id: facts_of(n) for n in cluster.spec.nodes}
    code, said = call("inventory", "init", "--bootstrap-server", cluster.spec.bootstrap_servers, "--name", "found")
    assert (code, "has a cluster found already" in said) == (2, True)

    code, said = call("inventory", "check", "--cluster", "found", "--json")
    assert (code, json.loads(said)["ok"]) == (0, True)
    code, said = call("verify", "--details", "--cluster", "found", "--json")
    codes = {finding["code"] for finding in json.loads(said)["verification"]["verdict"]["findings"]}
    assert codes >= {"NOT-OBSERVABLE", "RELEASE-BY-LEVELS", "METRICS-MISSING"}
    assert {node["process"]["running"] for node in json.loads(said)["state"]["nodes"].values()} == {"4.2.0"}
    code, said = call(*DRY_RUN, "--cluster", "found", "--to", "4.3.1", "--json")
    findings = json.loads(said)["plan"]["findings"]
    # One controller cannot be spared; nothing that is hidden blocks, and the configuration was read from the nodes.
    assert [f["code"] for f in findings if f["severity"] == "blocker"] == ["QUORUM-NO-SPARE"]
    assert not [f for f in findings if f["subject"].startswith("configurations")]
    code, said = call("upgrade", "--cluster", "found", "--to", "4.3.1", "--as", "alice", "--reason", "x", "--yes")
    assert (code, "Cluster found has runtime none" in said) == (3, True)
