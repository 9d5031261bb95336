"""The DAG of notifications in real Airflow, with a real SMTP server and a real webhook server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.gates.gate import GateKind, GateRef
from kafka_rollout.notifications.due import NotificationKind
from kafka_rollout.notifications.store.sent import open_notifications
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import ApprovalOf, Asked, Begun, Channel, Event, Responder, StartedAtShell
from kafka_rollout.run.step_events import GateFailed, Started, Stopping
from tests.dags.conftest import DAG_ID, FakeRuns
from tests.dags.message_servers import MailServer, Webhook, mail_server, webhook_server
from tests.dags.runs.dag_run import run_dag
from tests.option_scenes import CLASSIC, scan_of
from tests.records import failed_step, record_alert, run_history, scan_history

pytestmark = pytest.mark.airflow

SECRET = "s3cret-path"
STEP = "3.9.1-to-4.3.1"
MAIL = {
    "name": "mail",
    "notifier": "airflow.providers.smtp.notifications.smtp.SmtpNotifier",
    "kwargs": {
        "to": "kafka@example.org",
        "from_email": "airflow@example.org",
        "smtp_conn_id": "mail",
        "subject": "{{ alert.subject }}",
        "html_content": "<pre>{{ alert.body | e }}</pre>",
    },
}
HOOK = {
    "name": "teams",
    "notifier": "kafka_rollout.airflow.webhook.WebhookNotifier",
    "kwargs": {
        "conn_id": "teams",
        "payload": {
            "kind": "{{ alert.kind }}",
            "text": "{{ alert.body }}",
            "link": "{{ alert.link }}",
            "list": ["{{ alert.urgency }}"],
        },
    },
}
ASKED = Asked(
    what=ApprovalOf.ROLL,
    task_id="approve_plan",
    record_id="r1",
    text="Upgrade fake from 3.9.1 to 4.3.1?\n\nbody",
    options=("Approve", "Reject"),
    users=("anna",),
    answer_by=time.time() + 86_400,
)


@dataclass
class Sender:
    """Runs of the DAG in this process, and what the servers got."""

    home: Path
    load: Callable[[], dict[str, Any]]
    mail: MailServer
    hook: Webhook
    patch: pytest.MonkeyPatch
    results: list[Any] = field(default_factory=list)

    def configure(self, *channels: Mapping[str, Any], **settings: Any) -> None:
        self.patch.setenv("AIRFLOW_VAR_KAFKA_ROLLOUT_NOTIFICATIONS", json.dumps({"channels": channels, **settings}))

    def run(self, **conf: Any) -> str:
        run = run_dag(self.load()["kafka_notifications"], conf)
        (self.ti,) = run.get_task_instances()
        return str(run.state)

    def record(self, *events: Event, run_id: str = "manual__1") -> None:
        store = run_history(self.home, "fake", run_id)
        for event in events:
            store.record(event)

    @property
    def subjects(self) -> list[str]:
        return [str(mail["Subject"]) for mail in self.mail.mails]

    @property
    def posted(self) -> list[str]:
        return [post["kind"] for _, _, post in self.hook.posts]


@pytest.fixture
def sender(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: None, load_dags: Callable[[], dict[str, Any]]
) -> Iterator[Sender]:
    with mail_server() as mail, webhook_server() as hook:
        extra = {"disable_ssl": True, "disable_tls": True}
        smtp = {"conn_type": "smtp", "host": "127.0.0.1", "port": mail.port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_MAIL", json.dumps(smtp))
        secret = {"conn_type": "http", "password": f"{hook.url}/{SECRET}"}
        monkeypatch.setenv("AIRFLOW_CONN_TEAMS", json.dumps(secret))
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.org")
        made = Sender(home=tmp_path / "home", load=load_dags, mail=mail, hook=hook, patch=monkeypatch)
        made.configure(MAIL, HOOK)
        yield made


def text_of(mail: EmailMessage) -> str:
    (part,) = [part for part in mail.walk() if part.get_content_type() == "text/html"]
    return str(part.get_payload(decode=True), "utf-8")


def test_an_approval_is_told_once_by_mail_and_webhook_with_the_page_that_answers_it(sender: Sender) -> None:
    sender.record(Begun(dag_id=DAG_ID), ASKED)
    assert [sender.run(), sender.run()] == ["success", "success"]
    (mail,) = sender.mail.mails
    assert (mail["Subject"], mail["To"]) == ("fake: Run 1 waits for an approval.", "kafka@example.org")
    link = f"https://airflow.example.org/dags/{DAG_ID}/runs/manual__1/required_actions"
    for line in ("Upgrade fake from 3.9.1 to 4.3.1?", "Can answer: anna.", "answer: Approve, Reject.", f"Page: {link}"):
        assert line in text_of(mail)
    ((path, authorization, post),) = sender.hook.posts
    assert (path, authorization) == (f"/{SECRET}", "")
    assert (post["kind"], post["link"], post["list"]) == ("approval-pending", link, ["warning"])


def test_a_failed_node_and_its_decision_are_told_in_order_and_html_of_a_client_stays_text(sender: Sender) -> None:
    gate = GateRef(kind=GateKind.AFTER_START, release_step=STEP, node_id=3)
    sender.record(
        Begun(dag_id=DAG_ID),
        Stopping(node_id=3, release_step=STEP),
        Started(node_id=3, release_step=STEP, release=Release(4, 3, 1), pid=7, seconds=1.0),
        GateFailed(ref=gate, gate="after node 3", message="group <img src=x>\nX: rebalances"),
        Asked(
            what=ApprovalOf.FAILED_GATE,
            task_id="gate",
            record_id="r2",
            text="How to continue?",
            options=("Wait on", "Retry"),
        ),
    )
    assert sender.run() == "success"
    assert sender.posted == ["node-failed", "decision-pending"]
    assert sender.subjects[0].startswith("fake: Node 3: group <img src=x>")
    assert sender.subjects[1:] == ["fake: Run 1 waits for a decision."]
    assert "&lt;img src=x&gt;\\nX" in text_of(sender.mail.mails[0])


def test_a_run_of_the_command_line_is_told_too(sender: Sender) -> None:
    sender.record(
        StartedAtShell(starter=Responder(channel=Channel.SHELL, user="ops", host="h")),
        Stopping(node_id=3, release_step=STEP, at=time.time() - 400),
    )
    assert sender.run() == "success"
    assert sender.posted == ["run-paused"]
    assert sender.hook.posts[0][2]["link"] == "https://airflow.example.org/kafka-rollout/"


def test_each_channel_gets_its_kinds_and_clusters(sender: Sender) -> None:
    sender.configure({**MAIL, "kinds": ["approval-pending"]}, {**HOOK, "clusters": ["other"]})
    sender.record(Begun(dag_id=DAG_ID), ASKED)
    assert sender.run() == "success"
    assert (len(sender.mail.mails), sender.posted) == (1, [])


def test_a_service_that_refuses_is_named_without_its_secret_and_stops_no_other_channel(
    sender: Sender, caplog: pytest.LogCaptureFixture
) -> None:
    from kafka_rollout.airflow.views.records import runs_of
    from kafka_rollout.base.system.settings import Settings
    from kafka_rollout.clusters.inventory import list_named_clusters

    sender.hook.answers = [503]
    sender.record(Begun(dag_id=DAG_ID), ASKED)
    sender.configure(HOOK, MAIL)
    assert sender.run() == "failed"
    assert len(sender.mail.mails) == 1
    (problem,) = open_notifications().problems("fake")
    assert "Airflow Connection teams answered with status 503" in problem.problem
    (shown,) = runs_of(list_named_clusters(), Settings.from_environment(), may_read=lambda dag_id: True)
    assert shown["problem"].startswith("Notifications are not sent (teams): The webhook of Airflow Connection teams")
    assert SECRET not in caplog.text + shown["problem"]
    assert sender.run() == "success"  # the next attempt is a minute later
    assert len(sender.hook.posts) == 1


def test_a_channel_that_failed_is_left_out_until_the_next_run(sender: Sender) -> None:
    sender.configure(HOOK)
    sender.hook.answers = [503]
    sender.record(Begun(dag_id=DAG_ID), ASKED)
    sender.record(Begun(dag_id=DAG_ID), ASKED, run_id="manual__2")
    assert [sender.run(), len(sender.hook.posts)] == ["failed", 1]
    assert [sender.run(), len(sender.hook.posts)] == ["success", 2]


def test_a_redirect_is_not_followed_with_the_message(sender: Sender) -> None:
    sender.hook.answers = [302]
    sender.record(Begun(dag_id=DAG_ID), ASKED)
    assert sender.run() == "failed"
    assert [path for path, _, _ in sender.hook.posts] == [f"/{SECRET}"]


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("[", "it is not JSON"),
        ("[1]", "it is not a JSON object"),
        ('{"chanels": []}', "channels is missing"),
        ('{"channels": [], "not_finalized_days": "x"}', "not_finalized_days must be a valid number"),
        ('{"channels": [{"notifier": "nowhere.Notifier"}]}', "No module named 'nowhere'"),
        ('{"channels": [{"notifier": "json.JSONDecoder"}]}', "json.JSONDecoder is not a notifier class"),
        ('{"channels": [{"notifier": "a.B", "kind": []}]}', "channels[0].kind is an unknown key"),
        ('{"channels": [{"notifier": "a.B", "kinds": ["nodes"]}]}', "channels[0].kinds[0] must be 'approval-pending'"),
        ('{"channels": [{"notifier": "a.B", "clusters": "x"}]}', "channels[0].clusters must be a valid list"),
        ('{"channels": [{"notifier": "a.B"}, {"notifier": "a.B"}]}', "two channels have the name B"),
    ],
)
def test_a_channel_that_cannot_be_used_is_a_sentence_on_the_page(sender: Sender, setting: str, says: str) -> None:
    sender.patch.setenv("AIRFLOW_VAR_KAFKA_ROLLOUT_NOTIFICATIONS", setting)
    sender.record(Begun(dag_id=DAG_ID), ASKED)
    assert sender.run() == "failed"
    problems = " ".join(one.problem for one in open_notifications().problems("fake"))
    assert says in problems
    assert "or delete the Variable" in problems


def test_the_error_is_gone_from_the_page_when_the_variable_is_corrected(sender: Sender) -> None:
    sender.configure({**MAIL, "kinds": ["nodes"]}, HOOK)
    assert sender.run() == "failed"
    sender.configure(MAIL, HOOK)
    assert sender.run() == "success"
    assert open_notifications().problems("fake") == ()


def test_without_channels_nothing_is_sent(sender: Sender) -> None:
    sender.patch.delenv("AIRFLOW_VAR_KAFKA_ROLLOUT_NOTIFICATIONS")
    sender.record(Begun(dag_id=DAG_ID), ASKED)
    assert sender.run() == "success"


def test_the_variable_of_the_scans_is_a_channel_for_their_kinds(sender: Sender) -> None:
    sender.patch.delenv("AIRFLOW_VAR_KAFKA_ROLLOUT_NOTIFICATIONS")
    sender.patch.setenv(
        "AIRFLOW_VAR_KAFKA_ROLLOUT_ALERT", json.dumps({key: HOOK[key] for key in ("notifier", "kwargs")})
    )
    sender.record(Begun(dag_id=DAG_ID), ASKED)
    closed, page = NotificationKind.OPTION_CLOSED, "https://airflow.example.org/scan"
    record_alert(sender.home, "fake", "s", closed, "Verdicts of 3.4.0 got worse.", report=page)
    assert sender.run() == "success"
    assert sender.posted == ["option-closed"]
    assert sender.hook.posts[0][2]["link"] == "https://airflow.example.org/scan"


@pytest.mark.parametrize("state", ["broken", "copied", "gone"])
def test_an_inventory_that_breaks_during_a_run_hides_no_notification(
    sender: Sender, inventory: Path, state: str
) -> None:
    sender.record(Begun(dag_id=DAG_ID), ASKED)
    dags = sender.load()
    sender.load = lambda: dags
    file = inventory / "fake.yaml"
    match state:
        case "broken":
            file.write_text(f"{file.read_text()}\nbad: [\n")
        case "copied":
            (inventory / "fake-backup.yaml").write_text(file.read_text())
        case _:
            file.unlink()
    assert sender.run() == "success"
    assert sender.posted == ["approval-pending"]


def test_a_damaged_history_does_not_hide_the_others_and_fails_the_task(sender: Sender) -> None:
    from sqlalchemy import text

    from tests.records import database_of

    sender.record(Begun(dag_id=DAG_ID), ASKED)
    sender.record(Begun(dag_id=DAG_ID), run_id="damaged")
    record_alert(sender.home, "fake", "s", NotificationKind.SCAN_FAILED, "A scan failed.")
    with database_of(sender.home).begin() as connection:
        bodies = dict(connection.execute(text("SELECT run_id, body FROM events JOIN runs ON run = id")).all())
        connection.execute(
            text("UPDATE events SET body = 'x' WHERE run = (SELECT id FROM runs WHERE run_id = 'damaged')")
        )
        connection.execute(text("UPDATE alerts SET body = '{}'"))
    assert sender.run() == "failed"
    assert sender.posted == ["approval-pending"]
    (problem,) = open_notifications().problems("fake")
    assert problem.problem == "2 histories cannot be read. Read the log of the DAG kafka_notifications."
    with database_of(sender.home).begin() as connection:
        connection.execute(text("UPDATE events SET body = :body WHERE body = 'x'"), {"body": bodies["damaged"]})
        connection.execute(text("DELETE FROM alerts"))
    assert sender.run() == "success"
    assert open_notifications().problems("fake") == ()


def test_a_failed_scan_is_not_sent_after_a_later_scheduled_scan_was_stored(sender: Sender) -> None:
    record_alert(sender.home, "fake", "first", NotificationKind.SCAN_FAILED, "Not scanned.", "No host responded.")
    scan_history(sender.home, "fake").keep(scan_of("fake", 0, CLASSIC), "", run_id="second")
    record_alert(sender.home, "other", "first", NotificationKind.SCAN_FAILED, "Not scanned.", "No host responded.")
    assert sender.run() == "success"
    assert sender.subjects == ["other: Not scanned."]


def test_a_test_reaches_every_channel_and_reports_each(sender: Sender) -> None:
    sender.record(Begun(dag_id=DAG_ID), failed_step("plan", "x", at=time.time() - 500))
    assert sender.run(test=True) == "success"
    assert (sender.subjects, sender.posted) == (
        ["test: This is a test of the notifications of kafka-rollout."],
        ["test"],
    )
    sender.hook.answers = [500]
    assert sender.run(test=True) == "failed"
    assert sender.ti.xcom_pull(task_ids="send") == {
        "mail": "sent",
        "teams": "failed: The webhook of Airflow Connection teams answered with status 500. Check the URL in the "
        "Connection, and the payload.",
    }


@pytest.mark.usefixtures("combined")
def test_an_upgrade_by_the_dag_tells_of_its_approval_and_its_end(sender: Sender, runs: FakeRuns) -> None:
    def send(task: str) -> None:
        sender.run()

    runs.while_asked = send
    state, states, _ = runs.run(finalize="after_approval")
    assert state == "success", states
    sender.run()
    assert sender.posted == ["approval-pending", "approval-pending", "finished"]
    assert "Without an answer until" not in sender.hook.posts[0][2]["text"]  # answered at once, without a deadline
    assert sender.hook.posts[-1][2]["link"].startswith(
        f"https://airflow.example.org/kafka-rollout/dags/{DAG_ID}/report"
    )
