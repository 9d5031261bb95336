"""Conditions of a known defect, as advisories.json has them: on which clusters the defect appears.

Each is answered with yes, no or unknown for a cluster (planning/findings/advisories.py). All conditions of a defect
must be met.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingCondition:
    """The value of a setting on a node, or the default of the release, without regard to capital letters.

    One of.
    """

    kind: Literal["setting"]
    name: str
    any_of: tuple[str, ...] = ()
    """Values."""
    none_of: tuple[str, ...] = ()
    """Values."""
    entries: int | None = None
    """At least this number of entries in a list."""
    at_least: int | None = None
    """A number. A setting of listeners counts on each listener."""
    at_most: int | None = None
    """A number. A setting of listeners counts on each listener."""
    by_class: bool = False
    """The value is a class; whether a class that is not Kafka's meets the condition is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetting:
    """A value that is in effect for a topic: its own, else that of each broker, else the default of the release."""

    name: str
    """Of the topic."""
    of_brokers: str = ""
    """The name at the brokers (ServerTopicConfigSynonyms); empty: brokers have no value for it."""
    any_of: tuple[str, ...] = ()
    """Values."""
    at_least: int | None = None
    """A number."""

    def has(self, value: str) -> bool:
        if self.any_of and value.strip().lower() not in self.any_of:
            return False
        try:
            return self.at_least is None or int(value) >= self.at_least
        except ValueError:
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsCondition:
    """One topic has all of these values in effect."""

    kind: Literal["topics"]
    settings: tuple[TopicSetting, ...] = ()
    names: tuple[str, ...] = ()
    """Only of these topics; empty: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicCondition:
    """A broker, or all brokers together, have a dynamic value of one of these settings."""

    kind: Literal["dynamic"]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismCondition:
    """A listener of a node authenticates clients with one of these SASL mechanisms."""

    kind: Literal["mechanism"]
    any_of: tuple[str, ...]
    handlers: tuple[str, ...] = ()
    """Only with one of these classes of Kafka as callback handler, without the package; "" is the default. Whether
    another class than Kafka's meets the condition is unknown."""
    protocols: tuple[str, ...] = ()
    """Only on listeners with one of these; empty: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolCondition:
    """A listener of a node has one of these security protocols."""

    kind: Literal["protocol"]
    any_of: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberRange:
    """A number from `at_least` to below `below`."""

    at_least: int | None = None
    below: int | None = None

    def has(self, value: int) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.below is None or value < self.below)


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelCondition(NumberRange):
    """A finalized level of the cluster is in the range."""

    kind: Literal["level"]
    feature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaCondition(NumberRange):
    """The feature version of Java on a node is in the range."""

    kind: Literal["java"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsCondition:
    """The cluster has a group of one of these types: classic, consumer, share, streams."""

    kind: Literal["groups"]
    any_of: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsCondition:
    """The cluster has transactional ids."""

    kind: Literal["transactions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigratedCondition:
    """The cluster was migrated from ZooKeeper, or a migration has begun (ZkMigrationStateRecord)."""

    kind: Literal["migrated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleCondition:
    """A node has exactly these roles."""

    kind: Literal["role"]
    roles: Literal["broker", "controller", "broker,controller"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyCondition:
    """At least one of these is met."""

    kind: Literal["any"]
    of: tuple[AdvisoryCondition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnobservableCondition:
    """What neither nodes nor files show: the answer is always unknown."""

    kind: Literal["unobservable"]
    what: str
    """A noun phrase."""


AdvisoryCondition = (
    SettingCondition
    | TopicsCondition
    | DynamicCondition
    | MechanismCondition
    | ProtocolCondition
    | LevelCondition
    | JavaCondition
    | GroupsCondition
    | TransactionsCondition
    | MigratedCondition
    | RoleCondition
    | AnyCondition
    | UnobservableCondition
)
