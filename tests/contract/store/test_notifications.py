"""SqlNotifications: one of several senders sends, a killed one is replaced, and the number of tries has a limit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import pytest
from sqlalchemy import insert

from kafka_rollout.base.errors import FatalError
from kafka_rollout.notifications.due import Notification, NotificationKind, alert_of_scan, of_scheduled_run
from kafka_rollout.notifications.store.sent import MOST_ATTEMPTS, SILENT_S, STALE_S, SqlNotifications
from kafka_rollout.run.events import Begun
from kafka_rollout.run.store.tables import alerts
from tests.contract.store.conftest import Store

FAILED = Notification(
    key="node-failed:run-1:3", kind=NotificationKind.NODE_FAILED, cluster="demo", at=1.0, headline="Node 3 failed."
)
MAIL = "mail"


@pytest.fixture
def sent(store: Store) -> SqlNotifications:
    return store.notifications()


def test_a_notification_is_sent_once_on_each_channel(store: Store, sent: SqlNotifications) -> None:
    assert sent.claim(FAILED, MAIL)
    sent.record(FAILED, MAIL)
    store.clock.now += 30 * 86_400
    assert not store.notifications().claim(FAILED, MAIL)
    assert not store.notifications().claim(FAILED, MAIL, at_once=True)
    assert sent.claim(FAILED, "pager")
    assert sent.problems("demo") == ()


def test_a_new_channel_gets_what_is_open_and_later_everything(store: Store, sent: SqlNotifications) -> None:
    finished = Notification(
        key="finished:run-1:1", kind=NotificationKind.FINISHED, cluster="demo", at=1.0, headline="x"
    )
    sent.begin(MAIL, [FAILED, finished])
    assert (sent.claim(FAILED, MAIL), sent.claim(finished, MAIL)) == (True, False)
    assert sent.claim(finished, "pager"), "of another channel"
    store.clock.now += 100 * 86_400
    sent.remove_old()
    later = replace(finished, key="finished:run-2:1")
    store.notifications().begin(MAIL, [later])
    assert sent.claim(later, MAIL), "the channel is not new any more"
    sent.begin("quiet", [])
    sent.begin("quiet", [later])
    assert sent.claim(later, "quiet"), "nothing was due when it was new"


def test_of_many_senders_one_gets_the_notification(store: Store) -> None:
    store.notifications().problems("demo")  # the tables exist
    with ThreadPoolExecutor(8) as threads:
        claimed = list(threads.map(lambda _: store.notifications().claim(FAILED, MAIL), range(8)))
    assert sum(claimed) == 1


def test_the_notification_of_a_killed_sender_is_sent_later_by_another(store: Store, sent: SqlNotifications) -> None:
    assert sent.claim(FAILED, MAIL)
    store.clock.now += STALE_S - 1
    assert not store.notifications().claim(FAILED, MAIL, at_once=True)
    store.clock.now += 1
    assert store.notifications().claim(FAILED, MAIL)


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "failed"])
def test_it_is_tried_with_growing_pauses_and_a_limit(store: Store, sent: SqlNotifications, killed: bool) -> None:
    tried = list[float]()
    for _ in range(24 * 60):
        if sent.claim(FAILED, MAIL):
            tried.append(store.clock.now)
            if not killed:
                sent.record(FAILED, MAIL, "TimeoutError.")
        store.clock.now += 60
    assert len(tried) == MOST_ATTEMPTS
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert pauses == ([STALE_S] * 7 if killed else [60, 120, 240, 480, 960, 1920, 3600])


def test_an_open_request_is_tried_each_hour_until_the_channel_accepts_it(store: Store, sent: SqlNotifications) -> None:
    asked = replace(FAILED, kind=NotificationKind.DECISION_PENDING)
    for _ in range(40 * 24):
        if sent.claim(asked, MAIL):
            sent.record(asked, MAIL, "TimeoutError.")
        store.clock.now += 3600
    (problem,) = sent.problems("demo")
    assert (problem.attempts, problem.is_final) == (40 * 24, False)
    assert sent.claim(asked, MAIL)
    store.clock.now += STALE_S
    assert not sent.claim(asked, MAIL), "a sender that is killed each time sends at most one copy an hour"
    store.clock.now += 3600
    assert sent.claim(asked, MAIL)


def test_a_failed_one_can_be_tried_again_at_once(sent: SqlNotifications) -> None:
    assert sent.claim(FAILED, MAIL)
    sent.record(FAILED, MAIL, "TimeoutError.")
    assert not sent.claim(FAILED, MAIL)
    assert sent.claim(FAILED, MAIL, at_once=True)


def test_the_page_gets_what_was_not_accepted_and_why_no_channel_can_be_used(sent: SqlNotifications) -> None:
    sent.claim(FAILED, MAIL)
    sent.record(FAILED, MAIL, "TimeoutError.")
    (problem,) = sent.problems("demo")
    assert (problem.channel, problem.kind, problem.attempts, problem.is_final) == (MAIL, "node-failed", 1, False)
    assert sent.problems("other") == ()
    for _ in range(2):
        sent.set_problem("The Variable is not JSON.")
    assert [one.problem for one in sent.problems("other")] == ["The Variable is not JSON."]
    sent.set_problem("")
    assert sent.problems("other") == ()


def test_unread_histories_are_on_the_page_of_their_cluster_until_they_are_read(sent: SqlNotifications) -> None:
    for _ in range(2):
        sent.set_unread({"demo": 1, "orders": 2})
    (problem,) = sent.problems("demo")
    assert (problem.channel, problem.problem) == (
        "histories",
        "1 history cannot be read. Read the log of the DAG kafka_notifications.",
    )
    sent.set_unread({"orders": 2})
    assert (sent.problems("demo"), len(sent.problems("orders"))) == ((), 1)


def test_a_cluster_with_a_run_or_an_alert_can_have_notifications(store: Store, sent: SqlNotifications) -> None:
    assert sent.clusters() == ()
    store.run(cluster="orders").record(Begun(dag_id="x"))
    failed = alert_of_scan(NotificationKind.SCAN_FAILED, "Not scanned.", (), remedy="Scan again.")
    for cluster in ("orders", "demo"):
        sent.record_alert(of_scheduled_run(failed, cluster, "scan-1", 10.0))
    assert sent.clusters() == ("demo", "orders")


def test_the_page_gets_that_the_sender_no_longer_runs_for_one_day(store: Store, sent: SqlNotifications) -> None:
    for _ in range(2):
        sent.record_run()
    store.clock.now += SILENT_S
    assert sent.problems("demo") == ()
    store.clock.now += 60
    (silent,) = sent.problems("demo")
    assert (silent.channel, silent.problem) == ("sender", "The DAG kafka_notifications last ran 11 min 00 s ago.")
    store.clock.now += 86_400
    assert sent.problems("demo") == ()


def test_old_rows_are_removed_except_of_a_cluster_that_is_still_not_finalized(
    store: Store, sent: SqlNotifications
) -> None:
    lasting = Notification(
        key="not-finalized:r", kind=NotificationKind.NOT_FINALIZED, cluster="demo", at=1.0, headline="Old."
    )
    for one in (FAILED, lasting):
        sent.claim(one, MAIL)
        sent.record(one, MAIL)
    store.clock.now += 91 * 86_400
    sent.remove_old()
    assert [sent.claim(one, MAIL) for one in (FAILED, lasting)] == [True, False]


def test_a_run_has_one_alert_and_a_cluster_has_its_own(store: Store) -> None:
    sent = store.notifications()
    failed = alert_of_scan(NotificationKind.SCAN_FAILED, "Not scanned.", ("group a\u202eb",), remedy="Scan again.")
    for run_id, at in (("run-2", 20.0), ("run-1", 10.0), ("run-1", 30.0)):
        sent.record_alert(of_scheduled_run(failed, "demo", run_id, at))
    assert [(one.run_id, one.at) for one in sent.alerts("demo")] == [("run-1", 10.0), ("run-2", 20.0)]
    assert sent.alerts("demo")[0] == of_scheduled_run(failed, "demo", "run-1", 10.0)
    assert sent.alerts("other") == ()


def test_a_damaged_alert_is_named(store: Store) -> None:
    with store.database().begin() as connection:
        connection.execute(insert(alerts).values(cluster="demo", run_id="x", at=0.0, body="{}"))
    with pytest.raises(FatalError, match="An alert of cluster demo is damaged"):
        store.notifications().alerts("demo")
    assert store.notifications().alerts("other") == ()
