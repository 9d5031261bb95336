"""Airflow with the CeleryExecutor, and Spark's standalone cluster, on three hosts of a test bed.

The control host is the network of the test itself: `PrivateAirflow`, PostgreSQL, Redis and Spark's master. Each worker
host has its own network, host name, processes, home and /tmp, with a Celery worker and a Spark worker. Below /tmp it
sees only the folders that docs/operations.md lists as shared.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from cryptography.fernet import Fernet

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.spark.submit import environment as spark_environment
from kafka_rollout.coordinator_logs.spark.submit import spark_submit
from tests.integration.harness.airflow.server import PrivateAirflow
from tests.postgres import Postgres, running_postgres
from tests.waiting import wait_until
from tools.demo.folder import PROJECT_ROOT
from tools.testbed import network
from tools.testbed.bed import Bed

CELERY = PROJECT_ROOT / ".celery"
CONTROL = network.BRIDGE_ADDRESS
_FIRST_NUMBER = 100  # of a worker host's address
_START_S = 300.0
_SMALL = {"SPARK_DAEMON_MEMORY": "200m", "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}

# Process 1 of a worker host. $1: host name, $2: address; the rest: folders that it shares with the other hosts.
_HOST = f"""
set -e
hostname "$1"; address=$2; shift 2
mount --rbind / /mnt; mount -t tmpfs tmpfs /tmp
for folder in "$@"; do mkdir -p "$folder"; mount --bind "/mnt$folder" "$folder"; done
mkdir "$HOME"; cd "$HOME"
worker="org.apache.spark.deploy.worker.Worker --host $address --webui-port 0 --cores 1 --memory 1g"
{{spark}} $worker spark://{CONTROL}:7077 &
{{python}} -m airflow celery worker --concurrency 2
"""


def missing() -> str:
    """Return one sentence if the programs of these hosts are not installed; empty if they are."""
    installed = CELERY.is_dir() and shutil.which("redis-server")
    return "" if installed else "There is no Redis or no CeleryExecutor: run `make setup-celery` once."


@dataclass(frozen=True, kw_only=True)
class WorkerHost:
    """`process`: its death ends all processes of the host."""

    name: str
    bed: str
    airflow: PrivateAirflow
    process: subprocess.Popen[bytes]
    log: Path

    def lose(self) -> None:
        """End the host as a loss of power does: no packet leaves it any more, not even the end of a connection."""
        network.cut_link(self.bed, self.name)
        self.end()

    def end(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def take_tasks(self, takes: bool) -> None:
        """Let the Celery worker take new tasks, or no longer."""
        words = ["add-queue" if takes else "remove-queue", "--queues", "default", "-H", f"celery@{self.name}"]
        subprocess.run(
            [sys.executable, "-m", "airflow", "celery", *words], env=_variables(self.airflow), check=True, timeout=120
        )


@contextmanager
def control_services(folder: Path) -> Iterator[Postgres]:
    """PostgreSQL, Redis and Spark's master on the control host; their logs are in `folder`."""
    variables = {**os.environ, **spark_environment(Settings.from_environment()), **_SMALL, "SPARK_LOCAL_IP": CONTROL}
    with ExitStack() as stack, running_postgres(CONTROL) as postgres:

        def start(name: str, *command: str | Path) -> None:
            with (folder / f"{name}.log").open("wb") as out:
                process = subprocess.Popen(
                    command, env=variables, cwd=folder, stdout=out, stderr=out, start_new_session=True
                )
            stack.callback(process.wait)
            stack.callback(process.kill)

        start("redis", "redis-server", "--bind", CONTROL, "--save", "", "--protected-mode", "no")
        master = ("org.apache.spark.deploy.master.Master", "--host", CONTROL, "--port", "7077", "--webui-port", "0")
        start("spark-master", spark_submit().with_name("spark-class"), *master)
        yield postgres


def airflow_settings(postgres: Postgres, shared: Path) -> dict[str, str]:
    """The settings of Airflow and of this tool that all hosts share; `shared`: a folder that they share."""
    airflow = postgres.create_database().replace("postgresql://", "postgresql+psycopg://")
    return {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": airflow,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": airflow.replace("+psycopg", "+asyncpg"),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__CORE__FERNET_KEY": Fernet.generate_key().decode(),
        "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
        "AIRFLOW__CELERY__BROKER_URL": f"redis://{CONTROL}:6379/0",
        "AIRFLOW__CELERY__RESULT_BACKEND": f"db+{airflow}",
        "AIRFLOW__CELERY__OPERATION_TIMEOUT": "30",  # one second is too short on a busy machine
        "AIRFLOW__API__HOST": "0.0.0.0",  # noqa: S104 — of the test bed
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(shared / "task-logs"),
        "AIRFLOW_CONN_SPARK_DEFAULT": f'{{"conn_type": "spark", "host": "spark://{CONTROL}", "port": 7077}}',
        "KAFKA_ROLLOUT_DATABASE": postgres.create_upgraded_database(),
        "KAFKA_ROLLOUT_ARTIFACTS": str(shared),
        "PYTHONPATH": os.pathsep.join((str(CELERY), *filter(None, (os.environ.get("PYTHONPATH"),)))),
    }


def use_celery(airflow: PrivateAirflow) -> None:
    """Start the scheduler again with its own executor: `airflow standalone` replaces every executor of other hosts."""
    scheduler = psutil.Process(airflow.component_pid("scheduler"))
    scheduler.terminate()
    # `airflow standalone` does not wait for it.
    wait_until(lambda: not scheduler.is_running() or scheduler.status() == psutil.STATUS_ZOMBIE, _START_S)
    airflow.start_component("scheduler")


@contextmanager
def worker_host(
    bed: Bed, airflow: PrivateAirflow, number: int, shared: Sequence[Path], log: Path
) -> Iterator[WorkerHost]:
    """A worker host that has registered with Celery and with Spark's master."""
    name, address = f"airflow-{number}", network.address(_FIRST_NUMBER + number)
    variables = {
        **_variables(airflow),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://{CONTROL}:{airflow.server.port}/execution/",
        "HOME": "/tmp/home",  # noqa: S108 — in a /tmp of its own
        "AIRFLOW_HOME": "/tmp/home/airflow",  # noqa: S108
        "KAFKA_ROLLOUT_HOME": "/tmp/home/kafka-rollout",  # noqa: S108
        "KAFKA_ROLLOUT_CACHE": str(Settings.from_environment().cache),
        "SPARK_LOCAL_IP": address,
        "SPARK_WORKER_DIR": "/tmp/home/spark",  # noqa: S108
    }
    script = _HOST.format(spark=spark_submit().with_name("spark-class"), python=sys.executable)
    enter = ["ip", "netns", "exec", network.add_namespace(bed.bed, name, _FIRST_NUMBER + number)]
    isolated = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*enter, *isolated, name, address, *map(str, shared)],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # tests/leftovers.py
        )
    found = WorkerHost(name=name, bed=bed.bed, airflow=airflow, process=process, log=log)

    def registered() -> bool:
        text = log.read_text(errors="replace")
        assert process.poll() is None, text
        return f"celery@{name} ready" in text and "Successfully registered with master" in text

    try:
        wait_until(registered, _START_S)
        yield found
    finally:
        found.end()


def _variables(airflow: PrivateAirflow) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    spark = spark_environment(Settings.from_environment())
    return {**os.environ, **spark, **_SMALL, **airflow.server.environment, "PATH": path}
