"""ClientSecurity: every client gets the same security, and no text form of it shows a secret."""

from __future__ import annotations

import json
import logging
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.files import write_whole
from kafka_rollout.client.security.client_security import ClientSecurity, SaslMechanism
from tests.integration.harness.security.secured import certificate

SECRET = "hunter2-very-secret"

SASL_SSL = {
    "bootstrap.servers": "localhost:9092",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "rollout",
    "sasl.password": SECRET,
    "ssl.ca.location": "/certs/ca.pem",
    "ssl.certificate.location": "/certs/client.pem",
    "ssl.key.location": "/certs/client.key",
    "ssl.key.password": f"{SECRET}-key",
}

OAUTH = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "rollout",
    "sasl.oauthbearer.client.secret": SECRET,
    "sasl.oauthbearer.token.endpoint.url": "https://idp.example.com/token",
    "sasl.oauthbearer.scope": "kafka",
    "https.ca.location": "/certs/idp.pem",
    "ssl.ca.location": "/certs/ca.pem",
}


def _secured() -> ClientSecurity:
    return ClientSecurity.from_airflow_connection_extra(SASL_SSL)


def test_an_empty_connection_is_plaintext() -> None:
    security = ClientSecurity.from_airflow_connection_extra({"bootstrap.servers": "localhost:9092"})
    assert security.confluent() == {"security.protocol": "PLAINTEXT"}


@pytest.mark.parametrize(("text", "checks"), [("HTTPS", True), ("https ", True), ("none", False), ("NONE", False)])
def test_names_in_certificates_are_compared_unless_the_connection_says_none(text: str, checks: bool) -> None:
    security = ClientSecurity.from_airflow_connection_extra({**SASL_SSL, "ssl.endpoint.identification.algorithm": text})
    assert security.check_hostname is checks


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({**SASL_SSL, "ssl.endpoint.identification.algorithm": "true"}, "neither https nor none"),
        ({**SASL_SSL, "ssl.endpoint.identification.algorithm": "foo"}, "neither https nor none"),
        ({**SASL_SSL, "security.protocol": 5}, "security.protocol that is no text"),
        ({**SASL_SSL, "sasl.oauthbearer.method": ["oidc"]}, "sasl.oauthbearer.method that is no text"),
        ({"ssl.ca.location": "/certs/ca.pem"}, "has ssl.ca.location and no security.protocol"),
        ({"security_protocol": "SSL"}, "has security_protocol, which nothing reads"),
        ({"extra__kafka__security.protocol": "SSL"}, "has extra__kafka__security.protocol, which nothing reads"),
        ({**SASL_SSL, "SSL_CA_LOCATION": "/certs/ca.pem"}, "has SSL_CA_LOCATION, which nothing reads"),
    ],
)
def test_a_connection_that_would_be_less_safe_than_it_says_is_refused(extra: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        ClientSecurity.from_airflow_connection_extra(extra)


def test_credentials_without_a_protocol_are_refused() -> None:
    with pytest.raises(UserError, match="has login and no security"):
        ClientSecurity.from_airflow_connection_extra({}, login="rollout", password=SECRET)


def test_confluent_gets_what_the_connection_says() -> None:
    expected = {key: value for key, value in SASL_SSL.items() if key != "bootstrap.servers"}
    assert _secured().confluent() == {**expected, "ssl.endpoint.identification.algorithm": "https"}


def test_the_mechanism_of_kafka_python_gets_the_same_in_its_own_names() -> None:
    assert _secured().sasl() == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "rollout",
        "sasl_plain_password": SECRET,
    }


def test_both_clients_take_the_settings() -> None:
    from confluent_kafka import Producer
    from kafka import KafkaAdminClient

    plain = ClientSecurity.from_airflow_connection_extra(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, login="rollout", password=SECRET
    )
    Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **plain.confluent()})
    assert set(_secured().sasl()) <= set(KafkaAdminClient.DEFAULT_CONFIG)


