"""SCRAM with a broker that would make a password easy to guess, or that answers with an error."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from kafka_rollout.base.errors import CredentialsError, RolloutError
from kafka_rollout.client.connection import NodeConnection
from kafka_rollout.client.security.client_security import ClientSecurity
from tests.unit.client.kafka_listener import Listener

SECURITY = ClientSecurity.model_validate(
    {"protocol": "SASL_PLAINTEXT", "mechanism": "SCRAM-SHA-256", "username": "rollout", "password": "s3cret"}
)


def refusal(first: str) -> tuple[RolloutError, list[bytes]]:
    """The error of a connection whose server begins with `first`, and what the client sent."""

    def answer(api_key: int, version: int, body: bytes) -> Any:
        if api_key == SaslHandshakeRequest.API_KEY:
            return SaslHandshakeResponse(version=version, error_code=0, mechanisms=["SCRAM-SHA-256"])
        if api_key == SaslAuthenticateRequest.API_KEY:
            sent.append(bytes(body))
            nonce = re.sub(rb"[^0-9a-f].*", b"", body.rpartition(b"r=")[2]).decode()
            text = first.format(nonce=nonce, salt=base64.b64encode(b"salt").decode())
            return SaslAuthenticateResponse(
                version=version, error_code=0, error_message="", auth_bytes=text.encode(), session_lifetime_ms=0
            )
        return listener.well(api_key, version, body)

    sent: list[bytes] = []
    listener = Listener(answer)
    try:
        with pytest.raises(RolloutError) as raised:
            NodeConnection(listener.address, "Broker 1", SECURITY).ask(listener.question(), timeout_s=10)
    finally:
        listener.close()
    return raised.value, sent


@pytest.mark.parametrize("iterations", ["1", "4095", "0", "-1", "", "x", "0004095", "٤٠٩٦٠"])
def test_too_few_iterations_get_no_proof_of_the_password(iterations: str) -> None:
    error, sent = refusal(f"r={{nonce}}more,s={{salt}},i={iterations}")
    assert isinstance(error, CredentialsError)
    assert "Fewer than 4,096 do not protect the password" in str(error)
    assert len(sent) == 1, "the client sent its name alone"


def test_an_error_of_the_server_is_one_sentence() -> None:
    error, _ = refusal("e=other-error")
    assert isinstance(error, CredentialsError)
    assert "refused the authentication of user rollout (SCRAM-SHA-256): other-error." in str(error)


@pytest.mark.parametrize("first", ["", "r={nonce}", "s={salt},i=4096", "nothing", "i=4096"])
def test_an_answer_without_its_fields_is_a_sentence(first: str) -> None:
    error, sent = refusal(first)
    assert str(error)
    assert len(sent) == 1


@pytest.mark.parametrize(
    ("offered", "remedy"),
    [
        (["GSSAPI"], "not with Kerberos or a class of your own. Add one of them to sasl.enabled.mechanisms"),
        (
            ["GSSAPI", "PLAIN", "SCRAM-SHA-512"],
            "Set sasl.mechanism, or mechanism, to PLAIN or SCRAM-SHA-512 (--command-config; in Airflow ",
        ),
    ],
)
def test_a_listener_without_the_mechanism_names_what_this_tool_can_use(offered: list[str], remedy: str) -> None:
    def answer(api_key: int, version: int, body: bytes) -> Any:
        if api_key == SaslHandshakeRequest.API_KEY:
            return SaslHandshakeResponse(version=version, error_code=33, mechanisms=offered)
        return listener.well(api_key, version, body)

    listener = Listener(answer)
    try:
        with pytest.raises(CredentialsError) as raised:
            NodeConnection(listener.address, "Broker 1", SECURITY).ask(listener.question(), timeout_s=10)
    finally:
        listener.close()
    said = f"Broker 1 does not offer SASL mechanism SCRAM-SHA-256. It offers {', '.join(offered)}."
    assert raised.value.sentence == said
    assert remedy in raised.value.remedy
