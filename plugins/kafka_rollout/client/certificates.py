"""Certificates that listeners present, read in the TLS handshake: without credentials, and without trusting them."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from kafka_rollout.model.listeners import ListenerCertificate

_DER = 2  # _ssl.ENCODING_DER


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
            content, sent = secured.getpeercert(binary_form=True), _sent(secured)
        found = _ends_first(x509.load_der_x509_certificate(content or b""), sent)
        ends_at, subject = found.not_valid_after_utc.timestamp(), found.subject.rfc4514_string()
    except ssl.SSLError as error:
        words = (error.reason or "the connection was closed").replace("_", " ").lower()
        return ListenerCertificate(address=address, problem=f"the TLS handshake failed: {words}")
    except (OSError, ValueError) as error:
        return ListenerCertificate(address=address, problem=str(error) or type(error).__name__)
    return ListenerCertificate(address=address, subject=subject, ends_at=ends_at)


def _sent(secured: ssl.SSLSocket) -> list[x509.Certificate]:
    """Return the chain that the listener sends; empty if this Python does not show it. Public from Python 3.13 on."""
    read = getattr(secured, "get_unverified_chain", None) or getattr(
        getattr(secured, "_sslobj", None), "get_unverified_chain", None
    )
    chain = (read() or []) if read is not None else []
    return [x509.load_der_x509_certificate(one if isinstance(one, bytes) else one.public_bytes(_DER)) for one in chain]


def _ends_first(own: x509.Certificate, sent: Iterable[x509.Certificate]) -> x509.Certificate:
    """Return the certificate of a listener or that of the authority that issued it, whichever ends first.

    A root does not count, nor an authority above: a client can know another certificate of it.
    """
    issuers = [one for one in sent if one.subject == own.issuer and one.subject != one.issuer and _issued(one, own)]
    return min((own, *issuers[:1]), key=lambda one: one.not_valid_after_utc)


def _issued(authority: x509.Certificate, own: x509.Certificate) -> bool:
    try:
        own.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
