"""The configuration of a node for Kafka's own classes, and dynamic configuration, validated by them.

Where a node loads it (releases 3.4.1 to 4.3.1):
- Topics: LogManager.fetchTopicConfigOverrides calls LogConfig.fromProps for every topic before it loads a log.
  LogManager.updateTopicConfig calls more checks of LogConfig after that.
- Brokers: DynamicBrokerConfig.fromPersistentProps drops what it does not accept. KafkaConfig validates the rest with
  the file of the node. Releases with readDynamicBrokerConfigsFromSnapshot do this before LogManager.apply validates the
  defaults for logs (LogConfig.validateBrokerLogConfigValues).
- Client metrics: ClientMetricsManager.updateSubscription calls ClientMetricsConfigs.validate.
- Groups: GroupConfigManager.updateGroupConfig calls GroupConfig.fromProps.
- Quotas: ClientQuotaMetadataManager compares the names with QuotaConfig.
- All nodes of releases with KAFKA-19851 (from 4.2.1 on) first drop what DefaultSupportedConfigChecker does not support:
  ConfigurationDelta.replay, so that snapshots lack it, and ConfigurationControlManager.replay. It accepts every name of
  a broker's setting.

Equal settings of many resources are validated once. A call from Python to Java takes a fraction of a millisecond.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from kafka_rollout.metadata_log.classes.images import sentence_of
from kafka_rollout.model.config_values import ValueType, read_value
from kafka_rollout.model.configs import (
    HIDDEN,
    RESOURCE_TYPES,
    ConfigCheck,
    ConfigKind,
    ConfigProblem,
    DynamicConfigs,
    is_provider_setting,
    literal_settings,
    provider_classes,
    unresolved_settings,
)
from kafka_rollout.releases.jvm.jvm import Jvm, MissingClassError, root_cause

# Names of a class, newest first: Kafka moves classes between releases.
_LOG_CONFIG = ("org.apache.kafka.storage.internals.log.LogConfig", "kafka.log.LogConfig")
_CLIENT_METRICS = ("org.apache.kafka.server.metrics.ClientMetricsConfigs",)
_GROUP_CONFIG = ("org.apache.kafka.coordinator.group.GroupConfig",)
_QUOTA_CONFIG = (
    "org.apache.kafka.server.config.QuotaConfig",
    "org.apache.kafka.server.config.QuotaConfigs",
    "org.apache.kafka.common.config.internals.QuotaConfigs",
)
_DROPS_SETTINGS = "org.apache.kafka.metadata.SupportedConfigChecker"
_SUPPORTED_CONFIGS = ("org.apache.kafka.server.config.DefaultSupportedConfigChecker",)
_DYNAMIC_BROKER_CONFIG = "kafka.server.DynamicBrokerConfig$"
_BEFORE_LOGS = "readDynamicBrokerConfigsFromSnapshot"
_REMOTE_STORAGE = "remote.log.storage.system.enable"
_OF_LISTENER = re.compile(r"^listener\.name\.[^.]*\.")  # as in DynamicBrokerConfig
_TIERED = ("remote.", "local.")  # settings of topics with tiered storage (KIP-405)
# Kafka's classes do not fit together; the class that failed to load is in the message.
_LINKAGE = frozenset(f"java.lang.{name}" for name in ("NoClassDefFoundError", "NoSuchMethodError", "NoSuchFieldError"))
KAFKA_CONFIG = "kafka.server.KafkaConfig"
_HIDDEN_VALUE = "[hidden]"
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
_UNTYPED_LENGTH = 8  # a shorter value of a setting without a type, such as "true", is also an ordinary word

SettingTexts = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Reason:
    settings: SettingTexts
    check: ConfigCheck
    sentence: str


@dataclass(frozen=True, slots=True)
class _Broker:
    """A broker's configuration on the release."""

    node_id: int
    properties: SettingTexts
    logs: Any
    """Its defaults for topics (a Java map)."""


