"""A scan of a secured cluster by executors of another user that see no file of the driver."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urljoin

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.client.security.carried_security import credentials_file
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.coordinator_logs.scan import ScanRequest, ScanResult
from kafka_rollout.coordinator_logs.spark.submit import (
    configuration,
    prepare_job,
    scan_command,
    spark_submit,
)
from kafka_rollout.model.rights import READING
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout_spark.job import WORKER_DAEMON
from kafka_rollout_spark.kernel import CACHE
from tests.class_archives import ClassArchives
from tests.integration.conftest import MakeCluster
from tests.integration.harness.groups.committing import commit
from tests.integration.harness.security.secret_search import files_with, middle_of, watched_processes
from tests.integration.harness.security.secured import MUTUAL, READER, ROOT, SecuredCluster, mutual, oauth, scram
from tests.integration.harness.security.token_server import TokenServer, token_server
from tests.integration.harness.spark_standalone import (
    NOBODY,
    StandaloneCluster,
    on_another_host,
    standalone_cluster,
)

pytestmark = [pytest.mark.integration, pytest.mark.full]

OAUTH = "oauth-client"
PARTITIONS, COMMITS = 100, 850  # Spark merges the rows of this many offsets, not the driver
SPARK = """spark.authenticate true
spark.authenticate.secret {secret}
spark.network.crypto.enabled true
spark.network.crypto.cipher AES/GCM/NoPadding
spark.network.crypto.authEngineVersion 2
"""
LOG_EVERYTHING = """rootLogger.level = debug
rootLogger.appenderRef.all.ref = all
appender.all.type = Console
appender.all.name = all
appender.all.target = SYSTEM_ERR
appender.all.layout.type = PatternLayout
appender.all.layout.pattern = %p %c: %m%n%ex
"""
USERS = (READER, MUTUAL, OAUTH)


@dataclass(frozen=True, kw_only=True)
class World:
    """`executors`: all that the worker can write to, and its configuration."""

    secured: SecuredCluster
    tokens: TokenServer
    executors: Path
    spark: StandaloneCluster

    def of(self, user: str) -> tuple[ClusterSpec, ClientSecurity]:
        spec = self.secured.spec
        if user == OAUTH:
            return spec, oauth(self.secured.files, self.tokens, OAUTH)
        if user == MUTUAL:
            nodes = (replace(node, broker_address=self.secured.mutual_addresses[node.node_id]) for node in spec.nodes)
            return replace(spec, nodes=tuple(nodes)), mutual(self.secured.files, MUTUAL)
        return spec, scram(self.secured.files, user, self.secured.passwords[user])

    @property
    def planted(self) -> set[str]:
        key = middle_of((self.secured.files / f"{MUTUAL}.key").read_text())
        return {self.secured.passwords[READER], self.tokens.clients[OAUTH], key}


@pytest.fixture(scope="module")
def world(
    make_shared_cluster: MakeCluster, class_archives: ClassArchives, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    files, logs, executors = (tmp_path_factory.mktemp(name) for name in ("secured", "spark", "executors"))
    for folder in ("conf", "work", "local", "home"):
        (executors / folder).mkdir()
    (executors / "conf" / "spark-defaults.conf").write_text(SPARK.format(secret=secrets.token_hex(32)))
    (executors / "conf" / "log4j2.properties").write_text(LOG_EVERYTHING)
    if CACHE.exists():
        shutil.copytree(CACHE, executors / "numba" / CACHE.name)
    java = class_archives.java.parent.parent  # the Java of the archives is in a folder that only this user can read
    command = on_another_host(executors, java)
    if command:
        for path in (executors, *executors.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    variables = {
        "HOME": str(executors / "home"),
        "JAVA_HOME": str(java),
        "KAFKA_ROLLOUT_HOME": str(executors / "home"),
        "NUMBA_CACHE_DIR": str(executors / "numba"),
        "SPARK_CONF_DIR": str(executors / "conf"),
        "SPARK_LOCAL_DIRS": str(executors / "local"),
        "SPARK_WORKER_DIR": str(executors / "work"),
    }
    with token_server({OAUTH: f"secret-{secrets.token_hex(8)}"}) as tokens:
        secured = SecuredCluster.create(
            make_shared_cluster, "4.3.1", files, tokens=tokens, name="executors", layout="combined", size=1
        )
        secured.use_coordinators()
        for principal in (OAUTH, f"CN={MUTUAL}"):
            secured.allow(principal, READING)
        commit_many(secured)
        with standalone_cluster(logs, variables, worker_command=command) as spark:
            yield World(secured=secured, tokens=tokens, executors=executors, spark=spark)


def commit_many(secured: SecuredCluster) -> None:
    root, admin = scram(secured.files, ROOT, secured.passwords[ROOT]), secured.root()
    admin.create_topics([NewTopic("many", PARTITIONS)])["many"].result(60)
    client = {**root.confluent(), "bootstrap.servers": secured.spec.bootstrap_servers}
    consumer = Consumer({**client, "group.id": "many", "enable.auto.commit": False})
    for offset in range(COMMITS):
        commit(consumer, *(TopicPartition("many", number, offset) for number in range(PARTITIONS)))
    consumer.close()


@pytest.mark.parametrize("user", USERS)
def test_executors_find_what_this_machine_finds_and_leave_no_secret(world: World, tmp_path: Path, user: str) -> None:
    settings = replace(Settings.from_environment(), home=tmp_path / "home")
    spec, security = world.of(user)
    with watched_processes(world.planted, attributes=("cmdline", "environ")) as seen:
        result, output = scan_as_airflow_does(world, spec, security, settings, tmp_path)
    pages = [read_page(page, path) for page in world.spark.pages for path in ("/", "/json/")]
    configuration_page = re.search(r'href="([^"]*nvironment/?)"', pages[0])
    assert configuration_page, pages[0]
    pages.append(read_page(world.spark.pages[0], configuration_page[1]))
    assert "spark.network.crypto.enabled" in pages[-1]
    assert not [secret for secret in world.planted if secret in "".join((output, *pages))]
    assert not seen
    assert not files_with(world.planted, world.executors, kinds=(".conf",))
    assert not files_with(world.planted, tmp_path)
    assert not files_with(world.planted, world.spark.logs[0].parent, kinds=(".log",))
    events = [path.read_text() for path in (tmp_path / "events").rglob("*") if path.is_file()]
    assert "SparkListenerApplicationEnd" in "".join(events)
    assert list((world.executors / "work").glob("app-*/*/stderr")), "the executors ran elsewhere"

    _, here = scan_command(spec, settings, new_group_coordinator=None, security=security)
    assert replace(result, scanned_at=here.scanned_at) == here
    assert sum(kind.count for kind in here.classes) > PARTITIONS * COMMITS


def test_a_killed_executor_is_replaced_and_leaves_no_secret(world: World, tmp_path: Path) -> None:
    settings = replace(Settings.from_environment(), home=tmp_path / "home")
    spec, security = world.of(READER)
    with killed_executor(world.spark.processes[1]) as killed:
        result, _ = scan_as_airflow_does(world, spec, security, settings, tmp_path)
    assert killed, "no executor had a task"
    assert sum(kind.count for kind in result.classes) > PARTITIONS * COMMITS
    assert not files_with(world.planted, world.executors, kinds=(".conf",))


def test_without_authentication_in_spark_the_scan_is_refused_before_it_reads(world: World) -> None:
    spec, security = world.of(READER)
    said: list[str] = []
    settings = replace(Settings.from_environment(), spark_master=world.spark.address, spark_from_mib=0)
    with pytest.raises(UserError, match=r"spark\.authenticate and spark\.network\.crypto\.enabled are not both true"):
        scan_command(spec, settings, new_group_coordinator=None, security=security, on_progress=said.append)
    assert said == []


def scan_as_airflow_does(
    world: World, spec: ClusterSpec, security: ClientSecurity, settings: Settings, folder: Path
) -> tuple[ScanResult, str]:
    """Return the result and the output of spark-submit."""
    for name in ("events", "scratch"):
        (folder / name).mkdir()
    options: Mapping[str, str] = {
        **configuration(world.spark.address, folder / "scratch"),
        "spark.eventLog.compress": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.executor.memory": "500m",
    }
    command = [str(spark_submit()), "--master", world.spark.address]
    command += [word for key, value in options.items() for word in ("--conf", f"{key}={value}")]
    with credentials_file(settings.home, security) as file:
        assert file is not None
        if host := on_another_host(world.executors):
            assert subprocess.run([*host, "cat", str(file)], capture_output=True, check=False).returncode
        request = ScanRequest(
            cluster=spec.name,
            bootstrap_servers=spec.bootstrap_servers,
            json_file=folder / "scan.json",
            security_file=file,
        )
        job = prepare_job(request, settings, world.spark.address, folder / "scratch")
        done = subprocess.run(
            [*command, str(job.application), *job.arguments],
            env={**os.environ, **job.environment, "SPARK_CONF_DIR": str(world.executors / "conf")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=600,
        )
    assert done.returncode == 0, done.stdout[-5_000:]
    return job.result(), done.stdout


@contextmanager
def killed_executor(worker: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Kill the first executor that has a Python process, with its children. Yields the ids of the killed processes.

    The worker can have a zombie as a child: its start script can exec Java before it waited for a subshell.
    """
    killed: list[int] = []
    ends = threading.Event()

    def kill() -> None:
        while not killed and not ends.wait(0.05):
            with suppress(psutil.NoSuchProcess):
                children = psutil.Process(worker.pid).children(recursive=True)
                commands = [each.as_dict(["cmdline"], ad_value=()) for each in children]  # () of a zombie
                if any(WORKER_DAEMON in each["cmdline"] for each in commands):
                    for each in children:
                        killed.append(each.pid)
                        each.kill()

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        ends.set()
        thread.join()


def read_page(server: str, path: str) -> str:
    with urllib.request.urlopen(urljoin(server, path), timeout=60) as answer:  # noqa: S310 - a page of Spark
        return str(answer.read(), "utf-8")
