"""RunView: the same by one event after the other and at once, and what it says of steps, nodes and gates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_rollout.gates.gate import GateCheck, GateCondition, GateKind, GateRef
from kafka_rollout.procedure.kinds import DOWNGRADE, UPGRADE
from kafka_rollout.procedure.progress import Progress
from kafka_rollout.procedure.step_lines import step_lines
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import (
    STOP_TRAFFIC,
    Approval,
    ApprovalOf,
    Asked,
    Decision,
    Event,
    LockedOut,
    Planned,
    StepBegan,
    StepEnded,
    StepOutcome,
    StepsSkipped,
    Voided,
)
from kafka_rollout.run.node_status import node_statuses
from kafka_rollout.run.step_events import (
    GateChecked,
    GateFailed,
    GatePassed,
    RollbackPlanned,
    Started,
    Stopped,
    Stopping,
)
from kafka_rollout.run.view import NodeStage, RunView, StepState, StepView
from tests.console_scenes import cluster_of, failing_upgrade, stopped_downgrade
from tests.records import failed_step
from tests.unit.run.events_strategy import events

STEP, BACK = "3.9.1-to-4.3.1", "4.3.1-to-3.9.1"
NEW = Release(4, 3, 1)
AFTER = GateRef(kind=GateKind.AFTER_START, release_step=STEP, node_id=2)
NOW = 1_763_697_600.0
SCENES = {
    "upgrade": lambda: failing_upgrade(cluster_of(3), now=NOW, done=4),
    "downgrade": lambda: stopped_downgrade(cluster_of(2), now=NOW),
}


def all_of(view: RunView) -> list[object]:
    """Every field; of a dictionary also its order."""
    values = [getattr(view, one.name) for one in fields(view)]
    return [list(one.items()) if isinstance(one, dict) else one for one in values]


def check_prefixes(history: Sequence[Event], cuts: Iterable[int]) -> None:
    """The view of each prefix is the same at once, event by event, and continued from an earlier view that stays."""
    one_by_one = RunView()
    kept = [(0, RunView())]
    for number, event in enumerate(history, start=1):
        one_by_one.apply(event)
        assert all_of(one_by_one) == all_of(RunView.of(history[:number]))
    for cut in sorted(set(cuts)):
        before, view = kept[-1]
        kept.append((cut, view.followed_by(history[before:cut])))
    for cut, view in kept:
        assert all_of(view) == all_of(RunView.of(history[:cut])), "a later event has changed an earlier view"


@given(history=st.lists(events(), max_size=14), cuts=st.lists(st.integers(0, 14), max_size=4))
def test_the_view_of_every_prefix_is_the_same_at_once_and_event_by_event(history: list[Event], cuts: list[int]) -> None:
    check_prefixes(history, [min(cut, len(history)) for cut in cuts])


@pytest.mark.parametrize("scene", SCENES)
def test_the_view_of_a_recorded_run_is_the_same_at_each_event(scene: str) -> None:
    recorded = SCENES[scene]()
    check_prefixes(recorded.events, range(0, len(recorded.events), 7))
    procedure = UPGRADE if scene == "upgrade" else DOWNGRADE
    progress, lines = Progress(procedure=procedure), list[str]()
    view = RunView()
    for number, event in enumerate(recorded.events, start=1):
        view = view.followed_by([event])
        whole = RunView.of(recorded.events[:number])
        assert node_statuses(view, recorded.plan) == node_statuses(whole, recorded.plan)
        assert step_lines(procedure, view, recorded.plan) == step_lines(procedure, whole, recorded.plan)
        lines += progress.lines(recorded.plan, recorded.events[:number])
    assert lines == list(Progress(procedure=procedure).lines(recorded.plan, recorded.events))


def stopping(at: float, node_id: int = 2, release_step: str = STEP) -> Stopping:
    return Stopping(at=at, node_id=node_id, release_step=release_step)


def started(at: float, node_id: int = 2, release_step: str = STEP) -> Started:
    return Started(at=at, node_id=node_id, release_step=release_step, release=NEW, pid=7, seconds=2.0)


def checked(at: float, *, passes: bool, ref: GateRef = AFTER) -> GateChecked:
    conditions = (GateCondition(name="in every ISR", is_met=passes, evidence="2 of 3"),)
    return GateChecked(at=at, ref=ref, check=GateCheck(gate="after node 2", at=at, conditions=conditions))


def state(view: RunView, step: str = "roll") -> tuple[StepState, float, str]:
    found = view.steps[step]
    return found.state, found.at, found.reason


def test_a_step_that_began_has_begun_until_an_event_ends_it_whatever_follows() -> None:
    view = RunView.of([StepBegan(at=1, step="roll"), stopping(2), started(3)])
    assert (state(view), view.running) == ((StepState.BEGUN, 1, ""), "roll")
    assert state(view.followed_by([StepBegan(at=9, step="roll")])) == (StepState.BEGUN, 9, ""), "another try"
    killed = view.followed_by([StepBegan(at=5, step="report")])
    assert state(killed) == (StepState.BEGUN, 1, ""), "never done without its end"
    done = StepEnded(at=6, step="roll", outcome=StepOutcome.DONE)
    assert state(view.followed_by([done])) == (StepState.DONE, 6, "")


def test_a_step_waits_for_its_answer_and_continues_since_its_begin() -> None:
    asked = Asked(
        what=ApprovalOf.FAILED_GATE, at=2, task_id="roll", record_id="r", text="Continue?\n\nx", options=("Retry",)
    )
    answered = Approval(
        at=3, what=ApprovalOf.FAILED_GATE, by="anna", decision=Decision.RETRY, reason="x", plan_hash="h"
    )
    view = RunView.of([StepBegan(at=1, step="roll"), asked])
    assert (state(view), view.question()) == ((StepState.WAITING, 2, "Continue?"), (1, asked))
    view = view.followed_by([answered])
    assert (state(view), view.question()) == ((StepState.BEGUN, 1, ""), None)


def test_a_gate_of_the_cluster_says_what_the_step_in_progress_waits_for() -> None:
    ref = GateRef(kind=GateKind.FINALIZED)
    view = RunView.of([StepBegan(at=1, step="gate_finalized"), checked(2, passes=False, ref=ref)])
    assert state(view, "gate_finalized") == (StepState.BEGUN, 1, "in every ISR: 2 of 3")


def test_a_failed_step_fails_the_run_until_another_step_begins_except_for_the_traffic_check() -> None:
    failed = failed_step("roll", "No route.", at=4.0)
    view = RunView.of([stopping(1), failed, StepBegan(at=5, step=STOP_TRAFFIC)])
    assert (view.failed, view.nodes[STEP, 2].stage, view.nodes[STEP, 2].note) == (failed, NodeStage.FAILED, "No route.")
    assert view.followed_by([StepBegan(at=9, step="roll")]).failed is None


def test_steps_are_finished_for_the_plan_of_the_run() -> None:
    def plan(plan_hash: str) -> Planned:
        return Planned(run_of=UPGRADE.name, plan_hash=plan_hash, source=NEW, target=NEW, blockers=())  # type: ignore[arg-type]

    done = StepEnded(step="observe", outcome=StepOutcome.DONE)
    view = RunView.of([done, plan("a")])
    assert view.finished == {"observe"}
    assert view.followed_by([plan("a")]).finished == {"observe"}
    assert view.followed_by([plan("b")]).finished == set()


def test_skipped_steps_never_began() -> None:
    view = RunView.of([StepsSkipped(at=3, steps=("approve_plan", "roll"), reason="A dry run ends here.")])
    assert state(view) == state(view, "approve_plan") == (StepState.SKIPPED, 3, "A dry run ends here.")


def test_times_of_a_node_step_are_the_first_ones_and_its_durations_the_last() -> None:
    stopped = Stopped(at=3, node_id=2, release_step=STEP, seconds=1.5, forced=False)
    view = RunView.of(
        [stopping(1), stopped, started(4), stopping(5), started(9), started(20, release_step=BACK), stopping(2, 3)]
    )
    node = view.nodes[STEP, 2]
    assert (node.stopping_at, node.started_at, node.stop_s, node.start_s) == (1, 4, 1.5, 2.0)
    back = view.nodes[BACK, 2]
    assert (back.stopping_at, back.started_at, back.began_at, back.start_s) == (None, 20, 20, 2.0)
    assert list(view.nodes)[-1] == (STEP, 3)


def test_a_gate_has_its_checks_and_ends_with_the_last_of_them() -> None:
    passed = GatePassed(at=4.0, ref=AFTER, gate="after node 2", message="passed")

    def gate(*recorded: Event) -> RunView:
        return RunView.of(recorded)

    seen = [
        gate(checked(1, passes=False)),
        gate(checked(1, passes=False), checked(2, passes=True)),
        gate(checked(1, passes=False), checked(2, passes=True), passed, checked(9, passes=True)),
        gate(checked(2, passes=True), passed, checked(9, passes=False)),
        gate(checked(2, passes=True), passed, started(5), checked(9, passes=True)),
    ]
    states = [view.gates[AFTER].state.value for view in seen]
    assert states == ["waits", "passes", "passed", "waits", "passes"]
    assert [len(one.checks) for view in seen for one in view.open_gates] == [1, 2, 1, 1], "since the last start"
    ended = seen[2].gates[AFTER]
    assert (ended.began_at, ended.ended_at, ended.waited_s, ended.message) == (1, 9, 8, "passed")
    assert len(ended.checks) == 3


def test_what_stopped_a_run_is_the_lock_before_a_gate_that_failed() -> None:
    failed = GateFailed(ref=AFTER, gate="after node 2", message="gives up")
    locked = LockedOut(sentence="Run x holds the lock.")
    approved = Approval(what=ApprovalOf.ROLL, by="anna", decision=Decision.APPROVED, reason="x", plan_hash="h")

    assert RunView.of([failed]).cause == "Gate after node 2 gives up."
    assert RunView.of([failed, locked]).cause == "Run x holds the lock."
    assert RunView.of([locked, approved]).cause == ""
    voided = RunView.of([approved, Voided(plan_hash="h", blockers=("X: a node is down",))])
    assert voided.cause == "The approval is no longer valid: X: a node is down"
    assert voided.decisions[ApprovalOf.ROLL, "h"] == (approved, "invalid: X: a node is down")


def test_the_steps_of_a_recorded_scene_are_those_of_its_procedure() -> None:
    known = {line.id for line in step_lines(UPGRADE, RunView())}
    began = {one.shown_step for one in SCENES["upgrade"]().events if isinstance(one, StepBegan)}
    assert began <= known, began - known


def test_the_parts_of_batches_have_their_own_states_and_are_one_step() -> None:
    before: Any = {"step": "roll.gate_before", "batch": 0}
    began = RunView.of([StepBegan(at=1, **before)])
    assert (state(began), began.running, began.part) == ((StepState.BEGUN, 1, ""), "roll", ("roll.gate_before", 0))
    done = began.followed_by([StepEnded(at=2, outcome=StepOutcome.DONE, **before)])
    assert (state(done), done.running, done.part) == ((StepState.DONE, 2, ""), "", None)
    assert done.parts["roll.gate_before", 0] == StepView(state=StepState.DONE, at=2, began_at=1)
    asked = Asked(
        what=ApprovalOf.FAILED_GATE,
        at=4,
        task_id="roll.replace",
        record_id="r",
        text="Continue?\n\nx",
        options=("Retry",),
        map_index=0,
    )
    waits = done.followed_by([StepBegan(at=3, step="roll.replace", batch=0), asked])
    assert state(waits) == (StepState.WAITING, 4, "Continue?")
    assert waits.parts["roll.replace", 0].state is StepState.WAITING
    failed = waits.followed_by([StepEnded(at=5, step="roll.replace", batch=0, outcome=StepOutcome.FAILED, reason="x")])
    assert (failed.parts["roll.replace", 0].state, state(failed)) == (StepState.FAILED, (StepState.FAILED, 5, "x"))
    assert failed.finished == set()
    back = began.followed_by([RollbackPlanned(at=6, batches=(("4.3.1-to-3.9.1", (1,)),))])
    assert back.parts["roll.gate_before", 0].state is StepState.SKIPPED
    again = [StepBegan(at=7, step="roll_back.replace", batch=0), RollbackPlanned(at=8, batches=())]
    assert back.followed_by(again).parts.keys() == {("roll.gate_before", 0)}
