"""A step of a procedure as a task: its action, and the steps that it skips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped

from kafka_rollout.airflow.approvals.asking import (
    ROLL_BACK_DECISION,
    ask_how_to_continue,
    is_answer,
    read_answer,
    record_decision,
    show_waiting,
)
from kafka_rollout.airflow.common.base import (
    RolloutOperator,
    frozen_plan,
    refuse_unless_observed,
    request_in,
    skip_if,
)
from kafka_rollout.airflow.common.cluster_access import clears_of
from kafka_rollout.airflow.gates.sensor import watch_gate
from kafka_rollout.airflow.operators.services import keep_traffic_running
from kafka_rollout.base.errors import FatalError, RefusedError, SkippedStepError
from kafka_rollout.control.holds import HeldError, refuse_held
from kafka_rollout.gates.gate import WatchState
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.procedure.kinds import KINDS, run_of_dag
from kafka_rollout.procedure.step import ActStep, JumpStep, RunsAfter, StepCall
from kafka_rollout.run.events import Begun, Decision, StepsSkipped
from kafka_rollout.run.projections.offline import can_be_undone, stop_has_begun

_MEANINGS = {
    Decision.RETRY: "Repeat the step. It does not repeat what is done.",
    Decision.ROLL_BACK: (
        "Restore every node's metadata log from its backup and start the previous release. Then end the run."
    ),
}


class StepOperator(RolloutOperator):
    """One step. `has_plan` is False for the steps up to the plan."""

    def __init__(self, *, step: ActStep | JumpStep, has_plan: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step
        self.has_plan = has_plan

    def execute(self, context: Context) -> Any:
        if not self.has_plan and self.step.runs_after is RunsAfter.ANYTHING:
            refuse_unless_observed(context)
        return super().execute(context)

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        call = self.call(context, ports)
        skip_if(self.step.skip(call.plan_or_none, call.request, ports.run.events()))
        if isinstance(self.step, ActStep) and self.step.monitored:
            keep_traffic_running(context, ports)
        try:
            if isinstance(self.step, ActStep) and self.step.changes:
                refuse_held(Run(ports, call.plan))
            found = None if self.step.act is None else self.step.act(call)
        except SkippedStepError as reason:
            skip_if(str(reason))
        except HeldError as held:
            show_waiting(context, held.sentence)
            watch_gate(self, context, Run(ports, call.plan), held.gate, is_patient=False)
        return found

    def watched(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue after the wait before a change."""
        if event["state"] != WatchState.PASSED:
            raise AirflowFailException(f"{event['message']} To wait again and continue, clear this task.")
        return self.attempt(context, "act")

    def call(self, context: Context, ports: ClusterPorts) -> StepCall:
        """Return the input of the step's action in this DAG run."""
        return StepCall(
            ports=ports,
            request=request_in(context),
            plan_or_none=frozen_plan(ports, context) if self.has_plan else None,
            begun=self._begun(context),
            log=self.log,
        )

    def _begun(self, context: Context) -> Begun:
        """Return who and what began this run, as Airflow knows it."""
        run: Any = context.get("dag_run")
        return Begun(
            dag_id=self.dag_id,
            triggered_by=str(getattr(run, "triggering_user_name", None) or ""),
            run_type=str(getattr(getattr(run, "run_type", ""), "value", "")),
            clears=clears_of(context),
        )


class BranchOperator(StepOperator):
    """A step that can skip the tasks `skipped`: its jump returns the reason."""

    def __init__(self, *, step: JumpStep, skipped: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(step=step, **kwargs)
        self.jump = step
        self.skipped = list(skipped)

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        found = super().act(context, ports)
        call = self.call(context, ports)
        jump = self.jump.jump
        if reason := jump.when(call.plan_or_none, call.request, ports.run.events()):
            self.log.info("%s", reason)
            skipped = KINDS[run_of_dag(self.dag_id)].procedure.between(self.task_id, jump.past)
            ports.run.record(StepsSkipped(steps=skipped, reason=reason))
            raise DownstreamTasksSkipped(tasks=self.skipped)
        return found


class UndoableStepOperator(StepOperator):
    """A step of an offline downgrade. When it fails, an approver decides: retry, or restore everything."""

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        show_waiting(context, self._what)
        try:
            found = super().act(context, ports)
        except (RefusedError, FatalError) as error:
            events = ports.run.events()
            if not stop_has_begun(events):
                raise  # nothing was changed, so there is nothing to decide
            options = (Decision.RETRY, Decision.ROLL_BACK) if can_be_undone(events) else (Decision.RETRY,)
            ask_how_to_continue(context, ports, what=self._what, why=str(error), options=options, meanings=_MEANINGS)
        self.log.info("Done: %s", found)
        show_waiting(context, "nothing")
        return found

    def watched(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue after the wait, or with an answer to the request of an earlier attempt."""
        return self.decided(context, event) if is_answer(event) else super().watched(context, event)

    def decided(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue with the decision after the step failed."""
        with self.working(context, ends=False) as ports:
            frozen_plan(ports, context)
            record_decision(context, ports, self._what, read_answer(context, event, self._what))
        return self.attempt(context, "act")

    @property
    def _what(self) -> str:
        return f"the offline step {self.step.id}"


class DecidedStepOperator(StepOperator):
    """A step that runs only if an approver decided it at one of `deciders`; otherwise it skips `skipped`."""

    def __init__(self, *, deciders: Sequence[str], skipped: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deciders = list(deciders)
        self.skipped = list(skipped)

    def execute(self, context: Context) -> Any:
        if not any(context["ti"].xcom_pull(task_ids=self.deciders, key=ROLL_BACK_DECISION) or ()):
            self.log.info("No approver decided to undo the offline downgrade.")
            raise DownstreamTasksSkipped(tasks=self.skipped)
        return super().execute(context)
