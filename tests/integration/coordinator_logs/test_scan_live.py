"""The scan against a real 4.3.1 broker: what it counts, what it answers, and that it leaves no trace."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_rollout.base.errors import FatalError, TransientError, UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.client.fetch import FetchSource
from kafka_rollout.coordinator_logs.findings import check_rollback
from kafka_rollout.coordinator_logs.remedies import find_remedies
from kafka_rollout.coordinator_logs.scan import LoadVerdict, ScanResult
from kafka_rollout.coordinator_logs.spark.submit import FAIL_ON_EXIT_CODE, scan_command
from kafka_rollout.formats.coordinator_records import KindCounts
from kafka_rollout.formats.log_types import LogRange
from kafka_rollout.groups.reading.live import LiveCoordinatorLogs
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from tests.integration.conftest import MakeCluster
from tests.waiting import wait_until
from tools.coordinator_traffic import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    Counts,
    count_by_consumer,
    make_traffic,
    plant,
    versioned,
)
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("spark_archive")]

_PATIENCE_S = 180.0

INTOLERANT, TOLERANT, RUNNING = Release(3, 4, 0), Release(3, 4, 1), Release(4, 3, 1)


@dataclass(frozen=True)
class Scanned:
    """A cluster with traffic in it, and its scan by the Spark job."""

    cluster: LocalCluster
    servers: str
    ends_before: dict[tuple[str, int], int]
    groups_before: set[str]
    result: ScanResult


def ends(servers: str) -> dict[tuple[str, int], int]:
    with FetchSource(servers) as source:
        return {(r.topic, r.partition): r.end for r in source.ranges([CONSUMER_OFFSETS, TRANSACTION_STATE])}


def groups(servers: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": servers})
    return {group.group_id for group in admin.list_consumer_groups().result(60).valid}


def is_quiet(cluster: LocalCluster) -> bool:
    """What members and producers were answered is not yet all: a transaction's last record comes behind its markers."""
    with KafkaAdmin(cluster.spec) as admin:
        transactions, groups = admin.transactions(), admin.groups()
    return all(one.state in {"CompleteCommit", "CompleteAbort"} for one in transactions) and all(
        one.state == "Empty" for one in groups
    )


@pytest.fixture(scope="module")
def scanned(make_shared_cluster: MakeCluster) -> Scanned:
    cluster = make_shared_cluster(
        str(RUNNING),
        name="scanned",
        layout="combined",
        size=1,
        extra_config={"offsets.topic.num.partitions": "6", "transaction.state.log.num.partitions": "4"},
    )
    servers = cluster.spec.bootstrap_servers
    make_traffic(servers, consumer_protocol=True)
    wait_until(lambda: is_quiet(cluster), _PATIENCE_S)
    before, names = ends(servers), groups(servers)
    code, result = scan_command(cluster.spec, Settings.from_environment(), new_group_coordinator=None)
    assert code == 0
    return Scanned(cluster, servers, before, names, result)


def classes_of(result: ScanResult, topic: str) -> Counts:
    return {
        (c.partition, int(str(c.key_version)), c.value_version): (c.count, c.first_offset)
        for c in result.classes
        if c.topic == topic
    }


@pytest.mark.parametrize("topic", [CONSUMER_OFFSETS, TRANSACTION_STATE])
def test_classes_are_what_an_independent_consumer_counts(scanned: Scanned, topic: str) -> None:
    counted = count_by_consumer(scanned.servers, topic)
    assert counted
    assert classes_of(scanned.result, topic) == counted


def test_the_traffic_left_what_the_verdicts_are_about(scanned: Scanned) -> None:
    keys = {c.key_version for c in scanned.result.classes if c.topic == CONSUMER_OFFSETS}
    assert keys == {1, 2, 3, 5, 6, 7, 8}
    assert scanned.result.control_batches > 0


