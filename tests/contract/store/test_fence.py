"""A run whose lease has ended changes nothing more, also in the middle of a call that takes long."""

from __future__ import annotations

import multiprocessing
import os
import signal
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from sqlalchemy import text, update

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.time_limits import CHANGE_WITHIN_S
from kafka_rollout.control.lock import FRESH_S, fence_cluster_ports, make_fence
from kafka_rollout.model.topology import ClusterSpec, HostCommand, NodeSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.store.leases import SqlChangeLock
from kafka_rollout.run.store.tables import leases
from tests.contract.store.conftest import Store
from tests.fakes.clock import FakeClock
from tests.fakes.cluster import FakeCluster
from tests.fakes.host import FakeHost
from tests.fakes.ports import fake_ports
from tests.postgres import Postgres
from tests.waiting import wait_until

DRAIN = "drain kafka-1"
NODE = NodeSpec(
    node_id=1,
    name="kafka-1",
    roles=frozenset({Role.BROKER}),
    broker_address="kafka-1:9092",
    service=ServiceSpec(host="kafka-1", before_stop=(HostCommand(command=DRAIN, timeout_s=3600.0),)),
)
STOP = "systemctl stop --no-block kafka.service"


def ports_of(lock: SqlChangeLock, host: FakeHost, home: Path) -> ClusterPorts:
    """The ports of run A, with the real runtime on hosts and the real lock."""
    clock = FakeClock()
    spec = ClusterSpec(name="demo", runtime="ssh_service", nodes=(NODE,))
    fence = make_fence(lock, spec.name, clock)
    runtime = SshServiceRuntime(spec, host, Release.parse, sleep=clock.sleep, monotonic=clock.monotonic, fence=fence)
    bench = fake_ports(FakeCluster(), home)
    return fence_cluster_ports(replace(bench, cluster=spec, runtime=runtime, lock=lock, clock=clock))


def take_over(store: Store) -> None:
    """Run A's connection is ended, and its lease is over. Run B acts."""
    database = store.database()
    with database.begin() as connection:
        connection.execute(update(leases).values(expires_at=0.0))
        if not database.is_sqlite:
            connection.execute(text("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"))
    other = store.lock()
    other.acquire("demo", "run-B", "upgrade", for_s=600)
    if not database.is_sqlite:  # a file lock cannot be lost while its process lives
        with other.acting("demo", "run-B", "Replacing node 2"):
            other.check_acting("demo")


@pytest.mark.parametrize("at", [DRAIN, "systemctl show"])
def test_a_run_that_loses_its_lease_during_a_stop_does_not_stop_the_node(store: Store, tmp_path: Path, at: str) -> None:
    lock, host = store.lock(), FakeHost()
    ports = ports_of(lock, host, tmp_path / "bench")
    lock.acquire("demo", "run-A", "upgrade", for_s=600)

    def lose(line: str) -> None:
        if at in line:
            host.on_command = lambda line: None
            take_over(store)

    with lock.acting("demo", "run-A", "Replacing node 1"):
        if at == DRAIN:
            host.on_command = lose
            ports.runtime.prepare_stop(NODE)
            assert host.history == [DRAIN]
        host.on_command = lose
        with pytest.raises((RefusedError, TransientError)):
            ports.runtime.stop(NODE, deadline_s=180)
    assert STOP not in host.history
    assert host.pid == 50


def test_a_process_that_is_paused_before_a_stop_does_not_stop_the_node_afterwards(store: Store, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def stop() -> None:
        lock, host = store.lock(), FakeHost()
        ports = ports_of(lock, host, tmp_path / "bench")
        lock.acquire("demo", "run-A", "upgrade", for_s=600)

        def pause(line: str) -> None:
            if DRAIN in line:
                theirs.send("drains")
                theirs.recv()

        host.on_command = pause
        with lock.acting("demo", "run-A", "Replacing node 1"):
            ports.runtime.prepare_stop(NODE)
            try:
                ports.runtime.stop(NODE, deadline_s=180)
            except RefusedError as error:
                theirs.send((host.history, host.pid, error.sentence))
            else:
                theirs.send((host.history, host.pid, ""))

    process = context.Process(target=stop)
    process.start()
    assert process.pid is not None
    assert ours.recv() == "drains"
    os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, 60)
    with store.database().begin() as connection:
        connection.execute(update(leases).values(expires_at=0.0))
    other = store.lock()
    other.acquire("demo", "run-B", "upgrade", for_s=600)
    with pytest.raises(TransientError, match="another process changes"), other.acting("demo", "run-B", "Replacing"):
        pass
    ours.send("go on")
    os.kill(process.pid, signal.SIGCONT)
    history, pid, sentence = ours.recv()
    process.join()
    assert (history, pid) == ([DRAIN], 50)
    assert "run run-B holds it" in sentence


@pytest.mark.full
def test_a_database_that_does_not_answer_ends_the_action(postgres: Postgres, tmp_path: Path) -> None:
    store = Store(url=postgres.create_upgraded_database(), home=tmp_path)
    lock, host = store.lock(answer_s=0.5), FakeHost()
    ports = ports_of(lock, host, tmp_path / "bench")
    lock.acquire("demo", "run-A", "upgrade", for_s=600)
    with lock.acting("demo", "run-A", "Replacing node 1"):
        with store.database().begin() as connection:
            backend = int(connection.execute(text("SELECT pid FROM pg_locks WHERE locktype = 'advisory'")).scalar_one())
        os.kill(backend, signal.SIGSTOP)  # its kernel acknowledges every packet
        try:
            with pytest.raises(TransientError, match="did not respond"):
                ports.runtime.stop(NODE, deadline_s=180)
            with pytest.raises(TransientError, match=r"The connection to the database .* was lost"):
                ports.runtime.stop(NODE, deadline_s=180)
        finally:
            os.kill(backend, signal.SIGCONT)
    assert host.history == []


def test_a_lease_that_ends_while_a_change_can_be_on_its_way_is_too_short(store: Store) -> None:
    lock = store.lock()
    lock.acquire("demo", "run-A", "upgrade", for_s=CHANGE_WITHIN_S + 1)
    with lock.acting("demo", "run-A", "Replacing node 1"):
        lock.check_acting("demo")
        store.clock.now += 1
        with pytest.raises(RefusedError):
            lock.check_acting("demo")


@pytest.mark.parametrize(("slow_answers", "is_late"), [(2, False), (3, True)])
def test_an_answer_of_the_database_that_is_old_when_it_arrives_allows_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, slow_answers: int, is_late: bool
) -> None:
    """The process can have been paused after the answer."""
    lock, clock = store.lock(), FakeClock()
    check, asked = lock.check_acting, [0]

    def check_slowly(cluster: str) -> None:
        check(cluster)
        asked[0] += 1
        clock.sleep(FRESH_S + 1 if asked[0] <= slow_answers else 0.0)

    monkeypatch.setattr(lock, "check_acting", check_slowly)
    lock.acquire("demo", "run-A", "upgrade", for_s=600)
    with lock.acting("demo", "run-A", "Replacing node 1"):
        late = pytest.raises(TransientError, match="did not confirm the lock of cluster demo within 5 s")
        with late if is_late else nullcontext():
            make_fence(lock, "demo", clock)()
    assert asked == [3]
