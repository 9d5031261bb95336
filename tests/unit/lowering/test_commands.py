"""The operator's commands before a stop and after a start, in an offline and a live downgrade of a fake cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest

from kafka_rollout.base.errors import FatalError, RolloutError
from kafka_rollout.lowering import live, offline
from kafka_rollout.lowering.lowered_snapshot import quorum_lacks
from kafka_rollout.model.topology import HostCommand, NodeSpec, ServiceSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import StartFinished, StartUnfinished
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.dying_files import KilledError
from tests.fakes.ports import fake_ports
from tests.fakes.runtime import FakeRuntime
from tests.integration.harness.faults.without_live import stage_no_live
from tests.unit.lowering.test_live import approved as approved_live
from tests.unit.lowering.test_offline import FORWARD, approved, go, take_back

CONTROLLERS, BROKERS = (1, 2, 3), (11, 12, 13)
KINDS = {node_id: kind for kind in (CONTROLLERS, BROKERS) for node_id in kind}
TIMEOUT_S = 120.0


@pytest.fixture
def world() -> FakeCluster:
    world = FakeCluster(R431)
    service = ServiceSpec(
        host="kafka",
        before_stop=(HostCommand(command="drain", timeout_s=3600.0),),
        after_start=(HostCommand(command="undrain", timeout_s=TIMEOUT_S),),
    )
    nodes = tuple(replace(node, service=replace(service, host=node.name)) for node in world.spec.nodes)
    world.spec = replace(world.spec, nodes=nodes)
    world.clock.sleep(1000)
    return world


@pytest.fixture
def ports(world: FakeCluster, tmp_path: Path) -> ClusterPorts:
    return fake_ports(world, tmp_path)


@pytest.fixture
def offline_ports(ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch) -> ClusterPorts:
    stage_no_live(monkeypatch)
    return ports


def finished(ports: ClusterPorts) -> list[int]:
    return sorted(event.node_id for event in events_of(ports.run.events(), StartFinished))


def waiting_for(
    world: FakeCluster, others: Callable[[int], tuple[int, ...]], began: list[int] | None = None
) -> Callable[[int], None]:
    """Return a command that waits until other nodes run, at most for its time limit."""

    def command(node_id: int) -> None:
        if began is not None:
            began.append(node_id)
        if not all(world.runs(one) for one in others(node_id)):
            world.clock.sleep(TIMEOUT_S)
            raise FatalError(f"Command 1 of after_start of node {node_id} failed: timed out.", remedy="Fix it.")

    return command


def test_the_commands_before_a_stop_run_on_every_node_before_the_first_stop(
    world: FakeCluster, offline_ports: ClusterPorts
) -> None:
    """They can take an hour, and the cluster serves until the first broker stops."""
    plan = approved(offline_ports)
    prepared: list[tuple[int, int]] = []
    world.on_prepare = lambda node_id: prepared.append((node_id, len(world.stops)))
    offline.stop_all(Run(offline_ports, plan))
    assert sorted(prepared) == [(node_id, 0) for node_id in sorted(world.nodes)]
    assert sorted(world.stops) == sorted(world.nodes)


def test_the_commands_after_a_start_find_all_nodes_of_their_kind_started_and_run_at_the_same_time(
    world: FakeCluster, offline_ports: ClusterPorts
) -> None:
    plan, together = approved(offline_ports), Barrier(3)
    waits = waiting_for(world, lambda node_id: KINDS[node_id])

    def command(node_id: int) -> None:
        together.wait(20)
        waits(node_id)

    world.on_started = command
    go(offline_ports, plan)
    assert finished(offline_ports) == [*CONTROLLERS, *BROKERS]
    assert not events_of(offline_ports.run.events(), StartUnfinished)


def test_a_command_that_waits_for_the_cluster_keeps_no_broker_from_starting_and_runs_again_when_it_serves(
    world: FakeCluster, offline_ports: ClusterPorts
) -> None:
    plan, began = approved(offline_ports), list[int]()
    world.on_started = waiting_for(world, lambda node_id: (*CONTROLLERS, *BROKERS), began)
    go(offline_ports, plan, FORWARD[:6])
    assert [event.node_id for event in events_of(offline_ports.run.events(), StartUnfinished)] == [*CONTROLLERS]
    go(offline_ports, plan, FORWARD[6:])
    assert (sorted(began[:3]), sorted(began[3:6]), sorted(began[6:])) == ([*CONTROLLERS], [*BROKERS], [*CONTROLLERS])
    assert finished(offline_ports) == [*CONTROLLERS, *BROKERS]


def test_a_command_that_always_fails_ends_the_last_step_with_every_node_started(
    world: FakeCluster, offline_ports: ClusterPorts
) -> None:
    plan = approved(offline_ports)

    def fail(node_id: int) -> None:
        if node_id in (2, 12):
            raise FatalError(f"Command 1 of after_start of node {node_id} failed: no such file.", remedy="Fix it.")

    world.on_started = fail
    go(offline_ports, plan, FORWARD[:6])
    with pytest.raises(FatalError, match=r"of node 2 failed.*of node 12 failed") as failed:
        go(offline_ports, plan, FORWARD[6:])
    assert failed.value.remedy == "Fix it."
    assert all(world.runs(node_id) for node_id in world.nodes)
    again = list[int]()
    world.on_started = again.append
    go(offline_ports, plan)
    assert sorted(again) == [2, 12]
    assert all(len(node.starts) == 1 for node in world.nodes.values())
    go(offline_ports, plan)
    assert sorted(again) == [2, 12], "they have ended without an error"


@pytest.mark.parametrize("at", [2, 12])
@pytest.mark.parametrize("when", ["start", "command"])
def test_a_run_that_was_killed_in_a_start_or_in_a_command_runs_it_when_it_continues(
    world: FakeCluster, offline_ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, at: int, when: str
) -> None:
    plan, start = approved(offline_ports), FakeRuntime.start

    def dies(node_id: int) -> None:
        if node_id == at:
            raise KilledError

    def starts(runtime: FakeRuntime, node: NodeSpec) -> None:
        start(runtime, node)
        dies(node.node_id)

    with monkeypatch.context() as patched:
        if when == "start":
            patched.setattr(FakeRuntime, "start", starts)
        else:
            world.on_started = dies
        with pytest.raises(KilledError):
            go(offline_ports, plan)
    world.on_started = lambda node_id: None
    assert at not in finished(offline_ports)
    go(offline_ports, plan)
    assert finished(offline_ports) == [*CONTROLLERS, *BROKERS]
    assert all(len(node.starts) == 1 for node in world.nodes.values())


def test_an_undo_repeats_the_commands_that_failed_in_it(world: FakeCluster, offline_ports: ClusterPorts) -> None:
    plan, undrained = approved(offline_ports), list[int]()
    go(offline_ports, plan, FORWARD[:6])
    world.on_started = waiting_for(world, lambda node_id: (*CONTROLLERS, *BROKERS), undrained)
    take_back(offline_ports, plan)
    assert (sorted(undrained[:3]), sorted(undrained[3:])) == ([*CONTROLLERS], sorted([*CONTROLLERS, *BROKERS]))


def test_the_controllers_of_a_live_downgrade_serve_before_a_command_after_their_start_runs(
    world: FakeCluster, ports: ClusterPorts
) -> None:
    plan = approved_live(ports)
    seen: list[tuple[int, bool]] = []
    world.on_started = lambda node_id: seen.append((node_id, live.serves_at_level(Run(ports, plan))))
    live.lower_live(Run(ports, plan))
    assert sorted(seen) == [(node_id, True) for node_id in CONTROLLERS]


def test_a_command_that_fails_after_a_live_downgrade_is_told_and_repeated(
    world: FakeCluster, ports: ClusterPorts
) -> None:
    plan = approved_live(ports)

    def fail(node_id: int) -> None:
        raise FatalError(f"Command 1 of after_start of node {node_id} failed.", remedy="Fix it.")

    world.on_started = fail
    with pytest.raises(FatalError, match="after_start of node 1 failed"):
        live.lower_live(Run(ports, plan))
    assert live.serves_at_level(Run(ports, plan))
    again = list[int]()
    world.on_started = again.append
    assert "metadata.version is 29 on the controllers" in live.lower_live(Run(ports, plan))
    assert sorted(again) == [*CONTROLLERS]
    assert sorted(world.stops) == [*CONTROLLERS]


def test_a_quorum_that_needs_the_commands_after_the_starts_gets_them(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, opened = approved_live(ports), set[int]()

    def needs_commands(run: Run) -> str:
        stopped = bool(world.stops)
        return "a port is closed" if stopped and opened != {*CONTROLLERS} else quorum_lacks(run)

    monkeypatch.setattr(live, "quorum_lacks", needs_commands)
    world.on_started = opened.add
    live.lower_live(Run(ports, plan))
    assert opened == {*CONTROLLERS}
    assert not [one for one in world.stops if world.stops.count(one) > 1]


def test_the_controllers_that_return_to_their_old_logs_get_their_commands(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, undrained = approved_live(ports), list[int]()
    world.on_started = undrained.append

    def broken(*_: object, **__: object) -> Path:
        raise FatalError("No space is left.", remedy="Make space.")

    monkeypatch.setattr(live, "write_once", broken)
    with pytest.raises(RolloutError, match="run on their old logs again"):
        live.lower_live(Run(ports, plan))
    assert sorted(undrained) == [*CONTROLLERS]
