"""The rows of recorded segments, of paths, of URLs, and by offset. No Spark session."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from kafka_rollout.base.errors import UserError
from kafka_rollout.formats.record_batch import batches
from pyspark_kafka_coordinator_log.schema import read_schema
from pyspark_kafka_coordinator_log.source import DefaultSource, LogReader, LogStreamReader, Reading, limited
from tests.fixture_logs import write_fixture_logs
from tests.paths import FIXTURES

OFFSETS = "__consumer_offsets"
RELEASE = "4.3.1-all-groups"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A log directory in segments of five batches."""
    return write_fixture_logs(tmp_path, RELEASE)


def reading(place: object, **options: str) -> Reading:
    return Reading.of({"path": str(place), **options}, read_schema())


def rows_of(reader: LogReader | LogStreamReader, splits: list[Any]) -> list[dict[str, Any]]:
    return [row for split in splits for batch in reader.read(split) for row in batch.to_pylist()]


def rows(place: object, **options: str) -> list[dict[str, Any]]:
    reader = LogReader(reading(place, **options))
    return rows_of(reader, reader.partitions())


def offsets(found: list[dict[str, Any]]) -> set[tuple[str, int, int]]:
    assert len(found) == len({(row["topic"], row["partition"], row["offset"]) for row in found})
    return {(row["topic"], row["partition"], row["offset"]) for row in found}


def test_each_record_is_a_row_with_its_fields(copy: Path) -> None:
    found = rows(copy)
    expected = json.loads((FIXTURES / f"coordinator-logs-{RELEASE}" / "classes.json").read_text())["classes"]
    kinds = Counter((row["topic"], row["partition"], row["key_version"], row["value_version"]) for row in found)
    assert kinds == {(k["topic"], k["partition"], k["key_version"], k["value_version"]): k["count"] for k in expected}
    for row in found:
        if row["record"] is None:  # a record type that no release knows
            assert (row["key_version"], row["fields"], row["group"]) == (99, None, None)
            continue
        (name,) = (name for name, content in row["fields"].items() if content is not None)
        assert name == row["record"]
        content = row["fields"][name]
        assert content["key"] is not None
        assert (content["value"] is None) == (row["value_version"] is None)
        assert bool(row["group"]) != bool(row["transactional_id"])
        assert row["timestamp"].year >= 2025
        assert row["batch_offset"] <= row["offset"]
        assert (row["damage"], row["replica"]) == (None, str(copy / f"{row['topic']}-{row['partition']}"))
    assert not any("4.3.1" in part["releases"] for row in found for part in row["broken"] or ())


def test_the_topics_are_a_choice(copy: Path) -> None:
    assert {row["topic"] for row in rows(copy, topics="__transaction_state")} == {"__transaction_state"}
    with pytest.raises(UserError, match="orders is not a coordinator log"):
        reading(copy, topics="orders")


def test_damage_is_a_row(copy: Path) -> None:
    whole = rows(copy)
    segment, *_ = sorted((copy / f"{OFFSETS}-1").glob("*.log"))
    data = bytearray(segment.read_bytes())
    first = next(batches(bytes(data)))
    data[first.size - 1] ^= 1
    segment.write_bytes(data)
    (copy / f"{OFFSETS}-2" / f"{0:020}.log").write_bytes(b"\xff" * 100)
    found = rows(copy)
    damage = {row["partition"]: row for row in found if row["damage"]}
    assert set(damage) == {1, 2}
    assert (damage[1]["offset"], damage[1]["record"], damage[1]["fields"]) == (first.base_offset, None, None)
    assert "CRC" in damage[1]["damage"]
    assert f"{0:020}.log at byte 0: " in damage[2]["damage"]
    assert offsets([row for row in found if not row["damage"]]) < offsets(whole)


def test_a_copy_that_lacks_segments_is_damage_too(copy: Path) -> None:
    max((copy / f"{OFFSETS}-1").glob("*.log")).unlink()
    (copy / f"{OFFSETS}-1" / "leader-epoch-checkpoint").write_text("0\n1\n0 1000000\n")
    (damage,) = (row for row in rows(copy) if row["damage"])
    assert "segments are missing" in damage["damage"]
    reader = LogStreamReader(reading(copy, maxOffsetsPerTrigger="40"))
    first, *others = batch_by_batch(reader, reader.getDefaultReadLimit())
    assert [row["damage"] for row in first if row["damage"]] == [damage["damage"]]
    assert not any(row["damage"] for part in others for row in part)


