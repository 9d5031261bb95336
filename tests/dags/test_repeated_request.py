"""An approval is requested again with its text, whatever the cluster shows now: a rollback must stay possible."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_rollout.airflow.operators import ask_approval
from kafka_rollout.airflow.operators.ask_approval import ApprovalOperator
from kafka_rollout.run.events import ApprovalOf, Asked, Decision
from kafka_rollout.run.ports import Answer, Question

TEXT = "Approve the levels\n\nmetadata.version 30\n\nA rollback cannot compare: 1"


class AskedAgain(Exception):
    pass


@pytest.mark.parametrize("reason", ["", "a node is lost"], ids=["without a reason", "with more that is unread"])
def test_a_request_is_repeated_with_its_text_when_a_node_is_lost_since(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(what=ApprovalOf.FINALIZE, task_id="approve_finalize", record_id="1", text=TEXT, options=(), users=())
    ports = SimpleNamespace(
        cluster=SimpleNamespace(approvers=()), run=SimpleNamespace(events=lambda: (asked,), number=1)
    )
    shown: list[Question] = []

    def ask(context: Any, of: Any, question: Question, **_: Any) -> None:
        shown.append(question)
        raise AskedAgain

    def observe(*_: Any) -> str:
        raise AssertionError("node 12 does not respond")

    answer = Answer(by="alice", decision=Decision.ROLL_BACK, reason=reason)
    approval = SimpleNamespace(subject=lambda plan: "Approve the levels", offers_roll_back=True, body=observe)
    context: Any = {
        "task": SimpleNamespace(task_id="approve_finalize"),
        "ti": SimpleNamespace(map_index=-1, run_id="run-1"),
    }
    monkeypatch.setattr(ask_approval, "frozen_plan", lambda *_: SimpleNamespace(changes_release=True))
    monkeypatch.setattr(ask_approval, "read_answer", lambda *_: answer)
    monkeypatch.setattr(ask_approval, "why_ask_again", lambda *_: "the file of node 12 is unread")
    monkeypatch.setattr(ask_approval, "keep_lock_while_asking", lambda *_: None)
    monkeypatch.setattr(ask_approval, "ask", ask)
    monkeypatch.setattr(ApprovalOperator, "working", lambda *_: nullcontext(ports))
    monkeypatch.setattr(ApprovalOperator, "_call", lambda *_: None)
    monkeypatch.setattr(ApprovalOperator, "log", logging.getLogger(__name__))
    operator = ApprovalOperator.__new__(ApprovalOperator)
    object.__setattr__(operator, "approval", approval)
    object.__setattr__(operator, "what", ApprovalOf.FINALIZE)
    with pytest.raises(AskedAgain):
        operator.answered(context, {})
    assert f"{shown[0].subject}\n\n{shown[0].body}" == TEXT
