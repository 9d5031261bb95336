"""What an earlier run found, and no approver accepted, is accepted by name before a later run raises levels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import update

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.control.lock import release_lock
from kafka_rollout.features.requests import FeatureAction
from kafka_rollout.gates.gate import GatePolicy
from kafka_rollout.model.contents import ClusterInventory
from kafka_rollout.model.plan import FeatureChange
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import FinalizePolicy, Request
from kafka_rollout.preparation import earlier_runs
from kafka_rollout.preparation.earlier_runs import (
    DIFFERENCES_NOT_ACCEPTED,
    EARLIER_RUNS_CHECK,
    UNREAD,
    check_earlier_runs,
)
from kafka_rollout.preparation.state_comparison import compare_with_state
from kafka_rollout.procedure.kinds import FEATURES, RESTART, UPGRADE
from kafka_rollout.procedure.step import Procedure
from kafka_rollout.report.builders import record_traffic
from kafka_rollout.roll.walk import roll_back
from kafka_rollout.run.events import Approval, ApprovalOf, Decision, events_of
from kafka_rollout.run.ports import Answer, Question
from kafka_rollout.run.step_events import ComparedAfter, ContentsCompared, EarlierRunsRead, Started
from kafka_rollout.run.store.tables import events
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import FakeAdmin, fake_ports
from tests.running import carry_out
from tests.traffic import LOST, traffic_of_run
from tests.unit.preparation.test_proved_traffic import LINE, QUICK, Approver, at_event, is_raised, lose, world_of

ROLL = Request(target=R431, finalize=FinalizePolicy.LATER, **QUICK)
AGAIN = replace(ROLL, finalize=FinalizePolicy.AFTER_APPROVAL)
LEVELS = Request(action=FeatureAction.UPGRADE_ALL, **QUICK)
RECORDS = tuple(
    f"Run 1: orders-{number} ended at offset 14 and now ends at 4: records are lost." for number in range(3)
)
Later = tuple[Procedure, Request]
EACH = pytest.mark.parametrize("later", [(FEATURES, LEVELS), (UPGRADE, AGAIN)], ids=["features", "upgrade"])


class Reader(Approver):
    """Approves all but the levels, which it only reads."""

    def ask(self, question: Question) -> Answer:
        answer = super().ask(question)
        return replace(answer, decision=Decision.REJECTED) if question.what is ApprovalOf.FINALIZE else answer


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture
def world() -> FakeCluster:
    return world_of(R391)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The end of each partition of topic orders, where it is not that of the cluster."""
    changed: dict[str, int] = {}
    real = FakeAdmin.inventory

    def inventory(self: FakeAdmin, **more: Any) -> ClusterInventory:
        found = real(self, **more)
        return replace(found, ends={name: changed.get(name.split("-")[0], end) for name, end in found.ends.items()})

    monkeypatch.setattr(FakeAdmin, "inventory", inventory)
    return changed


