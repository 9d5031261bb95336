"""Pauses of a run between its node steps: the maintenance window and requests of an operator, over a fake cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kafka_rollout.base.errors import TransientError, UserError
from kafka_rollout.base.wording import nodes
from kafka_rollout.control.approval import record_approval
from kafka_rollout.control.holds import HeldError, check_begin
from kafka_rollout.gates.control import find_due_pause
from kafka_rollout.gates.gate import Gate, GateKind, GatePolicy, GateRef, WatchState
from kafka_rollout.model.plan import Plan, ReleaseStep
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.state import ProcessState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.planning.batches import WINDOWS_CHECK
from kafka_rollout.planning.request import Request
from kafka_rollout.procedure import actions
from kafka_rollout.procedure.approval_requests import approval_body
from kafka_rollout.procedure.kinds import build_report_of_run
from kafka_rollout.procedure.progress import Progress
from kafka_rollout.procedure.step import StepCall
from kafka_rollout.roll.gate_checks import check_gate, check_stop_is_safe
from kafka_rollout.roll.loop import BatchStatus
from kafka_rollout.roll.walk import RollProgress, roll_back, roll_release_steps
from kafka_rollout.run.events import (
    ApprovalOf,
    Channel,
    ControlAsked,
    Decision,
    PauseAsked,
    Responder,
    ResumeAsked,
    StopAsked,
    StoppedByOperator,
    events_of,
    newest,
)
from kafka_rollout.run.step_events import GateChecked, GatePassed, Started, Stopping
from kafka_rollout.run.view import RunView
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.runtime import FakeRuntime
from tests.of_cluster import parted, with_pace

SOAKS = GatePolicy(checks=2, interval_s=1, timeout_s=60, soak_s=30)
NIGHTS = "0 22 * * Mon-Fri 6h Europe/Berlin; 10 4 * * Tue 110m Europe/Berlin"  # a short pause has few checks
ORDER = [2, 3, 1, 11, 12, 13]


class KilledError(BaseException):
    """The process of the run ends, wherever it is."""


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin")).timestamp()


@pytest.fixture
def approved(ports: ClusterPorts, cluster: FakeCluster) -> Callable[..., Plan]:
    """Plan at a time of the fake clock, and approve."""

    def plan(now: str, **fields: Any) -> Plan:
        cluster.clock.set(at(now), reading_s=0.001)
        spec, of_run = parted(with_pace(ports.cluster, soak_s=30.0), fields)
        request = Request(target=R431, scan=False, **of_run)
        of_plan = replace(ports, cluster=spec)
        actions.plan_change(StepCall(ports=of_plan, request=request), RunOf.UPGRADE)
        record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
        return ports.run.load_plan()

    return plan


def killed_when(message: str) -> Callable[[RollProgress], None]:
    def on_progress(progress: RollProgress) -> None:
        if message in progress.message:
            raise KilledError

    return on_progress


def stopped_between(ports: ClusterPorts, begin: str, end: str) -> list[int]:
    found = events_of(ports.run.events(), Stopping)
    return [event.node_id for event in found if at(begin) <= event.at < at(end)]


def test_a_run_pauses_at_the_end_of_the_window_keeps_its_lock_and_continues_in_the_next_one(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 03:57", window=NIGHTS)  # three minutes for node steps of half a minute
    held: list[str] = []

    def on_progress(progress: RollProgress) -> None:
        if "maintenance window" in progress.message and "waits for" in progress.message:
            held.append(progress.message)
            lock = ports.lock.holder("fake")
            assert lock is not None
            assert lock.holder == ports.run_id

    assert roll_release_steps(Run(ports, plan), SOAKS, on_progress=on_progress)
    assert cluster.stops == ORDER
    before = stopped_between(ports, "2026-12-01 03:57", "2026-12-01 04:00")
    after = stopped_between(ports, "2026-12-01 04:10", "2026-12-01 04:20")
    assert before
    assert after
    assert before + after == ORDER
    assert "left; a node step takes about 3" in held[0]
    assert held[-1].endswith("maintenance window: closed until Tue 2026-12-01 04:10 CET")
    recorded = [event for event in events_of(ports.run.events(), GateChecked) if event.check.is_held]
    assert len(recorded) < 5  # of two checks per node and 120 in ten minutes


def test_a_run_that_is_killed_during_the_pause_continues_at_the_same_node(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 03:57", window=NIGHTS)
    with pytest.raises(KilledError):
        roll_release_steps(Run(ports, plan), SOAKS, on_progress=killed_when("closed until"))
    before = list(cluster.stops)
    assert 0 < len(before) < 6
    cluster.clock.set(at("2026-12-01 04:01"), reading_s=0.001)
    assert roll_release_steps(Run(ports, plan), SOAKS)
    assert cluster.stops == ORDER
    assert stopped_between(ports, "2026-12-01 04:00", "2026-12-01 04:10") == []


def test_a_node_step_that_has_begun_ends_after_the_window(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 03:57", window=NIGHTS)
    with pytest.raises(KilledError):
        roll_release_steps(Run(ports, plan), SOAKS, on_progress=killed_when("gate after node 2"))
    cluster.clock.set(at("2026-12-01 04:01"), reading_s=0.001)
    with pytest.raises(KilledError):
        roll_release_steps(Run(ports, plan), SOAKS, on_progress=killed_when("closed until"))
    assert cluster.stops == [2]
    assert cluster.nodes[2].running == R431


def test_a_stop_that_is_under_way_is_not_held(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = approved("2026-12-01 03:57", window=NIGHTS)
    with monkeypatch.context() as patch:
        patch.setattr("kafka_rollout.roll.node.stop_node", _stop_and_die)
        with pytest.raises(KilledError):
            roll_release_steps(Run(ports, plan), SOAKS)
    assert cluster.nodes[2].running == R391
    cluster.clock.set(at("2026-12-01 04:00:01"), reading_s=0.001)
    with pytest.raises(KilledError):
        roll_release_steps(Run(ports, plan), SOAKS, on_progress=killed_when("closed until"))
    assert cluster.nodes[2].running == R431


@pytest.mark.parametrize("was_sent", [True, False])
@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"window": "0 22 * * Mon-Fri 6h Europe/Berlin", "freeze_days": ("2026-12-01",)}, None),
        ({}, PauseAsked),
        ({}, StopAsked),
    ],
    ids=["window", "pause", "stop"],
)
def test_a_node_that_runs_as_before_its_recorded_stop_is_held_as_before_a_first_one(
    ports: ClusterPorts,
    cluster: FakeCluster,
    approved: Callable[..., Plan],
    monkeypatch: pytest.MonkeyPatch,
    *,
    was_sent: bool,
    fields: dict[str, Any],
    asked: type[ControlAsked] | None,
) -> None:
    """It was started by hand, or its stop was never sent. The next call is at noon."""
    plan = approved("2026-11-30 23:00", **fields)
    stop = FakeRuntime.stop

    def stop_and_die(runtime: FakeRuntime, node: NodeSpec, *, deadline_s: float, force: bool = False) -> None:
        if was_sent:
            stop(runtime, node, deadline_s=deadline_s, force=force)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(FakeRuntime, "stop", stop_and_die)
        with pytest.raises(KilledError):
            roll_release_steps(Run(ports, plan), SOAKS)
    if was_sent:
        cluster.start(2)
    if asked is not None:
        ask(ports, asked)
    cluster.clock.set(at("2026-12-01 12:00"), reading_s=0.001)
    stops = list(cluster.stops)
    if asked is StopAsked:
        assert not roll_release_steps(Run(ports, plan), SOAKS)
    else:
        with pytest.raises(KilledError):
            roll_release_steps(Run(ports, plan), SOAKS, on_progress=killed_when("waits for"))
    assert cluster.stops == stops
    assert cluster.nodes[2].running == R391


def _stop_and_die(at: NodeRun, **_: object) -> float:
    at.history.record(Stopping(node_id=at.node_id, release_step=at.key))
    raise KilledError


def test_a_window_that_closes_between_the_gate_and_the_stop_holds_the_stop(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 03:30", window=NIGHTS)

    def on_progress(progress: RollProgress) -> None:
        if "gate before node 3: passed" in progress.message and cluster.clock.now() < at("2026-12-01 04:00"):
            cluster.clock.set(at("2026-12-01 04:01"), reading_s=0.001)

    assert roll_release_steps(Run(ports, plan), SOAKS, on_progress=on_progress)
    assert stopped_between(ports, "2026-12-01 03:30", "2026-12-01 04:10") == [2]
    assert cluster.stops == ORDER


def test_a_replacement_that_is_held_after_its_gate_passed_waits_before_the_gate_is_checked_again(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = approved("2026-12-01 12:00")
    tries: list[float] = []

    def held_once_more(*_: object) -> bool:
        tries.append(cluster.clock.monotonic())
        if len(tries) == 3:
            raise KilledError
        raise HeldError("Something holds it.")

    passed_gate = BatchStatus(state=WatchState.PASSED, message="passed")
    monkeypatch.setattr("kafka_rollout.roll.loop.replace", held_once_more)
    monkeypatch.setattr("kafka_rollout.roll.loop.gate_before", lambda *_: passed_gate)
    with pytest.raises(KilledError):
        roll_release_steps(Run(ports, plan), SOAKS)
    assert all(later - earlier >= 1 for earlier, later in pairwise(tries))


def test_a_rollback_does_not_wait_for_the_window(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 03:57", window=NIGHTS)
    with pytest.raises(KilledError):
        roll_release_steps(Run(ports, plan), SOAKS, on_progress=killed_when("closed until"))
    cluster.clock.set(at("2026-12-01 04:01"), reading_s=0.001)
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "errors of clients")
    assert roll_back(Run(ports, plan), SOAKS)
    assert {node.running for node in cluster.nodes.values()} == {R391}
    assert cluster.clock.now() < at("2026-12-01 04:10")


def test_the_plan_and_its_approval_show_window_number_and_end(approved: Callable[..., Plan]) -> None:
    plan = approved("2026-12-01 12:00", window="0 22 * * * 5m UTC", freeze_days=("2026-12-02..2026-12-03",))
    (found,) = [finding for finding in plan.findings if finding.code == "MAINTENANCE-WINDOWS"]
    assert "needs 2 maintenance windows for 6 node steps of about 1 min 30 s" in found.sentence
    assert "earliest end is Fri 2026-12-04 22:04 UTC" in found.sentence
    body = approval_body(plan).replace("\\", "")
    assert "- Nodes are stopped only in the maintenance window `0 22 * * * 5m UTC`." in body
    assert "- No node is stopped on the freeze days `2026-12-02..2026-12-03`." in body
    assert found.sentence in body


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"window": "0 22 * * * 1m UTC"}, "no maintenance window of the next 400 days is that long"),
        ({"freeze_days": ("2026-01-01..2030-01-01",)}, "outside of the freeze days"),
    ],
)
def test_a_plan_that_no_window_fits_is_refused_before_it_is_frozen(
    ports: ClusterPorts, approved: Callable[..., Plan], fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        approved("2026-12-01 12:00", **fields)
    assert ports.run.events() == ()


def test_a_plan_that_stops_no_node_refuses_a_window_that_never_opens_and_names_what_it_did_not_check(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    for node in cluster.nodes.values():
        node.running = R431
    with pytest.raises(UserError, match="outside of the freeze days"):
        approved("2026-12-01 12:00", freeze_days=("2026-01-01..2030-01-01",))
    assert ports.run.events() == ()
    plan = approved("2026-12-01 12:00", window="0 22 * * * 1m UTC")
    (windows,) = [check for check in plan.checks if check.id == WINDOWS_CHECK.id]
    assert (plan.release_steps, windows.reason) == ((), "The run stops no node.")


def test_a_plan_without_window_keeps_the_hash_of_earlier_versions(approved: Callable[..., Plan]) -> None:
    assert approved("2026-12-01 12:00").hash != approved("2026-12-01 12:00", window=NIGHTS).hash


SHELL = Responder(channel=Channel.SHELL, user="bob", host="jump")


def ask(ports: ClusterPorts, kind: type[ControlAsked]) -> None:
    """As another shell does it, during the run."""
    ports.run.record(kind(by="bob", reason="errors of clients", responder=SHELL))


def during(message: str, act: Callable[[], None]) -> Callable[[RollProgress], None]:
    """Act once, when the run shows the message."""
    acted: list[str] = []

    def on_progress(progress: RollProgress) -> None:
        if message in f"{progress.node} {progress.message}" and not acted:
            acted.append(progress.message)
            act()

    return on_progress


def test_a_paused_run_ends_its_node_step_keeps_its_lock_and_continues_after_resume(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 12:00")
    held: list[tuple[list[int], str]] = []

    def on_progress(progress: RollProgress) -> None:
        pause(progress)
        if "no pause" in progress.message:
            lock = ports.lock.holder("fake")
            assert lock is not None
            assert lock.holder == ports.run_id
            held.append((list(cluster.stops), progress.message))
            if len(held) == 100:  # longer than the gate timeout
                ask(ports, ResumeAsked)

    pause = during("controller-3 (3) gate after", lambda: ask(ports, PauseAsked))
    assert roll_release_steps(Run(ports, plan), SOAKS, on_progress=on_progress)
    assert cluster.stops == ORDER
    assert [stops for stops, _ in held] == [[2, 3]] * 100
    assert "no pause: paused by bob: errors of clients (since 2026-12-01T11:0" in held[0][1]
    lines = list(Progress().lines(plan, ports.run.events()))
    assert "paused by bob: errors of clients (before the next node)" in lines
    assert "resumed by bob: errors of clients (before the next node)" in lines


def test_a_pause_stays_in_force_when_the_run_is_killed_and_continued(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 12:00")
    ask(ports, PauseAsked)
    for _ in range(2):
        with pytest.raises(KilledError):
            roll_release_steps(Run(ports, plan), SOAKS, on_progress=killed_when("paused by bob"))
    assert cluster.stops == []
    ask(ports, ResumeAsked)
    assert roll_release_steps(Run(ports, plan), SOAKS)
    assert cluster.stops == ORDER


def test_a_stopped_run_ends_before_the_next_node_and_is_continued_by_the_next_call(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 12:00")
    stop = during("controller-3 (3) gate after", lambda: ask(ports, StopAsked))
    assert not roll_release_steps(Run(ports, plan), SOAKS, on_progress=stop)
    assert cluster.stops == [2, 3]
    assert len(events_of(ports.run.events(), StoppedByOperator)) == 1
    assert build_report_of_run(Run(ports, plan)).outcome == "stopped"
    assert roll_release_steps(Run(ports, plan), SOAKS)
    assert cluster.stops == ORDER


@pytest.mark.parametrize(
    "line", ["controller-3 (3) gate after", "gate before node 1:"], ids=["a soak", "before a stop"]
)
def test_a_stop_ends_the_wait_of_a_gate_at_its_next_check(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan], line: str
) -> None:
    plan = approved("2026-12-01 12:00")
    stop = during(line, lambda: ask(ports, StopAsked))
    assert not roll_release_steps(Run(ports, plan), SOAKS, on_progress=stop)
    asked, checked = (newest(ports.run.events(), kind) for kind in (StopAsked, GateChecked))
    assert asked is not None
    assert checked is not None
    assert checked.at <= asked.at + SOAKS.interval_s
    view = RunView.of(ports.run.events())
    assert (view.requested, view.ended_by_operator, view.failed) == (None, True, None)
    assert roll_release_steps(Run(ports, plan), SOAKS)
    assert cluster.stops == ORDER


def test_a_stop_ends_the_wait_for_a_node_that_does_not_respond(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = approved("2026-12-01 12:00")
    silent, began = FakeRuntime.process, list[float]()

    def process(runtime: FakeRuntime, node: NodeSpec) -> ProcessState:
        if cluster.stops == [2, 3] and node.node_id == 1:
            if not began:
                began.append(ports.clock.now())
                ask(ports, StopAsked)
            raise TransientError("No response.")
        return silent(runtime, node)

    monkeypatch.setattr(FakeRuntime, "process", process)
    assert not roll_release_steps(Run(ports, plan), SOAKS)
    assert began
    assert cluster.stops == [2, 3]


def test_resume_withdraws_a_stop_and_a_stop_ends_a_paused_run(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 12:00")
    ask(ports, StopAsked)
    ask(ports, ResumeAsked)
    stop = during("paused by bob", lambda: ask(ports, StopAsked))
    pause = during("controller-2 (2) gate after", lambda: ask(ports, PauseAsked))
    both = [pause, stop]
    assert not roll_release_steps(Run(ports, plan), SOAKS, on_progress=lambda one: [act(one) for act in both] and None)
    assert cluster.stops == [2]


def test_a_pause_also_holds_a_rollback(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 12:00")
    with pytest.raises(KilledError):
        roll_release_steps(Run(ports, plan), SOAKS, on_progress=killed_when("gate before node 1:"))
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "errors of clients")
    ask(ports, PauseAsked)
    resume = during("paused by bob", lambda: ask(ports, ResumeAsked))
    stops = list(cluster.stops)
    assert roll_back(Run(ports, plan), SOAKS, on_progress=resume)
    assert cluster.stops == [*stops, 3, 2]
    checks = [event.check for event in events_of(ports.run.events(), GateChecked) if event.check.is_held]
    assert [check.gate for check in checks] == ["before node 3"]


class Continues:
    """The answers of an approver at the pauses of the plan, and the reasons that were shown."""

    def __init__(self, ports: ClusterPorts, *answers: bool) -> None:
        self.ports, self.answers, self.reasons = ports, list(answers), list[str]()

    def __call__(self, what: ApprovalOf, why: str, has_replaced: bool) -> bool:
        assert what is ApprovalOf.PAUSE
        self.reasons.append(why)
        answer = self.answers.pop(0) if self.answers else True
        if answer:
            record_approval(self.ports, ApprovalOf.PAUSE, "alice", Decision.APPROVED, "looks good")
        return answer


@pytest.mark.parametrize(
    ("pause_after", "paused_after"),
    [("node", [[2], [3], [1], [11], [12]]), ("2", [[2, 3], [1, 11]]), ("4", [[2, 3, 1, 11]]), ("6", []), ("", [])],
)
def test_a_plan_pauses_after_this_number_of_nodes_and_not_after_the_last_one(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan], pause_after: str, paused_after: Any
) -> None:
    plan = approved("2026-12-01 12:00", pause_after=pause_after)
    pause = Continues(ports)
    assert roll_release_steps(Run(ports, plan), GatePolicy(checks=1), continues=pause)
    assert cluster.stops == ORDER
    assert pause.reasons == [
        f"Since the last pause, {nodes(found)} {'is' if len(found) == 1 else 'are'} done." for found in paused_after
    ]


def test_a_plan_pauses_once_after_its_first_node_and_again_if_nobody_answered(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 12:00", pause_after="first-node")
    assert not roll_release_steps(Run(ports, plan), GatePolicy(checks=1), continues=Continues(ports, False))
    pause = Continues(ports)
    assert roll_release_steps(Run(ports, plan), GatePolicy(checks=1), continues=pause)
    assert (cluster.stops, pause.reasons) == (ORDER, ["The first node is done: 2."])


@pytest.mark.parametrize(
    ("pause_after", "reasons"),
    [
        ("first-node", ["The first node is done: 2."]),
        ("2", ["Since the last pause, nodes 2, 3 are done.", "Since the last pause, nodes 1, 11 are done."]),
    ],
)
def test_a_plan_that_was_rolled_back_pauses_again_at_the_same_places(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan], pause_after: str, reasons: list[str]
) -> None:
    plan, policy, pause = approved("2026-12-01 12:00", pause_after=pause_after), GatePolicy(checks=1), Continues(ports)
    assert not roll_release_steps(Run(ports, plan), policy, continues=pause, stop_asked=lambda: len(cluster.stops) == 3)
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "errors of clients")
    assert roll_back(Run(ports, plan), policy)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "repaired")
    assert roll_release_steps(Run(ports, plan), policy, continues=pause)
    assert pause.reasons == [reasons[0], *reasons]


def test_a_pause_that_nobody_answered_is_due_after_a_rollback_that_ended_early(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan, policy = approved("2026-12-01 12:00", pause_after="first-node"), GatePolicy(checks=1)
    pause = Continues(ports, False, False)
    assert not roll_release_steps(Run(ports, plan), policy, continues=pause)
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "errors of clients")
    assert not roll_back(Run(ports, plan), policy, stop_asked=lambda: True)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "repaired")
    assert not roll_release_steps(Run(ports, plan), policy, continues=pause)
    assert (cluster.stops, pause.reasons) == ([2], ["The first node is done: 2."] * 2)


@pytest.mark.parametrize(("done", "is_due"), [([2, 3, 11, 12], False), ([2, 3, 11, 13, 12], True), ([2], False)])
def test_a_plan_pauses_after_the_first_batch_of_several(done: list[int], is_due: bool) -> None:
    found = find_due_pause("first-batch", done, 14, {}, first_batch=(12, 13))
    assert found == ("The first batch is done, nodes 12, 13, which restarted together." if is_due else "")
    assert find_due_pause("first-batch", done, 14, {}, first_batch=()) == "", "each node restarts alone"


def test_the_racks_that_a_pause_compares_are_read_once(
    ports: ClusterPorts, approved: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = approved("2026-12-01 12:00", pause_after="rack")
    config, read = FakeRuntime.config, list[int]()

    def count(runtime: FakeRuntime, node: NodeSpec) -> dict[str, str]:
        read.append(node.node_id)
        return dict(config(runtime, node))

    monkeypatch.setattr(FakeRuntime, "config", count)
    assert held(ports, plan, 2) == []
    assert read == []
    started(ports, 2)
    passed(ports, 2)
    for _ in range(3):
        assert held(ports, plan, 3) == []
    assert sorted(read) == [2, 3]


def test_a_plan_pauses_between_racks(ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]) -> None:
    for node_id, rack in ((11, "a"), (12, "a"), (13, "b")):
        cluster.nodes[node_id].config["broker.rack"] = rack
    pause = Continues(ports)
    assert roll_release_steps(
        Run(ports, approved("2026-12-01 12:00", pause_after="rack")), GatePolicy(checks=1), continues=pause
    )
    assert pause.reasons == ["The nodes without a rack are done.", "The nodes of rack a are done."]


def test_a_pause_that_no_approver_ended_is_due_again_and_ends_a_run_without_an_answer(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 12:00", pause_after="2")
    assert not roll_release_steps(Run(ports, plan), GatePolicy(checks=1), continues=Continues(ports, False))
    assert cluster.stops == [2, 3]
    for _ in range(2):  # nobody can answer
        assert not roll_release_steps(Run(ports, plan), GatePolicy(checks=1))
    assert cluster.stops == [2, 3]
    pause = Continues(ports)
    assert roll_release_steps(Run(ports, plan), GatePolicy(checks=1), continues=pause)
    assert cluster.stops == ORDER
    assert pause.reasons[0] == "Since the last pause, nodes 2, 3 are done."
    assert len(pause.reasons) == 2


def test_a_rollback_has_no_planned_pause(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 12:00", pause_after="node")
    assert not roll_release_steps(Run(ports, plan), GatePolicy(checks=1), continues=Continues(ports, True, False))
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "errors of clients")
    assert roll_back(Run(ports, plan), GatePolicy(checks=1))
    assert {node.running for node in cluster.nodes.values()} == {R391}


@pytest.mark.parametrize("pause_after", ["0", "-1", "nodes", "1.5"])
def test_an_unknown_pause_is_refused_with_the_request(pause_after: str) -> None:
    with pytest.raises(UserError, match="cannot pause after"):
        Request(pause_after=pause_after)


def test_the_limit_of_under_replicated_partitions_is_approved_and_checked(
    ports: ClusterPorts, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 12:00", max_under_replicated=3)
    assert "- Limit before each stop: 3 under-replicated partitions of other nodes" in approval_body(plan)
    seen = check_stop_is_safe(Run(ports, plan), ports.cluster.node(11))
    (found,) = [condition for condition in seen.conditions if condition.name == "under-replicated partitions"]
    assert (found.is_met, found.evidence) == (True, "0 partitions of other nodes, at most 3")


FORTH, BACK = "3.9.1-to-4.3.1", "4.3.1-to-3.9.1"


def passed(ports: ClusterPorts, node_id: int, key: str = FORTH) -> None:
    ref = GateRef(kind=GateKind.AFTER_START, release_step=key, node_id=node_id)
    ports.run.record(GatePassed(ref=ref, gate=f"after node {node_id}", message="passed"))


def started(ports: ClusterPorts, node_id: int, key: str = FORTH) -> None:
    """A node step without the end of its gate, for example because its task was marked as successful by hand."""
    ports.run.record(Stopping(node_id=node_id, release_step=key))
    ports.run.record(Started(node_id=node_id, release_step=key, release=R431, pid=1, seconds=1.0))


def held(ports: ClusterPorts, plan: Plan, node_id: int, release_step: ReleaseStep | None = None) -> list[str]:
    """Return the unmet conditions under which the node step begins."""
    step = release_step or plan.release_steps[0]
    begin = check_begin(
        Run(ports, plan), Gate(kind=GateKind.BEFORE_STOP, release_step=step, node=ports.cluster.node(node_id))
    )
    return [seen.name for seen in begin.conditions if not seen.is_met]


def test_an_open_node_step_of_another_node_does_not_switch_off_the_pauses(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 12:00", window=NIGHTS, pause_after="node")
    started(ports, 2)
    started(ports, 3)
    passed(ports, 3)
    ask(ports, PauseAsked)
    assert held(ports, plan, 1) == ["no pause", "planned pause", "maintenance window"]
    cluster.nodes[2].running = R431
    assert held(ports, plan, 2) == []  # its own node step has begun


def test_a_node_that_was_rolled_forward_again_does_not_switch_off_the_pauses_of_a_rollback(
    ports: ClusterPorts, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 12:00")
    started(ports, 2)
    started(ports, 2, BACK)
    started(ports, 2)
    passed(ports, 2)
    ask(ports, PauseAsked)
    assert held(ports, plan, 2, plan.release_steps[0].reversed()) == ["no pause"]


def test_a_rollback_that_was_decided_after_a_stop_is_not_ended_by_it(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 12:00")
    with pytest.raises(KilledError):
        roll_release_steps(Run(ports, plan), SOAKS, on_progress=killed_when("gate before node 1:"))
    ask(ports, StopAsked)
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "errors of clients")
    assert roll_back(Run(ports, plan), SOAKS)
    ask(ports, StopAsked)
    assert not roll_release_steps(Run(ports, plan), SOAKS)


def test_only_an_answer_about_this_plan_ends_a_pause(ports: ClusterPorts, approved: Callable[..., Plan]) -> None:
    plan = approved("2026-12-01 12:00", pause_after="node")
    started(ports, 2)
    passed(ports, 2)
    given = record_approval(ports, ApprovalOf.PAUSE, "alice", Decision.APPROVED, "looks good")
    assert held(ports, plan, 3) == []
    started(ports, 3)
    passed(ports, 3)
    ports.run.record(replace(given, plan_hash="another plan"))
    assert held(ports, plan, 1) == ["planned pause"]


def test_one_slow_node_step_does_not_close_every_window(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 22:00", window=NIGHTS)
    started(ports, 2)
    cluster.clock.set(at("2026-12-02 05:00"), reading_s=0.001)  # longer than the windows of six hours
    passed(ports, 2)
    for now, unmet in (("22:00:30", []), ("22:30", []), ("23:00", ["maintenance window"])):
        cluster.clock.set(at(f"2026-12-02 {now}"), reading_s=0.001)
        assert held(ports, plan, 3) == unmet


def test_the_gate_timeout_does_not_run_in_a_pause_if_the_next_node_does_not_respond(
    ports: ClusterPorts, cluster: FakeCluster, approved: Callable[..., Plan]
) -> None:
    plan = approved("2026-12-01 12:00")
    ask(ports, PauseAsked)
    cluster.unreachable.add(2)
    gate = Gate(kind=GateKind.BEFORE_STOP, release_step=plan.release_steps[0], node=ports.cluster.node(2))
    seen = check_gate(Run(ports, plan), gate)
    assert seen.is_held
    assert [condition.name for condition in seen.conditions if not condition.is_met] == [
        "no pause",
        "the cluster responds",
    ]
    ask(ports, ResumeAsked)
    assert not check_gate(Run(ports, plan), gate).is_held
