"""The folder of a release on a host, with files as an unpacking leaves them: whole, interrupted, or of two archives."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.lease import unfenced
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.nodes.runtimes.hosts.user_access import _modes
from kafka_rollout.planning.findings.hosts import _KAFKA, _LIBRARIES
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.reported import identify_release
from kafka_rollout.wiring.cluster_ports import _reach_nodes
from tests.fakes.local_host import LocalHost, without_root
from tests.paths import INCLUDE

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


def runtime_at(libs: Path, tmp_path: Path, user: str = "root", start: str = "") -> tuple[SshServiceRuntime, NodeSpec]:
    """`user`, `start`: User= and ExecStart= of the unit."""
    parent = libs.parent.parent
    service = ServiceSpec(
        host="kafka-1",
        installation=f"{parent}/kafka_2.13-{{release}}",
        symlink=f"{parent}/kafka",
        configuration_file=f"{parent}/server.properties",
    )
    node = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=service)
    cluster = ClusterSpec(name="far", runtime="ssh_service", nodes=(node,))
    return SshServiceRuntime(
        cluster, LocalHost(tmp_path / "host", user=user, start=start), identify, CACHE.artifacts
    ), node


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
        (partial(cut, "lz4-java-1.0.jar"), r"jars in .*libs \(lz4-java-1\.0\.jar\) are not whole"),
        (lambda libs: (libs / "lz4-java-1.0.jar").write_bytes(b""), r"\(lz4-java-1\.0\.jar\) are not whole"),
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


@pytest.mark.timeout(60)
def test_a_pipe_among_the_jars_is_not_read(libs: Path, tmp_path: Path) -> None:
    unpack(libs)
    os.mkfifo(libs / "other-1.0.jar")
    runtime, node = runtime_at(libs, tmp_path)
    runtime.bring(node, RELEASE)


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


@pytest.fixture
def open_home() -> Iterator[Path]:
    """A folder that every user can enter."""
    home = Path(mkdtemp(prefix="release-folders-")).resolve()
    home.chmod(0o755)
    yield home
    for folder in (home, *home.rglob("*")):
        if folder.is_dir():
            folder.chmod(0o755)
    shutil.rmtree(home)


SCRIPTS = ("bin/kafka-server-start.sh", "bin/kafka-run-class.sh")


def unpack_all(home: Path) -> Path:
    """Make the folder of a release with its scripts; return its libs."""
    libs = home / "opt" / "kafka_2.13-4.3.1" / "libs"
    unpack(libs)
    (libs.parent / "bin").mkdir()
    for name in SCRIPTS:
        (libs.parent / name).write_text("#!/bin/sh\n")
        (libs.parent / name).chmod(0o755)
    return libs


@pytest.mark.parametrize(
    ("change", "says", "remedy"),
    [
        (lambda libs: None, "", ""),
        (lambda libs: libs.parent.chmod(0o750), "cannot enter FOLDER (mode 0750", "chmod -R a+rX FOLDER"),
        (lambda libs: libs.chmod(0o751), "cannot list and enter FOLDER/libs (mode 0751", "chmod -R a+rX FOLDER"),
        (lambda libs: libs.parent.parent.chmod(0o700), "cannot enter ABOVE (mode 0700", "chmod a+x ABOVE"),
        (
            lambda libs: (libs / "kafka-clients-4.3.1.jar").chmod(0o640),
            "cannot read FOLDER/libs/kafka-clients-4.3.1.jar (mode 0640",
            "chmod -R a+rX FOLDER",
        ),
        (
            lambda libs: (libs.parent / SCRIPTS[1]).chmod(0o644),
            "cannot execute FOLDER/bin/kafka-run-class.sh (mode 0644",
            "chmod a+rx FOLDER/bin/*.sh",
        ),
        (
            lambda libs: (libs.parent / SCRIPTS[0]).chmod(0o711),
            "cannot read FOLDER/bin/kafka-server-start.sh (mode 0711",
            "chmod -R a+rX FOLDER",
        ),
        (
            lambda libs: (libs.parent / SCRIPTS[1]).unlink(),
            "there is no FOLDER/bin/kafka-run-class.sh",
            "must not exist",
        ),
    ],
    ids=["as the archive", "umask 027", "libs", "above", "a jar", "no x", "no r", "no script"],
)
def test_a_release_is_installed_if_the_user_of_the_unit_can_use_it_as_a_start_does(
    open_home: Path, tmp_path: Path, change: Change, says: str, remedy: str
) -> None:
    libs = unpack_all(open_home)
    change(libs)
    start = f"{libs.parent.parent}/kafka/{SCRIPTS[0]} /etc/kafka/server.properties"
    runtime, node = runtime_at(libs, tmp_path, "nobody", start)
    if not says:
        runtime.bring(node, RELEASE)
        return

    def shown(text: str) -> str:
        return text.replace("FOLDER", str(libs.parent)).replace("ABOVE", str(libs.parent.parent))

    with pytest.raises(RefusedError) as refused:
        runtime.bring(node, RELEASE)
    assert shown(says) in refused.value.sentence
    assert shown(remedy) in refused.value.remedy
    if "there is no" not in says:
        assert "user nobody of the unit" in refused.value.sentence
        assert "must not exist" not in refused.value.remedy
        os.system(re.search("`(.*?)`", refused.value.remedy)[1])  # type: ignore[index]  # noqa: S605
        runtime.bring(node, RELEASE)


def test_scripts_count_only_if_the_unit_starts_them(open_home: Path, tmp_path: Path) -> None:
    libs = unpack_all(open_home)
    (libs.parent / SCRIPTS[1]).chmod(0o644)
    runtime, node = runtime_at(libs, tmp_path, "nobody", "/usr/bin/java -cp x/libs/* kafka.Kafka /etc/x.properties")
    runtime.bring(node, RELEASE)


def test_a_script_that_the_running_folder_does_not_have_is_not_run(open_home: Path, tmp_path: Path) -> None:
    libs = unpack_all(open_home)
    (libs.parent / SCRIPTS[1]).unlink()
    running = libs.parent.parent / "kafka_2.13-3.9.1"
    (running / "bin").mkdir(parents=True)
    (running / SCRIPTS[0]).write_text("exec java kafka.Kafka")
    link = libs.parent.parent / "kafka"
    link.symlink_to(running.name)
    runtime, node = runtime_at(libs, tmp_path, "nobody", f"{link}/{SCRIPTS[0]} /etc/kafka/server.properties")
    runtime.bring(node, RELEASE)
    (running / SCRIPTS[1]).write_text("")
    with pytest.raises(RefusedError, match=r"there is no .*/bin/kafka-run-class\.sh"):
        runtime.bring(node, RELEASE)


def test_modes_are_read_although_the_ids_have_different_widths() -> None:
    """`ls` aligns them."""
    modes = _modes(
        "drwxr-xr-x 1   0   0 4096 Nov 28 23:51 /\n"
        "drwxr-x--- 3 999 997   60 Nov 28 23:51 /var/lib/kafka\n"
        "drwxr-xr-x+ 2 1000 997 60 Nov 28 23:51 /var/lib/with a space\n"
    )
    assert {path: (one.mode, one.user_id, one.group_id, one.has_acl) for path, one in modes.items()} == {
        "/": (0o755, 0, 0, False),
        "/var/lib/kafka": (0o750, 999, 997, False),
        "/var/lib/with a space": (0o755, 1000, 997, True),
    }


@pytest.mark.parametrize("closed", ["", "libs", "..", "../..", "libs/kafka_2.13-4.3.1.jar"])
def test_jars_that_the_ssh_user_cannot_read_need_a_right_and_no_other_folder(
    open_home: Path, tmp_path: Path, closed: str
) -> None:
    libs = unpack_all(open_home)
    place = (libs.parent / closed).resolve()
    place.chmod(0o600)
    runtime, node = runtime_at(libs, tmp_path)
    with TemporaryDirectory() as login:
        Path(login).chmod(0o777)
        runtime.shell = _AsOther(login)  # type: ignore[assignment]
        with pytest.raises(RefusedError) as refused:
            runtime.bring(node, RELEASE)
    assert "cannot be read by the SSH user" in refused.value.sentence
    assert closed.endswith(".jar") or f"who cannot enter and list {place}" in refused.value.sentence
    right = f"chmod a+x {place}" if ".." in closed else f"setfacl -R -m u:USER:rX {libs.parent}"
    assert right in refused.value.remedy
    assert "must not exist" not in refused.value.remedy


@dataclass
class _AsOther:
    """A host on which the SSH user is not root. `login`: its home folder."""

    login: str

    def run(self, host: str, command: str | Sequence[str], *, text: str | None = None, **more: object) -> Done:
        line = command if isinstance(command, str) else shlex.join(command)
        ran = subprocess.run(
            [*without_root(), "sh", "-c", line], input=text, capture_output=True, text=True, cwd=self.login, check=False
        )
        return Done(ran.returncode, ran.stdout.encode(), ran.stderr)
