"""The shell's offline downgrade on a real cluster, killed in the middle of a node's installation and again when all
have started: called again each time, it ends right, and its outage is told with what nobody saw of it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.integration.airflow_harness import all_run, finalized
from tests.integration.cluster_contents import WITH_ACLS, contents, fill
from tests.integration.conftest import MakeCluster
from tests.integration.shell import APPROVED, QUICK, Shell, later_starts

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]

# In the second node's installation, when its snapshot lies there and its old log is not removed yet.
KILLED_IN_AN_INSTALLATION = """
import os, signal
from kafka_rollout.adapters import metadata_logs
from kafka_rollout.adapters.metadata_backup import Files
install, remove, seen = metadata_logs.install, Files.remove, []
def install_and_count(*given, **more):
    seen.append(given)
    return install(*given, **more)
def remove_or_die(self, path):
    if len(seen) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    remove(self, path)
metadata_logs.install, Files.remove = install_and_count, remove_or_die
"""
# All nodes were started, and nobody has looked yet whether they serve.
KILLED_BEFORE_ANYBODY_LOOKED = """
import os, signal
from kafka_rollout.steps import offline
offline.watch_service = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_offline_downgrade_killed_in_an_installation_and_after_the_starts_ends_right_when_it_is_called_again(
    tmp_path: Path, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster("4.3.1", name="returns", layout="combined", extra_config=WITH_ACLS)
    fill(cluster)
    before = contents(cluster.spec)
    shell = Shell(tmp_path, cluster)
    down = ("downgrade", "--cluster", "returns", "--to", "4.2.1", "--where-refused", "offline", *QUICK, *APPROVED)

    killed = shell(*down, beforehand=KILLED_IN_AN_INSTALLATION)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    run = shell.newest_run()
    assert [event["node_id"] for event in shell.events(run) if event["kind"] == "offline-installed"] == [1]
    assert all(cluster.runtime.process(node).pid is None for node in cluster.spec.nodes)

    killed = shell(*down, "--run", run.name, beforehand=KILLED_BEFORE_ANYBODY_LOOKED)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert later_starts(cluster) == {1: ["4.2.1"], 2: ["4.2.1"], 3: ["4.2.1"]}

    again = shell(*down, "--run", run.name)
    assert again.returncode == 0, again.stderr
    assert later_starts(cluster) == {1: ["4.2.1"], 2: ["4.2.1"], 3: ["4.2.1"]}, "no node was started twice"
    all_run(cluster, "4.2.1")
    assert {finalized(cluster, node)["metadata.version"] for node in cluster.spec.nodes} == {29}
    report = json.loads(Path(again.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "finished", report["sentence"]
    assert report["inventory"]["differences"] == []
    (measured,) = report["outage"]["measured"]
    starts = [event["at"] for event in shell.events(run) if event["kind"] == "started"]
    # The call that was killed saw nothing; the next one may have come before they served, or after.
    assert measured["seconds"] >= measured["seconds_at_least"] >= max(starts) - measured["began_at"] - 0.1
    assert again.stderr.splitlines()[-1] == (
        f"{measured['sentence']} The approval had said about {report['outage']['expected']}."
    )
    assert contents(cluster.spec) == before
