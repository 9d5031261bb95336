"""Rolls in batches of real brokers in racks, with the command line: killed in the middle of a batch and resumed.

The downgrade is the small one. The upgrade has test traffic too, is finalized, and then one broker is restarted for its
new file. Nothing is lost.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import Started, Stopping, TrafficCompared
from tests.class_archives import ClassArchives
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.server import QUICK_SNAPSHOTS, all_run, every_gate_has_evidence
from tests.integration.harness.shell import APPROVED, DRY_RUN, QUICK, Shell, later_starts
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]


RESTART = ("restart", "--cluster", "shell", *QUICK)
LEVELS = ("--finalize", "after-approval", "--pin-min-insync-replicas")
SECRET = "never-shown-f7Qx"
TWO_COPIES = {
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
}


@pytest.mark.full
def test_a_downgrade_in_batches_is_killed_in_a_batch_and_resumed(
    make_cluster: MakeCluster, class_archives: ClassArchives, tmp_path: Path
) -> None:
    """Racks: a with 1 and 3, b with 2 and 4. The first broker is restarted alone."""
    class_archives.record_if_often(Release(4, 2, 1))  # seven nodes go down to it
    cluster = make_cluster(
        "4.3.1",
        name="shell",
        size=4,
        controllers=3,
        racks=2,
        metadata_version="4.2-IV1",
        extra_config={**QUICK_SNAPSHOTS, **TWO_COPIES},
    )
    shell = Shell(tmp_path, cluster)
    admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
    for made in admin.create_topics([NewTopic("orders", 2, replica_assignment=[[1, 2], [3, 4]])]).values():
        made.result(60)
    batches = ("--max-batch-size", "2")
    down = ("downgrade", "--cluster", "shell", "--to", "4.2.1", *QUICK, "--no-rehearse")

    killed_in_a_batch(shell, {2, 4}, *down, *batches, *APPROVED)

    run = shell.newest_run()
    again = shell(*down, *APPROVED, "--run", run.run_id)
    assert again.returncode == 0, again.stderr
    report = json.loads(Path(again.stdout.splitlines()[-1]).read_text())
    assert (report["direction"], report["outcome"]) == ("downgrade", "finished"), report["sentence"]
    assert later_starts(cluster) == {node.node_id: ["4.2.1"] for node in cluster.spec.nodes}
    all_run(cluster, "4.2.1")
    assert report["features"]["after"]["metadata.version"] == 29
    assert all(gate["state"] == "passed" for gate in report["gates"]), report["gates"]
    every_gate_has_evidence(report)
    stopped = [event.node_id for event in _stops(shell)]
    assert stopped[:2] == [1, 3]
    assert set(stopped[-3:]) == {101, 102, 103}, "controllers come last"
    assert len(set(stopped)) == 7
    twice = {node_id for node_id in stopped if stopped.count(node_id) > 1}
    assert twice <= {2, 4}, "only a stop that the kill interrupted is requested again"
    a_new_file_is_foreseen(shell, "4.2.1")


def killed_in_a_batch(shell: Shell, nodes: set[int], *words: str) -> None:
    process = shell.start(*words)
    try:
        wait_until(lambda: nodes <= {event.node_id for event in _stops(shell)}, 1200, every_s=0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    started = {event.node_id for event in events_of(shell.events(shell.newest_run()), Started)}
    assert not started & nodes, "both brokers were stopped before one was started"


@pytest.mark.full
def test_an_upgrade_in_batches_is_killed_in_a_batch_resumed_and_finalized(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """Racks: a with 1 and 4, b with 2 and 5, c with 3 and 6. One topic has two replicas in rack c."""
    cluster = make_cluster(
        "3.9.1", name="shell", size=6, controllers=3, racks=3, heap="256m", extra_config=QUICK_SNAPSHOTS
    )
    shell = Shell(tmp_path, cluster)
    admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
    ignores = NewTopic("ignores-racks", 1, replica_assignment=[[3, 6, 1]], config={"min.insync.replicas": "2"})
    for made in admin.create_topics([ignores]).values():
        made.result(60)
    roll = (
        "upgrade",
        "--cluster",
        "shell",
        "--to",
        "4.3.1",
        *QUICK,
        "--no-scan",
        "--no-rehearse",
        "--traffic",
        *LEVELS,
    )
    batches = ("--max-batch-size", "2")
    planned = shell(*DRY_RUN, "--cluster", "shell", "--to", "4.3.1", *batches)
    assert planned.returncode == 0, planned.stderr
    shown = " ".join(planned.stdout.split())
    assert "broker-2 (2), broker-5 (5). Ends here: the maximum is 2" in shown
    assert "node 6 has a replica of ignores-racks-0 too" in shown
    assert "broker-3 (3), broker-6 (6)" not in shown

    killed_in_a_batch(shell, {2, 5}, *roll, *batches, *APPROVED)

    run = shell.newest_run()
    again = shell(*roll, *APPROVED, "--run", run.run_id)

    assert again.returncode == 0, again.stderr
    report = json.loads(Path(again.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "finished", report["sentence"]
    assert later_starts(cluster) == {node.node_id: ["4.3.1"] for node in cluster.spec.nodes}
    assert report["features"]["before"] == {"metadata.version": 21}
    assert report["features"]["after"]["metadata.version"] == 30
    assert {(seen["prometheus"], seen["jolokia"]) for seen in report["current_metadata_version"]} == {(30, 30)}
    assert report["snapshot"]["proved"]
    of_traffic = {each["group"].rsplit("-", 1)[-1]: each for each in report["groups"]["groups"] if each["partitions"]}
    assert of_traffic["classic"]["partitions"] == 12
    assert of_traffic["classic"]["watched_s"] > 0
    assert all(gate["state"] == "passed" for gate in report["gates"]), report["gates"]
    assert report["traffic"]["ok"], report["traffic"]
    assert report["traffic"]["acknowledged"] > 0
    compared = [event.verdict.acknowledged for event in events_of(shell.events(run), TrafficCompared)]
    assert compared[-1:] == [report["traffic"]["acknowledged"]]
    stopped = [event.node_id for event in _stops(shell)]
    assert stopped[-2:] == [3, 6]
    assert len(set(stopped)) == 9
    twice = {node_id for node_id in stopped if stopped.count(node_id) > 1}
    assert twice <= {2, 5}, "only a stop that the kill interrupted is requested again"
    nothing_leads_back(shell)
    restart_for_a_new_file(shell)


def nothing_leads_back(shell: Shell) -> None:
    assert shell("verify", "--cluster", "shell").returncode == 0
    refused = shell("rollback", "--cluster", "shell", "--run", shell.newest_run().run_id, *APPROVED)
    assert refused.returncode == 3
    assert "3.9.1 can no longer run this cluster" in refused.stderr
    assert "Traceback" not in refused.stderr


def restart_for_a_new_file(shell: Shell) -> None:
    cluster = shell.cluster
    unknown = shell(*RESTART, "--node", "9", *APPROVED)
    assert unknown.returncode == 2
    assert "Cluster shell has no node 9." in unknown.stderr
    a_new_file_is_foreseen(shell, "4.3.1")
    changed = shell(*RESTART, "--node", "2", *APPROVED)

    assert changed.returncode == 3, changed.stderr
    assert "log.retention.ms of broker 2 was null (DEFAULT_CONFIG) and is 86400000" in changed.stderr
    once = {node.node_id: ["4.3.1"] for node in cluster.spec.nodes}
    assert later_starts(cluster) == {**once, 2: ["4.3.1", "4.3.1"]}


def a_new_file_is_foreseen(shell: Shell, release: str) -> None:
    """What a restart would change, before and after broker 2 has another file; a secret of it is never shown."""
    cluster = shell.cluster
    dry = shell(*RESTART, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert f"Restart on {release}, one node at a time" in dry.stdout
    assert "FILE-NOT-READ" not in dry.stdout, "every process uses the lines of its file"
    file = Path(str(cluster.spec.node(2).directory)) / "server.properties"
    file.write_text(f"{file.read_text()}\nlog.retention.ms=86400000\nbackground.threads=7\nssl.key.password={SECRET}\n")
    foreseen = shell(*RESTART, "--dry-run", "--json")
    told = " ".join(finding["sentence"] for finding in json.loads(foreseen.stdout)["plan"]["findings"])
    assert "background.threads of node 2 is 2 now, and 7 after the restart." in told
    assert "log.retention.ms of node 2 is empty now, and 86400000 after the restart." in told
    assert "ssl.key.password of node 2 is empty now, and as in the file after the restart." in told
    assert SECRET not in foreseen.stdout + foreseen.stderr
    stored = [path for path in shell.home.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert stored == []


def _stops(shell: Shell) -> list[Stopping]:
    return [event for run in shell.runs()[-1:] for event in events_of(run.events(), Stopping)]
