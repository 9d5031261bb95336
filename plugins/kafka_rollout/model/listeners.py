"""Listeners of a node, by its configuration: who authenticates there, and how the node itself logs in to others.

Source: AbstractKafkaConfig and SocketServerConfigs of Kafka (`listener.name.<name>.` overrides a setting, KIP-103;
`listener.name.<name>.<mechanism>.` overrides one of SASL, KIP-226).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kafka_rollout.model.configs import is_reference

_LISTENERS, _MAP = "listeners", "listener.security.protocol.map"
_CONTROLLERS, _ROLES = "controller.listener.names", "process.roles"
_INTER_BROKER, _INTER_BROKER_PROTOCOL = "inter.broker.listener.name", "security.inter.broker.protocol"
_ENABLED = "sasl.enabled.mechanisms"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_DEFAULT_MECHANISM = "GSSAPI"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listener of a node. `protocol`: such as SASL_SSL; empty if unknown. `mechanisms`: of SASL, in upper case; empty
    without SASL. `settings`: those of the node without a prefix, with the listener's own in their place.
    """

    name: str
    protocol: str
    mechanisms: tuple[str, ...]
    settings: Mapping[str, str]

    def setting(self, mechanism: str, name: str) -> str:
        """Return a setting of SASL for one mechanism; empty if it is not set."""
        return self.settings.get(f"{mechanism.lower()}.{name}", self.settings.get(name, "")).strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """The listeners of a node. `unknown`: settings whose values config providers have, so that some are unknown.

    `logs_in`: protocols with which the node connects to brokers and controllers.
    """

    served: tuple[Listener, ...]
    logs_in: tuple[str, ...]
    unknown: tuple[str, ...] = ()

    @property
    def protocols(self) -> frozenset[str]:
        return frozenset(one.protocol for one in self.served)

    @property
    def mechanisms(self) -> frozenset[str]:
        return frozenset(mechanism for one in self.served for mechanism in one.mechanisms)

    @property
    def logs_in_with_sasl(self) -> bool:
        return any(protocol.startswith("SASL") for protocol in self.logs_in)


def find_listeners(config: Mapping[str, str]) -> Listeners:
    """Return the listeners of a node with this configuration (setting → value)."""
    wanted = (_LISTENERS, _MAP, _CONTROLLERS, _ROLES, _INTER_BROKER, _INTER_BROKER_PROTOCOL)
    unknown = [name for name in wanted if is_reference(config.get(name, ""))]
    known = {name: "" if name in unknown else config.get(name, "") for name in wanted}
    protocols = {name: name for name in _PROTOCOLS}
    if not config.get(_MAP, "").strip():  # KRaft's default (effectiveListenerSecurityProtocolMap)
        protocols |= {
            name.upper(): "PLAINTEXT" for name in _split(known[_CONTROLLERS]) if name.upper() not in protocols
        }
    protocols |= {name: protocol.upper() for name, protocol in _pairs(known[_MAP])}
    roles = set(_split(known[_ROLES]))
    names = [entry.partition("://")[0].upper() for entry in _split(known[_LISTENERS])]
    if not names and _LISTENERS not in unknown and "controller" not in roles:
        names = ["PLAINTEXT"]
    served = tuple(_listener(name, protocols.get(name, ""), config) for name in names)
    unknown += sorted(key for key, value in config.items() if _is_of(key, _ENABLED) and is_reference(value) and served)
    return Listeners(served=served, logs_in=tuple(_logs_in(known, protocols, roles)), unknown=tuple(unknown))


def _listener(name: str, protocol: str, config: Mapping[str, str]) -> Listener:
    prefix = f"listener.name.{name.lower()}."
    own = {key[len(prefix) :]: value for key, value in config.items() if key.lower().startswith(prefix)}
    settings = {**{key: value for key, value in config.items() if not key.startswith("listener.name.")}, **own}
    enabled = settings.get(_ENABLED, _DEFAULT_MECHANISM)
    has_sasl = protocol in ("", "SASL_PLAINTEXT", "SASL_SSL") and not is_reference(enabled)
    mechanisms = tuple(one.upper() for one in _split(enabled)) if has_sasl else ()
    return Listener(name=name, protocol=protocol, mechanisms=mechanisms, settings=settings)


def _logs_in(known: Mapping[str, str], protocols: Mapping[str, str], roles: set[str]) -> Iterator[str]:
    """Yield the protocols of connections that the node opens: to the brokers, and to the controllers."""
    if "broker" in roles or not roles:
        name = known[_INTER_BROKER].strip().upper() or known[_INTER_BROKER_PROTOCOL].strip().upper() or "PLAINTEXT"
        yield protocols.get(name, "")
    if controllers := _split(known[_CONTROLLERS]):
        yield protocols.get(controllers[0].upper(), "")


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for entry in _split(text):
        name, _, protocol = entry.partition(":")
        yield name.strip().upper(), protocol.strip()


def _is_of(key: str, setting: str) -> bool:
    return key == setting or key.endswith(f".{setting}")


def _split(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]
