"""Which errors a released controller can answer to UpdateFeatures at all: by its classes, and by one that runs."""

from __future__ import annotations

import socket
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_rollout.base.errors import FatalError
from kafka_rollout.base.system.clock import SystemClock
from kafka_rollout.base.system.free_ports import free_ports
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.client.features import send_feature_updates
from kafka_rollout.client.requests import ClusterConnections
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.java import java_binary
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

_OF_KRAFT = ("FeatureControlManager", "QuorumController")
_FEATURE_ERRORS = ("INVALID_REQUEST", "FEATURE_UPDATE_FAILED", "INVALID_UPDATE_VERSION")


def named_in(libs: Path, jar: str, class_file: str) -> set[str]:
    """Errors that a class names; empty where the release has no such class."""
    (path,) = libs.glob(jar)
    with zipfile.ZipFile(path) as opened:
        if class_file not in opened.namelist():
            return set()
        code = opened.read(class_file)
    return {error for error in _FEATURE_ERRORS if error.encode() in code}


@pytest.mark.parametrize("release", ["3.4.0", "3.4.1", "3.9.1", "4.0.1", "4.2.1", "4.3.1"])
def test_controllers_in_kraft_mode_know_one_refusal_and_the_two_others_are_zookeeper_s(
    release_cache: ReleaseCache, release: str
) -> None:
    libs = release_cache.libs(Release.parse(release))
    of_kraft = [
        named_in(libs, "kafka-metadata-*.jar", f"org/apache/kafka/controller/{name}.class") for name in _OF_KRAFT
    ]
    assert set.union(*of_kraft) == {"INVALID_UPDATE_VERSION"}
    of_zookeeper = named_in(libs, "kafka_2.13-*.jar", "kafka/controller/KafkaController.class")
    if release < "4":
        assert of_zookeeper >= {"INVALID_REQUEST", "FEATURE_UPDATE_FAILED"}
    else:
        assert of_zookeeper == set(), "there is no such controller any more"


@pytest.mark.full
def test_a_controller_in_zookeeper_mode_answers_invalid_request(release_cache: ReleaseCache, tmp_path: Path) -> None:
    """It supports no feature, so that no update of one ever gets as far as FEATURE_UPDATE_FAILED."""
    libs = release_cache.libs(Release(3, 4, 1))
    with running_in_zookeeper_mode(libs, tmp_path) as address:
        node = NodeSpec(node_id=1, name="broker-1", roles=frozenset({Role.BROKER}), broker_address=address)
        cluster = ClusterSpec(name="old", nodes=(node,))
        with KafkaAdmin(cluster) as admin:
            assert admin.features(node).supported == {}
            with pytest.raises(FatalError, match="Use this command only for clusters in KRaft mode"):
                admin.update_features({"group.version": 1}, validate_only=False)
        connections = ClusterConnections(cluster, ClientSecurity(), timeout_s=30)
        for level, said in (
            (1, "Could not apply finalized feature update because the provided feature is not supported."),
            (0, "Can not delete non-existing finalized feature."),
        ):
            (answer,) = send_feature_updates(
                connections,
                {"group.version": level},
                {},
                validate_only=False,
                unsafe=False,
                timeout_s=30,
                clock=SystemClock(),
            )
            assert (answer.error, answer.message) == ("INVALID_REQUEST", said)
        connections.close()


@contextmanager
def running_in_zookeeper_mode(libs: Path, folder: Path) -> Iterator[str]:
    """Address of a broker that has its ZooKeeper beside it; both come with the release's jars."""
    zookeeper, broker = free_ports(2)
    (folder / "zoo.cfg").write_text(
        f"dataDir={folder}/zookeeper\nclientPort={zookeeper}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
    )
    (folder / "server.properties").write_text(
        f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:{broker}\nzookeeper.connect=127.0.0.1:{zookeeper}\n"
        f"log.dirs={folder}/logs\n"
    )
    java = [str(java_binary()), "-Xmx256m", "-cp", f"{libs}/*"]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for main, config, port in (
            ("org.apache.zookeeper.server.ZooKeeperServerMain", "zoo.cfg", zookeeper),
            ("kafka.Kafka", "server.properties", broker),
        ):
            with (folder / f"{config}.log").open("wb") as log:
                started.append(subprocess.Popen([*java, main, str(folder / config)], stdout=log, stderr=log))
            wait_until(lambda port=port: listens(port), 240)
        yield f"127.0.0.1:{broker}"
    finally:
        for process in reversed(started):
            process.kill()
            process.wait(60)


def listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
