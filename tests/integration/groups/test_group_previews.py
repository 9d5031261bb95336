"""Groups of a release's preview: what the plan of an upgrade says of the next release is what that release does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.findings import Severity
from kafka_rollout.formats.cleaning import SettingChange
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.jvm import Jvm, run_jvm
from tests.integration.conftest import MakeCluster
from tests.integration.coordinator_logs.test_scan_cleaner import alter
from tests.integration.harness.groups import committing
from tests.integration.harness.groups.applications import application_libs, streams_application
from tests.integration.harness.groups.gated_groups import PARTITIONS, TOPIC, members_of, stable, write
from tests.integration.harness.groups.members import DEADLINE_S, wait_until
from tests.integration.harness.shell import Shell
from tests.records import run_history
from tools.coordinator_traffic import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(1200)]

OLD, NEW = Release(4, 0, 1), Release(4, 3, 1)
LOADED = f"Finished loading of metadata from {CONSUMER_OFFSETS}-0"
NOT_LOADED = f"Failed to load metadata from {CONSUMER_OFFSETS}-0"
PREVIEW = {
    "unstable.api.versions.enable": "true",
    "group.share.enable": "true",
    "group.coordinator.rebalance.protocols": "classic,consumer,share",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
QUICK = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "500",
}
SOON = [
    SettingChange(topic=CONSUMER_OFFSETS, name=name, value="2000", previous=None)
    for name in ("max.compaction.lag.ms", "delete.retention.ms")
]


@contextmanager
def share_consumer(jvm: Jvm, servers: str, group: str) -> Iterator[Any]:
    """The release's own: what others speak of the protocol came after the preview."""
    text = "org.apache.kafka.common.serialization.StringDeserializer"
    properties = jvm.packages.java.util.Properties()
    settings = {"bootstrap.servers": servers, "group.id": group, "key.deserializer": text, "value.deserializer": text}
    for key, value in settings.items():
        properties.put(key, value)
    consumer = jvm.packages.org.apache.kafka.clients.consumer.KafkaShareConsumer(properties)
    topics = jvm.packages.java.util.ArrayList()
    topics.add(TOPIC)
    consumer.subscribe(topics)
    try:
        yield lambda: consumer.poll(jvm.packages.java.time.Duration.ofMillis(200)).count()
    finally:
        consumer.close()


def found_by_dry_run(shell: Shell) -> dict[str, Severity]:
    """Findings of an upgrade's plan about groups and logs, by code and subject."""
    answer = shell("upgrade", "--cluster", shell.cluster.spec.name, "--to", str(NEW), "--dry-run")
    assert answer.returncode in (0, 3, 5), answer.stderr
    plan = run_history(shell.home, shell.cluster.spec.name, shell.newest_run().run_id).load_plan()
    return {
        f"{finding.code} {finding.subject}": finding.severity
        for finding in plan.findings
        if finding.code.startswith(("GROUPS-", "LOGS-"))
    }


def started_on(cluster: LocalCluster, release: Release, *awaited: str) -> str:
    """What the node says from its start on the release until its coordinator of groups has loaded, or could not, and
    what is awaited of others."""
    (node,) = cluster.spec.nodes
    log = Path(str(node.directory)) / "logs" / "server.log"
    cluster.runtime.stop(node, deadline_s=60, force=True)
    cluster.runtime.install(node, release)
    before = log.stat().st_size
    cluster.runtime.start(node)
    cluster.wait_until_ready()

    def said() -> str:
        return log.read_bytes()[before:].decode(errors="replace")

    wait_until(lambda: LOADED in said() or NOT_LOADED in said(), "the coordinator has loaded, or not")
    for words in awaited:
        wait_until(lambda words=words: words in said(), words)  # type: ignore[misc]
    return said()


def commit(servers: str, group: str) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        committing.commit(consumer, TopicPartition(TOPIC, 0, 1))
    finally:
        consumer.close()


