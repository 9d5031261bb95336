"""Addresses of a node's listeners, as a starting node opens them, and the lines that apply to one of them.

Source: SocketServerConfigs.listenerListToEndPoints and AbstractConfig.valuesWithPrefixOverride.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_DEFAULT = "PLAINTEXT://:9092"
_LISTENER = re.compile(r"([^:/\s]+)://(.*):(-?\d+)")
_PREFIX = re.compile(r"listener\.name\.[^.]+\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One listener, as a starting node opens it or connects to it. `protocol`: security.protocol in upper case.

    `address`: host and port at which clients reach it, the advertised one if there is one; the host is empty for every
    address of the machine. `is_own`: False for a listener of other nodes that this node only connects to: that of the
    controllers, on a broker.
    """

    name: str
    protocol: str
    address: str = ""
    is_own: bool = True
    is_inter_broker: bool = False
    is_of_controllers: bool = False

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def prefix(self) -> str:
        return f"listener.name.{self.name.lower()}."

    def setting(self, config: Mapping[str, str], name: str) -> tuple[str, str] | None:
        """Return key and value of the line that applies to this listener; None without one."""
        for key in (f"{self.prefix}{name}", name):
            if value := config.get(key, "").strip():
                return key, value
        return None

    def settings(self, config: Mapping[str, str], start: str) -> dict[str, str]:
        """Return the lines of `start` that apply to this listener, by key."""
        own = {key: value for key, value in config.items() if key.startswith(self.prefix + start)}
        hidden = {key.removeprefix(self.prefix) for key in own}
        general = {key: value for key, value in config.items() if key.startswith(start) and key not in hidden}
        return general | own


def base_name(key: str) -> str:
    """Return the name of a setting without the prefix of a listener."""
    return _PREFIX.sub("", key)


def endpoints_of(config: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Return the listeners of a node, and those of the controllers that a broker connects to."""
    protocols = dict(_pairs(config.get("listener.security.protocol.map", "")))
    advertised = dict(_addresses(config.get("advertised.listeners", "")))
    controllers = [name.strip() for name in config.get("controller.listener.names", "").split(",") if name.strip()]
    inter_broker = config.get("inter.broker.listener.name", "").strip() or (
        config.get("security.inter.broker.protocol", "").strip() or "PLAINTEXT"
    )

    def endpoint(name: str, address: str, *, is_own: bool) -> Endpoint:
        return Endpoint(
            name=name,
            protocol=protocols.get(name.upper(), name).upper(),
            address=advertised.get(name, address),
            is_own=is_own,
            is_inter_broker=name.upper() == inter_broker.upper(),
            is_of_controllers=name.upper() in {one.upper() for one in controllers},
        )

    own = dict(_addresses(config.get("listeners", "").strip() or _DEFAULT))
    others = [name for name in controllers if name.upper() not in {one.upper() for one in own}]
    return (
        *(endpoint(name, address, is_own=True) for name, address in own.items()),
        *(endpoint(name, "", is_own=False) for name in others),
    )


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(","):
        name, found, protocol = part.strip().partition(":")
        if found:
            yield name.strip().upper(), protocol.strip()


def _addresses(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(","):
        if found := _LISTENER.fullmatch(part.strip()):
            host = "" if found[2] in ("0.0.0.0", "[::]", "::") else found[2]  # noqa: S104 — compared, not opened
            yield found[1], f"{host}:{found[3]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerCertificate:
    """The certificate that a listener presents. `ends_at`: notAfter, epoch seconds; None: unknown, by `problem`."""

    address: str
    subject: str = ""
    ends_at: float | None = None
    problem: str = ""
