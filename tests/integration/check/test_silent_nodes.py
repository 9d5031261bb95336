"""A node that is dead or does not answer: it is named, it blocks, and the other checks are made."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.time_limits import RESPONSE_S
from kafka_rollout.cli import app as cli
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.model.topology import NodeSpec
from tests.integration.conftest import MakeCluster
from tests.integration.harness.groups.committing import commit
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = pytest.mark.integration
Call = Callable[..., tuple[int, Any, str]]


@pytest.fixture(scope="module")
def cluster(make_shared_cluster: MakeCluster) -> LocalCluster:
    found = make_shared_cluster("3.9.1", name="silent", layout="combined", size=3)
    admin = AdminClient({"bootstrap.servers": found.spec.bootstrap_servers, "log_level": 2})
    admin.create_topics([NewTopic("orders", 3, 3, config={"min.insync.replicas": "2"})])["orders"].result(60)
    return found


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    (tmp_path / "clusters").mkdir()
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(tmp_path / "clusters"))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))

    def run(*words: str) -> tuple[int, Any, str]:
        code = cli.run_main([*words, "--json"])
        printed = capsys.readouterr()
        return code, json.loads(printed.out) if printed.out else {}, printed.err

    return run


def pid_of(cluster: LocalCluster, node: NodeSpec) -> int:
    pid = cluster.runtime.process(node).pid
    assert pid is not None
    return pid


@contextmanager
def paused(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def follower(cluster: LocalCluster) -> NodeSpec:
    """Return a node that does not lead the quorum: the other two stay a quorum with the same leader."""
    with KafkaAdmin(cluster.spec) as admin:
        leader = admin.quorum().leader_id
    return next(node for node in cluster.spec.nodes if node.node_id != leader)


def down(document: Any) -> dict[str, str]:
    (nodes,) = (one for one in document["checks"] if one["id"] == "node-registration")
    return {
        one["subject"]: one["sentence"]
        for group in nodes["findings"]
        if group["code"] == "NODE-DOWN"
        for one in group["objects"]
    }


def results(document: Any) -> dict[str, str]:
    return {one["id"]: one["result"] for one in document["checks"]}


def errors_in_the_logs(cluster: LocalCluster) -> list[str]:
    return [
        line for node in cluster.spec.nodes for line in cluster.runtime.log_tail(node, lines=5_000) if "ERROR" in line
    ]


def test_a_check_writes_no_error_into_the_logs_of_the_nodes(cluster: LocalCluster, call: Call) -> None:
    group = Consumer({"bootstrap.servers": cluster.spec.bootstrap_servers, "group.id": "billing", "log_level": 2})
    commit(group, TopicPartition("orders", 0, 0))
    before = errors_in_the_logs(cluster)
    call("check", "--bootstrap-server", cluster.spec.bootstrap_servers, "--to", "4.3.1")
    assert errors_in_the_logs(cluster) == before


def test_a_paused_and_then_a_killed_broker_are_named_and_block(cluster: LocalCluster, call: Call) -> None:
    node = follower(cluster)
    servers = cluster.spec.bootstrap_servers
    check = ("check", "--bootstrap-server", servers, "--to", "4.3.1", "--from", "3.9.1")

    _, whole, _ = call(*check)
    before = results(whole)
    pid = pid_of(cluster, node)
    with paused(pid):
        began = time.monotonic()
        code, found, said = call(*check)
        waited_s = time.monotonic() - began
        os.kill(pid, signal.SIGKILL)  # before it can send a heartbeat again
    assert (code, said) == (3, ""), found
    assert "no answer within" in down(found)[f"node {node.node_id}"]
    assert waited_s < whole["seconds"] + 2.5 * RESPONSE_S, "each request waited for the silent node"
    new = {name for name, result in results(found).items() if result == "unknown" and before[name] != "unknown"}
    assert {"mixed-releases", "finalized-levels-agree", "node-configuration"} <= new
    others = {"group-types", "groups-and-transactions", "unlisted-nodes", "finalized-levels-path", "unclean-elections"}
    assert not new & others, "these ask nothing of a single node"
    reasons = {one["id"]: one["reasons"] for one in found["checks"]}
    judged = ", ".join(str(one.node_id) for one in cluster.spec.nodes if one != node)
    assert reasons["mixed-releases"] == [
        f"The response of node {node.node_id} is unknown. The rest, nodes {judged}, was checked."
    ]

    others = ",".join(str(one.broker_address) for one in cluster.spec.nodes if one != node)
    wait_until(lambda: _is_fenced(cluster, node), 60, said="the broker to be fenced")
    code, found, said = call("check", "--bootstrap-server", others, "--to", "4.3.1", "--from", "3.9.1")
    assert code == 3, said
    assert list(down(found)) == [f"node {node.node_id}"]
    assert "does not respond" in down(found)[f"node {node.node_id}"]
    assert "blocked" in found["sentence"]
    assert found["nodes"] == "3 brokers, 3 controllers"

    code, made, said = call("inventory", "init", "--bootstrap-server", others, "--name", "found")
    assert code == 5
    assert f"Incomplete: {node.name} (node {node.node_id}) does not respond" in said
    text = Path(made["file"]).read_text()
    assert [one["id"] for one in yaml.safe_load(text)["nodes"]] == [n.node_id for n in cluster.spec.nodes if n != node]
    assert f"# - id: {node.node_id}" in text


def _is_fenced(cluster: LocalCluster, node: NodeSpec) -> bool:
    with KafkaAdmin(cluster.spec) as admin:
        return node.node_id not in admin.registered().brokers
