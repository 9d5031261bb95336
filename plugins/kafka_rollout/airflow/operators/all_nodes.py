"""All nodes of a release step in one task, for clusters that are too large for a task group for each node.

The task takes the nodes in the plan's order. Which part of which node step is next is observed, so a task that was
killed, retried or cleared continues there. While a gate waits, the task is deferred. After a failure an approver
decides, as at the tasks of a node.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped

from kafka_rollout.airflow.approvals.asking import AsksPeople, is_answer, read_answer, show_waiting
from kafka_rollout.airflow.approvals.deciding import ask_how_to_continue, record_decision
from kafka_rollout.airflow.common.all_nodes import NodeStepsOfTask
from kafka_rollout.airflow.common.base import (
    RolloutOperator,
    cluster_ports,
    errors_for_airflow,
    frozen_plan,
    request_in,
)
from kafka_rollout.airflow.gates.sensor import check_for_a_while, trigger_of
from kafka_rollout.airflow.operators.nodes import (
    BeginRollBackOperator,
    refuse_wrong_order,
    require_canary_approval,
)
from kafka_rollout.airflow.operators.traffic import keep_traffic_running
from kafka_rollout.base.durations import duration
from kafka_rollout.base.errors import FatalError, RefusedError, TransientError
from kafka_rollout.base.json_forms import from_json
from kafka_rollout.gates.check import Gate, GateKind, GateRef, GateWatch, WatchState, WatchStatus
from kafka_rollout.model.plan import Plan, ReleaseStep
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.run.events import ApprovalOf, Decision, Event
from kafka_rollout.run.projections.gates import gate_is_passed
from kafka_rollout.run.projections.node_times import time_of_node_steps
from kafka_rollout.run.projections.nodes import has_acted_on_node, has_stopped_nodes
from kafka_rollout.steps.common.approval import renew_invalid_approvals, require_approval
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.node_steps import offline_release_step
from kafka_rollout.steps.gates.waiting import policy_of
from kafka_rollout.steps.offline import actions
from kafka_rollout.steps.progress import place
from kafka_rollout.steps.roll.next_part import Part, next_part
from kafka_rollout.steps.roll.node import replace_node, restart_node
from kafka_rollout.steps.step import Reaction, Step

# A task that has worked for this time checks no gate itself: it defers, and continues as a new process. So the time of
# one process has a limit, whatever the number of nodes.
WORKS_S = 120.0

NodeStep = tuple[ReleaseStep, NodeSpec]

_MEANINGS = {
    Decision.WAIT_ON: "Continue without another start: check the gate for another gate timeout, or repeat the step.",
    Decision.RETRY: (
        "Start the node again if this run stopped it; a process that hangs in its shutdown is killed. Otherwise begin "
        "its node step again. If the approval is invalid, this answer approves the plan again in your name."
    ),
}
_NOTE = "This task takes one node after the other, and asks after each failure. The failure above is the first one."


class EachNodeOperator(AsksPeople, RolloutOperator):
    """Take the nodes one after the other: wait for gates, act, and request a decision after a failure."""

    def __init__(self, *, step: Step, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step
        self.continues_at: GateRef | None = None  # the gate that has just passed in the triggerer
        self.began = 0.0  # when this process began to work (monotonic)
        self.starts_again = False  # the answer *Retry* is not carried out yet

    @abstractmethod
    def node_steps(self, ports: ClusterPorts, plan: Plan, after: GateRef | None) -> Iterable[NodeStep]:
        """Return the node steps of this task in their order, from the node of the gate `after`, if it is given."""

    @abstractmethod
    def next_part(self, ports: ClusterPorts, plan: Plan, node_step: NodeStep, events: Sequence[Event]) -> Part:
        """Observe what is left of a node step."""

    def require_approvals(self, context: Context, ports: ClusterPorts, plan: Plan, node_step: NodeStep) -> None:
        """Raise RefusedError unless the node can be stopped by the approvals, before a gate waits for it.

        Airflow's record of an answer is read here if needed, because a deferral for a gate would discard it.
        """

    @abstractmethod
    def replace(self, context: Context, ports: ClusterPorts, plan: Plan, node_step: NodeStep) -> None:
        """Stop, replace and start the node."""

    @abstractmethod
    def start_again(self, ports: ClusterPorts, plan: Plan, node_step: NodeStep) -> bool:
        """Carry out *Retry*; return False if the node step only begins again."""

    @property
    @abstractmethod
    def options(self) -> tuple[Decision, ...]:
        """The answers after a failure, always the same: Airflow keeps those of the first request."""

    @abstractmethod
    def asks_about(self, ports: ClusterPorts, error: FatalError | RefusedError | TransientError) -> bool:
        """Return whether an approver decides after this error; otherwise the task fails."""

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        plan = frozen_plan(ports, context)
        self.began, count = ports.clock.monotonic(), 0
        after, self.continues_at = self.continues_at, None
        events: Sequence[Event] | None = ports.run.events()  # until this process has acted
        for node_step in self.node_steps(ports, plan, after):
            if after is not None or events is None or self._is_left(ports, plan, node_step, events):
                self._finish(context, ports, plan, node_step, passed=after)
                after = events = None
            count += 1
        self.log.info("All node steps of this task are done (%s).", count)
        return {"node_steps": count}

    def watched(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue at the node of the trigger's gate, or with an answer to the request of an earlier attempt."""
        if is_answer(event):
            return self._decide(context, event, is_late=True)
        gate = from_json(GateRef, event["gate"])
        if event["state"] == WatchState.PASSED:
            self.log.info("The gate passed: %s", event["message"])
            self.continues_at = gate
            return self.attempt(context, "act")
        if event["state"] != WatchState.FAILED:
            raise AirflowFailException(event["message"])
        with errors_for_airflow(), cluster_ports(self.cluster, context) as ports:
            plan = frozen_plan(ports, context)
            subject = gate.resolve(plan, ports.cluster).subject
            self._ask(context, ports, plan, subject, event["message"])

    def decided(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue with the decision after a failure."""
        return self._decide(context, event, is_late=False)

    def _decide(self, context: Context, event: dict[str, Any], *, is_late: bool) -> Any:
        """Record the decision and continue. `is_late`: *Retry* must not stop the node that the task waits for now."""
        with errors_for_airflow(), cluster_ports(self.cluster, context) as ports:
            plan = frozen_plan(ports, context)
            what = self._what_failed(ports, plan)
            answer = read_answer(context, event, what)
            self.log.info("%s chose '%s': %s", answer.by, answer.decision, answer.reason)
            decision = record_decision(context, ports, what, answer)
            if answer.decision is Decision.RETRY:
                renew_invalid_approvals(ports, plan, decision)
        again = answer.decision is Decision.RETRY and not is_late
        return self.attempt(context, "act_again" if again else "act")

    def act_again(self, context: Context, ports: ClusterPorts) -> Any:
        """Carry out *Retry*, then continue."""
        self.starts_again = True
        return self.act(context, ports)

    def _finish(
        self,
        context: Context,
        ports: ClusterPorts,
        plan: Plan,
        node_step: NodeStep,
        *,
        passed: GateRef | None,
    ) -> None:
        """Carry out what is left of a node step. Transient errors are repeated as often as those of a node's task."""
        release_step, node = node_step
        where = place(plan, release_step.key, node.node_id)
        errors = 0
        while True:
            try:
                part = self.next_part(ports, plan, node_step, ports.run.events())
                if part is Part.NOTHING:
                    break
                if self.starts_again:
                    show_waiting(context, f"{where}: another start")
                    again = self.start_again(ports, plan, node_step)
                    self.starts_again = False
                    if again:
                        continue
                if part is Part.GATE_AFTER:
                    self._watch(context, ports, plan, node_step, GateKind.AFTER_START)
                    continue
                if part is Part.GATE_BEFORE and not (passed is not None and passed.kind is GateKind.BEFORE_STOP):
                    self.require_approvals(context, ports, plan, node_step)
                    self._watch(context, ports, plan, node_step, GateKind.BEFORE_STOP)
                passed = None
                show_waiting(context, f"{where}: the stop, replacement and start with {release_step.to_release}")
                self.replace(context, ports, plan, node_step)
            except TransientError as error:
                errors += 1
                if errors > (self.retries or 0):
                    self._ask_or_raise(context, ports, plan, node_step, error)
                self.log.warning("%s: %s", where, error)
                ports.clock.sleep(self.retry_delay.total_seconds())
            except (FatalError, RefusedError) as error:
                self._ask_or_raise(context, ports, plan, node_step, error)
        self.log.info("%s: done%s", where, self._times(ports, plan))

    def _is_left(self, ports: ClusterPorts, plan: Plan, node_step: NodeStep, events: Sequence[Event]) -> bool:
        """Return whether a part of the node step is left, or cannot be observed now."""
        try:
            return self.next_part(ports, plan, node_step, events) is not Part.NOTHING
        except (RefusedError, TransientError):
            return True

    def _watch(
        self,
        context: Context,
        ports: ClusterPorts,
        plan: Plan,
        node_step: NodeStep,
        kind: GateKind,
    ) -> None:
        """Return when the gate has passed; defer, or request a decision, if it has not passed soon."""
        release_step, node = node_step
        gate = Gate(kind=kind, release_step=release_step, node=node)
        watch = GateWatch(policy=policy_of(ports, kind, request_in(context), plan))
        status = WatchStatus(state=WatchState.WAITING, message="")
        if ports.clock.monotonic() - self.began < WORKS_S:
            status = check_for_a_while(context, ports, plan, gate, watch)
        if status.state is WatchState.PASSED:
            self.log.info("The gate passed: %s", status.message)
        elif status.state is WatchState.FAILED:
            self._ask(context, ports, plan, node_step, status.message)
        else:
            self.defer(trigger=trigger_of(self.cluster, context, plan, gate, watch), method_name="watched")

    def _ask_or_raise(
        self,
        context: Context,
        ports: ClusterPorts,
        plan: Plan,
        node_step: NodeStep,
        error: FatalError | RefusedError | TransientError,
    ) -> None:
        if not self.asks_about(ports, error):
            raise error
        self._ask(context, ports, plan, node_step, str(error))

    def _ask(self, context: Context, ports: ClusterPorts, plan: Plan, node_step: NodeStep, why: str) -> NoReturn:
        release_step, node = node_step
        ask_how_to_continue(
            context,
            ports,
            what=f"the node step of node {node.node_id} ({release_step.key})",
            why=f"{place(plan, release_step.key, node.node_id)}: {why}",
            options=self.options,
            meanings=_MEANINGS,
            subject="a node step",
            note=_NOTE,
        )

    def _what_failed(self, ports: ClusterPorts, plan: Plan) -> str:
        events = ports.run.events()
        for release_step, node in self.node_steps(ports, plan, None):
            if self._is_left(ports, plan, (release_step, node), events):
                return f"the node step of node {node.node_id} ({release_step.key})"
        return f"task {self.task_id}"

    def _times(self, ports: ClusterPorts, plan: Plan) -> str:
        found = time_of_node_steps(ports.run.events(), plan, ports.clock.now())
        if found is None:
            return ""
        text = f", {duration(found.elapsed_s)} elapsed"
        return text + (f", about {duration(found.remaining_s)} remaining" if found.remaining_s else "")


class RollNodesOperator(EachNodeOperator):
    """Replace the nodes of a release step, or roll back those that left their previous release."""

    def __init__(self, *, nodes: NodeStepsOfTask, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.nodes = nodes

    def node_steps(self, ports: ClusterPorts, plan: Plan, after: GateRef | None) -> Iterable[NodeStep]:
        """Refuse to begin before the first node is replaced: its task can be marked as successful by hand."""
        for at, node_step in enumerate(self.nodes.find(ports, plan, after)):
            if at == 0 and after is None and not self.nodes.is_rollback:
                refuse_wrong_order(ports, plan, *node_step)
            yield node_step

    def next_part(self, ports: ClusterPorts, plan: Plan, node_step: NodeStep, events: Sequence[Event]) -> Part:
        return next_part(ports, plan, *node_step, events)

    def require_approvals(self, context: Context, ports: ClusterPorts, plan: Plan, node_step: NodeStep) -> None:
        require_approval(ports, plan, ApprovalOf.ROLL_BACK if self.nodes.is_rollback else ApprovalOf.ROLL)
        if request_in(context).canary and not self.nodes.is_rollback:
            require_canary_approval(ports, plan, *node_step)

    def replace(self, context: Context, ports: ClusterPorts, plan: Plan, node_step: NodeStep) -> None:
        self.require_approvals(context, ports, plan, node_step)
        keep_traffic_running(context, ports)
        replace_node(ports, plan, *node_step)

    def start_again(self, ports: ClusterPorts, plan: Plan, node_step: NodeStep) -> bool:
        release_step, node = node_step
        if not has_acted_on_node(ports.run.events(), release_step.key, node.node_id):
            return False
        restart_node(ports, plan, release_step, node)
        return True

    @property
    def options(self) -> tuple[Decision, ...]:
        last = Decision.ROLL_BACK if self.step.on_failure is Reaction.ASK_ROLL_BACK else Decision.STOP_HERE
        return (Decision.WAIT_ON, Decision.RETRY, last)

    def asks_about(self, ports: ClusterPorts, error: FatalError | RefusedError | TransientError) -> bool:
        if isinstance(error, FatalError):
            return True
        return not self.nodes.is_rollback and has_stopped_nodes(ports.run.events())


class OfflineGatesOperator(EachNodeOperator):
    """The gates after the start of all nodes, controllers first. `is_rollback`: after an undo."""

    def __init__(self, *, is_rollback: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.is_rollback = is_rollback

    def node_steps(self, ports: ClusterPorts, plan: Plan, after: GateRef | None) -> Iterable[NodeStep]:
        planned = offline_release_step(plan)
        release_step = planned.reversed() if self.is_rollback else planned
        return [(release_step, node) for node in ports.cluster.controllers_first]

    def next_part(self, ports: ClusterPorts, plan: Plan, node_step: NodeStep, events: Sequence[Event]) -> Part:
        release_step, node = node_step
        ref = Gate(kind=GateKind.AFTER_START, release_step=release_step, node=node).ref
        return Part.NOTHING if gate_is_passed(events, ref) else Part.GATE_AFTER

    def replace(self, context: Context, ports: ClusterPorts, plan: Plan, node_step: NodeStep) -> None:
        raise NotImplementedError

    def start_again(self, ports: ClusterPorts, plan: Plan, node_step: NodeStep) -> bool:
        """Start every node without a process, for example one with a new, formatted disk, or with its host back."""
        actions.start_again(ports, plan, node_step[1])
        return True

    @property
    def options(self) -> tuple[Decision, ...]:
        """After an undo there is no *Retry*: a broker may have registered."""
        return (Decision.WAIT_ON, *(() if self.is_rollback else (Decision.RETRY,)), Decision.STOP_HERE)

    def asks_about(self, ports: ClusterPorts, error: FatalError | RefusedError | TransientError) -> bool:
        return False  # only a failed gate asks, as at the gates of single nodes


class BeginAllNodesOperator(RolloutOperator):
    """Skip the tasks of a release step that the plan does not have, and the approval of a canary without one.

    `tasks`: all tasks of the release step. `canary_task`: the approval after the first node.
    """

    def __init__(self, *, nodes: NodeStepsOfTask, tasks: Sequence[str], canary_task: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.nodes = nodes
        self.tasks = list(tasks)
        self.canary_task = canary_task

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        plan = frozen_plan(ports, context)
        release_step = self.nodes.release_step(plan)
        if release_step is None:
            self.log.info("The plan has no release step at this position.")
            raise DownstreamTasksSkipped(tasks=self.tasks)
        self.log.info("%s → %s: %s", release_step.from_release, release_step.to_release, release_step.reason)
        if not (request_in(context).canary and release_step == plan.release_steps[0]):
            raise DownstreamTasksSkipped(tasks=[self.canary_task])


class BeginRollBackOfAllOperator(BeginRollBackOperator):
    """Begin the rollback in one task. `tasks`: skipped if no approver decided to roll back."""

    def __init__(self, *, tasks: Sequence[str], **kwargs: Any) -> None:
        super().__init__(node_groups=(), **kwargs)
        self.tasks = list(tasks)

    def skip_all(self) -> NoReturn:
        raise DownstreamTasksSkipped(tasks=self.tasks)
