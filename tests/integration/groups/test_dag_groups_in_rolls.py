"""Groups that the next release would not serve, or whose records it cannot load, hold a roll up, down or up, until
people have seen to them: the run goes on by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient

from kafka_rollout.formats import cleaning as scan_cleaning
from kafka_rollout.formats.cleaning import CleaningConfig
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.jvm import run_jvm
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import IncrementalScan
from tests.integration.conftest import MakeCluster
from tests.integration.coordinator_logs.test_scan_cleaner import alter
from tests.integration.harness.airflow.dag_in_process import ProcessRuns
from tests.integration.harness.airflow.server import QUICK_SNAPSHOTS, all_run, finalized, starts
from tests.integration.harness.cluster_contents import wait_until_all_know
from tests.integration.harness.groups.gated_groups import (
    CONSUMER,
    EAGER,
    PARTITIONS,
    RECORDS,
    TOPIC,
    consumer_of_preview,
    gate_holds,
    looks_at_groups,
    meanwhile,
    members_of,
    shared,
    stable,
    wait_for_gate,
    waits_for,
    write,
)
from tests.integration.harness.groups.members import DEADLINE_S, wait_until
from tools.coordinator_traffic import CONSUMER_OFFSETS
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.full, pytest.mark.timeout(1800)]

Start = Callable[[str, str, str], LocalCluster]  # (release, metadata.version, a feature to raise to 1)
QUICK_GROUPS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
COMMITS_OFTEN = {"auto.commit.interval.ms": 500}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessRuns:
    return ProcessRuns.open(tmp_path, monkeypatch)


@pytest.fixture
def soon_cleaned(make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Start a cluster whose log cleaner can run within two seconds."""
    monkeypatch.setattr(scan_cleaning, "FASTER_MS", 2_000)

    def start(release: str, level: str, feature: str) -> LocalCluster:
        cluster = make_cluster(
            release,
            name="cleaned",
            layout="combined",
            metadata_version=level,
            extra_config={**QUICK_SNAPSHOTS, **QUICK_GROUPS, "log.cleaner.backoff.ms": "500"},
        )
        set_level(cluster, feature, 1)
        return cluster

    return start


def committed(cluster: LocalCluster, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.spec.bootstrap_servers, "group.id": group})
    try:
        places = consumer.committed([TopicPartition(TOPIC, n) for n in range(PARTITIONS)], timeout=DEADLINE_S)
    finally:
        consumer.close()
    return sum(max(place.offset, 0) for place in places)


def speed_up_cleaning(cluster: LocalCluster, runs: ProcessRuns) -> int:
    """Let the cleaner come soon, and write records, whose commits are what closes segments, until the gate holds.

    It waits at the end for the settings to be restored.
    """
    servers, written = cluster.spec.bootstrap_servers, 0
    faster, restored = CleaningConfig().faster_settings(CONSUMER_OFFSETS), False
    alter(servers, faster)
    until = time.monotonic() + 2 * DEADLINE_S
    while not gate_holds(runs.home):
        if not restored and waits_for(
            runs.home, f"the settings for faster cleaning of {CONSUMER_OFFSETS} are restored"
        ):
            alter(servers, faster, back=True)
            restored = True
        assert time.monotonic() < until, "the cleaner was not there twice"
        write(servers, 1)
        written += 1
        time.sleep(0.5)
    assert restored
    return written


def set_level(cluster: LocalCluster, feature: str, level: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.spec.bootstrap_servers)
    try:
        assert admin.update_features({feature: ("UPGRADE", level)}) == {feature: "OK"}
    finally:
        admin.close()
    wait_until_all_know(cluster.spec)


