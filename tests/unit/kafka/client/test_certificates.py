"""Certificates of listeners, at real TLS servers: what the handshake shows, and a remedy by the cause."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kafka.protocol.metadata import ApiVersionsRequest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.system.free_ports import HOST
from kafka_rollout.kafka.client.connection import NodeConnection
from kafka_rollout.kafka.client.security.client_security import ClientSecurity, SecurityProtocol
from tests.integration.harness.security.secured import authority, certificate

HOUR = datetime.timedelta(hours=1)


@contextmanager
def serving_tls(store: Path, *, client_ca: Path | None = None) -> Iterator[str]:
    """A TLS server with a certificate; with `client_ca` it requires one of the client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(store)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server((HOST, 0)) as server:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    connection = server.accept()[0]
                    with connection, suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
                        secured.recv(1000)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"{HOST}:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    certificate(tmp_path, "ca")
    (tmp_path / "other").mkdir()
    certificate(tmp_path / "other", "ca")
    certificate(tmp_path, "ended", authority(tmp_path), ends_in=-HOUR)
    certificate(tmp_path, "node", authority(tmp_path), ends_in=HOUR)
    certificate(tmp_path, "elsewhere", authority(tmp_path), address="127.0.0.9")
    return tmp_path


@pytest.mark.parametrize(
    ("store", "ca", "remedy"),
    [
        ("ended", "ca.pem", "Renew the certificate of the listener, and restart"),
        ("elsewhere", "ca.pem", "Use an address that the certificate names (subjectAltName)"),
        ("node", "other/ca.pem", "Correct the CA file (--command-config; in Airflow the cluster's Connection)"),
    ],
)
def test_the_remedy_of_an_untrusted_certificate_names_its_cause(folder: Path, store: str, ca: str, remedy: str) -> None:
    security = ClientSecurity(protocol=SecurityProtocol.SSL, ca_location=str(folder / ca))
    with serving_tls(folder / f"{store}.store") as address:
        connection = NodeConnection(address, "Node 1", security)
        with pytest.raises(RefusedError, match="is not trusted") as refused:
            connection.ask(ApiVersionsRequest(), timeout_s=10)
    assert refused.value.remedy.startswith(remedy)
    others = {"Renew the certificate", "Use an address", "Correct the CA file"}
    assert sum(other in refused.value.remedy for other in others) == 1
