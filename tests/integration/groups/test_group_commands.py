"""`kafka-rollout groups` on a real broker: who is in which group, and watching a group go back to classic."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka.protocol.consumer import JoinGroupRequest, SyncGroupRequest
from kafka.structs import TopicPartition

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.cli.app import run_main
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.formats import cleaning as scan_cleaning
from kafka_rollout.formats.cleaning import CleaningConfig
from kafka_rollout.groups.reading.live import LiveCoordinatorLogs
from kafka_rollout.releases.facts import Release
from kafka_rollout.roll.gate_checks import check_conversion
from kafka_rollout.run.background import BackgroundKey, BackgroundKind, BackgroundProcess
from kafka_rollout.run.store.background import SqlBackground
from kafka_rollout.run.store.opening import database_of
from kafka_rollout.traffic.processes.of_run import start_group_monitor, stop_group_monitor
from kafka_rollout.wiring.cluster_ports import open_cluster_ports
from tests.integration.conftest import MakeCluster
from tests.integration.coordinator_logs.test_scan_cleaner import alter, make_offsets_topic
from tests.integration.harness.cluster_contents import wait_until_all_know
from tests.integration.harness.groups.members import LiveGroup, wait_until
from tests.records import change_lock
from tools.any_requests import AnyRequests
from tools.coordinator_traffic import CONSUMER_OFFSETS, plant, versioned
from tools.demo.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

Run = Callable[..., tuple[int, str]]
INTOLERANT, TOLERANT = Release(3, 4, 0), Release(3, 4, 1)
NO_GROUP = versioned(2, b"\0\1g")  # key of a group's metadata; its tombstone is loaded by every release


@pytest.fixture(scope="module")
def cluster(make_shared_cluster: MakeCluster) -> LocalCluster:
    return make_shared_cluster(
        "4.3.1",
        name="group-commands",
        layout="combined",
        size=1,
        extra_config={
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "1",
            "log.cleaner.backoff.ms": "500",
        },
    )


@pytest.fixture
def run(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(cluster.inventory_path.parent))

    def command(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = run_main(["groups", words[0], "--cluster", cluster.spec.name, *words[1:]])
        return code, " ".join(capsys.readouterr().out.split())

    return command


def test_an_intolerant_release_is_waited_for_until_the_cleaner_has_removed_what_it_cannot_load(
    cluster: LocalCluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = cluster.spec.bootstrap_servers
    monkeypatch.setattr(scan_cleaning, "FASTER_MS", 2_000)
    make_offsets_topic(servers)
    plant(servers, CONSUMER_OFFSETS, 0, [(versioned(99, b"one"), versioned(7)), (versioned(99, b"one"), None)], "none")
    with open_cluster_ports(cluster.spec.name, "watching") as ports:
        (loads,) = check_conversion(ports, (), [INTOLERANT]).conditions
        assert not loads.is_met
        assert "max.compaction.lag.ms=2000" in loads.evidence
        assert check_conversion(ports, (), [TOLERANT]).passes
        faster = CleaningConfig().faster_settings(CONSUMER_OFFSETS)
        alter(servers, faster)

        def is_clean() -> bool:
            plant(servers, CONSUMER_OFFSETS, 0, [(NO_GROUP, None)], "none")  # an append is what closes a segment
            return check_conversion(ports, (), [INTOLERANT]).passes

        wait_until(is_clean, "the cleaner was there twice")
        alter(servers, faster, back=True)  # the tests behind this one read the log more than once
        wait_until_all_know(cluster.spec)


@contextmanager
def consumer_protocol(group: LiveGroup, **settings: Any) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": group.servers,
            "group.id": group.topic,
            "client.id": "newer",
            "group.protocol": "consumer",
            "enable.auto.commit": False,
            **settings,
        }
    )
    consumer.subscribe([group.topic])
    try:
        yield consumer
    finally:
        consumer.close()


def has_share(consumer: Consumer, partitions: int) -> bool:
    """Polled each time: it takes and gives partitions while it is polled, whether or not there is a record."""
    consumer.poll(0.1)
    return len(consumer.assignment()) == partitions


def test_a_consumer_group_is_watched_back_to_classic_until_its_tombstones_are_written(
    cluster: LocalCluster, run: Run
) -> None:
    with LiveGroup(servers=cluster.spec.bootstrap_servers, topic="converted", partitions=2) as group:
        with consumer_protocol(group) as consumer:
            wait_until(lambda: has_share(consumer, 2), "it is in its group")
            code, out = run("watch", "--interval", "0.2", "--timeout", "1")
            assert code == 3
            assert "1 group to convert: converted" in out
            classic = group.old("classic")
            wait_until(lambda: has_share(consumer, 1) and len(classic.owned) == 1, "they share")
            code, out = run("list", "--to", "classic", "--json")
            planned = {each["group"]["group_id"]: each for each in json.loads(out)["groups"]}["converted"]
            known = {m["client_id"]: (m["assignors"], m["uses_classic"]) for m in planned["group"]["members"]}
            assert known == {"newer": ([], False), "classic": (["range"], True)}
            assert "an assignor that the classic members have (range)" in planned["steps"][0]
        code, out = run("watch", "--interval", "0.5", "--release", str(TOLERANT))
        assert code == 0, out
        assert "no converted group has a current record" in out
        assert "3.4.1 can load __consumer_offsets: it ignores" in out
        group.wait_settled()


@pytest.mark.full
@pytest.mark.spark
def test_a_log_that_is_too_long_for_one_process_is_read_by_spark_with_the_same_answer(
    cluster: LocalCluster, run: Run
) -> None:
    with LiveGroup(servers=cluster.spec.bootstrap_servers, topic="counted", partitions=1) as group:
        with consumer_protocol(group) as consumer:
            wait_until(lambda: has_share(consumer, 1), "it is in its group")
            with open_cluster_ports(cluster.spec.name, "counting") as ports:
                assert isinstance(ports.logs, LiveCoordinatorLogs)
                read, by_spark = ports.logs.group_records(planned=None), replace(ports.logs, longest=0)
                with pytest.raises(RefusedError, match="contains more than 0 records"):
                    by_spark.group_records(planned=None)
                counted = by_spark.group_records(planned=None, by_spark=True)
        assert counted.alive == read.alive
        assert "counted" in counted.alive_of(["consumer"])
        assert {(c.partition, c.key_version) for c in counted.classes} >= {
            (c.partition, c.key_version) for c in read.classes
        }


@pytest.mark.full
def test_a_monitor_of_its_own_process_counts_rebalances_and_partition_seconds_without_owner(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(cluster.inventory_path.parent))
    name = cluster.spec.name

    def found(run_id: str = "r") -> BackgroundProcess:
        row = SqlBackground(database_of()).read(BackgroundKey(cluster=name, run_id=run_id, kind=BackgroundKind.GROUPS))
        assert row is not None
        return row

    def watched() -> dict[str, Any]:
        told = found().result or {"groups": []}
        return {each["group"]: each for each in told["groups"]}

    with LiveGroup(servers=cluster.spec.bootstrap_servers, topic="looked-at", partitions=2) as group:
        group.old("only")
        group.wait_settled()
        lock = change_lock(tmp_path)
        lock.acquire(name, "r", "a test", for_s=3600)
        first = start_group_monitor(name, "r", security=None, unlocked_s=20.0)
        try:
            assert start_group_monitor(name, "r", security=None).instance == first.instance
            wait_until(lambda: watched().get("looked-at", {}).get("partitions") == 2, "it is seen with its owner")
            group.stop("only")
            wait_until(lambda: watched()["looked-at"]["longest_unowned_s"] > 0, "its partitions are unassigned")
            group.old("again")
            group.wait_settled()
            wait_until(lambda: watched()["looked-at"]["rebalances"] >= 2, "it is seen with an owner again")
            lock.release(name, "r")
            wait_until(lambda: found().has_ended, "it ends without the run's lock")
            told = watched()["looked-at"]
            assert told["unowned_partition_s"] == pytest.approx(sum(told["unowned_s"].values()), abs=0.2)
            assert told["unowned_s"].keys() == {"looked-at-0", "looked-at-1"}
            lock.acquire(name, "other", "a test", for_s=3600)
            command = subprocess.Popen(["sleep", "3600"])

            def started_by(pid: int) -> str:
                return start_group_monitor(name, "other", security=None, only_with=pid).instance

            first_of_other = started_by(command.pid)
            assert started_by(os.getpid()) != first_of_other, "the first one ends with its command"
            started_by(command.pid)
            command.kill()
            command.wait()
            wait_until(lambda: found("other").has_ended, "it ends with its command")
        finally:
            stop_group_monitor(name, "other")
            stop_group_monitor(name, "r")
        assert stop_group_monitor(name, "never") is None


# Behind the others: a static member does not leave its group as it closes.
def test_the_list_tells_type_assignors_static_members_and_lag_of_every_group(cluster: LocalCluster, run: Run) -> None:
    with (
        LiveGroup(servers=cluster.spec.bootstrap_servers, topic="connect-listed", partitions=2) as group,
        LiveGroup(servers=cluster.spec.bootstrap_servers, topic="modern", partitions=1) as modern,
        consumer_protocol(modern, **{"group.instance.id": "static-1"}) as consumer,
    ):
        group.old("old")
        group.wait_settled()
        wait_until(lambda: has_share(consumer, 1), "it is in its group")
        wait_until(lambda: modern.produced[3:] != [], "there are records")
        modern.finish_writing()
        told = TopicPartition("modern", 0)
        end = len(modern.produced)
        consumer.commit(offsets=[_confluent(told, end - 3)], asynchronous=False)
        code, out = run("list", "--json")
        groups = {each["group_id"]: each for each in json.loads(out)["groups"]}
        assert code == 0
        assert groups["modern"]["type"] == "consumer"
        assert groups["modern"]["lag"] == 3
        (member,) = groups["modern"]["members"]
        assert (member["instance_id"], member["uses_classic"]) == ("static-1", False)
        (old,) = groups["connect-listed"]["members"]
        assert (groups["connect-listed"]["type"], old["assignors"], old["all_assignors_known"]) == (
            "classic",
            ["range"],
            False,
        )
        assert [place[0] for place in old["assigned"]] == ["connect-listed"] * 2
        _, page = run("list")
        assert "their assignor is set in the Connect workers" in page
        assert "static as static-1" in page


def test_connects_workers_are_named_and_get_their_own_plan(cluster: LocalCluster, run: Run) -> None:
    """A worker is a member of the classic protocol whose protocol type is connect."""
    nodes = AnyRequests(cluster.spec, ClientSecurity(), timeout_s=30)
    try:
        member = ""
        for _ in range(2):  # the first time the coordinator gives it an id
            joined = nodes.ask(nodes.brokers[0], join_as_worker(member))
            member = joined.member_id
        assert joined.error_code == 0
        nodes.ask(
            nodes.brokers[0],
            SyncGroupRequest(
                group_id="workers",
                generation_id=joined.generation_id,
                member_id=member,
                group_instance_id=None,
                protocol_type="connect",
                protocol_name="default",
                assignments=[],
            ),
        )
        code, out = run("list", "--json")
        assert code == 0
        told = {each["group_id"]: each for each in json.loads(out)["groups"]}["workers"]
        assert (told["protocol_type"], told["assignor"], told["state"]) == ("connect", "default", "Stable")
        assert "workers: Connect workers" in run("list")[1]
        assert "connect.protocol=sessioned" in run("list", "--to", "cooperative")[1]
    finally:
        nodes.close()


def join_as_worker(member_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="workers",
        session_timeout_ms=600_000,  # nobody sends its heartbeats
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="connect",
        protocols=[("default", b"")],
        max_version=7,
    )


def _confluent(place: TopicPartition, offset: int) -> Any:
    from confluent_kafka import TopicPartition as Place

    return Place(place.topic, place.partition, offset)


def test_a_type_that_does_not_exist_and_a_release_that_nobody_knows_are_one_sentence(run: Run) -> None:
    assert run("watch", "--type", "classic")[0] == 2
    assert run("watch", "--release", "9.9.9")[0] != 0
