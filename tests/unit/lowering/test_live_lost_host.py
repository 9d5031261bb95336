"""A host is lost during a live downgrade of a fake cluster: at each position, each controller, with each way to return.

In every state in which a majority of the controllers' hosts responds, a controller is active after the call. No old log
is used after a leader was elected on the snapshot, and nothing that was committed to an old log is lost: FakeCluster
records both as violations. The repeated call with the host back finishes or undoes the downgrade.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import FatalError, RolloutError, TransientError
from kafka_rollout.lowering import live
from kafka_rollout.lowering.lowered_snapshot import install_on
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.run.events import events_of, has
from kafka_rollout.run.step_events import LiveLowered, OfflineInstalled, OfflineUndoing
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.dying_files import KilledError
from tests.fakes.metadata_logs import FakeMetadataLogs, FakePrepared
from tests.fakes.runtime import FakeRuntime
from tests.unit.lowering.test_live import CONTROLLERS, approved, is_lowered


def lose(world: FakeCluster, node_id: int, *, power: bool) -> None:
    world.unreachable.add(node_id)
    if power:
        world.lose_power(node_id)


def running(world: FakeCluster) -> set[int]:
    return {node_id for node_id in CONTROLLERS if world.runs(node_id)}


def call(ports: ClusterPorts, plan: Plan) -> str:
    """Return the sentence of the call, also of its refusal."""
    try:
        return live.lower_live(Run(ports, plan))
    except RolloutError as error:
        return f"{type(error).__name__}: {error}"


def assert_serves(world: FakeCluster) -> None:
    """If a majority of the controllers' hosts responds, a controller is active, and all that respond run."""
    assert world.violations == []
    responding = CONTROLLERS - world.unreachable
    if len(responding) >= 2:
        assert world.leader is not None, running(world)


def finish(world: FakeCluster, ports: ClusterPorts, plan: Plan) -> None:
    """Repeat the call until the level is lowered on every controller."""
    for _ in range(5):
        world.clock.sleep(1000)
        said = call(ports, plan)
        assert_serves(world)
        print(said)
        if has(ports.run.events(), LiveLowered) and running(world) == CONTROLLERS:
            break
    assert is_lowered(world)
    assert len(events_of(ports.run.events(), LiveLowered)) == 1


