"""Tokens for OAUTHBEARER: requested from the token server, kept, renewed, and refused by name without the secret."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.kafka.client.security import client_security
from kafka_rollout.kafka.client.security.client_security import TokenProvider
from tests.integration.harness.security.token_server import TokenServer, token_server

SECRET = "a secret with: colons"


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server({"rollout": SECRET}) as found:
        yield found


def _provider(server: TokenServer, secret: str = SECRET) -> TokenProvider:
    return TokenProvider(server.url, "rollout", secret, "kafka")


def test_a_token_is_used_until_most_of_its_lifetime_is_over(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = _provider(server)
    assert provider.token() == provider.token()
    assert server.issued == {"rollout": 1}
    monkeypatch.setattr(client_security, "_USED_PART", 0.0)
    expired = _provider(server)
    expired.token()
    time.sleep(0.01)
    expired.token()
    assert server.issued == {"rollout": 3}


def test_a_refused_client_is_named_and_its_secret_is_not(server: TokenServer) -> None:
    with pytest.raises(RefusedError, match="refused client rollout") as refused:
        _provider(server, "wrong-and-secret").token()
    assert "wrong-and-secret" not in str(refused.value)


def test_a_token_server_that_does_not_answer_is_a_transient_error() -> None:
    with token_server({}) as server:
        provider = _provider(server)
    with pytest.raises(TransientError, match="did not issue a token"):
        provider.token()