def find_problems(jvm: Jvm, brokers: Mapping[int, SettingTexts], dynamic: DynamicConfigs) -> tuple[ConfigProblem, ...]:
    """Return every setting that a node of the release of `jvm` does not load as it is.

    `brokers`: the file of each broker. A file that KafkaConfig rejects is not reported here. Settings of brokers with
    references to config providers are not checked. No sentence contains a secret of a file.
    """
    problems: list[ConfigProblem] = []
    loaded: list[_Broker] = []
    with _reporting(problems, ConfigKind.BROKER):
        for node_id, static in sorted(brokers.items()):
            loaded += _load_broker(jvm, node_id, static, dynamic, problems)
    checks: tuple[tuple[ConfigKind, Callable[[], Callable[[SettingTexts], Iterable[_Reason]]]], ...] = (
        (ConfigKind.TOPIC, lambda: _topic_check(jvm, loaded)),
        (ConfigKind.CLIENT_METRICS, lambda: _subscription_check(jvm)),
        (ConfigKind.GROUP, lambda: _group_check(jvm)),
        (ConfigKind.QUOTA, lambda: _quota_check(jvm)),
    )
    drops = _drops_settings(jvm)
    for kind, check in checks:
        if resources := dynamic.of(kind):
            with _reporting(problems, kind):
                problems += _each_once(kind, _without_unknown(jvm, kind, resources, problems, drops=drops), check())
    secrets = secret_values(jvm, brokers.values()) if problems else frozenset()
    return tuple(
        dict.fromkeys(replace(problem, reason=without_secrets(problem.reason, secrets)) for problem in problems)
    )


@contextmanager
def _reporting(problems: list[ConfigProblem], kind: ConfigKind) -> Iterator[None]:
    """Report a missing class as a problem of the whole kind. Other errors pass."""
    try:
        yield
    except Py4JJavaError as error:
        if _class_of_cause(error) not in _LINKAGE:
            raise
        problems.append(_not_checked(kind, f"{_class_of_cause(error)}: {sentence_of(error)}"))
    except MissingClassError as error:
        problems.append(_not_checked(kind, error.sentence))
    except Py4JError as error:
        if type(error) is not Py4JError:  # the process is gone
            raise
        problems.append(_not_checked(kind, str(error).strip().splitlines()[0]))


def _class_of_cause(error: Py4JJavaError) -> str:
    return str(root_cause(error).getClass().getName())


def _not_checked(kind: ConfigKind, reason: str) -> ConfigProblem:
    return ConfigProblem(kind=kind, name="", settings=(), check=ConfigCheck.MISSING, reason=reason)


def _without_unknown(
    jvm: Jvm, kind: ConfigKind, resources: Mapping[str, SettingTexts], problems: list[ConfigProblem], *, drops: bool
) -> Mapping[str, SettingTexts]:
    """Report the settings that the release does not define, and return the others.

    Hidden values are included: a broker hides a setting that its own release does not have.
    Those of one resource are one problem: before KAFKA-19851 a controller rejects a change that leaves one of them
    (ConfigurationControlManager.validateAlterConfig, ControllerConfigurationValidator).
    """
    names = {key for settings in resources.values() for key in settings}
    if kind in RESOURCE_TYPES and drops:
        checker = jvm.moved(*_SUPPORTED_CONFIGS)()
        resource_type = jvm.static("org.apache.kafka.common.config.ConfigResource").Type.valueOf(RESOURCE_TYPES[kind])
        unknown = {key for key in names if not checker.isSupported(resource_type, key)}
        check, sentence = ConfigCheck.DROPPED, "Unsupported config"
    elif kind in (ConfigKind.TOPIC, ConfigKind.GROUP):
        config = jvm.moved(*(_LOG_CONFIG if kind is ConfigKind.TOPIC else _GROUP_CONFIG))
        unknown = {key for key in names if config.configType(key).isEmpty()}
        check, sentence = ConfigCheck.NAME, f"Unknown {kind} config name:"
    else:
        return resources
    for name, settings in resources.items():
        if own := {key: settings[key] for key in sorted(unknown & settings.keys())}:
            problems.append(_problem(kind, name, _Reason(own, check, f"{sentence} {', '.join(own)}")))
    return {
        name: {key: value for key, value in settings.items() if key not in unknown}
        for name, settings in resources.items()
    }


def _drops_settings(jvm: Jvm) -> bool:
    try:
        return bool(jvm.locate(_DROPS_SETTINGS))  # also where a later release moved it
    except MissingClassError:
        return False


