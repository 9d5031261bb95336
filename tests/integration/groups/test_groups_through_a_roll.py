"""A roll while an application restarts its members: the report shows what its groups went through."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.run.step_events import Started
from tests.integration.conftest import MakeCluster
from tests.integration.harness.cluster_contents import wait_until_all_know
from tests.integration.harness.groups.member_process import GROUPS, MEMBERS
from tests.integration.harness.shell import APPROVED, QUICK, Shell, later_starts
from tests.waiting import wait_until
from tools.demo.folder import PROJECT_ROOT
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

TOPIC, PARTITIONS = "orders", 6


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> LocalCluster:
    cluster = make_cluster("4.0.1", name="shell", layout="combined")
    admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=3)])[TOPIC].result(60)
    wait_until_all_know(cluster.spec)
    return cluster


@pytest.fixture
def members(cluster: LocalCluster) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.integration.harness.groups.member_process",
            cluster.spec.bootstrap_servers,
            TOPIC,
        ],
        cwd=PROJECT_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_report_of_a_roll_shows_the_rebalances_of_groups_and_how_long_partitions_had_no_owner(
    cluster: LocalCluster, members: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert members.stdin is not None
    assert members.stdout is not None
    assert members.stdout.readline() == "settled\n"
    shell = Shell(tmp_path, cluster)
    roll = shell.start("upgrade", "--cluster", "shell", "--to", "4.3.1", *QUICK, "--no-scan", *APPROVED)
    try:
        wait_until(lambda: _started(shell), 600, every_s=0.2)
        members.stdin.write("restart\n")
        members.stdin.flush()
        assert members.stdout.readline() == "settled\n"
        assert roll.wait(900) == 0, (tmp_path / "killed.log").read_text()
    finally:
        roll.kill()
        roll.wait()

    assert later_starts(cluster) == {1: ["4.3.1"], 2: ["4.3.1"], 3: ["4.3.1"]}
    run = shell.newest_run()
    watched = run.attachment("report.json")["groups"]
    groups = {each["group"]: each for each in watched["groups"]}
    for name in GROUPS:
        assert groups[name]["partitions"] == PARTITIONS
        assert groups[name]["members"] == MEMBERS
        assert groups[name]["rebalances"] >= 1, "the members that left and joined"
    # Eager members give up all that they have until everyone has joined, the others what moves.
    assert groups["eager"]["unowned_partition_s"] > groups["cooperative"]["unowned_partition_s"]
    page = run.page("report.html") or ""
    assert all(name in page for name in GROUPS)


def _started(shell: Shell) -> bool:
    return shell.count_events(Started) > 0
