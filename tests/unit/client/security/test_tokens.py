"""Tokens for OAUTHBEARER: requested from the token server, kept, renewed, and refused by name without the secret."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest

from kafka_rollout.base.errors import CredentialsError, RefusedError, TransientError
from kafka_rollout.base.system.http import SlowResponseError
from kafka_rollout.client.security import tokens
from kafka_rollout.client.security.tokens import TokenClient, TokenProvider, read_token
from tests.integration.harness.security.token_server import TokenServer, token_server

SECRET = "a secret with: colons"


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server({"rollout": SECRET}) as found:
        yield found


def _provider(server: TokenServer, secret: str = SECRET) -> TokenProvider:
    return TokenProvider(TokenClient(server.url, "rollout", secret, "kafka"))


def test_a_token_is_used_until_most_of_its_lifetime_is_over(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = _provider(server)
    assert provider.token() == provider.token()
    assert server.issued == {"rollout": 1}
    monkeypatch.setattr(tokens, "_USED_PART", 0.0)
    expired = _provider(server)
    expired.token()
    time.sleep(0.01)
    expired.token()
    assert server.issued == {"rollout": 3}


def test_a_refused_client_is_named_and_its_secret_is_not(server: TokenServer) -> None:
    with pytest.raises(RefusedError, match="refused client rollout") as refused:
        _provider(server, "wrong-and-secret").token()
    assert "wrong-and-secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "lifetime_s"),
    [
        ('{"access_token": "a.b-c_d~e+f/g=="}', 300),
        ('{"access_token": "t", "expires_in": null}', 300),
        ('{"access_token": "t", "expires_in": 3600}', 3600),
        ('{"access_token": "t", "expires_in": "3599"}', 3599),
        ('{"access_token": "t", "expires_in": 0.5}', 0.5),
        ('{"access_token": "t", "expires_in": 1e300}', 86_400),
    ],
)
def test_a_lifetime_is_a_number_of_seconds_of_at_most_a_day(answer: str, lifetime_s: float) -> None:
    assert read_token(answer)[1] == lifetime_s


@pytest.mark.parametrize(
    "lifetime", ["0", "-1", "NaN", "Infinity", "-Infinity", '"nan"', '"soon"', "[3600]", "{}", "true", '""', "1" * 400]
)
def test_another_lifetime_is_refused_without_the_token(lifetime: str) -> None:
    with pytest.raises(ValueError, match="expires_in of the response is not a number of seconds above 0") as refused:
        read_token(f'{{"access_token": "secret-token", "expires_in": {lifetime}}}')
    assert "secret-token" not in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("<html>", "is not JSON"),
        ("[" * 200_000, "is not JSON"),
        ("[]", "has no access_token"),
        ('{"access_token": ""}', "has no access_token"),
        ('{"access_token": ["x"]}', "is not a bearer token"),
        ('{"access_token": "x\\u0001auth=Bearer y"}', "is not a bearer token"),
    ],
)
def test_another_answer_is_refused(answer: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_token(answer)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("the response is not JSON"), CredentialsError),
        (httpx.UnsupportedProtocol("no scheme"), CredentialsError),
        (FileNotFoundError("no file of the CA"), CredentialsError),
        (httpx.ConnectError("refused"), TransientError),
        (SlowResponseError("too slow"), TransientError),
    ],
)
def test_only_a_server_without_an_answer_can_issue_a_token_later(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception]
) -> None:
    def fail(provider: TokenProvider) -> str:
        raise error

    monkeypatch.setattr(TokenProvider, "_request", fail)
    with pytest.raises(kind) as raised:
        TokenProvider(TokenClient(url="http://127.0.0.1:1", client_id="rollout", client_secret="x")).token()
    assert type(raised.value) is kind


def test_a_token_server_that_does_not_answer_is_a_transient_error() -> None:
    with token_server({}) as server:
        provider = _provider(server)
    with pytest.raises(TransientError, match="did not issue a token"):
        provider.token()
