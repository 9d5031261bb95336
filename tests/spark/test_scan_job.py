"""The Spark side of the scan: sharing out, merging rows, a worker's error, arguments, outputs. No broker."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JError
from pydantic import SecretStr
from pyspark import SparkContext
from pyspark.errors import PySparkException

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.json_forms import from_json
from kafka_rollout.base.system.files import write_whole
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.client.security.client_security import ClientSecurity, SaslMechanism, SecurityProtocol
from kafka_rollout.coordinator_logs.scan import (
    Failure,
    LoadVerdict,
    OwnerRecords,
    ReleaseVerdict,
    ScanRequest,
    ScanResult,
)
from kafka_rollout.coordinator_logs.spark.submit import application, environment, prepare_job, read_without_spark
from kafka_rollout.formats.log_types import LogRange, RecordKind, ReplicaRange
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from kafka_rollout_spark import job
from kafka_rollout_spark.kernel.programs import DecodingSpec
from kafka_rollout_spark.merge.merged import merge_rows
from kafka_rollout_spark.output import write_json, write_parquet
from kafka_rollout_spark.rows import WORKER_ROWS, RowKind
from kafka_rollout_spark.source import LiveLogs, LogsToRead, cut_logs, plan_splits, read_split
from tests.spark.conftest import FixtureLogs

OFFSETS = "__consumer_offsets"
LIVE = {"bootstrap_servers": "127.0.0.1:9"}

some_ranges = st.lists(
    st.builds(
        lambda partition, start, length: ReplicaRange(
            topic=OFFSETS, partition=partition, start=start, end=start + length
        ),
        st.integers(0, 50),
        st.integers(0, 100),
        st.integers(1, 100),
    ),
    min_size=1,
    max_size=20,
)


def offsets(ranges: list[ReplicaRange]) -> list[tuple[int, int]]:
    return sorted((r.partition, offset) for r in ranges for offset in range(r.start, r.end))


@given(ranges=some_ranges, most=st.integers(1, 60), parts=st.integers(1, 9))
def test_every_offset_is_in_exactly_one_split(ranges: list[ReplicaRange], most: int, parts: int) -> None:
    splits = plan_splits(cut_logs(ranges, most), parts)
    assert len(splits) <= parts
    assert offsets([r for split in splits for r in split]) == offsets(ranges)


@given(ranges=some_ranges, parts=st.integers(1, 9))
def test_splits_are_of_about_the_same_size(ranges: list[ReplicaRange], parts: int) -> None:
    weights = [sum(r.end - r.start for r in split) for split in plan_splits(ranges, parts)]
    assert max(weights) - min(weights) <= 2 * max(r.end - r.start for r in ranges) + len(ranges)


@given(ranges=some_ranges, parts=st.integers(1, 9))
def test_few_splits_read_the_same_log(ranges: list[ReplicaRange], parts: int) -> None:
    splits = plan_splits(sorted(ranges, key=lambda r: (r.partition, r.start)), parts)
    assert sum(len({r.partition for r in split}) for split in splits) <= len({r.partition for r in ranges}) + parts - 1


@given(offsets=st.integers(1_000_000, 300_000_000), cores=st.integers(1, 4))
def test_every_core_reads_as_many_splits(offsets: int, cores: int) -> None:
    ranges = (ReplicaRange(topic=OFFSETS, partition=0, start=0, end=offsets),)
    logs = LogsToRead(
        cluster="one",
        replicas=ranges,
        names={},
        ranges=cut_logs(ranges, 50_000),
        source=LiveLogs("127.0.0.1:9"),
        unit="offsets",
        log_bytes=1 << 30,
    )
    splits = logs.splits(cores)
    assert len(splits) % cores == 0
    assert len(splits) // cores in {4, round(offsets / cores / 8_000_000)}


@pytest.mark.parametrize(("offsets", "splits"), [(1, 1), (2_000_000, 1), (85_200_000, 43)])
def test_executors_that_are_not_there_yet_do_not_change_the_splits(offsets: int, splits: int) -> None:
    ranges = (ReplicaRange(topic=OFFSETS, partition=0, start=0, end=offsets),)
    logs = LogsToRead(
        cluster="one",
        replicas=ranges,
        names={},
        ranges=cut_logs(ranges, 50_000),
        source=LiveLogs("127.0.0.1:9"),
        unit="offsets",
        log_bytes=offsets * 100,
    )
    assert len(logs.splits(None)) == splits


def test_a_small_log_is_read_by_one_task_per_core() -> None:
    logs = LogsToRead(
        cluster="one",
        replicas=(),
        names={},
        ranges=tuple(ReplicaRange(topic=OFFSETS, partition=partition, start=0, end=9) for partition in range(50)),
        source=LiveLogs("127.0.0.1:9"),
        unit="offsets",
        log_bytes=45_000,
    )
    assert [len(split) for split in logs.splits(2)] == [25, 25]


def test_small_logs_are_read_without_java_and_larger_ones_are_left_to_spark(
    fixture_logs: FixtureLogs, tmp_path: Path
) -> None:
    settings, said, logs = Settings.from_environment(), list[str](), fixture_logs("4.3.1")

    def read(spark_from_bytes: int) -> ScanResult | None:
        request = ScanRequest(
            cluster="copy",
            json_file=tmp_path / "scan.json",
            log_dirs=(logs,),
            spark_from_bytes=spark_from_bytes,
        )
        job = prepare_job(request, settings, "local[2]", tmp_path)
        return read_without_spark(replace(job, environment={**job.environment, "JAVA_HOME": "/nowhere"}), said.append)

    found = read(1 << 20)
    assert found is not None
    assert found.records > 0
    assert any(line.startswith("reading") and line.endswith("without Spark") for line in said), said
    assert read(1) is None


def result() -> ScanResult:
    release = Release(3, 4, 0)
    return ScanResult(
        cluster="one",
        scanned_at=1_700_000_000.0,
        logs=(LogRange(topic=OFFSETS, partition=0, start=0, end=9),),
        classes=(RecordKind(topic=OFFSETS, partition=0, key_version=3, value_version=None, count=9, first_offset=0),),
        verdicts=(
            ReleaseVerdict(
                release=release,
                topic=OFFSETS,
                partition=0,
                verdict=LoadVerdict.FAILS,
                first_failure=Failure(offset=0, reason="unknown key version 3"),
            ),
        ),
    )


def test_files_are_whole_and_leave_no_drafts(tmp_path: Path) -> None:
    write_json(result(), tmp_path / "new" / "scan.json")
    owner = OwnerRecords(
        topic=OFFSETS,
        partition=0,
        owner="group",
        name="g",
        key_version=3,
        value_version=None,
        count=9,
        first_offset=0,
    )
    written = {
        path.name.split("-")[0]: path
        for path in write_parquet(result(), [(owner, "broker 1")] * 60_000, tmp_path / "new")
    }
    assert from_json(ScanResult, json.loads((tmp_path / "new" / "scan.json").read_text())) == result()
    assert pq.read_table(written["classes"]).to_pylist()[0]["value_version"] is None
    row = pq.read_table(written["verdicts"]).to_pylist()[0]
    assert (row["verdict"], row["failure_offset"], row["failure_reason"]) == ("fails", 0, "unknown key version 3")
    assert pq.read_table(written["owners"]).num_rows == 60_000
    assert pq.read_table(written["damage"]).num_rows == 0
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"scan.json", *(p.name for p in written.values())}


def test_output_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        write_json(result(), tmp_path / "file" / "scan.json")


def test_the_summary_names_each_releases_worst_verdict() -> None:
    assert job.summary(result()) == "scan: one: 9 records in 1 partitions; 3.4.0 fails"


def job_file(folder: Path, **request: object) -> list[str]:
    """The arguments of a job. `request`: JSON form, in addition to a cluster without logs."""
    file = folder / "job.json"
    file.write_text(json.dumps({"cluster": "x", "json_file": str(folder / "scan.json"), **request}))
    return ["--job", str(file)]


def no_spark() -> NoReturn:
    raise AssertionError("Spark was needed")


@pytest.mark.parametrize(
    "wanted",
    [
        {
            "bootstrap_servers": "127.0.0.1:9092",
            "security_file": Path("/private/security.json"),
            "topics": (OFFSETS,),
            "releases": (Release(3, 4, 0), Release(4, 3, 1)),
            "fail_on": (Release(3, 4, 1),),
        },
        {"log_dirs": (Path("a"), Path("b")), "live": True, "parquet": Path("tables")},
    ],
)
def test_a_request_reaches_the_job_as_a_private_file(tmp_path: Path, wanted: dict[str, Any]) -> None:
    request = ScanRequest(cluster="one", json_file=tmp_path / "scan.json", **wanted)
    prepared = prepare_job(request, Settings.from_environment(), "local[2]", tmp_path)
    file = Path(prepared.arguments[1])
    assert job.read_request(file) == request
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        ({}, "either bootstrap_servers or log_dirs"),
        ({"bootstrap_servers": "127.0.0.1:9", "log_dirs": ["."]}, "either bootstrap_servers or log_dirs"),
        ({"bootstrap_servers": "127.0.0.1:9", "releases": ["latest"]}, "'latest'"),
        ({"bootstrap_servers": "127.0.0.1:9", "topics": ["orders"]}, "orders"),
        ({"bootstrap_servers": "127.0.0.1:9", "log_dir": ["."]}, "unknown keys: log_dir"),
        ({"bootstrap_servers": "127.0.0.1:9", "live": "perhaps"}, "live: Input should be a valid boolean"),
        ({"log_dirs": ["/nowhere/at/all"]}, "/nowhere/at/all does not exist"),
        ({"log_dirs": ["."]}, "no coordinator log"),
        ({"bootstrap_servers": "127.0.0.1:9", "security_file": "/nowhere/s.json"}, "/nowhere"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    tmp_path: Path, request_: dict[str, object], names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job.main(job_file(tmp_path, **request_), no_spark) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert names in line


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (None, "job.json cannot be read: No such file or directory. Name a file"),
        ("{", "line 1 column 2 (char 1). See the example"),
        ("[]", "is not a scan request: Input should be a dictionary"),
        ('{"cluster": "x"}', "json_file: Field required. See the example"),
        ("\udcff", "is not a scan request: 'utf-8' codec can't decode"),
    ],
)
def test_the_asking_process_gets_the_error_of_a_job_file_that_is_no_request(
    tmp_path: Path, content: str | None, names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    request = ScanRequest(cluster="one", json_file=tmp_path / "scan.json", log_dirs=(tmp_path,))
    prepared = prepare_job(request, Settings.from_environment(), "local[2]", tmp_path)
    file = tmp_path / "job.json"
    file.unlink()
    if content is not None:
        file.write_text(content, errors="surrogateescape")
    assert job.main(prepared.arguments, no_spark) == 2
    assert names in prepared.problem()
    assert capsys.readouterr().err == f"scan: error: {prepared.problem()}\n"


def test_the_asking_process_gets_the_error_of_a_job_file_without_the_right_to_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    request = ScanRequest(cluster="one", json_file=tmp_path / "scan.json", log_dirs=(tmp_path,))
    prepared = prepare_job(request, Settings.from_environment(), "local[2]", tmp_path)
    monkeypatch.setattr(job, "read_regular", refuse)
    assert job.main(prepared.arguments, no_spark) == 2
    assert "job.json cannot be read: Permission denied. Name a file with --job" in prepared.problem()


def test_the_sentence_of_an_error_is_also_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "problem"
    arguments = [*job_file(tmp_path, log_dirs=["/nowhere/at/all"]), "--problem", str(file)]
    assert job.main(arguments, no_spark) == 2
    assert capsys.readouterr().err == f"scan: error: {file.read_text()}\n"


def test_the_job_runs_by_what_its_environment_holds(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(application()), *job_file(tmp_path, log_dirs=["/nowhere/at/all"])],
        env={**os.environ, **environment(Settings.from_environment())},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    error = "scan: error: /nowhere/at/all does not exist. Use a log directory of a broker, or a copy of it."
    assert (done.returncode, error in done.stderr.splitlines()) == (2, True)


def test_a_file_without_credentials_is_scanned_with_any_master_and_waits_for_no_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scan fails later, when it reads the logs."""

    write_whole(tmp_path / "security.json", ClientSecurity().to_json().encode())
    arguments = job_file(tmp_path, **LIVE, security_file=str(tmp_path / "security.json"))
    assert job.main(arguments, no_spark) == job.COULD_NOT_READ
    assert "No broker of 127.0.0.1:9 answered" in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.parametrize(
    ("master", "code", "sentence"),
    [
        ("spark://127.0.0.1:9", 2, "spark.authenticate and spark.network.crypto.enabled are not both true"),
        ("local[2]", job.COULD_NOT_READ, "No broker of 127.0.0.1:9 answered"),
    ],
)
def test_credentials_are_refused_to_executors_that_spark_does_not_protect(
    tmp_path: Path, master: str, code: int, sentence: str
) -> None:
    security = ClientSecurity(
        protocol=SecurityProtocol.SASL_PLAINTEXT, mechanism=SaslMechanism.PLAIN, username="u", password=SecretStr("p")
    )
    write_whole(tmp_path / "security.json", security.to_json().encode())
    submit_arguments = {"PYSPARK_SUBMIT_ARGS": f"--master {master} pyspark-shell"}
    done = subprocess.run(
        [
            *(sys.executable, str(application())),
            *job_file(tmp_path, **LIVE, security_file=str(tmp_path / "security.json")),
        ],
        env={**os.environ, **environment(Settings.from_environment()), **submit_arguments},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("scan: "))
    assert (done.returncode, sentence in line) == (code, True), line


