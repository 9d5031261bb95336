"""Whole scans of log directories made of bytes that real brokers wrote, in one Spark session. No broker."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.coordinator_logs.reading.partitions import facts_of_order, out_of_order
from kafka_rollout.coordinator_logs.remedies import find_remedies
from kafka_rollout.coordinator_logs.scan import LoadVerdict, ScanResult
from kafka_rollout.formats.coordinator_records import ClassKey, classify
from kafka_rollout.formats.log_types import RecordBatch
from kafka_rollout.formats.record_batch import batches, payload, records
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from kafka_rollout_spark.scan import Documents
from tests.integration.harness.logs import planted_logs as planted
from tests.integration.harness.logs.planted_logs import COMMITTED, EMPTY_GROUP, Record, key, value
from tests.integration.harness.logs.planted_orders import planted_orders
from tests.paths import FIXTURES
from tests.spark.conftest import MERGED_BY_TASKS, MERGED_ON_DRIVER, FixtureLogs, Scan, find
from tools.demo.folder import PROJECT_ROOT

pytestmark = pytest.mark.spark

OFFSETS = "__consumer_offsets"


@pytest.mark.parametrize(
    ("release", "classes_only"),
    [("3.9.1", False), ("4.3.1-all-groups", False), ("4.3.1", True)],
)
def test_the_classes_are_those_that_an_independent_consumer_counted(
    scan: Scan, fixture_logs: FixtureLogs, release: str, classes_only: bool
) -> None:
    result = scan(fixture_logs(release), classes_only=classes_only)
    expected = json.loads((FIXTURES / f"coordinator-logs-{release}" / "classes.json").read_text())["classes"]
    found = [to_json(c) for c in result.classes]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert not any(Release.parse(release.split("-", maxsplit=1)[0]) in found.releases for found in result.broken)
    assert result.damage == ()
    assert (result.inventory is None) is classes_only


def test_what_is_asked_deeply_is_answered(scan: Scan, fixture_logs: FixtureLogs) -> None:
    result = scan(fixture_logs("4.3.1-all-groups"))
    inventory = result.inventory
    assert inventory is not None
    assert {group.type for group in inventory.groups} == {"classic", "consumer", "share", "streams"}
    assert inventory.transactional_ids
    assert inventory.commits["orders"] > 0
    # Only what some release does not load is listed by group or transactional id: not the classic groups.
    assert {o.owner for o in result.owners} == {"group", "transactional_id", "share_partition"}
    names = {t.name for t in result.tagged if t.key_version == 1 and t.value_version == 4}
    assert names == {"topicId"}
    committing = {name for t in result.tagged if t.name == "topicId" for name in t.owners or ()}
    assert committing <= {group.name for group in inventory.groups}
    assert committing
    ids = {name for t in result.tagged if t.topic == "__transaction_state" for name in t.owners or ()}
    assert ids == {one.name for one in inventory.transactional_ids}
    data = json.dumps(to_json(result))
    assert json.dumps(to_json(from_json(ScanResult, json.loads(data)))) == data


def test_groups_that_only_committed_offsets_are_in_the_inventory(scan: Scan, tmp_path: Path) -> None:
    def commit(group: str, topic: str, committed: bytes | None = COMMITTED) -> Record:
        return key(OFFSETS, 1, group=group, topic=topic, partition=0), committed

    held = (
        *(commit("simple", topic) for topic in ("a", "b")),
        *(commit("expired", "a", committed) for committed in (COMMITTED, None)),
        *(commit("back again", "a", committed) for committed in (COMMITTED, None, COMMITTED)),
        commit("described", "a"),
        (key(OFFSETS, 2, group="described"), value(OFFSETS, 2, 3, **EMPTY_GROUP)),
    )
    folder = tmp_path / f"{OFFSETS}-5"
    folder.mkdir()
    at = len(held) // 2
    for base, part in ((0, held[:at]), (at, held[at:])):
        (folder / f"{base:020}.log").write_bytes(planted.batch(base, list(enumerate(part, start=base))))
    inventory = scan(tmp_path).inventory
    assert inventory is not None
    told = {group.name: (group.offsets_only, group.partition, group.type) for group in inventory.groups}
    assert told == {
        "simple": (True, 5, "classic"),
        "back again": (True, 5, "classic"),
        "described": (False, 5, "classic"),
    }


def test_what_an_old_release_does_not_know_is_told_by_its_owner_also_when_it_alone_is_asked(
    scan: Scan, fixture_logs: FixtureLogs
) -> None:
    result = scan(fixture_logs("4.3.1"), releases=(Release(3, 4, 1),))
    assert {o.name for o in result.owners if o.key_version == 3} == {"consumer-0", "consumer-1", "consumer-2"}
    assert {v.release for v in result.verdicts} == {Release(3, 4, 1)}


def newest_of_their_keys(folder: Path) -> Counter[tuple[str, int, ClassKey]]:
    """By topic, partition and class; a dictionary of all keys, which only a small log allows."""
    newest: dict[tuple[str, int, bytes], ClassKey] = {}
    for path in sorted(folder.glob("*/*.log")):
        topic, _, partition = path.parent.name.rpartition("-")
        for batch in batches(path.read_bytes()):
            data = payload(batch)
            for r in () if batch.is_control else records(batch, data):
                key = data[r.key_at : r.key_at + r.key_length]
                newest[topic, int(partition), key] = classify(data, r)
    return Counter((topic, partition, known) for (topic, partition, _), known in newest.items())


def test_live_records_are_the_newest_of_their_keys(scan: Scan, fixture_logs: FixtureLogs) -> None:
    folder = fixture_logs("4.3.1-all-groups", times=5)
    result = scan(folder, live=True)
    found = {(c.topic, c.partition, (c.key_version, c.value_version)): c.live for c in result.classes}
    assert {place: live for place, live in found.items() if live} == newest_of_their_keys(folder)
    assert sum(o.live or 0 for o in result.owners) > 0


READ_BY_3_4_0 = frozenset(
    {*((key, version) for key in (0, 1) for version in (None, 0, 1, 2, 3)), *((2, version) for version in (None, 3))}
)


def kinds(batch: RecordBatch) -> set[ClassKey]:
    data = payload(batch)
    return set() if batch.is_control else {classify(data, record) for record in records(batch, data)}


def test_of_two_copies_each_is_read_and_the_worst_decides(scan: Scan, fixture_logs: FixtureLogs) -> None:
    """Each broker cleans its own copy: a follower can have records that its leader has no more."""
    one, other = fixture_logs("4.3.1", name="node-1"), fixture_logs("4.3.1", name="node-2")
    newest = max((other / f"{OFFSETS}-1").glob("*.log"))
    newest.unlink()
    result, alone = scan(other, one), scan(one)
    assert (result.sizes, result.inventory) == (alone.sizes, alone.inventory)
    assert {replace(c, replicas=()) for c in result.classes} == set(alone.classes)
    assert {v.verdict for v in result.verdicts} == {v.verdict for v in alone.verdicts}
    assert {(o.name, o.key_version): o.count for o in result.owners} == {
        (o.name, o.key_version): o.count for o in alone.owners
    }
    told = {Path(c.directory).parent.name: c.chosen for c in result.copies if (c.topic, c.partition) == (OFFSETS, 1)}
    assert told == {"node-2": False, "node-1": True}
    for segment in (one / f"{OFFSETS}-0").glob("*.log"):
        known = [batch.data for batch in batches(segment.read_bytes()) if not kinds(batch) - READ_BY_3_4_0]
        segment.write_bytes(b"".join(known))
    intolerant = Release(3, 4, 0)
    failing = {
        places: [v for v in scan(*places).failing(intolerant) if (v.topic, v.partition) == (OFFSETS, 0)]
        for places in ((one,), (other,), (one, other), (other, one))
    }
    assert [len(verdicts) for verdicts in failing.values()] == [0, 1, 1, 1]
    for places in ((one, other), (other, one)):
        assert failing[places][0].place == f"{OFFSETS}-0 ({other / f'{OFFSETS}-0'})"
        assert failing[places][0].first_failure == failing[other,][0].first_failure


def test_damage_is_told_with_its_place_and_the_rest_is_read(scan: Scan, fixture_logs: FixtureLogs) -> None:
    folder = fixture_logs("4.3.1")
    whole = scan(folder)
    first, second, *_ = sorted((folder / f"{OFFSETS}-1").glob("*.log"))
    data = bytearray(first.read_bytes())
    size = 12 + int.from_bytes(data[8:12])
    data[size + 70] ^= 1  # in the second batch, behind its header: only the CRC tells
    first.write_bytes(data)
    with second.open("ab") as file:
        file.write(bytes(1_000))
    (folder / f"{OFFSETS}-2" / f"{0:020}.log").write_bytes(b"\xff" * 100)
    result = scan(folder)
    told = {(Path(d.file).name, d.partition): d for d in result.damage}
    assert set(told) == {(first.name, 1), (second.name, 1), (f"{0:020}.log", 2)}
    assert told[first.name, 1].position == size
    assert "CRC" in told[first.name, 1].sentence
    assert told[second.name, 1].log_bytes == 1_000
    sizes = {(s.topic, s.partition): s for s in whole.sizes}
    left = {(s.topic, s.partition): s for s in result.sizes}
    assert left[OFFSETS, 0] == sizes[OFFSETS, 0]
    assert left[OFFSETS, 1].batches == sizes[OFFSETS, 1].batches - 1
    assert left[OFFSETS, 2].batches == sizes[OFFSETS, 2].batches - 5
    release = Release(4, 3, 1)
    verdicts = {(v.topic, v.partition): v.verdict for v in result.verdicts if v.release == release}
    unknown = {place for place, verdict in verdicts.items() if verdict is LoadVerdict.UNKNOWN}
    assert unknown == {(OFFSETS, 1), (OFFSETS, 2)}
    assert whole.is_proved_loadable(release)
    assert not result.is_proved_loadable(release)


def test_records_before_the_log_start_offset_are_gone_also_from_the_batch_that_holds_it(
    scan: Scan, fixture_logs: FixtureLogs
) -> None:
    folder = fixture_logs("4.3.1")
    planted = [c for c in scan(folder).classes if (c.partition, c.key_version) == (0, 99)]
    start = min(c.first_offset for c in planted) + 1
    (folder / "log-start-offset-checkpoint").write_text(f"0\n1\n{OFFSETS} 0 {start}\n")
    result = scan(folder)
    assert {log.start for log in result.logs if (log.topic, log.partition) == (OFFSETS, 0)} == {start}
    left = [c for c in result.classes if (c.topic, c.partition) == (OFFSETS, 0)]
    assert min(c.first_offset for c in left) >= start
    assert sum(c.count for c in left if c.key_version == 99) == sum(c.count for c in planted) - 1


def test_records_written_after_the_search_are_not_read(scan: Scan, fixture_logs: FixtureLogs) -> None:
    folder = fixture_logs("4.3.1")
    before, logs = scan(folder), find(folder)
    active = max((folder / f"{OFFSETS}-0").glob("*.log"))
    with active.open("ab") as file:
        file.write(active.read_bytes())
    assert replace(scan(logs=logs), scanned_at=0) == replace(before, scanned_at=0)


def test_an_empty_directory_loads_everywhere(scan: Scan, tmp_path: Path) -> None:
    (tmp_path / f"{OFFSETS}-0").mkdir()
    (tmp_path / f"{OFFSETS}-0" / f"{0:020}.log").touch()
    result = scan(tmp_path)
    assert {v.verdict for v in result.verdicts} == {LoadVerdict.LOADS}
    assert (result.records, [s.batches for s in result.sizes]) == (0, [0])


@pytest.mark.parametrize("log_bytes", [MERGED_ON_DRIVER, MERGED_BY_TASKS])
def test_a_segment_that_is_gone_is_named_by_its_error(scan: Scan, fixture_logs: FixtureLogs, log_bytes: int) -> None:
    folder = fixture_logs("4.3.1")
    logs = find(folder)
    shutil.rmtree(folder / f"{OFFSETS}-0")
    with pytest.raises((PySparkException, Py4JError), match=r"SegmentGoneError: Segment .* was replaced"):
        scan(logs=logs, log_bytes=log_bytes)


def test_each_release_is_judged_by_its_own_facts(scan: Scan, fixture_logs: FixtureLogs) -> None:
    result = scan(fixture_logs("4.3.1"))
    assert result.failing(Release(3, 4, 0))
    assert not result.failing(Release(4, 3, 1))


def test_a_group_s_records_are_taken_by_what_lies_before_them(scan: Scan, tmp_path: Path) -> None:
    """Beside a replay of all groups: what is not read again for its order is in order. Each batch is a segment."""
    logs = list(planted_orders())
    for number, log in enumerate(logs):
        folder = tmp_path / f"{OFFSETS}-{number}"
        folder.mkdir()
        for one in batches(log.data):
            (folder / f"{one.base_offset:020}.log").write_bytes(one.data)
    include = PROJECT_ROOT / "include"
    for told in (False, True):
        documents = Documents.load([include], new_group_coordinator=told)
        facts = facts_of_order(documents.catalogue, documents.catalogue)
        result = scan(tmp_path, documents=documents)
        expected = [
            found
            for number, log in enumerate(logs)
            for found in out_of_order(number, {f"order-{number:02}".encode()}, [(log.data, 0, 99)], facts)
        ]
        assert sorted(result.out_of_order) == sorted(expected)
        failing = {(v.release, v.partition): v.first_failure.offset for v in result.verdicts if v.first_failure}
        for found in expected:
            for release in found.releases:
                assert failing[release, found.partition] <= found.offset
        stopped = {logs[found.partition].name for found in expected if Release(4, 1, 1) in found.releases}
        assert {"a streams group behind an offset", "a streams member behind its assignment"} < stopped
        assert "a streams group before its offset" not in stopped
        data = json.loads(json.dumps(to_json(result)))
        assert from_json(ScanResult, data).out_of_order == result.out_of_order
        assert any(Release(3, 9, 1) in found.releases for found in expected) is told
    alone = scan(tmp_path, releases=(Release(4, 3, 1),))
    assert [found.releases for found in alone.out_of_order] == [
        (Release(4, 3, 1),) for found in expected if Release(4, 3, 1) in found.releases
    ]


def test_a_group_that_is_deleted_in_an_open_transaction_stops_the_coordinators_of_3_x(
    scan: Scan, tmp_path: Path
) -> None:
    """In partitions that several tasks read, each a segment."""
    names = {}
    for number, log in enumerate(planted.deleted_while_pending()):
        folder = tmp_path / f"{OFFSETS}-{number}"
        folder.mkdir()
        names[number] = log.name
        for one in batches(log.data):
            (folder / f"{one.base_offset:020}.log").write_bytes(one.data)
    result = scan(tmp_path)
    refused = {number for number, name in names.items() if name.startswith("refused")}
    assert 2 < len(refused) < len(names) - 2
    failing = {str(release): {v.partition for v in result.failing(release)} for release in result.standing}
    assert failing == {name: refused if name.startswith("3.") else set() for name in failing}
    assert {found.partition for found in result.deleted_while_pending} == refused
    assert {found.producers for found in result.deleted_while_pending} == {(7,), (8,)}
    data = json.loads(json.dumps(to_json(result)))
    assert from_json(ScanResult, data).deleted_while_pending == result.deleted_while_pending
    live = scan(tmp_path, live=True)
    assert (live.verdicts, live.deleted_while_pending) == (result.verdicts, result.deleted_while_pending)
    (remedy,) = find_remedies(live, load_catalogue(PROJECT_ROOT / "include"), [Release(3, 9, 1)])
    assert remedy.waiting_is_enough is False
    assert {tuple(found) for found in data["deleted_while_pending"]} == {
        ("topic", "partition", "offset", "group", "producers", "replicas")
    }
    assert scan(tmp_path, releases=(Release(4, 3, 1),)).deleted_while_pending == ()
    assert scan(tmp_path, classes_only=True).deleted_while_pending == ()