def _each_once(
    kind: ConfigKind, resources: Mapping[str, SettingTexts], check: Callable[[SettingTexts], Iterable[_Reason]]
) -> Iterator[ConfigProblem]:
    """Check equal settings of many resources once. Secrets are not checked: their values are unknown."""
    names: defaultdict[frozenset[tuple[str, str]], list[str]] = defaultdict(list)
    for name, settings in resources.items():
        names[frozenset((key, value) for key, value in settings.items() if value != HIDDEN)].append(name)
    for pairs, alike in names.items():
        reasons = tuple(check(dict(sorted(pairs))))
        for name in alike:
            yield from (_problem(kind, name, reason) for reason in reasons)


def _problem(kind: ConfigKind, name: str, reason: _Reason) -> ConfigProblem:
    settings = tuple(sorted(reason.settings.items()))
    return ConfigProblem(kind=kind, name=name, settings=settings, check=reason.check, reason=reason.sentence)


def _value_check(accept: Callable[[SettingTexts], object]) -> Callable[[SettingTexts], Iterator[_Reason]]:
    """Find the settings that Kafka rejects alone, then whether it rejects the others together.

    The result for one setting alone is kept, because most resources share their values.
    """

    @cache
    def alone(name: str, value: str) -> str | None:
        return _rejection(lambda: accept({name: value}))

    def check(settings: SettingTexts) -> Iterator[_Reason]:
        if not settings or _rejection(lambda: accept(settings)) is None:
            return
        for name, value in settings.items():
            if (sentence := alone(name, value)) is not None:
                yield _Reason({name: value}, ConfigCheck.VALUE, sentence)
        rest = {name: value for name, value in settings.items() if alone(name, value) is None}
        if rest and (sentence := _rejection(lambda: accept(rest))) is not None:
            yield _Reason(rest, ConfigCheck.TOGETHER, sentence)

    return check


def _rejection(call: Callable[[], object]) -> str | None:
    try:
        call()
    except Py4JJavaError as error:
        if _class_of_cause(error) in _LINKAGE:
            raise
        return sentence_of(error)
    return None


def _load_broker(
    jvm: Jvm, node_id: int, static: SettingTexts, dynamic: DynamicConfigs, problems: list[ConfigProblem]
) -> Iterator[_Broker]:
    """Load the configuration of a broker as its start does. Yields nothing if KafkaConfig rejects its file."""

    def load(settings: SettingTexts) -> Any:
        return jvm.static(KAFKA_CONFIG).fromProps(java_properties(jvm, _clamped(jvm, settings)), False)

    if _rejection(lambda: load(static)) is not None:
        return
    config = load(static)
    layers: dict[tuple[ConfigKind, str], SettingTexts] = {}
    for kind, name in ((ConfigKind.ALL_BROKERS, ""), (ConfigKind.BROKER, str(node_id))):
        given = literal_settings(dynamic.of(kind).get(name, {}))
        settings = {key: value for key, value in given.items() if value != HIDDEN}
        own = kind is ConfigKind.BROKER
        kept = config.dynamicConfig().fromPersistentProps(plain_properties(jvm, settings), own)
        layers[kind, name] = {key: value for key, value in settings.items() if kept.containsKey(key)}
        problems += [
            _problem(kind, name, _Reason({key: value}, ConfigCheck.VALUE, _why_dropped(jvm, key, value, own=own)))
            for key, value in settings.items()
            if not kept.containsKey(key)
        ]
    problems += _layer_problems(static, layers, ConfigCheck.TOGETHER, load)
    merged = _merged(static, layers)
    properties = merged if _rejection(lambda: load(merged)) is None else static
    yield _Broker(node_id, properties, _log_defaults(jvm, load(properties)))
    if properties is merged and _applies_before_logs(jvm):
        log_config = jvm.moved(*_LOG_CONFIG)

        def start_logs(settings: SettingTexts) -> None:
            logs = _log_defaults(jvm, load(settings))
            log_config.validateBrokerLogConfigValues(logs, _is_on(settings, _REMOTE_STORAGE))

        problems += _layer_problems(static, layers, ConfigCheck.STARTUP, start_logs)


def _merged(static: SettingTexts, layers: Mapping[tuple[ConfigKind, str], SettingTexts]) -> dict[str, str]:
    return dict(pair for layer in (static, *layers.values()) for pair in layer.items())


