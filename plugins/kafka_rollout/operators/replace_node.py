"""Replacing one node's binary, in its place of the graph."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from kafka_rollout.domain.errors import FatalError, RefusedError
from kafka_rollout.operators.asking import read_answer, tell
from kafka_rollout.operators.deciding import RETRY, ROLL_BACK, ask_what_now, record_decision
from kafka_rollout.operators.ledger import keep_ledger_running
from kafka_rollout.operators.rollout import RolloutOperator, errors_for_airflow, frozen_plan, workbench
from kafka_rollout.operators.slots import NodeSlot

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_rollout.domain.plan import Hop, Plan
    from kafka_rollout.steps.workbench import Workbench


def refuse_out_of_turn(bench: Workbench, plan: Plan, hop: Hop, node_id: int) -> None:
    """The graph keeps the order; this keeps it also against a graph that was drawn wrongly, or cleared in parts."""
    from kafka_rollout.steps.roll import needs_turn

    for earlier in hop.order:
        if earlier.node_id == node_id:
            return
        if needs_turn(bench, plan, hop.key, earlier.node_id):
            raise RefusedError(
                f"It is not node {node_id}'s turn: node {earlier.node_id} comes before it in {hop.key} and does not "
                f"run {hop.to_release}.",
                remedy=f"Clear the tasks of node {earlier.node_id} with everything downstream.",
            )


def refuse_without_canary(bench: Workbench, plan: Plan, hop: Hop, node_id: int) -> None:
    """Nodes after the first one need the canary's approval on record: its task can be marked as done by hand."""
    from kafka_rollout.steps.approval import ApprovalOf, require_approval
    from kafka_rollout.steps.roll import needs_turn

    is_canary = hop == plan.hops[0] and node_id == hop.order[0].node_id
    if not is_canary and needs_turn(bench, plan, hop.key, node_id):
        require_approval(bench, plan, ApprovalOf.CANARY)


class ReplaceNodeOperator(RolloutOperator):
    """Stop, replace, start the slot's node. When it was started and its process is gone, a person is asked."""

    def __init__(self, *, slot: NodeSlot, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.slot = slot

    def act(self, context: Context, bench: Workbench) -> Any:
        from kafka_rollout.steps.roll import TurnState, replace_node, turn_state

        plan = frozen_plan(bench, context)
        hop, turn = self.slot.resolve(plan)
        if turn_state(bench, plan, hop.key, turn.node_id) is TurnState.PAST:
            raise AirflowSkipException(f"Node {turn.node_id} is past {hop.to_release} already.")
        refuse_out_of_turn(bench, plan, hop, turn.node_id)
        if context["params"]["canary_approval"] and not self.slot.way_back:
            refuse_without_canary(bench, plan, hop, turn.node_id)
        keep_ledger_running(context, bench)
        tell(context, f"node {turn.node_id} to stop, be replaced by {hop.to_release} and start")
        try:
            replaced = replace_node(bench, plan, hop.key, turn.node_id)
        except FatalError as error:
            options = (RETRY,) if self.slot.way_back else (RETRY, ROLL_BACK)
            ask_what_now(context, bench, what=f"replacing node {turn.node_id}", why=str(error), options=options)
        tell(context, f"nothing: node {turn.node_id} runs {replaced.release}")
        return asdict(replaced)

    def decided(self, context: Context, event: dict[str, Any]) -> Any:
        """A person answered after the node had not stayed up."""
        from kafka_rollout.steps.roll import restart_node

        with errors_for_airflow(), workbench(self.cluster, context) as bench:
            plan = frozen_plan(bench, context)
            hop, turn = self.slot.resolve(plan)
            what = f"replacing node {turn.node_id}"
            record_decision(context, bench, what, read_answer(event, what))
            try:
                return asdict(restart_node(bench, plan, hop.key, turn.node_id))
            except FatalError as error:
                options = (RETRY,) if self.slot.way_back else (RETRY, ROLL_BACK)
                ask_what_now(context, bench, what=what, why=str(error), options=options)
