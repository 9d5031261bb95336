"""Which notifications are due, from the history of a run, the lock and the time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_rollout.gates.gate import GateCheck, GateCondition, GateKind, GateRef
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.notifications.due import (
    KINDS,
    ClusterHistory,
    Notification,
    NotificationKind,
    Page,
    RunHistory,
    Urgency,
    alert_of_scan,
    due_notifications,
    newest_change,
    of_scheduled_run,
)
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    Asked,
    AskingEnded,
    Begun,
    Channel,
    Decision,
    Event,
    Planned,
    Responder,
    StartedAtShell,
    StepBegan,
    StepEnded,
    StepOutcome,
    StoppedByOperator,
)
from kafka_rollout.run.projections.runs import RunEnd
from kafka_rollout.run.step_events import GateChecked, GateFailed, GatePassed, Started, Stopping
from kafka_rollout.run.view import RunView
from tests.records import failed_step

AT = 1_763_697_600.0  # 2025-11-21T04:00:00Z
STEP = "3.9.1-to-4.3.1"
R431 = Release(4, 3, 1)
BEGUN = Begun(at=AT, dag_id="kafka_upgrade_orders")
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
BEFORE = GateRef(kind=GateKind.BEFORE_STOP, release_step=STEP, node_id=3)
GATE_FAILED = GateFailed(
    at=AT + 700, ref=GATE, gate="after node 3", message="failed after 600 s: isr: 2 of 3", reason="isr: 2 of 3"
)
DECIDE = Asked(
    what=ApprovalOf.FAILED_GATE,
    at=AT + 701,
    task_id="gate",
    record_id="r2",
    text="orders: gate after-start of node 3 failed. How to continue?\n\nx",
    options=("Wait on", "Retry", "Roll back", "Stop here"),
    answer_by=AT + 701 + 3600,
)
STOPPING = Stopping(at=AT + 60, node_id=3, release_step=STEP)
STARTED = Started(at=AT + 80, node_id=3, release_step=STEP, release=R431, pid=7, seconds=2.0)


def approval(record_id: str, at: float, decision: Decision = Decision.APPROVED) -> Approval:
    responder = Responder(channel=Channel.AIRFLOW, user="anna", record_id=record_id)
    return Approval(
        at=at, what=ApprovalOf.ROLL, by="anna", decision=decision, reason="x", plan_hash="h", responder=responder
    )


def checked(at: float, *, ref: GateRef = GATE, passes: bool = False, is_held: bool = False) -> GateChecked:
    condition = GateCondition(name="isr", is_met=passes, evidence="2 of 3")
    check = GateCheck(gate="after node 3", at=at, conditions=(condition,), is_held=is_held)
    return GateChecked(at=at, ref=ref, check=check)


def due(*events: Event, now: float, **run: Any) -> list[Notification]:
    history = RunHistory(run_id="manual__1", number=12, view=RunView.of(events), **run)
    return list(due_notifications(ClusterHistory(cluster="orders", runs=(history,)), now=now))


def kinds(*events: Event, now: float, **run: Any) -> list[NotificationKind]:
    return [one.kind for one in due(*events, now=now, **run)]


def end(outcome: str, at: float, sentence: str = "So it ended.") -> RunEnd:
    return RunEnd(outcome=outcome, sentence=sentence, ended_at=at)


def test_a_request_names_deadline_approvers_and_the_page_but_not_the_text_of_the_plan() -> None:
    (pending,) = due(BEGUN, ASKED, now=AT + 11, has_lock=True)
    assert (pending.kind, pending.page, pending.dag_id) == (
        NotificationKind.APPROVAL_PENDING,
        Page.ANSWER,
        "kafka_upgrade_orders",
    )
    assert pending.sentences == (
        "Upgrade orders from 3.9.1 to 4.3.1?",
        "Without an answer until 2025-11-22 04:00 UTC, the task fails.",
        "Can answer: anna, ben.",
    )
    assert pending.remedy == "Open the page and answer: Approve, Reject."
    assert pending.run == 12
    assert "secret" not in str(pending)


def test_an_answered_request_is_not_pending_and_the_next_one_is_new() -> None:
    asked_again = Asked(
        what=ApprovalOf.ROLL, at=AT + 90, task_id="again", record_id="r3", text="Go on?", options=("Approve", "Reject")
    )
    answered = approval("r1", AT + 20)
    assert kinds(BEGUN, ASKED, answered, now=AT + 21, has_lock=True) == []
    (first,) = due(BEGUN, ASKED, now=AT + 11, has_lock=True)
    (second,) = due(BEGUN, ASKED, answered, asked_again, now=AT + 91, has_lock=True)
    assert first.key != second.key
    assert "Can answer: everyone who can change the DAG kafka_upgrade_orders." in second.sentences


def test_an_old_request_is_still_pending_and_is_reminded_before_it_expires() -> None:
    assert kinds(BEGUN, ASKED, now=ASKED.answer_by - 3601, has_lock=True) == [NotificationKind.APPROVAL_PENDING]
    pending, expires = due(BEGUN, ASKED, now=ASKED.answer_by - 3599, has_lock=True)
    assert (pending.kind, expires.kind) == (NotificationKind.APPROVAL_PENDING, NotificationKind.APPROVAL_EXPIRES)
    assert expires.headline == "The request for an approval expires in 59 min 59 s."
    assert expires.urgency is Urgency.CRITICAL


def test_a_failure_is_a_decision_also_where_the_same_task_can_ask_for_an_approval() -> None:
    decide = replace(DECIDE, options=("Approve", "Reject", *DECIDE.options))
    assert NotificationKind.DECISION_PENDING in kinds(BEGUN, STOPPING, STARTED, GATE_FAILED, decide, now=AT + 702)


def test_a_short_request_is_reminded_in_its_last_quarter() -> None:
    short = Asked(
        what=ApprovalOf.ROLL, at=AT, task_id="t", record_id="r", text="Go on?", options=("Approve",), answer_by=AT + 400
    )
    assert kinds(BEGUN, short, now=AT + 299) == [NotificationKind.APPROVAL_PENDING]
    assert kinds(BEGUN, short, now=AT + 300) == [NotificationKind.APPROVAL_PENDING, NotificationKind.APPROVAL_EXPIRES]


def test_an_expired_request_is_one_failure_also_when_the_report_follows() -> None:
    (expired,) = due(BEGUN, ASKED, now=ASKED.answer_by)
    (reported,) = due(BEGUN, ASKED, now=ASKED.answer_by + 60, end=end("refused", ASKED.answer_by + 30))
    assert expired.kind is reported.kind is NotificationKind.RUN_FAILED
    assert expired.key == reported.key
    assert expired.sentences == (
        "There was no answer in time: Upgrade orders from 3.9.1 to 4.3.1?",
        "It changed nothing.",
    )


def test_a_failed_gate_is_a_failed_node_and_a_decision_with_its_reason() -> None:
    failed, decision = due(BEGUN, STOPPING, STARTED, GATE_FAILED, DECIDE, now=AT + 702, has_lock=True)
    assert (failed.kind, failed.node, decision.kind, decision.node) == (
        NotificationKind.NODE_FAILED,
        3,
        NotificationKind.DECISION_PENDING,
        3,
    )
    assert (failed.headline, failed.sentences) == ("Node 3: isr: 2 of 3.", ("The gate after node 3 failed.",))
    assert decision.sentences[0] == "Gate after node 3 failed after 600 s: isr: 2 of 3."
    assert decision.remedy == "Open the page and answer: Wait on, Retry, Roll back, Stop here."


def test_a_node_that_was_stopped_and_not_started_is_named() -> None:
    task_failed = StepEnded(
        at=AT + 70, step="replace", outcome=StepOutcome.FAILED, reason="Unit kafka of broker-3 does not start."
    )
    failed, run_failed = due(BEGUN, STOPPING, task_failed, now=AT + 300)
    assert (failed.kind, failed.node) == (NotificationKind.NODE_FAILED, 3)
    assert failed.headline == "Node 3: Unit kafka of broker-3 does not start."
    assert failed.sentences == ("It was stopped and not started again.",)
    assert run_failed.kind is NotificationKind.RUN_FAILED


def test_a_failure_that_a_later_event_resolves_is_not_sent() -> None:
    passed = GatePassed(at=AT + 900, ref=GATE, gate="after node 3", message="passed")
    again = replace(STARTED, at=AT + 800)
    begun = (BEGUN, STOPPING, STARTED, GATE_FAILED)
    assert kinds(*begun, again, now=AT + 801, has_lock=True) == [NotificationKind.NODE_FAILED]
    assert kinds(*begun, again, passed, now=AT + 901, has_lock=True) == []
    stopped = RunHistory(run_id="manual__1", number=12, view=RunView.of(begun), end=end("stopped", AT + 701))
    history = ClusterHistory(cluster="orders", runs=(stopped,))
    open_now = [NotificationKind.NODE_FAILED, NotificationKind.RUN_FAILED]
    assert [one.kind for one in due_notifications(history, now=AT + 710)] == open_now
    for outcome, left in (("rolled_back", []), ("finished", []), ("stopped", open_now)):
        later = replace(history, newest_end=("run-2", end(outcome, AT + 5000)))
        assert [one.kind for one in due_notifications(later, now=AT + 5001)] == left, outcome
    earlier = replace(history, newest_end=("run-0", end("finished", AT - 5000)))
    assert [one.kind for one in due_notifications(earlier, now=AT + 710)] == open_now


def test_a_gate_is_slow_after_half_its_timeout_and_once() -> None:
    events = (BEGUN, STOPPING, STARTED, checked(AT + 100), checked(AT + 390))
    assert kinds(*events, now=AT + 399, has_lock=True, gate_timeout_s=600) == []
    (slow,) = due(*events, now=AT + 400, has_lock=True, gate_timeout_s=600)
    (later,) = due(*events, checked(AT + 500), now=AT + 520, has_lock=True, gate_timeout_s=600)
    assert (slow.kind, slow.node, slow.key) == (NotificationKind.GATE_SLOW, 3, later.key)
    assert slow.sentences == (
        "Gate after node 3 has waited for 5 min 00 s. Its timeout is 10 min 00 s.",
        "It waits for isr: 2 of 3.",
    )


def test_a_held_gate_is_not_slow_because_its_timeout_begins_after_the_hold() -> None:
    held = (BEGUN, checked(AT, ref=BEFORE), checked(AT + 10, ref=BEFORE, is_held=True))
    assert kinds(*held, now=AT + 36_000, has_lock=True, gate_timeout_s=600) == []
    later = (*held, checked(AT + 36_010, ref=BEFORE))
    assert kinds(*later, now=AT + 36_309, has_lock=True, gate_timeout_s=600) == []
    (slow,) = due(*later, now=AT + 36_310, has_lock=True, gate_timeout_s=600)
    assert (slow.kind, slow.node, slow.at) == (NotificationKind.GATE_SLOW, 3, AT + 36_310)


@pytest.mark.parametrize(
    ("kind", "has_passed", "asks"),
    [
        (GateKind.BEFORE_STOP, True, True),
        (GateKind.FINALIZED, False, True),
        (GateKind.NODES_STOP, False, False),
        (GateKind.CONTROLLERS_STOP, False, True),
        (GateKind.CONTROLLERS_STOP, True, False),  # in lower_level, after the task of the gate
    ],
)
def test_the_notification_of_a_slow_gate_says_whether_the_run_asks(
    kind: GateKind, has_passed: bool, asks: bool
) -> None:
    ref = BEFORE if kind is GateKind.BEFORE_STOP else GateRef(kind=kind)
    passed = [GatePassed(at=AT + 1, ref=ref, gate=str(kind), message="passed")] if has_passed else []
    (slow,) = due(BEGUN, *passed, checked(AT + 2, ref=ref), now=AT + 400, has_lock=True, gate_timeout_s=600)
    after = "After the timeout the run asks an approver" if asks else "the task fails, or the shell stops; no node is"
    assert after in slow.remedy


@pytest.mark.parametrize(
    "after",
    [checked(AT + 401, passes=True), GatePassed(at=AT + 401, ref=GATE, gate="after node 3", message="passed")],
    ids=["passing", "passed"],
)
def test_a_gate_that_passes_is_not_slow(after: Event) -> None:
    assert kinds(BEGUN, STARTED, checked(AT + 100), after, now=AT + 500, has_lock=True, gate_timeout_s=600) == []


def test_a_run_that_neither_records_nor_holds_the_lock_is_paused_once() -> None:
    events = (BEGUN, STOPPING, STARTED, checked(AT + 100))
    assert kinds(*events, now=AT + 150) == []
    assert kinds(*events, now=AT + 250, has_lock=True) == []
    (paused,) = due(*events, now=AT + 250)
    assert (paused.kind, paused.key) == (NotificationKind.RUN_PAUSED, due(*events, now=AT + 9999)[0].key)


def test_a_run_that_the_operator_stopped_between_two_nodes_is_paused() -> None:
    stopped = StoppedByOperator(at=AT + 200, target=R431)
    assert kinds(BEGUN, STARTED, stopped, now=AT + 205, end=end("stopped", AT + 201)) == [NotificationKind.RUN_PAUSED]


def test_a_run_that_an_approver_or_operator_ended_names_the_tasks_to_clear() -> None:
    began = StepBegan(at=AT + 90, step="roll.gate_after", batch=0)
    for ended in (
        StoppedByOperator(at=AT + 200, target=R431),
        replace(approval("r2", AT + 200, Decision.STOP_HERE), what=ApprovalOf.FAILED_GATE),
    ):
        (sent,) = due(BEGUN, STARTED, began, ended, now=AT + 205, end=end("stopped", AT + 201))
        assert "clear the task roll.gate_before with all downstream tasks in Airflow" in sent.remedy


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        ("finished", [NotificationKind.FINISHED]),
        ("rolled_not_finalized", [NotificationKind.FINISHED]),
        ("rolled_back", [NotificationKind.ROLLED_BACK]),
        ("stopped", [NotificationKind.RUN_FAILED]),
        ("refused", [NotificationKind.RUN_FAILED]),
        ("dry_run", []),
    ],
)
def test_an_ended_run_is_told_by_its_outcome_with_its_report(outcome: str, kind: list[NotificationKind]) -> None:
    found = due(BEGUN, STARTED, now=AT + 90, end=end(outcome, AT + 81))
    assert [one.kind for one in found] == kind
    assert all((one.page, one.sentences[0]) == (Page.REPORT, "So it ended.") for one in found)


def test_a_failed_task_is_a_failed_run_when_no_report_follows_and_the_same_when_it_does() -> None:
    task_failed = failed_step("plan", "No broker responded.", at=AT + 5)
    assert kinds(BEGUN, task_failed, now=AT + 10) == []
    (failed,) = due(BEGUN, task_failed, now=AT + 125)
    traffic_stopped = StepEnded(at=AT + 19, step="stop_traffic", outcome=StepOutcome.DONE)
    (reported,) = due(BEGUN, task_failed, traffic_stopped, now=AT + 125, end=end("stopped", AT + 20))
    assert failed.key == reported.key
    assert failed.sentences[0] == "No broker responded. Step plan failed."


def test_a_run_that_continued_after_its_report_has_not_ended_and_can_fail_again() -> None:
    once = (BEGUN, STARTED, failed_step("gate", "x", at=AT + 90))
    (first,) = due(*once, now=AT + 95, end=end("stopped", AT + 91))
    again = (*once, Stopping(at=AT + 500, node_id=4, release_step=STEP))
    assert kinds(*again, now=AT + 510, end=end("stopped", AT + 91), has_lock=True) == []
    (second,) = due(*again, now=AT + 600, end=end("stopped", AT + 590))
    assert first.key != second.key


def test_plans_and_dry_runs_of_the_command_line_are_silent() -> None:
    starter = StartedAtShell(at=AT, starter=Responder(channel=Channel.SHELL, user="ops", host="h"))
    planned = Planned(
        at=AT + 1, run_of=RunOf.UPGRADE, plan_hash="h", source=Release(3, 9, 1), target=R431, blockers=("X",)
    )
    assert kinds(planned, now=AT + 900) == []
    assert kinds(starter, planned, now=AT + 900, end=end("refused", AT + 2)) == []


def test_a_run_of_the_command_line_leads_to_the_page_and_names_its_option() -> None:
    starter = StartedAtShell(at=AT, starter=Responder(channel=Channel.SHELL, user="ops", host="h"))
    (failed,) = due(starter, STOPPING, STARTED, now=AT + 90, end=end("stopped", AT + 81))
    assert (failed.page, failed.dag_id) == (Page.CLUSTERS, "")
    assert "--run 12" in failed.remedy


def test_what_happened_days_ago_is_not_told_when_the_sender_first_runs() -> None:
    assert kinds(BEGUN, STARTED, now=AT + 90_000, end=end("finished", AT + 81)) == []


def test_alerts_of_scans_are_notifications() -> None:
    alerts = (
        alert_of_scan(
            NotificationKind.OPTION_CLOSED, "Verdicts got worse.", (), remedy="", report="https://airflow/scan"
        ),
        alert_of_scan(NotificationKind.SCAN_FAILED, "Not scanned.", (), remedy=""),
    )
    alerts = tuple(of_scheduled_run(alert, "orders", "a", AT) for alert in alerts)
    closed, failed = due_notifications(ClusterHistory(cluster="orders", alerts=alerts), now=AT + 1)
    assert (closed.kind, closed.page, closed.report) == (
        NotificationKind.OPTION_CLOSED,
        Page.SCAN,
        "https://airflow/scan",
    )
    assert (failed.kind, failed.page, failed.key) == (NotificationKind.SCAN_FAILED, Page.CLUSTERS, "scan-failed:a")
    assert (closed.failed, failed.failed, failed.cluster) == (False, True, "orders")


def test_a_failed_scan_is_not_sent_after_a_later_scheduled_scan() -> None:
    made = alert_of_scan(NotificationKind.SCAN_FAILED, "Not scanned.", (), remedy="")
    failed = of_scheduled_run(made, "orders", "a", AT)
    history = ClusterHistory(cluster="orders", alerts=(failed,))
    for newest_scan, sent in (
        (None, (failed,)),
        (("earlier", AT - 60), (failed,)),
        (("a", AT + 1), (failed,)),  # that of the failed run itself
        (("later", AT + 60), ()),
    ):
        assert due_notifications(replace(history, newest_scan=newest_scan), now=AT + 70) == sent, newest_scan
    both = replace(failed, joined=(NotificationKind.CHECK_WORSE,))
    scanned = replace(history, alerts=(both,), newest_scan=("later", AT + 60))
    assert due_notifications(scanned, now=AT + 70) == (both,), "a scan resolves no finding of a check"


def test_a_cluster_without_finalized_levels_is_told_of_after_14_days() -> None:
    day = 86_400.0
    newest = newest_change([("d", end("dry_run", AT + 9)), ("u", end("rolled_not_finalized", AT, "Not finalized: x."))])
    history = ClusterHistory(cluster="orders", newest_end=newest)
    assert due_notifications(history, now=AT + 14 * day - 1) == ()
    (found,) = due_notifications(history, now=AT + 15 * day)
    assert (found.kind, found.sentences) == (NotificationKind.NOT_FINALIZED, ("Not finalized: x.",))
    assert found.headline == "The feature levels are not finalized 15 d 0 h after the upgrade."
    finalized = newest_change([("f", end("finished", AT + day)), ("u", end("rolled_not_finalized", AT))])
    assert due_notifications(ClusterHistory(cluster="orders", newest_end=finalized), now=AT + 15 * day) == ()


def test_every_kind_has_an_urgency() -> None:
    assert set(KINDS) == set(NotificationKind)


AT_TERMINAL = Asked(
    what=ApprovalOf.ROLL,
    at=AT + 10,
    task_id="approve_plan",
    record_id="",
    text="Approve the plan of cluster orders?\n\nx",
    options=("Approve", "Reject"),
    users=("anna",),
    terminal=Responder(channel=Channel.SHELL, user="ci", host="bastion"),
)


def test_a_terminal_that_waits_is_notified_and_a_killed_or_answered_one_is_not() -> None:
    (pending,) = due(AT_TERMINAL, now=AT + 11, has_lock=True)
    assert (pending.kind, pending.page) == (NotificationKind.APPROVAL_PENDING, Page.CLUSTERS)
    assert pending.remedy == "Go to the terminal of shell user ci on bastion and answer: Approve, Reject."
    assert "Can answer: anna." in pending.sentences
    assert kinds(AT_TERMINAL, now=AT + 11) == []
    assert kinds(AT_TERMINAL, AskingEnded(at=AT + 20), now=AT + 21, has_lock=True) == []
    assert kinds(AT_TERMINAL, approval("", AT + 20), now=AT + 21, has_lock=True) == []
