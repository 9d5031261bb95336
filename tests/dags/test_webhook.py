"""The notifier of a webhook sends its secret to one server only."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from airflow.sdk import BaseHook

from kafka_rollout.airflow.webhook import WebhookNotifier
from kafka_rollout.base.errors import TransientError
from tests.unit.base.system.test_credentials_over_http import server

pytestmark = pytest.mark.airflow


def notifier(monkeypatch: pytest.MonkeyPatch, url: str) -> WebhookNotifier:
    monkeypatch.setattr(BaseHook, "get_connection", lambda _: SimpleNamespace(host=url, password="s3cret"))
    return WebhookNotifier(conn_id="hook", payload={"text": "one"})


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_gets_no_header(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as other, server(code, other.url) as first:
        with pytest.raises(TransientError, match=f"answered with status {code}"):
            notifier(monkeypatch, first.url).notify({})  # type: ignore[typeddict-item]
        assert first.seen == [("POST", "/", "Bearer s3cret")]
        assert other.seen == []
