"""What the test traffic lost so far is accepted by name before a step that cannot be undone, or the step is refused."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.model.pace import Pace
from kafka_rollout.model.plan import Lowering
from kafka_rollout.model.state import CheckpointFile
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.planning.request import FinalizePolicy, Request
from kafka_rollout.preparation.state_comparison import NOT_COMPARED
from kafka_rollout.procedure.actions import finalize
from kafka_rollout.procedure.kinds import DOWNGRADE, UPGRADE
from kafka_rollout.procedure.step import Procedure, StepCall
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.builders import record_traffic
from kafka_rollout.run.events import Approval, ApprovalOf, Decision, Event, events_of, newest
from kafka_rollout.run.ports import Answer, Question
from kafka_rollout.run.step_events import ContentsCompared, Started, Stopping, TrafficChecked
from kafka_rollout.run.traffic import TrafficSample, TrafficVerdict
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import FakeTraffic, fake_ports
from tests.integration.harness.faults.without_live import stage_no_live
from tests.of_cluster import with_pace
from tests.running import carry_out
from tests.traffic import LOST, compared_traffic, traffic_of_run

QUICK: dict[str, Any] = {"rehearse": False, "scan": False, "pace": Pace.FAST}
UP = Request(target=R431, finalize=FinalizePolicy.AFTER_APPROVAL, traffic=True, **QUICK)
DOWN = Request(target=Release(4, 2, 1), lowering=Lowering.LIVE, traffic=True, **{**QUICK, "scan": True})
LINE = f"Test traffic: {LOST.sentence}"


@dataclass
class Approver:
    """Approves everything but the differences that `of_differences` rejects."""

    of_differences: Decision = Decision.APPROVED
    bodies: dict[ApprovalOf, str] = field(default_factory=dict)

    @property
    def terminal(self) -> None:
        return None

    @property
    def present(self) -> bool:
        return False

    def ask(self, question: Question) -> Answer:
        self.bodies[question.what] = question.body.replace("\\", "")
        decision = self.of_differences if question.what is ApprovalOf.DIFFERENCES else Decision.APPROVED
        return Answer(by="alice", decision=decision, reason="CHG-1")

    def show(self, body: str) -> None: ...


def world_of(release: Release, **more: Any) -> FakeCluster:
    world = FakeCluster(release, **more)
    world.java = 17
    for node in world.nodes.values():
        node.checkpoints.append(CheckpointFile(node_id=0, path="x", end_offset=500, epoch=3, size=1, modified_at=4e9))
    return world


def at_event(ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, is_it: Callable[[Event], bool], act: Any) -> None:
    kind = type(ports.run)
    real = kind.record

    def record(self: Any, event: Event) -> None:
        real(self, event)
        if is_it(event):
            act()

    monkeypatch.setattr(kind, "record", record)


def is_raised(world: FakeCluster) -> bool:
    return any(not validates for _, validates in world.updates)


def lose(world: FakeCluster) -> Callable[[], None]:
    return lambda: setattr(world, "traffic", compared_traffic(LOST))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def test_lost_records_are_a_difference_after_the_roll_before_levels_are_raised(tmp_path: Path) -> None:
    world = world_of(R391)
    lose(world)()
    ports, approver = fake_ports(world, tmp_path), Approver(of_differences=Decision.REJECTED)
    with pytest.raises(RefusedError, match="alice did not approve the differences"):
        carry_out(ports, UPGRADE, UP, approver)
    assert f"- {LINE}" in approver.bodies[ApprovalOf.DIFFERENCES]
    assert not is_raised(world)
    record_traffic(ports, traffic_of_run(ports.run.events(), LOST))  # a failed run stops its traffic

    approver.of_differences = Decision.APPROVED
    carry_out(ports, UPGRADE, UP, approver)
    assert LINE in approver.bodies[ApprovalOf.FINALIZE], "the last approval before the way back closes names it, too"
    assert is_raised(world)


@pytest.mark.parametrize(
    ("has_run", "problem", "line"),
    [
        (False, "", "Test traffic: the run was started with it, and none has run."),
        (True, "Host b is gone.", NOT_COMPARED),
    ],
)
def test_requested_traffic_without_a_result_proves_nothing(
    tmp_path: Path, has_run: bool, problem: str, line: str
) -> None:
    world = world_of(R391)
    world.traffic, world.traffic_problem = compared_traffic() if has_run else None, problem
    ports, approver = fake_ports(world, tmp_path), Approver(of_differences=Decision.REJECTED)
    with pytest.raises(RefusedError, match="alice did not approve the differences"):
        carry_out(ports, UPGRADE, UP, approver)
    assert f"- {line}" in approver.bodies[ApprovalOf.DIFFERENCES]
    without = fake_ports(world, tmp_path / "without", run_id="without")
    assert not [one for one in events_of(without.run.events(), ContentsCompared) if one.failing]


@pytest.mark.parametrize(
    ("procedure", "request_of", "of"), [(UPGRADE, UP, ApprovalOf.FINALIZE), (DOWNGRADE, DOWN, ApprovalOf.ROLL)]
)
def test_an_approver_accepts_that_records_were_not_compared_whatever_the_cause_says_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, procedure: Procedure, request_of: Request, of: ApprovalOf
) -> None:
    is_up = procedure is UPGRADE
    world = world_of(R391) if is_up else world_of(R431, finalized={"metadata.version": 30})
    ports, approver = fake_ports(world, tmp_path), Approver()
    ages = itertools.count()

    def grow_old() -> None:
        world.traffic_problem = f"The test traffic does not run: last report {next(ages)} s ago."

    grow_old()
    at_event(ports, monkeypatch, lambda event: True, grow_old)
    carry_out(ports, procedure, request_of, approver)
    assert f"- {NOT_COMPARED}" in approver.bodies[of]
    assert world.finalized["metadata.version"] == (30 if is_up else 29)
    seen = events_of(ports.run.events(), TrafficChecked)
    assert all("last report" in one.why for one in seen)
    assert len({one.why for one in seen}) > 1


def test_what_is_lost_after_the_comparison_is_in_the_text_of_the_approval_to_finalize(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(R391)
    ports, approver = fake_ports(world, tmp_path), Approver()
    at_event(ports, monkeypatch, lambda event: isinstance(event, ContentsCompared), lose(world))
    carry_out(ports, UPGRADE, UP, approver)
    assert ApprovalOf.DIFFERENCES not in approver.bodies, "neither before, nor again after the levels"
    assert LINE in approver.bodies[ApprovalOf.FINALIZE]
    (given,) = [one for one in events_of(ports.run.events(), Approval) if one.what is ApprovalOf.FINALIZE]
    assert LINE in given.doubts
    assert is_raised(world)


def test_what_is_lost_after_the_approval_raises_no_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(R391)
    ports = fake_ports(world, tmp_path)
    at_event(
        ports,
        monkeypatch,
        lambda event: isinstance(event, Approval) and event.what is ApprovalOf.FINALIZE,
        lose(world),
    )
    with pytest.raises(RefusedError, match="40 records acknowledged, but not in the log"):
        carry_out(ports, UPGRADE, UP, Approver())
    assert not is_raised(world)


def test_a_retry_after_all_levels_were_raised_needs_no_traffic(tmp_path: Path) -> None:
    """The host of a killed worker can be that of the traffic, and no approval is left that could list it."""
    world = world_of(R391)
    ports = fake_ports(world, tmp_path)
    carry_out(ports, UPGRADE, UP, Approver())
    world.traffic_problem = "Host b is gone."
    call = StepCall(ports=ports, request=UP, plan_or_none=ports.run.load_plan(), log=logging.getLogger(__name__))
    assert {one["error"] for one in finalize(call)} == {"NONE"}


def test_a_broker_that_acknowledges_nothing_since_its_start_is_a_difference_before_levels_are_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other brokers acknowledge records of each producer all the time."""
    world = world_of(R391)
    ports, approver = fake_ports(world, tmp_path), Approver(of_differences=Decision.REJECTED)
    silent = world.spec.brokers[0].node_id
    real = FakeTraffic.check

    def check(self: FakeTraffic) -> TrafficVerdict | None:
        started = [event.at for event in events_of(ports.run.events(), Started) if event.node_id == silent]
        if (found := real(self)) is None or not started:
            return found
        seen = (one._replace(until=started[-1]) if one.broker == silent else one for one in found.leaderships)
        return replace(found, leaderships=tuple(seen))

    monkeypatch.setattr(FakeTraffic, "check", check)
    with pytest.raises(RefusedError, match="alice did not approve the differences"):
        carry_out(ports, UPGRADE, UP, approver)
    lines = [one for one in approver.bodies[ApprovalOf.DIFFERENCES].splitlines() if "Test traffic: " in one]
    assert ["acknowledgement of the started broker in 1 of 6 node steps" in one for one in lines] == [True] * 2
    assert not is_raised(world)


