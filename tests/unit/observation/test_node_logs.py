"""What is shown of the log of a node that does not start, and what the run history keeps of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.model.node_log import LogPart
from kafka_rollout.model.state import ProcessState
from kafka_rollout.observation.cluster_ports import ClusterPorts, observe
from kafka_rollout.observation.node_logs import read_last_error, read_log
from kafka_rollout.roll.gate_checks import observe_all
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import LogSeen
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import fake_ports
from tests.fakes.runtime import STARTED_LINE, FakeRuntime

STARTED = "[2026-11-25 09:38:27,100] INFO starting (kafka.server.KafkaRaftServer)"
FATAL = "[2026-11-25 09:38:27,934] ERROR Exiting Kafka due to fatal exception during startup. (kafka.Kafka$)"
REASON = "org.apache.kafka.common.errors.InvalidConfigurationException: conflict topic config setting"
CAUSE = "Caused by: java.io.IOException: No space left on device"
TRACE = "\tat kafka.Kafka$.main(Kafka.scala:92)"
UNREGISTERED = "[2026-11-25 09:38:28,001] INFO App info kafka.server for 1 unregistered (o.a.k.c.utils.AppInfoParser)"
LATER = "[2026-11-25 09:38:28,002] ERROR Shutdown broker because all log dirs have failed (kafka.log.LogManager)"
VM, HEAP = (
    "Error occurred during initialization of VM",
    "Initial heap size set to a larger value than the maximum heap size",
)
SYSTEMD = (
    "Started Kafka broker 5.",
    "kafka.service: Main process exited, code=exited, status=1/FAILURE",
    "kafka.service: Failed with result 'exit-code'.",
    "kafka.service: Scheduled restart job, restart counter is at 28.",
)


# Of Java 17.0.13.
OPTION, HINT = "Unrecognized VM option 'UseG1G'", "Did you mean '(+/-)UseG1GC'?"
AGENT = "Error opening zip file or JAR manifest missing : /no/such.jar"
LAUNCHER = (
    "Error: Could not create the Java Virtual Machine.",
    "Error: A fatal exception has occurred. Program will exit.",
)


@pytest.fixture
def ports(tmp_path: Path) -> ClusterPorts:
    return fake_ports(FakeCluster(), tmp_path)


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        ((STARTED, FATAL, REASON, TRACE, UNREGISTERED), REASON),
        ((STARTED, FATAL, REASON, TRACE, CAUSE, TRACE, UNREGISTERED), CAUSE),
        ((STARTED, FATAL, UNREGISTERED), FATAL),
        ((STARTED, FATAL, REASON, TRACE, LATER), REASON),
        ((STARTED, REASON, TRACE), REASON),
        ((VM, HEAP), HEAP),
        ((SYSTEMD[0], VM, HEAP, *SYSTEMD[1:]), HEAP),
        (("Picked up JAVA_TOOL_OPTIONS: -Xint", OPTION, *LAUNCHER), OPTION),
        ((OPTION, HINT, *LAUNCHER, SYSTEMD[-1], OPTION, HINT, *LAUNCHER), f"{OPTION}; {HINT}"),
        ((AGENT, VM, "agent library failed to init: instrument"), f"{AGENT}; agent library failed to init: instrument"),
        ((VM,), VM),
        (SYSTEMD, SYSTEMD[-1]),
    ],
    ids=[
        "with its reason",
        "with its cause",
        "without a reason",
        "the first one",
        "at the end",
        "of the JVM",
        "between lines of systemd",
        "before the lines of Java's launcher",
        "of a JVM that was started again",
        "before and after the line of the JVM",
        "of the JVM without a reason",
        "of systemd alone",
    ],
)
def test_the_first_error_is_shown(
    ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, log: tuple[str, ...], shown: str
) -> None:
    monkeypatch.setattr(FakeRuntime, "log_tail", lambda runtime, node, *, lines, own=False: log)
    assert read_last_error(ports, ports.cluster.nodes[0]) == f"its log shows: {shown}"


def test_an_error_of_an_earlier_process_is_not_shown(ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch) -> None:
    def log_tail(runtime: FakeRuntime, node: object, *, lines: int, own: bool = False) -> tuple[str, ...]:
        return (STARTED, FATAL, CAUSE) if own else (LATER, STARTED, FATAL, CAUSE)

    monkeypatch.setattr(FakeRuntime, "log_tail", log_tail)
    assert read_last_error(ports, ports.cluster.nodes[0]) == f"its log shows: {CAUSE}"


def test_each_line_is_read_once_and_the_history_keeps_what_it_shows(
    ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = FakeRuntime.process_log

    def process_log(runtime: FakeRuntime, node: object, after: str = "") -> LogPart | None:
        asked.append(after)
        return real(runtime, node, after)  # type: ignore[arg-type]

    monkeypatch.setattr(FakeRuntime, "process_log", process_log)
    (node, *_) = ports.cluster.brokers
    log = ports.runtime._cluster.nodes[node.node_id].log  # type: ignore[attr-defined]
    failed = "[GroupMetadataManager brokerId=1] Error loading offsets from __consumer_offsets-3"
    log.append(f"[2026-11-25 09:38:28,002] ERROR {failed} (kafka.coordinator.group.GroupMetadataManager)")
    for _ in range(3):
        seen = read_log(ports, node)
    assert asked == ["", "1", "1"]
    assert seen is not None
    assert seen.failed.keys() == {"__consumer_offsets-3"}
    (recorded,) = events_of(ports.run.events(), LogSeen)
    assert recorded.seen.failed == seen.failed
    assert STARTED_LINE not in log


def test_a_log_that_is_longer_than_a_part_is_read_on_and_proves_nothing_before_its_end(
    ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def process_log(runtime: FakeRuntime, node: object, after: str = "") -> LogPart | None:
        asked.append(after)
        number = len(asked)
        return LogPart(pid=7, started_at=1.0, position=str(number), is_first=not after, is_cut=number < 11)

    monkeypatch.setattr(FakeRuntime, "process_log", process_log)
    monkeypatch.setattr(FakeRuntime, "process", lambda runtime, node: ProcessState(pid=7, started_at=1.0))
    (node, *_) = ports.cluster.brokers
    seen = read_log(ports, node)
    assert (asked, seen and seen.is_cut) == (["", *map(str, range(1, 8))], True)
    seen = read_log(ports, node)
    assert (asked[8:], seen and seen.is_cut) == (["8", "9", "10"], False)


def test_the_plan_and_the_gates_know_the_error_of_a_node_that_is_down(
    ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeRuntime, "log_tail", lambda runtime, node, *, lines, own=False: (VM, HEAP))
    down = ports.cluster.brokers[-1].node_id
    ports.runtime._cluster.stop(down)  # type: ignore[attr-defined]
    for state in (observe(ports), observe_all(ports)):
        errors = {node_id: seen.log_error for node_id, seen in state.nodes.items() if seen.log_error}
        assert errors == {down: HEAP}


def test_a_log_that_cannot_be_read_ends_no_observation(ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch) -> None:
    def log_tail(runtime: FakeRuntime, node: object, *, lines: int, own: bool = False) -> tuple[str, ...]:
        raise RefusedError("sudo refuses tail.")

    monkeypatch.setattr(FakeRuntime, "log_tail", log_tail)
    ports.runtime._cluster.stop(ports.cluster.brokers[-1].node_id)  # type: ignore[attr-defined]
    assert not any(seen.log_error for seen in observe(ports).nodes.values())
