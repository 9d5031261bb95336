"""A DAG's run takes answers from Airflow's own record of them, by people who may answer, and keeps what was shown."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from kafka_rollout.domain.run.events import Approval, Asked, Begun, events_of
from tests.dags.conftest import DAG_ID, FakeRuns
from tests.records import run_ids

pytestmark = pytest.mark.airflow

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
    from tests.fakes.ports import fake_bench

    def take_over(task: str) -> None:
        from kafka_rollout.domain.run.events import Channel, Responder
        from kafka_rollout.steps.common.approval import take_over_run

        (run_id,) = run_ids(runs.home, "fake")
        ports = fake_bench(runs.world, runs.home, run_id=run_id)
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

    runs.answers = {"approve_plan": ["Reject"]}
    runs.run(DAG_ID)
    monkeypatch.setattr("airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS", _Triggerer(), raising=False)
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
    from kafka_rollout.airflow.common import answer

    async def first() -> Mapping[str, Any]:
        async for event in answer.AnswerTrigger(record_id=str(record_id), pause_s=0.0).run():
            return dict(event.payload)
        raise AssertionError("no event")

    return asyncio.run(first())


class _Triggerer:
    """Sends to the execution API what a trigger sends to the triggerer."""

    def send(self, msg: Any) -> Any:
        from airflow.jobs.triggerer_job_runner import HITLDetailResponseResult, in_process_api_server
        from airflow.sdk.api.client import Client

        client = Client(base_url=None, token="", dry_run=True, transport=in_process_api_server().transport)
        client.base_url = "http://in-process.invalid./"
        return HITLDetailResponseResult.from_api_response(client.hitl.get_detail_response(ti_id=msg.ti_id))
