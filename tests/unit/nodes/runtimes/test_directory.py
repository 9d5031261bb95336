"""The metadata directory of a node on its host: limits of what is read, and errors of its listing."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.internal_topics import METADATA_LOG
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostDirectory
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.releases.facts import Release
from tests.fakes.local_host import LocalHost

SEGMENT = f"{METADATA_LOG}/00000000000000000000.log"
VANISHED = "/usr/bin/find: '/data/__cluster_metadata-0/7.checkpoint': No such file or directory"
DENIED = "/usr/bin/find: '/data/__cluster_metadata-0': Permission denied"


@pytest.fixture
def host(tmp_path: Path) -> LocalHost:
    host = LocalHost(tmp_path / "host")
    (host.data / METADATA_LOG).mkdir(parents=True)
    (host.data / SEGMENT).write_bytes(b"x" * 108)
    return host


@pytest.fixture
def directory(host: LocalHost) -> HostDirectory:
    runtime = SshServiceRuntime(ClusterSpec(name="far", runtime="ssh_service", nodes=(host.node,)), host, Release.parse)
    return HostDirectory(runtime, host.node, str(host.data))


@pytest.mark.parametrize(("growth", "is_refused"), [(100, True), (101, False)])
def test_a_host_sends_no_endless_file(
    directory: HostDirectory, monkeypatch: pytest.MonkeyPatch, growth: int, is_refused: bool
) -> None:
    monkeypatch.setattr("kafka_rollout.nodes.runtimes.hosts.commands.GROWTH", growth)
    received: list[bytes] = []
    if not is_refused:
        directory.read(SEGMENT, 7, received.append)
        assert b"".join(received) == b"x" * 108
        return
    with pytest.raises(RefusedError, match=r"was listed with 7 B, and the host sent more than 107 B"):
        directory.read(SEGMENT, 7, received.append)
    assert received == []


def test_a_vanished_file_does_not_hide_a_missing_permission(
    host: LocalHost, directory: HostDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [VANISHED]
    found = f"f/108/1.5/7{host.data}/{SEGMENT}|".encode()
    monkeypatch.setattr(host, "run", lambda *_, **__: Done(1, found, "\n".join(errors)))
    assert [entry.name for entry in directory.entries()] == [SEGMENT]
    for both in ([VANISHED, DENIED], [DENIED, VANISHED], [DENIED]):
        errors[:] = both
        with pytest.raises(RefusedError, match=r"cannot list its metadata log: .* Permission denied") as refused:
            directory.entries()
        assert refused.value.remedy == "Give user kafka the right that the host names, then repeat the step."
    errors[:] = ["sudo: a password is required"]
    with pytest.raises(RefusedError, match="sudo on host"):
        directory.entries()
