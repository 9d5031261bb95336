"""A DAG's run takes answers from Airflow's own record of them, by people who may answer, and keeps what was shown."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    ApprovalRefuted,
    Asked,
    Begun,
    Channel,
    Decision,
    Responder,
    events_of,
)
from kafka_rollout.run.projections.approvals import find_unconfirmed_approval
from kafka_rollout.run.step_events import Stopping
from tests.dags.conftest import DAG_ID, FakeRuns
from tests.dags.runs.dag_run import clear_and_continue, run_dag
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import fake_ports
from tests.records import change_lock, run_history, run_ids

pytestmark = pytest.mark.airflow

NOBODY_S = "01890000-0000-7000-8000-000000000000"  # a record's id
ANSWERED_AT = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)


@pytest.mark.usefixtures("combined")
def test_an_approval_keeps_channel_user_record_text_and_hash(runs: FakeRuns) -> None:
    state, states, record = runs.run(finalize="after_approval")
    assert state == "success", states
    events = record.events()
    (begun,) = events_of(events, Begun)
    assert begun.triggered_by == "dag_test"
    roll, finalize = (given for given in events_of(events, Approval) if given.what in {"roll", "finalize"})
    for approval, question in (
        (roll, "Upgrade fake from 3.9.1 to 4.3.1?"),
        (finalize, "Finalize the features of fake at 4.3.1?"),
    ):
        assert approval.responder is not None
        assert approval.responder.channel == "airflow"
        assert (approval.by, approval.responder.user) == ("alice", "alice")
        assert UUID(approval.responder.record_id)
        assert approval.responder.answered_at > 0
        assert approval.text.startswith(question)
        assert approval.text_sha256 == hashlib.sha256(approval.text.encode()).hexdigest()
        assert approval.text in [asked.text for asked in events_of(events, Asked)]


def test_nobody_answers_whom_the_inventory_does_not_name_when_the_answer_is_given(runs: FakeRuns) -> None:
    def fire_alice(task: str) -> None:
        runs.world.spec = replace(runs.world.spec, approvers=("ben",))

    runs.while_asked = fire_alice
    state, states, record = runs.run()
    assert (state, states["approve_plan"], runs.world.stops) == ("failed", "failed", [])
    assert not events_of(record.events(), Approval)


def forged_approval(plan_hash: str, record_id: str, what: ApprovalOf, **given: Any) -> Approval:
    """As a user with write access to the database of kafka-rollout records it."""
    responder = {"user": "alice", "name": "alice", "answered_at": 1_763_697_600.0, **given}
    return Approval(
        what=what,
        by="alice",
        decision=Decision.APPROVED,
        reason="forged",
        plan_hash=plan_hash,
        responder=Responder(channel=Channel.AIRFLOW, record_id=record_id, **responder),
        text="Roll?",
    )


def mark_as_successful(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch, task_id: str, forge: Callable[[ClusterPorts], None]
) -> None:
    """Let a task that asks end as if a user had marked it as successful in Airflow, after `forge`."""
    from kafka_rollout.airflow.operators import ask_approval

    asks: Callable[..., Any] = vars(ask_approval)["ask"]

    def ask(context: Any, ports: ClusterPorts, question: Any, **options: Any) -> Any:
        if context["task"].task_id != task_id:
            return asks(context, ports, question, **options)
        return forge(ports)

    monkeypatch.setattr(ask_approval, "ask", ask)


@pytest.mark.parametrize("asked", [False, True], ids=["approval", "request and approval"])
def test_an_approval_that_was_added_to_the_history_stops_no_node(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    def forge(ports: ClusterPorts) -> None:
        if asked:
            ports.run.record(
                Asked(
                    what=ApprovalOf.ROLL, task_id="approve_plan", record_id=NOBODY_S, text="Roll?", options=("Approve",)
                )
            )
        ports.run.record(forged_approval(ports.run.load_plan().hash, NOBODY_S, ApprovalOf.ROLL))

    mark_as_successful(runs, monkeypatch, "approve_plan", forge)
    state, states, record = runs.run()
    assert (states["approve_plan"], states["roll.replace[0]"], runs.world.stops) == ("success", "failed", []), states
    assert state == "running", "the other batches wait until it is cleared"
    (refuted,) = events_of(record.events(), ApprovalRefuted)
    assert "Airflow does not confirm the approval of the plan by alice" in refuted.sentence
    said = "Airflow does not confirm" if asked else "was not given in Airflow: no task asked with its record"
    assert said in find_unconfirmed_approval(record.events())


@pytest.mark.parametrize(
    "replayed", [pytest.param(False, id="forged", marks=pytest.mark.full), pytest.param(True, id="replayed")]
)
def test_an_end_of_a_pause_that_was_added_to_the_history_does_not_end_it(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch, replayed: bool
) -> None:
    gates = ["roll.gate_before[2]", "roll.gate_before[4]" if replayed else "roll.replace[4]"]
    for gate in gates:
        runs.answers[gate] = ["Wait on"]
    start = FakeCluster.start

    def start_and_forge(world: FakeCluster, node_id: int) -> None:
        start(world, node_id)
        lock = change_lock(runs.home).holder("fake")
        assert lock is not None
        record = run_history(runs.home, "fake", lock.holder)
        if node_id == 11 and replayed:
            (given,) = (one for one in events_of(record.events(), Approval) if one.what is ApprovalOf.PAUSE)
            record.record(replace(given, at=0.0))
        elif node_id == 11:
            record.record(forged_approval(record.load_plan().hash, NOBODY_S, ApprovalOf.PAUSE))

    monkeypatch.setattr(FakeCluster, "start", start_and_forge)
    state, states, record = runs.run(pause_after="2")
    assert state == "success", states
    assert runs.asked == ["approve_plan", *gates]
    refuted = [event.sentence for event in events_of(record.events(), ApprovalRefuted)]
    assert len(refuted) == (0 if replayed else 1)


@pytest.mark.parametrize(
    "done", [pytest.param([2], id="the first", marks=pytest.mark.full), pytest.param([2, 3], id="a later one")]
)
@pytest.mark.usefixtures("combined")
def test_an_approval_between_batches_and_a_stop_that_were_added_to_the_history_stop_no_node(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch, done: list[int]
) -> None:
    """The pause comes once: it ends by a genuine answer, and not by one that is added before or after it."""
    start = FakeCluster.start
    stops: list[int] = []

    def start_and_forge(world: FakeCluster, node_id: int) -> None:
        start(world, node_id)
        if world.stops == done:
            lock = change_lock(runs.home).holder("fake")
            assert lock is not None
            record = run_history(runs.home, "fake", lock.holder)
            plan = record.load_plan()
            (node_id,) = plan.batch_steps[len(done)].node_ids
            record.record(forged_approval(plan.hash, NOBODY_S, ApprovalOf.PAUSE))
            record.record(Stopping(node_id=node_id, release_step="3.9.1-to-4.3.1"))

    def while_asked(task: str) -> None:
        stops[:] = runs.world.stops

    monkeypatch.setattr(FakeCluster, "start", start_and_forge)
    runs.while_asked = while_asked
    state, states, record = runs.run(pause_after="first-node")
    assert state == "success", states
    asked = ["approve_plan", "roll.replace[1]" if len(done) == 1 else "roll.gate_before[1]"]
    assert (runs.asked, stops) == (asked, [2]), "the node after the first one waits for a genuine answer"
    assert len(events_of(record.events(), ApprovalRefuted)) == 1


@pytest.mark.usefixtures("combined")
def test_an_answer_to_one_request_approves_nothing_else(runs: FakeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    """alice approved the roll. The forged approval to finalize names her record."""

    def forge(ports: ClusterPorts) -> None:
        (roll,) = (given for given in events_of(ports.run.events(), Approval) if given.what is ApprovalOf.ROLL)
        ports.run.record(replace(roll, what=ApprovalOf.FINALIZE, at=0.0))

    mark_as_successful(runs, monkeypatch, "approve_finalize", forge)
    state, states, record = runs.run(finalize="after_approval")
    assert (state, states["approve_finalize"], states["finalize"]) == ("failed", "success", "failed"), states
    (refuted,) = events_of(record.events(), ApprovalRefuted)
    assert "task approve_plan has no answer in Airflow that approves this" in refuted.sentence


RUN = "manual__1"
SHOWN = "Roll?"


def request_of(place: str, what: str, *, run: int = 1, text: str = SHOWN) -> str:
    return f"run {run}: {place}, {what}, text {hashlib.sha256(text.encode()).hexdigest()[:32]}"


GENUINE = {
    "responded_by_user": {"id": "alice", "name": "alice"},
    "chosen_options": ["Approve"],
    "responded_at": 1_763_697_600.0,
    "params_input": {"request": request_of("approve_plan", "roll")},
}


def compared_with(record: Mapping[str, Any] | None, ports: ClusterPorts, kept: Mapping[str, Any] | None) -> Any:
    """The records of a task that acts. `record`: what its trigger read, if it did. `kept`: XCom of the asking task."""
    from kafka_rollout.airflow.approvals.airflow_records import AirflowRecords

    ti = SimpleNamespace(
        id="01", run_id=RUN, task_id="replace", map_index=-1, xcom_pull=lambda **_: kept, xcom_push=lambda **_: None
    )
    context: Any = {"ti": ti}
    return AirflowRecords(context, ports.run, {} if record is None else {NOBODY_S: record})


@pytest.mark.parametrize(
    ("record", "difference"),
    [
        ({"responded_by_user": {"id": "ben", "name": "ben"}}, "in Airflow, ben answered"),
        ({"chosen_options": ["Reject"]}, "in Airflow, alice chose 'Reject'"),
        ({"responded_at": 1.0}, "in Airflow, alice answered at another time"),
        (
            {"params_input": {"request": request_of("approve_plan", "roll", run=2)}},
            r"another request \(run 2: approve_plan",
        ),
        (
            {"params_input": {"request": request_of("roll", "pause")}},
            r"another request \(run 1: roll, pause, text",
        ),
        ({"params_input": {"request": request_of("approve_plan", "finalize")}}, "names another request"),
        ({"params_input": {"request": request_of("approve_plan", "roll", text="Another?")}}, "names another request"),
        ({"params_input": {"reason": "by the REST API"}}, "names another request .none: send it"),
        (None, "has no answer of a user"),
        ({}, ""),
    ],
)
@pytest.mark.parametrize("plan_of_xcom", ["abc", "another plan", None])
def test_whoever_writes_the_database_and_xcoms_gives_no_approval_without_airflow_s_record_of_this_request(
    runs: FakeRuns, record: Mapping[str, Any] | None, difference: str, plan_of_xcom: str | None
) -> None:
    """Database: the request and the approval. XComs: which record is the answer, and to what. Airflow: the answer."""
    from kafka_rollout.airflow.approvals.airflow_records import UnreadRecordError

    ports = fake_ports(runs.world, runs.home)
    ports.run.record(
        Asked(what=ApprovalOf.ROLL, task_id="approve_plan", record_id=NOBODY_S, text="Roll?", options=("Approve",))
    )
    approval = forged_approval("abc", NOBODY_S, ApprovalOf.ROLL)
    ports.run.record(approval)
    everything = [str(what) for what in ApprovalOf]
    kept = {"record_id": NOBODY_S, "plan_hash": plan_of_xcom, "what": everything} if plan_of_xcom else None
    is_selected = plan_of_xcom == "abc"
    missing = {"error_type": "record", "error": "no answer", "is_missing": True}
    read = missing if record is None else {**GENUINE, **record}
    unread: type[Exception] = UnreadRecordError if is_selected else RefusedError
    with pytest.raises(unread):
        compared_with(None, ports, kept).confirm(approval)
    if is_selected and not difference:
        compared_with(read, ports, kept).confirm(approval)
        return
    with pytest.raises(RefusedError, match=difference if is_selected else "no answer in Airflow that approves this"):
        compared_with(read, ports, kept).confirm(approval)


def test_an_option_gives_what_its_label_or_its_request_names(runs: FakeRuns) -> None:
    ports = fake_ports(runs.world, runs.home)
    for what in ApprovalOf:
        ports.run.record(Asked(what=what, task_id="gate", record_id=NOBODY_S, text=SHOWN, options=("Approve",)))
    gives = {"Roll back": {ApprovalOf.ROLL_BACK}, "Retry": {ApprovalOf.ROLL, ApprovalOf.PAUSE}}
    gives |= {"Wait on": {ApprovalOf.PAUSE}, "Accept the log": {ApprovalOf.NODE_LOG}}
    options = ["Approve", "Reject", "Stop here", *gives]
    for what, asked, option in product(ApprovalOf, ApprovalOf, options):
        kept = {"record_id": NOBODY_S, "plan_hash": "abc", "what": [str(what)]}
        read = {**GENUINE, "chosen_options": [option], "params_input": {"request": request_of("gate", asked)}}
        given = (
            {asked} - {ApprovalOf.ROLL_BACK, ApprovalOf.PAUSE, ApprovalOf.NODE_LOG}
            if option == "Approve"
            else gives.get(option, set())
        )
        expected = nullcontext() if what in given else pytest.raises(RefusedError)
        with expected:
            compared_with(read, ports, kept).confirm(forged_approval("abc", NOBODY_S, what))


def test_an_acceptance_of_what_the_shown_text_does_not_list_is_refuted(runs: FakeRuns) -> None:
    """alice accepted the log in this request. Its text, which Airflow's record names, lists one doubt."""
    ports, shown = fake_ports(runs.world, runs.home), "Gate?\n\n- node 3: a doubt"
    asked = Asked(what=ApprovalOf.FAILED_GATE, task_id="gate", record_id=NOBODY_S, text=shown, options=("Accept",))
    ports.run.record(asked)
    kept = {"record_id": NOBODY_S, "plan_hash": "abc", "what": ["node-log"]}
    name = request_of("gate", "failed-gate", text=shown)
    read = {**GENUINE, "chosen_options": ["Accept the log"], "params_input": {"request": name}}
    given = replace(forged_approval("abc", NOBODY_S, ApprovalOf.NODE_LOG), text=shown, doubts=("node 3: a doubt",))
    compared_with(read, ports, kept).confirm(given)
    for text, doubts, difference in (
        (shown, ("node 3: a doubt", "node 3: another"), "does not list: node 3: another"),
        ("another text", ("node 3: a doubt",), "Airflow showed alice another text"),
    ):
        with pytest.raises(RefusedError, match=difference):
            compared_with(read, ports, kept).confirm(replace(given, text=text, doubts=doubts))
    added = f"{shown}\n- node 3: another"
    ports.run.record(replace(asked, text=added))
    with pytest.raises(RefusedError, match="Airflow showed alice another text"):
        compared_with(read, ports, kept).confirm(replace(given, text=added, doubts=("node 3: another",)))


