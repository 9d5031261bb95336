"""Notifications: their channels, their delivery, and the task that sends each one once on each channel that wants it.

The Airflow Variable `kafka_rollout_notifications` lists the channels. A channel is an installed notifier:

    {"channels": [{"notifier": "airflow.providers.smtp.notifications.smtp.SmtpNotifier",
                   "kwargs": {"to": "kafka@example.org", "subject": "{{ alert.subject }}",
                              "html_content": "<pre>{{ alert.body | e }}</pre>"},
                   "kinds": ["decision-pending", "node-failed"], "clusters": ["orders"]}]}

The templates of `kwargs` can use `alert` (`fields_of`) and nothing else. The texts contain names that clients choose:
use the filter `e` in HTML, `alert.slack` for Slack and `alert.markdown` for Markdown. Put secrets into the Airflow
Connection of the notifier. The Variable `kafka_rollout_alert` is one
channel for the kinds of the scheduled scan. A channel that cannot be used is a sentence in the log and on the page; it
never stops or delays a change of a cluster.
"""

from __future__ import annotations

import html
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier, BaseOperator, Context, Variable
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from kafka_rollout.airflow.common.links import notification_page
from kafka_rollout.airflow.delivery_errors import is_of_channel
from kafka_rollout.airflow.logs import OneLineLogger, OneLineLogs
from kafka_rollout.base.errors import FatalError, RolloutError
from kafka_rollout.base.outside_text import escape_invisible
from kafka_rollout.base.system.alert_texts import render_alert
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.notifications.channels import (
    SCAN_VARIABLE,
    VARIABLE,
    NotificationChannel,
    NotificationChannels,
    parse_channels,
    unusable,
)
from kafka_rollout.notifications.due import (
    ClusterHistory,
    Notification,
    NotificationKind,
    NotificationTimes,
    Page,
    RunHistory,
    due_notifications,
    newest_change,
    of_scheduled_run,
)
from kafka_rollout.notifications.sending import send_each
from kafka_rollout.report.run_report import stored_end
from kafka_rollout.run.projections.runs import RunEnd

if TYPE_CHECKING:
    from kafka_rollout.notifications.store.sent import SqlNotifications

_REPORTS_READ = 10  # of a cluster, to find the newest run that changed it

log = OneLineLogger(logging.getLogger(__name__))


def send(channel: NotificationChannel, notification: Notification, context: Context) -> None:
    """Send. Raises UserError if the notifier cannot be made, and the errors of the notifier.

    The notifier gets rendered texts, and renders none: it would do so with every Connection of Airflow.
    """
    notifier = _make(channel, fields_of(notification))
    notifier.template_fields = ()
    notifier(context)


def render_every_kind(channel: NotificationChannel, test: Notification) -> None:
    """Render the templates of a channel for each kind that it wants, with the fewest values that a notification has.

    Raises UserError for a template that fails for one of them.
    """
    for kind in NotificationKind if channel.kinds is None else channel.kinds:
        try:
            render_alert(channel.kwargs, fields_of(replace(test, kind=kind, sentences=(), remedy="", node=None)))
        except ValueError as error:
            raise unusable(VARIABLE, f"channel {channel.name}, {kind} without sentences: {error}") from None


def _make(channel: NotificationChannel, alert: Mapping[str, Any]) -> BaseNotifier:
    try:
        kwargs = render_alert(channel.kwargs, alert)
        module, _, name = channel.notifier.rpartition(".")
        kind = getattr(import_module(module), name)
        if not (isinstance(kind, type) and issubclass(kind, BaseNotifier)):
            raise TypeError(f"{channel.notifier} is not a notifier class")
        return kind(**kwargs)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        variable = SCAN_VARIABLE if channel.name == SCAN_VARIABLE else VARIABLE
        raise unusable(variable, f"channel {channel.name}: {error}") from None


def load_channels() -> NotificationChannels:
    """Read both Variables. An error in one channel does not affect the others."""
    return parse_channels(Variable.get(VARIABLE, default=None), Variable.get(SCAN_VARIABLE, default=None))


def deliver(
    notifications: Sequence[Notification], context: Context, channels: NotificationChannels, *, at_once: bool = False
) -> tuple[str, ...]:
    """Send every notification that was not sent yet, on each channel that wants it. Returns a sentence per failure.

    `at_once`: do not wait for the time of the next attempt. No error of a channel is raised.
    """
    from kafka_rollout.notifications.store.sent import open_notifications

    store = open_notifications()
    problems = list[str]()

    def send_one(notification: Notification, channel: NotificationChannel) -> bool:
        if not store.claim(notification, channel.name, at_once=at_once):
            return True
        problem, error = _send(store, notification, channel, context)
        problems.extend([problem] if problem else [])
        return error is None or not is_of_channel(error)

    send_each(notifications, channels.channels, send_one)
    return tuple(problems)


