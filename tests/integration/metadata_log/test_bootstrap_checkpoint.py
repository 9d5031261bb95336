"""bootstrap.checkpoint of a node that was formatted at a newer level than the release that it goes down to can read."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient

from kafka_rollout.base.errors import UserError
from kafka_rollout.metadata_log.changes import install as metadata_bootstrap
from kafka_rollout.metadata_log.changes.install import lower_bootstrap, replace_bootstrap
from kafka_rollout.metadata_log.classes.scanner import scan_metadata_log
from kafka_rollout.metadata_log.disk.folder import log_range, open_folder
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.fakes.dying_files import DyingFiles, KilledError
from tests.integration.conftest import MakeCluster
from tests.integration.metadata_log.test_metadata_on_brokers import SNAPSHOTS, finalized, metadata_of, wait_for_snapshot
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]  # 3.7.2 is no release that `make test` fetches

NEW, OLD = Release(4, 3, 1), Release(3, 7, 2)
LEVEL, TOO_NEW = 19, re.compile("No MetadataVersion with (feature level|metadata version) 22")


def lower_everything(cluster: LocalCluster) -> None:
    """To what 3.7.2 knows; Kafka accepts it all, for no level from 20 to 22 changed metadata."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.spec.bootstrap_servers)
    try:
        for feature, level in finalized(cluster).items():
            if level > 0 and feature != METADATA_VERSION:
                assert admin.update_features({feature: ("SAFE_DOWNGRADE", 0)}) == {feature: "OK"}
        assert admin.update_features({METADATA_VERSION: ("SAFE_DOWNGRADE", LEVEL)}) == {METADATA_VERSION: "OK"}
    finally:
        admin.close()


def start_on(cluster: LocalCluster, release: Release) -> None:
    cluster.runtime.install(cluster.spec.nodes[0], release)
    cluster.start()


def test_an_older_release_that_cannot_read_it_starts_once_it_is_rewritten_killed_at_any_change_or_not(
    make_cluster: MakeCluster, release_cache: ReleaseCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster(str(NEW), layout="combined", size=1, metadata_version="4.0-IV0", extra_config=SNAPSHOTS)
    (node,) = cluster.spec.nodes
    lower_everything(cluster)
    folder = open_folder(metadata_of(cluster))
    wait_for_snapshot(folder, beyond=log_range(folder)[1] - 1)
    with pytest.raises(UserError, match="is in use"):
        replace_bootstrap(folder, level=LEVEL, target=OLD, cache=release_cache)
    cluster.stop()
    assert folder.bootstrap is not None
    before = folder.bootstrap.read_bytes()

    scan = scan_metadata_log(folder, OLD, cache=release_cache)
    assert [failure.where for failure in scan.failures] == ["bootstrap"], "nothing but it stands in the way"
    assert TOO_NEW.search(scan.failures[0].reason)
    cluster.runtime.install(node, OLD)
    cluster.runtime.start(node)
    wait_until(lambda: cluster.runtime.process(node).pid is None, 240)
    assert TOO_NEW.search("\n".join(cluster.runtime.log_tail(node, lines=200))), "it dies as the scan says"

    lowered = lower_bootstrap(folder, tmp_path, level=LEVEL, target=OLD, cache=release_cache)
    assert lowered is not None
    seen = set()
    for at in (
        0,
        1,
        1,
        1,
    ):  # its folder, its copy, its own place, and the disk's word for all; what is done is not done again
        with monkeypatch.context() as patched:
            patched.setattr(metadata_bootstrap, "lower_bootstrap", lambda *_, **__: lowered)
            patched.setattr(metadata_bootstrap, "DiskChanges", lambda dies_at=at: DyingFiles(dies_at, half=True))
            with pytest.raises(KilledError):
                replace_bootstrap(folder, level=LEVEL, target=OLD, cache=release_cache)
        seen.add(folder.bootstrap.read_bytes())
    assert seen == {before, lowered.read_bytes()}, "the old one or the new one, at any moment"
    assert replace_bootstrap(folder, level=LEVEL, target=OLD, cache=release_cache) is None, "nothing is left to do"
    (backup,) = folder.log.glob("kafka-rollout-bootstrap-*/bootstrap.checkpoint")
    assert backup.read_bytes() == before
    assert os.stat(backup.parent).st_mode & 0o777 == 0o700

    assert scan_metadata_log(folder, OLD, cache=release_cache).verdict == "replays"
    start_on(cluster, OLD)
    assert finalized(cluster)[METADATA_VERSION] == LEVEL
    cluster.stop()
    start_on(cluster, NEW)  # the rollback
    assert finalized(cluster)[METADATA_VERSION] == LEVEL
