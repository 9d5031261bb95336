"""Base class of the tasks: the ports, the request and the frozen plan of the run, and errors by Airflow's reaction."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    DownstreamTasksSkipped,
    TaskAwaitingInput,
    TaskDeferred,
)

from kafka_rollout.airflow.approvals.airflow_records import AirflowRecords, Records, UnreadRecordError
from kafka_rollout.airflow.approvals.asking import frozen_hash, keeps_lock
from kafka_rollout.airflow.common.cluster_access import ClusterAccess, clears_of
from kafka_rollout.airflow.common.metrics import send_run_gauges
from kafka_rollout.airflow.logs import OneLineLogger, OneLineLogs
from kafka_rollout.base.errors import RefusedError, RolloutError, TransientError, UserError
from kafka_rollout.control.holds import end_before_step
from kafka_rollout.control.lock import keep_lock, release_lock
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.planning.request import Request, request_of
from kafka_rollout.preparation.frozen_plan import check_plan
from kafka_rollout.procedure import parts
from kafka_rollout.procedure.kinds import run_of_dag
from kafka_rollout.run.events import Event, StepBegan, StepEnded, StepOutcome, TakenOver, newest
from kafka_rollout.run.ports import RunStore
from kafka_rollout.run.projections.runs import find_dag_id
from kafka_rollout.run.view import RunView

log = OneLineLogger(logging.getLogger(__name__))


@contextmanager
def errors_for_airflow() -> Iterator[None]:
    """Let Airflow retry a transient error.

    Fail the task at once with the sentence of any other error of this project.
    """
    try:
        yield
    except TransientError as error:
        log.warning("%s", error)
        raise AirflowException(str(error)) from None
    except RolloutError as error:
        log.error("%s", error)
        raise AirflowFailException(str(error)) from None


@contextmanager
def cluster_ports(cluster: str, context: Context, records: Records | None = None) -> Iterator[ClusterPorts]:
    """Open the ports of this DAG run, and renew the cluster's lock in the background if the run holds it.

    `records`: Airflow's records of answers that this task has read. An approval without its record raises
    UnreadRecordError. Raises UserError if another DAG, or the command line, has a run with this id, because the history
    and the lock belong to the run id.
    """
    with ClusterAccess(cluster).open(str(context["run_id"]), clears=clears_of(context)) as opened:
        ports = replace(opened, confirm_approval=AirflowRecords(context, opened.run, records or {}).confirm)
        if owner := find_other_owner(ports.run.events(), context):
            raise UserError(
                f"Run id {ports.run_id} of cluster {cluster} is already used by {owner}.",
                remedy="Trigger this DAG with another run id.",
            )
        if (taken := newest(ports.run.events(), TakenOver)) is not None:
            raise RefusedError(
                f"{taken.by} took run {ports.run.number} over from this DAG.",
                remedy="Continue it from the shell, or trigger the DAG for a new run.",
            )
        is_parked = False
        try:
            with keep_lock(ports):  # also in a task that downloads or reads for longer than the lease
                yield ports
        except (TaskAwaitingInput, TaskDeferred):
            is_parked = True
            raise
        finally:
            send_run_gauges(ports, is_parked=is_parked)


def find_other_owner(events: Sequence[Event], context: Context) -> str:
    """Return the owner of the run history if it is not this DAG; empty if it is, or if the run has not begun."""
    dag_id = find_dag_id(events)
    if not events or dag_id == context["ti"].dag_id:
        return ""
    return f"the DAG {dag_id}" if dag_id else "the command line"


def last_failure_sentence(events: Sequence[Event]) -> str:
    """Return the message of the last failed step, for a run without a report."""
    failed = RunView.of(events).last_failed_step
    return f" Step {failed.name} failed: {failed.reason}" if failed is not None else ""


def frozen_plan(ports: ClusterPorts, context: Context) -> Plan:
    """Return the plan of the run. Refuse if it is not the plan that the first task froze."""
    return check_plan(ports, frozen_hash(context))


def request_in(context: Context) -> Request:
    """Return the request of the DAG run's form."""
    return request_of(context["params"], run_of_dag(context["ti"].dag_id))


@contextmanager
def record_step(
    run: RunStore, step: str, context: Context, *, batch: int | None = None, begins: bool, ends: bool = True
) -> Iterator[None]:
    """Record the begin of a step and how it ends. A deferral does not end it, nor does an error that Airflow retries.

    `batch`: as in `StepEvent`. `begins`: a try of the task begins. `ends`: without an exception, the step is done.
    """

    def end(outcome: StepOutcome, reason: str = "") -> None:
        run.record(StepEnded(step=step, batch=batch, outcome=outcome, reason=reason))

    if begins:
        run.record(StepBegan(step=step, batch=batch))
    try:
        yield
    except DownstreamTasksSkipped:
        end(StepOutcome.DONE)
        raise
    except AirflowSkipException as skipped:
        end(StepOutcome.SKIPPED, str(skipped))
        raise
    except (AirflowException, RolloutError) as error:
        ti = context["ti"]
        is_repeated = isinstance(error, TransientError) or not isinstance(error, AirflowFailException | RolloutError)
        if not is_repeated or ti.try_number > ti.max_tries:
            end(StepOutcome.FAILED, str(error))
        raise
    if ends:
        end(StepOutcome.DONE)


