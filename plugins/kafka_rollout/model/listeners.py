"""Listeners of a node, by its configuration: where it serves, who authenticates there, and how it logs in to others.

Source: AbstractKafkaConfig and SocketServerConfigs of Kafka (`listener.name.<name>.` overrides a setting, KIP-103;
`listener.name.<name>.<mechanism>.` overrides one of SASL, KIP-226) and AbstractConfig.valuesWithPrefixOverride.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kafka_rollout.model.configs import is_reference

_LISTENERS, _MAP, _ADVERTISED = "listeners", "listener.security.protocol.map", "advertised.listeners"
_CONTROLLERS, _ROLES = "controller.listener.names", "process.roles"
_INTER_BROKER, _INTER_BROKER_PROTOCOL = "inter.broker.listener.name", "security.inter.broker.protocol"
_ENABLED = "sasl.enabled.mechanisms"
_OF_BROKERS, _OF_CONTROLLERS = "sasl.mechanism.inter.broker.protocol", "sasl.mechanism.controller.protocol"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_DEFAULT, _DEFAULT_MECHANISM = "PLAINTEXT://:9092", "GSSAPI"
_ADDRESS = re.compile(r"(.*):(-?\d+)")
_PREFIX = re.compile(r"listener\.name\.[^.]+\.")
_LOGIN = "sasl.jaas.config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listener of a node, or (`is_own` is False) one of the controllers that a broker only connects to."""

    name: str
    """In upper case."""
    protocol: str
    """Such as SASL_SSL; empty if unknown."""
    settings: Mapping[str, str]
    """Those of the node without a prefix, with the listener's own in their place."""
    mechanisms: tuple[str, ...] = ()
    """Of SASL that clients can use, in upper case; empty without SASL."""
    address: str = ""
    """Host and port at which clients reach it, the advertised one if there is one; the host is empty for every address
    of the machine."""
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

    @property
    def login_mechanisms(self) -> tuple[str, ...]:
        """The mechanisms for which a start loads a login module: of clients, and of the node's own logins."""
        own = ((self.is_inter_broker, _OF_BROKERS), (self.is_of_controllers, _OF_CONTROLLERS))
        logins = (self.settings.get(name, _DEFAULT_MECHANISM).strip().upper() for applies, name in own if applies)
        return tuple(dict.fromkeys((*self.mechanisms, *(logins if self.uses_sasl else ()))))

    @property
    def reads_login_file(self) -> bool:
        """Whether a mechanism has no line with its login module, or may have none: its start reads the JAAS file
        (JaasContext)."""
        unknown = any(is_reference(self.settings.get(name, "")) for name in (_ENABLED, _OF_BROKERS, _OF_CONTROLLERS))
        without = any(f"{one.lower()}.{_LOGIN}" not in self.settings for one in self.login_mechanisms)
        return self.uses_sasl and (unknown or without)

    def setting(self, mechanism: str, name: str) -> str:
        """Return a setting of SASL for one mechanism; empty if it is not set."""
        return self.settings.get(f"{mechanism.lower()}.{name}", self.settings.get(name, "")).strip()

    def line(self, config: Mapping[str, str], name: str) -> tuple[str, str] | None:
        """Return key and value of the line that applies to this listener; None without one."""
        for key in (f"{self.prefix}{name}", name):
            if value := config.get(key, "").strip():
                return key, value
        return None

    def lines(self, config: Mapping[str, str], start: str) -> dict[str, str]:
        """Return the lines of settings that begin with `start` and apply to this listener, by key."""
        own = {key: value for key, value in config.items() if key.startswith(self.prefix + start)}
        hidden = {key.removeprefix(self.prefix) for key in own}
        general = {key: value for key, value in config.items() if key.startswith(start) and key not in hidden}
        return general | own


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """The listeners of a node."""

    served: tuple[Listener, ...]
    others: tuple[Listener, ...]
    """Of the controllers, that a broker connects to."""
    logs_in: tuple[str, ...]
    """Protocols with which the node connects to brokers and controllers."""
    unknown: tuple[str, ...] = ()
    """Settings whose values config providers have, so that some listeners are unknown."""

    @property
    def all(self) -> tuple[Listener, ...]:
        return (*self.served, *self.others)

    @property
    def protocols(self) -> frozenset[str]:
        return frozenset(one.protocol for one in self.served)

    @property
    def mechanisms(self) -> frozenset[str]:
        return frozenset(mechanism for one in self.served for mechanism in one.mechanisms)

    @property
    def logs_in_with_sasl(self) -> bool:
        return any(protocol.startswith("SASL") for protocol in self.logs_in)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerCertificate:
    """The certificate that a listener presents."""

    address: str
    subject: str = ""
    ends_at: float | None = None
    """notAfter, epoch seconds; None: unknown, by `problem`."""
    problem: str = ""


