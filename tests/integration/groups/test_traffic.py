"""The test traffic on real brokers: green when all is there, red for a planted loss and a planted double."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.run.background import BackgroundKey, BackgroundKind, BackgroundState
from kafka_rollout.run.traffic import PLAIN_PRODUCER, TRANSACTIONAL_PRODUCER, TrafficVerdict
from kafka_rollout.traffic.processes.of_run import (
    BackgroundControl,
    Life,
    check_traffic,
    life_of,
    start_traffic,
    stop_traffic,
)
from kafka_rollout.traffic.processes.traffic import PARTITIONS, PLAIN_TOPIC, TOPICS, Journal, read_lines
from kafka_rollout.traffic.traffic_check import LOG
from tests.integration.conftest import MakeCluster
from tests.waiting import wait_until

PRODUCERS = (PLAIN_PRODUCER, TRANSACTIONAL_PRODUCER)

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def spec(make_shared_cluster: MakeCluster) -> ClusterSpec:
    return make_shared_cluster("4.3.1", layout="combined", size=1).spec


def settings_of(folder: Path) -> Settings:
    return replace(Settings.from_environment(), home=folder.parent / "home", database="")


def control_of(spec: ClusterSpec, folder: Path) -> BackgroundControl:
    """The test traffic of a run that has the folder's name."""
    key = BackgroundKey(cluster=spec.name, run_id=folder.name, kind=BackgroundKind.TRAFFIC)
    return BackgroundControl(key=key, settings=settings_of(folder))


def start(spec: ClusterSpec, folder: Path) -> int:
    """Start traffic without a run whose lock it would need."""
    settings, name = settings_of(folder), folder.name
    started = start_traffic(spec, name, security=None, folder=folder, leased=False, settings=settings)
    return started.pid


def stop(spec: ClusterSpec, folder: Path) -> TrafficVerdict:
    found = stop_traffic(spec, folder.name, security=None, settings=settings_of(folder))
    assert found is not None
    return found


def consumed(folder: Path) -> int:
    return sum(1 for path in folder.glob("*/consumed-*.tsv") for _ in read_lines(path, 4))


def committed(folder: Path) -> int:
    return sum(1 for path in folder.glob("*/transactions-*.tsv") for _ in read_lines(path, 2))


def unread(folder: Path) -> int:
    """Plain records that were acknowledged, and that the classic group has not written down yet: the most in one
    partition."""
    acknowledged = {
        tuple(line[:4]) for path in folder.glob("*/acknowledged-plain-*.tsv") for line in read_lines(path, 5)
    }
    consumed = {tuple(line) for line in read_lines(folder / "period-1" / "consumed-classic.tsv", 4)}
    return max(Counter(place[1] for place in acknowledged - consumed).values(), default=0)


def test_traffic_of_both_protocols_is_compared_and_leaves_nothing_behind(spec: ClusterSpec, tmp_path: Path) -> None:
    folder = tmp_path / "green"
    pid = start(spec, folder)
    assert start(spec, folder) == pid, "a second start must find the first"
    wait_until(lambda: (folder / "period-1" / "consumed-consumer.tsv").exists() and committed(folder) > 10, 180)
    so_far = check_traffic(spec, folder.name, settings=settings_of(folder))
    assert so_far is not None
    assert so_far.is_clean, so_far.discrepancies
    verdict = stop(spec, folder)
    assert verdict.is_clean, verdict.discrepancies
    assert verdict.acknowledged > so_far.acknowledged == so_far.stored, "the traffic went on"
    assert set(verdict.consumed) == {"classic", "consumer"}
    assert verdict.transactions["aborted"] > 0
    assert verdict.stored == verdict.acknowledged
    ended = control_of(spec, folder).record.read(control_of(spec, folder).key)
    assert ended is not None
    assert (life_of(ended), ended.state) == (Life.ENDED, BackgroundState.STOPPED)
    assert stop(spec, folder) == verdict, "a repeated stop gives the same result"
    admin = AdminClient({"bootstrap.servers": spec.bootstrap_servers})
    wait_until(lambda: PLAIN_TOPIC not in admin.list_topics(timeout=60).topics, 180)
    assert json.loads((folder / "period-1" / "verdict.json").read_text())["is_clean"] is True

    start(spec, folder)  # the run that it belongs to goes on: its topics are made again, with offsets from 0 on
    wait_until(lambda: consumed(folder) > 10 and committed(folder) > 2, 180)
    both = stop(spec, folder)
    assert both.is_clean, both.discrepancies
    assert both.periods == 2
    assert both.acknowledged > verdict.acknowledged
    assert both.consumed["classic"] == both.acknowledged
    assert json.loads((folder / "period-2" / "verdict.json").read_text())["acknowledged"] == both.acknowledged


