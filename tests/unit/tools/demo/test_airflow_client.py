"""The client of Airflow's API: a question that got no answer is asked again, and what changes something never is."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from kafka_rollout.base.errors import TransientError, UserError
from tests.fakes.clock import FakeClock
from tools.demo.airflow_server import AirflowClient

LOCKED = httpx.Response(500, text="database is locked")


@pytest.fixture
def client_of() -> Callable[[list[httpx.Response], list[str]], AirflowClient]:
    def make(answers: list[httpx.Response], asked: list[str]) -> AirflowClient:
        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(request.method)
            return answers.pop(0)

        client = AirflowClient(url="http://airflow", user="anna", password="secret", clock=FakeClock())
        client._http = httpx.Client(base_url=client.url, transport=httpx.MockTransport(answer))
        return client

    return make


def test_a_question_that_airflow_could_not_answer_is_asked_again_for_a_while(
    client_of: Callable[..., AirflowClient],
) -> None:
    asked: list[str] = []
    client = client_of([LOCKED, LOCKED, httpx.Response(200, json={"state": "running"})], asked)
    assert client.run_state("dag", "run") == "running"
    assert asked == ["GET"] * 3
    with pytest.raises(TransientError, match="database is locked"):
        client_of([LOCKED] * 3, asked).run_state("dag", "run")


def test_a_refusal_is_no_silence(client_of: Callable[..., AirflowClient]) -> None:
    asked: list[str] = []
    with pytest.raises(UserError, match="404"):
        client_of([httpx.Response(404)], asked).run_state("dag", "run")
    assert asked == ["GET"]


def test_what_changes_something_is_asked_once(client_of: Callable[..., AirflowClient]) -> None:
    asked: list[str] = []
    with pytest.raises(TransientError):
        client_of([LOCKED] * 3, asked).trigger("dag", {})
    assert asked == ["POST"]


def test_the_sign_in_is_tried_again(client_of: Callable[..., AirflowClient], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    client = client_of([LOCKED, httpx.Response(201, json={"access_token": "t"}), httpx.Response(200, json={})], asked)
    to_the_answers, client._http = client._http, None
    monkeypatch.setattr("tools.demo.airflow_server.httpx.Client", lambda **_: to_the_answers)
    client.call("PUT", "/api/v2/dags")
    assert asked == ["POST", "POST", "PUT"]
