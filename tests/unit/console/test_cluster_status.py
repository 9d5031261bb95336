"""The status of a cluster, from the histories of its runs, the lock and the time; it follows the published schema."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from kafka_rollout.base.lease import CallState, Lock
from kafka_rollout.base.tones import Tone
from kafka_rollout.console.cluster_status import PHASE_TONES, ClusterStatus, Phase, RunState, build_status, phase_of
from kafka_rollout.gates.gate import GateCheck, GateCondition, GateKind, GateRef
from kafka_rollout.gates.reasons import ANSWERS, IN_ISRS, PROCESS
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.page.pages import OUTCOMES
from kafka_rollout.report.run_report import Outcome
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    Asked,
    AskingEnded,
    Begun,
    ClearedInAirflow,
    Decision,
    EndedInAirflow,
    Event,
    LockedOut,
    Planned,
    Responder,
    StartedAtShell,
    StepBegan,
    StoppedByOperator,
)
from kafka_rollout.run.events import Channel as By
from kafka_rollout.run.projections.runs import RunEnd
from kafka_rollout.run.step_events import Finalizing, GateChecked, GateFailed, GatePassed, Started, Stopping
from kafka_rollout.run.view import RunView
from tests.paths import ROOT
from tests.records import failed_step

AT = 1_763_697_600.0  # 2025-11-21T04:00:00Z
STEP = "3.9.1-to-4.3.1"
R391, R431 = Release(3, 9, 1), Release(4, 3, 1)
BEGUN = Begun(at=AT, dag_id="kafka_upgrade_orders")
SHELL = StartedAtShell(at=AT, starter=Responder(channel=By.SHELL, user="carol", host="h"))
PLANNED = Planned(at=AT + 5, run_of=RunOf.UPGRADE, plan_hash="h", source=R391, target=R431, blockers=())
ASKED = Asked(
    what=ApprovalOf.ROLL,
    at=AT + 10,
    task_id="approve_plan",
    record_id="r1",
    text="Upgrade orders from 3.9.1 to 4.3.1?\n\nsecret.setting = 7",
    options=("Approve", "Reject"),
    users=("anna", "ben"),
    answer_by=AT + 10 + 86_400,
)
GATE = GateRef(kind=GateKind.AFTER_START, release_step=STEP, node_id=3)
STOPPING = Stopping(at=AT + 60, node_id=3, release_step=STEP)
STARTED = Started(at=AT + 80, node_id=3, release_step=STEP, release=R431, pid=7, seconds=2.0)
WAITS = GateCheck(
    gate="after node 3", at=AT + 90, conditions=(GateCondition(name="isr", is_met=False, evidence="2 of 3"),)
)
FAILED = GateFailed(at=AT + 700, ref=GATE, gate="after node 3", message="failed after 600 s: isr: 2 of 3")
DECIDE = Asked(
    what=ApprovalOf.FAILED_GATE,
    at=AT + 701,
    task_id="gate",
    record_id="r2",
    text="orders: gate after node 3 failed. How to continue?\n\nx",
    options=("Wait on", "Retry", "Roll back", "Stop here"),
)
LOCK = Lock(cluster="orders", holder="manual__1", purpose="waits", acquired_at=AT, expires_at=AT + 90_000)
FINALIZING = Finalizing(at=AT + 900, levels={"metadata.version": 25}, epoch_before=3)


def approval(at: float, what: ApprovalOf = ApprovalOf.ROLL, decision: Decision = Decision.APPROVED) -> Approval:
    return Approval(at=at, what=what, by="anna", decision=decision, reason="x", plan_hash="h")


def run(*events: Event, run_id: str = "manual__1", **fields: Any) -> RunState:
    return RunState(run_id=run_id, number=12, view=RunView.of(events), command="upgrade", **fields)


def end(outcome: str, at: float) -> RunEnd:
    return RunEnd(outcome=outcome, sentence="So it ended.", ended_at=at)


def status(*runs: RunState, now: float = AT + 1000, lock: Lock | None = None) -> ClusterStatus:
    return build_status("orders", runs, lock, now)


def message(found: ClusterStatus, kind: str) -> str:
    return next(one.message for one in found.conditions if one.type == kind)


def condition(found: ClusterStatus, kind: str) -> tuple[str, str]:
    (one,) = (one for one in found.conditions if one.type == kind)
    return one.status.value, one.reason


ROLL = (BEGUN, PLANNED, ASKED, approval(AT + 20))
PHASES: list[tuple[Phase, Sequence[Event], dict[str, Any]]] = [
    (Phase.PLANNING, (BEGUN,), {"has_lock": True}),
    (Phase.PLANNING, (), {"has_lock": True}),
    (Phase.WAITING_FOR_APPROVAL, (BEGUN, PLANNED, ASKED), {"has_lock": True}),
    (Phase.ROLLING, ROLL, {"has_lock": True}),
    (Phase.ROLLING, (*ROLL, STOPPING, STARTED), {"has_lock": True}),
    (Phase.WAITING_FOR_DECISION, (*ROLL, STOPPING, STARTED, FAILED, DECIDE), {"has_lock": True}),
    (
        Phase.ROLLING_BACK,
        (*ROLL, STOPPING, FAILED, DECIDE, approval(AT + 710, ApprovalOf.FAILED_GATE, Decision.ROLL_BACK)),
        {"has_lock": True},
    ),
    (
        Phase.ROLLING,
        (*ROLL, STOPPING, FAILED, DECIDE, approval(AT + 710, ApprovalOf.FAILED_GATE, Decision.RETRY)),
        {"has_lock": True},
    ),
    *(
        (Phase.ROLLING_BACK, (*ROLL, STOPPING, approval(AT + 700, ApprovalOf.ROLL_BACK), other), {"has_lock": True})
        for other in (
            approval(AT + 710, ApprovalOf.FAILED_GATE, Decision.RETRY),
            approval(AT + 710, ApprovalOf.ROLL_BACK, Decision.REJECTED),  # of a repeated command
        )
    ),
    (
        Phase.ROLLING,
        (*ROLL, STOPPING, approval(AT + 700, ApprovalOf.ROLL_BACK), approval(AT + 710)),
        {"has_lock": True},
    ),
    (Phase.FINALIZING, (*ROLL, STOPPING, STARTED, FINALIZING), {"has_lock": True}),
    (Phase.PAUSED, (*ROLL, STOPPING), {}),
    (Phase.PAUSED, (*ROLL, STOPPING, StoppedByOperator(at=AT + 99, target=R431)), {"end": end("stopped", AT + 99)}),
    (
        Phase.FAILED,
        (*ROLL, STOPPING, failed_step("x", "No response.", at=AT + 99)),
        {},
    ),
    (Phase.FAILED, (*ROLL, STOPPING), {"end": end("stopped", AT + 99)}),
    (
        Phase.FAILED,  # it was paused once, continued, and then failed
        (*ROLL, StoppedByOperator(at=AT + 30, target=R431), *[STOPPING, STARTED] * 4),
        {"end": end("stopped", AT + 99)},
    ),
    (Phase.FINISHED, (*ROLL, STOPPING, STARTED), {"end": end("finished", AT + 99)}),
    (Phase.FINISHED, (*ROLL, STOPPING, STARTED), {"end": end("rolled_not_finalized", AT + 99)}),
    (Phase.ROLLED_BACK, (*ROLL, STOPPING), {"end": end("rolled_back", AT + 99)}),
    (Phase.REFUSED, (BEGUN, PLANNED), {"end": end("refused", AT + 99)}),
    (Phase.UNKNOWN, (), {"problem": "Event 3 is damaged."}),
]


@pytest.mark.parametrize(
    ("events", "fields", "why"),
    [
        ((*ROLL, STOPPING), {"has_lock": True, "call": CallState.KILLED}, "The process of the run was killed."),
        ((*ROLL, STOPPING, EndedInAirflow(at=AT + 99, state="failed")), {}, "The DAG run ended as failed in Airflow"),
        ((*ROLL, STOPPING, EndedInAirflow(at=AT + 99, state="success")), {}, "The DAG run ended as success in Airflow"),
        ((*ROLL, STOPPING, LockedOut(at=AT + 99, sentence="Ada did.", is_broken=True)), {}, "Ada did."),
        ((*ROLL, STOPPING, StoppedByOperator(at=AT + 99, target=R431)), {}, ""),
    ],
)
def test_a_run_that_does_nothing_by_itself_never_says_that_it_does(
    events: Sequence[Event], fields: dict[str, Any], why: str
) -> None:
    state = run(*events, **fields)
    found = build_status("orders", (state,), None, AT + 100)
    assert (found.phase, found.needs_human) == (Phase.PAUSED, True)
    assert "continues by itself" not in found.next_action
    assert "Clear the failed task" in found.next_action or "Continue with `kafka-rollout" in found.next_action
    assert why in next(one for one in found.conditions if one.type == "NeedsHuman").message


def test_a_deleted_run_is_continued_from_a_shell() -> None:
    state = run(*ROLL, STOPPING, EndedInAirflow(at=AT + 99, state="deleted"))
    action = build_status("orders", (state,), None, AT + 100).next_action
    assert "`kafka-rollout upgrade --cluster orders --run 12 --take-over --as NAME" in action


def test_a_run_that_acts_after_a_clear_has_not_ended_in_airflow() -> None:
    ended = EndedInAirflow(at=AT + 70, state="failed")
    assert run(*ROLL, STOPPING, ended, has_lock=True).is_fenced
    for late in (GateChecked(at=AT + 71, ref=GATE, check=WAITS), STARTED, StepBegan(at=AT + 71, step="observe")):
        assert run(*ROLL, STOPPING, ended, late, has_lock=True).is_fenced, "Airflow had not killed the task yet"
    assert not run(*ROLL, STOPPING, ended, ClearedInAirflow(at=AT + 72), has_lock=True).is_fenced


def test_a_plan_that_was_just_stored_is_a_dry_run_and_not_in_progress() -> None:
    assert phase_of(run(SHELL, PLANNED), PLANNED.at) is Phase.DRY_RUN
    assert phase_of(run(SHELL, PLANNED, has_lock=True), PLANNED.at) is Phase.PLANNING


@pytest.mark.parametrize(("phase", "events", "fields"), PHASES)
def test_the_phase_follows_from_the_events_and_the_document_from_the_schema(
    phase: Phase, events: Sequence[Event], fields: dict[str, Any]
) -> None:
    found = status(run(*events, **fields), lock=LOCK if fields.get("has_lock") else None)
    assert found.phase is phase
    validate(found)


def validate(found: ClusterStatus) -> None:
    schema = json.loads((ROOT / "docs" / "cluster-status.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    document = json.loads(json.dumps(found.to_json()))
    jsonschema.validate(document, schema)
    assert set(document) == set(schema["properties"])  # every key is described
    described = schema["properties"]
    assert {one.value for one in Phase} == set(described["phase"]["enum"])


def test_a_cluster_without_runs_is_idle_and_one_with_a_lock_that_cannot_be_read_is_not() -> None:
    idle = status()
    validate(idle)
    assert (idle.phase, idle.lock) == (Phase.IDLE, None)
    busy = status(lock=LOCK)
    validate(busy)
    assert busy.phase is Phase.UNKNOWN
    assert busy.lock is not None
    assert (busy.lock.holder, busy.lock.purpose) == ("", "")
    assert "right to see the run" in busy.next_action


def test_an_approval_names_who_can_answer_until_when_and_the_page_but_not_the_text() -> None:
    found = status(run(BEGUN, PLANNED, ASKED, has_lock=True), lock=LOCK)
    waits = found.waits_for
    assert waits is not None
    assert (waits.what, waits.who) == ("Upgrade orders from 3.9.1 to 4.3.1?", ("anna", "ben"))
    assert (waits.since, waits.until) == ("2025-11-21T04:00:10Z", "2025-11-22T04:00:10Z")
    assert "Open the page of the cluster in Airflow and answer" in found.next_action
    assert "secret" not in json.dumps(found.to_json())
    assert condition(found, "NeedsHuman") == ("True", "ApprovalPending")
    late = status(run(BEGUN, PLANNED, ASKED), now=AT + 100_000)
    assert (late.phase, late.waits_for) == (Phase.FAILED, None)


def test_the_holder_of_the_lock_and_a_run_that_asks_come_before_newer_runs() -> None:
    newer = run(BEGUN, PLANNED, run_id="newer", end=end("finished", AT + 9))
    asks = run(BEGUN, PLANNED, ASKED)
    holder = run(*ROLL, run_id="holder", has_lock=True)
    assert status(newer, asks).run == "manual__1"
    assert status(newer, asks, holder).run == "holder"
    assert status(newer).run == "newer"


def test_plans_of_the_shell_and_dry_runs_are_not_the_run_of_a_cluster() -> None:
    plan = run(SHELL, PLANNED, run_id="plan")
    dry = run(BEGUN, PLANNED, run_id="dry", end=end("dry_run", AT + 9))
    done = run(*ROLL, run_id="done", end=end("finished", AT + 99))
    assert status(plan, dry, done).run == "done"
    assert status(plan, dry).phase is Phase.IDLE


def down(at: float, log: str = "") -> GateChecked:
    conditions = (
        GateCondition(name=PROCESS, is_met=False, evidence="no process", log=log),
        GateCondition(name=ANSWERS, is_met=False, evidence="no response"),
        GateCondition(name=IN_ISRS, is_met=False, evidence="not yet in 2 ISRs"),
    )
    return GateChecked(at=at, ref=GATE, check=GateCheck(gate="after node 3", at=at, conditions=conditions))


def test_a_node_that_does_not_come_up_counts_as_stopped_with_the_line_of_its_own_log() -> None:
    begun = (*ROLL, STOPPING, STARTED)
    unseen = status(run(*begun, has_lock=True))
    assert condition(unseen, "NodeStopped") == ("True", "NodeNotUp")
    found = status(run(*begun, down(AT + 90, "Invalid maximum heap size"), has_lock=True))
    assert message(found, "NodeStopped") == (
        "Node 3: process: its log shows: Invalid maximum heap size (no process); 2 more conditions need it."
    )
    back = (*ROLL, STOPPING, STARTED, down(AT + 90), approval(AT + 95, ApprovalOf.ROLL_BACK))
    returned = Started(at=AT + 99, node_id=3, release_step="4.3.1-to-3.9.1", release=R391, pid=8, seconds=1.0)
    ref = replace(GATE, release_step="4.3.1-to-3.9.1")
    passed = GatePassed(at=AT + 120, ref=ref, gate="after node 3", message="passed")
    assert condition(status(run(*back, returned, passed, has_lock=True)), "NodeStopped") == ("False", "EveryNodeUp")


def test_a_run_that_waits_at_its_pause_is_continued_with_the_name_of_an_approver() -> None:
    pause = "The first node is done. Check it."
    paused = status(run(*ROLL, STOPPING, STARTED, StoppedByOperator(at=AT + 200, target=R431, asks=pause)))
    assert (paused.phase, message(paused, "NeedsHuman")) == (Phase.PAUSED, pause)
    clear = "Clear the failed task of run 12 of the DAG kafka_upgrade_orders in Airflow"
    assert clear in paused.next_action
    began = StepBegan(at=AT + 90, step="roll.gate_after", batch=0)
    waiting_ended = run(*ROLL, STOPPING, STARTED, began, StoppedByOperator(at=AT + 200, target=R431))
    all_batches = "Clear the task roll.gate_before with all downstream tasks of run 12 of the DAG kafka_upgrade"
    assert all_batches in status(waiting_ended).next_action
    of_shell = run(SHELL, PLANNED, approval(AT + 20), STOPPING, StoppedByOperator(at=AT + 200, target=R431, asks=pause))
    again = "`kafka-rollout upgrade --cluster orders --run 12 --as NAME --reason TEXT`"
    assert again in status(of_shell).next_action
    stopped = run(SHELL, PLANNED, approval(AT + 20), STOPPING, StoppedByOperator(at=AT + 200, target=R431))
    assert "`kafka-rollout upgrade --cluster orders --run 12`" in status(stopped).next_action


def test_red_is_for_damage_and_amber_for_what_waits_for_a_person() -> None:
    assert PHASE_TONES.keys() == set(Phase)
    assert {phase for phase, tone in PHASE_TONES.items() if tone is Tone.BAD} == {Phase.FAILED}
    assert status(run(BEGUN, PLANNED, ASKED, has_lock=True)).tone is Tone.NOW, "a routine approval"
    assert status(run(*ROLL, STOPPING, STARTED, has_lock=True)).tone is Tone.NOW, "a normal wait"
    held = GateFailed(at=AT + 700, ref=replace(GATE, kind=GateKind.BEFORE_STOP), gate="before node 3", message="failed")
    assert status(run(*ROLL, held, DECIDE, has_lock=True)).tone is Tone.FAIR
    asks = status(run(*ROLL, STOPPING, STARTED, down(AT + 90), FAILED, DECIDE, has_lock=True))
    assert (asks.phase, asks.tone, asks.to_json()["tone"]) == (Phase.WAITING_FOR_DECISION, Tone.BAD, "bad")


def test_the_pages_have_a_symbol_for_each_phase_and_red_for_a_stopped_run_alone() -> None:
    script = (ROOT / "plugins/kafka_rollout/airflow/views/static/page.js").read_text()
    phases = script.partition("const PHASE = {")[2].partition("};")[0]
    assert set(re.findall(r'"([a-z-]+)": "', phases)) == {phase.value for phase in Phase}
    outcomes = script.partition("const OUTCOME = {")[2].partition("};")[0]
    red = {outcome for outcome, (tone, _) in OUTCOMES.items() if tone == "bad"}
    assert set(re.findall(r'(\w+): \["\S+", "bad"\]', outcomes)) == red == {Outcome.STOPPED}


def test_a_failure_is_over_when_its_node_starts_again() -> None:
    again = replace(STARTED, at=AT + 800)
    view = RunView.of([*ROLL, STOPPING, STARTED, FAILED])
    assert view.cause == "Gate after node 3 failed after 600 s: isr: 2 of 3."
    said = f"The {view.cause.replace('Gate', 'gate', 1)} No other node is changed."
    assert RunView.of([*view.events, failed_step("roll", said, at=AT + 710)]).cause == view.cause
    assert RunView.of([*view.events, again]).cause == ""
    other = failed_step("roll", "The host of node 4 does not respond.", at=AT + 900)
    assert RunView.of([*view.events, again, other]).cause == "The host of node 4 does not respond."


def test_a_failed_gate_and_a_stopped_node_are_conditions() -> None:
    waiting = status(run(*ROLL, STOPPING, STARTED, GateChecked(at=AT + 90, ref=GATE, check=WAITS), has_lock=True))
    assert condition(waiting, "GatePassed") == ("False", "ConditionsNotMet")
    assert condition(waiting, "NodeStopped")[0] == "False", "its process responds"
    assert waiting.node is not None
    assert waiting.node.id == 3
    failed = status(run(*ROLL, STOPPING, FAILED, DECIDE, has_lock=True))
    assert condition(failed, "GatePassed") == ("False", "Failed")
    assert condition(failed, "NodeStopped") == ("True", "StopNotFinished")
    assert message(failed, "NeedsHuman").startswith("Gate after node 3 failed after 600 s: isr: 2 of 3. orders: gate")
    passed = GatePassed(at=AT + 99, ref=GATE, gate="after node 3", message="passed")
    done = status(run(*ROLL, STOPPING, STARTED, passed, has_lock=True))
    assert (condition(done, "GatePassed")[0], done.node, done.nodes.done) == ("True", None, 1)


def test_finalizing_is_unknown_until_the_levels_are_reported() -> None:
    found = status(run(*ROLL, STOPPING, STARTED, FINALIZING, has_lock=True))
    assert condition(found, "Finalized") == ("Unknown", "Requested")


def test_a_run_of_the_shell_is_continued_in_the_shell() -> None:
    found = status(run(SHELL, PLANNED, approval(AT + 20), STOPPING))
    assert found.phase is Phase.PAUSED
    assert "`kafka-rollout upgrade --cluster orders --run 12`" in found.next_action
    assert "kafka-rollout rollback" in found.next_action


def test_a_restart_names_no_rollback_because_there_is_no_release_to_return_to() -> None:
    planned = replace(PLANNED, run_of=RunOf.RESTART)
    found = status(run(SHELL, planned, approval(AT + 20), STOPPING))
    assert found.phase is Phase.PAUSED
    assert "rollback" not in found.next_action


def test_a_terminal_waits_as_long_as_its_run_holds_the_lock() -> None:
    terminal = Responder(channel=By.SHELL, user="carol", host="bastion")
    asked = replace(ASKED, users=("anna",), answer_by=0.0, terminal=terminal)
    waiting = run(SHELL, PLANNED, asked, run_id="shell-1", has_lock=True)
    found = status(waiting, now=AT + 5000)
    assert (found.phase, found.needs_human) == (Phase.WAITING_FOR_APPROVAL, True)
    assert found.next_action == "anna: answer at the terminal of shell user carol on bastion."
    assert found.waits_for is not None
    assert found.waits_for.until is None
    assert status(replace(waiting, has_lock=False), now=AT + 5000).phase is Phase.IDLE
    ended = replace(waiting, view=waiting.view.followed_by([AskingEnded(at=AT + 20)]))
    assert status(ended, now=AT + 30).waits_for is None
