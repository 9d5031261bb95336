"""Groups that lose their type: a run waits for them on real brokers, and what it saw of groups is in its report."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient

from kafka_rollout.feature_updates.update import plan_features
from kafka_rollout.features.requests import FeatureAction, FeatureOrder, parse_requests
from kafka_rollout.features.rules import ELIGIBLE_LEADERS_LOST
from kafka_rollout.wiring.cluster_ports import open_cluster_ports
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.dag_in_process import ProcessRuns
from tests.integration.harness.airflow.server import QUICK_SNAPSHOTS, finalized
from tests.integration.harness.groups.gated_groups import (
    CONSUMER,
    EAGER,
    looks_at_groups,
    meanwhile,
    members_of,
    stable,
    wait_for_gate,
)
from tests.integration.harness.groups.members import DEADLINE_S, wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.full, pytest.mark.timeout(1800)]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessRuns:
    return ProcessRuns.open(tmp_path, monkeypatch)


def test_a_consumer_group_holds_a_lower_group_version_up_until_it_is_converted_and_its_tombstones_are_written(
    runs: ProcessRuns, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster(
        "4.3.1",
        name="waits",
        layout="combined",
        size=1,
        extra_config={"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"},
    )
    with members_of(cluster) as members:
        members.join_group("billing", 2, **CONSUMER)
        wait_until(lambda: stable(cluster, billing=2), "the group is there")

        def convert() -> None:
            wait_for_gate(runs.home)
            assert finalized(cluster, cluster.spec.nodes[0])["group.version"] == 1, "nothing fell yet"
            members.leave_group("billing")
            members.join_group("billing", 2, **EAGER)

        with meanwhile(convert):
            state, states, record = runs.run(
                cluster, "kafka_features", action="update", downgrade=["group.version:0"], downgrade_type="SAFE"
            )
        assert state == "success", states
        assert "billing (2 members)" in runs.bodies["approve"]
        assert finalized(cluster, cluster.spec.nodes[0]).get("group.version", 0) == 0
        first, *_, last = looks_at_groups(record)
        assert "billing" in first["no consumer group has members"]
        assert "no converted group has a current record" in last["the tombstones of their records are written"]
        wait_until(lambda: stable(cluster, billing=2), "its members go on in the classic protocol")


class TestThreeNodes:
    """A cluster of 4.3.1 with a node to spare."""

    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, make_shared_cluster: MakeCluster) -> LocalCluster:
        return make_shared_cluster(
            "4.3.1",
            name="several",
            layout="combined",
            metadata_version="4.2-IV1",
            extra_config={
                **QUICK_SNAPSHOTS,
                "group.initial.rebalance.delay.ms": "0",
                "offsets.topic.num.partitions": "6",
            },
        )

    def test_partitions_that_remember_eligible_leaders_are_named_before_their_feature_falls(
        self, cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
        monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(cluster.inventory_path.parent))
        admin = KafkaAdminClient(bootstrap_servers=cluster.spec.bootstrap_servers)
        try:
            assert admin.describe_features()["eligible.leader.replicas.version"]["finalized"][1] == 1
        finally:
            admin.close()
        clients = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
        narrow = NewTopic("narrow", 1, 3, config={"min.insync.replicas": "3"})
        clients.create_topics([narrow])["narrow"].result(DEADLINE_S)
        stopped = cluster.spec.nodes[-1]
        cluster.runtime.stop(stopped, deadline_s=60, force=True)
        deletion = parse_requests((), ["eligible.leader.replicas.version:0"])
        order = FeatureOrder(action=FeatureAction.UPDATE, named=deletion)

        def named() -> bool:
            with open_cluster_ports(cluster.spec.name, "elr") as ports:
                found = plan_features(ports, order, unsafe=False).blockers
            return any(one.code == ELIGIBLE_LEADERS_LOST.code and "narrow-0" in one.sentence for one in found)

        try:
            wait_until(named, "the partition is named")
        finally:
            cluster.runtime.start(stopped)
            cluster.wait_until_ready()
        clients.delete_topics(["narrow"])["narrow"].result(DEADLINE_S)
