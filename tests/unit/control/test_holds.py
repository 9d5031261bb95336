"""What holds the stop of all nodes, or of all controllers, of a downgrade over a fake cluster, and what does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError, StoppedError, TransientError, UserError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.control.holds import HeldError, refuse_held
from kafka_rollout.gates.control import Reading
from kafka_rollout.gates.gate import Gate, GateKind
from kafka_rollout.lowering import live
from kafka_rollout.lowering.live import Controllers, lower_live
from kafka_rollout.lowering.lowered_snapshot import install_on
from kafka_rollout.lowering.offline import choose, install_snapshot, stop_all, undo_offline
from kafka_rollout.lowering.outage_facts import shown_facts
from kafka_rollout.model.plan import Lowering
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import HostCommand, NodeSpec, OutsideCondition, ServiceSpec
from kafka_rollout.observation.run import Run
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.roll.gate_checks import check_gate
from kafka_rollout.run.events import (
    ApprovalOf,
    Channel,
    ControlAsked,
    Decision,
    PauseAsked,
    Responder,
    ResumeAsked,
    StopAsked,
    events_of,
)
from kafka_rollout.run.projections.offline import chosen_log, stop_has_begun
from kafka_rollout.run.step_events import OfflineInstalled, OfflineLogChosen, OfflineStopping
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.dying_files import KilledError
from tests.fakes.metadata_logs import FakeMetadataLogs, FakePrepared
from tests.fakes.ports import fake_ports
from tests.fakes.runtime import FakeRuntime
from tests.integration.harness.faults.without_live import stage_no_live
from tests.of_cluster import parted
from tests.plans import downgrade_request
from tests.unit.lowering.test_offline import FORWARD, R421

LAG = OutsideCondition(name="lag", query="sum(lag)", requires="< 5")
GOOD, BAD, UNKNOWN = Reading(value=1), Reading(value=9), Reading(problem="No response.", remedy="Start it.")
OFFLINE, LIVE = Lowering.OFFLINE, Lowering.LIVE
WINDOW = "0 22 * * * 6h UTC"


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


class World:
    """A cluster with an approved plan of a downgrade where Kafka refuses the level."""

    def __init__(
        self, where: Lowering, home: Path, *, now: str = "2026-12-01 23:00", drains_s: float = 0.0, **fields: Any
    ) -> None:
        """`drains_s`: limit of the command before the stop that each node has; 0: none."""
        self.cluster = FakeCluster(R431)
        self.cluster.spec = replace(self.cluster.spec, conditions=(LAG,))
        if drains_s:
            service = ServiceSpec(host="host", before_stop=(HostCommand(command="drain", timeout_s=drains_s),))
            nodes = tuple(replace(node, service=service) for node in self.cluster.spec.nodes)
            self.cluster.spec = replace(self.cluster.spec, nodes=nodes)
        self.cluster.outside["lag"] = [GOOD]
        self.set(now)
        self.cluster.spec, fields = parted(self.cluster.spec, fields)
        self.ports = fake_ports(self.cluster, home)
        request = downgrade_request(R421, lowering=where, **fields)
        terms = request.terms(self.ports.cluster)
        self.plan = plan_change(self.ports, request, RunOf.DOWNGRADE, terms=terms)
        record_approval(self.ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
        self.act: Callable[[Run], object] = stop_all if where is OFFLINE else lower_live

    def set(self, now: str) -> None:
        self.cluster.clock.set(at(now), reading_s=0.001)

    def ask(self, kind: type[ControlAsked]) -> None:
        self.ports.run.record(kind(by="bob", reason="errors", responder=Responder(channel=Channel.SHELL, user="bob")))

    def start_all(self, *, besides: int = 0) -> None:
        """As somebody does it by hand; then every broker catches up."""
        for node_id, node in self.cluster.nodes.items():
            if node.running is None and node_id != besides:
                self.cluster.start(node_id)
        self.cluster.clock.sleep(600)
        for _ in range(3):
            self.cluster.advance()

    def stop(self) -> object:
        return self.act(Run(self.ports, self.plan))

    def stop_patiently(self) -> object:
        """Repeat it as a run does, ten minutes later, if it begins anew or controllers were started too short ago."""
        for _ in range(2):
            with suppress(TransientError):
                return self.stop()
            self.start_all()
        return self.stop()


@pytest.fixture
def staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)

    def stage(where: Lowering, **fields: Any) -> World:
        if where is OFFLINE:
            stage_no_live(monkeypatch)
        return World(where, tmp_path, **fields)

    return stage


@pytest.mark.parametrize("where", [OFFLINE, LIVE])
@pytest.mark.parametrize(
    ("hold", "end", "shown"),
    [
        (lambda world: world.set("2026-12-02 05:00"), lambda world: world.set("2026-12-02 22:30"), "closed until We"),
        (lambda world: world.ask(PauseAsked), lambda world: world.ask(ResumeAsked), "paused by bob: errors"),
        (
            lambda world: world.cluster.outside.update(lag=[BAD]),
            lambda world: world.cluster.outside.update(lag=[GOOD]),
            "condition lag: 9, required < 5",
        ),
        (
            lambda world: world.cluster.outside.update(lag=[UNKNOWN]),
            lambda world: world.cluster.outside.update(lag=[GOOD]),
            "unknown: No response.",
        ),
    ],
    ids=["window", "pause", "outside", "unknown"],
)
def test_nothing_is_stopped_while_something_holds_the_stop(
    staged: Callable[..., World],
    where: Lowering,
    hold: Callable[[World], None],
    end: Callable[[World], None],
    shown: str,
) -> None:
    world = staged(where, window=WINDOW)
    hold(world)
    with pytest.raises(HeldError, match=shown) as held:
        world.stop()
    assert held.value.gate.kind is (GateKind.NODES_STOP if where is OFFLINE else GateKind.CONTROLLERS_STOP)
    assert world.cluster.stops == []
    end(world)
    world.stop()
    assert set(world.cluster.stops) >= {1, 2, 3}


@pytest.mark.parametrize("where", [OFFLINE, LIVE])
def test_what_begins_to_hold_during_the_commands_before_the_stop_holds_it(
    staged: Callable[..., World], where: Lowering
) -> None:
    world = staged(where, drains_s=3600.0)
    world.cluster.on_prepare = lambda node_id: world.cluster.outside.update(lag=[BAD])
    with pytest.raises(HeldError, match="condition lag: 9"):
        world.stop()
    assert world.cluster.stops == []


def test_nothing_holds_a_stop_that_has_begun_and_its_undo(staged: Callable[..., World]) -> None:
    world = staged(OFFLINE, window=WINDOW)
    world.stop()
    world.cluster.start(11)  # something starts a node
    world.set("2026-12-02 05:00")
    world.ask(PauseAsked)
    world.cluster.outside["lag"] = [BAD]
    world.stop()
    install_snapshot(Run(world.ports, world.plan))
    record_approval(world.ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "errors of clients")
    undo_offline(Run(world.ports, world.plan))
    assert {node.running for node in world.cluster.nodes.values()} == {R431}
    record_approval(world.ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "another try")
    with pytest.raises(HeldError):
        world.stop()


@pytest.mark.parametrize("where", [OFFLINE, LIVE])
@pytest.mark.parametrize("asked", [PauseAsked, StopAsked])
def test_a_stop_of_all_that_did_not_happen_is_held_as_the_first_one(
    staged: Callable[..., World], where: Lowering, asked: type[ControlAsked], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = staged(where)

    def killed(*_: object, **of: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(FakeRuntime, "stop", killed)
        patch.setattr(live, "undo_or_continue", killed)
        with pytest.raises(KilledError):
            world.stop()
    assert stop_has_begun(world.ports.run.events())
    world.set("2026-12-02 12:00")
    world.ask(asked)
    with pytest.raises((HeldError, StoppedError)):
        world.stop()
    assert world.cluster.stops == []
    world.ask(ResumeAsked)
    world.stop()
    assert set(world.cluster.stops) >= {1, 2, 3}


def test_nodes_that_all_run_again_are_held_and_recorded_as_before_a_first_stop(staged: Callable[..., World]) -> None:
    world = staged(OFFLINE)
    world.stop()
    world.start_all()
    world.ask(PauseAsked)
    stops = list(world.cluster.stops)
    with pytest.raises(HeldError, match="paused by bob"):
        world.stop()
    world.ask(ResumeAsked)
    assert world.cluster.stops == stops
    world.stop()
    (step,) = world.plan.release_steps
    before = world.ports.run.load_before_stop(step.key, 11)
    assert before is not None
    assert before.started_at == world.cluster.nodes[11].starts[-1].started_at
    assert len(events_of(world.ports.run.events(), OfflineStopping)) == 2


def test_a_cluster_that_serves_again_is_held_although_a_node_of_it_is_still_down(staged: Callable[..., World]) -> None:
    world = staged(OFFLINE)
    world.stop()
    world.start_all(besides=13)
    world.ask(PauseAsked)
    stops = list(world.cluster.stops)
    with pytest.raises(RefusedError, match="13"):
        world.stop()
    assert world.cluster.stops == stops


def test_nodes_that_were_started_after_the_choice_of_the_log_are_not_stopped_until_the_try_has_ended(
    staged: Callable[..., World],
) -> None:
    world = staged(OFFLINE)
    world.stop()
    choose(Run(world.ports, world.plan))
    world.start_all()
    stops = list(world.cluster.stops)
    with pytest.raises(RefusedError, match="started again after the log was chosen") as refused:
        world.stop()
    assert "kafka-rollout rollback" in refused.value.remedy
    record_approval(world.ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "as the remedy says")
    undo_offline(Run(world.ports, world.plan))
    assert world.cluster.stops == stops
    record_approval(world.ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "another try")
    world.stop()
    install_snapshot(Run(world.ports, world.plan))


@pytest.mark.parametrize("change", [(FakePrepared, "write"), (FakeMetadataLogs, "install")], ids=["write", "install"])
def test_controllers_that_somebody_started_after_the_choice_of_the_log_are_held_as_before_a_first_stop(
    staged: Callable[..., World], monkeypatch: pytest.MonkeyPatch, change: tuple[type, str]
) -> None:
    world = staged(LIVE)

    def killed(*_: object, **of: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(*change, killed)
        patch.setattr(live, "undo_or_continue", killed)
        with pytest.raises(KilledError):
            world.stop()
    assert chosen_log(world.ports.run.events()) is not None
    world.start_all()
    stops = list(world.cluster.stops)
    world.ask(PauseAsked)
    for held in ("the stop begins anew", "paused by bob"):
        with pytest.raises(HeldError, match=held):
            world.stop()
    assert world.cluster.stops == stops
    world.ask(ResumeAsked)
    assert "metadata.version is 29 on the controllers" in str(world.stop_patiently())
    assert all(node.running for node in world.cluster.nodes.values())
    chosen = [event.log for event in events_of(world.ports.run.events(), OfflineLogChosen)]
    assert len(chosen) == 2, "the log is chosen again, because the first choice lacks what they wrote"


@pytest.mark.parametrize("paused", [False, True], ids=["not paused", "paused"])
@pytest.mark.parametrize("installed", [(), (3,)], ids=["no snapshot", "snapshot on one"])
@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "not recorded"])
def test_the_controllers_that_nobody_started_after_the_choice_of_the_log_are_started_first(
    staged: Callable[..., World],
    monkeypatch: pytest.MonkeyPatch,
    *,
    paused: bool,
    installed: tuple[int, ...],
    recorded: bool,
) -> None:
    """Only the run can return a controller to its old log: with the snapshot, it exits at each start by hand."""
    world = staged(LIVE)

    def install(run: Run, node: NodeSpec, path: Path) -> OfflineInstalled:
        found = install_on(run, node, path) if node.node_id in installed else None
        if found is None or not recorded:
            raise KilledError
        return found

    def one_by_one(self: Controllers, act: Callable[[NodeSpec], object], chosen: Iterable[NodeSpec]) -> object:
        return {node.node_id: act(node) for node in sorted(chosen, key=lambda one: -one.node_id)}

    def killed(*_: object, **of: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(live, "install_on", install)
        patch.setattr(Controllers, "each", one_by_one)
        patch.setattr(live, "undo_or_continue", killed)
        with pytest.raises(KilledError):
            world.stop()
    assert world.cluster.with_snapshot == {*installed}
    for node_id in (1, 2):
        world.cluster.start(node_id)
    stops = list(world.cluster.stops)
    if paused:
        world.ask(PauseAsked)
    gate = Gate(kind=GateKind.CONTROLLERS_STOP)
    assert check_gate(Run(world.ports, world.plan), gate).passes, "the step must start the others"
    with pytest.raises(HeldError, match="the stop begins anew"):
        world.stop()
    assert all(node.running for node in world.cluster.nodes.values())
    assert world.cluster.stops == stops
    if paused:
        with pytest.raises(HeldError, match="paused by bob"):
            world.stop()
        world.ask(ResumeAsked)
    assert "metadata.version is 29 on the controllers" in str(world.stop_patiently())
    assert world.cluster.violations == []


def test_controllers_that_were_started_after_the_choice_of_the_log_keep_running_while_their_level_is_unknown(
    staged: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = staged(LIVE)

    def killed(*_: object, **of: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(FakeMetadataLogs, "install", killed)
        patch.setattr(live, "undo_or_continue", killed)
        with pytest.raises(KilledError):
            world.stop()
    world.start_all()
    stops = list(world.cluster.stops)
    with monkeypatch.context() as patch:
        patch.setattr(live, "served_level", lambda ports: None)
        with pytest.raises(TransientError, match="unknown which log it uses"):
            world.stop()
    assert world.cluster.stops == stops
    assert "metadata.version is 29 on the controllers" in str(world.stop_patiently())


@pytest.mark.parametrize("level", ["known", "unknown"])
def test_no_controller_stops_while_a_silent_host_can_hide_a_majority_on_the_old_logs(
    staged: Callable[..., World], monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    world = staged(LIVE)

    def killed(*_: object, **of: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(FakeMetadataLogs, "install", killed)
        patch.setattr(live, "undo_or_continue", killed)
        with pytest.raises(KilledError):
            world.stop()
    world.start_all(besides=3)
    world.cluster.unreachable = {2}
    stops = list(world.cluster.stops)
    world.ask(PauseAsked)
    with monkeypatch.context() as patch:
        if level == "unknown":
            patch.setattr(live, "served_level", lambda ports: None)
        with pytest.raises(TransientError, match=r"The controllers can run again .* The host of node 2 cannot be"):
            world.stop()
    assert world.cluster.stops == stops
    assert world.cluster.runs(3) is (level == "known"), "on its old log, as the others"
    world.cluster.unreachable = set()
    with pytest.raises(HeldError):
        world.stop()
    assert world.cluster.stops == stops
    world.ask(ResumeAsked)
    assert "metadata.version is 29 on the controllers" in str(world.stop_patiently())
    assert world.cluster.violations == []


def test_a_majority_that_still_runs_after_a_killed_stop_is_held_with_the_stopped_controller_started(
    staged: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, stop = staged(LIVE), FakeRuntime.stop

    def stops_one(runtime: FakeRuntime, node: NodeSpec, **limits: Any) -> None:
        if node.node_id != 1:
            raise KilledError
        stop(runtime, node, **limits)

    def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(FakeRuntime, "stop", stops_one)
        patch.setattr(live, "undo_or_continue", killed)
        with pytest.raises(KilledError):
            world.stop()
    world.ask(PauseAsked)
    for held in ("the stop begins anew", "paused by bob"):
        with pytest.raises(HeldError, match=held):
            world.stop()
    assert world.cluster.stops == [1]
    assert world.cluster.runs(1)
    world.ask(ResumeAsked)
    assert "metadata.version is 29 on the controllers" in str(world.stop_patiently())


@pytest.mark.parametrize("is_chosen", [False, True], ids=["before the choice", "after the choice"])
def test_no_node_stops_while_a_silent_host_can_hide_that_the_cluster_serves_again(
    staged: Callable[..., World], *, is_chosen: bool
) -> None:
    world = staged(OFFLINE)
    world.stop()
    if is_chosen:
        choose(Run(world.ports, world.plan))
    world.start_all(besides=3)
    world.cluster.unreachable = {2}
    stops = list(world.cluster.stops)
    with pytest.raises(
        (RefusedError, TransientError), match="unknown whether the controllers" if is_chosen else "node 2"
    ):
        world.stop()
    assert world.cluster.stops == stops


def test_controllers_that_somebody_started_on_the_snapshot_are_not_stopped(
    staged: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was killed after the installation, and before its record."""
    world = staged(LIVE)

    def killed(*given: Any) -> None:
        install_on(*given)
        raise KilledError

    def dies(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(live, "install_on", killed)
        patch.setattr(live, "undo_or_continue", dies)
        with pytest.raises(KilledError):
            world.stop()
    world.start_all()
    stops = list(world.cluster.stops)
    world.ask(PauseAsked)
    assert "metadata.version is 29 on the controllers" in str(world.stop())
    assert world.cluster.stops == stops


def test_a_controller_that_was_started_while_the_others_are_down_is_stopped_for_the_snapshot(
    staged: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing holds the steps that start the others again."""
    world = staged(LIVE)

    def killed(*_: object, **of: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(FakeMetadataLogs, "install", killed)
        patch.setattr(live, "undo_or_continue", killed)
        with pytest.raises(KilledError):
            world.stop()
    world.cluster.start(1)
    world.ask(PauseAsked)
    assert "metadata.version is 29 on the controllers" in str(world.stop())
    assert world.cluster.stops.count(1) == 2


@pytest.mark.parametrize("where", [OFFLINE, LIVE])
def test_what_follows_a_downgrade_that_has_started_every_node_is_held(
    staged: Callable[..., World], where: Lowering
) -> None:
    world = staged(where)
    run = Run(world.ports, world.plan)
    world.stop()
    if where is OFFLINE:
        for step in FORWARD[1:6]:
            step(run)
        world.ask(PauseAsked)
        refuse_held(run)  # the brokers are down
        FORWARD[6](run)
    else:
        world.ask(PauseAsked)
    with pytest.raises(HeldError, match="paused by bob"):
        refuse_held(run)


@pytest.mark.parametrize("where", [OFFLINE, LIVE])
def test_a_stopped_run_ends_before_the_stop_of_all_nodes(staged: Callable[..., World], where: Lowering) -> None:
    world = staged(where)
    world.ask(StopAsked)
    with pytest.raises(StoppedError, match="stopped by bob"):
        world.stop()
    assert world.cluster.stops == []


def test_the_window_must_be_open_for_the_expected_outage(staged: Callable[..., World]) -> None:
    world = staged(OFFLINE, window=WINDOW)
    shown_facts(Run(world.ports, world.plan))
    world.set("2026-12-02 03:59")
    with pytest.raises(HeldError, match="1 min 00 s left; the stop takes about 2 min"):
        world.stop()


@pytest.mark.parametrize("where", [OFFLINE, LIVE])
def test_the_commands_must_fit_into_the_window_and_after_them_it_must_be_open(
    staged: Callable[..., World], where: Lowering
) -> None:
    world = staged(where, now="2026-12-01 22:20", drains_s=2700.0, window="0 22 * * * 1h UTC")
    drained = []

    def drain(node_id: int) -> None:
        drained.append(node_id)
        world.set("2026-12-02 22:59:30")

    world.cluster.on_prepare = drain
    with pytest.raises(
        HeldError, match="the stop takes about 46 min 00 s, of which 45 min 00 s for the commands before"
    ):
        world.stop()
    assert (drained, world.cluster.stops) == ([], [])
    world.set("2026-12-02 22:10")
    world.stop()
    assert set(world.cluster.stops) >= {1, 2, 3}


@pytest.mark.parametrize("where", [OFFLINE, LIVE])
def test_commands_that_fit_into_no_window_are_refused_with_the_plan(
    staged: Callable[..., World], where: Lowering
) -> None:
    with pytest.raises(UserError, match=r"can take 1 h 00 min and .* no maintenance window .* has time for both"):
        staged(where, drains_s=3600.0, window="0 22 * * * 1h UTC")


def test_a_window_that_never_opens_is_refused_with_the_plan(staged: Callable[..., World]) -> None:
    with pytest.raises(UserError, match="the run would never begin"):
        staged(OFFLINE, freeze_days=("2026-01-01..2030-01-01",))
