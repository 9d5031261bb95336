"""How Kafka's tools set unclean.leader.election.enable of a topic while its brokers are down."""

from __future__ import annotations

import subprocess

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.features.rules import METADATA_VERSION_FLOOR
from kafka_rollout.model.unclean_elections import ENABLE
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.integration.conftest import MakeCluster
from tests.integration.harness.feature_harness import opened
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.full]


@pytest.mark.parametrize(
    ("release", "level", "reaches"),
    [("3.6.2", "3.6-IV2", False), ("3.9.2", "3.6-IV2", False), ("3.9.2", "3.7-IV0", True), ("4.3.1", None, True)],
)
def test_controllers_take_the_value_from_the_level_on_at_which_they_register_and_an_empty_broker_does_always(
    make_cluster: MakeCluster, release_cache: ReleaseCache, release: str, level: str | None, *, reaches: bool
) -> None:
    cluster = make_cluster(release, size=2, controllers=1, metadata_version=level)
    holder, empty = cluster.spec.brokers
    topic = NewTopic("logs", num_partitions=1, replica_assignment=[[holder.node_id]], config={ENABLE: "true"})
    admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
    admin.create_topics([topic])["logs"].result()
    (controller,) = cluster.spec.controllers

    def sets_value(*through: str) -> bool:
        command = ["java", "-cp", f"{release_cache.libs(Release.parse(release))}/*", "kafka.admin.ConfigCommand"]
        change = ["--alter", "--entity-type", "topics", "--entity-name", "logs", "--add-config", f"{ENABLE}=false"]
        done = subprocess.run([*command, *through, *change], check=False, capture_output=True, timeout=120)
        return done.returncode == 0

    with opened(cluster, cluster.folder / "home") as ports:
        finalized = ports.admin.features(controller).finalized[METADATA_VERSION]
        assert (finalized >= METADATA_VERSION_FLOOR) is reaches
        for broker in (empty, holder):
            cluster.runtime.stop(broker, deadline_s=60.0)
        wait_until(lambda: all(cluster.runtime.process(broker).pid is None for broker in (empty, holder)), 60)
        assert sets_value("--bootstrap-controller", str(controller.controller_address)) is reaches
        cluster.runtime.start(empty)
        wait_until(lambda: sets_value("--bootstrap-server", str(empty.broker_address)), 60)
        assert ports.admin.dynamic_configs().topics["logs"][ENABLE] == "false"
