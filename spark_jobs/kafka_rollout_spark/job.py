"""Spark job: the releases that can load the coordinator logs, of a running cluster or in log directories.

    spark-submit --master local[2] application/scan_coordinator_logs.py --job FILE [--problem FILE]

The job file is the JSON form of a ScanRequest; docs/scan.md has an example. Exit code 0 for any verdict; 3 if a release
of `fail_on` cannot load a log; 2 for bad input; 1 if the logs could not be read; 4 with --without-spark if they have
more than `spark_from_bytes`. PYTHONPATH must contain plugins/ and spark_jobs/ (coordinator_logs/spark/submit.py sets
it).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError, Py4JNetworkError
from pydantic import ValidationError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from kafka_rollout.base.errors import RolloutError, UserError
from kafka_rollout.base.json_forms import from_json
from kafka_rollout.base.system.files import read_regular
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.client.security.carried_security import CarriedSecurity
from kafka_rollout.client.security.client_security import ClientSecurity, SecurityProtocol
from kafka_rollout.coordinator_logs.executor_credentials import SETTINGS, protect_credentials
from kafka_rollout.coordinator_logs.reading.directories import SegmentGoneError
from kafka_rollout.coordinator_logs.scan import ScanRequest, ScanResult
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Catalogue
from kafka_rollout_spark.kernel import COMPLETE
from kafka_rollout_spark.output import STANDARD_OUTPUT, write_json, write_parquet
from kafka_rollout_spark.scan import Documents, make_result, read_logs
from kafka_rollout_spark.source import LogsToRead, live_logs, logs_in_directories

COULD_NOT_READ, VERDICT_FAILS, NEEDS_SPARK = 1, 3, 4
WORKER_DAEMON = "kafka_rollout_spark.worker_daemon"  # not imported here: the driver does not need what it loads
Gateway = Callable[[], JavaGateway]
_EXAMPLE = "See the example in docs/scan.md."
# A worker's error arrives as text: the last line of its trace is `kafka_rollout.….TransientError: sentence`.
_WORKERS_SENTENCE = re.compile(r"^(?:kafka_rollout[\w.]*)\.\w+Error: (.+)$", re.MULTILINE)
# The cause of this cause only says "error=2, No such file or directory".
_NO_PROGRAM = re.compile(r'Cannot run program "([^"\n]+)"')


class _OneSentenceParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message[:1].upper()}{message[1:]}.", remedy="See --help.")


def read_request(file: Path) -> ScanRequest:
    """Return the request in the job file. Raises UserError."""
    try:
        data = json.loads(read_regular(file))
        request = from_json(ScanRequest, data)
    except OSError as error:
        raise UserError(
            f"The job file {file} cannot be read: {error.strerror}.",
            remedy="Name a file with --job that the user of the Spark job can read.",
        ) from None
    except ValueError as error:
        raise UserError(f"The job file {file} is not a scan request: {_first(error)}", remedy=_EXAMPLE) from None
    if unknown := data.keys() - {field.name for field in fields(ScanRequest)}:
        raise UserError(f"The job file {file} has unknown keys: {', '.join(sorted(unknown))}.", remedy=_EXAMPLE)
    if bool(request.bootstrap_servers) == bool(request.log_dirs):
        raise UserError(f"The job file {file} must have either bootstrap_servers or log_dirs.", remedy=_EXAMPLE)
    return request


def _first(error: ValueError) -> str:
    """The first problem, in one sentence. pydantic's text has a line for each field."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error}."
    problem = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": str(error)}
    place = ".".join(map(str, problem["loc"]))
    return f"{place}: {problem['msg']}." if place else f"{problem['msg']}."


