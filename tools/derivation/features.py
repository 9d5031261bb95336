"""Features, metadata versions, configuration names and metrics, from the release's own classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafka_rollout.adapters.metadata_log.kafka_classes import supported_features
from kafka_rollout.adapters.releases.jvm import Jvm
from kafka_rollout.domain.model.errors import FatalError
from kafka_rollout.domain.model.releases import METADATA_VERSION, FeatureFacts, MetadataVersionLevel, VersionRange
from tools.derivation.jars import classes_named

_BROKER_FEATURES = ("org.apache.kafka.server.BrokerFeatures", "kafka.server.BrokerFeatures")  # 4.x, 3.x
_FEATURE_ENUMS = ("org.apache.kafka.server.common.Feature", "org.apache.kafka.server.common.Features")  # 4.x, 3.8-3.9
# The error text with which every controller before KIP-1155 refuses a lossy downgrade.
_REFUSAL = b"Unsafe metadata downgrade is not supported in this version."
KIP_1155_LEVEL: int | None = None
"""The metadata.version of KIP-1155. Set it when a release has it, see `lossy_downgrade_level`."""
_LOADER_METRICS = "org.apache.kafka.image.loader.metrics.MetadataLoaderMetrics"
_SNAPSHOT_METRICS = "org.apache.kafka.image.publisher.metrics.SnapshotEmitterMetrics"


def features(jvm: Jvm) -> dict[str, FeatureFacts]:
    """Return the features that brokers and controllers advertise with unstable features disabled."""
    advertised = _advertised_by_brokers(jvm)
    if (controllers := supported_features(jvm)) != advertised:
        raise AssertionError(
            f"brokers advertise {advertised}, controllers {controllers}: ReleaseFacts holds one of them"
        )
    latest = {METADATA_VERSION: _latest_metadata_version(jvm)}
    dependencies: dict[str, dict[int, dict[str, int]]] = {}
    for feature in _feature_enum(jvm):
        name = feature.featureName()
        latest[name] = feature.latestProduction()
        needed = {version.featureLevel(): dict(version.dependencies()) for version in feature.featureVersions()}
        dependencies[name] = {level: others for level, others in needed.items() if others}
    return {
        name: FeatureFacts(
            name=name, supported=supported, latest_production=latest[name], dependencies=dependencies.get(name, {})
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


def config_names(jvm: Jvm) -> frozenset[str]:
    names = jvm.packages.kafka.server.KafkaConfig.configNames()
    return frozenset(jvm.packages.scala.jdk.javaapi.CollectionConverters.asJava(names))


def config_resources(jvm: Jvm) -> frozenset[str]:
    """Return the kinds of resources whose settings the release supports (ConfigResource.Type)."""
    kinds = jvm.packages.org.apache.kafka.common.config.ConfigResource.Type.values()
    return frozenset(kind.name() for kind in kinds) - {"UNKNOWN"}


def has_current_metadata_version_metric(jvm: Jvm) -> bool:
    return "name=CurrentMetadataVersion" in _metric_names(jvm, _LOADER_METRICS)


def has_snapshot_emitter_metrics(jvm: Jvm) -> bool:
    names = _metric_names(jvm, _SNAPSHOT_METRICS)
    return "name=LatestSnapshotGeneratedAgeMs" in names and "name=LatestSnapshotGeneratedBytes" in names


def lossy_downgrade_level(libs: Path, level: int | None = KIP_1155_LEVEL) -> int | None:
    """Return KIP-1155's metadata.version if the controller lowers across levels that changed metadata, else None.

    That it does not is read from its controller. Which level the KIP gets is nowhere in the jars, so it is a constant
    of this module. The first release that no longer refuses stops the tool until it is set.
    """
    code = classes_named(libs, r"org/apache/kafka/controller/FeatureControlManager\.class")
    if not code:
        raise FatalError(f"The jars of {libs} have no FeatureControlManager.", remedy="Look where it has gone.")
    if any(_REFUSAL in one for one in code):
        return None
    if level is None:
        raise FatalError(
            f"The controller of {libs} does not refuse an unsafe downgrade of metadata.version any more: it may "
            "implement KIP-1155.",
            remedy="Look for the level of KIP-1155 in its MetadataVersion and its upgrade notes, set KIP_1155_LEVEL in "
            "tools/derivation/features.py to it, and derive again. Then run the downgrade's tests on that release.",
        )
    return level


def logging_backend(libs: Path) -> str:
    """Return the logging backend of the broker's log level controllers (Log4j*Controller)."""
    code = classes_named(libs, r".*/Log4j\w*Controller\$?\.class")
    found = {
        backend
        for backend, package in (("log4j2", b"org/apache/logging/log4j"), ("reload4j", b"org/apache/log4j"))
        if any(package in one for one in code)
    }
    if len(found) != 1:
        raise AssertionError(f"the log level controller of {libs} uses {sorted(found) or 'no known backend'}")
    return found.pop()


def _advertised_by_brokers(jvm: Jvm) -> dict[str, VersionRange]:
    java_class = next(found for name in _BROKER_FEATURES if (found := jvm.find_class(name)))
    supported = _call_static(jvm, java_class, ("createDefault",)).supportedFeatures().features()
    return {name: VersionRange(version.min(), version.max()) for name, version in dict(supported).items()}


def _call_static(jvm: Jvm, java_class: Any, names: tuple[str, ...]) -> Any:
    """Call the first of these with at most one argument, which is `enableUnstableVersions`."""
    method = next(
        method
        for name in names
        for method in java_class.getMethods()
        if method.getName() == name and method.getParameterCount() <= 1
    )
    return jvm.call(method, None, *([False] * method.getParameterCount()))


def _latest_metadata_version(jvm: Jvm) -> int:
    java_class = jvm.packages.java.lang.Class.forName("org.apache.kafka.server.common.MetadataVersion")
    level: int = _call_static(jvm, java_class, ("latestProduction", "latest")).featureLevel()
    return level


def _feature_enum(jvm: Jvm) -> list[Any]:
    for name in _FEATURE_ENUMS:
        java_class = jvm.find_class(name)
        if java_class is not None and java_class.isEnum():  # in 3.3-3.7 `Features` is a plain class
            return list(java_class.getEnumConstants())
    return []


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
