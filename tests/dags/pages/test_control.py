"""The endpoint that pauses, resumes and stops a run: rights, the run's own DAG, and bodies of other sites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.model.run_of import RunOf
from kafka_rollout.run.events import Begun, PauseAsked, Planned, Responder
from tests.dags.pages.page_client import PREFIX, serve_page, sign_in
from tests.fakes.cluster import R391, R431
from tests.records import change_lock, run_history

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("inventory", "database")]

USERS = {"anna": "viewer", "otto": "op"}
URL = f"{PREFIX}/dags/kafka_upgrade_fake/control"


@pytest.fixture
def run(tmp_path: Path) -> Any:
    run = run_history(tmp_path / "home", "fake", "run-1")
    run.record(Begun(dag_id="kafka_upgrade_fake"))
    run.record(Planned(run_of=RunOf.UPGRADE, plan_hash="a", source=R391, target=R431, blockers=()))
    change_lock(tmp_path / "home").acquire("fake", "run-1", "Upgrade to 4.3.1.", for_s=600)
    return run


def asked(**changed: str) -> dict[str, str]:
    return {"run_id": "run-1", "action": "pause", "reason": "errors of <b>clients</b>\u202e", **changed}


def test_who_may_change_the_runs_of_the_dag_pauses_with_name_and_reason(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_page(tmp_path, monkeypatch, users=USERS) as client:
        viewer, operator = sign_in(client, "anna"), sign_in(client, "otto")
        before = run.events()
        assert client.post(URL, json=asked()).status_code == 401
        assert client.post(URL, json=asked(), headers=viewer).status_code == 403
        other = f"{PREFIX}/dags/kafka_downgrade_fake/control"
        assert client.post(other, json=asked(), headers=operator).status_code == 404
        assert client.post(URL, json=asked(run_id="../run-1"), headers=operator).status_code == 404
        assert client.post(URL, json=asked(action="delete"), headers=operator).status_code == 422
        assert client.post(URL, json=asked(reason=" "), headers=operator).status_code == 422
        assert client.post(URL, json=asked(action="resume"), headers=operator).status_code == 409
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            foreign = {**operator, "content-type": kind}
            body = b'{"run_id": "run-1", "action": "pause", "reason": "foreign"}'
            assert client.post(URL, content=body, headers=foreign).status_code in {415, 422}, kind
        assert client.get(URL, headers=operator).status_code == 405
        assert run.events() == before
        found = client.post(URL, json=asked(), headers=operator)
        assert found.status_code == 200, found.text
        assert "\u202e" not in found.json()["message"]
        event = run.events()[-1]
        assert isinstance(event, PauseAsked)
        assert (event.by, event.reason) == ("otto", "errors of <b>clients</b>\u202e")
        assert event.responder == Responder(channel="airflow", user="otto", name="otto")
        assert client.post(URL, json=asked(), headers=operator).status_code == 409  # already paused
        assert client.post(URL, json=asked(action="resume"), headers=operator).status_code == 200
