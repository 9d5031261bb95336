"""What stands in the way of a roll is a finding before anything is stopped, on real brokers and through both doors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.files import write_whole
from kafka_rollout.cli.app import run_main
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.server import PrivateAirflow, starts, wait_for
from tests.integration.harness.removed_controller import RemovedController
from tests.integration.harness.shell import DRY_RUN
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]

ORIGIN, TARGET = "3.9.1", "4.3.1"


@dataclass(frozen=True, slots=True)
class Shell:
    """`kafka-rollout` on inventories of its own."""

    clusters: Path
    capture: pytest.CaptureFixture[str]

    def describe(self, spec: ClusterSpec) -> None:
        write_whole(self.clusters / f"{spec.name}.yaml", dump_cluster(spec).encode(), mode=0o644)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        self.capture.readouterr()
        code = run_main(arguments)
        said = self.capture.readouterr()
        return code, said.out, " ".join(said.err.split())

    def plan(self, spec: ClusterSpec, target: str = TARGET) -> tuple[int, dict[str, dict[str, Any]]]:
        """Exit code, and the blockers by code."""
        code, out, _ = self.run(*DRY_RUN, "--cluster", spec.name, "--to", target, "--json")
        findings = json.loads(out)["plan"]["findings"]
        return code, {finding["code"]: finding for finding in findings if finding["severity"] == "blocker"}


@pytest.fixture(scope="module")
def cluster(make_shared_cluster: MakeCluster) -> LocalCluster:
    return make_shared_cluster(ORIGIN, name="refusals", layout="combined", quorum="dynamic")


@pytest.fixture
def shell(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Shell]:
    """Nothing is ever started or stopped by a refusal."""
    (tmp_path / "clusters").mkdir()
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(tmp_path / "clusters"))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    shell = Shell(clusters=tmp_path / "clusters", capture=capsys)
    shell.describe(cluster.spec)
    before = processes(cluster)
    yield shell
    assert processes(cluster) == before, "something was stopped or started"


def processes(cluster: LocalCluster) -> dict[str, Any]:
    return {node.name: (cluster.runtime.process(node).pid, starts(cluster)[node.name]) for node in cluster.spec.nodes}


def whole(finding: Mapping[str, Any], subject: str, *words: str) -> None:
    """A finding names its subject, says what was seen and what to do about it."""
    assert finding["subject"] == subject
    assert all(word in finding["sentence"] for word in words), finding["sentence"]
    assert finding["remedy"].strip()


def test_a_well_cluster_has_no_blocker(shell: Shell, cluster: LocalCluster) -> None:
    assert shell.plan(cluster.spec) == (0, {})


def test_a_topic_with_one_replica_is_a_blocker_while_it_is_there(shell: Shell, cluster: LocalCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
    admin.create_topics([NewTopic("orders", num_partitions=1, replication_factor=1)])["orders"].result(60)
    try:
        # The controller has the topic now; the brokers tell of it as soon as they have read that.
        wait_for(lambda: shell.plan(cluster.spec)[0] == 3, timeout_s=300, every_s=1, said="a plan that sees the topic")
        _, blockers = shell.plan(cluster.spec)
        assert set(blockers) == {"RF-ONE-TOPIC"}
        whole(blockers["RF-ONE-TOPIC"], "topic orders", "single replica", "orders-0")
    finally:
        admin.delete_topics(["orders"])["orders"].result(60)
    wait_for(lambda: shell.plan(cluster.spec) == (0, {}), timeout_s=300, every_s=1, said="a plan without blockers")


def test_a_node_of_the_inventory_that_the_cluster_does_not_know_is_a_blocker(
    shell: Shell, cluster: LocalCluster, tmp_path: Path
) -> None:
    stranger = NodeSpec(
        node_id=9,
        name="node-9",
        roles=frozenset({Role.BROKER}),
        broker_address="127.0.0.1:9",
        directory=str(tmp_path / "node-9"),
    )
    (tmp_path / "node-9").mkdir()
    (tmp_path / "node-9" / "server.properties").write_text(
        "process.roles=broker\nnode.id=9\nlisteners=PLAINTEXT://127.0.0.1:9\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.bootstrap.servers={cluster.spec.bootstrap_controllers}\nlog.dirs=data\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
    )
    (tmp_path / "node-9" / "data").mkdir()  # formatted, as by kafka-storage.sh: otherwise the node would not start
    (tmp_path / "node-9" / "data" / "meta.properties").write_text(
        f"version=1\nnode.id=9\ncluster.id={cluster.cluster_id}\ndirectory.id=JjIvKzBkTRyV9zVYIwN6Bg\n"
    )
    grown = replace(cluster.spec, nodes=(*cluster.spec.nodes, stranger))
    shell.describe(grown)
    code, blockers = shell.plan(grown)
    assert code == 3
    # Finalizing needs the min.insync.replicas of every broker, and this one does not report it.
    assert set(blockers) == {"NODE-UNKNOWN", "ELR-CHANGES-MIN-ISR"}, blockers
    whole(blockers["NODE-UNKNOWN"], "node 9", "node-9", "not registered in the cluster")


def test_a_feature_that_a_node_does_not_have_is_refused_by_name(shell: Shell, cluster: LocalCluster) -> None:
    code, said, _ = shell.run("features", "set", "-c", cluster.spec.name, "--upgrade", "share.version:1", "--dry-run")
    assert code == 3
    said = " ".join(said.split())
    assert "Not every node supports share.version 1" in said
    assert "Upgrade these nodes to a release that supports it" in said


def test_a_level_that_the_target_no_longer_reads_is_a_blocker(shell: Shell, make_cluster: MakeCluster) -> None:
    old = make_cluster("3.4.1", name="old-level", layout="combined", size=1, metadata_version="3.3-IV0")
    shell.describe(old.spec)
    code, blockers = shell.plan(old.spec)
    assert code == 3
    whole(
        blockers["FINALIZED-LEVEL-OUT-OF-RANGE"],
        "feature metadata.version on 4.3.1",
        "metadata.version is finalized at 4",
        "supports 7-30",
    )
    assert starts(old) == {"node-1": {"3.4.1": 1}}


def test_a_target_that_the_catalogue_does_not_know_is_bad_input(shell: Shell, cluster: LocalCluster) -> None:
    code, out, said = shell.run(*DRY_RUN, "--cluster", cluster.spec.name, "--to", "9.9.9", "--json")
    assert code == 2
    error = json.loads(out)["error"]
    assert (error["kind"], "9.9.9" in error["sentence"], bool(error["remedy"])) == ("invalid_input", True, True)
    assert "9.9.9" in said
    assert "Traceback" not in said


def test_a_ghost_controller_is_a_blocker_and_the_dag_refuses_instead_of_asking(
    shell: Shell, cluster: LocalCluster, airflow: PrivateAirflow, tmp_path: Path, release_cache: ReleaseCache
) -> None:
    RemovedController(cluster, 4, tmp_path / "node-4", release_cache).register_and_stop(Release.parse(ORIGIN))
    # Whichever controller is asked first tells of it as soon as it has read of the registration.
    wait_for(lambda: shell.plan(cluster.spec)[0] == 3, timeout_s=300, every_s=1, said="a plan that sees the controller")
    _, blockers = shell.plan(cluster.spec)
    assert set(blockers) == {"UNLISTED-CONTROLLER"}
    whole(blockers["UNLISTED-CONTROLLER"], "controller 4", "registered", "not listed in the inventory")

    airflow.add(cluster)
    with pytest.raises(UserError, match="400"):
        airflow.trigger(cluster, "9.9.9")
    run = airflow.trigger(cluster, TARGET, finalize="after_approval")
    assert run.wait_done() == "failed", "a question would have failed this too"
    states = run.states()
    assert states["plan"] == "success"
    assert states["approve_plan"] == "failed"
    run.wait_for_log("approve_plan", "UNLISTED-CONTROLLER")
    run.wait_for_log("approve_plan", "start a controller with node.id 4")  # the remedy is part of the refusal
    assert {state for task_id, state in states.items() if task_id.startswith("roll.")} <= {"upstream_failed", "skipped"}
    report = run.report()
    assert report["outcome"] == "refused"
    assert [finding["code"] for finding in report["findings"] if finding["severity"] == "blocker"] == [
        "UNLISTED-CONTROLLER"
    ]
