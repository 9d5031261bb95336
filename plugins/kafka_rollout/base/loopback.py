"""Names and addresses of the own machine."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Return whether a host, as in an URL or a listener, is the machine itself: 127.0.0.0/8, ::1 and their names."""
    name = host.strip("[]").rstrip(".").lower()
    if name in ("localhost", "ip6-localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
