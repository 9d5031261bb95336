"""Metadata logs that real brokers wrote: what a lower level loses, where an older release dies, and that it starts
after a trim. One node each, short-lived.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka.admin import KafkaAdminClient

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.metadata_log.changes.trimmer import trim, undo_trim
from kafka_rollout.metadata_log.classes.kafka_classes import JvmKafkaClasses
from kafka_rollout.metadata_log.classes.scanner import scan_metadata_log
from kafka_rollout.metadata_log.classes.snapshot import loss_report, write_snapshot
from kafka_rollout.metadata_log.disk.folder import MetadataFolder, log_range, open_folder
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.integration.conftest import MakeCluster
from tools.demo.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

OLDEST, OLD, NEW = Release(3, 4, 0), Release(3, 4, 1), Release(4, 3, 1)
SNAPSHOTS = {"metadata.log.max.snapshot.interval.ms": "3000"}
# The controller can write two records that follow each other closely as one batch.
HOW_IT_DIES = re.compile(
    r"Unable to apply FeatureLevelRecord record on standby controller, "
    r"which was (\d+) of \d+ record\(s\) in the batch with baseOffset (\d+)\."
)


def metadata_of(cluster: LocalCluster) -> Path:
    return Path(str(cluster.spec.nodes[0].directory)) / "data" / "metadata"


def bytes_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def wait_for_snapshot(folder: MetadataFolder, *, beyond: int) -> None:
    deadline = time.monotonic() + 180
    while not any(one.end_offset > beyond for one in folder.checkpoints):
        assert time.monotonic() < deadline, f"no snapshot beyond offset {beyond}"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def newest(make_shared_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> MetadataFolder:
    """A stopped 4.3.1 node at level 30: two log directories, one of them cordoned; topics, a SCRAM user."""
    first, second = (tmp_path_factory.mktemp(name) for name in ("logs-1", "logs-2"))
    cluster = make_shared_cluster(
        str(NEW),
        name="newest",
        layout="combined",
        size=1,
        extra_config={**SNAPSHOTS, "log.dirs": f"{first},{second}", "cordoned.log.dirs": str(second)},
    )
    admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
    for future in admin.create_topics([NewTopic("orders", 3, 1)]).values():
        future.result(60)
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion("alice", credential, b"secret of alice")
    for done in admin.alter_user_scram_credentials([upsertion]).values():
        done.result(60)
    folder = open_folder(metadata_of(cluster))
    wait_for_snapshot(folder, beyond=log_range(folder)[1] - 1)
    for future in admin.create_topics([NewTopic("later", 1, 1)]).values():
        future.result(60)
    cluster.stop(deadline_s=180)  # a broker that is killed does not say which replicas it leaves behind
    return folder


@pytest.fixture(scope="module")
def old_level(make_shared_cluster: MakeCluster) -> LocalCluster:
    """A stopped 4.3.1 node at 3.4-IV0, group.version set to 1 and back; a snapshot behind both."""
    cluster = make_shared_cluster(
        str(NEW), name="old-level", layout="combined", size=1, metadata_version="3.4-IV0", extra_config=SNAPSHOTS
    )
    admin = KafkaAdminClient(bootstrap_servers=cluster.spec.bootstrap_servers)
    try:
        assert admin.update_features({"group.version": ("UPGRADE", 1)}) == {"group.version": "OK"}
        assert admin.update_features({"group.version": ("SAFE_DOWNGRADE", 0)}) == {"group.version": "OK"}
    finally:
        admin.close()
    folder = open_folder(metadata_of(cluster))
    wait_for_snapshot(folder, beyond=log_range(folder)[1] - 1)
    cluster.stop()
    return cluster


def restart_on(cluster: LocalCluster, release: Release) -> None:
    (node,) = cluster.spec.nodes
    cluster.runtime.install(node, release)
    cluster.start()


def offset_where_it_dies(cluster: LocalCluster, release: Release) -> int:
    """Start a node, read in its log at which record its controller dies, and end the process, which can remain."""
    (node,) = cluster.spec.nodes
    log = Path(str(node.directory)) / "logs" / "server.log"
    before = log.stat().st_size
    cluster.runtime.install(node, release)
    cluster.runtime.start(node)
    deadline = time.monotonic() + 180
    try:
        while (found := HOW_IT_DIES.search(said := log.read_bytes()[before:].decode(errors="replace"))) is None:
            assert time.monotonic() < deadline, said
            time.sleep(0.2)
    finally:
        cluster.stop(deadline_s=0.0)
    return int(found[2]) + int(found[1]) - 1


def test_losses_name_which_brokers_which_directories_and_nothing_is_written(
    newest: MetadataFolder, release_cache: ReleaseCache
) -> None:
    before = bytes_below(newest.root)
    report = loss_report(newest, 29, cache=release_cache, release=NEW)
    (loss,) = report.losses
    assert (report.from_level, report.to_level, loss.kind, loss.subject) == (
        30, 29, "cordoned log directories", "broker 1",
    )  # fmt: skip
    assert len(loss.sentence.split(": ")[1].rstrip(".")) == len("SjsugtA7F6YxfWx3HdBG8w")
    assert report.default_only == ()
    assert bytes_below(newest.root) == before


def test_losses_grow_as_the_level_falls_and_below_the_floor_that_is_said(
    newest: MetadataFolder, release_cache: ReleaseCache
) -> None:
    seen = {}
    for level in (23, 22, 16, 14, 8):
        report = loss_report(newest, level, cache=release_cache, release=NEW)
        seen[level] = {loss.kind for loss in report.losses}
        assert report.below_floor == (level < 15)
        assert any("KIP-919" in note for note in report.notes) == (level < 15)
    assert seen[23] == {"cordoned log directories"}
    assert seen[22] >= {"eligible leader replicas"}
    assert seen[16] >= {"online log directories", "directory assignment"}
    assert "controller registration" in seen[14] - seen[16]
    assert "SCRAM credential" in seen[8] - seen[14]


@pytest.mark.parametrize("target", [Release(4, 2, 1)])
def test_a_snapshot_at_the_lower_level_loads_in_the_target_release(
    newest: MetadataFolder, release_cache: ReleaseCache, tmp_path: Path, target: Release
) -> None:
    before = bytes_below(newest.root)
    written = write_snapshot(newest, 29, tmp_path, cache=release_cache, release=NEW, readers=(target,))
    assert written.path.name.startswith(f"{log_range(newest)[1]:020}-")
    assert (written.kraft_version, written.proved_by) == (0, (NEW, target))
    with pytest.raises(UserError, match="already exists"):
        write_snapshot(newest, 29, tmp_path, cache=release_cache, release=NEW, readers=(target,))
    assert [path.name for path in tmp_path.iterdir()] == [written.path.name]
    assert bytes_below(newest.root) == before


@pytest.mark.parametrize(
    ("level", "target", "why"),
    [
        (29, Release(4, 0, 1), "controllers of 4.0.1 support metadata.version 7-25"),
        (25, Release(4, 0, 1), r"controllers of 4.0.1 support no s\w+.version"),
        (22, None, "eligible.leader.replicas.version 1 needs metadata.version 23"),
        (14, None, "below the floor 15"),
    ],
)
def test_a_snapshot_that_the_target_could_not_start_from_is_not_written(  # noqa: PLR0917
    newest: MetadataFolder, release_cache: ReleaseCache, tmp_path: Path, level: int, target: Release | None, why: str
) -> None:
    with pytest.raises(RefusedError, match=why):
        write_snapshot(newest, level, tmp_path, cache=release_cache, release=NEW, readers=(target,) if target else ())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_a_dynamic_quorums_voters_and_kraft_version_are_carried(
    make_cluster: MakeCluster, release_cache: ReleaseCache, tmp_path: Path
) -> None:
    cluster = make_cluster(str(NEW), layout="combined", size=1, quorum="dynamic", extra_config=SNAPSHOTS)
    folder = open_folder(metadata_of(cluster))
    wait_for_snapshot(folder, beyond=0)
    cluster.stop()
    # No directory is cordoned here: Kafka's handler speaks of a loss all the same.
    report = loss_report(folder, 29, cache=release_cache, release=NEW)
    assert report.losses == ()
    assert {one.kind for one in report.default_only} == {"cordoned log directories"}
    assert report.kafka_said == ("the cordoned log directories of one or more brokers",)
    written = write_snapshot(folder, 29, tmp_path, cache=release_cache, release=NEW, readers=(Release(4, 2, 1),))
    assert written.kraft_version == 1
    loaded = JvmKafkaClasses(release_cache).load_checkpoint(Release(4, 2, 1), written.path)
    assert (loaded.features["kraft.version"], loaded.features["metadata.version"]) == (1, 29)
    # The very node starts from it, on the release that refused its metadata.version before.
    install_as_only(folder, written.path)
    restart_on(cluster, Release(4, 2, 1))
    assert finalized(cluster)["metadata.version"] == 29
    scan = scan_metadata_log(folder, OLD, cache=release_cache)
    assert "quorum-state" in {one.where for one in scan.failures}


def install_as_only(folder: MetadataFolder, snapshot: Path) -> None:
    """As by hand: the snapshot instead of everything but the quorum's state."""
    for path in folder.log.iterdir():
        if path.name not in ("quorum-state", "partition.metadata"):
            path.unlink()
    shutil.copy(snapshot, folder.log)