@pytest.mark.parametrize("when", ["after the stops", "during the installation"])
@pytest.mark.parametrize("lost", sorted(CONTROLLERS))
def test_one_lost_host_leaves_the_cluster_with_an_active_controller(
    world: FakeCluster,
    ports: ClusterPorts,
    monkeypatch: pytest.MonkeyPatch,
    lost: int,
    when: str,
) -> None:
    plan, gone = approved(ports), []

    def guard(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def act(self: Any, node: NodeSpec, *args: Any, **options: Any) -> Any:
            if gone and node.node_id == lost:
                raise TransientError(f"Host of {lost} cannot be reached.")
            return real(self, node, *args, **options)

        monkeypatch.setattr(owner, name, act)

    for name in ("process", "start", "stop"):
        guard(FakeRuntime, name)
    for name in ("node_log", "install", "undo_install"):
        guard(FakeMetadataLogs, name)
    part = "write_once" if when == "after the stops" else "install_on"
    real = getattr(live, part)

    def lose_it(*args: Any, **options: Any) -> Any:
        if part == "write_once" or args[1].node_id == lost:
            gone.append(lost)
        return real(*args, **options)

    monkeypatch.setattr(live, part, lose_it)
    for _ in range(2):
        print(call(ports, plan))
        assert CONTROLLERS - {lost} <= running(world), "each controller whose host responds runs"
        assert world.leader is not None
        world.clock.sleep(1000)


# --- each position ---

Position = tuple[Any, str, int]  # class, method, number of the call for the lost node
POSITIONS: dict[str, Position] = {
    "before its stop": (FakeRuntime, "stop", 1),
    "when logs are read": (FakeMetadataLogs, "node_log", 1),
    "when the snapshot is written": (FakePrepared, "write", 1),
    "when it is installed": (FakeMetadataLogs, "install", 1),
    "when it starts": (FakeRuntime, "start", 1),
    "when its process is checked after the start": (FakeRuntime, "process", 8),
    "when it is restored": (FakeMetadataLogs, "undo_install", 1),
    "when its epoch is raised": (FakeMetadataLogs, "raise_epoch", 1),
}
Ways = dict[str, Callable[[FakeCluster, int], None]]
RETURNS: Ways = {
    "the network returns": lambda world, node_id: None,
    "the host boots and its unit starts": lambda world, node_id: None if world.runs(node_id) else world.start(node_id),
    "the host boots without its unit": lambda world, node_id: world.lose_power(node_id),
}


class Fault:
    """The loss of a host at a call, before or after the call has its effect; optionally with the death of the tool."""

    def __init__(self, world: FakeCluster, lost: int, *, power: bool, done: bool, killed: bool) -> None:
        self.world, self.lost, self.power, self.done, self.killed = world, lost, power, done, killed
        self.seen = 0
        self.happened = False

    def around(self, real: Callable[..., Any], at: int) -> Callable[..., Any]:
        def act(owner: Any, node: NodeSpec, *args: Any, **options: Any) -> Any:
            is_early = real.__name__ == "node_log" and self.world.runs(node.node_id)  # it is read before the stop too
            if is_early or (node.node_id != self.lost and real.__name__ != "write"):
                return real(owner, node, *args, **options)
            self.seen += 1
            if self.seen != at:
                return real(owner, node, *args, **options)
            if self.done:
                real(owner, node, *args, **options)
            lose(self.world, self.lost, power=self.power)
            self.happened = True
            if self.killed:
                raise KilledError
            raise TransientError(f"The host of node {self.lost} cannot be reached.")

        return act


def dies(*given: Any) -> None:
    raise KilledError


# Each two of these occur together in `make test` too, at each position and host; all three in `make test-full`.
FAULTS = [
    pytest.param(
        power,
        done,
        killed,
        id=f"{'power' if power else 'network'}-{'after' if done else 'before'}-{'killed' if killed else ''}",
        marks=() if (power + done + killed) % 2 == 0 else pytest.mark.full,
    )
    for power, done, killed in product((False, True), repeat=3)
]


@pytest.mark.parametrize(("power", "done", "killed"), FAULTS)
@pytest.mark.parametrize("lost", sorted(CONTROLLERS))
@pytest.mark.parametrize("position", POSITIONS)
def test_wherever_a_host_is_lost_the_others_serve_and_repeated_calls_lower_the_level(
    world: FakeCluster,
    ports: ClusterPorts,
    monkeypatch: pytest.MonkeyPatch,
    *,
    position: str,
    lost: int,
    power: bool,
    done: bool,
    killed: bool,
) -> None:
    plan, (owner, name, at) = approved(ports), POSITIONS[position]
    fault = Fault(world, lost, power=power, done=done, killed=killed)
    with monkeypatch.context() as patched:
        in_undo = name in {"undo_install", "raise_epoch"}
        if in_undo:
            fail_on_two(patched)
        patched.setattr(owner, name, fault.around(getattr(owner, name), at))
        if killed:
            if not in_undo:
                patched.setattr(live, "undo_or_continue", dies)
            with suppress(KilledError):
                call(ports, plan)
        else:
            print(call(ports, plan))
            assert_serves(world)
    world.clock.sleep(1000)
    assert fault.happened
    print(call(ports, plan))  # the host is still away
    assert_serves(world)
    back = list(RETURNS.values())[(lost + power + done + killed) % 3]
    back(world, lost)
    world.unreachable.clear()
    finish(world, ports, plan)


def kill_with_the_snapshot_on_1(ports: ClusterPorts, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the others is installed, and nothing is decided."""

    def install(run: Run, node: NodeSpec, path: Path) -> OfflineInstalled:
        if node.node_id == 1:
            return install_on(run, node, path)
        raise TransientError("The disk does not respond.")

    with monkeypatch.context() as patched:
        patched.setattr(live, "install_on", install)
        patched.setattr(live, "undo_or_continue", dies)
        with pytest.raises(KilledError):
            live.lower_live(Run(ports, plan))


@pytest.mark.parametrize("started", [(), (2,), (2, 1)], ids=str)
def test_killed_with_the_snapshot_on_one_and_another_host_dead_a_controller_is_active_again(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, started: tuple[int, ...]
) -> None:
    """With the dead one, those that were started could be a majority on the old logs, until nobody reports a leader."""
    plan = approved(ports)
    kill_with_the_snapshot_on_1(ports, plan, monkeypatch)
    lose(world, 3, power=True)
    for node_id in started:
        world.nodes[node_id].running = R431  # before an election
    for _ in range(3):
        world.clock.sleep(1000)
        print(call(ports, plan))
        assert_serves(world)
        assert running(world) == {1, 2}
    world.unreachable.clear()
    finish(world, ports, plan)


BEFORE_THE_SNAPSHOT = [(FakeMetadataLogs, "node_log"), (FakePrepared, "write")]


def kill_at(owner: type, name: str, world: FakeCluster, ports: ClusterPorts, plan: Plan) -> None:
    """Kill the call at a change, with the controllers stopped."""
    real = getattr(owner, name)

    def act(*given: Any, **options: Any) -> Any:
        if any(world.runs(node_id) for node_id in CONTROLLERS):  # before the stop
            return real(*given, **options)
        raise KilledError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, act)
        patched.setattr(live, "undo_or_continue", dies)
        with pytest.raises(KilledError):
            live.lower_live(Run(ports, plan))


@pytest.mark.parametrize(("owner", "name"), BEFORE_THE_SNAPSHOT, ids=["choice", "snapshot"])
def test_killed_before_the_snapshot_the_others_lower_the_level_without_a_dead_host(
    world: FakeCluster, ports: ClusterPorts, owner: type, name: str
) -> None:
    plan = approved(ports)
    kill_at(owner, name, world, ports, plan)
    lose(world, 3, power=True)
    world.start(2)
    assert "metadata.version is 29 on the controllers" in call(ports, plan)
    assert running(world) == {1, 2}
    world.unreachable.clear()
    finish(world, ports, plan)


@pytest.mark.parametrize(("owner", "name"), BEFORE_THE_SNAPSHOT, ids=["choice", "snapshot"])
def test_killed_before_the_snapshot_no_controller_stops_while_only_the_brokers_reach_the_active_one(
    world: FakeCluster, ports: ClusterPorts, owner: type, name: str
) -> None:
    plan = approved(ports)
    kill_at(owner, name, world, ports, plan)
    world.start(3)
    world.leader = None
    world.start(2)
    world.leader = 3
    world.unreachable, world.silent, stops = {3}, {3}, list(world.stops)
    assert "TransientError" in call(ports, plan)
    assert (world.stops, running(world)) == (stops, CONTROLLERS)
    world.unreachable, world.silent = set(), set()
    finish(world, ports, plan)


@pytest.mark.parametrize("undoing", [False, True], ids=["first call", "interrupted undo"])
def test_nothing_stops_while_only_the_brokers_reach_the_active_controller(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, *, undoing: bool
) -> None:
    plan = approved(ports)
    kill_with_the_snapshot_on_1(ports, plan, monkeypatch)
    world.log_epochs[3] = 4
    world.start(3)
    world.start(2)
    assert world.leader == 3
    world.unreachable, world.silent, stops = {3}, {3}, list(world.stops)
    if undoing:
        ports.run.record(OfflineUndoing(sentence="A test."))
    for _ in range(2):
        assert "Controller 3 is active. It is unknown which log it uses" in call(ports, plan)
        assert (world.stops, running(world), world.leader) == (stops, {2, 3}, 3)
        world.clock.sleep(1000)
    world.unreachable, world.silent = set(), set()
    finish(world, ports, plan)


def fail_on_two(patched: pytest.MonkeyPatch) -> None:
    """Let the installation fail on all controllers but the first, so that it is undone."""
    install = FakeMetadataLogs.install

    def fails(logs: Any, node: NodeSpec, *args: Any, **options: Any) -> str:
        if node.node_id != 1:
            raise FatalError("No space left on device.")
        return install(logs, node, *args, **options)

    patched.setattr(FakeMetadataLogs, "install", fails)
