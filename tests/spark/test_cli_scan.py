"""`kafka-rollout scan` from a shell, over log directories: what it prints, how it ends, what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kafka_rollout.base.errors import StoppedError
from kafka_rollout.base.system.sessions import wait_for_exit
from kafka_rollout.cli import app as cli
from tests.spark.conftest import FixtureLogs
from tools.demo.folder import PROJECT_ROOT

BROKEN_BY_431 = "3.4.0"


class Shell:
    """`kafka-rollout` without an inventory and with a folder of its own for temporary files."""

    def __init__(self, folder: Path) -> None:
        self.scratch, self.current = folder / "tmp", folder / "of-others"
        for path in (self.scratch, self.current, folder / "no-clusters"):
            path.mkdir()
        self.variables = {
            **os.environ,
            "TMPDIR": str(self.scratch),
            "KAFKA_ROLLOUT_CLUSTERS": str(folder / "no-clusters"),
            "KAFKA_ROLLOUT_HOME": str(folder / "home"),
            "PYTHONPATH": str(PROJECT_ROOT / "plugins"),
            "COLUMNS": "200",
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", "from kafka_rollout.cli.app import main; main()", "scan", *words],
            env=self.variables,
            cwd=self.current,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.spark
def test_json_on_standard_output_is_nothing_else_and_fail_on_is_the_exit_code(
    shell: Shell, fixture_logs: FixtureLogs, tmp_path: Path
) -> None:
    logs = fixture_logs("4.3.1")
    before = {path: path.stat().st_mtime_ns for path in logs.rglob("*")}
    hostile, executed = ("signal", "socket", "secrets", "zipfile", "numba"), tmp_path / "executed"
    for name in hostile:  # a folder of another user: `python -m pyspark.daemon` would import these
        (shell.current / f"{name}.py").write_text(f"open({str(executed)!r}, 'a').write('{name} ')\n")
    process = shell.start(
        *("--log-dir", str(logs), "--json", "--release", "4.3.1", "--fail-on", BROKEN_BY_431),
        *("--parquet", str(tmp_path / "tables"), "--html", str(tmp_path / "page.html")),
    )
    out, err = process.communicate(timeout=300)
    assert process.returncode == 3, err
    result = json.loads(out)
    assert {v["release"] for v in result["verdicts"]} == {"4.3.1", BROKEN_BY_431}
    assert {"topic", "partition", "key_version", "value_version", "count", "first_offset"} == set(result["classes"][0])
    tombstones = [c for c in result["classes"] if c["value_version"] is None]
    assert tombstones
    failing = [v for v in result["verdicts"] if v["verdict"] == "fails"]
    assert failing[0]["first_failure"].keys() == {"offset", "reason"}
    assert "8 partitions" in err
    assert {path.name.split("-")[0] for path in (tmp_path / "tables").iterdir()} >= {"classes", "findings"}
    assert BROKEN_BY_431 in (tmp_path / "page.html").read_text()
    assert {path: path.stat().st_mtime_ns for path in logs.rglob("*")} == before
    assert list(shell.scratch.iterdir()) == []
    assert not executed.exists()
    assert {path.name for path in shell.current.iterdir()} == {f"{name}.py" for name in hostile}


@pytest.mark.spark
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "kill"])
def test_an_interrupt_ends_spark_and_leaves_nothing(shell: Shell, fixture_logs: FixtureLogs, how: int) -> None:
    process = shell.start("--log-dir", str(fixture_logs("4.3.1")), "--master", "local[2]")
    assert process.stderr is not None
    for line in process.stderr:
        if "read 0 of" in line:
            break
    started = psutil.Process(process.pid).children(recursive=True)
    assert any("java" in child.name() for child in started)
    process.send_signal(how)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (StoppedError.exit_code, "")
    assert "Traceback" not in err
    assert wait_for_exit(started, 120) == []
    assert list(shell.scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "either a cluster or log directories"),
        ("--cluster c --log-dir .", "either a cluster or log directories"),
        ("--log-dir /nowhere/at/all", "/nowhere/at/all does not exist"),
        ("--log-dir .", "contains no coordinator log"),
        ("--log-dir . --release 9.9.9", "Release 9.9.9 is not in the catalogue"),
        ("--log-dir . --fail-on latest", "'latest' is not a Kafka release"),
        ("--log-dir . --topic orders", "orders is not a coordinator log"),
        ("--cluster nope", "The inventory contains no cluster nope"),
    ],
)
def test_bad_input_is_a_sentence_before_spark_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "kafka_rollout.coordinator_logs.spark.submit.submit", lambda *_, **__: pytest.fail("Spark was started")
    )
    assert cli.run_main(["scan", *words.split()]) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert (said.err.count("\n"), said.out) == (1, "")
