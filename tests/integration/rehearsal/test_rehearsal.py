"""A rehearsal of a real cluster: it passes, and it fails as the real nodes would. The cluster itself is only read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.nodes.runtimes.local_process import node_processes
from tests.integration.conftest import MakeCluster
from tests.integration.harness.cluster_contents import wait_until_all_know
from tests.integration.harness.feature_harness import Command
from tests.integration.harness.groups.committing import write_group_and_transaction
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]
SMALL = {"segment.bytes": "14000"}
_S = 180.0  # a busy machine


@pytest.fixture(autouse=True)
def copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_REHEARSE", "1")


@pytest.fixture(scope="module")
def cluster(make_shared_cluster: MakeCluster) -> LocalCluster:
    """3.9.1 with a topic that has a setting which 4.3.1 drops, a group with offsets and a transactional id."""
    made = make_shared_cluster("3.9.1", layout="combined")
    create_topic(made, "orders", config={"message.format.version": "2.8"})
    servers = made.spec.bootstrap_servers
    write_group_and_transaction(servers, "orders")
    return made


def create_topic(cluster: LocalCluster, name: str, **options: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, 3, **options)])[name].result(_S)
    wait_until_all_know(cluster.spec)


def nodes_of(cluster: LocalCluster) -> dict[str, int]:
    return {node.name: len(cluster.runtime.starts(node)) for node in cluster.spec.nodes}


def check_untouched(cluster: LocalCluster, tmp_path: Path) -> None:
    assert nodes_of(cluster) == dict.fromkeys(nodes_of(cluster), 1), "each real node was started once"
    assert len(node_processes(cluster.folder)) == len(cluster.spec.nodes)
    assert list((tmp_path / "home" / "rehearsals").iterdir()) == [], "nothing of the copy is left"
    assert node_processes(tmp_path / "home") == {}


def test_a_healthy_cluster_passes_and_keeps_its_contents(
    cluster: LocalCluster, command: Command, tmp_path: Path
) -> None:
    code, printed, progress = command(cluster, "rehearse --to 4.3.1 --finalize after-approval --json")
    assert code == 0, printed + progress
    result = json.loads(printed)
    assert (result["outcome"], result["nodes"], result["findings"]) == ("passed", [1, 2, 3], [])
    phases = {phase["name"]: phase["sentence"] for phase in result["phases"]}
    assert list(phases) == [
        "start on 3.9.1",
        "comparison of the copy",
        "change",
        "comparison on 4.3.1",
        "rollback",
    ]
    assert "1 group," in phases["comparison of the copy"]
    assert "1 transactional id." in phases["comparison of the copy"]
    assert phases["comparison on 4.3.1"].startswith(
        "0 differences, and 1 that the plan expects. Configuration message.format.version of topic orders was 2.8 and "
        "is now missing."
    )
    assert phases["rollback"] == "Not possible after this change, as planned."
    assert set(result["node_seconds"]) == {f"3.9.1-to-4.3.1 node {number}" for number in (1, 2, 3)}
    assert "3 nodes" in result["estimate"]
    assert "about" in progress.splitlines()[0], "memory and disk are shown first"
    check_untouched(cluster, tmp_path)


def test_a_topic_that_the_target_rejects_fails_with_the_message_of_the_broker(
    cluster: LocalCluster, command: Command, tmp_path: Path
) -> None:
    create_topic(cluster, "small", config=SMALL)
    code, printed, progress = command(cluster, "rehearse --to 4.3.1 --json")
    assert code == 3, printed + progress
    (finding,) = json.loads(printed)["findings"]
    assert (finding["code"], finding["severity"]) == ("REHEARSAL-FAILED", "blocker")
    assert "does not start on 4.3.1" in finding["sentence"]
    assert "Invalid value 14000 for configuration segment.bytes" in finding["sentence"]
    check_untouched(cluster, tmp_path)
