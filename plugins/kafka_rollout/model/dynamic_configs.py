"""Configuration that is stored in the cluster's metadata, and its problems on another release.

A node reads this configuration when it starts, in addition to its own file. Kafka's command is kafka-configs.sh.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Type (`user`, `client-id`, `ip`) and name of each part of a quota's entity. Name None: the default entity."""


class ConfigKind(StrEnum):
    """The resource that a configuration belongs to. Values are words of sentences."""

    TOPIC = "topic"
    BROKER = "broker"
    ALL_BROKERS = "all brokers"  # the cluster-wide default of brokers, without a name
    CLIENT_METRICS = "client-metrics subscription"
    GROUP = "group"
    QUOTA = "quota"


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicConfigs:
    """Settings by name of the resource, without the values of files and defaults. A secret is HIDDEN.

    `topics`, `groups`, `subscriptions` (client metrics, KIP-714): by name. `brokers`: by node id. `all_brokers`: the
    cluster-wide default. `quotas`: by entity.
    """

    topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    brokers: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    all_brokers: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    subscriptions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)

    def of(self, kind: ConfigKind) -> Mapping[str, Mapping[str, str]]:
        """Return the settings of every resource of a kind that has any. All brokers together have the name ""."""
        everything: dict[ConfigKind, Mapping[str, Mapping[str, str]]] = {
            ConfigKind.TOPIC: self.topics,
            ConfigKind.BROKER: {str(node_id): values for node_id, values in self.brokers.items()},
            ConfigKind.ALL_BROKERS: {"": self.all_brokers},
            ConfigKind.CLIENT_METRICS: self.subscriptions,
            ConfigKind.GROUP: self.groups,
            ConfigKind.QUOTA: {
                entity_name(entity): {name: str(value) for name, value in values.items()}
                for entity, values in self.quotas.items()
            },
        }
        return {name: values for name, values in everything[kind].items() if values}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingValues:
    """One setting of brokers and topics, wherever it is set in a running cluster.

    `default`: the cluster-wide default in the metadata; None if there is none. `brokers`: the effective value by node
    id. `own`: the dynamic value of single nodes by node id. `topics`: the value of each topic that has its own.
    """

    default: str | None = None
    brokers: Mapping[int, str] = field(default_factory=dict)
    own: Mapping[int, str] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)


def entity_name(entity: QuotaEntity) -> str:
    """Return the entity as text: `user alice client-id (default)`."""
    return " ".join(f"{kind} {name or '(default)'}" for kind, name in entity)


class ConfigCheck(StrEnum):
    """The check of a release's own classes that a setting did not pass."""

    VALUE = "value"  # the class that loads the setting rejects its value
    TOGETHER = "together"  # the class accepts each value, but not all of them together
    STARTUP = "startup"  # the broker checks its defaults for logs before it loads any log, and rejects them
    UPDATE = "update"  # the topic is loaded, and rejected when the node applies it: tiered storage is disabled
    NAME = "name"  # the release does not have the setting
    MISSING = "missing"  # no check: the release does not have the class, or has changed it


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigProblem:
    """One setting of one resource that did not pass a check. `reason`: Kafka's own sentence, or the missing class.

    `settings`: name → value; more than one only if they are rejected together, none if the whole kind was not checked.
    """

    kind: ConfigKind
    name: str
    settings: tuple[tuple[str, str], ...]
    check: ConfigCheck
    reason: str
