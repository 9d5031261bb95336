"""The console's route: what each user sees of a run that asks, and who can answer it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.airflow.views.records import NO_INVENTORY
from kafka_rollout.run.events import Channel as By
from kafka_rollout.run.events import Responder, StartedAtShell
from kafka_rollout.run.view import RunView
from tests.console_scenes import DAG, RUN, Scene, cluster_of, failing_upgrade, stage
from tests.dags.pages.page_client import PREFIX, serve_page, sign_in
from tests.records import run_history

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("database")]

USERS = {"anna": "op", "otto": "op", "vera": "viewer"}


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A run that holds the lock and asks anna, in the run history."""
    return stage(failing_upgrade(cluster_of(6), now=time.time(), done=4), tmp_path, monkeypatch)


@pytest.fixture
def client(tmp_path: Path, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with serve_page(tmp_path, monkeypatch, users=USERS) as client:
        yield client


def console(client: Any, user: str, **parameters: str) -> Any:
    return client.get(f"{PREFIX}/console", params={"cluster": "orders", **parameters}, headers=sign_in(client, user))


def test_only_who_is_asked_and_may_change_the_dag_can_answer(client: Any) -> None:
    for user, can_answer in (("anna", True), ("otto", False), ("vera", False)):
        found = console(client, user).json()
        assert (found["run"]["can_answer"], found["status"]["waits_for"]["who"]) == (can_answer, ["anna"]), user
        assert found["run"]["run_id"] == RUN


def test_who_is_asked_but_may_only_read_cannot_answer(
    tmp_path: Path, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_page(tmp_path, monkeypatch, users={"anna": "viewer"}) as client:
        found = console(client, "anna").json()
        assert (found["run"]["can_answer"], found["status"]["waits_for"]["who"]) == (False, ["anna"])


def test_a_run_in_progress_can_be_paused_by_who_may_change_it_and_then_resumed(client: Any, tmp_path: Path) -> None:
    for user, controls in (("otto", ["pause", "stop"]), ("vera", [])):
        assert console(client, user).json()["run"]["controls"] == controls, user
    asked = {"run_id": RUN, "action": "pause", "reason": "errors of clients"}
    address = f"{PREFIX}/dags/{DAG}/control"
    assert client.post(address, json=asked, headers=sign_in(client, "vera")).status_code == 403
    done = client.post(address, json=asked, headers=sign_in(client, "otto"))
    assert (done.status_code, "errors of clients" in done.json()["message"]) == (200, True)
    assert console(client, "otto").json()["run"]["controls"] == ["resume", "stop"]


def test_the_text_of_a_request_is_only_in_airflow(client: Any) -> None:
    shown = console(client, "vera").text
    assert "through the same gates" in shown  # the consequence of an answer
    assert "secret.setting" not in shown


def test_a_user_without_a_right_to_the_dags_of_a_cluster_learns_nothing(
    tmp_path: Path, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_page(tmp_path, monkeypatch, users=USERS, dags="another") as client:
        refused = console(client, "vera")
        missing = client.get(f"{PREFIX}/console", params={"cluster": "none"}, headers=sign_in(client, "vera"))
        assert (refused.status_code, refused.text) == (404, missing.text)
        of_run = client.get(f"{PREFIX}/console", params={"run_id": RUN, "dag_id": DAG}, headers=sign_in(client, "vera"))
        assert of_run.status_code == 404


def test_a_run_is_shown_while_the_inventory_of_its_cluster_cannot_be_read(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = Path(os.environ["KAFKA_ROLLOUT_CLUSTERS"]).glob("*.yaml")
    file.write_text("name: orders\nnodes: [\n")
    found = console(client, "anna").json()
    assert (found["run"]["run_id"], found["run"]["can_answer"]) == (RUN, True)
    assert found["problem"].startswith("The inventory of this cluster cannot be read")
    assert str(file) not in found["problem"]
    state = client.get(f"{PREFIX}/status.json", params={"cluster": "orders"}, headers=sign_in(client, "vera"))
    assert state.json()["run"] == RUN
    kafka, options, rows = (
        client.get(f"{PREFIX}/{page}", params={"cluster": "orders"}, headers=sign_in(client, "vera"))
        for page in ("kafka", "downgrade/options", "fleet/rows")
    )
    assert (kafka.json()["state"], kafka.json()["problem"]) == (None, NO_INVENTORY)
    assert (options.status_code, options.json()["detail"]) == (503, NO_INVENTORY)
    (row,) = rows.json()["rows"]
    assert (row["cluster"], row["needs_human"]) == ("orders", True)
    assert row["why"].startswith("Correct the inventory of this cluster. Then: ")


def test_a_broken_inventory_tells_nothing_to_a_user_without_a_right_to_the_dags_of_its_cluster(
    tmp_path: Path, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = Path(os.environ["KAFKA_ROLLOUT_CLUSTERS"]).glob("*.yaml")
    file.write_text("name: orders\nnodes: [\n")
    with serve_page(tmp_path, monkeypatch, users=USERS, dags="another") as client:
        for page in ("console", "kafka", "status.json", "downgrade/options"):
            of, none = (
                client.get(f"{PREFIX}/{page}", params={"cluster": name}, headers=sign_in(client, "vera"))
                for name in ("orders", "none")
            )
            assert (of.status_code, of.text) == (404, none.text), page


def test_a_run_is_found_by_its_own_dag_and_by_no_other(client: Any) -> None:
    ask = {"run_id": RUN, "dag_id": DAG}
    headers = sign_in(client, "vera")
    assert client.get(f"{PREFIX}/console", params=ask, headers=headers).json()["run"]["run_id"] == RUN
    for wrong in ({**ask, "dag_id": "kafka_upgrade_other"}, {**ask, "run_id": "../x"}, {**ask, "run_id": "none"}):
        assert client.get(f"{PREFIX}/console", params=wrong, headers=headers).status_code == 404, wrong


def test_the_run_that_asks_is_shown_before_newer_plans_which_are_trials(client: Any, tmp_path: Path) -> None:
    for number in range(12):
        shell = Responder(channel=By.SHELL, user="carol", host="h")
        run_history(tmp_path / "home", "orders", f"plan-{number}").record(StartedAtShell(starter=shell))
    found = console(client, "anna").json()
    assert found["run"]["run_id"] == RUN
    assert {(run["is_trial"], run["state"]) for run in found["runs"]} == {(True, "plan")}
    older = console(client, "anna", run_id="plan-11").json()
    assert (older["run"]["run_id"], older["other"]) == ("plan-11", RUN)


def test_a_second_poll_reads_no_history(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from kafka_rollout.run.store.history import SqlRunStore

    headers = sign_in(client, "anna")
    ask = {"params": {"cluster": "orders"}, "headers": headers}
    first = client.get(f"{PREFIX}/console", **ask).json()
    monkeypatch.setattr(SqlRunStore, "events", lambda self: pytest.fail("read again"))
    again = client.get(f"{PREFIX}/console", **ask).json()
    assert again["run"]["nodes"] == first["run"]["nodes"]


def test_a_delivered_notification_is_named(client: Any, tmp_path: Path, scene: Scene) -> None:
    from kafka_rollout.notifications.due import ClusterHistory, NotificationKind, RunHistory, due_notifications
    from kafka_rollout.notifications.store.sent import SqlNotifications
    from tests.records import database_of

    run = RunHistory(run_id=RUN, number=1, view=RunView.of(scene.events), has_lock=True)
    due = due_notifications(ClusterHistory(cluster="orders", runs=(run,)), now=time.time())
    sent = SqlNotifications(database_of(tmp_path / "home"))
    (pending,) = (one for one in due if one.kind is NotificationKind.DECISION_PENDING)
    assert sent.claim(pending, "pager")
    sent.record(pending, "pager")
    assert sent.claim(pending, "chat")
    sent.record(pending, "chat", "The channel did not respond.")
    notified = {one["channel"]: one for one in console(client, "vera").json()["run"]["notified"]}
    assert notified["pager"]["is_sent"]
    assert (notified["chat"]["is_sent"], notified["chat"]["problem"]) == (False, "The channel did not respond.")
