"""Actions of a user on single tasks in Airflow (clear, mark as success) do not bypass an approval."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.outside_text import is_listed
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.control.approval import record_approval
from kafka_rollout.control.holds import HeldError
from kafka_rollout.gates.gate import GateKind, GateRef
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.procedure import approval_requests
from kafka_rollout.procedure.kinds import UPGRADE
from kafka_rollout.procedure.step import Procedure
from kafka_rollout.roll import loop
from kafka_rollout.run.events import Approval, ApprovalOf, Asked, Decision, events_of
from kafka_rollout.run.projections.open_batches import BatchPart, RollOf
from kafka_rollout.run.step_events import GatePassed, Stopping, TrafficChecked
from tests.dags.conftest import given_answer
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import pass_gates, plan_upgrade, upgrade_request


@pytest.fixture
def ports(tmp_path: Path) -> ClusterPorts:
    return fake_ports(FakeCluster(R391), tmp_path)


@pytest.fixture
def plan(ports: ClusterPorts) -> Plan:
    return plan_upgrade(ports, R431, finalize=True)


def step_of(procedure: Procedure, step_id: str) -> Any:
    return dict(procedure)[step_id]


class StateStore(dict[str, Any]):
    """The state store of a task."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


def context_of(plan: Plan, params: Mapping[str, Any], task: Any = None) -> Any:
    xcom = {"xcom_pull": lambda **_: {"plan_hash": plan.hash}, "xcom_push": lambda **_: None}
    task_id = getattr(task, "task_id", "approve_plan")
    names = {"dag_id": "kafka_upgrade_fake", "run_id": "run-1", "task_id": task_id, "map_index": -1}
    ti = SimpleNamespace(id="01", max_tries=0, try_number=1, **names, **xcom)
    return {"ti": ti, "params": params, "task_state_store": StateStore(), "task": task}


def test_an_approval_that_is_cleared_in_a_dry_run_asks_nobody(ports: ClusterPorts, plan: Plan) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from kafka_rollout.airflow.operators.ask_approval import ApprovalOperator

    task = ApprovalOperator(task_id="approve_plan", cluster="fake", step=step_of(UPGRADE, "approve_plan"))
    with pytest.raises(AirflowFailException, match="a dry run and changes nothing"):
        task.act(context_of(plan, {"dry_run": True}), ports)


