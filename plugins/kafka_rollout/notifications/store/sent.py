"""Sent notifications: which notification was sent on which channel, and how often it was tried.

A channel that is used for the first time gets only what is open then. A sender claims a notification before it sends
it, and records the result after it. If the sender is killed in between, the notification is tried again after STALE_S,
so it can arrive twice. It is tried at most MOST_ATTEMPTS times, and an open request (WHILE_TRUE) each hour after that,
until it is answered.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, delete, insert, select, union, update

from kafka_rollout.base.durations import duration
from kafka_rollout.base.errors import FatalError
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import count
from kafka_rollout.notifications.due import WHILE_TRUE, Notification, is_open
from kafka_rollout.run.store.database import Database, put
from kafka_rollout.run.store.opening import database_of
from kafka_rollout.run.store.tables import alerts, notifications, runs

MOST_ATTEMPTS = 8  # over about two hours
STALE_S = 300.0  # longer than one attempt
SILENT_S = 600.0  # the sender runs every minute
_FIRST_RETRY_S, _LAST_RETRY_S = 60.0, 3600.0
_KEPT_S = 90 * 86_400.0  # longer than a notification can be due

_SENDING, _SENT, _FAILED = "sending", "sent", "failed"
_DAG = "kafka_notifications"
# Channels and kinds of rows that belong to no notification.
_SETTINGS, _SENDER, _HISTORIES = "settings", "sender", "histories"
_BEGUN = "begun"  # of the first use of a channel


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelProblem:
    """A notification that a channel did not accept."""

    channel: str
    kind: str
    attempts: int
    is_final: bool
    """It is not tried again."""
    at: float
    """Epoch seconds."""
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A notification on one channel."""

    channel: str
    kind: str
    at: float
    """Epoch seconds of the last attempt."""
    is_sent: bool
    problem: str
    """Why it was not accepted."""


def open_notifications(settings: Settings | None = None) -> SqlNotifications:
    return SqlNotifications(database_of(settings))