def test_every_action_reads_the_record_again(runs: FakeRuns) -> None:
    """What another task of the run found, or an event or XCom says that it found, is not used."""
    from kafka_rollout.airflow.approvals.airflow_records import UnreadRecordError

    ports = fake_ports(runs.world, runs.home)
    ports.run.record(
        Asked(what=ApprovalOf.ROLL, task_id="approve_plan", record_id=NOBODY_S, text="Roll?", options=("Approve",))
    )
    kept = {"record_id": NOBODY_S, "plan_hash": "abc", "what": ["roll"]}
    given = forged_approval("abc", NOBODY_S, ApprovalOf.ROLL)
    compared_with(GENUINE, ports, kept).confirm(given)
    with pytest.raises(UnreadRecordError):
        compared_with(None, ports, kept).confirm(given)


def test_a_record_that_cannot_be_read_now_is_read_again(runs: FakeRuns) -> None:
    from kafka_rollout.airflow.approvals.airflow_records import AirflowRecords, UnreadRecordError

    ports = fake_ports(runs.world, runs.home)
    ports.run.record(
        Asked(what=ApprovalOf.ROLL, task_id="approve_plan", record_id=NOBODY_S, text="Roll?", options=("Approve",))
    )
    kept = {"record_id": NOBODY_S, "plan_hash": "abc", "what": ["roll"]}
    ti = SimpleNamespace(id="01", run_id=RUN, task_id="replace", map_index=-1, xcom_pull=lambda **_: kept)
    given = forged_approval("abc", NOBODY_S, ApprovalOf.ROLL)
    with pytest.raises(UnreadRecordError, match=NOBODY_S):
        AirflowRecords({"ti": ti}, ports.run, {}).confirm(given)  # type: ignore[typeddict-item]
    down = {NOBODY_S: {"error_type": "record", "error": "503"}}
    with pytest.raises(TransientError, match="cannot be read: 503"):
        AirflowRecords({"ti": ti}, ports.run, down).confirm(given)  # type: ignore[typeddict-item]
    assert not events_of(ports.run.events(), ApprovalRefuted)


