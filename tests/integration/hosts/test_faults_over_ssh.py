"""Faults of hosts and networks during the step of a node: the run completes, and the test traffic loses no record.

Faults begin when the state of a unit is observed, in a thread of their own. No test depends on which command of the run
a fault interrupts.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import OfflineInstalled
from tests.integration.harness.cluster_contents import contents_kept
from tests.integration.harness.shell import PLANNED_ON_HOSTS, QUICK, Shell
from tests.of_cluster import set_in_file
from tests.testbeds import MakeBed
from tools.testbed.bed import DATA, Bed
from tools.testbed.hosts import Host
from tools.testbed.machine import TestbedError

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(3000)]

WORKER = "10.77.0.1"
CALLS = 4  # the first call and repetitions with --run
OLD, NEW = "4.2.1", "4.3.1"
# The connection to a host breaks while a command runs there, once for each line of the file.
CUT = """
import threading
from pathlib import Path
from kafka_rollout.nodes.runtimes.hosts.shells import SshShell
run, left = SshShell.run, Path({file!r})
def run_and_cut(self, host, command, **more):
    line = command if isinstance(command, str) else " ".join(command)
    parts = left.read_text().splitlines()
    found = next((part for part in parts if host == {host!r} and part in line), None)
    if found is not None:
        parts.remove(found)
        left.write_text("\\n".join(parts))
        transport = self._client(host).get_transport()
        threading.Timer(0.01 if found in parts else 0.04, transport.sock.close).start()
    return run(self, host, command, **more)