def test_rows_of_one_thing_merge_to_one_row_in_any_order_and_in_several_steps() -> None:
    one = {"kind": RowKind.CLASS, "topic": OFFSETS, "partition": 0, "key_version": 3, "value_version": None}
    state = {"kind": RowKind.STATE, "topic": OFFSETS, "partition": 0, "record": "GroupMetadata", "key_hash": 7}
    broken = {**one, "kind": RowKind.BROKEN, "part": "value", "releases": "3.4.0"}
    rows = [
        {**one, "count": 4, "first_offset": 12},
        {**one, "count": 3, "first_offset": 5},
        {**one, "count": 0, "live": 2},
        {**broken, "count": 1, "first_offset": 12, "reason": "later"},
        {**broken, "count": 1, "first_offset": 5, "reason": "first"},
        {**state, "last_offset": 3, "key": b"k", "value": b"old"},
        {**state, "last_offset": 8, "key": b"k", "value": None},
    ]

    def merged(*rows: dict[str, object]) -> list[dict[str, object]]:
        return merge_rows([pa.RecordBatch.from_pylist(list(rows), schema=WORKER_ROWS)]).to_pylist()

    for order in permutations(rows):
        early = merged(*order[:3])
        found = {str(row["kind"]): row for row in merged(*early, *order[3:])}
        assert len(found) == 3
        kind = found["class"]
        assert (kind["count"], kind["first_offset"], kind["value_version"], kind["live"]) == (7, 5, None, 2)
        assert (found["broken"]["count"], found["broken"]["reason"]) == (2, "first")
        assert (found["state"]["last_offset"], found["state"]["value"]) == (8, None)


