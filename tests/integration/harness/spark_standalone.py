"""A standalone Spark cluster on loopback: its master and workers are processes with ports that were free."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.spark.submit import environment, spark_submit
from tests.paths import ROOT
from tests.waiting import wait_until

NOBODY = 65_534  # Spark requires a user with an entry in the password database
_REGISTERED = re.compile(r"Registering worker (\S+) ")  # more than once, if it had to ask again
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_PAGE = re.compile(r"started at (http://\S+)")
_SMALL = {"SPARK_DAEMON_MEMORY": "200m", "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
_START_S = 180

# The folders after "--" remain visible; the home and the /tmp of the tests do not.
_ANOTHER_HOST = f"""
set -e
mount --rbind / /mnt
mount -t tmpfs -o mode=755 tmpfs "$1"; mount -t tmpfs -o mode=1777 tmpfs /tmp; shift
while [ "$1" != -- ]; do mkdir -p "$1"; mount --rbind "/mnt$1" "$1"; shift; done; shift
exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups "$@"
"""


@dataclass(frozen=True, kw_only=True)
class StandaloneCluster:
    """`logs` and `processes`: of the master and of each worker."""

    address: str
    logs: tuple[Path, ...]
    processes: tuple[subprocess.Popen[bytes], ...]

    @property
    def pages(self) -> tuple[str, ...]:
        """The URLs of the web pages of the master and of each worker."""
        return tuple(_PAGE.findall(log.read_text())[-1] for log in self.logs)


def on_another_host(*visible: Path) -> list[str]:
    """The start of a command that runs as another user without the files of this one; empty if this is not root."""
    if os.geteuid() != 0:
        return []
    folders = map(str, (ROOT, sys.base_prefix, *visible))
    return ["unshare", "--mount", "sh", "-c", _ANOTHER_HOST, "sh", str(Path.home()), *folders, "--"]


@contextmanager
def standalone_cluster(
    folder: Path, variables: Mapping[str, str], *, workers: int = 1, worker_command: Sequence[str] = ()
) -> Iterator[StandaloneCluster]:
    """A master and workers with one core each. Logs are in `folder`. `worker_command`: it starts a worker."""
    settings = Settings.from_environment()
    variables = {**os.environ, **environment(settings), **_SMALL, "SPARK_LOCAL_IP": "127.0.0.1", **variables}
    processes: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack:

        def start(name: str, before: Sequence[str], *arguments: str) -> Path:
            log = folder / f"{name}.log"
            command = [*before, str(spark_submit().with_name("spark-class")), f"org.apache.spark.deploy.{arguments[0]}"]
            with log.open("wb") as out:
                process = subprocess.Popen(
                    [*command, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *arguments[1:]],
                    env=variables,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                )
            processes.append(process)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return log

        log = start("master", (), "master.Master")
        wait_until(lambda: bool(_STARTED.search(log.read_text())), _START_S)
        address = _STARTED.findall(log.read_text())[0]
        limits = ("--cores", "1", "--memory", "600m")
        logs = [
            start(f"worker-{number}", worker_command, "worker.Worker", *limits, address) for number in range(workers)
        ]
        wait_until(lambda: len(set(_REGISTERED.findall(log.read_text()))) == workers, _START_S)
        yield StandaloneCluster(address=address, logs=(log, *logs), processes=tuple(processes))
