"""Kafka's own classes, called from Python: check a configuration, load a snapshot.

Every call starts a Java process on the release's jars (about a second) and ends it, except within `keep_processes`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.base.internal_topics import METADATA_LOG
from kafka_rollout.base.system.files import reading, sha256_of
from kafka_rollout.metadata_log.classes.authentication import probe_authentication
from kafka_rollout.metadata_log.classes.authorizers import decide
from kafka_rollout.metadata_log.classes.images import (
    ImageClasses,
    ReplayError,
    image_classes,
    java_errors,
    sentence_of,
)
from kafka_rollout.metadata_log.classes.node_configs import (
    config_definitions,
    find_problems,
    java_properties,
    secret_values,
    without_secrets,
)
from kafka_rollout.metadata_log.classes.replay import write_plain
from kafka_rollout.metadata_log.classes.start_files import find_start_problems, with_local_paths
from kafka_rollout.metadata_log.disk.folder import (
    CONTROL_KRAFT_VERSION,
    META,
    kraft_version_of,
    read_checkpoint,
)
from kafka_rollout.model.acls import Acl, AclDifferences, compare_answers, questions_of
from kafka_rollout.model.configs import ConfigProblem, DynamicConfigs, literal_settings, provider_classes
from kafka_rollout.model.host_state import BOOTSTRAP, DirectoryFormat
from kafka_rollout.model.listeners import base_name
from kafka_rollout.model.log_directories import DEFAULTS, DIRECTORY_KEYS, data_directories, named_directories
from kafka_rollout.model.probes import Probe
from kafka_rollout.model.starts import (
    FileRemark,
    NodeStart,
    PluginClass,
    StartProblems,
    is_plugin,
    login_classes,
    names_class,
)
from kafka_rollout.model.state import CheckpointSummary
from kafka_rollout.releases.facts import KRAFT_VERSION, METADATA_VERSION, Release, VersionRange
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.jvm import Jvm, keep_jvms, run_jvm

_OF_OTHER_JAVA = ("sun.", "com.sun.", "com.ibm.")
_YAMMER_REPORTERS = "kafka.metrics.reporters"  # not in the ConfigDef
_REMOTE, _REMOTE_STORAGE = "remote.log.", "remote.log.storage.system.enable"


@dataclass(frozen=True, slots=True)
class JvmKafkaClasses:
    """KafkaClasses (ports) on the jars of a release cache."""

    cache: ReleaseCache

    def keep_processes(self) -> AbstractContextManager[None]:
        return keep_jvms()

    def start_problems(self, release: Release, nodes: Mapping[int, NodeStart]) -> dict[int, StartProblems]:
        """The first problem that KafkaConfig finds, then those of classes, directories, keystores and login modules.

        Values of config providers are not resolved (node_configs), and no sentence contains a secret. KafkaConfig
        ignores unknown names. A class that is not Kafka's, and not in the folder of plugins, is left out: the rest of
        the configuration is checked with the default in its place.
        """
        if not nodes:
            return {}
        with run_jvm(self.cache.libs(release), plugins=self.cache.plugins) as jvm, java_errors(release):
            classes = ImageClasses(jvm, release)
            return {node_id: _problems(classes, start) for node_id, start in nodes.items()}

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

    def authentication_probes(
        self, release: Release, nodes: Mapping[int, Mapping[str, str]]
    ) -> dict[int, tuple[Probe, ...]]:
        # It sets properties, and Kafka's handlers keep keys in static fields.
        with run_jvm(self.cache.libs(release), alone=True) as jvm, java_errors(release):
            return probe_authentication(jvm, nodes)

    def setting_documentation(self, release: Release, names: Collection[str]) -> dict[str, str]:
        with run_jvm(self.cache.libs(release)) as jvm, java_errors(release):
            keys = config_definitions(jvm).configKeys()
            found = {name: keys.get(name) for name in names}
            return {name: str(get_field(key, "documentation")) for name, key in found.items() if key is not None}

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


def _problems(classes: ImageClasses, start: NodeStart) -> StartProblems:
    jvm = classes.jvm
    plugins = tuple(_absent_classes(jvm, start.properties))
    foreign = tuple(one for one in plugins if one.class_path or is_plugin(one.name))
    logins = tuple(_absent_login_classes(jvm, start))
    start = replace(start, properties=_without(start.properties, foreign))
    try:
        config = _kafka_config(jvm, with_local_paths(start))
    except Py4JJavaError as error:
        rejected: tuple[str, ...] = (sentence_of(error),)
        remarks: tuple[FileRemark, ...] = ()
    else:
        problems, remarks = find_start_problems(jvm, config, start)
        rejected = (
            *(
                f"Class {one.name} of {one.setting} is not on the class path"
                for one in (*plugins, *logins)
                if one not in foreign and not is_plugin(one.name)
            ),
            *(_format_problems(classes, start.properties, start.formats) if start.formats is not None else ()),
            *problems,
        )
    secrets = secret_values(jvm, [start.properties]) if rejected else frozenset()
    told = tuple(without_secrets(one, secrets) for one in rejected)
    return StartProblems(
        rejected=told, remarks=remarks, plugins=(*foreign, *(one for one in logins if is_plugin(one.name)))
    )


def _absent_classes(jvm: Jvm, properties: Mapping[str, str]) -> Iterator[PluginClass]:
    """Yield the classes that settings name and that are not on the class path.

    KafkaConfig itself loads those of settings of the type CLASS only; a node that starts loads the others as well, and
    ends if one is missing.
    """
    keys = config_definitions(jvm).configKeys()
    remote = properties.get(_REMOTE_STORAGE, "").strip().lower() == "true"
    for key, value in sorted(literal_settings(properties).items()):
        name = base_name(key)
        known = keys.get(name) or keys.get(name.partition(".")[2])
        is_class = known is not None and str(known.type().name()) == "CLASS"
        if not is_class and not (names_class(name) and (known is not None or name == _YAMMER_REPORTERS)):
            continue
        if name.startswith(_REMOTE) and not remote:
            continue
        # Classes of tiered storage can have a class path of their own.
        class_path = properties.get(f"{key.removesuffix('name')}path", "").strip() if key.endswith(".name") else ""
        for one in map(str.strip, value.split(",")):
            if "." in one and (class_path or not _has_class(jvm, one)):
                yield PluginClass(setting=key, name=one, class_path=class_path)
    for key, one in provider_classes(properties).items():
        if "." in one and not _has_class(jvm, one):
            yield PluginClass(setting=key, name=one)


def _absent_login_classes(jvm: Jvm, start: NodeStart) -> Iterator[PluginClass]:
    """Yield the login modules and creators of security providers that are not on the class path: KafkaConfig and
    JaasContext read their names only. Those of another Java are left out."""
    for setting, name in dict.fromkeys((*login_classes(start.properties), *start.login_modules)):
        if "." in name and not name.startswith(_OF_OTHER_JAVA) and not _has_class(jvm, name):
            yield PluginClass(setting=setting, name=name)


def _has_class(jvm: Jvm, name: str) -> bool:
    try:
        return jvm.find_class(name) is not None
    except Py4JJavaError:  # it is there, and fails by itself: KafkaConfig or the start shows how
        return True


def _without(properties: Mapping[str, str], plugins: Collection[PluginClass]) -> dict[str, str]:
    """Return the configuration without plugin classes, so that the defaults of their settings count."""
    lines = dict(properties)
    for key in {one.setting for one in plugins}:
        absent = {one.name for one in plugins if one.setting == key}
        left = [one for one in map(str.strip, lines[key].split(",")) if one not in absent]
        if left:
            lines[key] = ",".join(left)
        else:
            del lines[key]
    return lines


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
    kept = {key: value for key, value in properties.items() if key not in ("cordoned.log.dirs", *DIRECTORY_KEYS)}
    named = {
        "log.dirs": data_directories({**DEFAULTS, **properties}),
        "metadata.log.dir": named_directories(properties, "metadata.log.dir"),
    }
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
