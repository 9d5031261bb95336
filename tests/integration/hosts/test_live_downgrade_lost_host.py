"""The host of a controller is lost while a live downgrade has stopped the controllers: the others serve again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.adapters.kafka.admin import KafkaAdmin
from kafka_rollout.domain.model.errors import RolloutError
from kafka_rollout.domain.run.events import has
from kafka_rollout.domain.run.offline_events import LiveLowered
from tests.beds import MakeBed
from tests.integration.harness.shell import APPROVED, QUICK, Shell
from tests.integration.hosts.test_faults_over_ssh import WORKER, completed, unit
from tests.waiting import wait_until
from tools.testbed.bed import Bed
from tools.testbed.hosts import Host

pytestmark = [pytest.mark.integration, pytest.mark.timeout(2400)]

CONTROLLERS = (101, 102, 103)
WORDS = (
    "downgrade",
    "--cluster",
    "testbed",
    "--to",
    "4.2.1",
    "--where-refused",
    "live",
    *QUICK,
    *APPROVED,
)


def host_of(bed: Bed, node_id: int) -> Host:
    return bed.hosts[[node.node_id for node in bed.spec.nodes].index(node_id)]


@contextmanager
def cut(host: Host) -> Iterator[None]:
    with host.dropping(f"ip saddr {WORKER}"):
        yield


@contextmanager
def rebooted(host: Host) -> Iterator[None]:
    host.reboot()
    yield


def seconds_until_others_serve(bed: Bed, lost: int) -> float:
    """Wait until the controllers without the lost one have a leader and run; return the time since the call."""
    others = replace(bed.spec, nodes=tuple(node for node in bed.spec.nodes if node.node_id != lost))
    began = time.monotonic()

    def serve() -> bool:
        try:
            admin = KafkaAdmin(others)
            try:
                has_leader = admin.quorum(through_brokers=False).leader_id >= 0
            finally:
                admin.close()
        except RolloutError:
            return False
        return has_leader and all(unit(host_of(bed, one), "active")() for one in CONTROLLERS if one != lost)

    wait_until(serve, 180)
    return time.monotonic() - began


def lose_when_it_stops(
    make_bed: MakeBed, folder: Path, lost: int, fault: Callable[[Host], AbstractContextManager[None]], *, finish: bool
) -> None:
    bed = make_bed("4.3.1", others=("4.2.1",), size=6)
    shell, host = Shell(folder, bed), host_of(bed, lost)
    options = ("--traffic",) if finish else ()
    command = shell.start(*WORDS, *options)
    try:
        stops = unit(host, "deactivating", "inactive", "failed")
        wait_until(lambda: stops() or command.poll() is not None, 300, every_s=0.05)
        assert command.poll() is None, (folder / "killed.log").read_text()
        with fault(host):
            print(f"leader after {seconds_until_others_serve(bed, lost):.1f} s")
            if not finish:
                return
        code = command.wait(900)
    finally:
        if command.poll() is None:
            command.send_signal(signal.SIGINT)
            command.wait(120)
    if code != 0:
        completed(shell, [*WORDS, *options, "--run", shell.newest_run().run_id])
    assert has(shell.newest_run().events(), LiveLowered)


def test_ssh_to_a_controller_is_cut_when_it_stops_and_the_others_serve(make_bed: MakeBed, tmp_path: Path) -> None:
    lose_when_it_stops(make_bed, tmp_path, 101, cut, finish=False)


@pytest.mark.full
@pytest.mark.parametrize("fault", [cut, rebooted])
@pytest.mark.parametrize("lost", CONTROLLERS)
def test_with_the_host_back_the_downgrade_finishes_and_loses_no_record(
    make_bed: MakeBed, tmp_path: Path, lost: int, fault: Callable[[Host], AbstractContextManager[None]]
) -> None:
    lose_when_it_stops(make_bed, tmp_path, lost, fault, finish=True)
