"""One roll whose tasks run on two Airflow workers with different user ids and home folders, on PostgreSQL.

Worker A is the scheduler of `airflow standalone`, as root. Worker B is a second scheduler under another user id. They
share the database, the artifacts and the inventory, and Airflow gives a task to either of them. The runtime
local_process stops and starts processes of the other user id and writes into its files, so worker B has four
capabilities, and the nodes' folders are open to both (docs/operations.md). Kafka checks its files with access(2), which
ignores capabilities.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from cryptography.fernet import Fernet

from kafka_rollout.base.system.free_ports import free_ports
from kafka_rollout.base.system.sessions import start_session, wait_for_exit
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.nodes.runtimes.local_process import LocalProcessRuntime
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.run.store.artifacts import Artifacts
from kafka_rollout.run.store.database import Database
from kafka_rollout.run.store.history import SqlRunStore
from tests.integration.conftest import end_cluster
from tests.integration.harness.airflow.server import APPROVER, PrivateAirflow, all_run, nothing_lost
from tests.postgres import Postgres
from tools.demo.folder import session_members
from tools.demo.local_cluster import LocalCluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a worker with another user id"),
]

USER_B = "daemon"  # any user with an entry in /etc/passwd: without one, Spark has no home folder
UID_B = pwd.getpwnam(USER_B).pw_uid
CAPABILITIES = "+kill,+dac_override,+chown,+fowner"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user id can reach; pytest's own are private."""
    found = Path(tempfile.mkdtemp(prefix="kafka-rollout-two-workers-", dir="/tmp"))
    before = os.umask(0)
    found.chmod(0o755)
    try:
        yield found
    finally:
        os.umask(before)
        end_cluster(found)
        shutil.rmtree(found, ignore_errors=True)


@pytest.fixture
def shared(postgres: Postgres, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Settings that both workers share."""
    artifacts = folder / "artifacts"
    artifacts.mkdir()
    airflow = postgres.create_database().replace("postgresql://", "postgresql+psycopg://")
    database = postgres.create_upgraded_database()
    monkeypatch.setenv("KAFKA_ROLLOUT_DATABASE", database)
    return {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": airflow,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": airflow.replace("+psycopg", "+asyncpg"),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__CORE__FERNET_KEY": Fernet.generate_key().decode(),
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "KAFKA_ROLLOUT_DATABASE": database,
        "KAFKA_ROLLOUT_ARTIFACTS": f"file://{artifacts}",
        "KAFKA_ROLLOUT_CACHE": str(_reachable_cache(folder)),
    }


def _reachable_cache(folder: Path) -> Path:
    """A copy of the cached releases: root's home is closed to other user ids, and Spark checks with access(2)."""
    cache = folder / "cache"
    subprocess.run(["cp", "-a", str(Settings.from_environment().cache), str(cache)], check=True)
    return cache


@contextmanager
def worker_b(airflow: PrivateAirflow, folder: Path) -> Iterator[int]:
    """A scheduler with its own user id, homes and log server; its process id."""
    home = folder / "worker-b"
    home.mkdir()
    os.chown(home, UID_B, UID_B)
    own = {
        "HOME": str(home),
        "AIRFLOW_HOME": str(home / "airflow"),
        "KAFKA_ROLLOUT_HOME": str(home / "kafka-rollout"),
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_ports(1)[0]),
        "USER": USER_B,
        "LOGNAME": USER_B,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    switch = ["setpriv", "--reuid", str(UID_B), "--regid", str(UID_B), "--clear-groups"]
    switch += [f"--inh-caps={CAPABILITIES}", f"--ambient-caps={CAPABILITIES}"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, **airflow.server.environment, **own}
    command = ["sh", "-c", 'umask 000; exec "$@"', "sh", *switch, sys.executable, "-m", "airflow", "scheduler"]
    process = start_session(command, folder / "worker-b.log", environment=environment, cwd=home)
    try:
        yield process.pid
    finally:
        own_processes = session_members({process.pid})
        process.terminate()
        for left in wait_for_exit(own_processes, 10.0):
            left.kill()
        process.wait(30)


def test_a_roll_on_two_workers_with_different_user_ids_and_homes_succeeds(
    shared: dict[str, str], release_cache: ReleaseCache, folder: Path
) -> None:
    with PrivateAirflow.open(folder / "airflow", shared) as airflow, worker_b(airflow, folder) as pid:
        cluster = LocalCluster.create(folder, "two-workers", Release.parse("3.9.1"), cache=release_cache)
        airflow.add(cluster)
        wait_for_schedulers(airflow, 2)
        run = airflow.trigger(cluster, "4.3.1", finalize="later")
        run.approve("approve_plan")
        run.wait_success()

        all_run(cluster, "4.3.1")
        assert isinstance(cluster.runtime, LocalProcessRuntime)
        users = {psutil.Process(cluster.runtime.process(node).pid).uids().real for node in cluster.spec.nodes}
        tasks = run.client.tasks(run.dag_id, run.run_id)
        by_user: dict[str, list[str]] = {}
        for task_id, task in tasks.items():
            if task_id.startswith("roll.replace[") and task["state"] == "success":
                by_user.setdefault(str(task["unixname"]), []).append(task_id)
        print({user: len(done) for user, done in by_user.items()}, users)
        assert len(by_user) == 2, "one worker executed all replacements"
        assert USER_B in by_user
        assert users <= {0, UID_B}
        assert (uid_of(airflow.component_pid("scheduler")), uid_of(pid)) == (0, UID_B)
        assert home_of(pid) != home_of(airflow.component_pid("scheduler"))

        store = SqlRunStore(
            Database(shared["KAFKA_ROLLOUT_DATABASE"]),
            Artifacts(shared["KAFKA_ROLLOUT_ARTIFACTS"]),
            airflow.home,
            "two-workers",
            run.run_id,
        )
        report = store.attachment("report.json")
        assert report["outcome"] == "rolled_not_finalized"
        nothing_lost(report["traffic"], consumers=("classic",))
        assert not store.find_damage()
        page = (
            airflow.client(APPROVER)
            .http()
            .get(f"/kafka-rollout/dags/{run.dag_id}/report", params={"run_id": run.run_id})
        )
        assert page.status_code == 200
        assert run.run_id in page.text


def uid_of(pid: int) -> int:
    return psutil.Process(pid).uids().real


def home_of(pid: int) -> str:
    return psutil.Process(pid).environ()["KAFKA_ROLLOUT_HOME"]


def wait_for_schedulers(airflow: PrivateAirflow, count: int) -> None:
    deadline = time.monotonic() + 600
    while True:
        jobs = airflow.client().get("/jobs", job_type="SchedulerJob", is_alive=True)["jobs"]
        if len(jobs) >= count:
            return
        assert time.monotonic() < deadline, f"{len(jobs)} schedulers run, not {count}"
        time.sleep(1)
