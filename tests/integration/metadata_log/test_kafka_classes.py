"""Kafka's own classes, asked on real jars: configurations a release refuses, snapshots it can and cannot load."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from py4j.protocol import Py4JJavaError

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.base.internal_topics import METADATA_LOG
from kafka_rollout.formats.files import server_properties
from kafka_rollout.formats.log_files import can_parse_file, parse_folder
from kafka_rollout.gates.log_directories import COUNTED_SINCE
from kafka_rollout.metadata_log.classes.kafka_classes import JvmKafkaClasses
from kafka_rollout.model import node_log
from kafka_rollout.model.host_state import DirectoryFormat
from kafka_rollout.model.starts import NodeStart, PluginClass, StartProblems
from kafka_rollout.planning.findings.configuration import READS_DIRECTORY_IDS, config_findings
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.java import java_binary
from kafka_rollout.releases.jvm.jvm import run_jvm
from tests.integration.conftest import MakeCluster
from tests.integration.harness.start_checks import rejected
from tools.demo.folder import PROJECT_ROOT

CONTROLLER = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/nowhere",
}
OLD, MIDDLE, NEW = Release(3, 4, 1), Release(3, 9, 1), Release(4, 3, 1)
NEWEST = max(load_catalogue(PROJECT_ROOT / "include").releases)


FOLDERS = (
    *("orders-0", "orders-00", "orders-+1", "a.b-7", "orders--1", "backup-20261130", "orders-99999999999", "-0", "a-"),
    *("__cluster_metadata-0.bak", "orders-0.bak", "orders-0_old", "backup", "lost+found", ".trash", "orders 1-2"),
)
FILES = ("0.log", f"{0:020}.bak.log", "dump.log", ".log", "-5.index", "9223372036854775808.txnindex", "a.log.swap")
CHECKPOINTS = (
    *(f"{5:020}-{1:010}.checkpoint", f"{5:020}-{1:010}.bak.checkpoint", f"{5:020}-{1:010}.checkpoint.part"),
    *("old.checkpoint", "old.checkpoint.deleted", f"{5:020}.checkpoint", "old.bak", "leader-epoch-checkpoint"),
)


@pytest.fixture(scope="module")
def classes(release_cache: ReleaseCache, one_java_per_release: None) -> JvmKafkaClasses:
    return JvmKafkaClasses(release_cache)


@pytest.mark.jvm
@pytest.mark.parametrize("release", [OLD, MIDDLE, NEW], ids=str)
def test_a_configuration_that_starts_has_no_problem(classes: JvmKafkaClasses, release: Release) -> None:
    assert rejected(classes, release, CONTROLLER) == ()


@pytest.mark.jvm
def test_a_segment_size_is_fine_for_3_9_1_and_too_small_for_4_3_1(classes: JvmKafkaClasses) -> None:
    properties = {**CONTROLLER, "log.segment.bytes": "20000"}
    assert rejected(classes, MIDDLE, properties) == ()
    (problem,) = rejected(classes, NEW, properties)
    assert problem == "Invalid value 20000 for configuration log.segment.bytes: Value must be at least 1048576"


def formats(properties: Mapping[str, str]) -> Mapping[str, DirectoryFormat] | None:
    return server_properties.directory_formats(properties, server_properties.local_format)


@pytest.mark.jvm
def test_a_cordoned_directory_is_no_problem_of_its_format(classes: JvmKafkaClasses, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "meta.properties").write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=1\n")
    properties = {**CONTROLLER, "log.dirs": f"{first},{second}", "cordoned.log.dirs": str(second)}
    assert rejected(classes, NEW, properties, formats(properties)) == ()
    (second / "meta.properties").write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=2\n")
    assert len(rejected(classes, NEW, properties, formats(properties))) == 1


@pytest.mark.jvm
@pytest.mark.parametrize("release", [OLD, NEW], ids=str)
def test_the_format_of_every_directory_is_read_as_at_a_start(
    classes: JvmKafkaClasses, release: Release, tmp_path: Path
) -> None:
    properties = {**CONTROLLER, "log.dirs": "/data/1,/data/2", "metadata.log.dir": "/meta"}
    own = DirectoryFormat(meta=b"version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=1\n")
    right = {"/data/1": own, "/data/2": own, "/meta": own}

    def problems(first: DirectoryFormat = own, second: DirectoryFormat = own) -> tuple[str, ...]:
        return rejected(classes, release, properties, {**right, "/data/1": first, "/data/2": second})

    assert problems() == ()
    (other,) = problems(second=DirectoryFormat(meta=b"version=1\ncluster.id=BAAAAAAAAAAAAAAAAAAAAA\nnode.id=1\n"))
    assert "BAAAAAAAAAAAAAAAAAAAAA" in other
    (unformatted,) = problems(second=DirectoryFormat())
    assert "/data/2" in unformatted
    (misplaced,) = problems(first=replace(own, has_metadata_log=True))
    assert "unexpected metadata location" in misplaced
    assert problems(second=DirectoryFormat(problem="Permission denied")) == (
        "/data/2 cannot be read: Permission denied",
    )


@pytest.mark.jvm
def test_a_requirement_between_settings_is_told_in_kafkas_words(classes: JvmKafkaClasses) -> None:
    (problem,) = rejected(classes, NEW, {**CONTROLLER, "broker.id": "7"})
    assert problem == "You must set `node.id` to the same value as `broker.id`."


KAFKAS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter",
}


@pytest.mark.jvm
@pytest.mark.parametrize("setting", KAFKAS)
def test_a_class_of_kafka_that_the_release_does_not_have_is_a_problem_although_kafka_config_accepts_it(
    classes: JvmKafkaClasses, setting: str
) -> None:
    assert rejected(classes, NEW, {**CONTROLLER, setting: KAFKAS[setting]}) == ()
    gone = "kafka.security.authorizer.AclAuthorizer"
    (problem,) = rejected(classes, NEW, {**CONTROLLER, setting: gone})
    assert problem == f"Class {gone} of {setting} is not on the class path"


PLUGINS = {
    "authorizer.class.name": "com.example.Missing",
    "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter, com.example.Missing",
    "kafka.metrics.reporters": "com.example.Missing",
    "client.quota.callback.class": "com.example.Missing",
    "principal.builder.class": "com.example.Missing",
    "listener.name.plaintext.sasl.login.callback.handler.class": "com.example.Missing",
}


@pytest.mark.jvm
@pytest.mark.parametrize("release", [OLD, NEW], ids=str)
def test_a_class_of_others_proves_nothing_and_the_rest_is_checked(classes: JvmKafkaClasses, release: Release) -> None:
    def checked(**more: str) -> StartProblems:
        properties = {**CONTROLLER, **PLUGINS, **{key.replace("_", "."): value for key, value in more.items()}}
        return classes.start_problems(release, {1: NodeStart(properties=properties)})[1]

    found = checked()
    assert found.rejected == ()
    assert found.plugins == tuple(PluginClass(setting=one, name="com.example.Missing") for one in sorted(PLUGINS))
    assert checked(num_io_threads="0").rejected == (
        "Invalid value 0 for configuration num.io.threads: Value must be at least 1",
    )


LOGINS = {
    **CONTROLLER,
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}


@pytest.mark.jvm
def test_a_login_module_and_a_security_provider_of_others_are_absent_plugins(classes: JvmKafkaClasses) -> None:
    line = "listener.name.plaintext.plain.sasl.jaas.config"
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"

    def checked(**more: str) -> StartProblems:
        properties = {**LOGINS, **{key.replace("_", "."): value for key, value in more.items()}}
        return classes.start_problems(NEW, {1: NodeStart(properties=properties, files={}, jvm_arguments=())})[1]

    found = checked(
        **{line: 'com.example.Ldap required url="ldap://a;b required, c";'},
        security_providers="com.example.Creator, com.example.Other",
    )
    assert (found.rejected, found.plugins) == (
        (),
        (
            PluginClass(setting=line, name="com.example.Ldap"),
            PluginClass(setting="security.providers", name="com.example.Creator"),
            PluginClass(setting="security.providers", name="com.example.Other"),
        ),
    )
    unused = {"listener.name.other.plain.sasl.jaas.config": "com.example.Ldap required;"}
    for module in (
        plain,
        "com.sun.security.auth.module.Krb5LoginModule",
        "com.ibm.security.auth.module.Krb5LoginModule",
    ):
        assert checked(**{line: f"{module} required;", **unused}).plugins == ()
    place = "KafkaServer in /etc/kafka/jaas.conf"
    start = NodeStart(properties=LOGINS, files={}, login_modules=((place, plain), (place, "com.example.Ldap")))
    of_file = classes.start_problems(NEW, {1: start})[1]
    assert (of_file.rejected, of_file.plugins) == ((), (PluginClass(setting=place, name="com.example.Ldap"),))
    gone = checked(**{line: "org.apache.kafka.common.security.Gone required;"})
    assert gone.rejected == (f"Class org.apache.kafka.common.security.Gone of {line} is not on the class path",)


@pytest.mark.jvm
def test_a_class_in_the_folder_of_plugins_is_no_absent_plugin(classes: JvmKafkaClasses) -> None:
    agent = classes.cache.agents().jolokia
    properties = {**CONTROLLER, "metric.reporters": "org.jolokia.jvmagent.JvmAgent"}
    assert len(classes.start_problems(NEW, {1: NodeStart(properties=properties)})[1].plugins) == 1
    with_folder = JvmKafkaClasses(replace(classes.cache, plugins=agent.parent))
    assert rejected(with_folder, NEW, properties) == ()


def formatted(release: Release, cache: ReleaseCache, folder: Path, *options: str) -> Path:
    """bootstrap.checkpoint as the release's StorageTool writes it."""
    properties = {**CONTROLLER, "log.dirs": str(folder / "data")}
    config = folder / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    command = [str(java_binary()), "-Xmx128m", "-cp", f"{cache.libs(release)}/*", "kafka.tools.StorageTool", "format"]
    command += ["--cluster-id", "AAAAAAAAAAAAAAAAAAAAAQ", "--config", str(config), *options]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return folder / "data" / "bootstrap.checkpoint"


