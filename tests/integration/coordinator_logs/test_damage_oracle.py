"""What real brokers do with damaged coordinator logs: the load's result, and the groups that they have afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_rollout.base.json_forms import from_json
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.scan import Damage, LoadVerdict, ScanResult
from kafka_rollout.formats.record_batch import batches
from kafka_rollout.groups.reading.live import LiveCoordinatorLogs
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout_spark.kernel.programs import DecodingSpec
from kafka_rollout_spark.result import damage_of
from kafka_rollout_spark.source import live_logs, read_split
from tests.integration.harness.logs.load_oracle import Outcome, Place, started_on
from tests.integration.harness.logs.planted_logs import Record, key, log_of, value
from tools.coordinator_traffic import CONSUMER_OFFSETS

pytestmark = pytest.mark.integration

FIRST, DAMAGED, LAST = "first", "damaged", "last"
CLEAN, UNCLEAN = "clean stop", "unclean stop"
ANSWER_S = 120  # a busy machine
OFFSET = 5
VERDICT_FAILS = 3


def hash_of(text: str) -> int:
    """Java's String.hashCode: the group coordinator chooses a group's partition by it (partitionFor)."""
    number = 0
    for character in text:
        number = (31 * number + ord(character)) & 0xFFFFFFFF
    return abs(number - (1 << 32) if number >> 31 else number)


def group_in(partition: int, partitions: int, prefix: str) -> str:
    return next(name for i in count() if hash_of(name := f"{prefix}-{i}") % partitions == partition)


def commit(group: str) -> Record:
    now = int(1000 * time.time())
    return (
        key(CONSUMER_OFFSETS, 1, group=group, topic="t", partition=0),
        value(CONSUMER_OFFSETS, 1, 3, offset=OFFSET, metadata="m", commitTimestamp=now),
    )


def damaged_logs(groups: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """Logs of three batches, one for each group, with a damage in the second or at the end."""
    whole = log_of(*(commit(groups[name]) for name in (FIRST, DAMAGED, LAST)))
    first, second, third = (bytes(one.data) for one in batches(whole))
    yield "whole", whole
    yield "wrong CRC in the middle", first + second[:-9] + bytes([second[-9] ^ 0xFF]) + second[-8:] + third
    yield "wrong CRC at the end", whole[:-9] + bytes([whole[-9] ^ 0xFF]) + whole[-8:]
    yield "last batch cut off", whole[:-9]
    yield "zeros in the middle", first + bytes(len(second)) + third
    yield "missing batch", first + third


LOGS = tuple(name for name, _ in damaged_logs(dict.fromkeys((FIRST, DAMAGED, LAST), "g")))
EXITS = ("zeros in the middle", CLEAN)
SERVED = {
    # A clean stop: the broker reads the log without a check of CRCs.
    ("whole", CLEAN): {FIRST, DAMAGED, LAST},
    ("wrong CRC in the middle", CLEAN): {FIRST, DAMAGED, LAST},
    ("wrong CRC at the end", CLEAN): {FIRST, DAMAGED, LAST},
    ("last batch cut off", CLEAN): {FIRST, DAMAGED},
    ("missing batch", CLEAN): {FIRST, LAST},
    # An unclean stop: the broker checks the log and truncates it at the damage.
    ("whole", UNCLEAN): {FIRST, DAMAGED, LAST},
    ("wrong CRC in the middle", UNCLEAN): {FIRST},
    ("wrong CRC at the end", UNCLEAN): {FIRST, DAMAGED},
    ("last batch cut off", UNCLEAN): {FIRST, DAMAGED},
    ("zeros in the middle", UNCLEAN): {FIRST},
    ("missing batch", UNCLEAN): {FIRST, LAST},
}
"""The groups of which each release returns the committed offset after the load."""


@dataclass(frozen=True)
class Loaded:
    """Of each log and stop: the broker's outcome, the groups with a committed offset, and the damage that scans find.

    `by_spark`, `by_process`: in the running broker's logs, by the Spark job's reader and by that of incremental scans.
    """

    outcomes: Mapping[tuple[str, str], Outcome]
    groups: Mapping[tuple[str, str], set[str]]
    server_log: str
    by_spark: Mapping[tuple[str, str], list[tuple[int, int]]]
    by_process: Mapping[tuple[str, str], list[tuple[int, int]]]


def load_damaged(release: Release, planted: Sequence[tuple[str, str]], folder: Path, cache: ReleaseCache) -> Loaded:
    """Start a broker on these logs, each a partition of __consumer_offsets with groups of its own."""
    groups = [
        {one: group_in(partition, len(planted), one) for one in (FIRST, DAMAGED, LAST)}
        for partition in range(len(planted))
    ]
    logs: dict[Place, tuple[bytes, bool]] = {
        (CONSUMER_OFFSETS, partition): (dict(damaged_logs(groups[partition]))[name], stop == UNCLEAN)
        for partition, (name, stop) in enumerate(planted)
    }
    with started_on(release, logs, folder, cache) as (cluster, outcomes):
        (node,) = cluster.spec.nodes
        admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers, "log_level": 0})
        found = [
            {one for one, group in names.items() if cluster.runtime.process(node).pid and has_offset(admin, group)}
            for names in groups
        ]
        spark: tuple[Damage, ...] = ()
        process: tuple[Damage, ...] = ()
        if cluster.runtime.process(node).pid:
            spark, process = scan_live(cluster.spec)
        server_log = (Path(str(node.directory)) / "logs" / "server.log").read_text(errors="replace")
    return Loaded(
        {place: outcomes[CONSUMER_OFFSETS, number] for number, place in enumerate(planted)},
        dict(zip(planted, found, strict=True)),
        server_log,
        by_place(planted, spark),
        by_place(planted, process),
    )


def scan_live(cluster: ClusterSpec) -> tuple[tuple[Damage, ...], tuple[Damage, ...]]:
    """Return what the Spark job's reader and the incremental scan's reader find in the logs of a running broker."""
    logs = live_logs(
        cluster=cluster.name,
        bootstrap_servers=cluster.bootstrap_servers,
        security=None,
        topics=(CONSUMER_OFFSETS,),
        known=(),
    )
    rows = pa.Table.from_batches(read_split(logs.source, DecodingSpec(), logs.ranges))
    settings = Settings.from_environment()
    reader = LiveCoordinatorLogs(cluster=cluster, catalogue=load_catalogue(settings.include), settings=settings)
    nothing = ScanResult(cluster=cluster.name, scanned_at=0.0, logs=(), classes=(), verdicts=())
    return damage_of(rows, logs.names), reader.scan_new_records(nothing, planned=None).damage


def by_place(
    planted: Sequence[tuple[str, str]], damage: Sequence[Damage]
) -> dict[tuple[str, str], list[tuple[int, int]]]:
    """Return place → first offset and number of offsets of each damage."""
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for place in damage:
        found.setdefault(planted[place.partition], []).append((place.position, place.offsets))
    return found


def has_offset(admin: AdminClient, group: str) -> bool:
    """Whether the coordinator returns the committed offset; False as well if it does not serve the partition."""
    request = ConsumerGroupTopicPartitions(group, [TopicPartition("t", 0)])
    (answer,) = admin.list_consumer_group_offsets([request], request_timeout=ANSWER_S).values()
    try:
        (partition,) = answer.result().topic_partitions
    except KafkaException:
        return False
    return partition.error is None and partition.offset == OFFSET


RELEASES = pytest.mark.parametrize(
    "release", [*(pytest.param(release, marks=pytest.mark.full) for release in ("3.4.0", "3.9.1")), "4.3.1"]
)


@RELEASES
def test_a_broker_loads_past_a_wrong_crc_or_loses_what_is_behind_it_and_reports_no_failed_load(
    release: str, tmp_path: Path, release_cache: ReleaseCache
) -> None:
    loaded = load_damaged(Release.parse(release), tuple(SERVED), tmp_path, release_cache)
    assert {place: found for place, found in loaded.groups.items() if found != SERVED[place]} == {}
    assert [place for place, outcome in loaded.outcomes.items() if outcome.failed or not outcome.ended] == []
    assert "Found invalid messages in log segment" in loaded.server_log
    still_there = {("wrong CRC in the middle", CLEAN): [(1, 1)], ("wrong CRC at the end", CLEAN): [(2, 1)]}
    assert loaded.by_spark == still_there
    assert loaded.by_process == still_there


@pytest.mark.full
@RELEASES
def test_a_broker_does_not_start_on_zeros_in_the_newest_segment_after_a_clean_stop(
    release: str, tmp_path: Path, release_cache: ReleaseCache
) -> None:
    loaded = load_damaged(Release.parse(release), (EXITS,), tmp_path, release_cache)
    assert loaded.groups == {EXITS: set()}
    assert "Encountered fatal fault: Error starting LogManager" in loaded.server_log
    assert "CorruptRecordException: Found record size 0 smaller than minimum record overhead (14)" in loaded.server_log


def test_the_scan_calls_every_damaged_log_unknown_and_a_missing_batch_loadable(tmp_path: Path) -> None:
    """Offsets are missing in every compacted log, so no reader can find that a batch is gone."""
    logs = dict(damaged_logs({one: one for one in (FIRST, DAMAGED, LAST)}))
    for partition, data in enumerate(logs.values()):
        folder = tmp_path / f"{CONSUMER_OFFSETS}-{partition}"
        folder.mkdir()
        (folder / "00000000000000000000.log").write_bytes(data)
    command = [str(Path(sys.executable).with_name("kafka-rollout")), "scan", "--log-dir", str(tmp_path), "--json"]
    release = "4.3.1"
    done = subprocess.run([*command, "--fail-on", release], capture_output=True, text=True, timeout=600, check=False)
    result = from_json(ScanResult, json.loads(done.stdout))
    verdicts = {LOGS[v.partition]: v.verdict for v in result.verdicts if str(v.release) == release}
    loads = {"whole", "missing batch"}
    assert verdicts == {name: LoadVerdict.LOADS if name in loads else LoadVerdict.UNKNOWN for name in LOGS}
    assert done.returncode == VERDICT_FAILS
