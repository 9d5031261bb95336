"""Kafka's own classes, called from Python: check a configuration, load a snapshot.

Every call starts a Java process on the release's jars (about a second) and ends it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.base.internal_topics import METADATA_LOG
from kafka_rollout.base.system.files import reading, sha256_of
from kafka_rollout.kafka.files import server_properties
from kafka_rollout.metadata_log.classes.authorizers import decide
from kafka_rollout.metadata_log.classes.images import (
    ImageClasses,
    ReplayError,
    image_classes,
    java_errors,
    sentence_of,
)
from kafka_rollout.metadata_log.classes.node_configs import (
    find_problems,
    java_properties,
    secret_values,
    without_secrets,
)
from kafka_rollout.metadata_log.classes.replay import write_plain
from kafka_rollout.metadata_log.disk.folder import (
    CONTROL_KRAFT_VERSION,
    META,
    kraft_version_of,
    read_checkpoint,
)
from kafka_rollout.model.acls import Acl, AclDifferences, compare_answers, questions_of
from kafka_rollout.model.configs import ConfigProblem, DynamicConfigs, literal_settings
from kafka_rollout.model.host_state import BOOTSTRAP, DirectoryFormat
from kafka_rollout.model.state import CheckpointSummary
from kafka_rollout.releases.facts import KRAFT_VERSION, METADATA_VERSION, Release, VersionRange
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.jvm import Jvm, run_jvm

PLUGINS = ("authorizer.class.name", "kafka.metrics.reporters", "metric.reporters", "replica.selector.class")
_DIRECTORIES = ("log.dirs", "log.dir", "metadata.log.dir")


@dataclass(frozen=True, slots=True)
class JvmKafkaClasses:
    """KafkaClasses (ports) on the jars of a release cache."""

    cache: ReleaseCache

    def config_problems(
        self, release: Release, properties: Mapping[str, str], formats: Mapping[str, DirectoryFormat] | None = None
    ) -> tuple[str, ...]:
        """The first problem that KafkaConfig finds, or the plugin classes that the release does not have, and why it
        would not start with the format of the directories.

        Values of config providers are not resolved (node_configs), and no sentence contains a secret.
        KafkaConfig ignores unknown names. It loads the classes of settings of the type CLASS only; a node that starts
        loads those of PLUGINS as well, and ends if one is missing.
        """
        return self.config_problems_of(release, {0: (properties, formats)})[0]

    def config_problems_of(
        self,
        release: Release,
        nodes: Mapping[int, tuple[Mapping[str, str], Mapping[str, DirectoryFormat] | None]],
    ) -> dict[int, tuple[str, ...]]:
        if not nodes:
            return {}
        with run_jvm(self.cache.libs(release)) as jvm, java_errors(release):
            classes = ImageClasses(jvm, release)
            return {node_id: _problems(classes, *of_node) for node_id, of_node in nodes.items()}

    def dynamic_config_problems(
        self, release: Release, brokers: Mapping[int, Mapping[str, str]], dynamic: DynamicConfigs
    ) -> tuple[ConfigProblem, ...]:
        with run_jvm(self.cache.libs(release)) as jvm, java_errors(release):
            return find_problems(jvm, brokers, dynamic)

    def acl_differences(
        self, source: Release, others: Sequence[Release], acls: Sequence[Acl], settings: Mapping[str, str]
    ) -> dict[Release, AclDifferences]:
        questions = questions_of(acls)
        answers = {}
        for release in dict.fromkeys((source, *others)):
            with run_jvm(self.cache.libs(release)) as jvm, java_errors(release):
                answers[release] = decide(jvm, acls, questions, settings)
        return {
            release: AclDifferences(
                unknown=answers[release].unknown,
                changes=compare_answers(acls, questions, answers[source], answers[release]),
            )
            for release in others
        }

    def load_checkpoint(self, release: Release, path: Path) -> CheckpointSummary:
        """Build the image as a starting node does: check batches, replay records, check every finalized level.

        The image classes alone do not compare the levels with those that the release supports.
        """
        with reading(path):
            sha256 = sha256_of(path)
        with (
            tempfile.TemporaryDirectory(prefix="kafka-rollout-") as name,
            image_classes(self.cache, release) as classes,
        ):
            plain = Path(name) / "records"
            try:
                offsets = write_plain(read_checkpoint(path), plain, markers=True)
                image = classes.replay(classes.empty(), plain, offsets=offsets)
            except UserError as error:
                raise RefusedError(error.sentence, remedy=error.remedy) from error
            except ReplayError as error:
                raise _cannot_load(release, path, error.why) from error
            features: dict[str, int] = {**dict(image.features().finalizedVersions()), **_kraft_version(path)}
            if (level := classes.level_of(image)) is not None:
                features[METADATA_VERSION] = level
            _refuse_unsupported(release, path, features, supported_features(classes.jvm))
            return CheckpointSummary(
                release=str(release),
                features=dict(sorted(features.items())),
                brokers=tuple(sorted(image.cluster().brokers())),
                controllers=_controllers(image),
                topics=image.topics().topicsByName().size(),
                partitions=sum(topic.partitions().size() for topic in image.topics().topicsByName().values()),
                records=len(offsets),
                sha256=sha256,
            )


def _problems(
    classes: ImageClasses, properties: Mapping[str, str], formats: Mapping[str, DirectoryFormat] | None
) -> tuple[str, ...]:
    jvm = classes.jvm
    try:
        _kafka_config(jvm, properties)
    except Py4JJavaError as error:
        return (without_secrets(sentence_of(error), secret_values(jvm, [properties])),)
    missing = tuple(
        f"Class {name} of {setting} is not on the class path"
        for setting in PLUGINS
        for name in map(str.strip, literal_settings(properties).get(setting, "").split(","))
        if name and jvm.find_class(name) is None
    )
    return (*missing, *(_format_problems(classes, properties, formats) if formats is not None else ()))


def _kafka_config(jvm: Jvm, properties: Mapping[str, str]) -> Any:
    return jvm.packages.kafka.server.KafkaConfig.fromProps(java_properties(jvm, properties), False)


def _format_problems(
    classes: ImageClasses, properties: Mapping[str, str], formats: Mapping[str, DirectoryFormat]
) -> tuple[str, ...]:
    """Return why KafkaRaftServer.initializeLogDirs refuses the directories; empty if it does not.

    Kafka's error about a bootstrap.checkpoint names neither the file nor the directory.

    It gets copies of the files that it reads: from 3.7 on it writes a directory.id to meta.properties. It does not read
    cordoned.log.dirs, which names the directories themselves.
    """
    if unreadable := tuple(f"{path} cannot be read: {one.problem}" for path, one in formats.items() if one.problem):
        return unreadable
    jvm = classes.jvm
    kept = {key: value for key, value in properties.items() if key not in ("cordoned.log.dirs", *_DIRECTORIES)}
    data = {"log.dirs": properties.get("log.dirs") or {**server_properties.DEFAULTS, **properties}["log.dir"]}
    named = {key: _paths({**properties, **data}, key) for key in ("log.dirs", "metadata.log.dir")}
    with tempfile.TemporaryDirectory(prefix="kafka-rollout-") as name:
        copies = {path: Path(name) / str(number) for number, path in enumerate(formats)}
        for path, copy in copies.items():
            _write_format(formats[path], copy)
        if rejected := tuple(
            f"{path}/{BOOTSTRAP}: {why.rstrip('.')}"
            for path, copy in copies.items()
            if formats[path].bootstrap is not None and (why := classes.bootstrap_problem(copy))
        ):
            return rejected
        paths = {key: ",".join(str(copies[one]) for one in found) for key, found in named.items() if found}
        config = _kafka_config(jvm, {**kept, **paths})
        server = jvm.packages.java.lang.Class.forName("kafka.server.KafkaRaftServer$")
        initialize = next(method for method in server.getMethods() if method.getName() == "initializeLogDirs")
        arguments = [config, jvm.packages.org.slf4j.LoggerFactory.getLogger(server.getName()), ""]
        try:
            # Before 3.7 the configuration is the only parameter.
            jvm.call(initialize, server.getField("MODULE$").get(None), *arguments[: initialize.getParameterCount()])
        except Py4JJavaError as error:
            sentence = sentence_of(error)
            for path, copy in copies.items():
                sentence = sentence.replace(str(copy), path)
            return (sentence,)
    return ()


def _paths(properties: Mapping[str, str], key: str) -> list[str]:
    return [path.strip() for path in properties.get(key, "").split(",") if path.strip()]


def _write_format(found: DirectoryFormat, folder: Path) -> None:
    folder.mkdir()
    for name, content in ((META, found.meta), (BOOTSTRAP, found.bootstrap)):
        if content is not None:
            (folder / name).write_bytes(content)
    if found.has_metadata_log:
        (folder / METADATA_LOG).mkdir()


def supported_features(jvm: Jvm) -> dict[str, VersionRange]:
    """The features that controllers of the release advertise, without unstable ones (QuorumFeatures)."""
    quorum_features = jvm.packages.java.lang.Class.forName(jvm.locate("org.apache.kafka.controller.QuorumFeatures"))
    method = next(
        method
        for method in quorum_features.getMethods()
        if method.getName() in ("defaultSupportedFeatureMap", "defaultFeatureMap")  # 4.x, 3.x
    )
    # From 3.7 on the only parameter is `enableUnstable`.
    supported = jvm.call(method, None, *([False] * method.getParameterCount()))
    return {name: VersionRange(version.min(), version.max()) for name, version in dict(supported).items()}


def _kraft_version(path: Path) -> dict[str, int]:
    """kraft.version, if the snapshot has one: in a control record, which the image does not contain."""
    levels = [
        kraft_version_of(record)
        for batch in read_checkpoint(path)
        for record in batch.records
        if batch.is_control and record.type == CONTROL_KRAFT_VERSION
    ]
    return {KRAFT_VERSION: levels[-1]} if levels else {}


def _controllers(image: Any) -> tuple[int, ...]:
    """Registered controllers; releases before 3.7 have no such registrations."""
    names = {method.getName() for method in image.cluster().getClass().getMethods()}
    return tuple(sorted(image.cluster().controllers())) if "controllers" in names else ()


def _refuse_unsupported(
    release: Release, path: Path, features: Mapping[str, int], supported: Mapping[str, VersionRange]
) -> None:
    for name, level in sorted(features.items()):
        if level not in supported.get(name, VersionRange(0, 0)):
            supports = f"{name} {supported[name]}" if name in supported else f"no {name}"
            raise _cannot_load(release, path, f"it finalizes {name} {level}, and the release supports {supports}")


def _cannot_load(release: Release, path: Path, why: str) -> RefusedError:
    return RefusedError(
        f"Kafka {release} cannot load the snapshot {path}: {why.rstrip('.')}.",
        remedy=f"Do not start {release} on it. Lower the features first, or keep the release that wrote it.",
    )