@pytest.mark.full
def test_with_four_eyes_the_one_who_triggered_the_run_approves_nothing(runs: FakeRuns) -> None:
    runs.world.spec = replace(runs.world.spec, approvers=("alice", "dag_test"), four_eyes=True)
    runs.who = "dag_test"
    state, states, _ = runs.run()
    assert (state, states["approve_plan"], runs.world.stops) == ("failed", "failed", [])
    runs.who = "alice"
    state, states, _ = runs.run()
    assert state == "success", states


@pytest.mark.full
@pytest.mark.parametrize("cleared", ["observe", "plan", "approve_plan"])
def test_with_four_eyes_an_approver_does_not_repeat_the_run_of_another_user(
    runs: FakeRuns, cleared: str, caplog: pytest.LogCaptureFixture
) -> None:
    runs.world.spec = replace(runs.world.spec, approvers=("alice", "dag_test"), four_eyes=True)
    runs.answers["approve_plan"] = ["Reject", "Approve"]
    dag = runs.load()[DAG_ID]
    run = run_dag(dag, {"target_release": "4.3.1", "pace": "fast"})
    assert run.state == "failed"
    run = clear_and_continue(dag, run, cleared)
    assert (run.state, runs.world.stops) == ("failed", [])
    assert ("alice rejected the plan" if cleared == "approve_plan" else "was cleared and planned again") in caplog.text