def test_tokens_are_requested_by_both_clients() -> None:
    security = ClientSecurity.from_airflow_connection_extra(OAUTH)
    assert security.confluent() == {**OAUTH, "ssl.endpoint.identification.algorithm": "https"}
    settings = security.sasl()
    assert {key for key in settings if key.startswith("sasl")} == {"sasl_mechanism", "sasl_oauth_token_provider"}
    assert settings["sasl_oauth_token_provider"] is security.sasl()["sasl_oauth_token_provider"]
    assert security.principal is None


@pytest.mark.parametrize("mechanism", [*SaslMechanism, "GSSAPI", "AWS_MSK_IAM"])
def test_the_mechanisms_are_those_of_both_client_libraries(mechanism: str) -> None:
    from confluent_kafka import KafkaException, Producer
    from kafka.net.sasl import get_sasl_mechanism

    assert get_sasl_mechanism(mechanism)
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "log_level": 0}
    user = {"bootstrap.servers": "127.0.0.1:1", "sasl.username": "rollout", "sasl.password": SECRET}
    try:
        Producer({**user, **settings})
        supported = True
    except KafkaException:
        supported = False
    assert supported is (mechanism in set(SaslMechanism))


def test_the_principal_is_the_user_or_the_subject_of_the_certificate(tmp_path: Path) -> None:
    certificate(tmp_path, "rollout")
    files = {"certificate_location": str(tmp_path / "rollout.pem"), "key_location": str(tmp_path / "rollout.key")}
    mutual = ClientSecurity.model_validate({"protocol": "SSL", **files})
    (tmp_path / "broken.pem").write_text("no certificate")
    broken = mutual.model_copy(update={"certificate_location": str(tmp_path / "broken.pem")})
    seen = [each.principal for each in (_secured(), mutual, broken, ClientSecurity())]
    assert seen == ["User:rollout", "User:CN=rollout", None, "User:ANONYMOUS"]


@pytest.mark.parametrize("attribute", [NameOID.EMAIL_ADDRESS, NameOID.SERIAL_NUMBER])
def test_a_subject_that_java_writes_in_hexadecimal_has_no_name(
    tmp_path: Path, attribute: x509.ObjectIdentifier
) -> None:
    # Java: User:1.2.840.113549.1.9.1=#160f...,CN=rollout
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rollout"), x509.NameAttribute(attribute, "7")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(subject, subject, key.public_key(), 7, now, now + timedelta(days=1))
    content = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (tmp_path / "own.pem").write_bytes(content)
    files = {"certificate_location": str(tmp_path / "own.pem"), "key_location": str(tmp_path / "own.key")}
    assert ClientSecurity.model_validate({"protocol": "SSL", **files}).principal is None


def test_the_test_traffic_may_have_a_user_of_its_own() -> None:
    traffic = ClientSecurity.model_validate(
        {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "a", "password": "b"}
    )
    assert _secured().model_copy(update={"traffic": traffic}).of_traffic is traffic
    assert _secured().of_traffic == _secured()


@pytest.mark.parametrize("extra", [["security.protocol"], [1], "SSL", None, 5])
def test_an_extra_that_is_no_object_is_refused_in_one_sentence(extra: object) -> None:
    with pytest.raises(UserError, match="extra is no JSON object"):
        ClientSecurity.from_airflow_connection_extra(extra)


def test_login_and_password_stand_in_for_the_extra() -> None:
    extra = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "plain"}
    settings = ClientSecurity.from_airflow_connection_extra(extra, login="rollout", password=SECRET).confluent()
    assert (settings["sasl.username"], settings["sasl.password"]) == ("rollout", SECRET)


@pytest.mark.parametrize(("algorithm", "checks"), [("https", True), ("none", False), ("", True)])
def test_endpoint_identification_is_librdkafkas(algorithm: str, checks: bool) -> None:
    extra = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": algorithm}
    assert ClientSecurity.from_airflow_connection_extra(extra).check_hostname is checks


