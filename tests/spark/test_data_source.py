"""The data source on bytes that real brokers wrote: its rows, its verdicts, and a stream. No broker."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import crc32c
import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kafka_rollout.base.errors import UserError
from kafka_rollout_spark.job import workers_sentence
from pyspark_kafka_coordinator_log import log_verdicts, verdicts
from pyspark_kafka_coordinator_log.schema import COLUMNS
from tests.integration.harness.logs import planted_logs as planted
from tests.paths import FIXTURES, ROOT
from tests.spark.conftest import FixtureLogs, Scan

pytestmark = pytest.mark.spark

MONDAY = datetime(2026, 11, 23)
FORMAT, OFFSETS = "kafka_coordinator_log", "__consumer_offsets"
RELEASES = ("3.4.0", "3.9.1", "4.3.1")
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def session(spark: SparkContext) -> SparkSession:
    found = SparkSession(spark)
    found.conf.set("spark.sql.shuffle.partitions", "2")
    return found


def read(session: SparkSession, *folders: object, **options: str) -> DataFrame:
    return session.read.format(FORMAT).options(**options).load([*map(str, folders)])


def test_spark_finds_the_source_and_its_rows_are_the_records_that_an_independent_consumer_counted(
    session: SparkSession, fixture_logs: FixtureLogs
) -> None:
    release = "4.3.1-all-groups"
    rows = read(session, fixture_logs(release)).cache()
    assert rows.columns == [*COLUMNS]
    kinds = rows.groupBy("topic", "partition", "key_version", "value_version").count().collect()
    expected = json.loads((FIXTURES / f"coordinator-logs-{release}" / "classes.json").read_text())["classes"]
    names = "topic", "partition", "key_version", "value_version", "count"
    assert Counter(map(tuple, kinds)) == Counter(tuple(kind[name] for name in names) for kind in expected)
    commits = rows.where("record = 'OffsetCommit' AND value_version IS NOT NULL").select(
        "group", "fields.OffsetCommit.*"
    )
    for commit in commits.take(3):
        assert commit["key"]["group"] == commit["group"]
        assert commit["value"]["offset"] >= 0
        assert commit["value"]["commitTimestamp"] > 0
    ids = rows.where("record = 'TransactionLog'").select("transactional_id").distinct().collect()
    assert ids
    assert all(row[0] for row in ids)
    assert rows.where("fields.ShareSnapshot.value.snapshotEpoch >= 0 AND group IS NOT NULL").count() > 0
    rows.unpersist()


@pytest.mark.parametrize("release", ["3.9.1", "4.3.1-all-groups"])
def test_the_verdicts_are_those_of_the_scan(
    session: SparkSession, scan: Scan, fixture_logs: FixtureLogs, release: str
) -> None:
    folder = fixture_logs(release)
    (folder / f"{OFFSETS}-2" / f"{0:020}.log").write_bytes(b"\xff" * 100)
    of_scan = {
        (str(v.release), v.topic, v.partition): (v.verdict, v.ignored, v.first_failure and v.first_failure.reason)
        for v in scan(folder).verdicts
        if str(v.release) in RELEASES
    }
    rows = read(session, folder).cache()
    found = {(v.release, v.topic, v.partition): v for v in log_verdicts(rows, *RELEASES).collect()}
    assert {place: (v.verdict, v.ignored, v.reason) for place, v in found.items()} == {
        place: of_scan[place] for place in found
    }
    assert {place for place, (_, ignored, _) in of_scan.items() if ignored} <= found.keys()
    of_records = verdicts(rows, *RELEASES).groupBy("release", "topic", "partition", "verdict").count().collect()
    counts = {tuple(row[:4]): row[4] for row in of_records}
    blocking = {place for *place, verdict in counts if verdict in ("fails", "loses") for place in [tuple(place)]}
    assert blocking == {place for place, (verdict, *_) in of_scan.items() if verdict.blocks}
    ignored = {place[:3]: count for place, count in counts.items() if place[3] == "loads_ignoring"}
    assert ignored == {place: number for place, (_, number, _) in of_scan.items() if number}
    assert counts["4.3.1", OFFSETS, 2, "unknown"] == 1, "of a damaged part nothing is known"
    assert found["4.3.1", OFFSETS, 2].verdict == "unknown"
    rows.unpersist()


def plant_newer_commits(folder: Path, groups: Mapping[str, datetime]) -> None:
    """Write a partition with an offset of each group in a version of the value that 3.9.1 does not read."""
    data = b""
    for offset, (group, at) in enumerate(groups.items()):
        newer = (5).to_bytes(2) + planted.COMMITTED[2:]
        one = bytearray(planted.batch(offset, [(offset, (planted.key(OFFSETS, 1, group=group), newer))]))
        one[27:43] = 2 * int(at.timestamp() * 1000).to_bytes(8)  # base and maximal timestamp
        one[17:21] = crc32c.crc32c(bytes(one[21:])).to_bytes(4)
        data += bytes(one)
    (folder / f"{OFFSETS}-4").mkdir()
    (folder / f"{OFFSETS}-4" / f"{0:020}.log").write_bytes(data)


def test_the_example_of_the_page_shows_the_groups_by_week(
    session: SparkSession, fixture_logs: FixtureLogs, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = EXAMPLE.findall((ROOT / "docs" / "data-source.md").read_text())
    assert "/copies/broker-1" in example
    folder = fixture_logs("4.3.1-all-groups")
    names: dict[str, Any] = {"spark": session}
    code = example.replace("/copies/broker-1", str(folder))
    exec(code, names)  # noqa: S102 - of our page
    assert names["by_week"].collect() == [], "3.9.1 loads or ignores each record that 4.3.1 has written"
    plant_newer_commits(folder, {"early": MONDAY - timedelta(days=1), "late": MONDAY, "later": MONDAY})
    exec(code, names)  # noqa: S102
    weeks = {(row["week"], row["group"]): (row["verdict"], row["count"]) for row in names["by_week"].collect()}
    assert weeks == {
        (MONDAY - timedelta(days=7), "early"): ("fails", 1),
        (MONDAY, "late"): ("fails", 1),
        (MONDAY, "later"): ("fails", 1),
    }
    assert "early" in capsys.readouterr().out


def test_a_stream_reads_each_record_once(session: SparkSession, fixture_logs: FixtureLogs, tmp_path: Path) -> None:
    folder = fixture_logs("4.3.1")

    def run() -> None:
        rows = session.readStream.format(FORMAT).option("maxOffsetsPerTrigger", "300").load(str(folder))
        of_release = verdicts(rows, "3.4.0").select("topic", "partition", "offset", "verdict")
        written = of_release.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = written.format("parquet").option("path", str(tmp_path / "rows")).trigger(availableNow=True).start()
        assert query.awaitTermination(500)
        assert query.exception() is None

    def offsets() -> list[Any]:
        return sorted(session.read.parquet(str(tmp_path / "rows")).collect())

    def expected() -> list[Any]:
        rows = verdicts(read(session, folder), "3.4.0")
        return sorted(rows.select("topic", "partition", "offset", "verdict").collect())

    run()
    assert offsets() == expected()
    active = max((folder / f"{OFFSETS}-1").glob("*.log"))
    before, data = len(offsets()), active.read_bytes()
    end = 1 + max(row["offset"] for row in offsets() if row[:2] == (OFFSETS, 1))
    size = 12 + int.from_bytes(data[8:12])
    with active.open("ab") as file:
        file.write((end + 10).to_bytes(8) + data[8:size])
    run()
    assert offsets() == expected()
    assert len(offsets()) > before


def test_an_error_is_one_sentence_with_a_remedy(session: SparkSession, fixture_logs: FixtureLogs) -> None:
    folder = fixture_logs("4.3.1")
    with pytest.raises(PySparkException) as refused:
        read(session, folder, **{"sasl.jaas.config": "very-secret"})
    sentence = workers_sentence(str(refused.value))
    assert sentence.startswith("sasl.jaas.config cannot be an option: Spark shows options in plans and logs. Write it")
    assert "very-secret" not in str(refused.value)
    with pytest.raises(PySparkException) as missing:
        read(session, "/no-such-folder").count()
    assert workers_sentence(str(missing.value)) == (
        "/no-such-folder does not exist. Use a log directory of a broker, or a copy of it."
    )
    with pytest.raises(UserError, match=r"Release 9\.9\.9 is not in the catalogue"):
        verdicts(read(session, folder), "9.9.9")
