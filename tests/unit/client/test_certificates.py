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
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from kafka.protocol.metadata import ApiVersionsRequest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.system.free_ports import HOST
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.client.certificates import read_certificates
from kafka_rollout.client.connection import NodeConnection
from kafka_rollout.client.security.client_security import ClientSecurity, SecurityProtocol
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role
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
        ("ended", "ca.pem", "Renew the certificate of the listener, or the one"),
        ("elsewhere", "ca.pem", "Use an address that the certificate names (subjectAltName)"),
        (
            "node",
            "other/ca.pem",
            "Correct the CA file (ssl.truststore.location or ca_location of --command-config",
        ),
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


def issued_by_intermediate(folder: Path, *, ends_in: datetime.timedelta) -> Path:
    """Write a certificate for 90 days with that of the authority that issued it, which ends before."""
    root, root_key = authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuing")])
    issuing = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(root.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=7))
        .not_valid_after(now + ends_in)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(root_key, hashes.SHA256())
    )
    (folder / "issuing.pem").write_bytes(issuing.public_bytes(serialization.Encoding.PEM))
    certificate(folder, "leaf", (issuing, key))
    store = folder / "leaf.store"
    store.write_bytes(store.read_bytes() + issuing.public_bytes(serialization.Encoding.PEM))
    return store


def test_the_authority_in_the_chain_of_a_listener_ends_too(folder: Path) -> None:
    now = datetime.datetime.now(datetime.UTC).timestamp()
    with serving_tls(issued_by_intermediate(folder, ends_in=HOUR)) as address:
        (found,) = read_certificates([address], timeout_s=10)
    assert found.subject == "CN=issuing"
    assert now < (found.ends_at or 0) < now + 3700
    with serving_tls(issued_by_intermediate(folder, ends_in=200 * 24 * HOUR)) as address:
        (found,) = read_certificates([address], timeout_s=10)
    assert found.subject == "CN=leaf"


def test_a_ca_file_without_the_root_has_a_remedy_that_is_right(folder: Path) -> None:
    """Java's PKIX takes each entry of a truststore as an anchor; OpenSSL before Python 3.13 and librdkafka do not."""
    security = ClientSecurity(protocol=SecurityProtocol.SSL, ca_location=str(folder / "issuing.pem"))
    with serving_tls(issued_by_intermediate(folder, ends_in=HOUR)) as address:
        connection = NodeConnection(address, "Node 1", security)
        with pytest.raises(RefusedError, match="is not trusted") as refused:
            connection.ask(ApiVersionsRequest(), timeout_s=10)
    assert refused.value.remedy.startswith("Add the certificate of the root to the CA file")


def test_the_remedy_of_a_weak_authority_does_not_stop_at_the_certificate_of_the_listener(folder: Path) -> None:
    """Python asks OpenSSL for its security level 2, which needs 112 bits of each key."""
    root, _ = authority(folder)
    key = rsa.generate_private_key(65537, 1024)  # noqa: S505 - the weak key is what the test is about
    weak = (
        x509.CertificateBuilder()
        .subject_name(root.subject)
        .issuer_name(root.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(root.not_valid_before_utc)
        .not_valid_after(root.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "weak.pem").write_bytes(weak.public_bytes(serialization.Encoding.PEM))
    security = ClientSecurity(protocol=SecurityProtocol.SSL, ca_location=str(folder / "weak.pem"))
    certificate(folder, "issued", (weak, key))
    with serving_tls(folder / "issued.store") as address:
        connection = NodeConnection(address, "Node 1", security)
        with pytest.raises(RefusedError, match="is not trusted: CA certificate key too weak") as refused:
            connection.ask(ApiVersionsRequest(), timeout_s=10)
    assert "or of the authority that issued it" in refused.value.remedy


def test_the_end_of_a_certificate_is_read_although_nobody_trusts_it(folder: Path) -> None:
    with serving_tls(folder / "ended.store") as ended, serving_tls(folder / "node.store") as node:
        first, second = read_certificates([ended, node], timeout_s=10)
    now = datetime.datetime.now(datetime.UTC).timestamp()
    assert (first.subject, second.subject) == ("CN=ended", "CN=node")
    assert first.ends_at is not None
    assert second.ends_at is not None
    assert first.ends_at < now < second.ends_at < now + 3700


def test_a_listener_for_clients_with_certificates_presents_its_own(folder: Path) -> None:
    with serving_tls(folder / "node.store", client_ca=folder / "ca.pem") as address:
        (found,) = read_certificates([address], timeout_s=10)
    assert (found.subject, found.problem) == ("CN=node", "")


def test_an_address_without_tls_has_a_problem() -> None:
    with socket.create_server((HOST, 0)) as server:

        def hang_up() -> None:
            server.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        address = f"{HOST}:{server.getsockname()[1]}"
        (found,) = read_certificates([address], timeout_s=10)
    assert (found.ends_at, found.address) == (None, address)
    assert found.problem
    (refused,) = read_certificates([address], timeout_s=10)
    assert "refused" in refused.problem.lower()


def test_the_addresses_of_this_client_are_read_where_it_speaks_tls(folder: Path) -> None:
    with serving_tls(folder / "node.store") as broker, serving_tls(folder / "ended.store") as controller:
        both = frozenset({Role.BROKER, Role.CONTROLLER})
        node = NodeSpec(node_id=1, name="n", roles=both, broker_address=broker, controller_address=controller)
        cluster = ClusterSpec(name="orders", nodes=(node,))
        tls, plain = ClientSecurity(protocol=SecurityProtocol.SSL), ClientSecurity()
        for security, expected in (
            (tls, ["CN=node", "CN=ended"]),
            (tls.model_copy(update={"controllers": plain}), ["CN=node"]),
            (plain, []),
        ):
            with KafkaAdmin(cluster, security) as admin:
                assert [one.subject for one in admin.certificates(node, ())] == expected
        with KafkaAdmin(cluster, plain) as admin:
            assert [one.subject for one in admin.certificates(node, [controller])] == ["CN=ended"]