@pytest.mark.parametrize("form", [repr, str, lambda s: f"{s}", lambda s: s.model_dump_json(), lambda s: repr(vars(s))])
def test_no_text_form_shows_a_secret(form: object) -> None:
    assert SECRET not in form(_secured())  # type: ignore[operator]


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"security.protocol": "SASL_SSL", "sasl.password": SECRET}, "sasl.mechanism"),
        ({"security.protocol": "SSL_SASL", "sasl.password": SECRET}, "protocol"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI", "sasl.password": SECRET}, "support GSSAPI; use"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}, "support AWS_MSK_IAM; use PLAIN"),
        ({**OAUTH, "sasl.oauthbearer.token.endpoint.url": ""}, "sasl.oauthbearer.token.endpoint.url"),
        ({**OAUTH, "sasl.oauthbearer.token.endpoint.url": "ftp://idp"}, "token_url"),
        ({**OAUTH, "sasl.oauthbearer.method": "default"}, "must be oidc"),
        ({**SASL_SSL, "sasl.oauthbearer.token.endpoint.url": "http://idp"}, "OAUTHBEARER, and no other mechanism"),
        ({"security.protocol": "SSL", "ssl.certificate.location": "/c.pem"}, "ssl.key.location"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "/c.jks"}, "ssl.keystore.location"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.password": {"a": SECRET}}, "password"),
    ],
)
def test_an_unusable_connection_is_refused_by_name_without_its_secret(extra: dict[str, str], named: str) -> None:
    with pytest.raises(UserError) as caught:
        ClientSecurity.from_airflow_connection_extra(extra)
    assert named in str(caught.value)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_file_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "security.json"
    write_whole(path, _secured().to_json().encode())
    assert ClientSecurity.from_file(path).confluent() == _secured().confluent()


def test_the_controllers_listener_may_have_settings_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "security.json"
    controllers = {"protocol": "SSL", "ca_location": "/certs/ca.pem", "key_password": SECRET}
    path.write_text(json.dumps({"controllers": controllers}))
    path.chmod(0o600)
    security = ClientSecurity.from_file(path)
    assert (security.uses_tls, security.of_controllers.uses_tls) == (False, True)
    assert SECRET not in f"{security!r} {security.model_dump_json()}"
    assert _secured().of_controllers == _secured()


def test_the_file_for_those_who_speak_to_brokers_holds_nothing_of_the_controllers(tmp_path: Path) -> None:
    path = tmp_path / "security.json"
    write_whole(path, ClientSecurity(controllers=_secured()).to_json().encode())
    assert SECRET not in path.read_text()
    assert ClientSecurity.from_file(path) == ClientSecurity()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "security.json"
    write_whole(path, _secured().to_json().encode())
    path.chmod(mode)
    with pytest.raises(UserError, match="chmod 600"):
        ClientSecurity.from_file(path)


@pytest.mark.parametrize("content", ["{", '{"protocol": "NONE"}', '{"colour": "red"}', "[]"])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, content: str) -> None:
    path = tmp_path / "security.json"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(UserError, match=r"security\.json"):
        ClientSecurity.from_file(path)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        ClientSecurity.from_file(tmp_path / "none.json")


def test_it_pickles_for_the_processes_that_need_it() -> None:
    assert pickle.loads(pickle.dumps(_secured())) == _secured()  # noqa: S301


def test_authentication_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Our own connection to a node, down to DEBUG: the bytes of a SASL/PLAIN exchange hold the password."""
    from kafka_rollout.client.connection import NodeConnection
    from tests.unit.client.kafka_listener import accepting_plain

    caplog.set_level(logging.DEBUG)
    security = ClientSecurity.from_airflow_connection_extra(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, login="rollout", password=SECRET
    )
    with accepting_plain() as listener:
        connection = NodeConnection(listener.address, "Node 1", security)
        connection.ask(listener.question(), timeout_s=60)
        connection.close()
    assert listener.tokens == [f"rollout\0rollout\0{SECRET}".encode()]
    assert SECRET not in caplog.text


def test_json_of_the_file_is_plain_enough_to_be_written_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "security.json"
    path.write_text(
        json.dumps(
            {"protocol": "SASL_PLAINTEXT", "mechanism": "SCRAM-SHA-256", "username": "rollout", "password": SECRET}
        )
    )
    path.chmod(0o600)
    assert ClientSecurity.from_file(path).sasl()["sasl_plain_password"] == SECRET
