"""The folder of a release on a host, with files as an unpacking leaves them: whole, interrupted, or of two archives."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import cast

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.lease import unfenced
from kafka_rollout.model.host_state import how_to_install
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.nodes.runtimes.hosts.release_folders import ReleaseFolder, read_release_folders
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.planning.findings.hosts import _KAFKA, _LIBRARIES
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.reported import identify_release
from kafka_rollout.wiring.cluster_ports import _reach_nodes
from tests.fakes.local_host import LocalHost
from tests.paths import INCLUDE
from tests.unit.nodes.runtimes.test_start_paths import ShellOfThisMachine

RELEASE = Release(4, 3, 1)
CACHE = ReleaseCache(Path("/nowhere"), INCLUDE)
Change = Callable[[Path], object]


def identify(version: str) -> Release | None:
    return identify_release(version, load_catalogue(INCLUDE), {"4.3.1-ours": "4.3.1"}).release


def jar(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("META-INF/MANIFEST.MF", "x" * 99)


def unpack(libs: Path, version: str = "4.3.1", library: str = "1.0") -> None:
    """Make the jars of a broker, and some that it does not need."""
    libs.mkdir(parents=True)
    for artifact in CACHE.artifacts(RELEASE):
        jar(libs / f"{artifact}-{version if artifact.startswith('kafka') else library}.jar")
    for name in ("connect-api-4.3.1.jar", "kafka_2.13-4.3.1-sources.jar", "our-plugin.jar"):
        jar(libs / name)


@pytest.fixture
def libs(tmp_path: Path) -> Path:
    return tmp_path / "opt" / "kafka_2.13-4.3.1" / "libs"


def runtime_at(libs: Path, tmp_path: Path) -> tuple[SshServiceRuntime, NodeSpec]:
    parent = libs.parent.parent
    service = ServiceSpec(
        host="kafka-1",
        installation=f"{parent}/kafka_2.13-{{release}}",
        symlink=f"{parent}/kafka",
        configuration_file=f"{parent}/server.properties",
    )
    node = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=service)
    cluster = ClusterSpec(name="far", runtime="ssh_service", nodes=(node,))
    return SshServiceRuntime(cluster, LocalHost(tmp_path / "host"), identify, CACHE.artifacts), node


def rename(libs: Path, old: str, new: str) -> None:
    (libs / old).rename(libs / new)


def cut(name: str, libs: Path) -> None:
    (libs / name).write_bytes((libs / name).read_bytes()[:-30])


def empty(libs: Path) -> None:
    for path in libs.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    "change",
    [
        lambda libs: None,
        lambda libs: rename(libs, "slf4j-api-1.0.jar", "slf4j-api-1.0.jar.bak"),
        lambda libs: rename(libs, "jackson-core-1.0.jar", "jackson-core-2.22.0.jar"),
        lambda libs: rename(libs, "scala-logging_2.13-1.0.jar", "scala-logging_2.12-1.0.jar"),
        partial(cut, "our-plugin.jar"),
    ],
    ids=["as the archive", "another binding of logs", "a newer library", "Scala 2.12", "a jar of others"],
)
def test_a_folder_with_all_jars_of_a_release_is_that_release(libs: Path, tmp_path: Path, change: Change) -> None:
    unpack(libs)
    change(libs)
    runtime, node = runtime_at(libs, tmp_path)
    runtime.bring(node, RELEASE)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (empty, r"libs lacks 42 of 42 jars of Kafka 4\.3\.1 \(HdrHistogram"),
        (lambda libs: rename(libs, "kafka_2.13-4.3.1.jar", "kafka_2.13-4.3.0.jar"), r"has jars of 4\.3\.0 and 4\.3\.1"),
        (lambda libs: jar(libs / "kafka_2.13-4.2.1.jar"), r"has jars of 4\.2\.1 and 4\.3\.1"),
        (lambda libs: jar(libs / "kafka-clients-4.2.1.jar"), r"has jars of 4\.2\.1 and 4\.3\.1"),
        (lambda libs: (libs / "kafka_2.13-4.3.1.jar").unlink(), r"lacks 1 of 42 jars of Kafka 4\.3\.1 \(kafka\)"),
        (lambda libs: (libs / "kafka-raft-4.3.1.jar").unlink(), r"lacks 1 of 42 jars.*\(kafka-raft\)"),
        (lambda libs: (libs / "scala-library-1.0.jar").unlink(), r"lacks 1 of 42 jars.*\(scala-library\)"),
        (partial(cut, "lz4-java-1.0.jar"), r"jars in .*libs are not whole \(lz4-java-1\.0\.jar\)"),
        (lambda libs: (libs / "lz4-java-1.0.jar").write_bytes(b""), r"are not whole \(lz4-java-1\.0\.jar\)"),
    ],
)
def test_a_folder_without_a_whole_release_is_refused_before_the_stop(
    libs: Path, tmp_path: Path, change: Change, says: str
) -> None:
    unpack(libs)
    change(libs)
    runtime, node = runtime_at(libs, tmp_path)
    with pytest.raises(RefusedError, match=says) as refused:
        runtime.bring(node, RELEASE)
    assert f"to {libs.parent}, which must not exist before" in refused.value.remedy


@pytest.mark.parametrize("closed", ["", "libs", "libs/kafka_2.13-4.3.1.jar"])
def test_jars_that_the_ssh_user_cannot_read_need_a_right_and_no_other_folder(closed: str) -> None:
    home = Path(mkdtemp(prefix="release-folders-"))
    try:
        home.chmod(0o755)
        libs = home / "kafka_2.13-4.3.1" / "libs"
        unpack(libs)
        service = ServiceSpec(host="kafka-1", installation=f"{home}/kafka_2.13-{{release}}")
        node = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=service)

        def read() -> ReleaseFolder:
            shell = cast(HostCommands, ShellOfThisMachine(home))  # not as root
            return read_release_folders(shell, node, [RELEASE], identify, CACHE.artifacts)[RELEASE]

        assert read().lacks == ""
        (libs.parent / closed).chmod(0o000)
        folder = read()
    finally:
        for path in (libs.parent, libs):
            path.chmod(0o755)
        shutil.rmtree(home)
    assert "cannot be read by the SSH user" in folder.lacks
    assert folder.exists
    assert "setfacl -R -m u:rollout:rX" in how_to_install(RELEASE, folder.path, folder.lacks, "rollout")


@pytest.mark.parametrize(
    ("version", "says"),
    [("4.3.0", r"has the jars of 4\.3\.0"), ("4.3.9", r"has the jars of 4\.3\.9"), ("4.3.1-ours", "")],
)
def test_the_version_of_the_jars_counts_and_not_the_name_of_the_folder(
    libs: Path, tmp_path: Path, version: str, says: str
) -> None:
    unpack(libs, version, library="other")
    runtime, node = runtime_at(libs, tmp_path)
    if not says:
        runtime.bring(node, RELEASE)
        return
    with pytest.raises(RefusedError, match=says):
        runtime.bring(node, RELEASE)


def test_an_archive_is_not_unpacked_over_a_folder(libs: Path, tmp_path: Path) -> None:
    libs.parent.mkdir(parents=True)
    runtime, node = runtime_at(libs, tmp_path)
    with pytest.raises(RefusedError, match=r"is not installed on host kafka-1: there is no .*/libs\."):
        runtime.bring(node, RELEASE)


@pytest.mark.parametrize("release", CACHE.known(), ids=str)
def test_each_jar_that_is_wanted_is_one_of_an_archive(release: Release) -> None:
    artifacts = CACHE.artifacts(release)
    assert {"kafka-clients", "kafka-server-common", "scala-library"} <= artifacts
    assert [one for one in artifacts if not _KAFKA.fullmatch(one) and not _LIBRARIES.fullmatch(one)] == []


def test_a_release_without_a_lock_has_no_known_jars() -> None:
    assert CACHE.artifacts(Release(9, 9, 9)) == frozenset()


def test_the_hosts_of_a_cluster_are_asked_with_the_jars_of_the_locks(libs: Path, tmp_path: Path) -> None:
    unpack(libs)
    (libs / "kafka-raft-4.3.1.jar").unlink()
    made, node = runtime_at(libs, tmp_path)
    runtime, _, _ = _reach_nodes(
        made.cluster,
        None,  # type: ignore[arg-type]
        CACHE,
        load_catalogue(INCLUDE),
        fence=unfenced,
        open_shell=lambda: LocalHost(tmp_path / "other"),  # type: ignore[arg-type, return-value]
    )
    with pytest.raises(RefusedError, match=r"lacks 1 of 42 jars"):
        runtime.bring(node, RELEASE)