def _layer_problems(
    static: SettingTexts,
    layers: Mapping[tuple[ConfigKind, str], SettingTexts],
    check: ConfigCheck,
    accept: Callable[[SettingTexts], object],
) -> Iterator[ConfigProblem]:
    """Report the settings without which Kafka would accept the configuration of a broker, by where they are set.

    If no single setting is the cause, all of them are reported. What Kafka rejects in the file alone is not reported.
    """
    sentence = _rejection(lambda: accept(_merged(static, layers)))
    if sentence is None or _rejection(lambda: accept(static)) is not None:
        return

    def without(setting: str) -> dict[str, str]:
        return _merged(
            static, {at: {key: v for key, v in layer.items() if key != setting} for at, layer in layers.items()}
        )

    settings = {setting for layer in layers.values() for setting in layer}
    causes = {setting for setting in settings if _rejection(partial(accept, without(setting))) is None} or settings
    for (kind, name), layer in layers.items():
        if chosen := {setting: value for setting, value in layer.items() if setting in causes}:
            yield _problem(kind, name, _Reason(chosen, check, sentence))


def _why_dropped(jvm: Jvm, name: str, value: str, *, own: bool) -> str:
    """Return the sentence of the setting's own type and validator, if it is one of KafkaConfig."""
    base = _OF_LISTENER.sub("", name)
    key = config_definitions(jvm).configKeys().get(base)
    if key is not None:
        definition = jvm.packages.org.apache.kafka.common.config.ConfigDef().define(key)
        if (sentence := _rejection(lambda: definition.parse(plain_properties(jvm, {base: value})))) is not None:
            return sentence
    return f"It is not valid as a dynamic setting of {'a single broker' if own else 'all brokers'}"


def _clamped(jvm: Jvm, settings: SettingTexts) -> dict[str, str]:
    """Move values into their bounds as DynamicBrokerConfig.updateCurrentConfig does, if the release has this."""
    clamp = _static_method(jvm, KAFKA_CONFIG, "clampDynamicConfigs")
    if clamp is None:
        return dict(settings)
    properties = java_properties(jvm, settings)
    clamp(properties)
    return {str(name): str(properties.get(name)) for name in list(properties.keySet())}


def _applies_before_logs(jvm: Jvm) -> bool:
    java_class = jvm.find_class(_DYNAMIC_BROKER_CONFIG)
    if java_class is None:
        raise MissingClassError(f"The class {_DYNAMIC_BROKER_CONFIG} does not exist.")
    return any(method.getName() == _BEFORE_LOGS for method in java_class.getMethods())


def _log_defaults(jvm: Jvm, config: Any) -> Any:
    extract = _static_method(jvm, _LOG_CONFIG[-1], "extractLogConfigMap")  # before 3.5
    return extract(config) if extract is not None else config.extractLogConfigMap()


def _topic_check(jvm: Jvm, brokers: Iterable[_Broker]) -> Callable[[SettingTexts], Iterator[_Reason]]:
    log_config = jvm.moved(*_LOG_CONFIG)
    empty = jvm.packages.java.util.HashMap()
    defaults: list[tuple[Any, bool]] = []
    for broker in brokers:
        of_broker = (broker.logs, _is_on(broker.properties, _REMOTE_STORAGE))
        if not any(of_broker[0].equals(logs) and of_broker[1] == remote for logs, remote in defaults):
            defaults.append(of_broker)

    def load(logs: Any, settings: SettingTexts) -> Any:
        return log_config.fromProps(logs, plain_properties(jvm, settings))

    values = [(logs, remote, _value_check(partial(load, logs))) for logs, remote in defaults or [(empty, False)]]

    def check(settings: SettingTexts) -> Iterator[_Reason]:
        for logs, remote, check_values in values:
            rejected = tuple(check_values(settings))
            yield from rejected
            if not rejected and any(name.startswith(_TIERED) for name in settings):
                yield from _update_rejections(jvm, settings, load(logs, settings).values(), remote=remote)

    return check


def _update_rejections(jvm: Jvm, settings: SettingTexts, values: Any, *, remote: bool) -> Iterator[_Reason]:
    """The checks of LogManager.updateTopicConfig, which concern tiered storage only (from 3.6 and 3.9 on)."""
    tiered = {name: value for name, value in settings.items() if name.startswith(_TIERED)}
    enabled = _is_on(settings, "remote.storage.enable")
    for method, arguments, check in (
        ("validateRemoteStorageOnlyIfSystemEnabled", (values, remote, True), ConfigCheck.UPDATE),
        ("validateRetentionConfigsWhenRemoteCopyDisabled", (values, enabled), ConfigCheck.TOGETHER),
    ):
        validate = _static_method(jvm, _LOG_CONFIG[0], method)
        if validate is not None and (sentence := _rejection(partial(validate, *arguments))) is not None:
            yield _Reason(tiered, check, sentence)


