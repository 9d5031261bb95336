"""Alerts of the compatibility scan: to the log, to the page "Kafka rollout", and to a configured channel.

The channel is an installed notifier, set in the Airflow Variable `kafka_rollout_alert`:

    {"notifier": "airflow.providers.smtp.notifications.smtp.SmtpNotifier",
     "kwargs": {"to": "kafka@example.org", "subject": "{{ alert.subject }}",
                "html_content": "<pre>{{ alert.body | e }}</pre>"}}

Its templates can use `alert`: the fields of an Alert, and `subject` and `body` as written to the log. Use the
filter `e` in HTML, because the text contains names that clients choose. Put secrets into the Airflow Connection of the
notifier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier, Context, Variable
from airflow.sdk.exceptions import AirflowFailException

from kafka_rollout.base.json_forms import from_json
from kafka_rollout.base.outside_text import escape_invisible
from kafka_rollout.coordinator_logs.history import Alerted

if TYPE_CHECKING:
    from jinja2 import Environment

VARIABLE = "kafka_rollout_alert"

SUBJECT = "{{ alert.cluster }}: {{ alert.headline }}"
BODY = """\
{{ alert.headline }}
{% for sentence in alert.sentences %}
- {{ sentence }}
{%- endfor %}

{{ alert.remedy }}
{%- if alert.report %}
Report: {{ alert.report }}
{%- endif %}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert. `report`: an address of Airflow's pages; `failed`: the scan failed."""

    cluster: str
    headline: str
    sentences: Sequence[str]
    report: str = ""
    remedy: str = ""
    failed: bool = False


class ScanAlertNotifier(BaseNotifier):
    """Send an alert. Raises the errors of the channel, so an alert that was not sent is a failed task."""

    template_fields = ("subject", "body")

    def __init__(self, alert: Alert, *, subject: str = SUBJECT, body: str = BODY) -> None:
        self.alert = alert
        self.subject = subject
        self.body = body
        super().__init__()

    def render_template_fields(self, context: Context, jinja_env: Environment | None = None) -> None:
        super().render_template_fields(_with(context, _visible_fields(self.alert)), jinja_env)

    def notify(self, context: Context) -> None:
        from kafka_rollout.run.store.opening import open_scan_history

        alert = {**_visible_fields(self.alert), "subject": self.subject, "body": self.body}
        self.log.error("%s", self.body)
        recorded = from_json(Alerted, {**alert, "run_id": str(context["run_id"])})
        open_scan_history(self.alert.cluster).record_alert(recorded)
        if (channel := load_channel()) is not None:
            channel(_with(context, alert))


def load_channel() -> BaseNotifier | None:
    """Return the configured notifier; None without a Variable. Fails with a remedy if it cannot be used."""
    setting = Variable.get(VARIABLE, default=None, deserialize_json=True)
    if not setting:
        return None
    try:
        if not isinstance(setting, Mapping) or not isinstance(setting.get("notifier"), str):
            raise TypeError("its value has no text notifier")
        module, _, name = setting["notifier"].rpartition(".")
        kind = getattr(import_module(module), name)
        if not (isinstance(kind, type) and issubclass(kind, BaseNotifier)):
            raise TypeError(f"{setting['notifier']} is not a notifier class")
        return kind(**setting.get("kwargs", {}))
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise AirflowFailException(
            f"The notifier of Airflow Variable {VARIABLE} cannot be used: {error}. Write "
            '{"notifier": "package.module.Class", "kwargs": {…}}, or delete the Variable: alerts are then '
            "only in the log and on the page."
        ) from None


def _visible_fields(alert: Alert) -> dict[str, Any]:
    """Return the fields of the alert, each text as one visible line: the sentences contain names of groups."""
    fields = asdict(alert)
    texts = {key: escape_invisible(fields[key]) for key in ("headline", "remedy")}
    return {**fields, **texts, "sentences": [escape_invisible(sentence) for sentence in alert.sentences]}


def _with(context: Context, alert: Mapping[str, Any]) -> Any:
    return {**context, "alert": alert}