@pytest.mark.spark
def test_a_workers_error_is_found_again_as_its_one_sentence(spark: SparkContext, tmp_path: Path) -> None:
    missing = tmp_path / "security.json"
    source = LiveLogs("127.0.0.1:9", missing)
    split = (LogRange(topic=OFFSETS, partition=0, start=0, end=1),)
    # PySpark translates the error if Spark SQL was used before in this process.
    with pytest.raises((Py4JError, PySparkException)) as raised:
        spark.parallelize([split], 1).flatMap(partial(read_split, source, DecodingSpec())).collect()
    assert job.workers_sentence(str(raised.value)).startswith(f"{missing} cannot be read")
    assert UserError.__module__ in str(raised.value)


def test_an_error_that_is_not_ours_is_told_by_its_first_cause() -> None:
    trace = (
        "An error occurred while calling o1.\n: org.apache.spark.SparkException: Exception thrown in awaitResult\n"
        "\tat a.b\nCaused by: java.io.IOException: Python worker exited unexpectedly (crashed)\n\tat a.b\n"
    )
    assert job.workers_sentence(trace) == (
        "Spark failed: java.io.IOException: Python worker exited unexpectedly (crashed)"
    )
    assert job.workers_sentence("it just failed") == "Spark failed: it just failed"
    missing = (
        'a call\n: org.apache.spark.SparkException\nCaused by: java.io.IOException: Cannot run program "/venv/python": '
        "Exec failed, error: 2\nCaused by: java.io.IOException: error=2, No such file or directory"
    )
    assert job.workers_sentence(missing).startswith("An executor has no /venv/python. Install the environment")


