"""Configuration: references to config providers, settings in the metadata, effective values and their comparison.

Only the node resolves references (KIP-297): the class, the files and the environment of a provider are those of its
host. A node reads the configuration in the metadata when it starts, in addition to its file. Kafka's command for it is
kafka-configs.sh.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from kafka_rollout.model.config_values import ValueType, same_value
from kafka_rollout.model.topology import NodeSpec, Role

NodeConfigs = Mapping[int, Mapping[str, str]]
"""Node id → setting → value."""
CONFIG_PROVIDERS = "config.providers"
_REFERENCE = re.compile(r"\$\{[^}]*:")  # every value that ConfigTransformer.DEFAULT_PATTERN matches, and some more

_OF_PROVIDER = re.compile(r"\$\{([^:}]+):(?:([^:}]*):)?([^:}]+)\}")
_KAFKAS = "org.apache.kafka.common.config.provider"


BYTE_ORDER_MARK = "\xef\xbb\xbf"
"""U+FEFF in UTF-8, as java.util.Properties reads it: in Latin-1, as a part of the first key."""


def is_reference(value: str) -> bool:
    """Return whether a value contains `${provider:`, so that the value of the setting is unknown."""
    return _REFERENCE.search(value) is not None


def environment_names(config: Mapping[str, str]) -> frozenset[str]:
    """Return the variables that a configuration takes from the environment of its process, as `${env:NAME}`."""
    return frozenset(name for _, _, name in _references(config, "EnvVarConfigProvider"))


def provider_classes(config: Mapping[str, str]) -> dict[str, str]:
    """Return setting → class of each config provider. A start makes all of them first, also one that no value names
    (AbstractConfig.instantiateConfigProviders)."""
    keys = (_class_of(name) for name in config.get(CONFIG_PROVIDERS, "").split(","))
    return {key: config[key].strip() for key in keys if key in config}


def provider_files(config: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return setting and path of each file that Kafka's own config providers read at a start."""
    in_files = ((key, path) for key, path, _ in _references(config, "FileConfigProvider"))
    in_folders = (
        (key, f"{path.rstrip('/')}/{name}") for key, path, name in _references(config, "DirectoryConfigProvider")
    )
    return tuple((key, path) for key, path in (*in_files, *in_folders) if path.startswith("/"))


def _references(config: Mapping[str, str], provider: str) -> Iterator[tuple[str, str, str]]:
    """Yield setting, path and name of each `${provider:path:name}` of one of Kafka's classes."""
    for key, value in config.items():
        for match in _OF_PROVIDER.finditer(value):
            if config.get(_class_of(match[1]), "").strip() == f"{_KAFKAS}.{provider}":
                yield key, match[2] or "", match[3]


def _class_of(provider: str) -> str:
    return f"{CONFIG_PROVIDERS}.{provider}.class"


def is_provider_setting(name: str) -> bool:
    """Return whether a setting configures the providers themselves."""
    return name == CONFIG_PROVIDERS or name.startswith(f"{CONFIG_PROVIDERS}.")


def unresolved_settings(config: Mapping[str, str]) -> tuple[str, ...]:
    """Return the settings whose values come from a config provider, sorted; without the providers' own settings."""
    return tuple(
        sorted(name for name, value in config.items() if is_reference(value) and not is_provider_setting(name))
    )


def literal_settings(config: Mapping[str, str]) -> dict[str, str]:
    """Return the settings whose values are in the file itself, without those of the config providers."""
    return {name: value for name, value in config.items() if not is_reference(value) and not is_provider_setting(name)}


