"""Spark job: the releases that can load the coordinator logs, of a running cluster or in log directories.

    spark-submit --master local[2] application/scan_coordinator_logs.py --cluster NAME --bootstrap-servers HOST:PORT
    spark-submit --master local[2] application/scan_coordinator_logs.py --cluster NAME --log-dir DIR --log-dir DIR

Exit code 0 for any verdict; 3 with --fail-on R if release R cannot load a log; 2 for bad input; 1 if the logs could not
be read. PYTHONPATH must contain plugins/ and spark_jobs/ (adapters.coordinator_logs.spark_submit sets it).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from kafka_rollout.base.errors import RolloutError, UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.executor_credentials import SETTINGS, protect_credentials
from kafka_rollout.coordinator_logs.reading.segments import SegmentGoneError
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.kafka.client.security.carried_security import CarriedSecurity
from kafka_rollout.kafka.client.security.client_security import ClientSecurity, SecurityProtocol
from kafka_rollout.kafka.documents.definitions import load_schemas
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Catalogue, Release
from kafka_rollout_spark.kernel.cache import COMPLETE
from kafka_rollout_spark.kernel.spec import ScanDepth
from kafka_rollout_spark.result.output import STANDARD_OUTPUT, write_json, write_parquet
from kafka_rollout_spark.scan import Question, make_result, read_logs
from kafka_rollout_spark.source.ranges import LogsToRead, live_logs, logs_in_directories

COULD_NOT_READ, VERDICT_FAILS = 1, 3
WORKER_DAEMON = "kafka_rollout_spark.worker_daemon"  # not imported here: the driver does not need what it loads
Gateway = Callable[[], JavaGateway | None]  # None: SparkContext starts the JVM
# A worker's error arrives as text: the last line of its trace is `kafka_rollout.….TransientError: sentence`.
_WORKERS_SENTENCE = re.compile(r"^(?:kafka_rollout[\w.]*)\.\w+Error: (.+)$", re.MULTILINE)


class _OneSentenceParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message[:1].upper()}{message[1:]}.", remedy="See --help.")


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _OneSentenceParser(prog="scan_coordinator_logs", description=__doc__.splitlines()[0])
    parser.add_argument("--cluster", required=True, help="name of the cluster, for the output")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="brokers as host:port,…")
    where.add_argument("--log-dir", type=Path, action="append", help="a log directory, or one partition's folder")
    parser.add_argument("--security-file", type=Path, help="credentials for a secured cluster; mode 0600")
    parser.add_argument("--topic", action="append", default=[], help="a coordinator log (default: all that exist)")
    parser.add_argument(
        "--release", action="append", default=[], help="a release to evaluate (default: all of the catalogue)"
    )
    parser.add_argument(
        "--fail-on", action="append", default=[], metavar="RELEASE", help="exit code 3 if its verdict is fails"
    )
    parser.add_argument("--live", action="store_true", help="count current records separately from superseded ones")
    parser.add_argument("--classes-only", action="store_true", help="count records by key and value version only")
    parser.add_argument(
        "--new-group-coordinator", action="store_true", help="evaluate 3.8 and 3.9 with their new group coordinator"
    )
    parser.add_argument("--json", help="file for the result; - is standard output")
    parser.add_argument("--parquet", type=Path, help="folder for the result as Parquet")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str], gateway: Gateway = lambda: None) -> int:
    try:
        return _scan(parse_arguments(arguments), gateway)
    except RolloutError as error:
        _say(f"error: {error}")
        return error.exit_code if isinstance(error, UserError) else COULD_NOT_READ
    except Py4JNetworkError:
        _say("error: Spark's Java process stopped during the scan. Check the free memory, then scan again.")
        return COULD_NOT_READ
    except (PySparkException, Py4JError) as error:
        _say(f"error: {workers_sentence(str(error))}")
        return COULD_NOT_READ


def workers_sentence(trace: str) -> str:
    """The sentence of a worker's error in Spark's text; if there is none, Spark's root cause."""
    found = _WORKERS_SENTENCE.findall(trace)
    if found:
        return str(found[-1])
    lines = trace.splitlines()
    # py4j's first line only names the failed call; the Java exception follows after a colon.
    causes = [line.removeprefix(": ") for line in lines if line.startswith(": ")] or lines[:1]
    causes += [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return f"Spark failed: {causes[-1]}"


def _scan(options: argparse.Namespace, gateway: Gateway) -> int:
    folders = Settings.from_environment().catalogue_folders
    catalogue = load_catalogue(*folders)
    must_load = [Release.parse(text) for text in options.fail_on]
    releases = sorted({Release.parse(text) for text in options.release}) or list(catalogue)
    releases = sorted({*releases, *must_load})
    for release in releases:
        catalogue.get(release)
    security, protection = _task_security(options.security_file, gateway)
    logs = _find_logs(options, catalogue, security)
    question = Question(
        catalogue=catalogue.configured(new_group_coordinator=logs.new_group_coordinator),
        schemas=load_schemas(*folders, new_group_coordinator=logs.new_group_coordinator),
        releases=releases,
        depth=ScanDepth.CLASSES if options.classes_only else ScanDepth.DEEP,
        live=options.live,
    )
    _say("starting Spark")
    spark = start_spark(gateway(), protection)
    try:
        try:
            result = _read(spark, question, logs, options.parquet)
        except (PySparkException, Py4JError, SegmentGoneError) as error:
            if SegmentGoneError.__name__ not in f"{type(error).__name__}: {error}":
                raise
            _say("a segment was replaced during the scan; scanning again")
            logs = _find_logs(options, catalogue, security)
            result = _read(spark, question, logs, options.parquet)
    finally:
        spark.stop()
    if options.json:
        write_json(result, options.json)
    print(summary(result), file=sys.stderr if options.json == STANDARD_OUTPUT else sys.stdout)
    return 0 if all(result.is_proved_loadable(release) for release in must_load) else VERDICT_FAILS


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
    SparkContext._ensure_initialized(gateway=gateway())
    configured = SparkConf()
    protection = protect_credentials({name: configured.get(name) or "" for name in SETTINGS})
    return (CarriedSecurity.pack(security) if protection else file), protection


def _find_logs(
    options: argparse.Namespace, catalogue: Catalogue, security: Path | CarriedSecurity | None
) -> LogsToRead:
    known = catalogue.coordinator_topics
    for topic in options.topic:
        if topic not in known:
            raise UserError(f"{topic} is not a coordinator log.", remedy=f"Coordinator logs: {', '.join(known)}.")
    if options.log_dir:
        topics = options.topic or known
        logs = logs_in_directories(
            cluster=options.cluster,
            directories=options.log_dir,
            topics=topics,
            new_group_coordinator=options.new_group_coordinator,
        )
    else:
        logs = live_logs(
            cluster=options.cluster,
            bootstrap_servers=options.bootstrap_servers,
            security=security,
            topics=options.topic,
            known=known,
        )
        if logs.note and not options.new_group_coordinator:
            _say(logs.note)
        logs = replace(logs, new_group_coordinator=logs.new_group_coordinator or options.new_group_coordinator)
    if logs.new_group_coordinator:
        _say("3.8 and 3.9 are evaluated with their new group coordinator")
    _say(f"{len(logs.logs)} partitions, {logs.size} {logs.unit}")
    return logs


def _read(spark: SparkContext, question: Question, logs: LogsToRead, parquet: Path | None) -> ScanResult:
    with read_logs(spark, logs, question.spec(logs), _say) as scanned:
        result = make_result(question, logs, scanned)
        if parquet:
            write_parquet(result, scanned.owners(), parquet)
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
    if (spark.master or "").startswith("local") and not COMPLETE.exists():
        from kafka_rollout_spark.decode.compile_kernel import compile_kernel  # loads numba

        _say("compiling the kernel, once: about ten seconds")
        compile_kernel()  # not by every worker
    return spark


def summary(result: ScanResult) -> str:
    """One line: what was read, and the worst verdict of each release."""
    verdicts = ", ".join(f"{release} {verdict}" for release, verdict in result.standing.items())
    damaged = f"; {len(result.damage)} parts could not be read" if result.damage else ""
    return f"scan: {result.cluster}: {result.records} records in {len(result.logs)} partitions; {verdicts}{damaged}"


def _say(text: str) -> None:
    print(f"scan: {text}", file=sys.stderr, flush=True)
