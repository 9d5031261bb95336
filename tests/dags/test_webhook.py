"""The notifier of a webhook sends its secret to one server only, and uses each field of its Connection."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from airflow.sdk import BaseHook, Connection

from kafka_rollout.airflow.webhook import WebhookNotifier
from kafka_rollout.base.errors import TransientError, UserError
from tests.unit.base.system.test_credentials_over_http import server

pytestmark = pytest.mark.airflow


def notifier(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> WebhookNotifier:
    found = Connection(conn_id="hook", conn_type="http", **fields)
    monkeypatch.setattr(BaseHook, "get_connection", lambda _: found)
    return WebhookNotifier(conn_id="hook", payload={"text": "one"})


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_gets_no_header(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as other, server(code, other.url) as first:
        with pytest.raises(TransientError, match=f"answered with status {code}"):
            notifier(monkeypatch, host=first.url, password="s3cret").notify({})  # type: ignore[typeddict-item]
        assert first.seen == [("POST", "/", "Bearer s3cret")]
        assert other.seen == []


def test_port_and_login_of_the_connection_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as first:
        host, _, port = first.url.rpartition(":")
        fields = {"host": f"{host}/hook", "port": int(port), "login": "ops", "password": "s3cret"}
        notifier(monkeypatch, **fields).notify({})  # type: ignore[typeddict-item]
        assert first.seen == [("POST", "/hook", f"Basic {base64.b64encode(b'ops:s3cret').decode()}")]


def test_a_connection_that_cannot_be_applied_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as first:
        fields = {"host": first.url, "password": "s3cret", "extra": '{"cert": "/etc/own.pem"}'}
        with pytest.raises(UserError, match="Airflow Connection hook has cert in its extra"):
            notifier(monkeypatch, **fields).notify({})  # type: ignore[typeddict-item]
    assert first.seen == []