def test_a_retry_and_a_cleared_task_ask_again_whatever_the_history_says(
    ports: ClusterPorts, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user with write access to the history adds an answer. Airflow's record still has one to an earlier plan."""
    from airflow.sdk.exceptions import TaskAwaitingInput

    from kafka_rollout.airflow.operators import ask_approval

    monkeypatch.setattr("kafka_rollout.airflow.common.base.cluster_ports", lambda *_: nullcontext(ports))
    monkeypatch.setattr("kafka_rollout.airflow.approvals.asking.request_answer", shown_as_asked)
    task = ask_approval.ApprovalOperator(task_id="approve_plan", cluster="fake", step=step_of(UPGRADE, "approve_plan"))
    context = context_of(plan, {"dry_run": False}, task)
    with pytest.raises(TaskAwaitingInput):
        task.act(context, ports)
    assert task.confirm_answer(context, given_answer("Approve"), "answered", plan.hash)["by"] == "alice"
    with pytest.raises(TaskAwaitingInput):
        task.act(context, ports)


def test_an_answer_to_another_plan_than_the_one_that_was_shown_approves_nothing(
    ports: ClusterPorts, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user cleared the task `plan` alone while the approval waited."""
    from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput

    from kafka_rollout.airflow.operators import ask_approval

    monkeypatch.setattr("kafka_rollout.airflow.common.base.cluster_ports", lambda *_: nullcontext(ports))
    monkeypatch.setattr("kafka_rollout.airflow.approvals.asking.request_answer", shown_as_asked)
    task = ask_approval.ApprovalOperator(task_id="approve_plan", cluster="fake", step=step_of(UPGRADE, "approve_plan"))
    params = {"dry_run": False}
    with pytest.raises(TaskAwaitingInput) as parked:
        task.act(context_of(plan, params, task), ports)
    later = plan_upgrade(ports, R431, finalize=False)
    assert later.hash != plan.hash
    with pytest.raises(AirflowFailException, match="another plan than this request showed"):
        task.confirm_answer(context_of(later, params, task), given_answer("Approve"), **parked.value.kwargs)
    assert not events_of(ports.run.events(), Approval)


def test_test_records_that_are_lost_after_the_first_request_are_accepted_by_the_text_that_lists_them(
    ports: ClusterPorts, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow keeps the text of the first request, also when the task is cleared."""
    from airflow.sdk.exceptions import TaskAwaitingInput

    from kafka_rollout.airflow.approvals.airflow_records import AirflowRecords, request_name
    from kafka_rollout.airflow.operators.ask_approval import ApprovalOperator

    first: list[tuple[str, str]] = []

    def keep_first(_: Any, *, subject: str, body: str, **__: Any) -> Any:
        first.append((subject, body))
        return first[0]

    def body_of(call: Any) -> str:
        return "\n\n".join([*approval_requests._doubts_of_traffic(call.run.history.events()), "Levels"])

    monkeypatch.setattr("kafka_rollout.airflow.common.base.cluster_ports", lambda *_: nullcontext(ports))
    monkeypatch.setattr("kafka_rollout.airflow.approvals.asking.request_answer", keep_first)
    step = step_of(UPGRADE, "approve_finalize")
    step = replace(step, approval=replace(step.approval, check=lambda call: None, body=body_of))
    task = ApprovalOperator(task_id="approve_finalize", cluster="fake", step=step)
    context = context_of(plan, {"dry_run": False}, task)

    def name_of(asked: Asked) -> str:
        return request_name(ports.run.number, "approve_finalize", asked.what, asked.text)

    with pytest.raises(TaskAwaitingInput):
        task.act(context, ports)
    in_form = name_of(events_of(ports.run.events(), Asked)[-1])
    ports.run.record(TrafficChecked(unproved=("Test traffic: 3 records are lost.",)))
    with pytest.raises(TaskAwaitingInput):
        task.act(context, ports)
    asked = events_of(ports.run.events(), Asked)[-1]
    assert asked.text.startswith("\n\n".join(first[0])), "a reader compares it with what Airflow shows"
    assert is_listed(asked.text, "Test traffic: 3 records are lost.")

    with pytest.raises(TaskAwaitingInput):
        task.confirm_answer(context, given_answer("Approve", request=in_form), "answered", plan.hash)
    assert not events_of(ports.run.events(), Approval)
    assert events_of(ports.run.events(), Asked)[-1].text == asked.text
    answer = given_answer("Approve", request=name_of(asked))
    assert task.confirm_answer(context, answer, "answered", plan.hash)["by"] == "alice"
    (given,) = events_of(ports.run.events(), Approval)
    assert (given.doubts, given.text) == (("Test traffic: 3 records are lost.",), asked.text)
    record = {**answer, "responded_at": answer["responded_at"].timestamp()}
    kept = {"record_id": "01", "plan_hash": plan.hash, "what": [str(ApprovalOf.FINALIZE)]}
    context["ti"].xcom_pull, context["ti"].task_id = lambda **_: kept, "finalize"
    AirflowRecords(context, ports.run, {"01": record}).confirm(given)


def shown_as_asked(record_id: Any, *, subject: str, body: str, **_: Any) -> Any:
    return subject, body


def test_a_gate_that_waits_on_after_an_answer_does_not_show_the_request_any_more(
    ports: ClusterPorts, plan: Plan
) -> None:
    from airflow.sdk.exceptions import TaskDeferred

    from kafka_rollout.airflow.gates.batch_sensors import BatchGateSensor

    step = step_of(UPGRADE, "roll.gate_after")
    task = BatchGateSensor(
        task_id="gate_after", cluster="fake", step=step, of=RollOf.PLAN, batch=None, gate=BatchPart.GATE_AFTER
    )
    context = context_of(plan, {}, task)
    context["task_state_store"].set("waits_for", "an answer: How to continue?")
    with pytest.raises(TaskDeferred):
        task.go_on(context)
    assert context["task_state_store"]["waits_for"].startswith("the gate after the start;")


def test_a_gate_that_is_marked_as_passed_lets_no_stop_through(ports: ClusterPorts, plan: Plan) -> None:
    """`replace` proves the order and the end of a pause by itself."""
    request = upgrade_request(R431, finalize=False, pause_after="first-node")
    plan = replace(plan, terms=request.terms(ports.cluster))
    ports.run.save_plan(plan)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    roll = loop.roll_of(Run(ports, plan))
    with pytest.raises(HeldError, match=r"waits for the batches before it: batch 1 of 6 \(node \d+\) has not passed"):
        loop.replace(roll, roll.batches[1])
    key, node_id = roll.batches[0].key[0]
    ref = GateRef(kind=GateKind.AFTER_START, release_step=key, node_id=node_id)
    ports.run.record(GatePassed(ref=ref, gate="after", message="passed"))
    with pytest.raises(HeldError, match="The plan pauses before node"):
        loop.replace(roll, roll.batches[1])
    record_approval(ports, ApprovalOf.PAUSE, "alice", Decision.APPROVED, "the first node is well")
    assert not loop.replace(roll, roll.batches[1])
    assert events_of(ports.run.events(), Stopping)[-1].node_id == roll.batches[1].node_ids[0]


def test_a_change_after_the_run_had_ended_begins_its_traffic_anew_and_does_not_hang_on_it(
    ports: ClusterPorts, plan: Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Clearing the task that failed does not clear the one that started the test traffic."""
    from kafka_rollout.airflow.common.cluster_access import ClusterAccess
    from kafka_rollout.airflow.operators.step import StepOperator
    from kafka_rollout.base.errors import FatalError
    from kafka_rollout.traffic.processes import of_run

    started: list[str] = []

    def start(_cluster: Any, run_id: str, **_: Any) -> Any:
        started.append(run_id)
        raise FatalError("The test traffic did not get its first record through.", remedy="Read its log.")

    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(of_run, "start_traffic", start)
    monkeypatch.setattr(ClusterAccess, "security", lambda self: ClientSecurity())
    record_approval(ports, ApprovalOf.FINALIZE, "alice", Decision.APPROVED, "a quiet evening")
    pass_gates(ports, plan)
    task = StepOperator(task_id="finalize", cluster="fake", step=step_of(UPGRADE, "finalize"))
    for traffic, count in ((False, 0), (True, 1)):
        with pytest.raises(RefusedError, match="No level is raised"):  # it went as far as that
            task.act({**context_of(plan, {"traffic": traffic}), "task": task}, ports)
        assert len(started) == count


def test_a_gate_of_the_whole_cluster_is_waited_for_or_ends_the_run(
    ports: ClusterPorts, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from kafka_rollout.airflow.approvals import asking
    from kafka_rollout.airflow.gates import sensor as gate

    asked: list[Any] = []
    monkeypatch.setattr(asking, "ask", lambda context, ports, question, **_: asked.append(question))
    monkeypatch.setattr("kafka_rollout.airflow.common.base.cluster_ports", lambda *_: nullcontext(ports))
    task = gate.GateSensor(task_id="gate_snapshot", cluster="fake", step=step_of(UPGRADE, "gate_snapshot"))
    context = context_of(plan, {})
    task.ask(context, ports, "gives up")
    assert asked[0].options == (Decision.WAIT_ON, Decision.STOP_HERE)
    with pytest.raises(AirflowFailException, match="alice stopped the run at gate snapshot: because the test says so"):
        task.decided({**context, "task": task}, given_answer("Stop here"))
    assert [approval.decision for approval in events_of(ports.run.events(), Approval)] == ["Stop here"]
