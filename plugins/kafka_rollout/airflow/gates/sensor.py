"""The gates outside a node's own task: check, wait without a worker, and ask an approver after the gate timeout."""

from __future__ import annotations

from typing import Any, NoReturn

from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from kafka_rollout.airflow.approvals.asking import (
    WAITS_FOR,
    ask_how_to_continue,
    is_answer,
    read_answer,
    record_decision,
    show_waiting,
    why_ask_again,
)
from kafka_rollout.airflow.common.base import (
    RolloutOperator,
    frozen_plan,
    request_in,
    skip_if,
)
from kafka_rollout.airflow.common.cluster_access import clears_of
from kafka_rollout.airflow.gates.trigger import GateTrigger
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.gates.gate import RESTS_ON_LOGS, Gate, GateWatch, WatchState, WatchStatus
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.procedure.step import GateStep, Reaction
from kafka_rollout.roll.gate_checks import check_gates, policy_of, watch_of
from kafka_rollout.run.events import Decision

# A check costs less than one second, a deferral about three (triggerer, scheduler, a new process). So a gate that
# passes soon is checked in the task itself.
PATIENCE_S = 12.0


class GateSensor(RolloutOperator, BaseSensorOperator):
    """One gate of a cluster. Those of nodes are parts of their batch (`batch_sensors.py`).

    Checks in the task for PATIENCE_S, then defers to a GateTrigger. After the gate timeout it requests a decision: wait
    on, or stop here. Where the step can roll back, roll back fails this task and stores the decision for the group
    `roll_back`.
    """

    def __init__(self, *, step: GateStep, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step
        self.kind = step.gate

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        run = Run(ports, frozen_plan(ports, context))
        skip_if(self.step.skip(run.plan, request_in(context), run.history.events()))
        status = watch_gate(self, context, run, self.gate)
        if status.state is WatchState.FAILED:
            self.ask(context, ports, status.message)
        return self.passed(status.message)

    def watched(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue after the trigger, or with an answer to the request of an earlier attempt."""
        if is_answer(event):
            return self.decided(context, event)
        if event["state"] == WatchState.PASSED:
            context["task_state_store"].set(WAITS_FOR, f"nothing: {event['message']}")
            with self.working(context):
                return self.passed(event["message"])
        with self.working(context) as ports:
            if event["state"] != WatchState.FAILED:
                raise AirflowFailException(event["message"])
            self.ask(context, ports, event["message"])

    def decided(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue with the decision after the gate failed."""
        with self.working(context, ends=False) as ports:
            name = gate_name(self.gate)
            answer = read_answer(context, event, name)
            self.log.info("%s chose '%s': %s", answer.by, answer.decision, answer.reason)
            if why := why_ask_again(context, ports, answer):
                self.ask(context, ports, why)
            record_decision(context, ports, name, answer)
        return self.attempt(context, "act")

    @property
    def gate(self) -> Gate:
        """The gate that the task waits for."""
        return Gate(kind=self.kind)

    @property
    def options(self) -> tuple[Decision, ...]:
        """The answers after the gate failed."""
        accept = (Decision.ACCEPT,) if self.kind in RESTS_ON_LOGS else ()
        return (Decision.WAIT_ON, *accept, self._last_option)

    @property
    def _last_option(self) -> Decision:
        return Decision.ROLL_BACK if self.step.on_failure is Reaction.ASK_ROLL_BACK else Decision.STOP_HERE

    def ask(self, context: Context, ports: ClusterPorts, message: str) -> NoReturn:
        """Request a decision after the gate failed."""
        ask_how_to_continue(context, ports, what=gate_name(self.gate), why=message, options=self.options)

    def passed(self, message: str) -> Any:
        """Return the XCom after the gate passed."""
        self.log.info("The gate passed: %s", message)
        return {"message": message}


def watch_gate(
    task: RolloutOperator, context: Context, run: Run, gate: Gate, *, is_patient: bool = True
) -> WatchStatus:
    """Return the status of a gate that has passed or failed soon; else defer the task, which resumes at `watched`.

    `is_patient` False: defer at once.
    """
    watch = watch_of(run, gate, policy_of(run.ports, gate.kind, request_in(context), run.plan))
    if is_patient and (status := _check_for_a_while(context, run, gate, watch)).done:
        return status
    run_id = str(context["run_id"])
    watched: dict[str, Any] = {"gate": to_json(gate.ref), "watch": to_json(watch), "records": task.records}
    clears = clears_of(context)
    trigger = GateTrigger(cluster=task.cluster, run_id=run_id, clears=clears, plan_hash=run.plan.hash, **watched)
    task.defer(trigger=trigger, method_name="gate_watched")


def _check_for_a_while(context: Context, run: Run, gate: Gate, watch: GateWatch) -> WatchStatus:
    """Return the last status after at most PATIENCE_S; a long soak is not waited for."""
    clock = run.ports.clock
    give_up = clock.monotonic() + PATIENCE_S
    while True:
        status = check_gates(run, [gate], [watch])
        show_waiting(context, f"{gate_name(gate)}: {status.message}")
        soaks_long = watch.passed_since is not None and watch.policy.soak_s > PATIENCE_S
        if status.done or soaks_long or watch.is_held or clock.monotonic() >= give_up:
            return status
        clock.sleep(watch.policy.interval_s)


def gate_name(gate: Gate) -> str:
    """Return the name of a gate in requests, decisions and the log."""
    ref = gate.ref
    where = f" of node {ref.node_id} ({ref.release_step})" if ref.node_id is not None else ""
    return f"gate {ref.kind.value}{where}"
