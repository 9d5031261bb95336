"""Actions of a user on single tasks in Airflow (clear, mark as success) do not bypass an approval."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_rollout.airflow.common.node_task_groups import APPROVE_CANARY
from kafka_rollout.base.errors import RefusedError
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.model.plan import Plan, ReleaseStepPosition
from kafka_rollout.planning.request import Request
from kafka_rollout.run.events import Approval, ApprovalOf, Decision, events_of
from kafka_rollout.run.step_events import Stopping
from kafka_rollout.steps.common.approval import record_approval
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.procedures.kinds import UPGRADE
from kafka_rollout.steps.procedures.parts import REPLACE
from kafka_rollout.steps.roll.loop import Part
from kafka_rollout.steps.step import Procedure, Step
from tests.dags.conftest import given_answer
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import plan_upgrade


@pytest.fixture
def ports(tmp_path: Path) -> ClusterPorts:
    return fake_ports(FakeCluster(R391), tmp_path)


@pytest.fixture
def plan(ports: ClusterPorts) -> Plan:
    return plan_upgrade(ports, R431, finalize=True)


def step_of(procedure: Procedure, step_id: str) -> Step:
    return dict(procedure)[step_id]


class StateStore(dict[str, Any]):
    """The state store of a task."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


def context_of(plan: Plan, params: Mapping[str, Any], task: Any = None) -> Any:
    xcom = {"xcom_pull": lambda **_: {"plan_hash": plan.hash}, "xcom_push": lambda **_: None}
    ti = SimpleNamespace(id="01", run_id="run-1", max_tries=0, try_number=1, dag_id="kafka_upgrade_fake", **xcom)
    return {"ti": ti, "params": params, "task_state_store": StateStore(), "task": task}


def test_an_approval_that_is_cleared_in_a_dry_run_asks_nobody(ports: ClusterPorts, plan: Plan) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from kafka_rollout.airflow.operators.approvals import ApprovalOperator

    task = ApprovalOperator(task_id="approve_plan", cluster="fake", step=step_of(UPGRADE, "approve_plan"))
    with pytest.raises(AirflowFailException, match="a dry run and changes nothing"):
        task.act(context_of(plan, {"dry_run": True}), ports)


