"""The steps of one node in one task, or of all nodes of a release step: for batches, and for large clusters.

The task takes the batches in the plan's order; without batches, each node is one. Which part of which node step is
next is observed, so a task that was killed, retried or cleared continues there. While gates wait, the task is deferred.
After a failure an approver decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NoReturn, cast

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from kafka_rollout.airflow.approvals.asking import (
    ask_how_to_continue,
    is_answer,
    read_answer,
    record_decision,
    show_waiting,
)
from kafka_rollout.airflow.common.base import (
    RolloutOperator,
    cluster_ports,
    errors_for_airflow,
    frozen_plan,
    request_in,
)
from kafka_rollout.airflow.common.node_task_groups import NodeStepsOfTask, NodeTaskGroup, StartedNodes
from kafka_rollout.airflow.gates.sensor import watch_gates
from kafka_rollout.airflow.operators.begin import refuse_wrong_order, require_canary_approvals
from kafka_rollout.airflow.operators.services import keep_traffic_running
from kafka_rollout.base import wording as words
from kafka_rollout.base.durations import duration
from kafka_rollout.base.errors import FatalError, RefusedError, RolloutError, TransientError
from kafka_rollout.base.json_forms import from_json
from kafka_rollout.base.time_limits import SAFE_AGAIN_WITHIN_S
from kafka_rollout.gates.gate import Gate, GateKind, GateRef, WatchState, gates_of_nodes
from kafka_rollout.model.plan import Plan, ReleaseStep
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.run.estimates import estimate_of
from kafka_rollout.run.events import ApprovalOf, Asked, Decision, Event, events_of, newest
from kafka_rollout.run.projections.nodes import gate_is_passed, has_acted_on_node, has_stopped_nodes
from kafka_rollout.run.step_events import BatchSplit
from kafka_rollout.run.view import RunView
from kafka_rollout.steps.common.approval import refuse_unproved_acceptances, renew_invalid_approvals, require_approval
from kafka_rollout.steps.common.cluster_ports import ClusterPorts, until
from kafka_rollout.steps.common.control import HeldError, ask_at_pause, refuse_unproved_pause
from kafka_rollout.steps.offline import actions
from kafka_rollout.steps.progress import place
from kafka_rollout.steps.roll.loop import Part, has_failed, next_part_of_batch
from kafka_rollout.steps.roll.node import replace_nodes, restart_node
from kafka_rollout.steps.roll.stop import find_parts
from kafka_rollout.steps.step import Reaction, Step

# A task that has worked for this time checks no gate itself: it defers, and continues as a new process. So the time of
# one process has a limit, whatever the number of nodes.
WORKS_S = 120.0
_REFUSED_TOGETHER = 2

Batch = tuple[ReleaseStep, tuple[NodeSpec, ...]]  # nodes that restart together; one without batches

_MEANINGS = {
    Decision.WAIT_ON: (
        "Continue without another start: after a pause with the gate of the next node, after a failure with the gate, "
        "for another gate timeout, or with the same step."
    ),
    Decision.RETRY: (
        "Start the node again if this run stopped it; a process that hangs in its shutdown is killed. Otherwise begin "
        "its node step again. If the approval is invalid, this answer approves the plan again in your name."
    ),
}
_SUBJECT = "a node step"  # of requests of a task with several nodes: Airflow shows the first one
_NOTE = "This task can ask several times. The reason above is that of its first request."


class RollNodesOperator(RolloutOperator):
    """Replace the nodes of a release step, or one of them, or roll back those that left their previous release.

    Takes the batches one after the other: waits for gates, acts, and requests a decision after a failure.
    """

    def __init__(self, *, step: Step, nodes: NodeStepsOfTask | NodeTaskGroup | StartedNodes, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step
        self.nodes = nodes
        self.order_is_checked = False
        self.continues_at: GateRef | None = None  # the gate that has just passed in the triggerer
        self.began = 0.0  # when this process began to work (monotonic)
        self.starts_again = False  # the answer *Retry* is not carried out yet

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        """Carry out what is left of the node steps, batch by batch."""
        plan = frozen_plan(ports, context)
        refuse_unproved_acceptances(ports, plan)
        self.began, count = ports.clock.monotonic(), 0
        after, self.continues_at = self.continues_at, None
        events: Sequence[Event] | None = ports.run.events()  # until this process has acted
        for batch in self.batches(ports, plan, after):
            if after is not None or events is None or self._is_left(ports, plan, batch, events):
                self._finish(context, ports, plan, batch, passed=after)
                after = events = None
            count += len(batch[1])
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
            batch = next(iter(self.batches(ports, plan, gate)))
            self._ask(context, ports, plan, batch, event["message"])

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

    def next_part(
        self, ports: ClusterPorts, plan: Plan, batch: Batch, events: Sequence[Event]
    ) -> tuple[Part, tuple[NodeSpec, ...]]:
        """Observe what is left of the node steps of a batch: the next part, and its nodes."""
        return next_part_of_batch(ports, plan, *batch, events)

    def _finish(
        self,
        context: Context,
        ports: ClusterPorts,
        plan: Plan,
        batch: Batch,
        *,
        passed: GateRef | None,
    ) -> None:
        """Carry out what is left of a batch. After as many transient errors as the task has retries, it asks."""
        release_step, _ = batch
        where = places(plan, batch)
        store, key = context["task_state_store"], self._errors_key(context, ports, batch)
        errors = cast(int, store.get(key, 0))
        while True:
            try:
                part, nodes = self.next_part(ports, plan, batch, ports.run.events())
                if part is Part.NOTHING:
                    break
                if self.starts_again:
                    show_waiting(context, f"{where}: another start")
                    again = self.start_again(ports, plan, batch)
                    self.starts_again = False
                    if again:
                        continue
                if part is Part.GATE_AFTER:
                    gates = gates_of_nodes(GateKind.AFTER_START, release_step, nodes)
                    self._watch(context, ports, plan, batch, gates)
                    continue
                self.check_order(ports, plan, (release_step, nodes))
                if part is Part.GATE_BEFORE:
                    self.require_approvals(context, ports, plan, (release_step, nodes))
                    if why := ask_at_pause(ports, plan, release_step, nodes[0], ports.run.events()):
                        self._ask(context, ports, plan, (release_step, nodes), why, is_pause=True)
                    nodes = self.choose(context, ports, plan, (release_step, nodes), errors)
                    if passed is None or passed.kind is not GateKind.BEFORE_STOP:
                        gates = gates_of_nodes(GateKind.BEFORE_STOP, release_step, nodes)
                        self._watch(context, ports, plan, batch, gates)
                passed = None
                show_waiting(
                    context,
                    f"{places(plan, (release_step, nodes))}: the stop, replacement and start with "
                    f"{release_step.to_release}",
                )
                self.replace(context, ports, plan, (release_step, nodes))
                if errors:
                    errors = 0
                    store.set(key, errors)
            except HeldError:  # a pause began, or a condition from outside failed, between the gate and the stop
                self._watch(context, ports, plan, batch, gates_of_nodes(GateKind.BEFORE_STOP, release_step, nodes))
            except TransientError as error:
                errors += 1
                store.set(key, errors)
                self._repeat_or_ask(context, ports, plan, batch, error=error, errors=errors)
            except (FatalError, RefusedError) as error:
                self._ask_or_raise(context, ports, plan, batch, error)
        self.log.info("%s: done%s", where, self._times(ports, plan))

    def _repeat_or_ask(
        self, context: Context, ports: ClusterPorts, plan: Plan, batch: Batch, *, error: TransientError, errors: int
    ) -> None:
        """Return if this process repeats what is left; after WORKS_S, Airflow does, with another time limit."""
        worked_long = ports.clock.monotonic() - self.began >= WORKS_S
        is_last_try = context["ti"].try_number > context["ti"].max_tries
        if errors > (self.retries or 0) or (worked_long and is_last_try):
            self._ask_or_raise(context, ports, plan, batch, error)
        if worked_long:
            raise error
        self.log.warning("%s: %s", places(plan, batch), error)
        ports.clock.sleep(self.retry_delay.total_seconds())

    def _errors_key(self, context: Context, ports: ClusterPorts, batch: Batch) -> str:
        """Return where the transient errors of a batch are counted: over deferrals and retries, until the task asks."""
        asked = sum(event.task_id == self.task_id for event in events_of(ports.run.events(), Asked))
        _, (first, *_others) = batch
        return f"transient_errors_{context['ti'].max_tries}_{asked}_{first.node_id}"  # clearing a task raises max_tries

    def _is_left(self, ports: ClusterPorts, plan: Plan, batch: Batch, events: Sequence[Event]) -> bool:
        """Return whether a part of the batch is left, or cannot be observed now."""
        try:
            return self.next_part(ports, plan, batch, events)[0] is not Part.NOTHING
        except (RefusedError, TransientError):
            return True

    def _watch(
        self,
        context: Context,
        ports: ClusterPorts,
        plan: Plan,
        batch: Batch,
        gates: tuple[Gate, ...],
    ) -> None:
        """Return when the gates have passed; defer, or request a decision, if they have not passed soon."""
        is_patient = ports.clock.monotonic() - self.began < WORKS_S
        status = watch_gates(self, context, ports, plan, gates, is_patient=is_patient)
        if status.state is WatchState.FAILED:
            self._ask(context, ports, plan, batch, status.message)
        self.log.info("The gate passed: %s", status.message)

    def _ask_or_raise(
        self,
        context: Context,
        ports: ClusterPorts,
        plan: Plan,
        batch: Batch,
        error: FatalError | RefusedError | TransientError,
    ) -> None:
        if not self.asks_about(ports, error):
            raise error
        self._ask(context, ports, plan, batch, str(error))

    def _ask(
        self, context: Context, ports: ClusterPorts, plan: Plan, batch: Batch, why: str, *, is_pause: bool = False
    ) -> NoReturn:
        has_one_node = isinstance(self.nodes, NodeTaskGroup) and self.nodes.node_id is not None
        subject = name_of(batch) if has_one_node else _SUBJECT
        ask_how_to_continue(
            context,
            ports,
            what=name_of(batch),
            why=f"{places(plan, batch)}: {why}",
            options=self.options,
            meanings=_MEANINGS,
            subject=f"{subject} waits for a decision",
            note=_NOTE,
            is_pause=is_pause,
        )

    def _what_failed(self, ports: ClusterPorts, plan: Plan) -> str:
        """Return what the newest request is about, without a refusal: an answer must never be lost."""
        events = ports.run.events()
        try:
            every = self.batches(ports, plan, None)
            left = next((one for one in every if self._is_left(ports, plan, one, events)), None)
        except RolloutError:
            left = None
        return f"task {self.task_id}" if left is None else name_of(left)

    def _times(self, ports: ClusterPorts, plan: Plan) -> str:
        found = estimate_of(RunView.of(ports.run.events()), plan)
        return f", about {duration(found.remaining_s)} remaining" if found is not None and found.left else ""

    def batches(self, ports: ClusterPorts, plan: Plan, after: GateRef | None) -> Iterable[Batch]:
        """Return the batches of this task in their order, from the batch of the gate `after`, if it is given."""
        self.order_is_checked = after is not None  # a task of many nodes checks it once in each attempt
        return self.nodes.find(ports, plan, after)

    def check_order(self, ports: ClusterPorts, plan: Plan, batch: Batch) -> None:
        """Refuse to replace the nodes before those that come first: a task can be marked as successful by hand."""
        is_one = isinstance(self.nodes, NodeTaskGroup)
        if is_one or not (self.order_is_checked or self.nodes.is_rollback):
            refuse_wrong_order(ports, plan, batch[0], batch[1][0])
            self.order_is_checked = True

    def choose(
        self, context: Context, ports: ClusterPorts, plan: Plan, batch: Batch, refused: int
    ) -> tuple[NodeSpec, ...]:
        """Return those of the nodes that can be stopped together now. `refused`: how often a stop was refused."""
        release_step, nodes = batch
        if len(nodes) == 1 or refused >= _REFUSED_TOGETHER:
            return nodes[:1]
        parts, why = until(
            ports.clock,
            lambda: find_parts(ports, plan, nodes),
            lambda found: len(found[0]) == 1,
            for_s=SAFE_AGAIN_WITHIN_S,
            every_s=max(request_in(context).interval_s, 0.5),
        )
        if len(parts) == 1:
            return nodes
        known = newest(ports.run.events(), BatchSplit)
        if known is None or known.parts != parts:
            ports.run.record(BatchSplit(parts=parts, sentence=why, release_step=release_step.key))
        self.log.warning("The batch of %s is split: %s", words.nodes(node.node_id for node in nodes), why)
        return tuple(node for node in nodes if node.node_id in parts[0])

    def require_approvals(self, context: Context, ports: ClusterPorts, plan: Plan, batch: Batch) -> None:
        """Raise RefusedError unless the nodes can be stopped by the approvals, before a gate waits for them.

        Airflow's record of an answer is read here, so that no deferral parts the gate and the stop.
        """
        release_step, nodes = batch
        require_approval(ports, plan, ApprovalOf.ROLL_BACK if self.nodes.is_rollback else ApprovalOf.ROLL)
        if not self.nodes.is_rollback:
            with suppress(RefusedError):  # the pause is due again
                refuse_unproved_pause(ports, plan)
            for node in nodes:
                require_canary_approvals(ports, plan, release_step, node, request_in(context))

    def replace(self, context: Context, ports: ClusterPorts, plan: Plan, batch: Batch) -> None:
        """Stop, replace and start the nodes."""
        self.require_approvals(context, ports, plan, batch)
        keep_traffic_running(context, ports)
        replace_nodes(ports, plan, *batch)

    def start_again(self, ports: ClusterPorts, plan: Plan, batch: Batch) -> bool:
        """Carry out *Retry*; return False if the node steps only begin again.

        Start the nodes again that have failed; in a batch of one node also a node that only waits.
        """
        release_step, nodes = batch
        events = ports.run.events()
        acted = [node for node in nodes if has_acted_on_node(events, release_step.key, node.node_id)]
        if len(nodes) > 1:
            acted = [node for node in acted if has_failed(ports, release_step, node, events)]
        for node in acted:
            restart_node(ports, plan, release_step, node, [one for one in acted if one != node])
        return bool(acted)

    @property
    def options(self) -> tuple[Decision, ...]:
        """The answers after a failure, always the same: Airflow keeps those of the first request."""
        last = Decision.ROLL_BACK if self.step.on_failure is Reaction.ASK_ROLL_BACK else Decision.STOP_HERE
        return (Decision.WAIT_ON, Decision.ACCEPT, Decision.RETRY, last)

    def asks_about(self, ports: ClusterPorts, error: FatalError | RefusedError | TransientError) -> bool:
        """Return whether an approver decides after this error; otherwise the task fails."""
        if isinstance(error, FatalError):
            return True
        return not self.nodes.is_rollback and has_stopped_nodes(ports.run.events())


def name_of(batch: Batch) -> str:
    """Return the name of the node steps of a batch in requests and decisions."""
    release_step, nodes = batch
    return f"the node step of {words.nodes(node.node_id for node in nodes)} ({release_step.key})"


def places(plan: Plan, batch: Batch) -> str:
    """Return the position of the first node of a batch in the plan, and the other nodes."""
    release_step, (first, *others) = batch
    more = f" with {words.nodes(node.node_id for node in others)}" if others else ""
    return f"{place(plan, release_step.key, first.node_id)}{more}"


class OfflineGatesOperator(RollNodesOperator):
    """The gates after the start of all nodes, controllers first. `is_rollback`: after an undo."""

    def __init__(self, *, is_rollback: bool = False, **kwargs: Any) -> None:
        super().__init__(nodes=StartedNodes(is_rollback=is_rollback), **kwargs)

    def next_part(
        self, ports: ClusterPorts, plan: Plan, batch: Batch, events: Sequence[Event]
    ) -> tuple[Part, tuple[NodeSpec, ...]]:
        release_step, nodes = batch
        ref = Gate(kind=GateKind.AFTER_START, release_step=release_step, node=nodes[0]).ref
        return (Part.NOTHING, ()) if gate_is_passed(events, ref) else (Part.GATE_AFTER, nodes)

    def start_again(self, ports: ClusterPorts, plan: Plan, batch: Batch) -> bool:
        """Start every node without a process, for example one with a new, formatted disk, or with its host back."""
        actions.start_again(ports, plan, batch[1][0])
        return True

    @property
    def options(self) -> tuple[Decision, ...]:
        """After an undo there is no *Retry*: a broker may have registered."""
        again = () if self.nodes.is_rollback else (Decision.RETRY,)
        return (Decision.WAIT_ON, Decision.ACCEPT, *again, Decision.STOP_HERE)

    def asks_about(self, ports: ClusterPorts, error: FatalError | RefusedError | TransientError) -> bool:
        return False  # only a failed gate asks, as at the gates of single nodes