def test_an_intolerant_release_is_reached_when_its_groups_are_converted_and_cleaned_out_of_the_log(
    runs: ProcessRuns, soon_cleaned: Start
) -> None:
    """4.0.1 is the only emitting release that writes committed offsets as 3.4.0 reads them."""
    cluster = soon_cleaned("4.0.1", "3.4-IV0", "group.version")
    written = RECORDS
    with members_of(cluster) as members:
        members.join_group("billing", 2, **CONSUMER, **COMMITS_OFTEN)
        wait_until(lambda: stable(cluster, billing=2), "the group is there")

        def convert_and_hurry() -> None:
            nonlocal written
            wait_for_gate(runs.home, {"no consumer group has members": False, "3.4.0 can load": False})
            members.leave_group("billing")
            members.join_group("billing", 2, **EAGER, **COMMITS_OFTEN)
            waits = {"the tombstones of their records are written": True, "3.4.0 can load": False}
            told = wait_for_gate(runs.home, waits)[f"3.4.0 can load {CONSUMER_OFFSETS}"]
            assert "unknown key version" in told
            assert (
                "with temporary settings max.compaction.lag.ms=2000, delete.retention.ms=2000 on __consumer_offsets"
                in told
            )
            assert finalized(cluster, cluster.spec.nodes[0])["group.version"] == 1, "nothing fell yet"
            written += speed_up_cleaning(cluster, runs)

        with meanwhile(convert_and_hurry):
            state, states, record = runs.run(cluster, "kafka_downgrade", target_release="3.4.0")
        assert state == "success", states
        assert runs.asked == ["approve_levels", "approve_roll"]
        plan = record.load_plan()
        assert [release_step.key for release_step in plan.release_steps] == ["4.0.1-to-3.4.1", "3.4.1-to-3.4.0"]
        (waited,) = [finding for finding in plan.findings if finding.code == "LOGS-TO-BE-CLEANED"]
        assert waited.subject == f"3.4.0, topic {CONSUMER_OFFSETS}"
        assert "The run waits for both (gate groups)" in waited.remedy
        assert looks_at_groups(record)[-1][f"3.4.0 can load {CONSUMER_OFFSETS}"] == "all records"
        tails = events_of(record.events(), IncrementalScan)
        assert [(tail.release_step, list(tail.findings)) for tail in tails] == [
            (release_step.key, []) for release_step in plan.release_steps
        ]
        all_run(cluster, "3.4.0")
        assert starts(cluster) == {node.name: {"4.0.1": 1, "3.4.1": 1, "3.4.0": 1} for node in cluster.spec.nodes}
        wait_until(lambda: stable(cluster, billing=2), "its members are there on 3.4.0")
        wait_until(lambda: committed(cluster, "billing") == written, "everything is consumed, and committed")


def test_a_release_that_does_not_parse_records_of_share_groups_is_reached_when_they_are_deleted_and_cleaned(
    runs: ProcessRuns, soon_cleaned: Start
) -> None:
    """4.0.1 knows their types by its preview, and stops at the first of the records that 4.3.1 writes."""
    cluster = soon_cleaned("4.3.1", "4.0-IV3", "share.version")
    servers = cluster.spec.bootstrap_servers
    with members_of(cluster) as members, ExitStack() as sharing:
        members.join_group("billing", 1, **EAGER, **COMMITS_OFTEN)
        sharing.enter_context(shared(servers, "early"))
        wait_until(lambda: stable(cluster, early=1, billing=1), "the groups are there")

        def delete_and_hurry() -> None:
            wait_for_gate(runs.home, {"no share group has members": False, "4.0.1 can load": False})
            sharing.close()
            admin = AdminClient({"bootstrap.servers": servers})  # must live until it has answered
            admin.delete_consumer_groups(["early"])["early"].result(DEADLINE_S)
            wait_for_gate(runs.home, {"the tombstones of their records are written": True, "4.0.1 can load": False})
            speed_up_cleaning(cluster, runs)

        with meanwhile(delete_and_hurry):
            state, states, record = runs.run(cluster, "kafka_downgrade", target_release="4.0.1")
        assert state == "success", states
        (waited,) = [finding for finding in record.load_plan().findings if finding.code == "LOGS-TO-BE-CLEANED"]
        assert waited.subject == f"4.0.1, topic {CONSUMER_OFFSETS}"
        all_run(cluster, "4.0.1")
        wait_until(lambda: stable(cluster, billing=1), "the other group is there on 4.0.1")


def test_groups_of_a_preview_hold_an_upgrade_up_until_they_are_converted(
    runs: ProcessRuns, make_cluster: MakeCluster, release_cache: ReleaseCache
) -> None:
    """3.9.1 serves consumer groups by configuration; 4.x does so only from group.version 1 on, after the roll."""
    cluster = make_cluster(
        "3.9.1",
        name="preview",
        layout="combined",
        extra_config={**QUICK_GROUPS, "group.coordinator.rebalance.protocols": "classic,consumer"},
    )
    with members_of(cluster) as members, run_jvm(release_cache.libs(Release(3, 9, 1))) as jvm:
        early = consumer_of_preview(jvm, cluster.spec.bootstrap_servers, "early")
        wait_until(lambda: early() or stable(cluster, early=1), "the group is there")

        def convert() -> None:
            told = wait_for_gate(runs.home)
            assert "1 group to convert: early" in " ".join(told.values())
            assert starts(cluster) == {node.name: {"3.9.1": 1} for node in cluster.spec.nodes}, "nothing is touched"
            early(leave=True)
            members.join_group("early", 1, **EAGER)

        with meanwhile(convert):
            state, states, record = runs.run(cluster, "kafka_upgrade", target_release="4.3.1")
        assert state == "success", states
        (told,) = [finding for finding in record.load_plan().findings if finding.code == "GROUPS-NOT-SERVED"]
        assert "The run waits for that (gate groups)" in told.remedy
        assert "1 group to convert: early" in " ".join(looks_at_groups(record)[0].values())
        all_run(cluster, "4.3.1")
        wait_until(lambda: stable(cluster, early=1), "its member goes on in the classic protocol")
