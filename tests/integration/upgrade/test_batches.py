"""An upgrade in batches on real brokers in racks, with the command line: killed in the middle of a batch and resumed,
finalized, and then one broker restarted for its new file. Nothing is lost.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import Started, Stopping, TrafficCompared
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.server import QUICK_SNAPSHOTS
from tests.integration.harness.shell import APPROVED, QUICK, Shell, later_starts
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]


LEVELS = ("--finalize", "after-approval", "--pin-min-insync-replicas")
SECRET = "never-shown-f7Qx"


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
    planned = shell("plan", "--cluster", "shell", "--to", "4.3.1", *batches)
    assert planned.returncode == 0, planned.stderr
    shown = " ".join(planned.stdout.split())
    assert "broker-2 (2), broker-5 (5). Ends here: the maximum is 2" in shown
    assert "node 6 has a replica of ignores-racks-0 too" in shown
    assert "broker-3 (3), broker-6 (6)" not in shown

    process = shell.start(*roll, *batches, *APPROVED)
    try:
        wait_until(lambda: {2, 5} <= {event.node_id for event in _stops(shell)}, 1200, every_s=0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    events = shell.events(shell.newest_run())
    started = {event.node_id for event in events_of(events, Started)}
    assert not started & {2, 5}, "both brokers were stopped before one was started"

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
    restart = ("restart", "--cluster", "shell", *QUICK)
    dry = shell(*restart, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "Restart on 4.3.1, one node at a time" in dry.stdout
    assert "FILE-NOT-READ" not in dry.stdout, "every process uses the lines of its file"
    unknown = shell(*restart, "--node", "9", *APPROVED)
    assert unknown.returncode == 2
    assert "Cluster shell has no node 9." in unknown.stderr
    file = Path(str(cluster.spec.node(2).directory)) / "server.properties"
    file.write_text(f"{file.read_text()}\nlog.retention.ms=86400000\nbackground.threads=7\nssl.key.password={SECRET}\n")
    foreseen = shell(*restart, "--dry-run", "--json")
    told = " ".join(finding["sentence"] for finding in json.loads(foreseen.stdout)["plan"]["findings"])
    assert "background.threads of node 2 is 2 now, and 7 after the restart." in told
    assert "log.retention.ms of node 2 is empty now, and 86400000 after the restart." in told
    assert "ssl.key.password of node 2 is empty now, and as in the file after the restart." in told
    assert SECRET not in foreseen.stdout + foreseen.stderr
    stored = [path for path in shell.home.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert stored == []
    changed = shell(*restart, "--node", "2", *APPROVED)

    assert changed.returncode == 3, changed.stderr
    assert "log.retention.ms of broker 2 was null (DEFAULT_CONFIG) and is 86400000" in changed.stderr
    once = {node.node_id: ["4.3.1"] for node in cluster.spec.nodes}
    assert later_starts(cluster) == {**once, 2: ["4.3.1", "4.3.1"]}


def _stops(shell: Shell) -> list[Stopping]:
    return [event for run in shell.runs()[-1:] for event in events_of(run.events(), Stopping)]
