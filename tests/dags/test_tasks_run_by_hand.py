"""What a person can do to single tasks in Airflow (clear them, mark them as done) goes round no approval."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_rollout.domain.errors import RefusedError
from kafka_rollout.domain.plan import Plan
from kafka_rollout.steps.approval import APPROVED, ApprovalOf, record_approval
from kafka_rollout.steps.plan import plan_upgrade
from kafka_rollout.steps.workbench import Workbench
from tests.fake_cluster import R391, R431, FakeCluster
from tests.fakes import fake_bench

REASON = {"reason": "well looked at"}


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return fake_bench(FakeCluster(R391), tmp_path)


@pytest.fixture
def plan(bench: Workbench) -> Plan:
    return plan_upgrade(bench, R431, finalize=True)


def context_of(plan: Plan, params: Mapping[str, Any]) -> Any:
    ti = SimpleNamespace(xcom_pull=lambda **_: {"plan_hash": plan.hash}, max_tries=0)
    return {"ti": ti, "params": params, "task_state_store": {}}


def test_an_approval_that_is_cleared_in_a_dry_run_asks_nobody(bench: Workbench, plan: Plan) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from kafka_rollout.operators.approvals import ApprovePlanOperator

    task = ApprovePlanOperator(task_id="approve_plan", cluster="fake")
    with pytest.raises(AirflowFailException, match="a dry run and changes nothing"):
        task.act(context_of(plan, {"dry_run": True}), bench)


def test_an_answer_whose_try_airflow_lost_is_taken_once_and_a_cleared_task_asks_again(
    bench: Workbench, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datetime import timedelta

    from airflow.sdk.exceptions import TaskAwaitingInput

    from kafka_rollout.operators import approvals

    def asked(*_: Any, **__: Any) -> None:
        raise TaskAwaitingInput(method_name="answered", timeout=timedelta(hours=1))

    monkeypatch.setattr(approvals, "workbench", lambda *_: nullcontext(bench))
    monkeypatch.setattr(approvals, "ask", asked)
    task = approvals.ApprovePlanOperator(task_id="approve_plan", cluster="fake")
    params = {"dry_run": False, "approvers": [], "approval_timeout_hours": 1}
    first, retry, cleared = (context_of(plan, params) for _ in range(3))
    cleared["ti"].max_tries = 1
    with pytest.raises(TaskAwaitingInput):
        task.act(first, bench)
    task.answered(first, {"chosen_options": ["Approve"], "responded_by_user": {"name": "ada"}, "params_input": REASON})
    assert task.act(retry, bench) == {"by": "ada", "reason": "well looked at"}
    assert sum(event["kind"] == "approval" for event in bench.run.events()) == 1
    with pytest.raises(TaskAwaitingInput):
        task.act(cleared, bench)


def test_a_canary_s_approval_that_is_marked_as_done_by_hand_rolls_no_other_node(bench: Workbench, plan: Plan) -> None:
    from kafka_rollout.operators.replace_node import refuse_without_canary

    (hop,) = plan.hops
    first, second = hop.order[0].node_id, hop.order[1].node_id
    refuse_without_canary(bench, plan, hop, first)
    with pytest.raises(RefusedError, match="Nobody approved the canary"):
        refuse_without_canary(bench, plan, hop, second)
    record_approval(bench, ApprovalOf.CANARY, "alice", APPROVED, "the first node is well")
    refuse_without_canary(bench, plan, hop, second)