@pytest.mark.parametrize(
    ("release", "verdict"),
    [
        (INTOLERANT, LoadVerdict.FAILS),
        (TOLERANT, LoadVerdict.LOADS_IGNORING),
        (Release(3, 9, 1), LoadVerdict.LOADS_IGNORING),
        (RUNNING, LoadVerdict.LOADS),
    ],
)
def test_each_release_is_judged_by_its_own_facts(scanned: Scanned, release: Release, verdict: LoadVerdict) -> None:
    found = {v.verdict for v in scanned.result.verdicts if v.release == release and v.topic == CONSUMER_OFFSETS}
    assert verdict in found
    assert found <= {verdict, LoadVerdict.LOADS}


def test_every_partition_has_a_verdict_of_every_release(scanned: Scanned) -> None:
    releases = {v.release for v in scanned.result.verdicts}
    assert {INTOLERANT, TOLERANT, RUNNING} <= releases
    assert len(scanned.result.verdicts) == len(releases) * len(scanned.result.logs)
    scanned_to = {(r.topic, r.partition): r.end for r in scanned.result.logs}
    assert scanned_to.items() >= scanned.ends_before.items()


def test_the_way_back_is_closed_to_the_intolerant_and_loses_groups_for_the_tolerant(scanned: Scanned) -> None:
    codes = {f.code for f in check_rollback(scanned.result, INTOLERANT).findings}
    assert codes == {"ROLLBACK-CLOSED"}
    codes = {f.code for f in check_rollback(scanned.result, TOLERANT).findings}
    assert codes == {"ROLLBACK-IGNORES"}


def test_nothing_was_written_and_no_group_joined(scanned: Scanned) -> None:
    assert ends(scanned.servers) == scanned.ends_before
    assert groups(scanned.servers) == scanned.groups_before


def test_a_group_that_is_deleted_in_an_open_transaction_stops_3_x_until_the_transaction_ends(scanned: Scanned) -> None:
    """4.3.1 deletes it, with tombstones for its pending offsets too, which a coordinator of 3.x does not go by."""
    older, settings, name = Release(3, 9, 1), Settings.from_environment(), "left-open"
    admin = AdminClient({"bootstrap.servers": scanned.servers})
    topic = min(topic for topic in admin.list_topics(timeout=60).topics if not topic.startswith("__"))
    producer = Producer(
        # The transaction shall be open for as long as a scan takes.
        {"bootstrap.servers": scanned.servers, "transactional.id": name, "transaction.timeout.ms": 900_000}
    )
    consumer = Consumer({"bootstrap.servers": scanned.servers, "group.id": name})
    try:
        producer.init_transactions(_PATIENCE_S)
        producer.begin_transaction()
        committed = [TopicPartition(topic, 0, 5)]
        producer.send_offsets_to_transaction(committed, consumer.consumer_group_metadata(), _PATIENCE_S)
        admin.delete_consumer_groups([name])[name].result(60)
        _, result = scan_command(
            scanned.cluster.spec,
            settings,
            new_group_coordinator=None,
            topics=(CONSUMER_OFFSETS,),
            releases=(older, RUNNING),
            live=True,
        )
        (found,) = result.deleted_while_pending
        assert (found.group, len(found.producers)) == (name, 1)
        (failing,) = result.failing(older)
        assert failing.partition == found.partition
        assert failing.first_failure is not None
        assert failing.first_failure.offset == found.offset
        assert result.is_served(failing)
        (remedy,) = find_remedies(result, load_catalogue(settings.include), [older])
        assert remedy.waiting_is_enough is False
        assert not result.failing(RUNNING)
        producer.commit_transaction(_PATIENCE_S)
        deadline = time.monotonic() + _PATIENCE_S
        logs = LiveCoordinatorLogs(
            cluster=scanned.cluster.spec, catalogue=load_catalogue(settings.include), settings=settings
        )
        while (
            carried_on := logs.scan_new_records(result, planned=None)
        ).deleted_while_pending and time.monotonic() < deadline:
            time.sleep(0.5)  # the marker comes behind the answer to the producer
        assert not carried_on.failing(older)
    finally:
        consumer.close()


