"""The host of a controller is lost around the switch of a live downgrade: the others serve, and no record is lost."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from kafka_rollout.run.events import has
from kafka_rollout.run.step_events import LiveKept, LiveLowered, OfflineStopping
from tests.integration.harness.cluster_contents import contents_kept
from tests.integration.harness.shell import PLANNED_ON_HOSTS, QUICK, Shell
from tests.integration.hosts.losing import (
    Loss,
    all_run,
    cut,
    enable_units,
    host_of,
    rebooted,
    wait_for_leader_without,
)
from tests.integration.hosts.test_faults_over_ssh import Fault, completed, unit
from tests.testbeds import MakeBed
from tests.waiting import wait_until
from tools.testbed.bed import Bed

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(2400)]

WORDS = ("downgrade", "--cluster", "testbed", "--to", "4.2.1", "--lowering", "live", *QUICK, *PLANNED_ON_HOSTS)
# The controllers whose hosts are lost before, during and after the switch.
LOSS_ORDERS = ((103, 101, 102), (101, 102, 103), (102, 103, 101))
# The connection is lost some seconds after the controllers are started, or when they serve; once for each word of the
# file.
LOSES_CONTACT = """
import time
from pathlib import Path
from kafka_rollout.base.errors import TransientError
from kafka_rollout.lowering import live as actions
start, left = actions._start_until_ready, Path({file!r})
def start_and_lose_contact(controllers):
    moment, *later = left.read_text().split() or [""]
    if not moment:
        return start(controllers)
    left.write_text(" ".join(later))
    if moment == "served":
        start(controllers)
    else:
        controllers.start(controllers.ports.cluster.controllers)
        time.sleep(float(moment))
    raise TransientError("The connection was reset.")
actions._start_until_ready = start_and_lose_contact
"""


def wait_for_its_stop(shell: Shell, bed: Bed, node_id: int, command: subprocess.Popen[bytes]) -> None:
    stops = unit(host_of(bed, node_id), "deactivating", "inactive", "failed")
    wait_until(lambda: stops() or command.poll() is not None, 600, every_s=0.05)
    assert command.poll() is None, (shell.folder / "killed.log").read_text()


@pytest.mark.parametrize("loss", [cut, rebooted])
@pytest.mark.parametrize("order", LOSS_ORDERS, ids=lambda order: "-".join(map(str, order)))
def test_each_controllers_host_is_lost_before_during_and_after_the_switch(
    make_bed: MakeBed, tmp_path: Path, order: tuple[int, int, int], loss: Loss
) -> None:
    bed = make_bed("4.3.1", others=("4.2.1",), size=6)
    enable_units(bed)
    shell, (before, during, after) = Shell(tmp_path, bed), order
    with loss(host_of(bed, before)):
        wait_for_leader_without(bed, before, "before the switch")
        if loss is cut:
            assert shell(*WORDS).returncode != 0
            assert shell.count_events(OfflineStopping) == 0, "nothing is stopped without each controller's host"
    wait_until(bed.in_service, 180)

    def all_serve_again() -> bool:
        return shell.count_events(LiveLowered) > 0 and all_run(bed, bed.spec.controllers)

    def lose_after() -> None:
        with loss(host_of(bed, after)):
            wait_for_leader_without(bed, after, "after the switch")

    command = shell.start(*WORDS, "--traffic")
    last = Fault(all_serve_again, lose_after)
    try:
        wait_for_its_stop(shell, bed, during, command)
        with loss(host_of(bed, during)):
            wait_for_leader_without(bed, during, "during the switch")
        code = command.wait(900)
        if code != 0:
            completed(shell, [*WORDS, "--traffic", "--run", shell.newest_run().run_id], last)
    finally:
        last.cancelled = True
        if command.poll() is None:
            command.send_signal(signal.SIGINT)
            command.wait(120)
    assert last.over.wait(120), "the last host was not lost, or the others did not serve"
    events = shell.newest_run().events()
    assert has(events, LiveLowered)
    print([event.sentence for event in events if isinstance(event, LiveLowered)])
    for host in bed.hosts:
        assert host.run("readlink", "/opt/kafka").strip() == "/opt/kafka_2.13-4.2.1"


def test_a_leader_is_elected_in_the_moment_of_the_decision(make_bed: MakeBed, tmp_path: Path) -> None:
    """The connection is lost earlier and later than the election: the files of the stopped controllers decide."""
    bed = make_bed("4.3.1", others=("4.2.1",), size=6)
    shell, moments = Shell(tmp_path, bed), tmp_path / "moments"
    moments.write_text("3 6 9 served")
    beforehand = LOSES_CONTACT.format(file=str(moments))
    report = completed(shell, [*WORDS, "--traffic"], beforehand=beforehand, calls=7)
    events = shell.newest_run().events()
    print([type(event).__name__ for event in events if event.kind.startswith(("live-", "offline-"))])
    assert has(events, LiveKept), "no leader was elected before the decision"
    assert has(events, LiveLowered)
    contents_kept(report)
