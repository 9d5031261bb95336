"""Derives the catalogue's facts of one release from its jars. The same jars give the same facts.

No value is guessed: a fact that cannot be derived becomes a gap of the release (ReleaseFacts.gaps).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from py4j.java_gateway import get_field

from kafka_rollout.base.errors import FatalError
from kafka_rollout.metadata_log.classes.kafka_classes import supported_features
from kafka_rollout.metadata_log.classes.node_configs import config_definitions
from kafka_rollout.metadata_log.record_types import MetadataLogFacts, MetadataRecordFacts
from kafka_rollout.releases.facts import (
    METADATA_VERSION,
    CoordinatorClass,
    CoordinatorLogFacts,
    FeatureFacts,
    Logging,
    MetadataVersionLevel,
    Release,
    ReleaseFacts,
    VersionRange,
)
from kafka_rollout.releases.jvm.jvm import Jvm
from kafka_rollout_derivation.coordinators.serialized_records import coordinator_logs, new_group_coordinator
from kafka_rollout_derivation.gaps import Gaps, NotDerivedError, agreed, first_of, reason_of
from kafka_rollout_derivation.jars import (
    Message,
    built_at,
    calls,
    classes_named,
    java_maximum_with_sasl,
    java_minimum,
)
from kafka_rollout_derivation.jars import oldest_requests as oldest_in_definitions

DerivationProgress = Callable[[str], None]


def derive_facts(
    release: Release,
    jvm: Jvm,
    messages: Mapping[str, Message],
    intolerant: ReleaseFacts | None,
    progress: DerivationProgress = lambda text: None,
) -> tuple[ReleaseFacts, MetadataLogFacts | None]:
    """Derive the facts of one release; the second value is None if those of the metadata log are a gap.

    `intolerant`: the release with which the coordinator class is compared; None for that release itself. Raises
    FatalError if the range of metadata.version cannot be derived: nothing can be planned without it.
    """
    libs, gaps = jvm.libs, Gaps()
    progress("deriving features and levels")
    try:
        supported = features(jvm, gaps)
    except Exception as error:
        raise FatalError(
            f"The feature levels of Kafka {release} could not be derived from its jars: {reason_of(error)}",
            remedy="Nothing was written. Report the release; it needs a newer version of this tool.",
        ) from error
    ranges = {name: facts.supported for name, facts in supported.items()}
    progress("deriving the records of the coordinators")
    logs = coordinator_logs(jvm, libs, messages, ranges, gaps)
    new = gaps.derive("new_group_coordinator", lambda: new_group_coordinator(jvm, messages, ranges), None)
    progress("deriving metadata records, configuration and metrics")
    of_metadata_log = gaps.derive("metadata_log", lambda: metadata_log(jvm, release), None)
    of_classes: dict[str, Any] = {
        way.__name__: gaps.derive(way.__name__, partial(way, jvm), otherwise) for way, otherwise in _OF_CLASSES
    }
    reference = intolerant.coordinator_logs if intolerant else logs
    missing = [name for name in gaps.reasons if name.startswith("coordinator_logs.")]
    return (
        ReleaseFacts(
            release=release,
            features=supported,
            metadata_versions=metadata_versions(jvm, ranges[METADATA_VERSION]),
            coordinator_logs=logs,
            new_group_coordinator=new,
            coordinator_class=CoordinatorClass.UNKNOWN if missing else coordinator_class(logs, reference),
            built_at=gaps.derive("built_at", lambda: built_at(libs), None),
            java_minimum=gaps.derive("java_minimum", lambda: java_minimum(libs), None),
            java_maximum_with_sasl=gaps.derive("java_maximum_with_sasl", lambda: java_maximum_with_sasl(libs), None),
            logging=gaps.derive("logging", lambda: logging_backend(libs), "unknown"),
            lossy_downgrade_level=gaps.derive("lossy_downgrade_level", lambda: lossy_downgrade_level(libs), None),
            gaps=dict(sorted(gaps.reasons.items())),
            **of_classes,
        ),
        of_metadata_log,
    )


def coordinator_class(
    logs: Mapping[str, CoordinatorLogFacts], intolerant: Mapping[str, CoordinatorLogFacts]
) -> CoordinatorClass:
    """Return KIP-915's class, from the release's reaction to unknown keys and an intolerant release's to its records.

    Logs that the intolerant release does not have do not count.
    """
    if not all(log.ignores_unknown_keys for log in logs.values()):
        return CoordinatorClass.INTOLERANT
    for topic, old in intolerant.items():
        for record in logs[topic].records:
            known = old.record(record.key_version)
            if record.writes and (known is None or any(version not in known.reads for version in record.writes)):
                return CoordinatorClass.EMITTING
    return CoordinatorClass.TOLERANT


_BROKER_FEATURES = ("org.apache.kafka.server.BrokerFeatures", "kafka.server.BrokerFeatures")  # 4.x, 3.x
_FEATURE_ENUMS = ("org.apache.kafka.server.common.Feature", "org.apache.kafka.server.common.Features")  # 4.x, 3.8-3.9
_DEFAULT_LEVEL = ("defaultLevel", "defaultValue")  # 4.x, 3.8-3.9
# The error text with which every controller before KIP-1155 refuses a lossy downgrade.
_REFUSAL = b"Unsafe metadata downgrade is not supported in this version."
KIP_1155_LEVEL: int | None = None
"""The metadata.version of KIP-1155. Set it when a release has it, see `lossy_downgrade_level`."""
_BACKENDS: Mapping[Logging, bytes] = {"log4j2": b"org/apache/logging/log4j", "reload4j": b"org/apache/log4j"}
_LOADER_METRICS = "org.apache.kafka.image.loader.metrics.MetadataLoaderMetrics"
_SNAPSHOT_METRICS = "org.apache.kafka.image.publisher.metrics.SnapshotEmitterMetrics"
_TYPES = "org.apache.kafka.common.metadata.MetadataRecordType"
_CONTROLLER = "org.apache.kafka.controller.QuorumController"
_DELTA = "org.apache.kafka.image.MetadataDelta"
_NESTED_CLASSES = 60


def features(jvm: Jvm, gaps: Gaps) -> dict[str, FeatureFacts]:
    """Return the features that brokers and controllers advertise with unstable features disabled.

    Raises NotDerivedError if brokers and controllers advertise different ranges: ReleaseFacts holds one of them.
    """
    advertised = agreed(lambda: _advertised_by_brokers(jvm), lambda: supported_features(jvm))
    # Without unstable features, the highest advertised level is the newest production level (QuorumFeatures).
    latest = {name: supported.max for name, supported in advertised.items()}
    latest[METADATA_VERSION] = first_of(
        lambda: int(_production_version(jvm).featureLevel()), lambda: latest[METADATA_VERSION]
    )
    defaults: dict[str, int] = {METADATA_VERSION: latest[METADATA_VERSION]}
    dependencies: dict[str, dict[int, dict[str, int]]] = {}
    has_others = bool(advertised.keys() - {METADATA_VERSION})
    enum: list[Any] = gaps.derive("feature_dependencies", lambda: _feature_enum(jvm, required=has_others), [])
    for feature in enum:
        name = feature.featureName()
        latest[name] = feature.latestProduction()
        needed = {version.featureLevel(): dict(version.dependencies()) for version in feature.featureVersions()}
        dependencies[name] = {level: others for level, others in needed.items() if others}
    defaults = gaps.derive("feature_defaults", lambda: _default_levels(jvm, enum, advertised.keys()), defaults)
    return {
        name: FeatureFacts(
            name=name,
            supported=supported,
            latest_production=latest[name],
            default_level=defaults.get(name, 0),
            dependencies=dependencies.get(name, {}),
        )
        for name, supported in sorted(advertised.items())
    }


def metadata_versions(jvm: Jvm, supported: VersionRange) -> tuple[MetadataVersionLevel, ...]:
    versions = jvm.packages.org.apache.kafka.server.common.MetadataVersion.values()
    return tuple(
        MetadataVersionLevel(level=version.featureLevel(), name=version.version(), changed=version.didMetadataChange())
        for version in versions
        if version.featureLevel() in supported
    )


def oldest_requests(jvm: Jvm) -> dict[str, int]:
    """Return the oldest version that brokers serve of each API, if it is above 0."""
    return agreed(lambda: _oldest_of_api_keys(jvm), lambda: oldest_in_definitions(jvm.libs))


def config_names(jvm: Jvm) -> frozenset[str]:
    def of_scala() -> frozenset[str]:
        names = jvm.packages.kafka.server.KafkaConfig.configNames()
        return frozenset(jvm.packages.scala.jdk.javaapi.CollectionConverters.asJava(names))

    return agreed(of_scala, lambda: frozenset(config_definitions(jvm).configKeys().keySet()))


def config_defaults(jvm: Jvm) -> dict[str, str]:
    """Return the default of each broker setting that has one, as the text of a configuration file.

    The value of a setting without an entry is null: Kafka computes it from another setting, or does without it.
    """
    to_text = jvm.packages.org.apache.kafka.common.config.ConfigDef.convertToString
    defaults = {}
    for name, key in dict(config_definitions(jvm).configKeys()).items():
        if key.hasDefault() and (value := get_field(key, "defaultValue")) is not None:
            defaults[name] = to_text(value, get_field(key, "type"))
    return defaults


def config_resources(jvm: Jvm) -> frozenset[str]:
    """Return the kinds of resources whose settings the release supports (ConfigResource.Type)."""
    kinds = jvm.packages.org.apache.kafka.common.config.ConfigResource.Type.values()
    return frozenset(kind.name() for kind in kinds) - {"UNKNOWN"}


def has_current_metadata_version_metric(jvm: Jvm) -> bool:
    return _has_metrics(jvm, _LOADER_METRICS, "CurrentMetadataVersion")


def has_snapshot_emitter_metrics(jvm: Jvm) -> bool:
    return _has_metrics(jvm, _SNAPSHOT_METRICS, "LatestSnapshotGeneratedAgeMs", "LatestSnapshotGeneratedBytes")


# Each function derives the fact with its name; the value if it cannot be derived.
_OF_CLASSES: tuple[tuple[Callable[[Jvm], Any], Any], ...] = (
    (oldest_requests, {}),
    (config_names, frozenset()),
    (config_defaults, {}),
    (config_resources, frozenset()),
    (has_current_metadata_version_metric, False),
    (has_snapshot_emitter_metrics, False),
)


def lossy_downgrade_level(libs: Path, level: int | None = KIP_1155_LEVEL) -> int | None:
    """Return KIP-1155's metadata.version if the controller lowers across levels that changed metadata, else None.

    That it does not is read from its controller. Which level the KIP gets is nowhere in the jars, so it is a constant
    of this module. Raises NotDerivedError for the first release that no longer refuses, until the constant is set.
    """
    code = classes_named(libs, r"org/apache/kafka/controller/FeatureControlManager\.class")
    if not code:
        code = [one for one in classes_named(libs, r"org/apache/kafka/controller/.*\.class") if _REFUSAL in one]
    if not code:
        raise NotDerivedError("The jars have no FeatureControlManager.")
    if any(_REFUSAL in one for one in code):
        return None
    if level is None:
        raise NotDerivedError(
            "The controller does not refuse an unsafe downgrade of metadata.version any more: it may implement "
            "KIP-1155, whose level is not in the jars (KIP_1155_LEVEL in derivation/facts.py)."
        )
    return level


def logging_backend(libs: Path) -> Logging:
    """Return the logging backend of the broker's log level controllers, or of all classes of the broker's jar."""
    return first_of(
        lambda: _backend_of(classes_named(libs, r".*/Log4j\w*Controller\$?\.class")),
        lambda: _backend_of(classes_named(libs, r"kafka/.*\.class")),
    )


def _backend_of(code: list[bytes]) -> Logging:
    found = [backend for backend, package in _BACKENDS.items() if any(package in one for one in code)]
    if len(found) != 1:
        raise NotDerivedError(f"The log level controller uses {', '.join(found) or 'no known backend'}.")
    return found[0]


def _advertised_by_brokers(jvm: Jvm) -> dict[str, VersionRange]:
    java_class = jvm.packages.java.lang.Class.forName(jvm.locate(*_BROKER_FEATURES))
    supported = _call_static(jvm, java_class, "createDefault").supportedFeatures().features()
    return {name: VersionRange(version.min(), version.max()) for name, version in dict(supported).items()}


def _oldest_of_api_keys(jvm: Jvm) -> dict[str, int]:
    protocol = jvm.packages.org.apache.kafka.common
    broker = protocol.message.ApiMessageType.ListenerType.BROKER
    keys = [key for key in protocol.protocol.ApiKeys.values() if key.inScope(broker) and key.oldestVersion() > 0]
    return {get_field(key, "name"): key.oldestVersion() for key in sorted(keys, key=lambda key: get_field(key, "name"))}


def _call_static(jvm: Jvm, java_class: Any, *names: str) -> Any:
    """Call the first of these with at most one argument, which is `enableUnstableVersions`."""
    method = next(
        method
        for name in names
        for method in java_class.getMethods()
        if method.getName() == name and method.getParameterCount() <= 1
    )
    return jvm.call(method, None, *([False] * method.getParameterCount()))


def _production_version(jvm: Jvm) -> Any:
    """Return the newest stable MetadataVersion of the release."""
    java_class = jvm.packages.java.lang.Class.forName("org.apache.kafka.server.common.MetadataVersion")
    return _call_static(jvm, java_class, "latestProduction", "latest")


def _default_levels(jvm: Jvm, enum: Iterable[Any], advertised: Iterable[str]) -> dict[str, int]:
    """Return the levels that formatting and `kafka-features.sh upgrade --release-version` set for the release.

    That is Feature.defaultLevel of the release's metadata.version, defaultValue in 3.8 and 3.9. Before 3.8 there are no
    other features than metadata.version. Raises NotDerivedError for an advertised feature without a default.
    """
    production = _production_version(jvm)
    levels = {METADATA_VERSION: production.featureLevel()}
    for feature in enum:
        method = next(m for m in feature.getClass().getMethods() if m.getName() in _DEFAULT_LEVEL)
        is_optional = method.getParameterTypes()[0].getSimpleName() == "Optional"  # 3.8
        argument = jvm.packages.java.util.Optional.of(production) if is_optional else production
        levels[feature.featureName()] = jvm.call(method, feature, argument)
    if missing := sorted(set(advertised) - levels.keys()):
        raise NotDerivedError(f"The release has no default level for {', '.join(missing)}.")
    return levels


def _feature_enum(jvm: Jvm, *, required: bool) -> list[Any]:
    for name in _FEATURE_ENUMS:
        java_class = jvm.find_class(name)
        if java_class is not None and java_class.isEnum():  # in 3.3-3.7 `Features` is a plain class
            return list(java_class.getEnumConstants())
    if required:
        raise NotDerivedError(f"The jars contain none of {', '.join(_FEATURE_ENUMS)}.")
    return []


def _has_metrics(jvm: Jvm, name: str, *wanted: str) -> bool:
    """Return whether the class has these metrics. The texts of all classes show whether it was moved."""
    names = _metric_names(jvm, name)
    if names and all(f"name={one}" in names for one in wanted):
        return True
    if moved := [one for one in wanted if any(one.encode() in code for code in classes_named(jvm.libs, ".*Metrics.*"))]:
        raise NotDerivedError(f"A class other than {name} has {', '.join(moved)}.")
    return False


def _metric_names(jvm: Jvm, name: str) -> str:
    java_class = jvm.find_class(name)
    if java_class is None:
        return ""
    found = []
    for field in java_class.getDeclaredFields():
        if field.getType().getSimpleName() == "MetricName":
            field.setAccessible(True)
            found.append(field.get(None).getMBeanName())
    return " ".join(found)


# --- records of the metadata log ---


def metadata_log(jvm: Jvm, release: Release) -> MetadataLogFacts:
    types = list(jvm.static(jvm.locate(_TYPES)).values())
    controller, broker = (_handled(jvm, jvm.locate(name), types) for name in (_CONTROLLER, _DELTA))
    records = {
        int(kind.id()): MetadataRecordFacts(
            name="".join(part.capitalize() for part in kind.name().split("_")),  # NO_OP_RECORD: NoOpRecord
            type=int(kind.id()),
            reads=VersionRange(kind.lowestSupportedVersion(), kind.highestSupportedVersion()),
            controller=kind.id() in controller,
            broker=kind.id() in broker,
        )
        for kind in types
    }
    return MetadataLogFacts(
        release=release,
        records=records,
        names={kind: record.name for kind, record in records.items()},
        starts_from_snapshot=starts_from_snapshot(jvm.libs),
    )


def starts_from_snapshot(libs: Path) -> bool:
    """Return whether a listener at offset 0 gets the newest snapshot although the log also begins there.

    KafkaRaftClient.updateListenersProgress asks for the snapshot once if it only bridges a gap, and more than once if
    it also checks for one.
    """
    (code,) = classes_named(libs, r"org/apache/kafka/raft/KafkaRaftClient\.class")
    methods = calls(code, frozenset({"latestSnapshot"}))
    asked = sum(called.total() for name, called in methods if "updateListenersProgress" in name)
    if not asked:
        raise NotDerivedError("KafkaRaftClient does not ask for a snapshot in updateListenersProgress.")
    return asked > 1


def _handled(jvm: Jvm, name: str, types: list[Any]) -> set[int]:
    """Return the record types of the cases in a class's switch over MetadataRecordType, from javac's table."""
    kind_name = _TYPES.rpartition(".")[2]
    for number in range(1, _NESTED_CLASSES):
        java = jvm.find_class(f"{name}${number}")
        if java is None:
            continue
        for field in java.getDeclaredFields():
            if field.getName().startswith("$SwitchMap$") and field.getName().endswith(f"${kind_name}"):
                field.setAccessible(True)
                cases = list(field.get(None))
                return {int(kind.id()) for kind in types if cases[kind.ordinal()]}
    raise NotDerivedError(f"{name} has no switch over {_TYPES}.")
