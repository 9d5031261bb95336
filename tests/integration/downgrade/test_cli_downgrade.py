"""The shell's downgrade on a real cluster: killed between its levels and again in a node step, it ends right."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.coordinator_logs.tagged_fields import DROPPED
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import Finalizing, Stopping
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.server import (
    QUICK_SNAPSHOTS,
    all_run,
    every_gate_has_evidence,
    finalized,
    leadership,
    planned_last,
    start_order,
)
from tests.integration.harness.cluster_contents import WITH_ACLS, contents, contents_kept, fill
from tests.integration.harness.shell import APPROVED, QUICK, Shell, later_starts
from tests.records import run_history

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]

# Killed by itself at one place, however fast the machine is: the request was sent and taken, and nobody noted that.
KILLED_WITH_A_LOST_ANSWER = """
import os, signal
from kafka_rollout.client.admin import KafkaAdmin
send = KafkaAdmin.update_features
def send_and_die(self, levels, *, validate_only, **more):
    answers = send(self, levels, validate_only=validate_only, **more)
    if not validate_only:
        os.kill(os.getpid(), signal.SIGKILL)
    return answers
KafkaAdmin.update_features = send_and_die
"""
# In the second node step, when the node is stopped.
KILLED_WITH_A_NODE_DOWN = """
import os, signal
from kafka_rollout.nodes.runtimes.local_process import LocalProcessRuntime
install, seen = LocalProcessRuntime.install, []
def install_or_die(self, node, *more, **options):
    seen.append(node.node_id)
    if len(seen) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    install(self, node, *more, **options)
LocalProcessRuntime.install = install_or_die
"""


def test_a_downgrade_killed_between_its_levels_and_in_a_nodes_turn_ends_right_when_it_is_called_again(
    tmp_path: Path, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster(
        "4.3.1",
        name="returns",
        layout="combined",
        metadata_version="4.2-IV1",
        extra_config={**QUICK_SNAPSHOTS, **WITH_ACLS},
    )
    fill(cluster)
    before = contents(cluster.spec)
    shell, led = Shell(tmp_path, cluster), leadership(cluster)
    down = ("downgrade", "--cluster", "returns", "--to", "4.0.1", "--to-level", "23", *QUICK)

    refused = shell("downgrade", "--cluster", "returns", "--to", "3.9.1", "--lowering", "offline", "--dry-run")
    assert refused.returncode == 3, refused.stderr
    told = " ".join(refused.stdout.split())
    assert "Kafka 3.9.1 does not support group configurations." in told
    assert "no release can read these settings: planned, shipping" in told

    killed = shell(*down, *APPROVED, beforehand=KILLED_WITH_A_LOST_ANSWER)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    for node in cluster.spec.nodes:
        assert finalized(cluster, node)["metadata.version"] == 29, "it comes last"
    assert later_starts(cluster) == {1: [], 2: [], 3: []}
    run = shell.newest_run()
    active = planned_last(run_history(shell.home, "returns", run.run_id).load_plan(), cluster, led)

    killed = shell(*down, *APPROVED, "--run", run.run_id, beforehand=KILLED_WITH_A_NODE_DOWN)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    sent = [set(event.levels) for event in events_of(shell.events(run), Finalizing)]
    assert sent == [{"share.version", "streams.version"}, {"metadata.version"}], "what was there is not sent again"
    first, second = (event.node_id for event in events_of(shell.events(run), Stopping))
    assert cluster.runtime.process(cluster.spec.node(second)).pid is None
    assert later_starts(cluster)[first] == ["4.0.1"]

    again = shell(*down, *APPROVED, "--run", run.run_id)
    assert again.returncode == 0, again.stderr
    report = json.loads(Path(again.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "finished", report["sentence"]
    all_run(cluster, "4.0.1")
    assert later_starts(cluster) == {1: ["4.0.1"], 2: ["4.0.1"], 3: ["4.0.1"]}, "no node was rolled twice"
    stopped = [event.node_id for event in events_of(shell.events(run), Stopping)]
    assert stopped.count(first) == 1
    assert start_order(cluster, "4.0.1")[-1] == active, "the active controller comes last"
    for node in cluster.spec.nodes:
        levels = finalized(cluster, node)
        assert levels["metadata.version"] == 23, node.name
        assert {"share.version", "streams.version"}.isdisjoint(levels), "4.0.1 does not know them"
    every_gate_has_evidence(report)
    dropped = {found["subject"]: found["sentence"] for found in report["findings"] if found["code"] == DROPPED.code}
    assert "1 group (shipping)" in dropped.get("4.0.1, ConsumerGroupTargetAssignmentMetadata assignmentTimestamp", "")
    contents_kept(report)
    assert contents(cluster.spec) == before


def test_the_test_traffic_leaves_out_the_clients_that_the_lower_levels_end(
    tmp_path: Path, make_cluster: MakeCluster
) -> None:
    """The tool's own consumer-protocol group and transactions must not block the levels that the plan lowers."""
    cluster = make_cluster(
        "4.0.1", name="older", layout="combined", metadata_version="3.9-IV0", extra_config=QUICK_SNAPSHOTS
    )
    levels = {"group.version": 1, "transaction.version": 2}
    with KafkaAdmin(cluster.spec) as admin:
        assert all(answer.accepted for answer in admin.update_features(levels, validate_only=False))
    shell = Shell(tmp_path, cluster)
    down = shell("downgrade", "--cluster", "older", "--to", "3.9.1", "--traffic", *QUICK, *APPROVED)
    assert down.returncode == 0, down.stderr
    all_run(cluster, "3.9.1")
    assert levels.keys().isdisjoint(finalized(cluster, cluster.spec.nodes[0]))
    traffic = json.loads(Path(down.stdout.splitlines()[-1]).read_text())["traffic"]
    assert traffic["ok"], traffic
    assert set(traffic["consumed"]) == {"classic"}
    assert traffic["left_out"] == ["consumer-consumer"], "the transactional producer runs after the level is lowered"
    assert traffic["transactions"]["committed"] > 0
