"""A default that changes between releases (KIP-1030), on a real broker: without the line of the plan, and with it."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.json_forms import from_json
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.model.plan import ConfigChange
from kafka_rollout.releases.facts import Release
from tests.integration.conftest import MakeCluster
from tests.integration.harness.shell import DRY_RUN, Shell
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(900)]

OLD, NEW = Release(3, 9, 1), Release(4, 3, 1)
SETTING = "log.message.timestamp.after.max.ms"
TWO_HOURS_MS = 2 * 3_600_000


def planned(shell: Shell) -> dict[str, Any]:
    done = shell(*DRY_RUN, "--cluster", "shell", "--to", str(NEW), "--json")
    plan: dict[str, Any] = json.loads(done.stdout)["plan"]
    return plan


def remedies(plan: dict[str, Any]) -> list[str]:
    return [one["remedy"] for one in plan["findings"] if one["subject"] == f"configuration {SETTING}"]


def error_of_a_record_two_hours_ahead(cluster: LocalCluster) -> int | None:
    """The code of the error; None: acknowledged."""
    errors: list[int | None] = []
    producer = Producer({"bootstrap.servers": cluster.spec.bootstrap_servers, "acks": "all", "log_level": 0})
    producer.produce(
        "ahead",
        b"a record",
        timestamp=int(time.time() * 1000) + TWO_HOURS_MS,
        on_delivery=lambda error, _: errors.append(None if error is None else error.code()),
    )
    producer.flush(120)
    (error,) = errors
    return error


def restart_on(cluster: LocalCluster, release: Release, changes: tuple[ConfigChange, ...] = ()) -> None:
    (node,) = cluster.spec.nodes
    cluster.stop()
    cluster.runtime.install(node, release, changes)
    cluster.start()


def test_records_two_hours_ahead_are_refused_on_4_x_unless_the_line_of_the_plan_is_set(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(str(OLD), name="shell", layout="combined", size=1)
    shell = Shell(tmp_path, cluster)
    admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic("ahead", 1, 1)])["ahead"].result(60)
    assert error_of_a_record_two_hours_ahead(cluster) is None
    (remedy,) = remedies(planned(shell))

    restart_on(cluster, NEW)
    assert error_of_a_record_two_hours_ahead(cluster) == KafkaError.INVALID_TIMESTAMP
    restart_on(cluster, OLD)

    line = re.search(rf'`{SETTING}: "(\d+)"` to release_overrides of (\S+) in the inventory', remedy)
    assert line is not None, remedy
    value, release = line.groups()
    spec = replace(cluster.spec, release_overrides={release: {SETTING: value}})
    cluster.inventory_path.write_text(dump_cluster(spec))
    plan = planned(shell)
    assert remedies(plan) == []
    changes = tuple(from_json(ConfigChange, one) for one in plan["config_changes"])
    back = (SETTING, None, OLD)  # a rollback removes the line again
    assert {(one.key, one.value, one.release) for one in changes} == {(SETTING, value, NEW), back}
    restart_on(cluster, NEW, changes)
    assert error_of_a_record_two_hours_ahead(cluster) is None
