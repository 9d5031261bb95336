"""What is shown of the log of a node that does not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.steps.common.node_steps import read_last_error
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import fake_ports
from tests.fakes.runtime import FakeRuntime

STARTED = "[2026-11-25 09:38:27,100] INFO starting (kafka.server.KafkaRaftServer)"
FATAL = "[2026-11-25 09:38:27,934] ERROR Exiting Kafka due to fatal exception during startup. (kafka.Kafka$)"
REASON = "org.apache.kafka.common.errors.InvalidConfigurationException: conflict topic config setting"
CAUSE = "Caused by: java.io.IOException: No space left on device"
TRACE = "\tat kafka.Kafka$.main(Kafka.scala:92)"
UNREGISTERED = "[2026-11-25 09:38:28,001] INFO App info kafka.server for 1 unregistered (o.a.k.c.utils.AppInfoParser)"


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        ((STARTED, FATAL, REASON, TRACE, UNREGISTERED), REASON),
        ((STARTED, FATAL, REASON, TRACE, CAUSE, TRACE, UNREGISTERED), CAUSE),
        ((STARTED, FATAL, UNREGISTERED), FATAL),
        ((STARTED, FATAL, REASON, TRACE), REASON),
        ((FATAL, STARTED, REASON, TRACE), REASON),
    ],
    ids=["with its reason", "with its cause", "without a reason", "at the end", "of the process alone"],
)
def test_the_last_error_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: tuple[str, ...], shown: str
) -> None:
    ports = fake_ports(FakeCluster(), tmp_path)
    monkeypatch.setattr(FakeRuntime, "log_tail", lambda runtime, node, *, lines: log)
    assert read_last_error(ports, ports.cluster.nodes[0]) == f"its log shows: {shown}"