SshShell.run = run_and_cut
"""


def cutting(file: Path, host: Host, *parts: str) -> str:
    """Code that breaks the connection when a command has one of these parts; a part that is listed twice, twice."""
    file.write_text("\n".join(parts))
    return CUT.format(file=str(file), host=host.address)


class Fault(threading.Thread):
    """Acts once, when a condition is met."""

    def __init__(self, condition: Callable[[], bool], act: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.condition, self.act, self.over, self.error = condition, act, threading.Event(), ""
        self.cancelled = False
        self.start()

    def run(self) -> None:
        try:
            while not self.condition():
                if self.cancelled:
                    return
                time.sleep(0.05)
            self.act()
        except TestbedError as error:
            self.error = str(error)
        self.over.set()


def unit(host: Host, *states: str) -> Callable[[], bool]:
    show = ("systemctl", "show", "--property=ActiveState", "--value", "kafka.service")
    return lambda: host.run(*show).strip() in states


def upgrade(
    shell: Shell,
    bed: Bed,
    fault: Callable[[], Fault] | None = None,
    *,
    beforehand: str = "",
    options: Sequence[str] = (),
) -> None:
    """Upgrade the cluster during a fault; repeat the call until it completes."""
    words = [
        "upgrade",
        "--cluster",
        "testbed",
        "--to",
        NEW,
        *QUICK,
        *PLANNED_ON_HOSTS,
        "--no-scan",
        "--traffic",
    ]
    set_in_file(bed.inventory_path, gate_timeout_s=90.0, snapshot_interval_s=5.0)
    started = fault() if fault else None
    try:
        report = completed(shell, [*words, *options], started, beforehand=beforehand)
    finally:
        if started is not None:
            started.cancelled = True
    if started is not None:
        assert started.over.is_set(), "the fault did not happen"
        assert not started.error
    for host in bed.hosts:
        assert host.run("readlink", "/opt/kafka").strip() == f"/opt/kafka_2.13-{NEW}"
    print(report["sentence"], report["traffic"]["acknowledged"])


def completed(
    shell: Shell, words: Sequence[str], started: Fault | None = None, *, beforehand: str = "", calls: int = CALLS
) -> dict[str, Any]:
    """Call the command, and repeat it with its run until it completes; return the report."""
    done = shell(*words, beforehand=beforehand)
    run_id = shell.newest_run().run_id
    for _ in range(calls - 1):
        if done.returncode == 0:
            break
        print(f"exit code {done.returncode}: {done.stderr.splitlines()[-1:]}")
        if started is not None:
            assert started.over.wait(120), "the fault did not happen"
        done = shell(*words, "--run", run_id, beforehand=beforehand)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(Path(done.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] in {"finished", "rolled_not_finalized"}, report["sentence"]
    assert report["traffic"]["ok"], report["traffic"]
    assert report["traffic"]["acknowledged"] > 0
    return report


@pytest.fixture(scope="module")
def bed(make_bed: MakeBed) -> Bed:
    return make_bed("4.2.1", others=("4.3.1",), size=3)


@pytest.fixture
def shell(bed: Bed, tmp_path: Path) -> Shell:
    """The cluster runs the old release: its level was not raised by an earlier test."""
    bed.stop_kafka()
    for host in bed.hosts:
        host.run("ln", "-sfn", f"/opt/kafka_2.13-{OLD}", "/opt/kafka")
    bed.start_kafka()
    return Shell(tmp_path, bed)


@pytest.mark.parametrize("part", ["systemctl stop", "mv -T /opt", "systemctl start"])
def test_the_connection_breaks_during_a_stop_an_installation_or_a_start(
    shell: Shell, bed: Bed, tmp_path: Path, part: str
) -> None:
    command, cuts = f"sudo -n -u root /usr/bin/{part}", tmp_path / "cuts"
    upgrade(shell, bed, beforehand=cutting(cuts, bed.hosts[1], command, command))
    # A command that did its work before the first cut is not repeated.
    assert cuts.read_text().splitlines() in ([], [command])


def partition(host: Host, *matches: str, seconds: float = 12.0) -> Callable[[], None]:
    def act() -> None:
        with host.dropping(*matches):
            time.sleep(seconds)

    return act


def test_the_worker_cannot_reach_a_host_that_shuts_down(shell: Shell, bed: Bed) -> None:
    host = bed.hosts[1]
    upgrade(shell, bed, lambda: Fault(unit(host, "deactivating", "inactive"), partition(host, f"ip saddr {WORKER}")))


def test_two_hosts_cannot_reach_each_other_during_a_step(shell: Shell, bed: Bed) -> None:
    host, other = bed.hosts[1], bed.hosts[2]
    act = partition(host, f"ip saddr {other.address}")
    upgrade(shell, bed, lambda: Fault(unit(host, "deactivating", "inactive"), act))


def test_a_host_cannot_reach_the_other_controllers_during_a_step(shell: Shell, bed: Bed) -> None:
    host, other = bed.hosts[1], bed.hosts[0]
    act = partition(other, "tcp sport 9093", "tcp dport 9093")
    upgrade(shell, bed, lambda: Fault(unit(host, "deactivating", "inactive"), act))


def test_a_host_reboots_during_its_step(shell: Shell, bed: Bed) -> None:
    host = bed.hosts[1]
    upgrade(shell, bed, lambda: Fault(unit(host, "deactivating", "inactive"), host.reboot))


def test_the_disk_of_a_host_is_full_when_its_node_starts(shell: Shell, bed: Bed) -> None:
    host, filler = bed.hosts[1], "/var/lib/kafka/filler"

    def fill() -> None:
        host.run("sh", "-c", f"cat /dev/zero > {filler} || true")
        time.sleep(20)
        host.run("rm", filler)

    upgrade(shell, bed, lambda: Fault(unit(host, "inactive"), fill))


def test_the_connection_breaks_while_snapshots_are_copied_and_installed(shell: Shell, bed: Bed, tmp_path: Path) -> None:
    """The level is lowered offline: the metadata logs of all nodes are copied to the worker, and replaced."""
    upgrade(shell, bed, options=("--finalize", "after-approval"))
    words = ["downgrade", "--cluster", "testbed", "--to", OLD, "--lowering", "offline", *QUICK, *PLANNED_ON_HOSTS]
    commands = (f"cat {DATA}/__cluster_metadata-0", *(f"{name} {DATA}" for name in ("cp -pT", "tee", "mv -T", "rm -f")))
    cuts = cutting(tmp_path / "cuts", bed.hosts[1], *(f"sudo -n -u kafka /usr/bin/{each}" for each in commands))
    report = completed(shell, [*words, "--traffic"], beforehand=cuts, calls=2 * len(commands))
    assert not (tmp_path / "cuts").read_text()
    contents_kept(report)
    assert {event.node_id for event in events_of(shell.newest_run().events(), OfflineInstalled)} == {1, 2, 3}
