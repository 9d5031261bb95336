"""The host of a broker is lost in an offline downgrade with all nodes stopped: the others go on, and it follows."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from kafka_rollout.run.step_events import OfflineLogChosen
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
from tests.integration.hosts.test_faults_over_ssh import completed
from tests.testbeds import MakeBed
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(2400)]

WORDS = (
    "downgrade",
    "--cluster",
    "testbed",
    "--to",
    "4.2.1",
    "--lowering",
    "offline",
    *QUICK,
    *PLANNED_ON_HOSTS,
    "--traffic",
)


@pytest.mark.parametrize("loss", [cut, rebooted])
def test_the_others_serve_and_the_lost_broker_follows_when_its_host_is_back(
    make_bed: MakeBed, tmp_path: Path, loss: Loss
) -> None:
    bed = make_bed("4.3.1", others=("4.2.1",), size=6)
    enable_units(bed)
    shell, lost = Shell(tmp_path, bed), bed.spec.brokers_alone[1].node_id
    others = [node for node in bed.spec.nodes if node.node_id != lost]
    command = shell.start(*WORDS)
    try:
        wait_until(lambda: shell.count_events(OfflineLogChosen) > 0 or command.poll() is not None, 600)
        assert command.poll() is None, (tmp_path / "killed.log").read_text()
        with loss(host_of(bed, lost)):
            wait_until(lambda: all_run(bed, others), 300)
            wait_for_leader_without(bed, lost, "with all nodes stopped")
        code = command.wait(900)
    finally:
        if command.poll() is None:
            command.send_signal(signal.SIGINT)
            command.wait(120)
    if code != 0:
        completed(shell, [*WORDS, "--run", shell.newest_run().run_id])
    wait_until(bed.in_service, 120)
    for host in bed.hosts:
        assert host.run("readlink", "/opt/kafka").strip() == "/opt/kafka_2.13-4.2.1"