def test_a_retry_and_a_cleared_task_ask_again_whatever_the_history_says(
    ports: ClusterPorts, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user with write access to the history adds an answer. Airflow's record still has one to an earlier plan."""
    from airflow.sdk.exceptions import TaskAwaitingInput

    from kafka_rollout.airflow.operators import approvals

    monkeypatch.setattr(approvals, "cluster_ports", lambda *_: nullcontext(ports))
    monkeypatch.setattr("kafka_rollout.airflow.approvals.asking.request_answer", shown_as_asked)
    task = approvals.ApprovalOperator(task_id="approve_plan", cluster="fake", step=step_of(UPGRADE, "approve_plan"))
    context = context_of(plan, {"dry_run": False, "approvers": [], "approval_timeout_hours": 1}, task)
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

    from kafka_rollout.airflow.operators import approvals

    monkeypatch.setattr(approvals, "cluster_ports", lambda *_: nullcontext(ports))
    monkeypatch.setattr("kafka_rollout.airflow.approvals.asking.request_answer", shown_as_asked)
    task = approvals.ApprovalOperator(task_id="approve_plan", cluster="fake", step=step_of(UPGRADE, "approve_plan"))
    params = {"dry_run": False, "approvers": [], "approval_timeout_hours": 1}
    with pytest.raises(TaskAwaitingInput) as parked:
        task.act(context_of(plan, params, task), ports)
    later = plan_upgrade(ports, R431, finalize=False)
    assert later.hash != plan.hash
    with pytest.raises(AirflowFailException, match="another plan than this request showed"):
        task.confirm_answer(context_of(later, params, task), given_answer("Approve"), **parked.value.kwargs)
    assert not events_of(ports.run.events(), Approval)


def shown_as_asked(record_id: Any, *, subject: str, body: str, **_: Any) -> Any:
    return subject, body


def test_a_canary_s_approval_that_is_marked_as_done_by_hand_rolls_no_other_node(
    ports: ClusterPorts, plan: Plan
) -> None:
    from kafka_rollout.airflow.operators.begin import require_canary_approvals

    (release_step,) = plan.release_steps
    first, second = (ports.cluster.node(node_step.node_id) for node_step in release_step.order[:2])
    require_canary_approvals(ports, plan, release_step, first, Request(canary=True))
    with pytest.raises(RefusedError, match=r"The canary of run .* is not approved"):
        require_canary_approvals(ports, plan, release_step, second, Request(canary=True))
    record_approval(ports, ApprovalOf.CANARY, "alice", Decision.APPROVED, "the first node is well")
    require_canary_approvals(ports, plan, release_step, second, Request(canary=True))


def test_a_change_after_the_run_had_ended_begins_its_traffic_anew_and_does_not_hang_on_it(
    ports: ClusterPorts, plan: Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Clearing the task that failed does not clear the one that started the test traffic."""
    from kafka_rollout.airflow.common.cluster_hook import KafkaClusterHook
    from kafka_rollout.airflow.operators.step import StepOperator
    from kafka_rollout.base.errors import FatalError
    from kafka_rollout.traffic.processes import of_run

    started: list[str] = []

    def start(_cluster: Any, run_id: str, **_: Any) -> Any:
        started.append(run_id)
        raise FatalError("The test traffic did not get its first record through.", remedy="Read its log.")

    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(of_run, "start_traffic", start)
    monkeypatch.setattr(KafkaClusterHook, "security", lambda self: ClientSecurity())
    record_approval(ports, ApprovalOf.FINALIZE, "alice", Decision.APPROVED, "a quiet evening")
    task = StepOperator(task_id="finalize", cluster="fake", step=step_of(UPGRADE, "finalize"))
    for traffic, count in ((False, 0), (True, 1)):
        with pytest.raises(RefusedError, match="not finalized"):  # nothing is rolled, and the task went as far as that
            task.act({**context_of(plan, {"traffic": traffic}), "task": task}, ports)
        assert len(started) == count


def test_a_cleared_roll_asks_about_its_first_node_and_about_no_other(ports: ClusterPorts, plan: Plan) -> None:
    """Clearing brings the places to life that were skipped when the release step began."""
    from airflow.sdk.exceptions import AirflowSkipException

    from kafka_rollout.airflow.common.node_task_groups import list_node_task_groups
    from kafka_rollout.airflow.operators.approvals import ApproveCanaryOperator

    node_groups = [
        node_group
        for node_group in list_node_task_groups(ports.cluster, "roll", ReleaseStepPosition.TARGET)
        if node_group.has_canary
    ]
    assert len(node_groups) > 1
    first = plan.release_steps[0].order[0].node_id
    assert [node_group.node_id for node_group in node_groups if node_group.is_canary(plan)] == [first]
    for node_group in node_groups:
        task = ApproveCanaryOperator(
            task_id=APPROVE_CANARY,
            cluster="fake",
            node_group=node_group,
            step=step_of(UPGRADE, "roll.*.approve_canary"),
        )
        asks = nullcontext() if node_group.node_id == first else pytest.raises(AirflowSkipException)
        with asks:
            task.check(context_of(plan, {"canary_approval": True}), ports, plan)
        with pytest.raises(AirflowSkipException):
            task.check(context_of(plan, {"canary_approval": False}), ports, plan)


def test_a_gate_of_the_whole_cluster_is_waited_for_or_ends_the_run(
    ports: ClusterPorts, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from kafka_rollout.airflow.approvals import asking
    from kafka_rollout.airflow.gates import sensor as gate
    from kafka_rollout.gates.gate import Gate, GateKind

    asked: list[Any] = []
    monkeypatch.setattr(asking, "ask", lambda context, ports, question, **_: asked.append(question))
    monkeypatch.setattr(gate, "cluster_ports", lambda *_: nullcontext(ports))
    task = gate.GateSensor(task_id="gate_snapshot", cluster="fake", step=step_of(UPGRADE, "gate_snapshot"))
    context = context_of(plan, {"approval_timeout_hours": 1})
    task.ask(context, ports, Gate(kind=GateKind.SNAPSHOT), "gives up")
    assert asked[0].options == (Decision.WAIT_ON, Decision.STOP_HERE)
    with pytest.raises(AirflowFailException, match="alice stopped the run at gate snapshot: because the test says so"):
        task.decided({**context, "task": task}, given_answer("Stop here"))
    assert [approval.decision for approval in events_of(ports.run.events(), Approval)] == ["Stop here"]


def node_task(ports: ClusterPorts, node_id: int, *, is_rollback: bool = False) -> Any:
    from kafka_rollout.airflow.common.node_task_groups import list_node_task_groups
    from kafka_rollout.airflow.operators.nodes import RollNodesOperator

    groups = list_node_task_groups(ports.cluster, "roll", ReleaseStepPosition.TARGET, is_rollback=is_rollback)
    group = next(one for one in groups if one.node_id == node_id)
    options: dict[str, Any] = {"task_id": "node_step", "cluster": "fake", "step": REPLACE, "retries": 2}
    return RollNodesOperator(nodes=group, **options)


@pytest.mark.parametrize(("is_rollback", "node_id", "first"), [(False, 3, 2), (True, 2, 13)])
def test_a_node_waits_for_those_before_it_also_if_their_tasks_are_marked_as_successful(
    plan: Plan, tmp_path: Path, is_rollback: bool, node_id: int, first: int
) -> None:
    at = fake_ports(FakeCluster(R431 if is_rollback else R391), tmp_path / "at")
    task = node_task(at, node_id, is_rollback=is_rollback)
    batch = (*task.nodes.resolve(plan, at.cluster)[:1], (at.cluster.node(node_id),))
    with pytest.raises(RefusedError, match=f"Node {node_id} cannot be replaced yet: node {first} comes first"):
        task.check_order(at, plan, batch)


def test_errors_are_counted_over_deferrals_and_asked_about_in_the_end(
    ports: ClusterPorts, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka_rollout.airflow.approvals import asking
    from kafka_rollout.airflow.operators import nodes
    from kafka_rollout.base.errors import TransientError

    class AskedError(Exception):
        """A request."""

    asked: list[Any] = []

    def ask(context: Any, ports: Any, question: Any, **_: Any) -> None:
        asked.append(question)
        raise AskedError

    def fails(*_: Any) -> None:
        raise TransientError("Node 2 cannot be stopped safely yet: quorum without it.")

    monkeypatch.setattr(asking, "ask", ask)
    ports.run.record(Stopping(node_id=13, release_step=plan.release_steps[0].key))  # so it asks instead of failing
    context = {**context_of(plan, {"approval_timeout_hours": 1})}
    context["ti"].max_tries = 6
    for expected in (TransientError, TransientError, AskedError):  # each time in a new process
        task = node_task(ports, 2)
        task.began = ports.clock.monotonic() - nodes.WORKS_S
        monkeypatch.setattr(task, "replace", fails)
        monkeypatch.setattr(nodes, "next_part_of_batch", lambda *_: (Part.REPLACEMENT, (ports.cluster.node(2),)))
        batch = (plan.release_steps[0], (ports.cluster.node(2),))
        with pytest.raises(expected):
            task._finish({**context, "task": task}, ports, plan, batch, passed=None)
    options = (Decision.WAIT_ON, Decision.ACCEPT, Decision.RETRY, Decision.ROLL_BACK)
    assert [question.options for question in asked] == [options]
    assert "the node step of node 2 (3.9.1-to-4.3.1) waits for a decision" in asked[0].subject