@pytest.mark.parametrize("end", ["ended", "denied"])
def test_traffic_that_acknowledged_nothing_since_a_batch_is_a_difference_before_levels_are_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """All records that it acknowledged before are in the log."""
    world, request = world_of(R391), replace(UP, pace=Pace.NORMAL)
    world.spec = with_pace(world.spec, soak_s=0.0, checks=1, interval_s=30.0)
    ports, approver = fake_ports(world, tmp_path), Approver(of_differences=Decision.REJECTED)
    first: list[float] = []

    def acknowledge_no_more() -> None:
        first.append(world.clock.now())
        acknowledged = TrafficSample(first[0] - 10, 10.0, 300, committed=150)
        denied = [TrafficSample(first[0] + second, 1.0, failed=9, committed=0) for second in range(10_000)]
        world.traffic = replace(compared_traffic(), series=(acknowledged, *(denied if end == "denied" else ())))

    at_event(ports, monkeypatch, lambda event: isinstance(event, Stopping) and not first, acknowledge_no_more)
    with pytest.raises(RefusedError, match="alice did not approve the differences"):
        carry_out(ports, UPGRADE, request, approver)
    body = approver.bodies[ApprovalOf.DIFFERENCES]
    lines = [one.removeprefix("- ") for one in body.splitlines() if "Test traffic: " in one]
    for line, what in zip(lines, ("plain producer acknowledged", "transactional producer committed"), strict=True):
        assert f"The {what} no" in line.replace(" of the test traffic", "")
        assert "during 6 of 6 node steps" in line
    assert not is_raised(world)

    approver.of_differences = Decision.APPROVED
    carry_out(ports, UPGRADE, request, approver)
    assert all(line in approver.bodies[ApprovalOf.FINALIZE] for line in lines)
    assert is_raised(world)