@pytest.mark.full
def test_killed_test_traffic_is_still_compared_and_a_loss_turns_it_red(spec: ClusterSpec, tmp_path: Path) -> None:
    folder = tmp_path / "lost"
    pid = start(spec, folder)
    # What it has not read is lost with what is deleted below, and a verdict names no more than ten.
    wait_until(lambda: committed(folder) > 10 and unread(folder) < 5, 180)
    os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: control_of(spec, folder).find()[1] is Life.DEAD, 60
    )  # a kill takes a moment to reach every thread
    place = produce(spec, "p-planted-1")
    journal = Journal(folder / "period-1" / "acknowledged-plain-planted.tsv")
    journal.write(place.topic, place.partition, place.offset, "p-planted-1", "-")
    journal.close()
    # What a broker that lost its log would do: the record was acknowledged, and is not there any more.
    admin = AdminClient({"bootstrap.servers": spec.bootstrap_servers})
    gone = TopicPartition(place.topic, place.partition, place.offset + 1)
    for future in admin.delete_records([gone]).values():
        future.result(60)
    verdict = stop(spec, folder)
    assert not verdict.is_clean
    lost = {d.consumer: d.examples for d in verdict.discrepancies if d.kind == "lost"}
    assert set(lost) >= {"classic"}
    assert f"{place.topic}-{place.partition}@{place.offset}" in lost["classic"]
    assert PLAIN_TOPIC in admin.list_topics(timeout=60).topics, "the evidence stays"


def test_a_planted_double_and_records_that_are_gone_after_they_were_consumed_turn_it_red(
    spec: ClusterSpec, tmp_path: Path
) -> None:
    folder = tmp_path / "doubled"
    start(spec, folder)
    wait_until(lambda: consumed(folder) > 100 and committed(folder) > 2, 180)
    _, first, _, twice, _ = next(read_lines(next(iter(folder.glob("*/acknowledged-plain-*.tsv"))), 5))
    doubled = produce(spec, twice)
    wait_until(lambda: _has_consumed(folder, doubled), 60)
    partition = min({*range(PARTITIONS)} - {int(first), doubled.partition})
    start_of_log = max(int(line[2]) for line in _consumed_of(folder, partition)) + 1
    gone = TopicPartition(PLAIN_TOPIC, partition, start_of_log)
    admin = AdminClient({"bootstrap.servers": spec.bootstrap_servers})
    for future in admin.delete_records([gone]).values():
        future.result(60)
    verdict = stop(spec, folder)
    assert not verdict.is_clean
    of_groups = {(d.kind, twice in d.examples) for d in verdict.discrepancies if d.consumer != LOG}
    assert of_groups == {("doubled", True)}, "the groups had received every record"
    (lost,) = (d for d in verdict.discrepancies if d.consumer == LOG and d.kind == "lost")
    # The topic can have records of the traffic of an earlier test, which keeps it as evidence.
    journals = folder.glob("*/acknowledged-*.tsv")
    places = [line[:3] for journal in journals for line in read_lines(journal, 5)]
    of_partition = [int(place[2]) for place in places if place[:2] == [PLAIN_TOPIC, str(partition)]]
    assert lost.count == sum(offset < start_of_log for offset in of_partition) > 0
    assert lost.count == verdict.acknowledged - verdict.stored
    assert lost.sentence.endswith(f"before the start of their log: {PLAIN_TOPIC}-{partition}@{start_of_log}.")


def _consumed_of(folder: Path, partition: int) -> list[list[str]]:
    journal = folder / "period-1" / "consumed-classic.tsv"
    return [line for line in read_lines(journal, 4) if line[:2] == [PLAIN_TOPIC, str(partition)]]