def main(arguments: Sequence[str], gateway: Gateway) -> int:
    parser = _OneSentenceParser(prog="scan_coordinator_logs", description=__doc__.splitlines()[0])
    parser.add_argument("--job", type=Path, required=True, metavar="FILE", help="JSON file of a ScanRequest")
    parser.add_argument("--problem", type=Path, metavar="FILE", help="file that gets the sentence of an error")
    parser.add_argument("--without-spark", action="store_true", help="end with code 4 if Spark is needed")
    problem_file: Path | None = None
    try:
        options = parser.parse_args(arguments)
        problem_file = options.problem
        return _scan(read_request(options.job), gateway, without_spark=options.without_spark)
    except RolloutError as error:
        code = error.exit_code if isinstance(error, UserError) else COULD_NOT_READ
        return _fail(str(error), code, problem_file)
    except Py4JNetworkError:
        stopped = "Spark's Java process stopped during the scan. Check the free memory, then scan again."
        return _fail(stopped, COULD_NOT_READ, problem_file)
    except (PySparkException, Py4JError) as error:
        return _fail(workers_sentence(str(error)), COULD_NOT_READ, problem_file)


def _fail(sentence: str, code: int, problem_file: Path | None) -> int:
    _say(f"error: {sentence}")
    if problem_file is not None:
        problem_file.write_text(sentence, encoding="utf-8")
    return code


