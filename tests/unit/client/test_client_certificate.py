"""What a connection says when a listener requires a client certificate (ssl.client.auth=required)."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import SecretStr

from kafka_rollout.base.errors import CredentialsError, RefusedError
from kafka_rollout.client.connection import NodeConnection, _tls_context
from kafka_rollout.client.security.carried_security import file_in_memory
from kafka_rollout.client.security.client_security import ClientSecurity, SecurityProtocol
from tests.unit.client.kafka_listener import Listener

NAME = "localhost"


def self_signed(folder: Path, name: str) -> tuple[str, str]:
    """Return the paths of a certificate for localhost and of its key, as PEM files."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    return str(folder / f"{name}.pem"), str(folder / f"{name}.key")


@pytest.mark.parametrize("password", [None, "wrong"])
def test_an_encrypted_key_without_its_password_is_named_and_openssl_asks_nobody(
    tmp_path: Path, password: str | None
) -> None:
    certificate, path = self_signed(tmp_path, "own")
    key = serialization.load_pem_private_key(Path(path).read_bytes(), None)
    encrypted = serialization.BestAvailableEncryption(b"right")
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encrypted
    Path(path).write_bytes(key.private_bytes(*form))
    secret = None if password is None else SecretStr(password)
    for location, named in ((path, f"in {path}"), (file_in_memory(Path(path).read_bytes()), "of the settings")):
        security = ClientSecurity(
            protocol=SecurityProtocol.SSL,
            certificate_location=certificate,
            key_location=location,
            key_password=secret,
        )
        with pytest.raises(CredentialsError) as raised:
            _tls_context(security)
        if password is None:
            assert raised.value.sentence == f"The private key {named} is encrypted, and its password is not set."
            assert "Set ssl.key.password" in raised.value.remedy
        else:
            assert "ssl.key.password must be that of the key" in raised.value.remedy
            assert "/proc/" not in raised.value.sentence


@contextmanager
def listening(certificate: str, key: str, trusted: str) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(trusted)
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            tls = context.wrap_socket(server.accept()[0], server_side=True, do_handshake_on_connect=False)
            with suppress(OSError):
                tls.do_handshake()
            with socket.socket(fileno=tls.detach()) as plain, suppress(OSError):  # the client reads the alert first
                plain.shutdown(socket.SHUT_WR)
                while plain.recv(4096):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"{NAME}:{server.getsockname()[1]}"
        thread.join(10)


@pytest.mark.parametrize(
    ("own", "sentence", "remedy"),
    [
        (None, "requires a client certificate, and none was given", "ssl.keystore.location"),
        ("stranger", "refused the client certificate", "truststore"),
    ],
)
def test_a_listener_that_requires_another_certificate_is_invalid_input(
    tmp_path: Path, own: str | None, sentence: str, remedy: str
) -> None:
    certificate, key = self_signed(tmp_path, "broker")
    pair = self_signed(tmp_path, own) if own else (None, None)
    security = ClientSecurity(
        protocol="SSL", ca_location=certificate, certificate_location=pair[0], key_location=pair[1]
    )
    with listening(certificate, key, certificate) as address:
        connection = NodeConnection(address, "Node 1", security)
        with pytest.raises(RefusedError) as refused:
            connection.ask(Listener.question(), timeout_s=10.0)
        connection.close()
    assert isinstance(refused.value, CredentialsError)
    assert (refused.value.exit_code, sentence in refused.value.sentence) == (2, True), refused.value
    assert remedy in refused.value.remedy
