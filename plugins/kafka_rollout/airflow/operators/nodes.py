"""The node task groups of a release step or rollback: which of them run, and the replacement of a node's binary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NoReturn

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped

from kafka_rollout.airflow.approvals.asking import AsksPeople, is_answer, read_answer, show_waiting
from kafka_rollout.airflow.approvals.deciding import (
    ROLL_BACK_DECISION,
    ask_how_to_continue,
    record_decision,
)
from kafka_rollout.airflow.common.all_nodes import APPROVE_FIRST_BATCH, FIRST_BATCH, NodeStepsOfTask
from kafka_rollout.airflow.common.base import (
    RolloutOperator,
    cluster_ports,
    errors_for_airflow,
    frozen_plan,
    request_in,
)
from kafka_rollout.airflow.common.node_task_groups import APPROVE_CANARY, NodeTaskGroup
from kafka_rollout.airflow.gates.sensor import wait_in_gate
from kafka_rollout.airflow.operators.traffic import keep_traffic_running
from kafka_rollout.base.errors import FatalError, RefusedError, TransientError
from kafka_rollout.gates.check import WatchState
from kafka_rollout.model.plan import Plan, ReleaseStep
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.planning.request import Request
from kafka_rollout.run.events import ApprovalOf, Decision
from kafka_rollout.run.projections.nodes import has_stopped_nodes
from kafka_rollout.steps.common.approval import renew_invalid_approvals, require_approval
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.control import HeldError, due_pause
from kafka_rollout.steps.common.node_steps import NodeStepState, node_step_state
from kafka_rollout.steps.roll.node import NodeReplaced, needs_replacement, plan_rollback, replace_node, retry_node
from kafka_rollout.steps.step import Reaction, Step

_START_AGAIN = "Start the node again. A process that hangs in its shutdown is killed."
_CHECK_AGAIN = (
    "Check again, and continue with this node if no blocker is left. If the approval is invalid, this answer "
    "approves the plan again in your name."
)


def refuse_wrong_order(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, node: NodeSpec) -> None:
    """Check the node order again, in case the DAG was changed or cleared in parts."""
    for earlier in release_step.order:
        if earlier.node_id == node.node_id:
            return
        if needs_replacement(ports, plan, release_step, ports.cluster.node(earlier.node_id)):
            raise RefusedError(
                f"Node {node.node_id} cannot be replaced yet: node {earlier.node_id} comes first in release step "
                f"{release_step.from_release} → {release_step.to_release} and does not run "
                f"{release_step.to_release}.",
                remedy=f"Clear the tasks of node {earlier.node_id} and all downstream tasks.",
            )


def require_canary_approvals(
    ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, node: NodeSpec, request: Request
) -> None:
    """Check the approvals that the run requests before this node: their tasks can be marked as successful by hand."""
    first = plan.release_steps[0]
    if release_step == first:
        at = next(at for at, ids in enumerate(first.node_ids_together) if node.node_id in ids)
    else:
        at = len(first.order)
    needed = [ApprovalOf.CANARY] if request.canary and at > 0 else []
    if request.first_batch and first.first_batch is not None and at > first.first_batch:
        needed.append(ApprovalOf.FIRST_BATCH)
    if needed and needs_replacement(ports, plan, release_step, node):
        for what in needed:
            require_approval(ports, plan, what)


class ReplaceNodeOperator(AsksPeople, RolloutOperator):
    """Stop, replace and start the node of this task group.

    It requests a decision if the process is gone after the start, or if the node cannot be stopped during the run. So a
    partly upgraded cluster never continues without a decision.
    """

    def __init__(self, *, step: Step, node_group: NodeTaskGroup, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step
        self.node_group = node_group

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        plan = frozen_plan(ports, context)
        release_step, node = self.node_group.resolve(plan, ports.cluster)
        if node_step_state(ports, plan, release_step, node) is NodeStepState.PAST:
            raise AirflowSkipException(f"Node {node.node_id} already runs a release after {release_step.to_release}.")
        refuse_wrong_order(ports, plan, release_step, node)
        if not self.node_group.is_rollback:
            require_canary_approvals(ports, plan, release_step, node, request_in(context))
        keep_traffic_running(context, ports)
        show_waiting(context, f"the stop, replacement and start of node {node.node_id} with {release_step.to_release}")
        return self._replaced(context, ports, plan, replace_node)

    def decided(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue with the decision after the node failed to start, or could not be stopped."""
        with errors_for_airflow(), cluster_ports(self.cluster, context) as ports:
            plan = frozen_plan(ports, context)
            what = self._what(plan, ports)
            decision = record_decision(context, ports, what, read_answer(context, event, what))
            renew_invalid_approvals(ports, plan, decision)
        return self.attempt(context, "act_again")

    def watched(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue after the gate before the stop, which waited again."""
        if is_answer(event):  # to the request of an earlier attempt
            return self.decided(context, event)
        if event["state"] == WatchState.PASSED:
            return self.attempt(context, "act")
        if event["state"] != WatchState.FAILED:
            raise AirflowFailException(event["message"])
        with errors_for_airflow(), cluster_ports(self.cluster, context) as ports:
            self._ask(context, ports, frozen_plan(ports, context), event["message"], _CHECK_AGAIN)

    def act_again(self, context: Context, ports: ClusterPorts) -> Any:
        """Carry out *Retry*."""
        return self._replaced(context, ports, frozen_plan(ports, context), retry_node)

    def _replaced(
        self,
        context: Context,
        ports: ClusterPorts,
        plan: Plan,
        act: Callable[[ClusterPorts, Plan, ReleaseStep, NodeSpec], NodeReplaced],
    ) -> Any:
        release_step, node = self.node_group.resolve(plan, ports.cluster)
        try:
            replaced = act(ports, plan, release_step, node)
        except HeldError as error:
            self.log.info("%s", error)
            if due_pause(ports, plan, release_step, node, ports.run.events()):
                raise RefusedError(
                    error.sentence, remedy="Clear the gate before the stop: it asks an approver."
                ) from None
            wait_in_gate(self, context, ports, plan, error.gate)
        except FatalError as error:
            self._ask(context, ports, plan, str(error), _START_AGAIN)
        except (RefusedError, TransientError) as error:
            again = isinstance(error, TransientError) and context["ti"].try_number <= context["ti"].max_tries
            if again or self.node_group.is_rollback or not has_stopped_nodes(ports.run.events()):
                raise
            self._ask(context, ports, plan, str(error), _CHECK_AGAIN)
        show_waiting(context, f"nothing: node {node.node_id} runs {replaced.release}")
        return asdict(replaced)

    def _ask(self, context: Context, ports: ClusterPorts, plan: Plan, why: str, retry: str) -> NoReturn:
        roll_back = (Decision.ROLL_BACK,) if self.step.on_failure is Reaction.ASK_ROLL_BACK else ()
        options = (Decision.RETRY, *roll_back)
        ask_how_to_continue(
            context, ports, what=self._what(plan, ports), why=why, options=options, meanings={Decision.RETRY: retry}
        )

    def _what(self, plan: Plan, ports: ClusterPorts) -> str:
        _, node = self.node_group.resolve(plan, ports.cluster)
        return f"replacing node {node.node_id}"


class BeginReleaseStepOperator(RolloutOperator):
    """Skip the tasks that the plan does not use here, so that no task starts only to be skipped.

    A large cluster has no `node_groups`: `tasks_together` take all nodes. A smaller cluster has both: its groups take
    one node at a time, and `tasks_together` take the batches of a plan that has some. `nodes_together`: their nodes.
    """

    def __init__(
        self,
        *,
        node_groups: Sequence[NodeTaskGroup],
        tasks_together: Sequence[str] = (),
        nodes_together: NodeStepsOfTask | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.node_groups = list(node_groups)
        self.tasks_together = list(tasks_together)
        self.nodes_together = nodes_together

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        plan = frozen_plan(ports, context)
        release_step = None if self.nodes_together is None else self.nodes_together.release_step(plan)
        if release_step is None:
            self.log.info("The plan has no release step at this position.")
            self.skip_all()
        self.log.info("%s → %s: %s", release_step.from_release, release_step.to_release, release_step.reason)
        if self.is_together(plan):
            unused = [*self.tasks_of_groups, *self._unused_together(plan, release_step, request_in(context))]
        else:
            canary = request_in(context).canary
            of_groups = (self._unused(plan, release_step, group, canary) for group in self.node_groups)
            unused = [*self.tasks_together, *(task_id for found in of_groups for task_id in found)]
        if unused:
            raise DownstreamTasksSkipped(tasks=unused)

    def _unused_together(self, plan: Plan, release_step: ReleaseStep, request: Request) -> Sequence[str]:
        is_first = release_step == plan.release_steps[0]
        has_batch = release_step.first_batch is not None
        used = {
            APPROVE_CANARY: is_first and request.canary,
            FIRST_BATCH: has_batch,
            APPROVE_FIRST_BATCH: is_first and has_batch and request.first_batch,
        }
        return [task_id for task_id in self.tasks_together if not used.get(task_id.rsplit(".", 1)[-1], True)]

    def is_together(self, plan: Plan) -> bool:
        """Return whether the tasks of several nodes take the nodes, and not the groups."""
        return not self.node_groups or (plan.has_batches and bool(self.tasks_together))

    @property
    def tasks_of_groups(self) -> list[str]:
        return [task_id for group in self.node_groups for task_id in (*group.task_ids, group.passed_id)]

    def skip_all(self) -> NoReturn:
        raise DownstreamTasksSkipped(tasks=[*self.tasks_of_groups, *self.tasks_together])

    def _unused(self, plan: Plan, release_step: ReleaseStep, group: NodeTaskGroup, canary: bool) -> Sequence[str]:
        if group.node_step(plan) is None:
            if group.node_id is not None and release_step.node_step(group.node_id):
                self.log.info("Node %s is the active controller: it is replaced as the last controller.", group.node_id)
            return group.task_ids
        has_unused_canary = group.has_canary and not (group.is_canary(plan) and canary)
        return (f"{group.group_id}.{APPROVE_CANARY}",) if has_unused_canary else ()


class BeginRollBackOperator(BeginReleaseStepOperator):
    """Begin the rollback of the nodes that left their previous release.

    `deciders`: the tasks at which an approver can decide to roll back. Clearing a task removes its decision. So a run
    that was cleared and then succeeds does not roll back because of an earlier decision.
    """

    def __init__(self, *, deciders: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deciders = list(deciders)

    def execute(self, context: Context) -> Any:
        if self._decision(context) is None:
            self.log.info("No approver decided to roll back.")
            self.skip_all()
        return super().execute(context)

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        plan = frozen_plan(ports, context)
        require_approval(ports, plan, ApprovalOf.ROLL_BACK)  # the decision is an XCom, which is not a proof
        node_steps = {(release_step.key, node_step.node_id) for release_step, node_step in plan_rollback(ports, plan)}
        for release_step_key, node_id in sorted(node_steps):
            self.log.info("Node %s is rolled back (%s).", node_id, release_step_key)
        unused = self.tasks_of_groups if self.is_together(plan) else list(self.tasks_together)
        for group in () if self.is_together(plan) else self.node_groups:
            release_step, node_step = group.release_step(plan), group.node_step(plan)
            if release_step is None or node_step is None or (release_step.key, node_step.node_id) not in node_steps:
                unused += group.task_ids
        found = {"decision": self._decision(context), "node_steps": len(node_steps)}
        context["ti"].xcom_push(key="return_value", value=found)
        if unused:
            raise DownstreamTasksSkipped(tasks=unused)

    def _decision(self, context: Context) -> Any:
        found = context["ti"].xcom_pull(task_ids=self.deciders, key=ROLL_BACK_DECISION)
        return next((decision for decision in found or () if decision), None)