@pytest.mark.jvm
def test_what_the_format_tool_wrote_is_read_back(
    classes: JvmKafkaClasses, release_cache: ReleaseCache, tmp_path: Path
) -> None:
    path = formatted(NEW, release_cache, tmp_path)
    summary = classes.load_checkpoint(NEW, path)
    assert summary.features["metadata.version"] == 30
    assert summary.features["group.version"] == 1
    assert (summary.brokers, summary.topics, summary.records) == ((), 0, len(summary.features))
    assert summary.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.jvm
def test_a_bootstrap_checkpoint_with_a_level_below_the_releases_is_named(
    classes: JvmKafkaClasses, release_cache: ReleaseCache, tmp_path: Path
) -> None:
    path = formatted(Release(3, 6, 2), release_cache, tmp_path, "--release-version", "3.3-IV0")
    properties = {**CONTROLLER, "log.dirs": str(path.parent)}
    (problem,) = rejected(classes, Release(4, 0, 0), properties, formats(properties))
    assert problem.startswith(f"{path}: No MetadataVersion with feature level 4")
    (found,) = config_findings(Release(4, 0, 0), {1: (problem,)})
    assert (found.code, found.subject) == ("BOOTSTRAP-CHECKPOINT-REJECTED", "node 1")
    assert str(path) in found.sentence
    assert "release_overrides" not in found.remedy
    assert rejected(classes, NEW, properties, formats(properties)) == ()


