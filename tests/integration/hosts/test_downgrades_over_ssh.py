"""Downgrades of systemd units on hosts: their metadata logs are read and changed through SSH and sudo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import LiveLowered, OfflineInstalled
from tests.integration.harness.cluster_contents import contents_kept
from tests.integration.harness.shell import PLANNED_ON_HOSTS, QUICK, Shell
from tests.of_cluster import set_in_file
from tests.testbeds import MakeBed
from tools.testbed.bed import DATA, Bed

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(2400)]

LEVEL = {"3.9.1": 21, "4.2.1": 29, "4.3.1": 30}


def change(shell: Shell, command: str, target: str, *options: str) -> dict[str, Any]:
    """Change the release; return the report of the run."""
    done = shell(command, "--cluster", "testbed", "--to", target, *QUICK, *PLANNED_ON_HOSTS, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(Path(done.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "finished", report["sentence"]
    if command == "downgrade":
        contents_kept(report)
    if "--traffic" in options:
        assert report["traffic"]["ok"], report["traffic"]
        assert report["traffic"]["acknowledged"] > 0
    print(report["sentence"])
    return report


def assert_all_run(bed: Bed, release: str) -> None:
    for host in bed.hosts:
        pid = host.run("systemctl", "show", "--property=MainPID", "--value", "kafka.service").strip()
        assert f"/opt/kafka_2.13-{release}/libs/" in host.run("ls", "-l", f"/proc/{pid}/fd"), host.name


def backups(bed: Bed) -> dict[str, str]:
    """Host → mode and owner of each backup folder in its metadata log."""
    script = f"cd {DATA}/__cluster_metadata-0 && stat -c '%a %U %n' kafka-rollout-install-* || true"
    return {host.name: host.run("sh", "-c", script).strip() for host in bed.hosts}


def test_from_3_9_1_to_4_3_1_and_back_with_the_levels(make_bed: MakeBed, tmp_path: Path) -> None:
    bed = make_bed("3.9.1", others=("4.3.1",), size=3)
    shell = Shell(tmp_path, bed)
    set_in_file(bed.inventory_path, snapshot_interval_s=5.0)
    change(shell, "upgrade", "4.3.1", "--no-scan", "--traffic", "--finalize", "after-approval")
    assert_all_run(bed, "4.3.1")
    report = change(shell, "downgrade", "3.9.1", "--traffic", "--lowering", "offline")
    assert_all_run(bed, "3.9.1")
    assert {level["api_versions"] for level in report["current_metadata_version"]} == {LEVEL["3.9.1"]}
    assert len(events_of(shell.events(shell.newest_run()), OfflineInstalled)) == 3
    for folder in backups(bed).values():
        assert folder.startswith("700 kafka kafka-rollout-install-")
    for host in bed.hosts:
        assert host.run("stat", "-c", "%U:%G", f"{DATA}/bootstrap.checkpoint").strip() == "kafka:kafka"


def test_a_live_downgrade_from_level_30_stops_only_the_controllers(make_bed: MakeBed, tmp_path: Path) -> None:
    bed = make_bed("4.3.1", others=("4.2.1",), size=6)
    shell = Shell(tmp_path, bed)
    change(shell, "downgrade", "4.2.1", "--traffic", "--lowering", "live")
    assert_all_run(bed, "4.2.1")
    (lowered,) = events_of(shell.events(shell.newest_run()), LiveLowered)
    print(lowered.sentence)
    assert {event.node_id for event in events_of(shell.events(shell.newest_run()), OfflineInstalled)} == {101, 102, 103}