def with_inventory_values(node: NodeSpec, config: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration with the node's id and roles of the inventory where a config provider has them."""
    roles = ",".join(role.value for role in Role if role in node.roles)
    known = {"node.id": str(node.node_id), "process.roles": roles}
    return {name: known[name] if name in known and is_reference(value) else value for name, value in config.items()}


def known_number(config: Mapping[str, str], name: str, default: int) -> int | None:
    """Return the number of a setting, `default` if it is not set; None if it is unknown or not a number."""
    try:
        return int(config.get(name, default))
    except ValueError:
        return None


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
    """Settings by name of the resource, without the values of files and defaults. A secret is HIDDEN."""

    topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By name."""
    brokers: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """By node id."""
    all_brokers: Mapping[str, str] = field(default_factory=dict)
    """The cluster-wide default."""
    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By name."""
    subscriptions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By name (client metrics, KIP-714)."""
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    """By entity."""

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
    """One setting of brokers and topics, wherever it is set in a running cluster."""

    default: str | None = None
    """The cluster-wide default in the metadata; None if there is none."""
    brokers: Mapping[int, str] = field(default_factory=dict)
    """The effective value by node id."""
    own: Mapping[int, str] = field(default_factory=dict)
    """The dynamic value of single nodes by node id."""
    topics: Mapping[str, str] = field(default_factory=dict)
    """The value of each topic that has its own."""


def entity_name(entity: QuotaEntity) -> str:
    """Return the entity as text: `user alice client-id (default)`."""
    return " ".join(f"{kind} {name or '(default)'}" for kind, name in entity)


RESOURCE_TYPES = {ConfigKind.TOPIC: "TOPIC", ConfigKind.CLIENT_METRICS: "CLIENT_METRICS", ConfigKind.GROUP: "GROUP"}
"""Kind → name of Kafka's ConfigResource.Type. A broker hides settings of these that its own release does not have."""


class ConfigCheck(StrEnum):
    """The check of a release's own classes that a setting did not pass."""

    VALUE = "value"  # the class that loads the setting rejects its value
    TOGETHER = "together"  # the class accepts each value, but not all of them together
    STARTUP = "startup"  # the broker checks its defaults for logs before it loads any log, and rejects them
    UPDATE = "update"  # the topic is loaded, and rejected when the node applies it: tiered storage is disabled
    REMOTE = "remote"  # as UPDATE, and the topic can have records that are only in remote storage
    NAME = "name"  # the release does not have the setting
    DROPPED = "dropped"  # a node of the release drops the setting when it loads the metadata
    MISSING = "missing"  # no check: the release does not have the class, or has changed it


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigProblem:
    """One setting of one resource that did not pass a check."""

    kind: ConfigKind
    name: str
    settings: tuple[tuple[str, str], ...]
    """Name → value; several if they are rejected together or must be removed together, none if the whole kind was not
    checked."""
    check: ConfigCheck
    reason: str
    """Kafka's own sentence, or the missing class."""


HIDDEN = "(hidden)"


class ConfigSource(StrEnum):
    """Where an effective value comes from (DescribeConfigsResponse.ConfigSource), by Kafka's names."""

    TOPIC = "DYNAMIC_TOPIC_CONFIG"
    NODE = "DYNAMIC_BROKER_CONFIG"
    ALL_BROKERS = "DYNAMIC_DEFAULT_BROKER_CONFIG"
    FILE = "STATIC_BROKER_CONFIG"
    DEFAULT = "DEFAULT_CONFIG"
    OTHER = "UNKNOWN"


class Setting(NamedTuple):
    """An effective value; a secret is HIDDEN, a setting without a value None."""

    value: str | None
    source: ConfigSource
    type: ValueType = ValueType.UNKNOWN
    """By its release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigTable:
    """The settings of many resources, small also for 10,000 topics."""

    common: Mapping[str, Setting] = field(default_factory=dict)
    """Setting → what most resources have."""
    deviations: Mapping[str, Mapping[str, Setting | None]] = field(default_factory=dict)
    """Every resource → settings that differ; None: missing."""

    @classmethod
    def of_resources(cls, resources: Mapping[str, Mapping[str, Setting]]) -> ConfigTable:
        counts: defaultdict[str, Counter[Setting]] = defaultdict(Counter)
        for settings in resources.values():
            for name, setting in settings.items():
                counts[name][setting] += 1
        common: dict[str, Setting] = {}
        for name, found in sorted(counts.items()):
            setting, number = found.most_common(1)[0]
            if 2 * number >= len(resources):
                common[name] = setting
        return cls(
            common=common,
            deviations={
                resource: {
                    name: settings.get(name)
                    for name in sorted({*common, *settings})
                    if settings.get(name) != common.get(name)
                }
                for resource, settings in sorted(resources.items())
            },
        )

    @property
    def names(self) -> frozenset[str]:
        """The settings of any resource."""
        return frozenset(self.common).union(*self.deviations.values())

    def settings(self, resource: str) -> dict[str, Setting]:
        """Return all settings of a resource of the table."""
        found: dict[str, Setting | None] = {**self.common, **self.deviations[resource]}
        return {name: setting for name, setting in found.items() if setting is not None}

    def values(self, name: str) -> list[str | None]:
        """Return the value of a setting of each resource; None: without a value or missing."""
        common = self.common.get(name)
        settings = [deviations.get(name, common) for deviations in self.deviations.values()]
        return [None if setting is None else setting.value for setting in settings]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveConfigs:
    """Effective settings of every broker, by node id as text, and of every topic, by name."""

    brokers: ConfigTable = field(default_factory=ConfigTable)
    topics: ConfigTable = field(default_factory=ConfigTable)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedConfigs:
    """What a plan says about effective values. All names are those of broker settings."""

    defaults: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    """Setting → default of the source and of the target release, where they differ."""
    removed: frozenset[str] = frozenset()
    """Settings of only one of the two."""
    new: frozenset[str] = frozenset()
    """Settings of only one of the two."""
    files: Mapping[int, Mapping[str, str | None]] = field(default_factory=dict)
    """Node id → setting → line that the run writes; None: removed."""
    dynamic: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    """Resource (`brokers`, `broker 1`) → setting → dynamic value; None: deleted."""
    dropped: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Resource (`topic orders`) → dynamic settings that a release of the path drops."""

    @property
    def changes_release(self) -> bool:
        return bool(self.defaults or self.removed or self.new)


class Why(StrEnum):
    """The reason of a difference. Values are words of sentences."""

    DEFAULT = "the default of the target release"
    REMOVED = "the target release does not have it"
    NEW = "new in the target release"
    FILE = "a configuration change of the plan"
    DYNAMIC = "planned with the feature levels"
    DROPPED = "a release of the plan drops it"
    CLIENT = "a client changed the topic's own value"
    UNKNOWN = "not in the plan"


class ConfigDifference(NamedTuple):
    """One setting that changed in the same way on some resources."""

    name: str
    of_topics: bool
    """They are topics, else brokers."""
    resources: tuple[str, ...]
    before: Setting | None
    after: Setting | None
    why: Why


def compare_effective(
    before: EffectiveConfigs, after: EffectiveConfigs, expected: ExpectedConfigs
) -> tuple[ConfigDifference, ...]:
    """Return every changed, missing and additional setting of resources that are in both.

    Values count, not their sources: a value that moves from a file into the metadata is no difference. The sources
    explain differences. A broker reports a setting that its release does not have as a secret, so only the presence of
    a secret is compared.

    A topic inherits the value of the broker that describes it. If the brokers have different values, another broker
    may have described it now: such a difference is left out, because the brokers' own settings are compared too.
    """
    of_topics = _compare(before.topics, after.topics, expected, of_topics=True)
    tables = (before.brokers, after.brokers)
    return (
        *_compare(before.brokers, after.brokers, expected, of_topics=False),
        *(one for one in of_topics if not _depends_on_the_broker(one, tables)),
    )


def _depends_on_the_broker(found: ConfigDifference, tables: Iterable[ConfigTable]) -> bool:
    if found.why is not Why.UNKNOWN or found.before is None or found.after is None:
        return False  # explained, or one of the releases does not have it
    names = broker_names(found.name)
    return any(len(set(table.values(name))) > 1 for table in tables for name in names)


def broker_names(topic_setting: str) -> tuple[str, ...]:
    """Return the broker settings that can be the default of a topic's setting (ServerTopicConfigSynonyms)."""
    return _SYNONYMS.get(topic_setting, (topic_setting, f"log.{topic_setting}"))


_SYNONYMS = {
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "local.retention.bytes": ("log.local.retention.bytes",),
    "local.retention.ms": ("log.local.retention.ms",),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "max.message.bytes": ("message.max.bytes",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
}


def _compare(
    before: ConfigTable, after: ConfigTable, expected: ExpectedConfigs, *, of_topics: bool
) -> Iterable[ConfigDifference]:
    changed: defaultdict[tuple[str, Setting | None, Setting | None, Why], list[str]] = defaultdict(list)
    # Most resources have the same deviations, so each pair of them is compared once.
    seen: dict[tuple[frozenset[tuple[str, Setting | None]], ...], list[tuple[str, Setting | None, Setting | None]]] = {}
    for resource in before.deviations:
        if resource not in after.deviations:
            continue
        pair = tuple(frozenset(table.deviations[resource].items()) for table in (before, after))
        if pair not in seen:
            seen[pair] = list(_changes(before.settings(resource), after.settings(resource)))
        dropped = expected.dropped.get(f"topic {resource}", ()) if of_topics else ()
        for name, old, new in seen[pair]:
            was_own, is_own = (one is not None and one.source is ConfigSource.TOPIC for one in (old, new))
            is_lost = name in dropped and was_own and not is_own
            why = Why.DROPPED if is_lost else _why(name, old, new, expected, None if of_topics else resource)
            changed[name, old, new, why].append(resource)

    def by_number(resource: str) -> tuple[int, str]:
        return (int(resource) if resource.isdecimal() else 0, resource)

    for (name, old, new, why), resources in sorted(changed.items(), key=lambda item: (item[0][0], item[1])):
        yield ConfigDifference(
            name,
            of_topics,
            tuple(sorted(resources, key=by_number)),
            old,
            new,
            why,
        )


def _changes(
    before: Mapping[str, Setting], after: Mapping[str, Setting]
) -> Iterable[tuple[str, Setting | None, Setting | None]]:
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old is None or new is None or not same_value(old.value, new.value, new.type):
            yield name, old, new


def _why(name: str, old: Setting | None, new: Setting | None, expected: ExpectedConfigs, broker: str | None) -> Why:
    """Return the reason of a difference. `broker`: id of the broker that has it; None: topics have it."""
    names = broker_names(name) if broker is None else (name,)
    if why := _by_release(names, old, new, expected):
        return why
    if broker is None:
        if any(one is not None and one.source is ConfigSource.TOPIC for one in (old, new)):
            return Why.CLIENT
        # The value of the broker can have another unit; its own difference is compared with the plan.
        if any(one in lines for lines in expected.files.values() for one in names):
            return Why.FILE
        changed = list(expected.dynamic.values())
    else:
        lines = expected.files.get(int(broker), {}) if broker.isdecimal() else {}
        if name in lines and _is_line(new, lines[name]):
            return Why.FILE
        changed = [values for of, values in expected.dynamic.items() if of in ("brokers", f"broker {broker}")]
    dynamic = [values[one] for values in changed for one in names if one in values]
    return Why.DYNAMIC if any(_has(new, value) for value in dynamic) else Why.UNKNOWN


def _is_line(setting: Setting | None, line: str | None) -> bool:
    if line is None:
        return setting is None or _is_default(setting)
    is_secret = setting is not None and setting.value == HIDDEN and setting.source is ConfigSource.FILE
    return _has(setting, line) or is_secret


def _by_release(
    names: tuple[str, ...], old: Setting | None, new: Setting | None, expected: ExpectedConfigs
) -> Why | None:
    if not expected.changes_release:
        return None
    if expected.removed.intersection(names) and (new is None or new.value in (None, HIDDEN)):
        return Why.REMOVED
    if expected.new.intersection(names) and (old is None or old.value in (None, HIDDEN)):
        return Why.NEW  # also a line of the file that the source release ignored
    # Some settings are not listed: those of topics without a broker setting, and internal ones.
    if old is None and _is_default(new):
        return Why.NEW
    if new is None and _is_default(old):
        return Why.REMOVED
    if old is None or new is None or not (_is_default(old) and _is_default(new)):
        return None
    defaults = [expected.defaults[one] for one in names if one in expected.defaults]
    is_default = any(
        same_value(was, old.value, old.type) and same_value(now, new.value, new.type) for was, now in defaults
    )
    return Why.DEFAULT if is_default else None


def _has(setting: Setting | None, value: str | None) -> bool:
    return setting is not None and value is not None and same_value(setting.value, value, setting.type)


def _is_default(setting: Setting | None) -> bool:
    return setting is not None and setting.source is ConfigSource.DEFAULT
