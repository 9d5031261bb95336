"""Mounts of a unit above, at and below the paths of a node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.findings import Finding
from kafka_rollout.model.host_state import HostState, PlaceState, StartFileKind, StartPath, StartPlace, UnitMount
from kafka_rollout.model.topology import NodeSpec, Role, ServiceSpec
from kafka_rollout.planning.findings.unit_mounts import unit_mount_findings
from kafka_rollout.releases.facts import Release

NODE = NodeSpec(
    node_id=4,
    name="kafka-4",
    roles=frozenset({Role.BROKER}),
    service=ServiceSpec(host="kafka-4", log_file="/var/log/kafka/server.log"),
)
TMP = "/tmp"  # noqa: S108 - of the unit
HOST = HostState(
    name="kafka-4",
    unit="kafka.service",
    symlink="/opt/kafka",
    folders={Release(4, 3, 1): "/opt/kafka_2.13-4.3.1"},
    releases=frozenset(),
    symlink_can_switch=True,
    stop_timeout_s=300.0,
)


def start_path(kind: StartFileKind, path: str, place: str = "") -> StartPath:
    now = StartPlace(path=place or path, state=PlaceState.FILE)
    return StartPath(kind=kind, path=path, now=now, after={})


PATHS = (
    start_path(StartFileKind.IDENTITY, "/var/lib/kafka"),
    start_path(StartFileKind.IDENTITY, "/data", "/mnt/disk1"),
    start_path(StartFileKind.KEYS, "/etc/keys/keystore.jks"),
    start_path(StartFileKind.JVM, TMP),
    start_path(StartFileKind.NAMED, f"{TMP}/x/y"),
    start_path(StartFileKind.UNIT, "/etc/default/kafka"),
)


def found(*mounts: str, same: tuple[str, ...] = ()) -> list[Finding]:
    listed = [UnitMount(setting="Mount=", path=path, place=path, is_same=False) for path in mounts]
    listed += [UnitMount(setting="BindPaths=", path=path, place=path, is_same=True) for path in same]
    return list(unit_mount_findings(NODE, replace(HOST, start_paths=PATHS, mounts=tuple(listed))))


@pytest.mark.parametrize(
    ("mount", "names"),
    [
        ("/var/lib/kafka", "/var/lib/kafka"),
        ("/var/lib", "/var/lib/kafka"),
        ("/var", "/var/log/kafka/server.log, /var/lib/kafka"),
        ("/var/lib/kafka/__cluster_metadata-0", "/var/lib/kafka"),
        ("/mnt/disk1", "/data"),
        ("/data", "/data"),
        ("/etc/kafka", "/etc/kafka/server.properties"),
        ("/etc/kafka/server.properties", "/etc/kafka/server.properties"),
        ("/opt", "/opt/kafka, /opt/kafka_2.13-4.3.1"),
        ("/opt/kafka_2.13-4.3.1/libs", "/opt/kafka_2.13-4.3.1"),
    ],
)
def test_a_mount_over_what_a_run_reads_and_changes_blocks(mount: str, names: str) -> None:
    (one,) = found(mount)
    assert (one.code, one.severity.value, one.subject) == (
        "UNIT-SEES-OTHER-FILE",
        "blocker",
        f"node 4, Mount=, {mount}",
    )
    assert f"than the tool in {names}. A run would read and change" in one.sentence


@pytest.mark.parametrize(
    ("mount", "names"), [("/etc/keys", "/etc/keys/keystore.jks"), (TMP, f"{TMP}/x/y"), (f"{TMP}/x", f"{TMP}/x/y")]
)
def test_a_mount_over_what_only_a_check_reads_is_a_warning(mount: str, names: str) -> None:
    (one,) = found(mount)
    assert (one.severity.value, f"in {names}. Those were not" in one.sentence) == ("warning", True)


@pytest.mark.parametrize("mount", ["/var/lib/kafka2", "/etc/default", "/var/cache", "/home", "/etc/kafka/ssl"])
def test_a_mount_elsewhere_says_nothing(mount: str) -> None:
    assert found(mount) == []


def test_what_a_unit_binds_back_below_another_mount_is_the_same() -> None:
    assert found("/var", same=("/var/lib/kafka", "/var/log")) == []
    assert found("/", same=("/var", "/etc", "/opt", "/data", "/mnt/disk1", TMP)) == []
    (one,) = found("/var/lib/kafka", same=("/var",))
    assert one.severity.value == "blocker", "the deepest counts"