def _subscription_check(jvm: Jvm) -> Callable[[SettingTexts], Iterator[_Reason]]:
    configs = jvm.moved(*_CLIENT_METRICS)
    return _value_check(lambda settings: configs.validate("checked", plain_properties(jvm, settings)))


def _group_check(jvm: Jvm) -> Callable[[SettingTexts], Iterator[_Reason]]:
    group_config = jvm.moved(*_GROUP_CONFIG)
    empty = jvm.packages.java.util.HashMap()
    return _value_check(lambda settings: group_config.fromProps(empty, plain_properties(jvm, settings)))


def _quota_check(jvm: Jvm) -> Callable[[SettingTexts], Iterator[_Reason]]:
    """Only names: a release loads every value of a quota that it knows."""
    name = jvm.locate(*_QUOTA_CONFIG)
    parts = [
        method()
        for part in ("userAndClientQuotaConfigs", "clientConfigs", "ipConfigs")  # clientConfigs: before 3.5
        if (method := _static_method(jvm, name, part)) is not None
    ]
    if not parts:
        raise MissingClassError(f"{name} does not list its settings.")
    names = {str(setting) for part in parts for setting in part.names()}
    return lambda settings: (
        _Reason({key: value}, ConfigCheck.NAME, f"Unknown quota: {key}")
        for key, value in settings.items()
        if key not in names
    )


def _static_method(jvm: Jvm, class_name: str, method: str) -> Any | None:
    """Return a static method, None if the class or the method does not exist."""
    if jvm.find_class(class_name) is None:
        return None
    try:
        return getattr(jvm.static(class_name), method)
    except Py4JError as error:
        if type(error) is not Py4JError:  # the process is gone
            raise
        return None


def _is_on(settings: SettingTexts, name: str) -> bool:
    return settings.get(name, "").strip().lower() == "true"


def neutral_properties(config: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration without config providers: nothing in it is resolved on this machine.

    Kafka's classes would resolve `${provider:path:key}` with the environment and the files of this process. So a
    setting with such a reference has the release's default; one that KafkaConfig requires, or compares with others, has
    a neutral value.
    """
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
        read = read_value(lines.get(_NODE_ID) or lines.get("broker.id", "0"), ValueType.INT)
        own = read if isinstance(read, int) else 0  # KafkaConfig refuses another text itself
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
    methods = (
        method for method in config.getDeclaredMethods() if method.getReturnType().getSimpleName() == "ConfigDef"
    )
    definition = next(method for method in methods if method.getParameterCount() == 0)
    definition.setAccessible(True)
    return jvm.call(definition, config.getField("MODULE$").get(None))


def secret_values(jvm: Jvm, configs: Collection[Mapping[str, str]]) -> frozenset[str]:
    """Return the values that no sentence can contain: passwords, and long values of settings that have no type."""
    classes = {name for config in configs for name in provider_classes(config)}
    pairs = {(name, value) for config in configs for name, value in config.items() if value and name not in classes}
    keys = config_definitions(jvm).configKeys()
    types: dict[str, str | None] = {}
    for name in {name for name, _ in pairs}:
        key = keys.get(_OF_LISTENER.sub("", name))
        # The types of Kafka's own ConfigDef: PASSWORD is the only one whose values are hidden.
        types[name] = None if key is None else str(key.type().name())
    return frozenset(
        value
        for name, value in pairs
        if types[name] == "PASSWORD" or (types[name] is None and len(value) >= _UNTYPED_LENGTH)
    )


def without_secrets(sentence: str, secrets: Iterable[str]) -> str:
    """Return a sentence of Kafka's classes with every secret replaced."""
    for secret in sorted(secrets, key=len, reverse=True):
        # Short passwords are replaced as whole words only, so that the sentence stays readable.
        sentence = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", _HIDDEN_VALUE, sentence)
    return sentence


def _any_id(voters: str, *, is_controller: bool) -> int:
    ids = [int(number) for number in _VOTER.findall(voters)]
    if is_controller:
        return ids[0] if ids else 1
    return max(ids, default=0) + 1