def _has_consumed(folder: Path, place: TopicPartition) -> bool:
    return any(int(line[2]) == place.offset for line in _consumed_of(folder, place.partition))


@pytest.mark.full
def test_records_that_an_unclean_leader_lacks_are_lost_although_others_have_their_offsets(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """The consumers had received them, and read the later records at their offsets, too."""
    unclean = {"unclean.leader.election.enable": "true"}
    cluster = make_cluster("3.9.1", layout="separate", size=2, controllers=1, extra_config=unclean)
    spec, folder = cluster.spec, tmp_path / "unclean"
    first, second = spec.brokers
    start(spec, folder)
    wait_until(lambda: committed(folder) > 10, 180)
    cluster.runtime.stop(second, deadline_s=60, force=False)
    known = acknowledged(folder)
    wait_until(lambda: acknowledged(folder) > known + 200, 180)
    cluster.runtime.stop(first, deadline_s=0, force=True)
    known = acknowledged(folder)
    cluster.runtime.start(second)
    wait_until(lambda: acknowledged(folder) > known + 300, 180)  # at offsets that the first broker had given
    cluster.runtime.start(first)
    verdict = stop(spec, folder)
    assert not verdict.is_clean
    (lost,) = (d for d in verdict.discrepancies if d.consumer == LOG and d.kind == "lost")
    assert lost.count == verdict.acknowledged - verdict.stored
    assert lost.count > 100


def acknowledged(folder: Path) -> int:
    return sum(1 for path in folder.glob("*/acknowledged-*.tsv") for _ in read_lines(path, 5))


def produce(spec: ClusterSpec, record_id: str) -> TopicPartition:
    """One record that the traffic check does not know of; the answer is where it lies."""
    places: list[TopicPartition] = []
    producer = Producer({"bootstrap.servers": spec.bootstrap_servers, "acks": "all"})
    producer.produce(
        PLAIN_TOPIC,
        key=record_id,
        value=b"planted",
        on_delivery=lambda error, m: places.append(TopicPartition(m.topic(), m.partition(), m.offset())),
    )
    assert producer.flush(180) == 0
    return places[0]


@pytest.mark.full
def test_each_broker_acknowledges_records_as_a_preferred_leader_also_one_that_was_down(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster("4.3.1", layout="separate", size=7, controllers=1, racks=3, heap="256m")
    spec, folder = cluster.spec, tmp_path / "led"
    ids = {broker.node_id for broker in spec.brokers}
    *_, late = spec.brokers
    cluster.runtime.stop(late, deadline_s=60, force=False)
    start(spec, folder)

    def leading() -> dict[str, set[int]]:
        seen = check_traffic(spec, folder.name, settings=settings_of(folder))
        leaderships = seen.leaderships if seen is not None else ()
        return {name: {one.broker for one in leaderships if one.producer == name} for name in PRODUCERS}

    wait_until(lambda: leading() == dict.fromkeys(PRODUCERS, ids - {late.node_id}), 180)
    admin = AdminClient({"bootstrap.servers": spec.bootstrap_servers})
    cluster.runtime.start(late)
    racks = {node.id: node.rack for node in admin.describe_cluster().result(60).nodes}
    for topic in TOPICS:
        partitions = admin.list_topics(topic, timeout=60).topics[topic].partitions.values()
        assert {one.replicas[0] for one in partitions} == ids
        for one in partitions:
            assert len(one.replicas) == 3
            assert len({racks.get(broker) for broker in one.replicas}) >= 2
    wait_until(lambda: _elected(admin) and leading() == dict.fromkeys(PRODUCERS, ids), 180)
    verdict = stop(spec, folder)
    assert verdict.is_clean, verdict.discrepancies
    assert {(one.producer, one.broker) for one in verdict.leaderships} == {
        (name, of) for name in PRODUCERS for of in ids
    }


def _elected(admin: AdminClient) -> bool:
    """Elect the preferred leaders; return whether each partition has its own."""
    admin.elect_leaders(ElectionType.PREFERRED, None).result(60)
    topics = [admin.list_topics(topic, timeout=60).topics[topic] for topic in TOPICS]
    return all(one.leader == one.replicas[0] for topic in topics for one in topic.partitions.values())
