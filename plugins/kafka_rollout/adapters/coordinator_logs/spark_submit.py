"""Starts the Spark job that scans coordinator logs: what to call it with, and the call itself from a shell.

An orchestrator hands `ScanRequest.arguments()` and `environment()` to its own spark-submit; `submit` runs one here.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from kafka_rollout.adapters.kafka.credential_files import credentials_file
from kafka_rollout.adapters.kafka.security import ClientSecurity
from kafka_rollout.adapters.releases.java import spark_java_home
from kafka_rollout.domain.coordinator_logs.scan import ScanResult
from kafka_rollout.domain.coordinator_logs.scan_request import ScanRequest
from kafka_rollout.domain.model.errors import FatalError, RolloutError, TransientError, UserError
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.json_forms import from_json
from kafka_rollout.settings import Settings


def _folder_of(package: str) -> Path:
    """Where a package is installed, without importing it."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise FatalError(f"The package {package} is not installed.", remedy="Install kafka-rollout again.")
    return Path(spec.origin).parent


_PACKAGES = tuple(_folder_of(name) for name in ("kafka_rollout", "kafka_rollout_spark"))
APPLICATION = _PACKAGES[1] / "application" / "scan_coordinator_logs.py"
FAIL_ON_EXIT_CODE = 3

_OURS = re.compile(r"^scan: (.*)$")  # how the job marks what a person should read among Spark's lines
_ERROR = "error: "
_TAIL_LINES = 20
_END_S = 15.0  # Spark's shutdown hooks take a second; longer than this they hang
_LOOPBACK = re.compile(r"local(\[.*)?|spark://(127\.0\.0\.1|localhost):\d+")


def environment(settings: Settings) -> dict[str, str]:
    """Variables that spark-submit and its Python need, on top of the process's own."""
    return {
        "JAVA_HOME": str(spark_java_home(settings.cache)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(str(package.parent) for package in _PACKAGES)),
        "KAFKA_ROLLOUT_INCLUDE": str(settings.include),
        "SPARK_HOME": str(_spark_home()),
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # of the JVM that builds the command
    }


def configuration(master: str, scratch: Path | None = None) -> dict[str, str]:
    """Spark's configuration for this job. A master on loopback keeps the driver there whatever the machine's name is.

    The JVM only starts, plans and hands over: the reading is done by Python workers. The quick compiler alone takes
    the processor time of a scan of a small log from 24 s to 15 s. `scratch`: where the driver may leave files.
    Out of memory, the JVM is ended: Spark would go on without the thread that ran out of it, and wait for ever.
    """
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:OnOutOfMemoryError='kill -9 %p'"
    found = {"spark.ui.enabled": "false"}
    if _LOOPBACK.fullmatch(master):
        found |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if scratch is not None:
        java += f" -Djava.io.tmpdir={scratch}"
        found |= {"spark.local.dir": str(scratch), "spark.sql.warehouse.dir": str(scratch / "warehouse")}
    return {**found, "spark.driver.extraJavaOptions": java}


def problem_in(line: str) -> str:
    """What is wrong, if this line of the job's says so; else nothing."""
    ours = _OURS.match(line.strip())
    return ours[1].removeprefix(_ERROR) if ours and ours[1].startswith(_ERROR) else ""


def spark_submit() -> Path:
    """The spark-submit of the installed PySpark."""
    return _spark_home() / "bin" / "spark-submit"


def submit(
    request: ScanRequest,
    settings: Settings,
    *,
    master: str | None = None,
    extra_configuration: Sequence[tuple[str, str]] = (),
    on_progress: Callable[[str], None] = lambda _: None,
) -> tuple[int, ScanResult]:
    """Run the job to its end: (exit code 0 or 3, result). Any other end raises the error that the job named.

    `master` is the settings' unless given. Interrupted, it ends Spark, and what Spark left on disk is removed.
    """
    master = master or settings.spark_master
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    problem = ""
    with tempfile.TemporaryDirectory(prefix="kafka-rollout-spark-", ignore_cleanup_errors=True) as scratch:
        options = ["--master", master]
        for key, value in [*configuration(master, Path(scratch)).items(), *extra_configuration]:
            options += ["--conf", f"{key}={value}"]
        variables = {
            **environment(settings),
            "PYSPARK_SUBMIT_ARGS": shlex.join([*options, "pyspark-shell"]),
            "TMPDIR": scratch,
        }
        # The job starts the JVM itself, while it is imported; under spark-submit one would wait for the other.
        with _running([sys.executable, str(APPLICATION), *request.arguments()], variables) as process:
            assert process.stdout is not None  # noqa: S101 - asked for
            for line in process.stdout:
                tail.append(line.rstrip())
                if (ours := _OURS.match(line)) is None:
                    continue
                if ours[1].startswith(_ERROR):
                    problem = ours[1].removeprefix(_ERROR)
                else:
                    on_progress(ours[1])
            code = process.wait()
    if code not in (0, FAIL_ON_EXIT_CODE):
        raise _failure(code, problem, tail)
    return code, from_json(ScanResult, json.loads(request.json_file.read_text(encoding="utf-8")))


def scan_command(
    cluster: ClusterSpec,
    settings: Settings,
    *,
    security: ClientSecurity | None = None,
    json_file: Path | None = None,
    parquet: Path | None = None,
    topics: Sequence[str] = (),
    releases: Sequence[Release] = (),
    fail_on: Sequence[Release] = (),
    live: bool = False,
    classes_only: bool = False,
    master: str | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> tuple[int, ScanResult]:
    """Scan a cluster of the inventory. The security file is written for the call, 0600, and removed after it."""
    with (
        tempfile.TemporaryDirectory(prefix="kafka-rollout-scan-") as folder,
        credentials_file(settings.home, security) as security_file,
    ):
        request = ScanRequest(
            cluster=cluster.name,
            bootstrap_servers=cluster.bootstrap_servers,
            json_file=json_file or Path(folder) / "scan.json",
            security_file=security_file,
            parquet=parquet,
            topics=tuple(topics),
            releases=tuple(releases),
            fail_on=tuple(fail_on),
            live=live,
            classes_only=classes_only,
        )
        return submit(request, settings, master=master, on_progress=on_progress)


@contextmanager
def _running(command: Sequence[str], variables: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run the job in a session of its own, because Ctrl-C at the terminal must reach this process only.

    On an error the job, Spark and their workers are stopped: all of them hold the output pipe.
    """
    process = subprocess.Popen(
        command,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    with process:
        try:
            yield process
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.communicate(timeout=_END_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            raise


def _failure(code: int, problem: str, tail: Sequence[str]) -> RolloutError:
    if code == UserError.exit_code and problem:
        return UserError(problem)
    if problem:
        return TransientError(problem)
    if code < 0:
        return TransientError(
            f"The scan's Spark job was ended by signal {-code}.",
            remedy="Look who ended it (the kernel does when memory is short), then scan again.",
        )
    last = next((line for line in reversed(tail) if line.strip()), "it said nothing")
    return FatalError(
        f"The scan's Spark job ended with exit code {code}: {last}", remedy="Run it again by spark-submit to see more."
    )


def _spark_home() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise FatalError("PySpark is not installed.", remedy="Run `make setup`.")
    return Path(spec.origin).parent
