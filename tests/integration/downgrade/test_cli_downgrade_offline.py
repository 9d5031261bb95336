"""The shell's offline downgrade on a real cluster, interrupted: killed in a node's installation and after the
starts, or a controller's disk is lost. Called again, it succeeds, and reports the outage that no check saw."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import OfflineInstalled, Started
from tests.integration.conftest import MakeCluster
from tests.integration.downgrade.test_offline_downgrade import format_anew
from tests.integration.harness.airflow.server import all_run, finalized
from tests.integration.harness.cluster_contents import WITH_ACLS, contents, contents_kept, fill
from tests.integration.harness.shell import APPROVED, KILLED_IN_AN_INSTALLATION, QUICK, Shell, later_starts

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]

# All nodes were started, and nobody has looked yet whether they serve.
KILLED_BEFORE_ANYBODY_LOOKED = """
import os, signal
from kafka_rollout.lowering import offline
offline.watch_service = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
"""
# Everything is stopped, and nobody has looked yet which logs are there.
KILLED_BEFORE_THE_CHOICE = """
import os, signal
from kafka_rollout.lowering import offline
offline.choose = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_offline_downgrade_killed_in_an_installation_and_after_the_starts_ends_right_when_it_is_called_again(
    tmp_path: Path, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster("4.3.1", name="returns", layout="combined", extra_config=WITH_ACLS)
    fill(cluster)
    before = contents(cluster.spec)
    shell = Shell(tmp_path, cluster)
    down = ("downgrade", "--cluster", "returns", "--to", "4.2.1", "--lowering", "offline", *QUICK, *APPROVED)

    killed = shell(*down, beforehand=KILLED_IN_AN_INSTALLATION)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    run = shell.newest_run()
    assert [event.node_id for event in events_of(shell.events(run), OfflineInstalled)] == [1]
    assert all(cluster.runtime.process(node).pid is None for node in cluster.spec.nodes)

    killed = shell(*down, "--run", run.run_id, beforehand=KILLED_BEFORE_ANYBODY_LOOKED)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert later_starts(cluster) == {1: ["4.2.1"], 2: ["4.2.1"], 3: ["4.2.1"]}

    again = shell(*down, "--run", run.run_id)
    assert again.returncode == 0, again.stderr
    assert later_starts(cluster) == {1: ["4.2.1"], 2: ["4.2.1"], 3: ["4.2.1"]}, "no node was started twice"
    all_run(cluster, "4.2.1")
    assert {finalized(cluster, node)["metadata.version"] for node in cluster.spec.nodes} == {29}
    report = json.loads(Path(again.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "finished", report["sentence"]
    contents_kept(report)
    (measured,) = report["outage"]["measured"]
    starts = [event.at for event in events_of(shell.events(run), Started)]
    # The call that was killed saw nothing; the next one may have come before they served, or after.
    assert measured["seconds"] >= measured["seconds_at_least"] >= max(starts) - measured["began_at"] - 0.1
    assert again.stderr.splitlines()[-1] == (
        f"{measured['sentence']} The approval showed {report['outage']['expected']}."
    )
    assert contents(cluster.spec) == before


def test_a_controller_s_disk_that_is_lost_meanwhile_is_named_with_the_way_out_and_the_same_run_ends_right_after_it(
    tmp_path: Path, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster("4.3.1", name="diskless", layout="combined", extra_config=WITH_ACLS)
    fill(cluster)
    before = contents(cluster.spec)
    shell = Shell(tmp_path, cluster)
    down = ("downgrade", "--cluster", "diskless", "--to", "4.2.1", "--lowering", "offline", *QUICK, *APPROVED)
    killed = shell(*down, beforehand=KILLED_BEFORE_THE_CHOICE)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    lost, *others = reversed(cluster.spec.nodes)
    shutil.rmtree(str(cluster.runtime.metadata_log_dir(lost)))

    run = shell.newest_run().run_id
    missed = shell(*down, "--run", run)
    assert missed.returncode == 3, missed.stderr
    *_, how, sentence = missed.stderr.splitlines()
    assert "its metadata log was missing when the snapshot was installed. Give it a new disk" in sentence
    assert f"format it on 4.2.1 (kafka-storage.sh format -t {cluster.cluster_id} -c server.properties" in sentence
    assert how == (
        f"continue and start the nodes that are down: kafka-rollout downgrade --to 4.2.1 --cluster diskless --run {run}"
    ), "a combined node has started: no undo"
    assert {finalized(cluster, node)["metadata.version"] for node in others} == {29}, "they serve without it"
    assert cluster.runtime.process(lost).pid is None

    format_anew(cluster, lost)
    again = shell(*down, "--run", run)
    assert again.returncode == 0, again.stderr
    all_run(cluster, "4.2.1")
    assert {finalized(cluster, node)["metadata.version"] for node in cluster.spec.nodes} == {29}
    report = json.loads(Path(again.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "finished", report["sentence"]
    contents_kept(report)
    assert contents(cluster.spec) == before
