"""The shell's restart on a real cluster: killed in the middle of node 2 and resumed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import Stopping
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.server import QUICK_SNAPSHOTS
from tests.integration.harness.shell import APPROVED, QUICK, Shell, later_starts
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

RESTART = ("restart", "--cluster", "shell", *QUICK)


@pytest.mark.full
def test_a_restart_survives_a_kill(make_cluster: MakeCluster, tmp_path: Path) -> None:
    shell = Shell(tmp_path, make_cluster("4.3.1", name="shell", layout="combined", extra_config=QUICK_SNAPSHOTS))
    dry = shell(*RESTART, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "Restart on 4.3.1, one node at a time" in dry.stdout
    assert "FILE-NOT-READ" not in dry.stdout, "every process uses the lines of its file"
    assert later_starts(shell.cluster) == {1: [], 2: [], 3: []}

    process = shell.start(*RESTART, "--traffic", *APPROVED)
    try:
        wait_until(lambda: shell.count_events(Stopping) >= 2, 600, every_s=0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    run = shell.newest_run()
    again = shell(*RESTART, "--traffic", *APPROVED, "--run", run.run_id)

    assert again.returncode == 0, again.stderr
    report = json.loads(Path(again.stdout.splitlines()[-1]).read_text())
    assert (report["direction"], report["outcome"]) == ("restart", "finished"), report["sentence"]
    assert report["sentence"] == "3 nodes restarted on 4.3.1."
    assert later_starts(shell.cluster) == {1: ["4.3.1"], 2: ["4.3.1"], 3: ["4.3.1"]}, "each node once"
    stops = [event.node_id for event in events_of(shell.events(run), Stopping)]
    assert stops.count(stops[0]) == 1
    assert report["traffic"]["ok"]
    assert report["traffic"]["acknowledged"] > 0
    after = [gate["checks"][-1]["conditions"] for gate in report["gates"] if gate["kind"] == "after-start"]
    assert [one["is_met"] for met in after for one in met if one["name"] == "new process"] == [True] * 3
    back = shell("rollback", "--cluster", "shell", "--run", run.run_id, *APPROVED)
    assert back.returncode == 3
    assert "no release to return to" in back.stderr

    unknown = shell(*RESTART, "--node", "9", *APPROVED)
    assert unknown.returncode == 2
    assert "Cluster shell has no node 9." in unknown.stderr


@pytest.mark.full
def test_a_single_node_is_upgraded_if_the_approver_accepts_that_nothing_serves_meanwhile(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """One controller cannot be spared, and a static quorum before 4.1 has no way to three."""
    one = make_cluster("3.9.1", name="shell", layout="combined", size=1, extra_config=QUICK_SNAPSHOTS)
    shell = Shell(tmp_path, one)
    words = ("upgrade", "--cluster", "shell", "--to", "4.3.1", "--finalize", "after-approval", *QUICK, *APPROVED)
    refused = shell(*words)
    assert refused.returncode == 3, refused.stderr
    assert "QUORUM-NO-SPARE" in refused.stderr + refused.stdout
    accepted = [word for one in ("*", "__*", "__cluster_metadata") for word in ("--accept-unavailable", one)]
    done = shell(*words, *accepted)
    assert done.returncode == 0, done.stderr
    report = json.loads(Path(done.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "finished", report["sentence"]
    assert later_starts(shell.cluster)[1][-1] == "4.3.1"
