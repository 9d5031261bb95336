"""Alerts of the compatibility scan: to the log, to the page "Kafka rollout", and to the channel that was set up.

The channel is any notifier that is installed, named by the Airflow Variable `kafka_rollout_alert`:

    {"notifier": "airflow.providers.smtp.notifications.smtp.SmtpNotifier",
     "kwargs": {"to": "kafka@example.org", "subject": "{{ alert.subject }}", "html_content": "{{ alert.body }}"}}

Its texts are templates that know `alert`: an Alert's fields, and `subject` and `body` as they stand in the log. What is
secret belongs into the Airflow Connection that such a notifier names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier, Variable
from airflow.sdk.exceptions import AirflowFailException

from kafka_rollout.domain.model.outside_text import escape_invisible

if TYPE_CHECKING:
    from airflow.sdk import Context
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
    """What somebody should hear of. `report` is an address of Airflow's pages; `failed`: nothing could be scanned."""

    cluster: str
    headline: str
    sentences: Sequence[str]
    report: str = ""
    remedy: str = ""
    failed: bool = False


class ScanAlertNotifier(BaseNotifier):
    """Hands an alert on. Raises what the channel raises: an alert that did not get through is a failed task."""

    template_fields = ("subject", "body")

    def __init__(self, alert: Alert, *, subject: str = SUBJECT, body: str = BODY) -> None:
        self.alert = alert
        self.subject = subject
        self.body = body
        super().__init__()

    def render_template_fields(self, context: Context, jinja_env: Environment | None = None) -> None:
        super().render_template_fields(_with(context, _shown(self.alert)), jinja_env)

    def notify(self, context: Context) -> None:
        from kafka_rollout.composition.records import open_scan_reports

        alert = {**_shown(self.alert), "subject": self.subject, "body": self.body}
        self.log.error("%s", self.body)
        open_scan_reports(self.alert.cluster).alerted(str(context["run_id"]), alert)
        if (channel := configured_channel()) is not None:
            channel(_with(context, alert))


def configured_channel() -> BaseNotifier | None:
    """The notifier of the Variable; None without one. Fails with the way out when it cannot be used."""
    setting = Variable.get(VARIABLE, default=None, deserialize_json=True)
    if not setting:
        return None
    problem = f"The Airflow Variable {VARIABLE} names no notifier that can be used"
    way_out = 'Write {"notifier": "package.module.Class", "kwargs": {…}}, or delete it: alerts then go to log and page.'
    if not isinstance(setting, Mapping) or not isinstance(setting.get("notifier"), str):
        raise AirflowFailException(f"{problem}. {way_out}")
    module, _, name = setting["notifier"].rpartition(".")
    try:
        kind = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise AirflowFailException(f"{problem}: {error}. {way_out}") from None
    if not (isinstance(kind, type) and issubclass(kind, BaseNotifier)):
        raise AirflowFailException(f"{problem}: {setting['notifier']} is none. {way_out}")
    try:
        return kind(**setting.get("kwargs", {}))
    except TypeError as error:
        raise AirflowFailException(f"{problem}: {error}. {way_out}") from None


def _shown(alert: Alert) -> dict[str, Any]:
    """The alert's fields, each text one line without invisible characters: names of groups are among them."""
    return {
        **asdict(alert),
        "headline": escape_invisible(alert.headline),
        "sentences": [escape_invisible(sentence) for sentence in alert.sentences],
        "remedy": escape_invisible(alert.remedy),
    }


def _with(context: Context, alert: Mapping[str, Any]) -> Any:
    return {**context, "alert": alert}