def test_planted_records_decide_and_fail_on_says_so_by_the_exit_code(scanned: Scanned, tmp_path: Path) -> None:
    where = ends(scanned.servers)
    plant(scanned.servers, CONSUMER_OFFSETS, 0, [(versioned(99, b"key"), versioned(0)), (versioned(99), None)], "lz4")
    plant(scanned.servers, CONSUMER_OFFSETS, 1, [(versioned(2, b"\x00\x01g"), versioned(9))], "none")
    parquet = tmp_path / "parquet"
    code, result = scan_command(
        scanned.cluster.spec,
        Settings.from_environment(),
        new_group_coordinator=None,
        topics=(CONSUMER_OFFSETS, TRANSACTION_STATE),
        releases=(INTOLERANT, RUNNING),
        fail_on=(RUNNING,),
        parquet=parquet,
    )
    assert code == FAIL_ON_EXIT_CODE
    assert {path.name.split("-")[0] for path in parquet.iterdir()} >= {"classes", "verdicts", "findings", "owners"}
    verdicts = {(v.release, v.topic, v.partition): v for v in result.verdicts}
    planted = verdicts[RUNNING, CONSUMER_OFFSETS, 0]
    assert (planted.verdict, planted.ignored) == (LoadVerdict.LOADS_IGNORING, 2)
    assert verdicts[INTOLERANT, CONSUMER_OFFSETS, 0].verdict is LoadVerdict.FAILS
    failure = verdicts[RUNNING, CONSUMER_OFFSETS, 1].first_failure
    assert failure is not None
    assert failure.offset == where[CONSUMER_OFFSETS, 1]
    assert "unknown value version 9" in failure.reason


def test_a_topic_that_the_cluster_lacks_is_bad_input(scanned: Scanned) -> None:
    with pytest.raises(UserError, match="has no topic __share_group_state"):
        scan_command(
            scanned.cluster.spec,
            Settings.from_environment(),
            new_group_coordinator=None,
            topics=("__share_group_state",),
        )


def count(source: FetchSource, log: LogRange) -> KindCounts:
    counts = KindCounts()
    for fetched in source.read(log):
        counts.add(fetched.data, start=max(log.start, fetched.fetch_offset), end=log.end)
    return counts


@pytest.mark.full
def test_small_fetches_give_the_same_counts(scanned: Scanned) -> None:
    with FetchSource(scanned.servers) as whole, FetchSource(scanned.servers, fetch_bytes=200) as small:
        for log in whole.ranges([CONSUMER_OFFSETS]):
            assert _plain(count(whole, log)) == _plain(count(small, log))


def _plain(counts: KindCounts) -> tuple[dict[object, int], dict[object, int], int]:
    return dict(counts.counts), dict(counts.first_offsets), counts.control_batches


def test_a_range_that_the_log_does_not_reach_is_an_error_not_a_shorter_answer(scanned: Scanned) -> None:
    with FetchSource(scanned.servers, patience_s=2) as source:
        log = max(source.ranges([CONSUMER_OFFSETS]), key=lambda r: r.end)
        beyond = type(log)(topic=log.topic, partition=log.partition, start=log.start, end=log.end + 5)
        with pytest.raises((TransientError, FatalError), match=f"{log.topic}-{log.partition}"):
            count(source, beyond)


@pytest.mark.full
def test_reading_goes_on_where_it_was_after_the_broker_restarted(scanned: Scanned) -> None:
    node, runtime = scanned.cluster.spec.nodes[0], scanned.cluster.runtime
    with FetchSource(scanned.servers, patience_s=_PATIENCE_S) as source:
        log = max(source.ranges([CONSUMER_OFFSETS]), key=lambda r: r.end)
        expected = _plain(count(source, log))
        runtime.stop(node, deadline_s=5, force=True)

        def start_again() -> None:
            time.sleep(1)
            runtime.start(node)

        thread = threading.Thread(target=start_again)
        thread.start()
        try:
            assert _plain(count(source, log)) == expected
        finally:
            thread.join()
            scanned.cluster.wait_until_ready()
