"""What releases do with equal metadata: decisions about ACLs, what they keep, and what they can publish. No broker."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kafka_rollout.cli.app import run_main
from kafka_rollout.metadata_log.classes.kafka_classes import JvmKafkaClasses
from kafka_rollout.metadata_log.classes.scanner import scan_metadata_log
from kafka_rollout.metadata_log.classes.snapshot import loss_report
from kafka_rollout.metadata_log.disk.folder import MetadataFolder, open_folder
from kafka_rollout.metadata_log.metadata_scan import LogReadiness
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.acls import read_acl
from tests.metadata_records import acl, append_records, empty_records
from tests.paths import FIXTURES
from tests.releases import NEWEST

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_java_per_release")]

R362, R370, R402, R412, R431 = (Release.parse(name) for name in ("3.6.2", "3.7.0", "4.0.2", "4.1.2", "4.3.1"))
R440 = Release(4, 4, 0)
ORDERS = "vXm1UXWzRvy7bdq0hZq1oQ"  # topic id in metadata-log-level-8
LOWERED = {"eligible.leader.replicas.version": 0, "group.version": 0, "share.version": 0, "streams.version": 0}


@pytest.fixture
def folder(tmp_path: Path) -> MetadataFolder:
    shutil.copytree(FIXTURES / "metadata-log-level-30", tmp_path / "new")
    return open_folder(tmp_path / "new")


@pytest.fixture
def old_level(tmp_path: Path) -> MetadataFolder:
    """A log at level 8 that each release since 3.4 replays."""
    shutil.copytree(FIXTURES / "metadata-log-level-8", tmp_path / "metadata")
    found = open_folder(tmp_path / "metadata")
    empty_records(found, 9, 12)  # group.version
    return found


def run(command: str, folder: Path, *arguments: object) -> int:
    return run_main(["metadata", command, "--log-dir", str(folder), *map(str, arguments)])


def test_a_range_of_addresses_means_something_only_from_4_4_0_on(release_cache: ReleaseCache) -> None:
    closed = (
        read_acl("User:alice", resource_name="denied", operation=2),
        read_acl("User:alice", resource_name="denied", operation=2, host="10.0.0.0/8", permission=2),
        read_acl("User:alice", resource_name="open", host="0.0.0.0/0"),
        read_acl("User:bob", resource_name="same", host="10.0.0.7"),
    )
    found = JvmKafkaClasses(release_cache).acl_differences(R431, [Release(3, 3, 2), R440], closed, {})
    assert found[Release(3, 3, 2)].changes == ()
    less, more = found[R440].changes
    assert (less.principal, less.more, {action.resource_name for action in less.actions}) == (
        "User:alice",
        False,
        {"denied"},
    )
    assert {address for addresses in less.actions.values() for address in addresses} == {"10.0.0.0", "10.255.255.255"}
    assert (more.more, {action.resource_name for action in more.actions}) == (True, {"open"})
    assert all(one.unknown == () for one in found.values())
    super_user = {"super.users": "User:admin;User:alice"}
    found = JvmKafkaClasses(release_cache).acl_differences(R431, [R440], closed, super_user)
    assert found[R440].changes == ()


def test_an_operation_that_a_release_does_not_know_is_named(release_cache: ReleaseCache) -> None:
    two_phase = read_acl("User:bob", resource_type=5, operation=15)
    found = JvmKafkaClasses(release_cache).acl_differences(R412, [R402, R431], [two_phase, read_acl("User:bob")], {})
    assert {release: one.unknown for release, one in found.items()} == {R402: (two_phase,), R431: ()}
    assert all(one.changes == () for one in found.values())


def test_losses_of_a_level_include_what_the_release_of_that_level_means_otherwise(
    folder: MetadataFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    append_records(folder, acl(1), acl(2, host="10.0.0.0/8", permissionType=2))
    assert run("scan", folder.root, "--to-level", 30, "--classes", "4.4.0", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["readers"] == ["4.3.1"]
    assert [(loss["kind"], loss["subject"]) for loss in told["losses"]] == [("access", "User:alice")]
    assert "User:alice gains READ on topic orders from 10.0.0.0, 10.255.255.255" in told["losses"][0]["sentence"]
    assert run("scan", folder.root, "--to-level", 30, "--classes", "4.4.0", "--release", "4.4.0", "--json") == 0
    assert json.loads(capsys.readouterr().out)["losses"] == []


def test_a_snapshot_names_what_its_reader_does_not_keep_and_decides_otherwise(
    folder: MetadataFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    append_records(
        folder,
        acl(1),
        acl(2, host="10.0.0.0/8", permissionType=2),
        acl(3, resourceType=5, resourceName="tx", operation=15),
    )
    features = [word for name, level in LOWERED.items() for word in ("--feature", f"{name}={level}")]
    arguments = ["--to-level", 25, "--release", "4.0.2", "--out", tmp_path / "out", *features, "--json"]
    assert run("snapshot", folder.root, *arguments) == 0
    lost = [loss["sentence"] for loss in json.loads(capsys.readouterr().out)["losses"]]
    assert any("loses its operation: TWO_PHASE_COMMIT. Kafka 4.0.2 does not keep it." in one for one in lost)
    assert any("User:alice gains READ on topic orders" in one and "Kafka 4.0.2 allows it" in one for one in lost)


@pytest.mark.parametrize("reader", ["3.9.2", pytest.param("3.4.1", marks=pytest.mark.full), "4.0.2"])
def test_an_older_release_that_keeps_the_level_loses_an_operation_that_it_does_not_know(
    old_level: MetadataFolder, release_cache: ReleaseCache, reader: str
) -> None:
    append_records(old_level, acl(1), acl(2, resourceType=5, resourceName="tx", operation=15))
    report = loss_report(old_level, None, cache=release_cache, release=R412, readers=(Release.parse(reader),))
    assert (report.from_level, report.to_level, report.readers) == (8, 8, (reader,))
    assert [(loss.kind, loss.subject.partition(" (")[0]) for loss in report.losses] == [
        ("operation", "User:alice on tx")
    ]


@pytest.mark.full
def test_equal_metadata_is_equal_on_each_release_that_can_write_it(
    old_level: MetadataFolder, folder: MetadataFolder, release_cache: ReleaseCache
) -> None:
    append_records(old_level, acl(1), acl(2, host="10.1.2.3"))
    older = [Release.parse(name) for name in ("3.4.1", "3.5.2", "3.6.2", "3.7.2", "3.8.1", "3.9.2", "4.0.2", "4.3.1")]
    report = loss_report(old_level, None, cache=release_cache, release=Release.parse(NEWEST), readers=older)
    assert report.losses == ()
    report = loss_report(folder, 30, cache=release_cache, release=Release.parse(NEWEST), readers=(R431,))
    assert report.losses == ()


def test_a_release_that_replays_the_log_and_cannot_publish_it_fails(
    old_level: MetadataFolder, release_cache: ReleaseCache, capsys: pytest.CaptureFixture[str]
) -> None:
    """KAFKA-16583: a finished reassignment below the level that assigns replicas to directories."""
    assert run("scan", old_level.root, "--release", R370) == 0
    change = {"partitionId": 0, "topicId": ORDERS, "replicas": [2], "isr": [2], "leader": 2}
    append_records(old_level, ("PartitionChangeRecord", 0, change))
    assert run("scan", old_level.root, "--release", R370) == 3
    said = capsys.readouterr().out
    assert "3.7.0: fails" in said
    assert "the directory assignment state of one or more replicas" in said
    scan = scan_metadata_log(old_level, R370, cache=release_cache)
    assert (scan.failures[0].where, scan.readiness) == ("image", LogReadiness.NEVER)
    assert "serve nobody" in scan.remedies[0]
    for other in (R362, Release(3, 7, 1), R431):
        assert scan_metadata_log(old_level, other, cache=release_cache).verdict == "replays"
