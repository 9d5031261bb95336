"""The channels that the documentation shows, with names that a hostile client chose."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

import pytest
from airflow.sdk import BaseNotifier, Context

from kafka_rollout.airflow.operators.notifications import fields_of, render_every_kind, send
from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.alert_texts import render_alert
from kafka_rollout.notifications.channels import NotificationChannel
from kafka_rollout.notifications.due import Notification, NotificationKind
from tests.paths import ROOT

pytestmark = pytest.mark.airflow

NAME = (
    "<!channel> <https://evil.example/approve|Approve here> [Approve](https://evil.example) *x* {{ conn.a.password }}"
)
EXAMPLES = re.findall(r"```json\n(.+?)```", (ROOT / "docs" / "notifications.md").read_text(), re.DOTALL)
CHANNELS = {
    entry["name"]: entry for example in map(json.loads, EXAMPLES) for entry in example.get("channels", [example])
}


def notification() -> Notification:
    return Notification(
        key="k",
        kind=NotificationKind.DECISION_PENDING,
        cluster="orders",
        headline=f"Group {NAME} cannot be loaded.",
        sentences=(f"Group {NAME} is lost.",),
        remedy=f"Delete {NAME}.",
        run_id="manual__1",
        dag_id="kafka_upgrade_orders",
        at=1.0,
    )


def texts_of(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for one in value.values() for text in texts_of(one)]
    return [text for one in value for text in texts_of(one)] if isinstance(value, list) else [str(value)]


@pytest.mark.parametrize("name", CHANNELS)
def test_no_name_becomes_a_mention_a_link_or_a_tag(name: str) -> None:
    rendered = texts_of(render_alert(CHANNELS[name]["kwargs"], fields_of(notification())))
    shown = [text for text in rendered if "Approve" in text]
    assert shown or name == "pager"
    for text in shown:
        if name == "slack" or text.startswith("<pre>"):
            assert "<!channel>" not in text
            assert "<https" not in text
        if name == "teams":
            assert "[Approve](" not in text
            assert "*x*" not in text.replace("\\*", "")


class Keeps(BaseNotifier):
    """A notifier that Airflow would render with its context."""

    template_fields = ("text",)
    sent: ClassVar[list[str]] = []

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Context) -> None:
        self.sent.append(self.text)


def channel(text: str) -> NotificationChannel:
    return NotificationChannel(name="own", notifier=f"{__name__}.Keeps", kwargs={"text": text})


def test_a_template_sees_no_connection_and_a_name_is_not_a_template() -> None:
    Keeps.sent.clear()
    secret: Any = {"conn": {"a": {"password": "s3cret"}}}
    with pytest.raises(UserError, match="'conn' is undefined"):
        send(channel("{{ conn.a.password }}"), notification(), secret)
    send(channel("{{ alert.headline }}"), notification(), secret)
    assert Keeps.sent == [f"Group {NAME} cannot be loaded."]


@pytest.mark.parametrize("name", CHANNELS)
def test_the_documented_channels_can_send_every_kind(name: str) -> None:
    render_every_kind(NotificationChannel(**CHANNELS[name]), notification())


def test_a_template_that_fails_for_one_kind_fails_the_test_of_its_channel() -> None:
    channel = NotificationChannel(notifier="a.b.Mail", kwargs={"text": "{{ alert.sentences[0] }}"})
    with pytest.raises(UserError, match=r"channel Mail, approval-pending without sentences: the template .* element 0"):
        render_every_kind(channel, notification())
