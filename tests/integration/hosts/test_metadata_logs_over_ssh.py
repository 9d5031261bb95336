"""Metadata logs that the older release cannot read are changed on the hosts, while each node is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.harness.logs.old_records import read_all, set_and_take_back, write_records
from tests.integration.harness.shell import Shell
from tests.integration.hosts.test_downgrades_over_ssh import assert_all_run, change
from tests.testbeds import MakeBed
from tools.demo.cluster import SNAPSHOT_INTERVAL
from tools.testbed.bed import DATA, Bed

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]


def backups(bed: Bed, kind: str) -> list[str]:
    """Mode and owner of each folder with a backup of this kind, on all hosts."""
    command = f"stat -c '%a %U' {DATA}/__cluster_metadata-0/kafka-rollout-{kind}*"
    return [line for host in bed.hosts for line in host.run("sh", "-c", command).splitlines()]


def test_each_log_is_trimmed_on_its_host(make_bed: MakeBed, tmp_path: Path) -> None:
    bed = make_bed("4.3.1", others=("3.4.1",), size=3, metadata_version="3.4-IV0", properties=SNAPSHOT_INTERVAL)
    write_records(bed.spec)
    set_and_take_back(bed.spec)
    report = change(Shell(tmp_path, bed), "downgrade", "3.4.1")
    assert_all_run(bed, "3.4.1")
    assert {one["node_id"] for one in report["trims"]} == {1, 2, 3}
    assert backups(bed, "trim") == ["700 kafka"] * 3
    read_all(bed.spec, "billing", "classic")


def test_each_bootstrap_file_is_lowered_on_its_host(make_bed: MakeBed, tmp_path: Path) -> None:
    bed = make_bed("4.3.1", others=("3.7.2",), size=3, metadata_version="4.0-IV0", properties=SNAPSHOT_INTERVAL)
    write_records(bed.spec)
    report = change(Shell(tmp_path, bed), "downgrade", "3.7.2")
    assert_all_run(bed, "3.7.2")
    assert {(one["node_id"], one["level"]) for one in report["bootstraps"]} == {(1, 19), (2, 19), (3, 19)}
    assert backups(bed, "bootstrap") == ["700 kafka"] * 3
    for host in bed.hosts:
        assert host.run("stat", "-c", "%U:%G", f"{DATA}/bootstrap.checkpoint").strip() == "kafka:kafka"
    read_all(bed.spec, "billing", "classic")