def _send(
    store: SqlNotifications, notification: Notification, channel: NotificationChannel, context: Context
) -> tuple[str, Exception | None]:
    """Return why it was not sent, as a sentence, and the error; empty if it was."""
    try:
        send(channel, notification, context)
    except Exception as error:
        problem = problem_of(error)
        store.record(notification, channel.name, problem)
        sentence = (
            f"{notification.kind} of cluster {notification.cluster} was not sent on channel {channel.name}: {problem}"
        )
        log.error("%s", sentence)
        return sentence, error
    store.record(notification, channel.name)
    log.info("%s of cluster %s was sent on channel %s", notification.kind, notification.cluster, channel.name)
    return "", None


def problem_of(error: Exception) -> str:
    """Return the error as a sentence. The text of a channel's own error can have a secret, so it is only in the log."""
    if isinstance(error, RolloutError):
        return str(error)
    return f"{type(error).__name__}. Read the log of the task that sent it."


def fields_of(notification: Notification) -> dict[str, Any]:
    """Return what templates can use, each text as one visible line: the sentences contain names that clients choose.

    `slack` and `markdown` have the same texts, in which no name is a mention, a link or a format.
    """
    link = notification_page(notification)
    return {
        **_texts(notification, link, escape_invisible),
        "slack": _texts(notification, link, _escape_slack),
        "markdown": _texts(notification, link, _escape_markdown),
        "key": notification.key,
        "kind": notification.kind.value,
        "urgency": notification.urgency.value,
        "cluster": notification.cluster,
        "node": notification.node,
        "run": notification.run,
        "dag_id": notification.dag_id,
        "run_id": escape_invisible(notification.run_id),
        "link": link,
        "report": notification.report,
        "failed": notification.failed,
    }


def _texts(notification: Notification, link: str, escape: Callable[[str], str]) -> dict[str, Any]:
    headline, remedy = escape(notification.headline), escape(notification.remedy)
    sentences = [escape(sentence) for sentence in notification.sentences]
    lines = [headline, "", *(f"- {sentence}" for sentence in sentences), "", remedy, f"Page: {link}"]
    return {
        "headline": headline,
        "sentences": sentences,
        "remedy": remedy,
        "subject": f"{escape(notification.cluster)}: {headline}",
        "body": "\n".join(lines),
    }


def _escape_slack(text: str) -> str:
    """Escape the characters with which mentions and links begin and end in Slack (Formatting text for app surfaces)."""
    return html.escape(escape_invisible(text), quote=False)


def _escape_markdown(text: str) -> str:
    """Escape each character of a format or link: Teams knows no code spans, which other readers of Markdown protect."""
    return re.sub(r"[\\`*_\[\]<>#|~!&]", r"\\\g<0>", escape_invisible(text))


class ScanAlertNotifier(BaseNotifier):
    """Record an alert and send it at once. Raises an error if a channel failed, so that the task is repeated."""

    def __init__(self, cluster: str, alert: Notification) -> None:
        """`alert`: without its cluster, run and time."""
        self.cluster = cluster
        self.alert = alert
        super().__init__()

    def notify(self, context: Context) -> None:
        from kafka_rollout.notifications.store.sent import open_notifications

        notification = of_scheduled_run(self.alert, self.cluster, str(context["run_id"]), time.time())
        self.log.error("%s", fields_of(notification)["body"])
        store, channels = open_notifications(), load_channels()
        store.record_alert(notification)
        store.set_problem(" ".join(channels.problems))
        problems = deliver([notification], context, channels, at_once=True)
        if channels.problems:
            raise AirflowFailException(" ".join(channels.problems))
        if problems:
            raise AirflowException(" ".join(problems))