@pytest.mark.parametrize("what", ["series", "leaderships"])
def test_the_first_record_after_the_last_start_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """That of any broker, and that of the started one, which leads again only since a moment ago."""
    world = world_of(R391)
    ports, approver = fake_ports(world, tmp_path), Approver(of_differences=Decision.REJECTED)
    real, checks = FakeTraffic.check, itertools.count()

    def check(self: FakeTraffic) -> TrafficVerdict | None:
        found, started = real(self), newest(ports.run.events(), Started)
        if found is None or started is None or next(checks):
            return found
        if what == "leaderships":
            return replace(found, leaderships=tuple(one for one in found.leaderships if one.broker != started.node_id))
        return replace(found, series=tuple(one for one in found.series if one.at < started.at - 10))

    monkeypatch.setattr(FakeTraffic, "check", check)
    carry_out(ports, UPGRADE, UP, approver)
    assert is_raised(world)
    assert next(checks) > 2


@pytest.mark.parametrize("lowering", [Lowering.LIVE, Lowering.OFFLINE])
def test_before_the_stop_of_a_downgrade_lost_records_are_in_its_approval_or_refuse_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lowering: Lowering
) -> None:
    if lowering is Lowering.OFFLINE:
        stage_no_live(monkeypatch)
    request = replace(DOWN, lowering=lowering)
    world = world_of(R431, finalized={"metadata.version": 30})
    ports, approver = fake_ports(world, tmp_path, run_id="late"), Approver()
    at_event(
        ports, monkeypatch, lambda event: isinstance(event, Approval) and event.what is ApprovalOf.ROLL, lose(world)
    )
    with pytest.raises(RefusedError, match="40 records acknowledged, but not in the log"):
        carry_out(ports, DOWNGRADE, request, approver)
    assert LINE not in approver.bodies[ApprovalOf.ROLL]
    assert world.stops == []

    carry_out(ports, DOWNGRADE, request, approver)
    assert LINE in approver.bodies[ApprovalOf.ROLL]
    assert world.finalized["metadata.version"] < 30
    assert ApprovalOf.DIFFERENCES not in approver.bodies, "it is accepted"
