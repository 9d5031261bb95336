"""The gates outside a node's own task: check, wait without a worker, and ask an approver after the gate timeout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from kafka_rollout.airflow.approvals.asking import WAITS_FOR, AsksPeople, is_answer, read_answer, show_waiting
from kafka_rollout.airflow.approvals.deciding import (
    ask_how_to_continue,
    record_decision,
)
from kafka_rollout.airflow.approvals.records import Records, UnreadRecordError, read_records
from kafka_rollout.airflow.common.base import (
    RolloutOperator,
    cluster_ports,
    errors_for_airflow,
    frozen_plan,
    request_in,
    skip_if,
)
from kafka_rollout.airflow.gates.trigger import GateTrigger
from kafka_rollout.airflow.logs import OneLineLogs
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.gates.check import Gate, GateWatch, WatchState, WatchStatus
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.run.events import Decision
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.node_steps import offline_release_step
from kafka_rollout.steps.gates.waiting import check_gates, policy_of, watch_of
from kafka_rollout.steps.offline import actions
from kafka_rollout.steps.step import Reaction, Step

# A check costs less than one second, a deferral about three (triggerer, scheduler, a new process). So a gate that
# passes soon is checked in the task itself.
PATIENCE_S = 12.0


class GateSensor(AsksPeople, OneLineLogs, BaseSensorOperator):
    """One gate of a cluster. A node's own gates are in its task (RollNodesOperator).

    Checks in the task for PATIENCE_S, then defers to a GateTrigger. After the gate timeout it requests a decision: wait
    on, or stop here. Where the step can roll back, roll back fails this task and stores the decision for the group
    `roll_back`.
    """

    def __init__(self, *, cluster: str, step: Step, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if step.gate is None:
            raise TypeError(f"Step {step.id} has no gate.")
        self.cluster = cluster
        self.step = step
        self.kind = step.gate

    def execute(self, context: Context) -> Any:
        with errors_for_airflow(), cluster_ports(self.cluster, context) as ports:
            plan = frozen_plan(ports, context)
            skip_if(self.step.skip(plan, request_in(context), ports.run.events()), ports, self.task_id)
            gate = self._gate(plan, ports.cluster)
            return self._watch(context, ports, plan, gate)

    def watched(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue after the trigger, or with an answer to the request of an earlier attempt."""
        if is_answer(event):
            return self.decided(context, event)
        if event["state"] == WatchState.PASSED:
            context["task_state_store"].set(WAITS_FOR, f"nothing: {event['message']}")
            return self._passed(event["message"])
        if event["state"] != WatchState.FAILED:
            raise AirflowFailException(event["message"])
        with errors_for_airflow(), cluster_ports(self.cluster, context) as ports:
            plan = frozen_plan(ports, context)
            self._ask(context, ports, self._gate(plan, ports.cluster), event["message"])

    def decided(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue with the decision after the gate failed."""
        with errors_for_airflow(), cluster_ports(self.cluster, context) as ports:
            plan = frozen_plan(ports, context)
            gate = self._gate(plan, ports.cluster)
            answer = read_answer(context, event, gate_name(gate))
            self.log.info("%s chose '%s': %s", answer.by, answer.decision, answer.reason)
            record_decision(context, ports, gate_name(gate), answer)
            if answer.decision is not Decision.RETRY:
                return self._watch(context, ports, plan, gate)
        return self._restart(context, {})

    def confirmed(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue after Airflow's record of the approval was read."""
        if "carried" not in event:  # a late answer
            return self.decided(context, event)
        return self._restart(context, read_records(event)[1])

    def _restart(self, context: Context, records: Records) -> Any:
        """Carry out *Retry*. If it needs an approval, read Airflow's record of the answer first."""
        try:
            with errors_for_airflow(), cluster_ports(self.cluster, context, records) as ports:
                plan = frozen_plan(ports, context)
                gate = self._gate(plan, ports.cluster)
                self.start_node_again(ports, plan, gate)
                return self._watch(context, ports, plan, gate)
        except UnreadRecordError as needed:
            raise needed.defer("start_node_again", records) from None

    @property
    def can_start_node(self) -> bool:
        """Return whether *Retry* is a possible answer."""
        return False

    def start_node_again(self, ports: ClusterPorts, plan: Plan, gate: Gate) -> None:
        """Carry out *Retry*."""
        raise NotImplementedError

    def _watch(self, context: Context, ports: ClusterPorts, plan: Plan, gate: Gate) -> Any:
        """Check in this task for some time, then defer to the triggerer, or end."""
        watches = [watch_of(ports, plan, gate, policy_of(ports, self.kind, request_in(context), plan))]
        status = check_for_a_while(context, ports, plan, [gate], watches)
        if status.state is WatchState.PASSED:
            return self._passed(status.message)
        if status.state is WatchState.FAILED:
            self._ask(context, ports, gate, status.message)

        self.defer(trigger=trigger_of(self.cluster, context, plan, [gate], watches), method_name="watched")

    def _ask(self, context: Context, ports: ClusterPorts, gate: Gate, message: str) -> None:
        can_roll_back = self.step.on_failure is Reaction.ASK_ROLL_BACK
        retries = (Decision.RETRY,) if self.can_start_node else ()
        options = (Decision.WAIT_ON, *retries, Decision.ROLL_BACK if can_roll_back else Decision.STOP_HERE)
        ask_how_to_continue(context, ports, what=gate_name(gate), why=message, options=options)

    def _passed(self, message: str) -> dict[str, str]:
        self.log.info("The gate passed: %s", message)
        return {"message": message}

    def _gate(self, plan: Plan, cluster: ClusterSpec) -> Gate:
        return Gate(kind=self.kind)


class OfflineGateSensor(GateSensor):
    """The gate after a node's start.

    `is_rollback`: after an undo. It offers no rollback, because a broker may have registered.
    """

    def __init__(self, *, kafka_node: int, is_rollback: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kafka_node = kafka_node
        self.is_rollback = is_rollback

    @property
    def can_start_node(self) -> bool:
        return not self.is_rollback

    def start_node_again(self, ports: ClusterPorts, plan: Plan, gate: Gate) -> None:
        """Start every node without a process, for example one with a new, formatted disk, or with its host back."""
        actions.start_again(ports, plan, ports.cluster.node(self.kafka_node))

    def _gate(self, plan: Plan, cluster: ClusterSpec) -> Gate:
        release_step = offline_release_step(plan)
        return Gate(
            kind=self.kind,
            release_step=release_step.reversed() if self.is_rollback else release_step,
            node=cluster.node(self.kafka_node),
        )


def trigger_of(
    cluster: str, context: Context, plan: Plan, gates: Sequence[Gate], watches: Sequence[GateWatch]
) -> GateTrigger:
    """Return the trigger that continues the watches in the triggerer."""
    first, *others = [
        {"gate": to_json(gate.ref), "watch": to_json(watch)} for gate, watch in zip(gates, watches, strict=True)
    ]
    return GateTrigger(cluster=cluster, run_id=str(context["run_id"]), plan_hash=plan.hash, **first, others=others)


def wait_in_gate(task: RolloutOperator, context: Context, ports: ClusterPorts, plan: Plan, gate: Gate) -> NoReturn:
    """Defer the task until the gate has passed or failed; it resumes at `watched`."""
    watch = watch_of(ports, plan, gate, policy_of(ports, gate.kind, request_in(context), plan))
    task.defer(trigger=trigger_of(task.cluster, context, plan, [gate], [watch]), method_name="watched")


def check_for_a_while(
    context: Context, ports: ClusterPorts, plan: Plan, gates: Sequence[Gate], watches: Sequence[GateWatch]
) -> WatchStatus:
    """Return the last status after at most PATIENCE_S; a long soak is not waited for."""
    give_up = ports.clock.monotonic() + PATIENCE_S
    while True:
        status = check_gates(ports, plan, gates, watches)
        name = gate_name(gates[0]) if len(gates) == 1 else f"gates {gates[0].kind.value}"
        show_waiting(context, f"{name}: {status.message}")
        waiting = [watch for watch in watches if not watch.is_done]
        soaks_long = all(watch.passed_since is not None and watch.policy.soak_s > PATIENCE_S for watch in waiting)
        is_held = any(watch.is_held for watch in waiting)
        if status.done or soaks_long or is_held or ports.clock.monotonic() >= give_up:
            return status
        ports.clock.sleep(waiting[0].policy.interval_s)


def gate_name(gate: Gate) -> str:
    """Return the name of a gate in requests, decisions and the log."""
    ref = gate.ref
    where = f" of node {ref.node_id} ({ref.release_step})" if ref.node_id is not None else ""
    return f"gate {ref.kind.value}{where}"
