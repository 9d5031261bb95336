"""Controllers that a step has just started refuse its questions, for some seconds or for good, with each error.

Such a controller has no SCRAM credentials and no ACLs until it knows the high watermark (ScramPublisher, AclPublisher).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import (
    CredentialsError,
    FatalError,
    RefusedError,
    RolloutError,
    TransientError,
    UserError,
)
from kafka_rollout.lowering import live, offline
from kafka_rollout.lowering.active_controller import ask_active
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.releases.facts import METADATA_VERSION
from tests.fakes.cluster import FakeCluster
from tests.fakes.metadata_logs import FakeMetadataLogs, FakePrepared
from tests.fakes.ports import FakeAdmin, fake_ports
from tests.fakes.runtime import FakeRuntime
from tests.integration.harness.faults.without_live import stage_no_live
from tests.unit.lowering import test_live, test_offline
from tests.unit.lowering.test_live import CONTROLLERS, is_lowered
from tests.unit.lowering.test_offline import FORWARD, go, releases, take_back

ERRORS = (CredentialsError, RefusedError, UserError, FatalError)
QUESTIONS = ("quorum", "features")
_WHY = "Node 1 refused the authentication of user admin (SCRAM-SHA-512)."
each_error = pytest.mark.parametrize("error", [CredentialsError, FatalError])
each_question = pytest.mark.parametrize("question", QUESTIONS)


def refuse(
    monkeypatch: pytest.MonkeyPatch,
    world: FakeCluster,
    question: str,
    error: type[RolloutError],
    *,
    for_s: float = float("inf"),
    after: Callable[[], bool] | None = None,
) -> list[float]:
    """Let the question fail for some seconds from a node's first start on. Returns when it failed."""
    ask, failed = getattr(FakeAdmin, question), []
    is_due = after or (lambda: any(node.starts for node in world.nodes.values()))

    def answer(*given: Any, **options: Any) -> Any:
        if is_due() and (not failed or world.clock.now() < failed[0] + for_s):
            failed.append(world.clock.now())
            raise error(_WHY)
        return ask(*given, **options)

    monkeypatch.setattr(FakeAdmin, question, answer)
    return failed


def fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the step fail before the snapshot is on a majority of the controllers."""

    def fails(*given: object, **options: object) -> None:
        raise TransientError("The disk does not respond.")

    monkeypatch.setattr(FakePrepared, "write", fails)


@each_question
@pytest.mark.parametrize("error", ERRORS)
def test_each_error_of_a_question_is_an_answer(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, question: str, error: type[RolloutError]
) -> None:
    assert ask_active(ports).level == 30
    refuse(monkeypatch, world, question, error, after=lambda: True)
    active = ask_active(ports)
    assert (active.level, active.features, active.lacks) == (None, None, _WHY)
    assert (active.node is None) is (question == "quorum")


@each_question
@each_error
def test_controllers_that_refuse_for_some_seconds_are_waited_for(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, question: str, error: type[RolloutError]
) -> None:
    plan = test_live.approved(ports)
    failed = refuse(monkeypatch, world, question, error, for_s=10)
    assert "metadata.version is 29 on the controllers" in live.lower_live(Run(ports, plan))
    assert is_lowered(world)
    assert len(failed) > 1, "it was asked again"


@each_question
@each_error
def test_controllers_that_refuse_for_good_all_run_and_a_repeated_call_ends_the_step(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, question: str, error: type[RolloutError]
) -> None:
    plan = test_live.approved(ports)
    with monkeypatch.context() as patched:
        refuse(patched, world, question, error)
        with pytest.raises(TransientError, match=r"A leader was elected at the new level.*refused the authentication"):
            live.lower_live(Run(ports, plan))
    assert all(world.runs(node_id) for node_id in CONTROLLERS)
    live.lower_live(Run(ports, plan))
    assert is_lowered(world)


@each_question
@each_error
def test_after_a_failure_that_controllers_hide_each_runs_on_its_old_log(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, question: str, error: type[RolloutError]
) -> None:
    plan = test_live.approved(ports)
    fail(monkeypatch)
    refuse(monkeypatch, world, question, error, after=lambda: bool(world.stops))
    with pytest.raises((FatalError, RefusedError), match="was not lowered: The disk does not respond"):
        live.lower_live(Run(ports, plan))
    assert all(world.runs(node_id) for node_id in CONTROLLERS)
    assert world.replaced == {}


@each_question
@each_error
def test_an_undo_is_finished_while_controllers_refuse(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, question: str, error: type[RolloutError]
) -> None:
    plan, undo = test_live.approved(ports), FakeMetadataLogs.undo_install

    def not_at_1(logs: Any, node: NodeSpec, snapshot: str, **options: Any) -> str | None:
        if node.node_id == 1:
            raise TransientError("The host does not respond.")
        return undo(logs, node, snapshot, **options)

    def no_log(*given: object, **options: object) -> str:
        raise error("The log cannot be read.")

    fail(monkeypatch)
    monkeypatch.setattr(FakeRuntime, "log_tail", no_log)
    refuse(monkeypatch, world, question, error, after=lambda: bool(world.stops))
    with monkeypatch.context() as patched:
        patched.setattr(FakeMetadataLogs, "undo_install", not_at_1)
        with pytest.raises(RolloutError, match="was not lowered"):
            live.lower_live(Run(ports, plan))
    with pytest.raises(RolloutError):
        live.lower_live(Run(ports, plan))
    assert all(world.runs(node_id) for node_id in CONTROLLERS)


@pytest.fixture
def offline_ports(world: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterPorts:
    stage_no_live(monkeypatch)
    return fake_ports(world, tmp_path)


@each_question
@each_error
def test_an_outage_goes_on_when_nodes_refuse_for_some_seconds(
    world: FakeCluster,
    offline_ports: ClusterPorts,
    monkeypatch: pytest.MonkeyPatch,
    question: str,
    error: type[RolloutError],
) -> None:
    plan = test_offline.approved(offline_ports)
    for first in (1, 11):  # the controllers, then the brokers
        failed = refuse(
            monkeypatch, world, question, error, for_s=10, after=lambda first=first: bool(world.nodes[first].starts)
        )
    go(offline_ports, plan)
    assert releases(world) == {"4.2.1"}
    assert world.finalized[METADATA_VERSION] == 29
    assert failed


@each_question
@each_error
def test_brokers_are_started_when_controllers_refused_the_question_about_their_order(
    world: FakeCluster,
    offline_ports: ClusterPorts,
    monkeypatch: pytest.MonkeyPatch,
    question: str,
    error: type[RolloutError],
) -> None:
    plan = test_offline.approved(offline_ports)
    go(offline_ports, plan, FORWARD[:-1])
    monkeypatch.setattr(offline, "_wait_for_quorum", lambda *given: 0.0)
    failed = refuse(monkeypatch, world, question, error, for_s=10)
    offline.start_brokers(Run(offline_ports, plan))
    assert releases(world) == {"4.2.1"}
    assert failed


@each_error
def test_an_outage_goes_on_when_a_process_cannot_be_seen(
    world: FakeCluster, offline_ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, error: type[RolloutError]
) -> None:
    plan, process, wait = test_offline.approved(offline_ports), FakeRuntime.process, offline._wait_for_quorum
    waits, failed = [], []

    def seen(runtime: FakeRuntime, node: NodeSpec) -> Any:
        if waits and node.node_id == 1:
            failed.append(node.node_id)
            raise error("The host refuses the key.")
        return process(runtime, node)

    def wait_for_quorum(*given: Any) -> float:
        waits.append(given)
        lacked_at = wait(*given)
        waits.clear()
        return lacked_at

    monkeypatch.setattr(FakeRuntime, "process", seen)
    monkeypatch.setattr(offline, "_wait_for_quorum", wait_for_quorum)
    go(offline_ports, plan)
    assert releases(world) == {"4.2.1"}
    assert failed


@each_question
@each_error
def test_an_undo_of_an_outage_goes_on_when_nodes_refuse_for_some_seconds(
    world: FakeCluster,
    offline_ports: ClusterPorts,
    monkeypatch: pytest.MonkeyPatch,
    question: str,
    error: type[RolloutError],
) -> None:
    plan = test_offline.approved(offline_ports)
    go(offline_ports, plan, FORWARD[:-1])
    began = world.clock.now()
    world.clock.sleep(1)
    failed = refuse(
        monkeypatch,
        world,
        question,
        error,
        for_s=10,
        after=lambda: any(one.starts and one.starts[-1].started_at > began for one in world.nodes.values()),
    )
    take_back(offline_ports, plan)
    assert releases(world) == {"4.3.1"}
    assert failed