@pytest.mark.jvm
def test_an_older_release_refuses_the_level_in_its_own_words(
    classes: JvmKafkaClasses, release_cache: ReleaseCache, tmp_path: Path
) -> None:
    path = formatted(NEW, release_cache, tmp_path)
    with pytest.raises(
        RefusedError, match=r"Kafka 3\.4\.1 cannot load .*: No MetadataVersion with metadata version 30"
    ):
        classes.load_checkpoint(OLD, path)


@pytest.mark.jvm
def test_a_feature_that_a_starting_node_would_die_of_is_refused_though_its_image_loads(
    classes: JvmKafkaClasses, release_cache: ReleaseCache, tmp_path: Path
) -> None:
    levels = ("--feature", "metadata.version=8", "--feature", "group.version=1")
    path = formatted(NEW, release_cache, tmp_path, *levels)
    assert classes.load_checkpoint(NEW, path).features == {"metadata.version": 8, "group.version": 1}
    with pytest.raises(
        RefusedError, match=r"it finalizes group\.version 1, and the release supports no group\.version"
    ):
        classes.load_checkpoint(OLD, path)


@pytest.mark.jvm
@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_copy_is_refused(
    classes: JvmKafkaClasses, release_cache: ReleaseCache, tmp_path: Path, damage: str
) -> None:
    path = formatted(NEW, release_cache, tmp_path)
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[-10:]
    else:
        data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(RefusedError, match="is damaged or not complete"):
        classes.load_checkpoint(NEW, path)


