"""Services of a run: the test traffic, the group monitor, the report and the outcome."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from kafka_rollout.airflow.approvals.asking import PLAN_TASK
from kafka_rollout.airflow.common.assets import add_proved, run_alias
from kafka_rollout.airflow.common.base import (
    RolloutOperator,
    find_other_owner,
    frozen_plan,
    last_failure_sentence,
    request_in,
    skip_if,
    skip_unless_begun,
    task_states,
)
from kafka_rollout.airflow.common.cluster_access import ClusterAccess
from kafka_rollout.airflow.common.links import ReportLink
from kafka_rollout.base.errors import RolloutError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.control.lock import release_lock
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import FinalizePolicy
from kafka_rollout.procedure.step import Step
from kafka_rollout.report.builders import GROUPS_WATCHED, record_no_traffic, record_traffic
from kafka_rollout.run.background import BackgroundProcess


def run_traffic(ports: ClusterPorts) -> BackgroundProcess:
    """Return the run's test traffic; start it if it does not run."""
    from kafka_rollout.traffic.processes.of_run import start_traffic

    plan = ports.run.load_plan()
    return start_traffic(
        ports.cluster,
        ports.run_id,
        security=ClusterAccess(ports.cluster.name).security(),
        lowered=plan.lowered,
        together=plan.batches,
    )


def keep_traffic_running(context: Context, ports: ClusterPorts) -> None:
    """Before a change: make sure that the group monitor runs, and the test traffic if the run requests it.

    A failed run stops its test traffic, because it may never continue. If the failed task is cleared, the task that
    started the traffic does not run again, so every changing task calls this. A failure to start the traffic stops
    nothing, because the change may be the fix for the cluster.
    """
    from kafka_rollout.traffic.processes.of_run import start_group_monitor

    start_group_monitor(ports.cluster.name, ports.run_id, security=ClusterAccess(ports.cluster.name).security())
    if not request_in(context).traffic:
        return
    try:
        run_traffic(ports)
    except RolloutError as error:
        context["task"].log.warning("The following change runs without test traffic: %s", error)


class StartTrafficOperator(RolloutOperator):
    """Start the test traffic, if the run requests it."""

    def __init__(self, *, step: Step, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        plan = frozen_plan(ports, context)
        skip_if(self.step.skip(plan, request_in(context), ports.run.events()))
        process = run_traffic(ports)
        return {"folder": process.folder, "pid": process.pid, "host": process.host}


class StopTrafficOperator(RolloutOperator):
    """Stop the test traffic and the group monitor in any case, and store the result of the traffic check."""

    ends_run = True

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        from kafka_rollout.traffic.processes.of_run import stop_group_monitor, stop_traffic

        if (watched := stop_group_monitor(ports.cluster.name, ports.run_id)) is not None:
            ports.run.attach(GROUPS_WATCHED, watched)
        security = ClusterAccess(self.cluster).security()
        verdict = stop_traffic(ports.cluster, ports.run_id, security=security, on_progress=self.log.info)
        if verdict is None:
            record_no_traffic(ports)
            raise AirflowSkipException("This run has no test traffic.")
        verdict = record_traffic(ports, verdict)
        self.log.info("Acknowledged %s, consumed %s", verdict.acknowledged, dict(verdict.consumed))
        for discrepancy in verdict.discrepancies:
            self.log.error("%s", discrepancy)
        return {
            "ok": verdict.ok,
            "acknowledged": verdict.acknowledged,
            "consumed": dict(verdict.consumed),
            "discrepancies": len(verdict.discrepancies),
        }


class ReportOperator(RolloutOperator):
    """Write the report of the run, release the cluster's lock, and update the assets of what the run proved."""

    operator_extra_links = (ReportLink(),)
    is_recorded = False
    ends_run = True

    def __init__(self, *, cluster: str, **kwargs: Any) -> None:
        super().__init__(cluster=cluster, outlets=[run_alias(cluster)], **kwargs)

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        from kafka_rollout.wiring.runs import write_run_report
        from kafka_rollout.wiring.stored_state import keep_last_seen

        if not context["ti"].xcom_pull(task_ids=PLAN_TASK):
            release_lock(ports)
            why = last_failure_sentence(ports.run.events())
            raise AirflowFailException(f"The run has no plan, so there is no report.{why}")
        plan = frozen_plan(ports, context)
        report, page, data = write_run_report(Run(ports, plan), dry_run=request_in(context).dry_run)
        release_lock(ports)
        keep_last_seen(ports.cluster, ports.run.events(), Settings.from_environment())
        add_proved(context, self.cluster, plan, report.outcome)
        self.log.info("Report: %s", page)
        return {"outcome": report.outcome.value, "sentence": report.sentence, "html": page, "json": data}


class OutcomeOperator(RolloutOperator):
    """Succeed only if the run ended as requested: finished, dry run, or finalizing left for later."""

    def __init__(self, *, report_task: str, traffic_task: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.report_task = report_task
        self.traffic_task = traffic_task

    def execute(self, context: Context) -> Any:
        from kafka_rollout.run.store.opening import open_run

        ti, request = context["ti"], request_in(context)
        report = ti.xcom_pull(task_ids=self.report_task) or {}
        outcome = report.get("outcome", "without a report")
        details = f" {report['sentence']} See {report['html']}." if report else ""
        traffic = ti.xcom_pull(task_ids=self.traffic_task) if self.traffic_task else None
        if traffic and not traffic["ok"]:
            raise AirflowFailException(f"The traffic check found {traffic['discrepancies']} discrepancies.{details}")
        states = task_states(context).items()
        failed = sorted(task_id for task_id, state in states if state == "failed" and task_id != self.task_id)
        if not failed:
            skip_unless_begun(self.cluster, context)
        if failed and not report:
            events = open_run(self.cluster, str(context["run_id"])).events()
            owner = find_other_owner(events, context)
            details = f" Its run id is already used by {owner}." if owner else last_failure_sentence(events)
        if failed:
            raise AirflowFailException(f"The run ended {outcome}: {', '.join(failed)} failed.{details}")
        wanted = {"dry_run"} if request.dry_run else {"finished"}
        if request.finalize is FinalizePolicy.LATER:
            wanted.add("rolled_not_finalized")
        if outcome not in wanted:
            raise AirflowFailException(f"The run ended {outcome}, not {' or '.join(sorted(wanted))}.{details}")
        self.log.info("The run ended as requested: %s.%s", outcome, details)
        return outcome

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        raise NotImplementedError