def test_of_two_copies_the_first_choice_or_each_is_read(copy: Path, tmp_path: Path) -> None:
    write_fixture_logs(tmp_path, RELEASE, name="other")
    alone = offsets(rows(copy))
    both = json.dumps([str(copy), str(tmp_path / "other")])
    schema = read_schema()
    leaders, replicas = (
        LogReader(Reading.of({"paths": both, "replicas": which}, schema)) for which in ("leader", "all")
    )
    assert offsets(rows_of(leaders, leaders.partitions())) == alone
    found = Counter(Path(row["replica"]).parent.name for row in rows_of(replicas, replicas.partitions()))
    assert found == {"node": len(alone), "other": len(alone)}


def test_a_url_has_the_same_rows(copy: Path) -> None:
    url = copy.as_uri()
    found = rows(url)
    expected = rows(copy)
    assert {row["replica"] for row in found} == {f"{url}/{Path(row['replica']).name}" for row in expected}
    key = lambda row: (row["topic"], row["partition"], row["offset"])  # noqa: E731
    strip = [sorted(({**row, "replica": None} for row in some), key=key) for some in (found, expected)]
    assert strip[0] == strip[1]
    one = rows(f"{url}/{OFFSETS}-1")
    assert offsets(one) == {row for row in offsets(expected) if row[:2] == (OFFSETS, 1)}


def test_a_url_without_a_log_is_named(tmp_path: Path) -> None:
    for url, words in ((tmp_path.as_uri(), "contains no coordinator log"), ("file:///none", "does not exist")):
        with pytest.raises(UserError) as refused:
            LogReader(reading(url)).partitions()
        assert words in refused.value.sentence
        assert url in refused.value.sentence


def test_damage_at_a_url_is_named_by_the_url(copy: Path) -> None:
    (copy / f"{OFFSETS}-2" / f"{0:020}.log").write_bytes(b"\xff" * 100)
    (damage,) = (row for row in rows(copy.as_uri()) if row["damage"])
    assert damage["damage"].startswith(f"{copy.as_uri()}/{OFFSETS}-2/{0:020}.log at byte 0: ")


def batch_by_batch(reader: LogStreamReader, limit: Any) -> list[list[dict[str, Any]]]:
    at, found = reader.initialOffset(), []
    while (end := reader.latestOffset(at, limit)) != at:
        json.dumps(end)
        found.append(rows_of(reader, list(reader.partitions(at, end))))
        at = end
    return found


@pytest.mark.parametrize("as_url", [False, True])
def test_a_stream_reads_each_record_once(copy: Path, as_url: bool) -> None:
    place = copy.as_uri() if as_url else copy
    reader = LogStreamReader(reading(place, maxOffsetsPerTrigger="40"))
    assert isinstance(reader.getDefaultReadLimit(), ReadMaxRows)
    parts = batch_by_batch(reader, reader.getDefaultReadLimit())
    assert len(parts) > 3
    assert offsets([row for part in parts for row in part]) == offsets(rows(copy))


def test_a_stream_continues_with_what_was_appended(copy: Path) -> None:
    latest = LogStreamReader(reading(copy, startingOffsets="latest"))
    reader = LogStreamReader(reading(copy))
    assert latest.latestOffset(latest.initialOffset(), ReadAllAvailable()) == latest.initialOffset()
    at = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert at == latest.initialOffset()
    active = max((copy / f"{OFFSETS}-1").glob("*.log"))
    (*_, last) = batches(active.read_bytes())
    new = last.last_offset + 1
    with active.open("ab") as file:
        file.write(new.to_bytes(8) + bytes(last.data)[8:])
    end = reader.latestOffset(at, ReadAllAvailable())
    found = rows_of(reader, list(reader.partitions(at, end)))
    assert {(row["topic"], row["partition"]) for row in found} == {(OFFSETS, 1)}
    assert min(row["offset"] for row in found) >= new
    reader.prepareForTriggerAvailableNow()
    with active.open("ab") as file:
        file.write((new + 100).to_bytes(8) + bytes(last.data)[8:])
    assert reader.latestOffset(end, ReadAllAvailable()) == end, "availableNow ends where it began"


def test_a_limit_takes_of_each_partition_by_its_size() -> None:
    begin, end = {("a", 0): 10, ("a", 1): 0}, {("a", 0): 110, ("a", 1): 1}
    assert limited(begin, end, 1000) == end
    assert limited(begin, end, 50) == {("a", 0): 60, ("a", 1): 1}


def test_a_stream_of_all_replicas_is_refused(copy: Path) -> None:
    source = DefaultSource({"path": str(copy), "replicas": "all"})
    with pytest.raises(UserError, match="A stream reads the leader of each partition alone"):
        source.streamReader(source.schema())


def test_another_schema_is_refused(copy: Path) -> None:
    from pyspark.sql.types import StructType

    with pytest.raises(UserError, match="cannot have another schema"):
        Reading.of({"path": str(copy)}, StructType().add("topic", "string"))