def test_share_groups_of_4_0_keep_4_3_1_from_loading_the_log_until_they_are_deleted_and_cleaned(
    make_cluster: MakeCluster, release_cache: ReleaseCache, tmp_path: Path
) -> None:
    """4.1 gave ShareGroupMetadataValue and ShareSnapshotValue further fields without a further version."""
    cluster = make_cluster(str(OLD), name="shares", layout="combined", size=1, extra_config={**PREVIEW, **QUICK})
    servers, shell = cluster.spec.bootstrap_servers, Shell(tmp_path, cluster)
    offsets, shares = f"{NEW}, topic {CONSUMER_OFFSETS}", f"{NEW}, topic {SHARE_GROUP_STATE}"
    blocked = {f"LOGS-NOT-LOADABLE {offsets}": Severity.BLOCKER, f"LOGS-NOT-LOADABLE {shares}": Severity.BLOCKER}
    with members_of(cluster), run_jvm(release_cache.libs(OLD)) as jvm:
        commit(servers, "billing")
        with share_consumer(jvm, servers, "early") as poll:

            def delivered() -> bool:
                write(servers, 2)  # by default a share group begins at the end
                return bool(poll())

            wait_until(delivered, "it has records")
            poll()  # acknowledges them
            wait_until(lambda: stable(cluster, early=1), "the group is there")
            found = found_by_dry_run(shell)
            assert found == {**blocked, f"GROUPS-NOT-SERVED {NEW}, share groups": Severity.WARNING}
        assert found_by_dry_run(shell) == blocked, "without members its records are there still"

        said = started_on(cluster, NEW, f"Failed to load metadata from {SHARE_GROUP_STATE}-0")
        assert f"Failed to load metadata from {CONSUMER_OFFSETS}-0" in said, (
            "billing's offsets are out of reach as well"
        )
        assert f"Finished loading of metadata from {CONSUMER_OFFSETS}-0" in started_on(cluster, OLD)

        admin = AdminClient({"bootstrap.servers": servers})
        admin.delete_consumer_groups(["early"])["early"].result(DEADLINE_S)
        admin.delete_topics([SHARE_GROUP_STATE])[SHARE_GROUP_STATE].result(DEADLINE_S)
        watch = ("groups", "watch", "--cluster", "shares", "--type", "share", "--release", str(NEW))
        waits = shell(*watch, "--interval", "0.2", "--timeout", "1")
        assert waits.returncode == 3, waits.stderr
        assert "1 partition not" in " ".join(waits.stdout.split()), "tombstones are written, what they ended is there"
        alter(servers, SOON)
        watching = shell.start(*watch)
        try:
            until = time.monotonic() + DEADLINE_S
            while watching.poll() is None:
                assert time.monotonic() < until, (tmp_path / "killed.log").read_text()
                commit(servers, "billing")
                time.sleep(0.5)
        finally:
            watching.kill()
            watching.wait()
        assert watching.returncode == 0, (tmp_path / "killed.log").read_text()
    assert Severity.BLOCKER not in found_by_dry_run(shell).values(), "a type that 4.1 gave up is passed over"
    assert LOADED in started_on(cluster, NEW)


def test_streams_groups_of_4_1_are_served_by_4_3_1_and_nothing_is_said_of_them(
    make_cluster: MakeCluster, release_cache: ReleaseCache, tmp_path: Path
) -> None:
    """Their preview has the level of later releases (streams.version), which unstable features alone let it have."""
    unstable = {"unstable.feature.versions.enable": "true", "unstable.api.versions.enable": "true"}
    cluster = make_cluster("4.1.1", name="streams", layout="combined", size=1, extra_config={**unstable, **QUICK})
    servers, shell = cluster.spec.bootstrap_servers, Shell(tmp_path, cluster)
    with members_of(cluster), run_jvm(application_libs(release_cache)) as jvm:
        admin = AdminClient({"bootstrap.servers": servers})  # must live until it has answered
        admin.create_topics([NewTopic("copies", PARTITIONS, 1)])["copies"].result(DEADLINE_S)
        with streams_application(
            jvm, servers, "early", tmp_path, protocol="streams", source=TOPIC, sink="copies"
        ) as application:
            wait_until(lambda: stable(cluster, early=1), "the group is there")
            assert found_by_dry_run(shell) == {}
            assert LOADED in started_on(cluster, NEW)
            wait_until(lambda: stable(cluster, early=1), "its member goes on")
            wait_until(lambda: str(application.state()) == "RUNNING", "it runs")