def workers_sentence(trace: str) -> str:
    """The sentence of a worker's error in Spark's text; if there is none, Spark's root cause."""
    found = _WORKERS_SENTENCE.findall(trace)
    if found:
        return str(found[-1])
    lines = trace.splitlines()
    # py4j's first line only names the failed call; the Java exception follows after a colon.
    causes = [line.removeprefix(": ") for line in lines if line.startswith(": ")] or lines[:1]
    causes += [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    if missing := _NO_PROGRAM.search(trace):
        return (
            f"An executor has no {missing[1]}. Install the environment of this tool at the same path on every worker, "
            "or send it with `archives`, and set spark.pyspark.python."
        )
    return f"Spark failed: {causes[-1]}"


def _scan(request: ScanRequest, gateway: Gateway, *, without_spark: bool) -> int:
    folders = Settings.from_environment().catalogue_folders
    catalogue = load_catalogue(*folders)
    releases = sorted({*(request.releases or catalogue), *request.fail_on})
    for release in releases:
        catalogue.get(release)
    request = replace(request, releases=tuple(releases))
    security: Path | CarriedSecurity | None = request.security_file
    protection: dict[str, str] = {}
    can_be_small = request.spark_from_bytes > 0
    if not can_be_small:
        security, protection = _task_security(request.security_file, gateway)
    logs = _find_logs(request, catalogue, security)
    documents = Documents.load(folders, new_group_coordinator=logs.new_group_coordinator)
    if can_be_small and logs.log_bytes < request.spark_from_bytes:
        _compile_once()
        find = partial(_find_logs, request, catalogue, request.security_file)
        result = _read_again_if_replaced(None, request, documents, logs, find)
    elif without_spark:
        return NEEDS_SPARK
    else:
        if can_be_small:
            security, protection = _task_security(request.security_file, gateway)
            logs = logs.with_security(security)
        _say("starting Spark")
        spark = start_spark(gateway(), protection)
        try:
            find = partial(_find_logs, request, catalogue, security)
            result = _read_again_if_replaced(spark, request, documents, logs, find)
        finally:
            spark.stop()
    write_json(result, request.json_file)
    print(summary(result), file=sys.stderr if request.json_file == STANDARD_OUTPUT else sys.stdout)
    return 0 if all(result.is_proved_loadable(release) for release in request.fail_on) else VERDICT_FAILS


def _read_again_if_replaced(
    spark: SparkContext | None,
    request: ScanRequest,
    documents: Documents,
    logs: LogsToRead,
    find: Callable[[], LogsToRead],
) -> ScanResult:
    """Read the logs; once more, as `find` finds them, if the log cleaner has replaced a segment."""
    try:
        return _read(spark, request, documents, logs)
    except (PySparkException, Py4JError, SegmentGoneError) as error:
        if SegmentGoneError.__name__ not in f"{type(error).__name__}: {error}":
            raise
        _say("a segment was replaced during the scan; scanning again")
        return _read(spark, request, documents, find())


def _task_security(file: Path | None, gateway: Gateway) -> tuple[Path | CarriedSecurity | None, dict[str, str]]:
    """Return what the tasks get to connect to the brokers, and the Spark settings that protect it on the way.

    Local tasks read `file`. Tasks on other hosts get its content. A file without credentials is not needed.
    Raises UserError if Spark does not protect credentials.
    """
    if file is None:
        return None, {}
    security = ClientSecurity.from_file(file)
    if security.protocol is SecurityProtocol.PLAINTEXT:
        return None, {}
    configured = gateway().jvm.org.apache.spark.SparkConf(True)  # of spark-submit and spark-defaults.conf
    protection = protect_credentials({name: configured.get(name, "") for name in SETTINGS})
    return (CarriedSecurity.pack(security) if protection else file), protection


def _find_logs(request: ScanRequest, catalogue: Catalogue, security: Path | CarriedSecurity | None) -> LogsToRead:
    known = catalogue.coordinator_topics
    for topic in request.topics:
        if topic not in known:
            raise UserError(f"{topic} is not a coordinator log.", remedy=f"Coordinator logs: {', '.join(known)}.")
    if request.log_dirs:
        topics = request.topics or known
        logs = logs_in_directories(cluster=request.cluster, directories=request.log_dirs, topics=topics)
    else:
        logs = live_logs(
            cluster=request.cluster,
            bootstrap_servers=request.bootstrap_servers,
            security=security,
            topics=request.topics,
            known=known,
        )
        if logs.note and request.new_group_coordinator is None:
            _say(logs.note)
    if request.new_group_coordinator is not None:
        logs = replace(logs, new_group_coordinator=request.new_group_coordinator)
    if logs.new_group_coordinator:
        _say("3.8 and 3.9 are evaluated with their new group coordinator")
    _say(f"{len(logs.logs)} partitions, {logs.size} {logs.unit}")
    return logs


def _read(spark: SparkContext | None, request: ScanRequest, documents: Documents, logs: LogsToRead) -> ScanResult:
    with read_logs(spark, logs, documents.spec(request, logs), _say) as scanned:
        result = make_result(request, documents, logs, scanned)
        if request.parquet:
            write_parquet(result, scanned.owners(logs.names), request.parquet)
    return result


def start_spark(gateway: JavaGateway | None = None, protection: Mapping[str, str] | None = None) -> SparkContext:
    """The master comes from spark-submit. Workers import our packages from the same folders as the driver."""
    configuration = {
        "spark.app.name": "kafka-rollout: scan of coordinator logs",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "spark.python.daemon.module": WORKER_DAEMON,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(protection or {}),
    }
    spark = SparkContext(conf=SparkConf().setAll(list(configuration.items())), gateway=gateway)
    spark.setLogLevel("OFF")  # main prints one sentence for a worker's error; Spark would print its trace several times
    if (spark.master or "").startswith("local"):
        _compile_once()  # not every worker
    return spark


def _compile_once() -> None:
    if not COMPLETE.exists():
        from kafka_rollout_spark.decode import compile_kernel  # loads numba

        _say("compiling the kernel, once: about ten seconds")
        compile_kernel()


def summary(result: ScanResult) -> str:
    """One line: what was read, and the worst verdict of each release."""
    verdicts = ", ".join(f"{release} {verdict}" for release, verdict in result.standing.items())
    damaged = f"; {len(result.damage)} parts could not be read" if result.damage else ""
    return f"scan: {result.cluster}: {result.records} records in {len(result.logs)} partitions; {verdicts}{damaged}"


def _say(text: str) -> None:
    print(f"scan: {text}", file=sys.stderr, flush=True)