def skip_if(reason: str | None) -> None:
    """Skip the task if there is a reason."""
    if reason:
        raise AirflowSkipException(reason)


def task_states(context: Context) -> dict[str, str]:
    """Return the state of each task of the run, by task id."""
    ti = context["ti"]
    states: dict[str, str] = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id]).get(ti.run_id, {})
    return states


def skip_unless_begun(cluster: str, context: Context) -> None:
    """Skip the task if a user's own DAG has not let the run begin: a task before the group failed or was skipped."""
    from kafka_rollout.run.store.opening import open_run

    if open_run(cluster, str(context["run_id"])).events():
        return
    if task_states(context).get(parts.OBSERVE.id) in ("skipped", "upstream_failed"):
        raise AirflowSkipException("The run has not begun: a task before it failed or was skipped.")


def refuse_unless_observed(context: Context) -> None:
    """Fail or skip a task that also runs after a failed scan, unless the observation before the scan succeeded: a
    user's task before the group can fail or be skipped, also in a run that was cleared.
    """
    observed = task_states(context).get(parts.OBSERVE.id)
    if observed == "skipped":
        raise AirflowSkipException(f"The task {parts.OBSERVE.id} was skipped.")
    if observed != "success":
        raise AirflowFailException(
            f"The task {parts.OBSERVE.id} has not succeeded ({observed or 'no state'}). Clear the first task that "
            "failed, with all downstream tasks."
        )


class RolloutOperator(OneLineLogs, BaseOperator):
    """One step on one cluster. The id of the task is that of the step."""

    is_recorded = True  # the report is written after the last event
    ends_run = False  # it is done also for a run that an operator stops

    def __init__(self, *, cluster: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cluster = cluster
        self.records: Records = {}  # of answers, that this attempt has read

    def execute(self, context: Context) -> Any:
        skip_unless_begun(self.cluster, context)
        return self.attempt(context, "act", begins=True)

    def attempt(self, context: Context, then: str, records: Records | None = None, *, begins: bool = False) -> Any:
        """Call the method `then`. If it needs an approval, read Airflow's record of the answer, and call it again."""
        self.records = self.records if records is None else records
        try:
            with self.working(context, begins=begins) as ports:
                if begins and not self.ends_run:
                    end_before_step(ports)
                    if not keeps_lock(context):
                        release_lock(ports)
                return getattr(self, then)(context, ports)
        except UnreadRecordError as needed:
            raise needed.defer(then) from None

    @contextmanager
    def working(self, context: Context, *, begins: bool = False, ends: bool = True) -> Iterator[ClusterPorts]:
        """Open the ports, and record the step (`record_step`)."""
        with (
            errors_for_airflow(),
            cluster_ports(self.cluster, context, self.records) as ports,
            self.recorded(ports.run, context, begins=begins, ends=ends),
        ):
            yield ports

    def recorded(self, run: RunStore, context: Context, *, begins: bool, ends: bool) -> AbstractContextManager[None]:
        """Record the step of this task."""
        if not self.is_recorded:
            return nullcontext()
        return record_step(run, self.task_id, context, begins=begins, ends=ends)

    def confirm_answer(self, context: Context, event: dict[str, Any], then: str, plan_hash: str) -> Any:
        """Continue after an answer or its timeout with the method `then`.

        `plan_hash`: of the plan that was shown. Airflow stores the name of this method with a waiting task.
        """
        if plan_hash != frozen_hash(context):
            raise AirflowFailException(
                "The run has another plan than this request showed. Clear this task to ask again."
            )
        self.records = {}
        return getattr(self, then)(context, event)

    def confirmed(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue after Airflow's records were read."""
        if "then" not in event:  # Airflow also resumes a deferred task with a late answer to its earlier request
            return self.watched(context, event)
        return self.attempt(context, event["then"], event["records"])

    def gate_watched(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue after a trigger that watched a gate, with the records that were read before it.

        So no deferral for a record parts a gate and the change that it allows. An answer changes the records.
        """
        self.records = event.get("records", {})
        return self.watched(context, event)

    def watched(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue after a trigger that watched a gate, or with a late answer."""
        raise AirflowFailException("This task has no gate. Clear it to continue.")

    @abstractmethod
    def act(self, context: Context, ports: ClusterPorts) -> Any:
        """Do the step; the return value is the task's XCom."""