def finalized(cluster: LocalCluster) -> dict[str, int]:
    admin = KafkaAdminClient(bootstrap_servers=cluster.spec.bootstrap_servers)
    try:
        described = admin.describe_features()
    finally:
        admin.close()
    return {name: one["finalized"][1] for name, one in described.items() if "finalized" in one}


@pytest.mark.parametrize("release", [OLDEST, pytest.param(OLD, marks=pytest.mark.full)], ids=str)
def test_an_old_controller_dies_exactly_where_the_scan_says_and_starts_after_the_trim(
    old_level: LocalCluster, release_cache: ReleaseCache, tmp_path: Path, release: Release
) -> None:
    keep = tmp_path / "keep"
    folder = open_folder(metadata_of(old_level))
    shutil.copytree(folder.root, keep)
    try:
        scan = scan_metadata_log(folder, release, cache=release_cache)
        assert (scan.verdict, scan.starts_at) == ("fails", "offset 0")
        assert scan.first_failure is not None
        assert scan.first_failure.reason.startswith("A FeatureLevelRecord sets group.version to 1")
        assert "metadata trim" in scan.remedies[0]
        assert bytes_below(folder.root) == bytes_below(keep)

        assert offset_where_it_dies(old_level, release) == scan.first_failure.offset

        result = trim(folder, release=release, cache=release_cache)
        assert result.plan is not None
        assert scan_metadata_log(folder, release, cache=release_cache).verdict == "replays"
        restart_on(old_level, release)
        assert finalized(old_level)["metadata.version"] == 8
        with pytest.raises(UserError, match="is in use"):
            trim(folder)
        with pytest.raises(UserError, match="is in use"):
            undo_trim(folder)
        old_level.stop()
        restart_on(old_level, NEW)  # the backup is in the log's folder still
    finally:
        old_level.stop()
        shutil.rmtree(folder.root)
        shutil.copytree(keep, folder.root)
