"""Starts the Spark job that scans coordinator logs.

An orchestrator passes what `prepare_job` returns to its own spark-submit; `submit` runs the job from this process.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kafka_rollout.base.errors import FatalError, RolloutError, TransientError, UserError
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.base.system.files import read_if_exists, write_whole
from kafka_rollout.base.system.python import SAFE_PATH, PythonProcess, interpreter, python_process
from kafka_rollout.base.system.settings import Settings, read_variables
from kafka_rollout.client.security.carried_security import credentials_file
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.coordinator_logs.executor_credentials import AUTHENTICATION, ENCRYPTION, runs_in_one_process
from kafka_rollout.coordinator_logs.scan import ScanRequest, ScanResult
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jvm.java import spark_java_home

FAIL_ON_EXIT_CODE, NEEDS_SPARK_EXIT_CODE = 3, 4

_PACKAGES = "kafka_rollout", "kafka_rollout_spark"  # what the job imports

_PROGRESS = re.compile(r"^scan: (?!error: )(.*)$")  # lines of the job; Spark prints other lines
_TAIL_LINES = 20
_END_S = 15.0  # Spark's shutdown hooks take about one second
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_PROTECTS = frozenset({AUTHENTICATION, ENCRYPTION})
_SAFE_PATH_OF_EXECUTORS = {f"spark.executorEnv.{name}": text for name, text in SAFE_PATH.items()}  # on other hosts too
_LOOPBACK = re.compile(r"local(\[.*)?|spark://(127\.0\.0\.1|localhost):\d+")


def _folder_of(package: str) -> Path:
    """Return the folder of an installed package without importing the package."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise FatalError(f"The package {package} is not installed.", remedy="Install kafka-rollout[spark] again.")
    return Path(spec.origin).parent


def application() -> Path:
    """Return the script of the job. This package does not import the job: it starts the script by its path."""
    return _folder_of("kafka_rollout_spark") / "application" / "scan_coordinator_logs.py"


def environment(settings: Settings) -> dict[str, str]:
    """Return the environment variables that spark-submit and its Python need in addition to those of this process."""
    return {
        "JAVA_HOME": str(spark_java_home(settings.cache)),
        "PYSPARK_PYTHON": interpreter(),
        "PYSPARK_DRIVER_PYTHON": interpreter(),
        **SAFE_PATH,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(str(_folder_of(name).parent) for name in _PACKAGES)),
        "KAFKA_ROLLOUT_INCLUDE": str(settings.include),
        "KAFKA_ROLLOUT_CATALOGUE": str(settings.added_releases),
        "SPARK_HOME": str(_folder_of("pyspark")),
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # for the JVM that builds the command
    }


def configuration(master: str, scratch: Path | None = None) -> dict[str, str]:
    """Return the Spark configuration of this job. If the master is on loopback, the driver also listens on loopback.

    A local driver authenticates each connection to its port with a secret that Spark makes itself. Otherwise it would
    deserialize Java objects of every user of this host.

    The JVM only plans and schedules, because Python workers read the logs; so the C1 compiler is sufficient. If the JVM
    runs out of memory, it is killed. Otherwise Spark would wait permanently for the failed thread. `scratch`: folder
    for files of the driver.
    """
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:OnOutOfMemoryError='kill -9 %p'"
    found = {"spark.ui.enabled": "false"}
    found |= _SAFE_PATH_OF_EXECUTORS
    if _LOOPBACK.fullmatch(master):
        found |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if runs_in_one_process(master):
        found |= {AUTHENTICATION: "true", ENCRYPTION: "true"}
    if scratch is not None:
        java += f" -Djava.io.tmpdir={scratch}"
        found["spark.local.dir"] = str(scratch)
    return {**found, _JAVA_OPTIONS: java}


def with_settings_of_user(configuration: Mapping[str, str], of_user: Mapping[str, Any]) -> dict[str, str]:
    """Return the configuration of the job with that of a user, which wins. Java options of the driver are joined.

    Raises UserError for another value of a setting that protects credentials or the path of Python.
    """
    found = dict(configuration)
    for name, value in of_user.items():
        text = str(value)
        if name == _JAVA_OPTIONS:
            text = f"{found.get(name, '')} {text}".strip()
        elif found.get(name, text) != text and (name in _PROTECTS or name in _SAFE_PATH_OF_EXECUTORS):
            raise UserError(
                f"The scan sets {name} to {found[name]}, because it protects credentials or the path of Python.",
                remedy=f"Remove {name} from conf.",
            )
        found[name] = text
    return found


def spark_submit() -> Path:
    return _folder_of("pyspark") / "bin" / "spark-submit"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkJob:
    """A scan that spark-submit can run: its script, arguments, environment variables and Spark configuration."""

    submit: Path
    application: Path
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    configuration: Mapping[str, str]
    request: ScanRequest
    problem_file: Path
    """Gets the sentence of an error."""

    def problem(self) -> str:
        """Return the sentence of the job's error; empty if the job wrote none."""
        return (read_if_exists(self.problem_file) or b"").decode("utf-8", "replace")

    def result(self) -> ScanResult:
        return from_json(ScanResult, json.loads(self.request.json_file.read_text(encoding="utf-8")))