@pytest.mark.jvm
def test_a_path_that_is_not_there_is_told_before_any_java_starts(classes: JvmKafkaClasses, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        classes.load_checkpoint(NEW, tmp_path / "gone.checkpoint")


@pytest.mark.jvm
def test_the_java_process_is_gone_after_the_block_and_its_token_was_never_an_argument(
    release_cache: ReleaseCache,
) -> None:
    others = set(psutil.Process(os.getpid()).children())
    with run_jvm(release_cache.libs(NEW), alone=True) as jvm:
        (process,) = (one for one in {*psutil.Process(os.getpid()).children()} - others if "py4j" in str(one.cmdline()))
        assert jvm.gateway.gateway_parameters.auth_token not in " ".join(process.cmdline())
        (listening,) = (one for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN)
        assert listening.laddr.ip in ("127.0.0.1", "::ffff:127.0.0.1")
    assert not process.is_running()


@pytest.mark.integration
@pytest.mark.parametrize(
    "release",
    [NEW, pytest.param(OLD, marks=pytest.mark.full), pytest.param(MIDDLE, marks=pytest.mark.full)],
    ids=str,
)
def test_a_snapshot_that_a_running_node_wrote_is_counted_right(
    classes: JvmKafkaClasses, make_cluster: MakeCluster, release: Release
) -> None:
    cluster = make_cluster(
        str(release),
        layout="combined",
        size=1,
        extra_config={"metadata.log.max.snapshot.interval.ms": "2000"},
    )
    admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
    for future in admin.create_topics([NewTopic("orders", 3, 1), NewTopic("payments", 2, 1)]).values():
        future.result(60)
    (node,) = cluster.spec.nodes
    for path in snapshots(Path(node.directory), within_s=300):
        summary = classes.load_checkpoint(release, path)
        if summary.topics == 2:  # earlier ones were written before the topics
            break
    assert (summary.release, summary.topics, summary.partitions) == (str(release), 2, 5)
    assert summary.brokers == (node.node_id,)
    assert summary.controllers == (() if release == OLD else (node.node_id,))
    assert summary.features["metadata.version"] == {OLD: 8, MIDDLE: 21, NEW: 30}[release]


def snapshots(below: Path, *, within_s: float) -> Iterator[Path]:
    """Snapshots of the metadata log as they appear."""
    seen: set[Path] = set()
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        new = set(below.rglob("__cluster_metadata-0/*.checkpoint")) - seen
        seen |= new
        yield from sorted(new)
        time.sleep(0.5)
    raise AssertionError(f"no snapshot with the topics appeared below {below}")


@pytest.mark.jvm
@pytest.mark.parametrize(
    "release",
    [
        str(OLD),
        str(MIDDLE),
        *(pytest.param(one, marks=pytest.mark.full) for one in ("3.3.2", "3.5.2", "3.6.0", "3.6.1", "3.7.0", "4.3.1")),
    ],
)
def test_the_names_that_a_release_refuses_are_known(release_cache: ReleaseCache, release: str) -> None:
    """LogManager.loadLogs gives the name of each folder to this method, and LogLoader and KafkaMetadataLog those of
    files: a node ends when one throws."""
    parsed = Release.parse(release)
    kinds = ("stray", "delete", "future")
    ours = {name: parse_folder(name, parsed) for name in FOLDERS}
    ours |= {name: parse_folder(name, parsed) for kind in kinds for name in (f"a-1.0b5f-{kind}", f"a.b-1-{kind}")}
    with run_jvm(release_cache.libs(parsed)) as jvm:
        logs = jvm.moved("kafka.log.UnifiedLog", "org.apache.kafka.storage.internals.log.UnifiedLog")
        snapshots = jvm.static("org.apache.kafka.snapshot.Snapshots")
        file = jvm.packages.java.io.File

        def starts(call: Callable[[], object]) -> bool:
            with suppress(Py4JJavaError):
                call()
                return True
            return False

        found: dict[str, tuple[str, int] | None] = dict.fromkeys(ours)
        for name in ours:
            with suppress(Py4JJavaError):
                seen = logs.parseTopicPartitionName(file(f"/data/{name}"))
                found[name] = seen.topic(), seen.partition()
        assert found == ours
        for name in FILES:
            wanted = can_parse_file("orders-0", name)
            assert starts(partial(logs.offsetFromFile, file(f"/data/orders-0/{name}"))) is wanted, name
        for name in CHECKPOINTS:
            wanted = can_parse_file(METADATA_LOG, name)
            assert starts(partial(snapshots.parse, file(f"/data/{METADATA_LOG}/{name}").toPath())) is wanted, name


@pytest.mark.jvm
@pytest.mark.parametrize("release", [pytest.param("3.3.2", marks=pytest.mark.full), "3.4.1"])
def test_the_releases_that_refuse_several_directories_with_ids_are_known(
    release_cache: ReleaseCache, tmp_path: Path, release: str
) -> None:
    """3.7 and later write directory.id into each meta.properties, so a rollback can start with them or not."""
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = f"version=1\ncluster.id=AAAAAAAAQACAAAAAAAAAAQ\nnode.id=1\ndirectory.id=AAAAAAAAQACAAAAAAAAAA{number}\n"
        (folder / "meta.properties").write_text(text)
    with run_jvm(release_cache.libs(Release.parse(release))) as jvm:
        scala = jvm.packages.scala.jdk.javaapi.CollectionConverters
        names = jvm.packages.java.util.ArrayList()
        for number in (1, 2):
            names.add(str(tmp_path / str(number)))
        checkpoint = jvm.packages.kafka.server.BrokerMetadataCheckpoint
        kraft = () if Release.parse(release) < Release(3, 4, 0) else (True,)
        refused = ""
        try:
            checkpoint.getBrokerMetadataAndOfflineDirs(scala.asScala(names).toSeq(), False, *kraft)
        except Py4JJavaError as error:
            refused = str(error.java_exception)
    assert ("BrokerMetadata is not consistent across log.dirs" in refused) is bool(refused), refused
    assert bool(refused) is (Release.parse(release) < READS_DIRECTORY_IDS)


LOGGED = {
    "TransactionStateManager": ("Error loading transactions from transaction log", "Finished loading "),
    "CoordinatorRuntime": ("Failed to load metadata from ", "Finished loading of metadata from "),
    "LoggingSignalHandler": ("Registered signal handlers for ",),
    "BrokerLifecycleManager": ("Successfully registered broker ",),
    "LoggingFaultHandler": ("Encountered {} fault: {}",),
    "TopicBasedRemoteLogMetadataManager": (node_log._INITIALISED,),
}


KAFKA_CLASSES = sorted(release for release in load_catalogue(PROJECT_ROOT / "include").releases)


@pytest.mark.parametrize(
    "release",
    [
        pytest.param(one, marks=() if one in {Release(3, 6, 2), Release(3, 7, 2), NEW, NEWEST} else pytest.mark.full)
        for one in KAFKA_CLASSES
    ],
    ids=str,
)
def test_the_releases_that_count_an_error_of_several_log_directories_are_known(
    release_cache: ReleaseCache, release: Release
) -> None:
    """MetadataVersionConfigValidator has moved, and from 4.2 on it makes the text that was KafkaConfig's."""
    found: dict[str, bytes] = {}
    for jar in sorted(release_cache.libs(release).glob("kafka*.jar")):
        with zipfile.ZipFile(jar) as archive:
            names = [
                name
                for name in archive.namelist()
                if re.search(r"/(\w+Validator|KafkaConfig|BrokerServer)\.class", name)
            ]
            found |= {name.rpartition("/")[2].removesuffix(".class"): archive.read(name) for name in names}
    validator = found.get("MetadataVersionConfigValidator", b"")
    assert bool(validator) is (release >= COUNTED_SINCE)
    assert (b"MetadataVersionConfigValidator" in found["BrokerServer"]) is bool(validator)
    if validator:
        message = node_log._LEVEL_FAULT.removeprefix(node_log._PUBLISHING)
        assert message.encode() in validator
        assert node_log._DIRECTORIES.encode() in validator + found["KafkaConfig"]


@pytest.mark.parametrize("release", [NEW, NEWEST], ids=str)
def test_what_is_concluded_from_a_log_is_what_the_classes_log(release_cache: ReleaseCache, release: Release) -> None:
    """A class that a release has moved, or a text that it has changed, would let every gate wait."""
    found: dict[str, bytes] = {}
    for jar in sorted(release_cache.libs(release).glob("kafka*.jar")):
        with zipfile.ZipFile(jar) as archive:
            found |= {name: archive.read(name) for name in archive.namelist() if name.endswith(".class")}
    for names in (node_log._SIGNAL_HANDLERS, {node_log._FAULTS}, {node_log.REMOTE_LOG_MANAGER}):
        assert any(f"{name.replace('.', '/')}.class" in found for name in names), names
    for simple_name, texts in LOGGED.items():
        of_class = re.compile(rf".*/{simple_name}(\$.*)?\.class")
        content = b"".join(data for name, data in found.items() if of_class.fullmatch(name))
        assert [text for text in texts if text.encode() not in content] == [], simple_name
