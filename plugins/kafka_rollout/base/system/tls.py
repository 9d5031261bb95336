"""The context of each client that checks the certificate of a server, with the same rules on each version of Python."""

from __future__ import annotations

import ssl
from pathlib import Path

_ADDED = ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
"""Flags of Python 3.13. Java and librdkafka want a whole chain, and accept a root without keyUsage, such as that of
`openssl req -x509`."""


def trusting(ca_location: str | Path | None) -> ssl.SSLContext:
    """Return a context that trusts the CA file, by default the CAs of the machine. Raises OSError, also as SSLError."""
    context = ssl.create_default_context(cafile=ca_location)
    context.verify_flags &= ~_ADDED
    return context