@pytest.mark.parametrize("running", [True, False, None])
@pytest.mark.parametrize("wanted", [True, False, None])
def test_the_group_coordinator_of_the_request_replaces_that_of_the_running_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, running: bool | None, wanted: bool | None
) -> None:
    found = LogsToRead(
        cluster="one",
        replicas=(),
        names={},
        ranges=(),
        source=LiveLogs("", None),
        unit="offsets",
        log_bytes=0,
        new_group_coordinator=running,
    )
    monkeypatch.setattr(job, "live_logs", lambda **_: found)
    request = ScanRequest(
        cluster="one", json_file=tmp_path / "x", bootstrap_servers="127.0.0.1:9", new_group_coordinator=wanted
    )
    logs = job._find_logs(request, load_catalogue(*Settings.from_environment().catalogue_folders), None)
    assert logs.new_group_coordinator is (running if wanted is None else wanted)


@pytest.mark.parametrize(("replaced", "code"), [(1, 0), (2, 1)])
def test_a_segment_that_was_replaced_makes_it_scan_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], replaced: int, code: int
) -> None:
    searches: list[object] = []

    def find(*_: object, **__: object) -> SimpleNamespace:
        searches.append(1)
        return SimpleNamespace(new_group_coordinator=False)

    gone = PySparkException("\nkafka_rollout.adapters.log_segments.SegmentGoneError: Segment 7.log was replaced.\n")
    answers = iter([gone] * replaced + [result()] * 2)

    def read(*_: object) -> ScanResult:
        answer = next(answers)
        if isinstance(answer, ScanResult):
            return answer
        raise answer

    monkeypatch.setattr(job, "_find_logs", find)
    monkeypatch.setattr(job, "_read", read)
    monkeypatch.setattr(job, "start_spark", lambda *_: SimpleNamespace(stop=lambda: None))
    assert job.main(job_file(tmp_path, log_dirs=["anywhere"]), lambda: None) == code  # type: ignore[arg-type,return-value]
    assert len(searches) == 2
    said = capsys.readouterr().err
    assert "scanning again" in said
    assert ("error: Segment 7.log was replaced." in said) is (code == 1)
