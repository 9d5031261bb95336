"""Finalizing on hosts whose brokers alone have min.insync.replicas in their files, as in most deployments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import Stopping
from tests.integration.harness.acks import error_with_acks_all
from tests.integration.harness.shell import PLANNED_ON_HOSTS, QUICK, Shell
from tests.integration.hosts.losing import host_of
from tests.of_cluster import set_in_file
from tests.testbeds import MakeBed

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]

SETTING = "min.insync.replicas"
FINALIZES = ("--no-scan", "--finalize", "after-approval")
ROLL = ("upgrade", "--cluster", "testbed", "--to", "4.3.1", *FINALIZES, *QUICK, *PLANNED_ON_HOSTS)


def test_a_topic_keeps_its_min_isr_and_without_the_pin_nothing_is_stopped(make_bed: MakeBed, tmp_path: Path) -> None:
    bed = make_bed("3.9.1", others=("4.3.1",), size=6)
    files = {
        node.node_id: host_of(bed, node.node_id).run("cat", "/etc/kafka/server.properties") for node in bed.spec.nodes
    }
    assert all((SETTING in files[node.node_id]) is node.is_broker for node in bed.spec.nodes)
    admin = AdminClient({"bootstrap.servers": bed.spec.bootstrap_servers})
    admin.create_topics([NewTopic("plain", 1, 3)])["plain"].result(60)
    shell = Shell(tmp_path, bed)

    set_in_file(bed.inventory_path, snapshot_interval_s=5.0)
    refused = shell(*ROLL)
    assert refused.returncode == 3, refused.stderr
    assert "ELR-CHANGES-MIN-ISR" in refused.stdout + refused.stderr
    assert events_of(shell.newest_run().events(), Stopping) == ()

    done = shell(*ROLL, "--pin-min-insync-replicas", "--traffic")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(Path(done.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "finished", report["sentence"]
    assert report["traffic"]["ok"], report["traffic"]
    assert report["features"]["after"]["eligible.leader.replicas.version"] == 1
    with KafkaAdmin(bed.spec) as client:
        found = client.setting(SETTING)
    assert (found.default, set(found.brokers.values()), found.topics.get("plain")) == ("2", {"2"}, None)
    assert error_with_acks_all(bed.spec.bootstrap_servers, "plain") is None
    for node in bed.spec.brokers_alone[:2]:
        host_of(bed, node.node_id).run("systemctl", "stop", "kafka.service")
    assert error_with_acks_all(bed.spec.bootstrap_servers, "plain") == KafkaError.NOT_ENOUGH_REPLICAS
