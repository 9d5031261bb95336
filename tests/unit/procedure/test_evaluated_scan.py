"""A scan that has read no log shows nothing about logs that exist."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.planning.request import Request
from kafka_rollout.procedure.actions import evaluate_scan
from kafka_rollout.procedure.step import StepCall
from kafka_rollout.report.builders import SCAN_VERDICT
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import plan_upgrade


def test_a_scan_that_has_read_no_log_passes_only_if_no_broker_has_a_coordinator_topic(tmp_path: Path) -> None:
    world = FakeCluster(R391)
    ports = fake_ports(world, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    world.topics = {name: one for name, one in world.topics.items() if not one.topic.startswith("__")}
    ports.run.attach(SCAN_VERDICT, ScanResult(cluster="fake", scanned_at=0.0, logs=(), classes=(), verdicts=()))
    call = StepCall(ports=ports, request=Request(), plan_or_none=plan, log=logging.getLogger(__name__))
    assert evaluate_scan(call)["records"] == 0

    world.add_partition(GROUPS_TOPIC, 0, [11, 12])
    with pytest.raises(TransientError, match=f"has read no coordinator log, and {GROUPS_TOPIC} exists"):
        evaluate_scan(call)
