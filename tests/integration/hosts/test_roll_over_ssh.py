"""A rolling upgrade of nodes that are systemd units on three hosts, through SSH and sudo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import Started
from tests.integration.harness.shell import PLANNED_ON_HOSTS, QUICK, Shell
from tests.of_cluster import set_in_file
from tests.testbeds import MakeBed
from tools.testbed.bed import Bed
from tools.testbed.hosts import Host

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(900)]

OPERATORS_LINE = "# Written by the operator."


def test_an_upgrade_over_ssh_switches_the_release_and_leaves_the_rest_to_the_operator(
    make_bed: MakeBed, tmp_path: Path
) -> None:
    bed = make_bed("4.2.1", others=("4.3.1",), size=3)
    set_in_file(bed.inventory_path, snapshot_interval_s=5.0)
    shell = Shell(tmp_path, bed)
    before = [host.run("cat", "/etc/kafka/kafka.env", "/etc/systemd/system/kafka.service") for host in bed.hosts]

    done = shell(
        "upgrade",
        "--cluster",
        "testbed",
        "--to",
        "4.3.1",
        *QUICK,
        *PLANNED_ON_HOSTS,
        "--no-scan",
        "--finalize",
        "after-approval",
    )

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(Path(done.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "finished", report["sentence"]
    assert report["snapshot"]["proved"]
    # Node 2 has no agent, and the operator's exporter on nodes 1 and 3 has the metric under its own name.
    levels = {
        seen["node_id"]: (seen["prometheus"], seen["api_versions"]) for seen in report["current_metadata_version"]
    }
    assert levels == {1: (30, 30), 2: (None, 30), 3: (30, 30)}
    assert sorted(event.node_id for event in events_of(shell.events(shell.newest_run()), Started)) == [1, 2, 3]
    for host, files in zip(bed.hosts, before, strict=True):
        assert host.run("readlink", "/opt/kafka").strip() == "/opt/kafka_2.13-4.3.1"
        assert host.run("cat", "/etc/kafka/kafka.env", "/etc/systemd/system/kafka.service") == files
        changed = host.run("cat", "/etc/kafka/server.properties")
        assert changed.startswith(OPERATORS_LINE)
        assert "metadata.log.max.snapshot.interval.ms=5000" in changed
        assert host.run("stat", "-c", "%U:%G %a", "/etc/kafka/server.properties").strip() == "root:kafka 640"
        backup = host.run("cat", "/etc/kafka/server.properties.4.2.1")
        assert backup.startswith(OPERATORS_LINE)
        assert "snapshot.interval" not in backup
        assert host.run("systemctl", "show", "--property=NRestarts", "--value", "kafka.service").strip() == "0"
    restart_node_two(shell, bed)


def restart_node_two(shell: Shell, bed: Bed) -> None:
    """A restart on the release that now runs: a new process of the unit, and nothing else on the host changes."""
    host = bed.hosts[1]
    files = ("/etc/kafka/server.properties", "/etc/kafka/kafka.env", "/etc/systemd/system/kafka.service")
    before, old = host.run("cat", *files), main_pid(host)

    done = shell("restart", "--cluster", "testbed", "--node", "2", *QUICK, *PLANNED_ON_HOSTS)

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(Path(done.stdout.splitlines()[-1]).read_text())
    assert (report["outcome"], report["sentence"]) == ("finished", "1 node restarted on 4.3.1.")
    assert main_pid(host) not in {old, "0"}
    assert host.run("cat", *files) == before
    assert host.run("readlink", "/opt/kafka").strip() == "/opt/kafka_2.13-4.3.1"
    assert [event.node_id for event in events_of(shell.events(shell.newest_run()), Started)] == [2]


def main_pid(host: Host) -> str:
    return host.run("systemctl", "show", "--property=MainPID", "--value", "kafka.service").strip()