class _DueOfCluster:
    """The notifications that are due by the stored histories of a cluster, whatever inventory file describes it today.

    Each history is read by itself, so that one that cannot be read does not hold back the others.
    """

    def __init__(self, cluster: str, settings: Settings, times: NotificationTimes) -> None:
        self._cluster, self._settings, self._times = cluster, settings, times
        self._runs: list[RunHistory] = []
        self._alerts: tuple[Notification, ...] = ()
        self._newest_end: tuple[str, RunEnd] | None = None
        self._newest_scan: tuple[str, float] | None = None
        self.unread: list[str] = []
        """A sentence for each history that could not be read."""

    def read(self) -> None:
        """Read the runs that changed lately, the holder of the lock, the alerts, the newest scan and changing run."""
        from kafka_rollout.run.store.history import list_changed_runs
        from kafka_rollout.run.store.opening import database_of, open_lock

        with self._reading("The list of runs"):
            lease = open_lock(self._settings).holder(self._cluster)
            holder = lease.holder if lease is not None else ""
            since = time.time() - self._times.fresh_s
            changed = list_changed_runs(database_of(self._settings), self._cluster, since)
            for run_id in dict.fromkeys([*changed, *([holder] if holder else [])]):
                with self._reading("The history of a run"):
                    self._read_run(run_id, has_lock=run_id == holder)
        with self._reading("The alerts of scheduled runs"):
            self._read_alerts()
        with self._reading("The scans of scheduled runs"):
            self._read_newest_scan()
        with self._reading("The reports of runs"):
            self._read_newest_end()

    @property
    def due(self) -> tuple[Notification, ...]:
        """What is due by everything that was read: a later run can resolve what stopped an earlier one."""
        history = ClusterHistory(
            cluster=self._cluster,
            runs=tuple(self._runs),
            alerts=self._alerts,
            newest_end=self._newest_end,
            newest_scan=self._newest_scan,
        )
        return due_notifications(history, now=time.time(), times=self._times)

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # one odd history must not hold back what the others have to tell
            self.unread.append(f"{what} of cluster {self._cluster} cannot be read: {problem_of(error)}")
            write = log.error if isinstance(error, RolloutError) else log.exception
            write("%s", self.unread[-1])

    def _read_run(self, run_id: str, *, has_lock: bool) -> None:
        from kafka_rollout.wiring.runs import read_run

        run, _ = read_run(self._cluster, run_id, self._settings)
        if run.problem:
            raise FatalError(run.problem)
        terms = None if run.plan is None else run.plan.terms
        history = RunHistory(run_id=run_id, number=run.number, view=run.view, end=run.end, has_lock=has_lock)
        self._runs.append(history if terms is None else replace(history, gate_timeout_s=terms.gate_timeout_s))

    def _read_alerts(self) -> None:
        from kafka_rollout.notifications.store.sent import open_notifications

        alerts, since = open_notifications(self._settings).alerts(self._cluster), time.time() - self._times.fresh_s
        self._alerts = tuple(alert for alert in alerts if alert.at > since)

    def _read_newest_scan(self) -> None:
        from kafka_rollout.run.store.opening import open_scan_history

        if (scan := open_scan_history(self._cluster, self._settings).newest_summary(is_scheduled=True)) is not None:
            self._newest_scan = scan.run_id, scan.at

    def _read_newest_end(self) -> None:
        from kafka_rollout.run.store.history import list_reported_runs
        from kafka_rollout.run.store.opening import database_of, open_run

        ends = list[tuple[str, RunEnd]]()
        for run_id in list_reported_runs(database_of(self._settings), self._cluster, _REPORTS_READ):
            if (end := stored_end(open_run(self._cluster, run_id, self._settings))) is not None:
                ends.append((run_id, end))
            if newest_change(ends) is not None:
                break
        self._newest_end = newest_change(ends)


class NotifyOperator(OneLineLogs, BaseOperator):
    """Send the due notifications of all clusters; with the parameter `test`, one test notification on each channel.

    A history that cannot be read, and a channel that fails, do not affect the others. The task fails at its end if
    one of them did.
    """

    def execute(self, context: Context) -> Any:
        from kafka_rollout.notifications.store.sent import open_notifications

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

    def _send(self, context: Context, channels: NotificationChannels) -> list[str]:
        from kafka_rollout.notifications.store.sent import open_notifications

        settings, store = Settings.from_environment(), open_notifications()
        due, unread = list[Notification](), dict[str, list[str]]()
        for cluster in store.clusters():
            found = _DueOfCluster(cluster, settings, channels.times)
            found.read()
            due += found.due
            if found.unread:
                unread[cluster] = found.unread
        store.set_unread({cluster: len(problems) for cluster, problems in unread.items()})
        for channel in channels.channels:
            store.begin(channel.name, [one for one in due if channel.wants(one)])
        return [*(one for problems in unread.values() for one in problems), *deliver(due, context, channels)]

    def _test(self, context: Context, channels: NotificationChannels) -> dict[str, str]:
        """Return the result of each channel. Nothing is recorded, so a test can be repeated."""
        test = Notification(
            key=f"{NotificationKind.TEST}:{context['run_id']}",
            kind=NotificationKind.TEST,
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
                render_every_kind(channel, test)
                send(channel, test, context)
                results[channel.name] = "sent"
            except Exception as error:
                results[channel.name] = f"failed: {problem_of(error)}"
            self.log.info("Channel %s: %s", channel.name, results[channel.name])
        context["ti"].xcom_push(key="return_value", value=results)
        failed = [f"Channel {name}: {result}" for name, result in results.items() if result != "sent"]
        if channels.problems or failed or not results:
            raise AirflowFailException(" ".join([*channels.problems, *failed]) or "There are no channels.")
        return results
