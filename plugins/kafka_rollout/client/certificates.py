"""Certificates that listeners present, read in the TLS handshake: without credentials, and without trusting them."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable

from cryptography import x509

from kafka_rollout.model.listeners import ListenerCertificate


def read_certificates(addresses: Iterable[str], *, timeout_s: float) -> tuple[ListenerCertificate, ...]:
    """Return the certificate of each address (`host:port`), or why it was not read.

    Nothing is sent after the handshake. A listener that requires a certificate of its clients still presents its own
    with TLS 1.3.
    """
    return tuple(_read(address, timeout_s) for address in addresses)


def _read(address: str, timeout_s: float) -> ListenerCertificate:
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # a certificate that ended is read too
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # nothing is sent, so an old key is no risk here
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=host.strip("[]") or None) as secured,
        ):
            content = secured.getpeercert(binary_form=True)
        found = x509.load_der_x509_certificate(content or b"")
        ends_at, subject = found.not_valid_after_utc.timestamp(), found.subject.rfc4514_string()
    except ssl.SSLError as error:
        words = (error.reason or "the connection was closed").replace("_", " ").lower()
        return ListenerCertificate(address=address, problem=f"the TLS handshake failed: {words}")
    except (OSError, ValueError) as error:
        return ListenerCertificate(address=address, problem=str(error) or type(error).__name__)
    return ListenerCertificate(address=address, subject=subject, ends_at=ends_at)
