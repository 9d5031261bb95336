"""The task that sends notifications: it reads the histories of all clusters, and sends what is due."""

from __future__ import annotations

import time
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from kafka_rollout.airflow.logs import OneLineLogs
from kafka_rollout.airflow.notifications import Channels, deliver, load_channels, problem_of
from kafka_rollout.base.errors import RolloutError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import list_readable_clusters
from kafka_rollout.coordinator_logs.history import Alerted
from kafka_rollout.report.run_report import stored_end
from kafka_rollout.run.notifications import (
    ClusterHistory,
    Kind,
    Notification,
    NotificationTimes,
    Page,
    RunHistory,
    due_notifications,
    newest_change,
)
from kafka_rollout.run.projections.runs import RunEnd

_REPORTS_READ = 10  # of a cluster, to find the newest run that changed it


class NotifyOperator(OneLineLogs, BaseOperator):
    """Send the due notifications of all clusters; with the parameter `test`, one test notification on each channel.

    A history that cannot be read, and a channel that fails, do not affect the others. The task fails at its end if a
    channel failed.
    """

    def execute(self, context: Context) -> Any:
        from kafka_rollout.run.store.opening import open_notifications

        channels = load_channels()
        for problem in channels.problems:
            self.log.error("%s", problem)
        if context["params"].get("test"):
            return self._test(context, channels)
        store = open_notifications()
        store.set_problem(" ".join(channels.problems))
        if not channels.channels:
            self.log.info("There are no channels.")
        failed = [*channels.problems, *self._send(context, channels)] if channels.channels else channels.problems
        store.remove_old()
        store.record_run()
        if failed:
            raise AirflowFailException(" ".join(failed))

    def _send(self, context: Context, channels: Channels) -> list[str]:
        settings = Settings.from_environment()
        due, failed = list[Notification](), list[str]()
        for cluster in list_readable_clusters(settings)[0]:
            try:
                history = self._read_cluster(cluster, settings, channels.times)
                due += due_notifications(history, now=time.time(), times=channels.times)
            except RolloutError as error:
                failed.append(f"The histories of cluster {cluster} cannot be read: {error}")
                self.log.error("%s", failed[-1])
        return [*failed, *deliver(due, context, channels)]

    def _read_cluster(self, cluster: str, settings: Settings, times: NotificationTimes) -> ClusterHistory:
        """Read the runs that can need a notification: those that changed lately, and the holder of the lock."""
        from kafka_rollout.run.store.opening import database_of, open_lock, open_run, open_scan_history
        from kafka_rollout.run.store.runs import list_changed_runs, list_reported_runs

        database, since = database_of(settings), time.time() - times.fresh_s
        lease = open_lock(settings).holder(cluster)
        holder = lease.holder if lease is not None else ""
        run_ids = dict.fromkeys([*list_changed_runs(database, cluster, since), *([holder] if holder else [])])
        runs = [run for run_id in run_ids if (run := self._read_run(cluster, run_id, holder, settings)) is not None]
        ends = list[tuple[str, RunEnd]]()
        for run_id in list_reported_runs(database, cluster, _REPORTS_READ):
            if (end := stored_end(open_run(cluster, run_id, settings))) is not None:
                ends.append((run_id, end))
            if newest_change(ends) is not None:
                break
        alerts = [
            event
            for event in open_scan_history(cluster, settings).events()
            if isinstance(event, Alerted) and event.at > since
        ]
        return ClusterHistory(cluster=cluster, runs=tuple(runs), alerts=tuple(alerts), newest_end=newest_change(ends))

    def _read_run(self, cluster: str, run_id: str, holder: str, settings: Settings) -> RunHistory | None:
        from kafka_rollout.run.store.opening import open_run

        store = open_run(cluster, run_id, settings)
        try:
            events = store.events()
            end = stored_end(store)
        except RolloutError as error:
            self.log.error("The history of run %s of cluster %s cannot be read: %s", run_id, cluster, error)
            return None
        try:
            terms = store.load_plan().terms
        except RolloutError:  # no plan yet
            terms = None
        timeout = {} if terms is None else {"gate_timeout_s": terms.gate_timeout_s}
        return RunHistory(run_id=run_id, events=events, end=end, has_lock=run_id == holder, **timeout)

    def _test(self, context: Context, channels: Channels) -> dict[str, str]:
        """Return the result of each channel. Nothing is recorded, so a test can be repeated."""
        test = Notification(
            key=f"{Kind.TEST}:{context['run_id']}",
            kind=Kind.TEST,
            cluster="test",
            at=time.time(),
            headline="This is a test of the notifications of kafka-rollout.",
            sentences=("No cluster is affected.",),
            remedy="No action is needed.",
            page=Page.CLUSTERS,
        )
        results = dict[str, str]()
        for channel in channels.channels:
            try:
                channel.send(test, context)
                results[channel.name] = "sent"
            except Exception as error:
                results[channel.name] = f"failed: {problem_of(error)}"
            self.log.info("Channel %s: %s", channel.name, results[channel.name])
        context["ti"].xcom_push(key="return_value", value=results)
        failed = [f"Channel {name}: {result}" for name, result in results.items() if result != "sent"]
        if channels.problems or failed or not results:
            raise AirflowFailException(" ".join([*channels.problems, *failed]) or "There are no channels.")
        return results
