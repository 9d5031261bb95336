"""The properties of a node for Kafka's own classes: without config providers, and with errors without secrets.

The classes would resolve `${provider:path:key}` with the environment and the files of this process. So a setting with
such a reference has the release's default; one that KafkaConfig requires, or compares with others, has a neutral value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kafka_rollout.model.configs import (
    is_provider_setting,
    literal_settings,
    unresolved_settings,
)
from kafka_rollout.releases.jvm.jvm import Jvm

KAFKA_CONFIG = "kafka.server.KafkaConfig"
HIDDEN_VALUE = "[hidden]"

_ROLES = "process.roles"
_NODE_ID = "node.id"
_VOTERS = "controller.quorum.voters"
_LISTENERS = (
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "controller.listener.names",
    "control.plane.listener.name",
    "early.start.listeners",
)
_VOTER = re.compile(r"(\d+)@")
_PREFIX = re.compile(r"^listener\.name\.[^.]*\.")
_UNTYPED_LENGTH = 8  # a shorter value of a setting without a type, such as "true", is also an ordinary word


def neutral_properties(config: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration without config providers: nothing in it is resolved on this machine."""
    lines = literal_settings(config)
    missing = set(unresolved_settings(config))
    if not missing:
        return lines
    if _ROLES in missing:
        lines[_ROLES] = "broker,controller"
        missing |= {_VOTERS, *_LISTENERS}  # they depend on the roles
    roles = {role.strip() for role in lines.get(_ROLES, "").split(",")}
    if missing & {_NODE_ID, "broker.id"}:
        lines.pop("broker.id", None)
        lines.setdefault(_NODE_ID, str(_any_id(lines.get(_VOTERS, ""), is_controller="controller" in roles)))
    if _VOTERS in missing:
        own = int(lines.get(_NODE_ID) or lines.get("broker.id", "0"))
        lines[_VOTERS] = f"{own if 'controller' in roles else own + 1}@localhost:9093"
    if missing.intersection(_LISTENERS):
        kept = {name: value for name, value in lines.items() if name not in _LISTENERS}
        addresses = {"broker": "PLAINTEXT://localhost:9092", "controller": "CONTROLLER://localhost:9093"}
        listeners = ",".join(address for role, address in addresses.items() if role in roles)
        lines = {**kept, "controller.listener.names": "CONTROLLER", "listeners": listeners}
    if "log.dirs" in missing:
        lines.pop("cordoned.log.dirs", None)  # they are some of log.dirs
    return lines


def java_properties(jvm: Jvm, config: Mapping[str, str]) -> Any:
    """Return java.util.Properties of the neutral configuration of a node."""
    return plain_properties(jvm, neutral_properties(config))


def plain_properties(jvm: Jvm, settings: Mapping[str, str]) -> Any:
    """Return java.util.Properties without config providers: without them Kafka's classes resolve no reference.

    Every call of these classes gets its values here.
    """
    properties = jvm.packages.java.util.Properties()
    for name, value in settings.items():
        if not is_provider_setting(name):
            properties.setProperty(name, value)
    return properties


def config_definitions(jvm: Jvm) -> Any:
    """Return the ConfigDef of KafkaConfig. Before 3.5 only the Scala object itself shows it, in 3.3 not to others."""
    config = jvm.packages.java.lang.Class.forName(f"{KAFKA_CONFIG}$")
    methods = (one for one in config.getDeclaredMethods() if one.getReturnType().getSimpleName() == "ConfigDef")
    definition = next(one for one in methods if one.getParameterCount() == 0)
    definition.setAccessible(True)
    return jvm.call(definition, config.getField("MODULE$").get(None))


def secret_values(jvm: Jvm, configs: Iterable[Mapping[str, str]]) -> frozenset[str]:
    """Return the values that no sentence can contain: passwords, and long values of settings that have no type."""
    pairs = {(name, value) for config in configs for name, value in config.items() if value}
    keys = config_definitions(jvm).configKeys()
    types: dict[str, str | None] = {}
    for name in {name for name, _ in pairs}:
        found = keys.get(_PREFIX.sub("", name))
        # The types of Kafka's own ConfigDef: PASSWORD is the only one whose values are hidden.
        types[name] = None if found is None else str(found.type().name())
    return frozenset(
        value
        for name, value in pairs
        if types[name] == "PASSWORD" or (types[name] is None and len(value) >= _UNTYPED_LENGTH)
    )


def without_secrets(sentence: str, secrets: Iterable[str]) -> str:
    """Return a sentence of Kafka's classes with every secret replaced."""
    for secret in sorted(secrets, key=len, reverse=True):
        # Short passwords are replaced as whole words only, so that the sentence stays readable.
        sentence = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN_VALUE, sentence)
    return sentence


def _any_id(voters: str, *, is_controller: bool) -> int:
    ids = [int(number) for number in _VOTER.findall(voters)]
    if is_controller:
        return ids[0] if ids else 1
    return max(ids, default=0) + 1