def test_a_run_that_was_taken_over_from_the_shell_does_nothing_more_in_its_dag(runs: FakeRuns) -> None:
    from tests.fakes.ports import fake_ports

    def take_over(task: str) -> None:
        from kafka_rollout.control.approval import take_over_run
        from kafka_rollout.run.events import Channel, Responder

        (run_id,) = run_ids(runs.home, "fake")
        ports = fake_ports(runs.world, runs.home, run_id=run_id)
        take_over_run(ports, "alice", Responder(channel=Channel.SHELL, user="root", host="jump-1"), wanted=True)

    runs.while_asked = take_over
    state, _, _ = runs.run()
    assert (state, runs.world.stops) == ("failed", [])


def test_the_answer_is_read_from_airflow_s_record_and_from_nowhere_else(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trigger asks Airflow's real execution API, as the triggerer does."""
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    from kafka_rollout.airflow import private_api
    from kafka_rollout.airflow.approvals import airflow_records

    runs.answers = {"approve_plan": ["Reject"]}
    runs.run(DAG_ID)
    monkeypatch.setattr("airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS", _Triggerer(), raising=False)
    monkeypatch.setattr(airflow_records, "read_record", private_api.read_record)
    with create_session() as session:
        newest = select(TaskInstance.id, TaskInstance.task_id).order_by(TaskInstance.id.desc())
        ids = {task_id: ti_id for ti_id, task_id in reversed(session.execute(newest).all())}
        question = {"options": ["Approve", "Reject"], "subject": "Roll?", "body": "Plan.", "params": {}}
        answer = {"responded_at": ANSWERED_AT, "chosen_options": ["Approve"], "params_input": {"reason": "quiet"}}
        session.add(
            HITLDetail(
                ti_id=ids["approve_plan"], **question, **answer, responded_by={"id": "7", "name": "Ada Lovelace"}
            )
        )
        session.add(HITLDetail(ti_id=ids["observe"], **question))
        session.add(HITLDetail(ti_id=ids["plan"], **question, **answer))  # Airflow's default: nobody's answer
    assert _read(ids["approve_plan"]) == {
        "chosen_options": ["Approve"],
        "params_input": {"reason": "quiet"},
        "responded_by_user": {"id": "7", "name": "Ada Lovelace"},
        "responded_at": ANSWERED_AT.timestamp(),
    }
    for task in ("observe", "plan", "report"):  # asked, nobody's, and never asked
        assert _read(ids[task])["error_type"] == "record", task


@pytest.mark.usefixtures("combined")
def test_a_replacement_reads_the_answers_before_its_worker_starts(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each deferral of a worker costs another process, and Airflow can take it for failed on a busy machine."""
    from kafka_rollout.airflow.approvals.airflow_records import UnreadRecordError

    deferred, defer = list[str](), UnreadRecordError.defer

    def counted(needed: UnreadRecordError, then: str) -> Any:
        deferred.append(then)
        return defer(needed, then)

    monkeypatch.setattr(UnreadRecordError, "defer", counted)
    state, states, _ = runs.run(DAG_ID, pause_after="first-node", finalize="later")
    assert state == "success", states
    assert runs.asked == ["approve_plan", "roll.gate_before[1]"]
    assert deferred == []


def _read(record_id: Any) -> Mapping[str, Any]:
    from kafka_rollout.airflow.approvals.airflow_records import AnswerTrigger

    async def first() -> Mapping[str, Any]:
        async for event in AnswerTrigger(record_ids=[str(record_id)], then="act", pause_s=0.0).run():
            return dict(event.payload["records"][str(record_id)])
        raise AssertionError("no event")

    return asyncio.run(first())


class _Triggerer:
    """Sends to the execution API what a trigger sends to the triggerer."""

    def send(self, msg: Any) -> Any:
        from airflow.jobs.triggerer_job_runner import HITLDetailResponseResult
        from airflow.sdk.api.client import Client
        from airflow.sdk.execution_time.supervisor import in_process_api_server  # the triggerer's, made once

        client = Client(base_url=None, token="", dry_run=True, transport=in_process_api_server().transport)
        client.base_url = "http://in-process.invalid./"
        return HITLDetailResponseResult.from_api_response(client.hitl.get_detail_response(ti_id=msg.ti_id))