class SqlNotifications:
    """The sent notifications of all clusters."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def clusters(self) -> tuple[str, ...]:
        """Return the clusters with a run or an alert, sorted: no other cluster can have a notification.

        An inventory file that cannot be read now, or is gone, hides none of them.
        """
        with self._database.reading() as connection:
            query = union(select(runs.c.cluster), select(alerts.c.cluster))
            return tuple(sorted(row.cluster for row in connection.execute(query)))

    def begin(self, channel: str, due: Iterable[Notification]) -> None:
        """Let a channel that is used for the first time get only what is open: the other due ones count as sent."""
        with self._database.serialized() as connection:
            now = self._database.now(connection)
            mark = {"cluster": "", "notification": _BEGUN, "channel": channel}
            if connection.execute(select(notifications).filter_by(**mark)).first() is not None:
                return
            values = {"attempts": 0, "changed_at": now, "problem": "", "state": _SENT}
            connection.execute(insert(notifications).values(**mark, **values, kind=_BEGUN))
            for one in due:
                which = _row(one, channel)
                is_known = connection.execute(select(notifications).filter_by(**which)).first() is not None
                if not is_open(one) and not is_known:
                    connection.execute(insert(notifications).values(**which, **values, kind=one.kind.value))

    def claim(self, notification: Notification, channel: str, *, at_once: bool = False) -> bool:
        """Return whether the caller must send the notification on the channel now, and count the attempt.

        False if it was sent, if another process sends it now, if its next attempt is later, or after the last attempt,
        which one of an open request does not have.
        `at_once`: try a failed one again now.
        """
        with self._database.serialized() as connection:
            now = self._database.now(connection)
            which = _row(notification, channel)
            row = connection.execute(select(notifications).filter_by(**which)).one_or_none()
            values = {"kind": notification.kind.value, "state": _SENDING, "changed_at": now, "problem": ""}
            if row is None:
                connection.execute(insert(notifications).values(**which, **values, attempts=1))
                return True
            tried = min(row.attempts, MOST_ATTEMPTS)
            retry_s = 0.0 if at_once else min(_FIRST_RETRY_S * 2.0 ** (tried - 1), _LAST_RETRY_S)
            is_last = tried == MOST_ATTEMPTS
            stale_s = _LAST_RETRY_S if is_last else STALE_S
            wait_s = stale_s if row.state == _SENDING else retry_s
            is_over = is_last and notification.kind not in WHILE_TRUE
            if row.state == _SENT or is_over or now - row.changed_at < wait_s:
                return False
            changed = {**values, "attempts": row.attempts + 1}
            connection.execute(update(notifications).filter_by(**which).values(**changed))
            return True

    def record(self, notification: Notification, channel: str, problem: str | None = None) -> None:
        """Record that the channel accepted the notification, or why not.

        `problem`: a sentence without the text of the channel's error.
        """
        with self._database.begin() as connection:
            now = self._database.now(connection)
            state = _SENT if problem is None else _FAILED
            values = {"state": state, "problem": problem or "", "changed_at": now}
            connection.execute(update(notifications).filter_by(**_row(notification, channel)).values(**values))

    def set_problem(self, problem: str) -> None:
        """Keep why channels cannot be used at all, for the pages of all clusters; an empty text removes it."""
        if problem:
            self._put(_SETTINGS, _FAILED, problem)
            return
        with self._database.begin() as connection:
            connection.execute(delete(notifications).filter_by(cluster="", channel=_SETTINGS))

    def set_unread(self, histories: Mapping[str, int]) -> None:
        """Keep how many histories of each cluster cannot be read, for its page; other clusters have none any more."""
        with self._database.begin() as connection:
            old = (notifications.c.channel == _HISTORIES, notifications.c.notification == "")
            connection.execute(delete(notifications).where(*old))
        for cluster, number in histories.items():
            problem = f"{count(number, 'history', 'histories')} cannot be read. Read the log of the DAG {_DAG}."
            self._put(_HISTORIES, _FAILED, problem, cluster)

    def record_run(self) -> None:
        """Record that the sender has run, so that the page can show when it no longer does."""
        self._put(_SENDER, _SENT, "")

    def _put(self, kind: str, state: str, problem: str, cluster: str = "") -> None:
        """Write the row of a kind that belongs to no notification."""
        with self._database.serialized() as connection:
            now = self._database.now(connection)
            values = {"kind": kind, "state": state, "attempts": 1, "changed_at": now, "problem": problem}
            put(connection, notifications, {"cluster": cluster, "notification": "", "channel": kind}, values)

    def problems(self, cluster: str) -> tuple[ChannelProblem, ...]:
        """Return the notifications of the last day that were not accepted, the newest first.

        A sender that ran in the last day, but not in the last SILENT_S, is a problem too.
        """
        with self._database.reading() as connection:
            now = self._database.now(connection)
            is_silent = (notifications.c.channel == _SENDER) & (notifications.c.changed_at < now - SILENT_S)
            query = select(notifications).where(
                notifications.c.cluster.in_((cluster, "")),
                (notifications.c.state == _FAILED) | is_silent,
                notifications.c.changed_at > now - 86_400.0,
            )
            rows = connection.execute(query.order_by(notifications.c.changed_at.desc())).all()
        return tuple(
            ChannelProblem(
                channel=row.channel,
                kind=row.kind,
                attempts=row.attempts,
                is_final=row.attempts >= MOST_ATTEMPTS and row.kind not in WHILE_TRUE,
                at=row.changed_at,
                problem=row.problem or f"The DAG {_DAG} last ran {duration(now - row.changed_at)} ago.",
            )
            for row in rows
        )

    def deliveries(self, sent: Iterable[Notification]) -> tuple[Delivery, ...]:
        """Return what is known about the delivery of notifications, by channel, the oldest first."""
        found = list[Row[Any]]()
        with self._database.reading() as connection:
            for one in sent:
                hashed = _row(one, "")["notification"]
                query = select(notifications).filter_by(cluster=one.cluster, notification=hashed)
                found += connection.execute(query.order_by(notifications.c.changed_at)).all()
        return tuple(
            Delivery(
                channel=row.channel, kind=row.kind, at=row.changed_at, is_sent=row.state == _SENT, problem=row.problem
            )
            for row in found
        )

    def record_alert(self, alert: Notification) -> None:
        """Record the alert of a scheduled run. A repeated call changes nothing."""
        with self._database.serialized() as connection:
            key = {"cluster": alert.cluster, "run_id": alert.run_id}
            if connection.execute(select(alerts.c.run_id).filter_by(**key)).first() is None:
                body = json.dumps(to_json(alert), ensure_ascii=False)
                connection.execute(insert(alerts).values(**key, at=alert.at, body=body))

    def alerts(self, cluster: str) -> tuple[Notification, ...]:
        """Return the alerts of a cluster's scheduled runs, oldest first. Raises FatalError for a damaged one."""
        rows = self._database.read(select(alerts.c.body).filter_by(cluster=cluster).order_by(alerts.c.at))
        try:
            return tuple(from_json(Notification, json.loads(row.body)) for row in rows)
        except ValueError:
            raise FatalError(
                f"An alert of cluster {cluster} is damaged.", remedy="Restore the database from a backup."
            ) from None

    def remove_old(self) -> None:
        """Remove rows that are so old that their notifications cannot be due any more."""
        with self._database.begin() as connection:
            before = self._database.now(connection) - _KEPT_S
            old = (notifications.c.changed_at < before, notifications.c.kind.not_in(("not-finalized", _BEGUN)))
            connection.execute(delete(notifications).where(*old))


def _row(notification: Notification, channel: str) -> dict[str, str]:
    hashed = hashlib.sha256(notification.key.encode()).hexdigest()
    return {"cluster": notification.cluster, "notification": hashed, "channel": channel}