def prepare_job(request: ScanRequest, settings: Settings, master: str, scratch: Path) -> SparkJob:
    """Write the job's file, mode 0600, into `scratch`, a folder for files of the driver."""
    file, problem_file = scratch / "job.json", scratch / "problem"
    write_whole(file, json.dumps(to_json(request)).encode())
    return SparkJob(
        submit=spark_submit(),
        application=application(),
        arguments=("--job", str(file), "--problem", str(problem_file)),
        environment=environment(settings),
        configuration=configuration(master, scratch),
        request=request,
        problem_file=problem_file,
    )


def submit(
    request: ScanRequest,
    settings: Settings,
    *,
    master: str | None = None,
    extra_configuration: Sequence[tuple[str, str]] = (),
    on_progress: Callable[[str], None] = lambda _: None,
) -> tuple[int, ScanResult]:
    """Run the job and return (exit code 0 or 3, result). Raises the job's error for any other exit code.

    `master`: Spark master, by default that of the settings. Ctrl-C stops Spark and removes its files.
    """
    master = master or settings.spark_master
    with tempfile.TemporaryDirectory(prefix="kafka-rollout-spark-", ignore_cleanup_errors=True) as scratch:
        job = prepare_job(request, settings, master, Path(scratch))
        options = ["--master", master]
        for key, value in [*job.configuration.items(), *extra_configuration]:
            options += ["--conf", f"{key}={value}"]
        # With spark-submit, Python would start after the JVM, also for logs that need none.
        spark = {"PYSPARK_SUBMIT_ARGS": shlex.join([*options, "pyspark-shell"])}
        code = _run(job, job.arguments, {**spark, "TMPDIR": scratch}, on_progress)
    return code, job.result()


def read_without_spark(job: SparkJob, on_progress: Callable[[str], None] = lambda _: None) -> ScanResult | None:
    """Run the job in a process of this machine if the logs are small; None if they need Spark.

    Raises the job's error as `submit`.
    """
    code = _run(job, (*job.arguments, "--without-spark"), {}, on_progress, more_codes=(NEEDS_SPARK_EXIT_CODE,))
    return None if code == NEEDS_SPARK_EXIT_CODE else job.result()


def _run(
    job: SparkJob,
    arguments: Sequence[str],
    variables: Mapping[str, str],
    on_progress: Callable[[str], None],
    more_codes: Sequence[int] = (),
) -> int:
    """Run the script of the job; return its exit code, one of 0, 3 and `more_codes`. Else raises its error."""
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    found = {**os.environ, **read_variables(), **job.environment, **variables}
    with _running(python_process([str(job.application), *arguments], found)) as process:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        for line in process.stdout:
            tail.append(line.rstrip())
            if ours := _PROGRESS.match(line):
                on_progress(ours[1])
        code = process.wait()
    if code not in (0, FAIL_ON_EXIT_CODE, *more_codes):
        raise _failure(code, job.problem(), tail)
    return code


def scan_command(
    cluster: ClusterSpec,
    settings: Settings,
    *,
    new_group_coordinator: bool | None,
    security: ClientSecurity | None = None,
    topics: tuple[str, ...] = (),
    releases: tuple[Release, ...] = (),
    fail_on: tuple[Release, ...] = (),
    live: bool = False,
    parquet: Path | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> tuple[int, ScanResult]:
    """Scan a cluster of the inventory. Arguments: as in ScanRequest.

    The file with credentials has mode 0600 and is removed at the end.
    """
    with (
        tempfile.TemporaryDirectory(prefix="kafka-rollout-scan-") as folder,
        credentials_file(settings.home, security) as security_file,
    ):
        request = ScanRequest(
            cluster=cluster.name,
            json_file=Path(folder) / "scan.json",
            bootstrap_servers=cluster.bootstrap_servers,
            security_file=security_file,
            parquet=parquet,
            new_group_coordinator=new_group_coordinator,
            topics=topics,
            releases=releases,
            fail_on=fail_on,
            live=live,
            spark_from_bytes=settings.spark_from_bytes,
        )
        return submit(request, settings, on_progress=on_progress)


@contextmanager
def _running(job: PythonProcess) -> Iterator[subprocess.Popen[str]]:
    """Run the job in a separate session, because Ctrl-C at the terminal must reach this process only.

    On an error the job, Spark and their workers are stopped, because all of them use the output pipe.
    """
    process = job.start(
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
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
            f"The Spark job of the scan was killed by signal {-code}.",
            remedy="Check the kernel log for a lack of memory, then scan again.",
        )
    last = next((line for line in reversed(tail) if line.strip()), "no output")
    return FatalError(
        f"The Spark job of the scan failed with exit code {code}: {last}",
        remedy="Run the job with spark-submit to see its output (docs/scan.md).",
    )
