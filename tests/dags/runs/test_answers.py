"""A DAG's run takes answers from Airflow's own record of them, by people who may answer, and keeps what was shown."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.run.events import (
    Approval,
    ApprovalConfirmed,
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
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from tests.dags.conftest import DAG_ID, FakeRuns
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import fake_ports
from tests.records import change_lock, run_history, run_ids

pytestmark = pytest.mark.airflow

NOBODY_S = "01890000-0000-7000-8000-000000000000"  # a record's id
ANSWERED_AT = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)


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


def test_the_run_s_parameter_narrows_the_inventory_s_approvers_and_widens_them_never(runs: FakeRuns) -> None:
    runs.world.spec = replace(runs.world.spec, approvers=("alice", "ben"))
    state, states, _ = runs.run(approvers=["ben"])
    assert (state, states["approve_plan"], runs.asked) == ("failed", "failed", ["approve_plan"])
    runs.who = "mallory"
    state, states, _ = runs.run(approvers=["mallory"])
    assert (state, states["approve_plan"], runs.world.stops) == ("failed", "failed", [])


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
    )


def mark_as_successful(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch, task_id: str, forge: Callable[[ClusterPorts], None]
) -> None:
    """Let a task that asks end as if a user had marked it as successful in Airflow, after `forge`."""
    from kafka_rollout.airflow.operators import approvals

    asks: Callable[..., Any] = vars(approvals)["ask"]

    def ask(context: Any, ports: ClusterPorts, question: Any, **options: Any) -> Any:
        if context["task"].task_id != task_id:
            return asks(context, ports, question, **options)
        return forge(ports)

    monkeypatch.setattr(approvals, "ask", ask)


@pytest.mark.parametrize("asked", [False, True], ids=["approval", "request and approval"])
def test_an_approval_that_was_added_to_the_history_stops_no_node(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    def forge(ports: ClusterPorts) -> None:
        if asked:
            ports.run.record(Asked(task_id="approve_plan", record_id=NOBODY_S, text="Roll?", options=("Approve",)))
        ports.run.record(forged_approval(ports.run.load_plan().hash, NOBODY_S, ApprovalOf.ROLL))

    mark_as_successful(runs, monkeypatch, "approve_plan", forge)
    state, states, record = runs.run()
    assert (state, states["approve_plan"], runs.world.stops) == ("failed", "success", []), states
    (refuted,) = events_of(record.events(), ApprovalRefuted)
    assert "Airflow does not confirm the approval of the plan by alice" in refuted.sentence
    said = "Airflow does not confirm" if asked else "was not given in Airflow: no task asked with its record"
    assert said in find_unconfirmed_approval(record.events())


@pytest.mark.parametrize("group_up_to", [12, 5])  # tasks for each node; one task for all nodes
@pytest.mark.parametrize("replayed", [False, True], ids=["forged", "replayed"])
def test_an_end_of_a_pause_that_was_added_to_the_history_does_not_end_it(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch, group_up_to: int, replayed: bool
) -> None:
    monkeypatch.setattr("kafka_rollout.airflow.graphs.procedure.NODE_GROUPS_UP_TO", group_up_to)
    ids = ("active_controller", "broker-12")
    gates = [f"roll.{one}.node_step" for one in ids] if group_up_to == 12 else ["roll.other_nodes"] * 2
    for gate in gates:
        runs.answers[gate] = ["Wait on"] * gates.count(gate)
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
    confirmed = [event.by for event in events_of(record.events(), ApprovalConfirmed) if event.what is ApprovalOf.PAUSE]
    assert confirmed == ["alice", "alice"]
    refuted = [event.sentence for event in events_of(record.events(), ApprovalRefuted)]
    assert len(refuted) == (0 if replayed else 1)


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


@pytest.mark.parametrize(
    ("record", "difference"),
    [
        ({"responded_by_user": {"id": "ben", "name": "ben"}}, "in Airflow, ben answered"),
        ({"chosen_options": ["Reject"]}, "in Airflow, alice chose 'Reject'"),
        ({"responded_at": 1.0}, "in Airflow, alice answered at another time"),
        ({"chosen_options": None}, "has no answer of a user"),
        ({}, ""),
    ],
    ids=["user", "answer", "time", "no answer", "none"],
)
def test_an_approval_is_compared_with_airflow_s_record(
    runs: FakeRuns, record: Mapping[str, Any], difference: str
) -> None:
    from kafka_rollout.airflow.approvals.records import AirflowRecords

    ports = fake_ports(runs.world, runs.home)
    asked = Asked(task_id="approve_plan", record_id=NOBODY_S, text="Roll?", options=("Approve",))
    ports.run.record(asked)
    kept = {"record_id": NOBODY_S, "plan_hash": "abc", "what": ["roll"]}
    ti = SimpleNamespace(id="01", task_id="replace", xcom_pull=lambda **_: kept, xcom_push=lambda **_: None)
    answer = {"responded_by_user": {"id": "alice", "name": "alice"}, "chosen_options": ["Approve"]}
    read = {**answer, "responded_at": 1_763_697_600.0, **record}
    if read["chosen_options"] is None:
        read = {"error_type": "record", "error": "no answer", "is_missing": True}
    records = AirflowRecords({"ti": ti}, ports.run, {NOBODY_S: read})  # type: ignore[typeddict-item]
    expected = pytest.raises(RefusedError, match=difference) if difference else nullcontext()
    with expected:
        records.confirm(forged_approval("abc", NOBODY_S, ApprovalOf.ROLL))
    with pytest.raises(RefusedError, match="no answer in Airflow that approves this"):
        records.confirm(forged_approval("another plan", NOBODY_S, ApprovalOf.ROLL))


def test_later_actions_compare_with_what_the_first_one_read(runs: FakeRuns) -> None:
    """Only what the first action keeps in Airflow counts, not what the run history says about it."""
    from kafka_rollout.airflow.approvals.records import AirflowRecords, UnreadRecordError

    ports = fake_ports(runs.world, runs.home)
    ports.run.record(Asked(task_id="approve_plan", record_id=NOBODY_S, text="Roll?", options=("Approve",)))
    in_airflow: dict[tuple[str, str], Any] = {
        ("approve_plan", "kafka_rollout_answer"): {"record_id": NOBODY_S, "plan_hash": "abc", "what": ["roll"]}
    }

    def records(task_id: str, read: Mapping[str, Any]) -> AirflowRecords:
        def push(*, key: str, value: Any) -> None:
            in_airflow[task_id, key] = value

        def pull(*, task_ids: str, key: str) -> Any:
            return in_airflow.get((task_ids, key))

        ti = SimpleNamespace(id="01", task_id=task_id, xcom_pull=pull, xcom_push=push)
        return AirflowRecords({"ti": ti}, ports.run, read)  # type: ignore[typeddict-item]

    given = forged_approval("abc", NOBODY_S, ApprovalOf.ROLL)
    answer = {"responded_by_user": {"id": "alice", "name": "alice"}, "chosen_options": ["Approve"]}
    ports.run.record(ApprovalConfirmed(what=ApprovalOf.ROLL, by="alice", record_id=NOBODY_S, task_id="first"))
    with pytest.raises(UnreadRecordError):
        records("first", {}).confirm(given)
    records("first", {NOBODY_S: {**answer, "responded_at": 1_763_697_600.0}}).confirm(given)
    records("second", {}).confirm(given)
    with pytest.raises(UnreadRecordError):
        records("second", {}).confirm(forged_approval("abc", NOBODY_S, ApprovalOf.ROLL, answered_at=2.0))
    del in_airflow["first", "kafka_rollout_confirmed_roll"]  # the task was cleared
    with pytest.raises(UnreadRecordError):
        records("second", {}).confirm(given)


def test_a_record_that_cannot_be_read_now_is_read_again(runs: FakeRuns) -> None:
    from kafka_rollout.airflow.approvals.records import AirflowRecords, UnreadRecordError

    ports = fake_ports(runs.world, runs.home)
    ports.run.record(Asked(task_id="approve_plan", record_id=NOBODY_S, text="Roll?", options=("Approve",)))
    kept = {"record_id": NOBODY_S, "plan_hash": "abc", "what": ["roll"]}
    ti = SimpleNamespace(id="01", task_id="replace", xcom_pull=lambda **_: kept)
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


def test_a_run_that_was_taken_over_from_the_shell_does_nothing_more_in_its_dag(runs: FakeRuns) -> None:
    from tests.fakes.ports import fake_ports

    def take_over(task: str) -> None:
        from kafka_rollout.run.events import Channel, Responder
        from kafka_rollout.steps.common.approval import take_over_run

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
    from kafka_rollout.airflow.approvals import records

    runs.answers = {"approve_plan": ["Reject"]}
    runs.run(DAG_ID)
    monkeypatch.setattr("airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS", _Triggerer(), raising=False)
    monkeypatch.setattr(records, "read_record", private_api.read_record)
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
        "record_id": str(ids["approve_plan"]),
        "chosen_options": ["Approve"],
        "params_input": {"reason": "quiet"},
        "responded_by_user": {"id": "7", "name": "Ada Lovelace"},
        "responded_at": ANSWERED_AT.timestamp(),
    }
    for task in ("observe", "plan", "report"):  # asked, nobody's, and never asked
        assert _read(ids[task])["error_type"] == "record", task


def _read(record_id: Any) -> Mapping[str, Any]:
    from kafka_rollout.airflow.approvals.records import AnswerTrigger

    async def first() -> Mapping[str, Any]:
        async for event in AnswerTrigger(record_id=str(record_id), pause_s=0.0).run():
            return dict(event.payload)
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
