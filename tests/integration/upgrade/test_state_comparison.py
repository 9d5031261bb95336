"""A roll on a real cluster: what the release changes is expected, a line that a broker's file lost is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import ComparedAfter, ContentsCompared, Finalizing
from tests.integration.conftest import MakeCluster
from tests.integration.harness.acks import error_with_acks_all
from tests.integration.harness.airflow.server import QUICK_SNAPSHOTS
from tests.integration.harness.cluster_contents import WITH_ACLS
from tests.integration.harness.shell import APPROVED, QUICK, Shell
from tools.faults.contents import plant

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(2400)]

LINE = "log.retention.ms=86400000"


def test_a_line_that_one_broker_lost_is_found_and_nothing_else(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """3.9.1 to 4.3.1 with topics, groups, ACLs, users and quotas, test traffic, and min.insync.replicas pinned."""
    extra = {**QUICK_SNAPSHOTS, **WITH_ACLS, "log.retention.ms": "86400000"}
    cluster = make_cluster("3.9.1", name="shell", extra_config=extra)
    plant(cluster.spec)
    admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
    admin.create_topics([NewTopic("plain", 1, 3)])["plain"].result(60)
    shell = Shell(tmp_path, cluster)
    broker = cluster.spec.brokers[1]
    file = Path(str(broker.directory)) / "server.properties"
    complete = file.read_text()
    assert LINE in complete.splitlines()
    file.write_text(complete.replace(f"{LINE}\n", ""))  # the running process has read it
    roll = ("upgrade", "--cluster", "shell", "--to", "4.3.1", *QUICK, "--finalize", "after-approval", "--no-scan")

    stopped = shell(*roll, "--traffic", "--pin-min-insync-replicas", *APPROVED)

    run = shell.newest_run()
    (compared,) = events_of(shell.events(run), ContentsCompared)
    assert compared.first == (
        (
            f"log.retention.ms of broker {broker.node_id} was 86400000 (STATIC_BROKER_CONFIG) and is null "
            "(DEFAULT_CONFIG)."
        ),
    ), stopped.stderr
    assert stopped.returncode == 3, stopped.stderr
    assert "--yes accepts no difference" in stopped.stderr
    assert events_of(shell.events(run), Finalizing) == ()
    listed = run.attachment("state/after-roll.json")["new_settings"]
    assert "group.streams.max.size = 2147483647" in listed

    file.write_text(complete)
    cluster.runtime.stop(broker, deadline_s=120)
    cluster.runtime.start(broker)
    cluster.wait_until_ready()
    finished = shell(*roll, "--pin-min-insync-replicas", *APPROVED, "--run", run.run_id)

    assert finished.returncode == 0, finished.stderr
    report = json.loads(Path(finished.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "finished", report["sentence"]
    found = [(one.after, one.first) for one in events_of(shell.events(run), ContentsCompared)]
    assert found[1:] == [(ComparedAfter.ROLL, ()), (ComparedAfter.LEVELS, ())]
    planned = [one for one in report["state_comparisons"][1]["differences"] if one["kind"] == "dynamic setting"]
    assert [(one["subject"], one["foretold"]) for one in planned] == [("min.insync.replicas of all brokers", True)]
    for stopped_broker in cluster.spec.brokers[:2]:
        cluster.runtime.stop(stopped_broker, deadline_s=120, force=True)
    assert error_with_acks_all(cluster.spec.bootstrap_servers, "plain") == KafkaError.NOT_ENOUGH_REPLICAS
