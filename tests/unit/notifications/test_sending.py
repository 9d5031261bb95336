"""A message that a channel refuses delays no other one; a service that does not respond is left alone."""

from __future__ import annotations

import smtplib
import urllib.error
from collections.abc import Callable
from email.message import Message
from pathlib import Path

import httpx
import pytest

from kafka_rollout.airflow.delivery_errors import is_of_channel
from kafka_rollout.base.errors import TransientError, UserError
from kafka_rollout.notifications.channels import NotificationChannel, parse_channels
from kafka_rollout.notifications.due import Notification, NotificationKind
from kafka_rollout.notifications.sending import send_each
from kafka_rollout.notifications.store.sent import SqlNotifications
from kafka_rollout.run.store.database import Database

CHANNELS = parse_channels('{"channels": [{"name": "pager", "notifier": "a.b.C"}]}', None).channels


def notification(number: int, kind: NotificationKind = NotificationKind.GATE_SLOW, at: float = 1000.0) -> Notification:
    return Notification(key=f"{kind}:{number}", kind=kind, cluster="orders", at=at, headline="x")


def status(code: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://service")
    return httpx.HTTPStatusError("x", request=request, response=httpx.Response(code, request=request))


def caused(error: Exception, by: Exception) -> Exception:
    error.__context__ = by
    return error


def sent_with(refuse: Callable[[Notification], Exception | None], due: list[Notification]) -> list[str]:
    tried: list[str] = []

    def send(one: Notification, channel: NotificationChannel) -> bool:
        tried.append(one.key)
        error = refuse(one)
        return error is None or not is_of_channel(error)

    send_each(due, CHANNELS, send)
    return tried


def test_refused_messages_do_not_delay_a_message_of_another_cluster(tmp_path: Path) -> None:
    store = SqlNotifications(Database(f"sqlite:///{tmp_path}/runs.db"))
    due = [*(notification(number) for number in range(10)), notification(1, NotificationKind.SCAN_FAILED, 2000.0)]
    accepted: list[str] = []

    def send(one: Notification, channel: NotificationChannel) -> bool:
        if not store.claim(one, channel.name):
            return True
        if one.kind is NotificationKind.GATE_SLOW:
            store.record(one, channel.name, "refused")
            return not is_of_channel(UserError("list object has no element 1", remedy="x"))
        store.record(one, channel.name)
        accepted.append(one.key)
        return True

    send_each(due, CHANNELS, send)
    assert accepted == ["scan-failed:1"]
    send_each(due, CHANNELS, send)
    assert accepted == ["scan-failed:1"]


def test_a_service_that_does_not_respond_is_tried_once() -> None:
    due = [notification(number, at=float(number)) for number in range(5)]
    assert sent_with(lambda one: TransientError("gone", remedy="x"), due) == ["gate-slow:0"]


def test_the_most_urgent_is_sent_first_and_of_those_the_oldest() -> None:
    finished, failed = NotificationKind.FINISHED, NotificationKind.NODE_FAILED
    due = [notification(1, finished, 1.0), notification(2), notification(3, failed, 9.0), notification(4, failed, 8.0)]
    assert sent_with(lambda one: None, due) == ["node-failed:4", "node-failed:3", "gate-slow:2", "finished:1"]


@pytest.mark.parametrize(
    ("error", "leaves_out"),
    [
        (ConnectionRefusedError(), True),
        (TimeoutError(), True),
        (httpx.ReadTimeout("x"), True),
        (caused(RuntimeError("x"), httpx.ConnectError("x")), True),
        (urllib.error.URLError("x"), True),
        (smtplib.SMTPServerDisconnected("x"), True),
        (smtplib.SMTPRecipientsRefused({}), False),
        (status(503), True),
        (status(429), True),
        (status(401), True),
        (status(400), False),
        (status(413), False),
        (urllib.error.HTTPError("u", 400, "m", Message(), None), False),
        (urllib.error.HTTPError("u", 502, "m", Message(), None), True),
        (UserError("a template", remedy="x"), False),
        (KeyError("x"), False),
    ],
)
def test_only_an_error_of_the_service_leaves_its_channel_out(error: Exception, leaves_out: bool) -> None:
    assert is_of_channel(error) is leaves_out
