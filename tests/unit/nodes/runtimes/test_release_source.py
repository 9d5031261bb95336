"""Releases that are brought to a host: from an archive with its SHA-512, or by the operator's command."""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import FatalError, RefusedError, UserError
from kafka_rollout.model.topology import ClusterSpec, HostCommand, NodeSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.commands import service_of
from kafka_rollout.nodes.runtimes.hosts.installing import is_provided, provide
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.releases.facts import Release
from tests.fakes.local_host import LocalHost

RELEASE = Release(4, 3, 1)
EMPTY_JAR = b"PK\x05\x06" + b"\0" * 18


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "kafka_2.13-4.3.1.tgz"
    with tarfile.open(path, "w:gz") as file:
        entry = tarfile.TarInfo("kafka_2.13-4.3.1/libs/kafka_2.13-4.3.1.jar")
        entry.size = len(EMPTY_JAR)
        file.addfile(entry, io.BytesIO(EMPTY_JAR))
    digest = hashlib.sha512(path.read_bytes()).hexdigest().upper()
    groups = "\n".join(" ".join(digest[at + i : at + i + 8] for i in range(0, 64, 8)) for at in (0, 64))
    path.with_name(f"{path.name}.sha512").write_text(f"{path.name}: {groups}\n")
    return path


@pytest.fixture
def host(tmp_path: Path) -> LocalHost:
    return LocalHost(tmp_path / "host")


def node_of(host: LocalHost, **source: object) -> NodeSpec:
    service = ServiceSpec(host="kafka-1", installation=f"{host.home}/kafka_2.13-{{release}}", **source)  # type: ignore[arg-type]
    return NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=service)


def runtime_on(host: LocalHost, node: NodeSpec) -> SshServiceRuntime:
    return SshServiceRuntime(ClusterSpec(name="far", runtime="ssh_service", nodes=(node,)), host, Release.parse)


def test_an_archive_is_unpacked_under_the_name_of_the_release(host: LocalHost, archive: Path, tmp_path: Path) -> None:
    node = node_of(host, archive=f"{tmp_path}/kafka_2.13-{{release}}.tgz")
    broken = host.home / "kafka_2.13-4.3.1.kafka-rollout" / "libs"
    broken.mkdir(parents=True)
    (broken / "half.jar").write_text("of an earlier call")
    assert is_provided(node.service or ServiceSpec(host=""), RELEASE)
    assert runtime_on(host, node).bring(node, RELEASE)
    libs = host.home / "kafka_2.13-4.3.1" / "libs"
    assert [path.name for path in libs.iterdir()] == ["kafka_2.13-4.3.1.jar"]
    assert not broken.parent.exists()
    archive.unlink()
    assert not runtime_on(host, node).bring(node, RELEASE), "it is there"


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_wrong_or_missing_checksum_is_one_sentence_and_changes_nothing(
    host: LocalHost, archive: Path, tmp_path: Path, *, is_damaged: bool
) -> None:
    node = node_of(host, archive=f"{tmp_path}/kafka_2.13-{{release}}.tgz")
    checksum = archive.with_name(f"{archive.name}.sha512")
    if is_damaged:
        archive.write_bytes(archive.read_bytes() + b"more")
        says = r"kafka_2\.13-4\.3\.1\.tgz does not have the SHA-512"
    else:
        checksum.unlink()
        says = r"kafka_2\.13-4\.3\.1\.tgz\.sha512 cannot be read"
    with pytest.raises(UserError, match=says):
        is_provided(node.service or ServiceSpec(host=""), RELEASE)
    with pytest.raises(UserError, match=says):
        provide(runtime_on(host, node), node, RELEASE)
    assert not list(host.home.glob("kafka_2.13-*"))


def test_a_release_is_unpacked_without_sudo_and_readable_for_everybody(
    host: LocalHost, archive: Path, tmp_path: Path
) -> None:
    node = node_of(host, archive=f"{tmp_path}/kafka_2.13-{{release}}.tgz")
    runtime_on(host, node).bring(node, RELEASE)
    assert not (host.home / "commands").exists()
    folder = host.home / "kafka_2.13-4.3.1"
    assert [path.stat().st_mode & 0o777 for path in (folder, folder / "libs")] == [0o755, 0o755]


def test_a_folder_in_which_the_ssh_user_cannot_unpack_is_refused(
    host: LocalHost, archive: Path, tmp_path: Path
) -> None:
    node = node_of(host, archive=f"{tmp_path}/kafka_2.13-{{release}}.tgz")
    away = replace(service_of(node), installation="/proc/kafka_2.13-{release}")
    node = replace(node, service=away)
    with pytest.raises(RefusedError, match=r"The SSH user cannot create /proc/kafka_2\.13-4\.3\.1"):
        provide(runtime_on(host, node), node, RELEASE)


@pytest.mark.parametrize("is_right", [True, False])
def test_the_checksum_of_the_inventory_counts_and_not_the_file(
    host: LocalHost, archive: Path, tmp_path: Path, *, is_right: bool
) -> None:
    digest = hashlib.sha512(archive.read_bytes()).hexdigest()
    checksum = archive.with_name(f"{archive.name}.sha512")
    if is_right:
        checksum.unlink()
    pinned = {"4.3.1": digest if is_right else "0" * 128}
    node = node_of(host, archive=f"{tmp_path}/kafka_2.13-{{release}}.tgz", archive_sha512=pinned)
    if is_right:
        assert is_provided(service_of(node), RELEASE)
        return
    with pytest.raises(UserError, match="does not have the SHA-512 of the inventory"):
        is_provided(service_of(node), RELEASE)


def test_the_operators_command_installs_the_release(host: LocalHost) -> None:
    libs = f"{host.home}/kafka_2.13-{{release}}/libs"
    line = f"mkdir -p {libs}; printf 'PK\\005\\006' > {libs}/kafka_2.13-{{release}}.jar"
    node = node_of(host, install=HostCommand(command=line, timeout_s=60.0))
    runtime_on(host, node).bring(node, RELEASE)
    assert (host.home / "kafka_2.13-4.3.1" / "libs").is_dir()


def test_a_failing_command_is_shown_with_its_last_line(host: LocalHost) -> None:
    node = node_of(host, install=HostCommand(command="echo no such package >&2; exit 100", timeout_s=60.0))
    with pytest.raises(FatalError, match="no such package"):
        runtime_on(host, node).bring(node, RELEASE)