@pytest.fixture
def roll(world: FakeCluster, tmp_path: Path, ends: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> ClusterPorts:
    """A roll that has lost records, which alice does not accept."""
    ports = fake_ports(world, tmp_path, run_id="roll")
    with monkeypatch.context() as patched:
        at_event(ports, patched, lambda event: isinstance(event, Started), lambda: ends.update(orders=4))
        with pytest.raises(RefusedError, match="alice did not approve the differences"):
            carry_out(ports, UPGRADE, ROLL, Approver(of_differences=Decision.REJECTED))
    release_lock(ports)
    return ports


def lines(approver: Approver, of: ApprovalOf = ApprovalOf.FINALIZE) -> list[str]:
    return [one.removeprefix("- ") for one in approver.bodies[of].splitlines() if one.startswith("- Run ")]


def lines_of_levels(world: FakeCluster, home: Path, run_id: str = "levels") -> list[str]:
    """The lines that the approval of the levels lists, in a run that raises none."""
    ports, reader = fake_ports(world, home, run_id=run_id), Reader()
    with pytest.raises(RefusedError, match="did not approve"):
        carry_out(ports, FEATURES, LEVELS, reader)
    release_lock(ports)
    return lines(reader)


@EACH
def test_lost_records_are_accepted_by_name_before_a_later_run_raises_levels(
    world: FakeCluster, tmp_path: Path, roll: ClusterPorts, later: Later
) -> None:
    ports, reader = fake_ports(world, tmp_path, run_id="later"), Reader()
    with pytest.raises(RefusedError, match="did not approve"):
        carry_out(ports, *later, reader)
    assert lines(reader) == list(RECORDS)
    (found,) = [one for one in ports.run.load_plan().findings if one.code == DIFFERENCES_NOT_ACCEPTED.code]
    assert (found.subject, found.covers) == ("run 1", RECORDS)
    assert "records are lost" in found.sentence
    assert "Continue that run" in found.remedy
    assert not is_raised(world)
    release_lock(ports)

    accepts = fake_ports(world, tmp_path, run_id="accepts")
    carry_out(accepts, *later, Approver())
    assert is_raised(world)
    (given,) = [one for one in events_of(accepts.run.events(), Approval) if one.what is ApprovalOf.FINALIZE]
    assert given.doubts == RECORDS
    assert fake_ports(world, tmp_path, run_id="third").run.events_by_other_run(EarlierRunsRead)["2"]


@EACH
def test_an_approval_that_does_not_list_the_lines_raises_no_level(
    world: FakeCluster, tmp_path: Path, roll: ClusterPorts, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_rollout.procedure.approval_requests._doubts_of_runs", lambda doubts: [])
    with pytest.raises(RefusedError, match="No level is raised: Run 1: orders-0 ended at offset 14"):
        carry_out(fake_ports(world, tmp_path, run_id="later"), *later, Approver())
    assert not is_raised(world)


def test_a_clean_comparison_of_a_later_restart_ends_nothing(
    world: FakeCluster, tmp_path: Path, roll: ClusterPorts
) -> None:
    """The state before it lacks the records already."""
    restart = fake_ports(world, tmp_path, run_id="restart")
    carry_out(restart, RESTART, Request(**QUICK), Approver())
    assert [one.failing for one in events_of(restart.run.events(), ContentsCompared)] == [0]
    release_lock(restart)
    assert lines_of_levels(world, tmp_path) == list(RECORDS)


@pytest.mark.parametrize("end", ["accepted", "back", "rolled back"])
def test_the_run_that_found_it_can_end_it(
    world: FakeCluster,
    tmp_path: Path,
    roll: ClusterPorts,
    ends: dict[str, int],
    end: str,
) -> None:
    if end != "accepted":
        ends.clear()
    again = fake_ports(world, tmp_path, run_id="roll")
    if end == "rolled back":
        roll_back_and_compare(again)
    else:
        carry_out(again, UPGRADE, ROLL, Approver())
        release_lock(again)
    approver = Approver()
    later = (UPGRADE, AGAIN) if end == "rolled back" else (FEATURES, LEVELS)
    carry_out(fake_ports(world, tmp_path, run_id="levels"), *later, approver)
    assert lines(approver) == []
    assert is_raised(world)


def test_a_rollback_does_not_bring_records_back(world: FakeCluster, tmp_path: Path, roll: ClusterPorts) -> None:
    """The next upgrade records its state before without them."""
    again = fake_ports(world, tmp_path, run_id="roll")
    roll_back_and_compare(again)
    approver = Approver()
    carry_out(fake_ports(world, tmp_path, run_id="levels"), UPGRADE, AGAIN, approver)
    assert lines(approver) == list(RECORDS)


def test_a_rollback_that_was_not_compared(world: FakeCluster, tmp_path: Path, roll: ClusterPorts) -> None:
    again = fake_ports(world, tmp_path, run_id="roll")
    roll_back_and_compare(again, compares=False)
    approver = Approver()
    carry_out(fake_ports(world, tmp_path, run_id="levels"), UPGRADE, AGAIN, approver)
    assert any("not compared" in line for line in lines(approver))


def roll_back_and_compare(ports: ClusterPorts, *, compares: bool = True) -> None:
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "a test")
    run = Run(ports, ports.run.load_plan())
    roll_back(run, GatePolicy(checks=1, interval_s=1, timeout_s=600))
    if compares:
        compare_with_state(run, ComparedAfter.ROLLBACK)
    release_lock(ports)


def test_test_records_that_were_lost_at_the_end_of_the_roll(world: FakeCluster, tmp_path: Path) -> None:
    """Nobody was asked in that run: the levels were left to a later one."""
    ports = fake_ports(world, tmp_path, run_id="roll")
    carry_out(ports, UPGRADE, replace(ROLL, traffic=True), Approver())
    record_traffic(ports, traffic_of_run(ports.run.events(), LOST))
    release_lock(ports)
    assert lines_of_levels(world, tmp_path) == [f"Run 1: {LINE}"]


def test_accepted_test_records_are_not_asked_for_again(world: FakeCluster, tmp_path: Path) -> None:
    lose(world)()
    ports = fake_ports(world, tmp_path, run_id="roll")
    carry_out(ports, UPGRADE, replace(ROLL, traffic=True), Approver())
    record_traffic(ports, traffic_of_run(ports.run.events(), LOST))
    release_lock(ports)
    assert lines_of_levels(world, tmp_path) == []


def test_a_roll_that_was_not_compared(world: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RefusedError("The comparison failed.")

    ports = fake_ports(world, tmp_path, run_id="roll")
    with monkeypatch.context() as patched:
        patched.setattr("kafka_rollout.preparation.state_comparison.compare_with_state", fail)
        with pytest.raises(RefusedError, match=r"The comparison failed\."):
            carry_out(ports, UPGRADE, ROLL, Approver())
    release_lock(ports)
    line = "Run 1: The cluster was not compared with its state before the run since the last start."
    assert lines_of_levels(world, tmp_path) == [line]


def test_a_history_that_cannot_be_read_is_unknown(world: FakeCluster, tmp_path: Path, roll: ClusterPorts) -> None:
    with roll.run._database.begin() as connection:  # type: ignore[attr-defined]
        connection.execute(update(events).where(events.c.kind == ContentsCompared.kind).values(body="{"))
    assert lines_of_levels(world, tmp_path) == [f"Run 1: {UNREAD}"]


def test_runs_that_left_nothing_open_ask_for_nothing(world: FakeCluster, tmp_path: Path) -> None:
    first = fake_ports(world, tmp_path, run_id="dry")
    carry_out(first, UPGRADE, replace(ROLL, dry_run=True), Approver())
    ports = fake_ports(world, tmp_path, run_id="roll")
    carry_out(ports, UPGRADE, replace(ROLL, traffic=True), Approver())
    record_traffic(ports, traffic_of_run(ports.run.events()))
    release_lock(ports)
    levels = fake_ports(world, tmp_path, run_id="levels")
    carry_out(levels, FEATURES, LEVELS, Approver())
    assert not events_of(levels.run.events(), EarlierRunsRead)
    (result,) = [one for one in levels.run.load_plan().checks if one.check == EARLIER_RUNS_CHECK.title]
    assert result.text == "passed"
    assert is_raised(world)


def while_answered(
    ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], days: float = 4
) -> None:
    """The answer to the request to raise levels comes after days, in which `act` happens."""

    def wait() -> None:
        ports.clock.sleep(days * 86_400)
        act()

    at_event(ports, monkeypatch, lambda one: isinstance(one, Approval) and one.what is ApprovalOf.FINALIZE, wait)


@pytest.mark.parametrize("rolls", [True, False])
def test_what_is_lost_before_the_answer_raises_no_level(
    tmp_path: Path, ends: dict[str, int], monkeypatch: pytest.MonkeyPatch, rolls: bool
) -> None:
    world = world_of(R391 if rolls else R431, **({} if rolls else {"finalized": {"metadata.version": 21}}))
    ports = fake_ports(world, tmp_path, run_id="roll")
    with monkeypatch.context() as patched:
        while_answered(ports, patched, lambda: ends.update(orders=4))
        with pytest.raises(RefusedError, match=r"orders-0 ended at offset \d+ and now ends at 4: records are lost"):
            carry_out(ports, UPGRADE, AGAIN, Approver())
    assert not is_raised(world)
    assert events_of(ports.run.events(), ContentsCompared)[-1].after is ComparedAfter.APPROVAL

    if rolls:
        approver = Approver()
        carry_out(ports, UPGRADE, AGAIN, approver)  # compares again, and an approver accepts
        assert "orders-0 ended at offset 14 and now ends at 4" in approver.bodies[ApprovalOf.DIFFERENCES]
        assert is_raised(world)
        return
    with pytest.raises(RefusedError, match=r"orders-0 ended at offset \d+ and"):
        carry_out(ports, UPGRADE, AGAIN, Approver())  # the state before the run stays the base
    release_lock(ports)
    approver = Approver()
    carry_out(fake_ports(world, tmp_path, run_id="next"), UPGRADE, AGAIN, approver)
    assert [line.replace("13", "14") for line in lines(approver)] == list(RECORDS)
    assert is_raised(world)


def test_accepted_differences_do_not_refuse_the_step(
    world: FakeCluster, tmp_path: Path, ends: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ports, approver = fake_ports(world, tmp_path), Approver()
    with monkeypatch.context() as patched:
        at_event(ports, patched, lambda event: isinstance(event, Started), lambda: ends.update(orders=4))
        carry_out(ports, UPGRADE, AGAIN, approver)
    assert ApprovalOf.DIFFERENCES in approver.bodies
    assert is_raised(world)
    compared = [(one.after, bool(one.digest)) for one in events_of(ports.run.events(), ContentsCompared)]
    assert compared == [
        (ComparedAfter.ROLL, True),
        (ComparedAfter.APPROVAL, False),
        (ComparedAfter.LEVELS, False),
    ]


def test_what_was_accepted_is_accepted_after_the_entry_of_the_cluster_has_another_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    histories = {
        "run-1 of cluster old": (["lost"], []),
        "run-2 of cluster old": ([], ["Run run-1: lost"]),
        "run-1": (["lost"], []),
        "run-3": (["gone"], []),
        "run-4 of cluster old": ([], ["Run run-3 of cluster new: gone"]),
    }
    monkeypatch.setattr(earlier_runs, "find_left_open", lambda events: events[0])
    monkeypatch.setattr(earlier_runs, "find_accepted_lines", lambda events: frozenset(events[1]))
    queries = SimpleNamespace(events_by_other_run=lambda *kinds: histories)
    ports: Any = SimpleNamespace(run=queries, cluster=SimpleNamespace(name="new"))
    (found,) = check_earlier_runs(ports, [cast(FeatureChange, SimpleNamespace(current=0, target=1))]).findings
    assert found.subject == "run run-1", "a run of the same id under the new name is another one"