def base_name(key: str) -> str:
    """Return the name of a setting without the prefix of a listener."""
    return _PREFIX.sub("", key)


def find_listeners(config: Mapping[str, str]) -> Listeners:
    """Return the listeners of a node with this configuration (setting → value)."""
    wanted = (_LISTENERS, _MAP, _ADVERTISED, _CONTROLLERS, _ROLES, _INTER_BROKER, _INTER_BROKER_PROTOCOL)
    unknown = [name for name in wanted if name != _ADVERTISED and is_reference(config.get(name, ""))]
    known = {name: "" if is_reference(config.get(name, "")) else config.get(name, "") for name in wanted}
    protocols = {name: name for name in _PROTOCOLS}
    controllers = [name.upper() for name in _split(known[_CONTROLLERS])]
    if not config.get(_MAP, "").strip():  # KRaft's default (effectiveListenerSecurityProtocolMap)
        protocols |= {name: "PLAINTEXT" for name in controllers if name not in protocols}
    protocols |= {name: protocol.upper() for name, protocol in _pairs(known[_MAP])}
    roles = set(_split(known[_ROLES]))
    inter_broker = known[_INTER_BROKER].strip().upper() or known[_INTER_BROKER_PROTOCOL].strip().upper() or "PLAINTEXT"
    has_default = not known[_LISTENERS].strip() and _LISTENERS not in unknown and "controller" not in roles
    own = dict(_addresses(_DEFAULT if has_default else known[_LISTENERS]))
    advertised = dict(_addresses(known[_ADVERTISED]))

    def listener(name: str, *, is_own: bool) -> Listener:
        protocol, settings = protocols.get(name, ""), _settings(name, config)
        return Listener(
            name=name,
            protocol=protocol,
            settings=settings,
            mechanisms=_mechanisms(protocol, settings) if is_own else (),
            address=advertised.get(name, own.get(name, "")) if is_own else "",
            is_own=is_own,
            is_inter_broker=name == inter_broker,
            is_of_controllers=name in controllers,
        )

    served = tuple(listener(name, is_own=True) for name in own)
    others = tuple(listener(name, is_own=False) for name in dict.fromkeys(controllers) if name not in own)
    unknown += sorted(key for key, value in config.items() if _is_of(key, _ENABLED) and is_reference(value) and served)
    logs_in = [protocols.get(inter_broker, "")] if "broker" in roles or not roles else []
    logs_in += [protocols.get(controllers[0], "")] if controllers else []
    return Listeners(served=served, others=others, logs_in=tuple(logs_in), unknown=tuple(unknown))


def _settings(name: str, config: Mapping[str, str]) -> dict[str, str]:
    """A line of SASL for one mechanism counts only with the prefix of a listener (ChannelBuilders), and the prefix only
    in lower case (ListenerName.configPrefix)."""
    prefix = f"listener.name.{name.lower()}."
    own = {key[len(prefix) :]: value for key, value in config.items() if key.startswith(prefix)}
    general = {
        key: value
        for key, value in config.items()
        if not key.startswith("listener.name.") and not key.partition(".")[2].startswith("sasl.")
    }
    return general | own


def _mechanisms(protocol: str, settings: Mapping[str, str]) -> tuple[str, ...]:
    enabled = settings.get(_ENABLED, _DEFAULT_MECHANISM)
    has_sasl = protocol in ("", "SASL_PLAINTEXT", "SASL_SSL") and not is_reference(enabled)
    return tuple(one.upper() for one in _split(enabled)) if has_sasl else ()


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for entry in _split(text):
        name, _, protocol = entry.partition(":")
        yield name.strip().upper(), protocol.strip()


def _addresses(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each listener and its address; empty if it has none."""
    for entry in _split(text):
        name, _, address = entry.partition("://")
        found = _ADDRESS.fullmatch(address.strip())
        host = found[1] if found and found[1] not in ("0.0.0.0", "[::]", "::") else ""  # noqa: S104 — compared only
        yield name.strip().upper(), f"{host}:{found[2]}" if found else ""


def _is_of(key: str, setting: str) -> bool:
    return key == setting or key.endswith(f".{setting}")


def _split(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]
