"""Which releases write and load the snapshot that replaces metadata logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.metadata_log.changes.places import LocalPlaces
from kafka_rollout.metadata_log.classes.known_releases import known_releases
from kafka_rollout.metadata_log.disk.folder import open_folder
from kafka_rollout.metadata_log.node_logs import directories
from kafka_rollout.metadata_log.node_logs.directories import DirectoryMetadataLogs
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.fakes.cluster import make_spec
from tests.paths import FIXTURES

NODE = make_spec().node(1)
FOLDER = FIXTURES / "metadata-log-level-30"
R420 = Release(4, 2, 0)


@pytest.fixture
def cache() -> ReleaseCache:
    return ReleaseCache.from_settings(Settings.from_environment())


@pytest.mark.parametrize("source", [Release(4, 3, 1), Release(4, 0, 0), Release(3, 9, 1)])
def test_the_release_that_runs_writes_the_snapshot_and_loads_it_with_the_target(
    cache: ReleaseCache,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    source: Release,
) -> None:
    asked: list[dict[str, Any]] = []

    @contextmanager
    def prepared(*_: object, **options: Any) -> Iterator[None]:
        asked.append(options)
        yield

    monkeypatch.setattr(directories, "prepared_snapshot", prepared)
    monkeypatch.setattr(directories, "write_snapshot", lambda *_, **options: asked.append(options))
    monkeypatch.setattr(directories, "loss_report", lambda *_, **options: asked.append(options))
    logs = DirectoryMetadataLogs(cache, LocalPlaces(lambda _: FOLDER))
    cluster_id = open_folder(FOLDER).cluster_id
    releases: dict[str, Any] = {"source": source, "target": R420, "settings": {"super.users": "User:admin"}}
    logs.write_snapshot(NODE, tmp_path, level=29, features={}, epoch=107, cluster_id=cluster_id, **releases)
    with logs.prepared_snapshot(NODE, level=29, features={}, cluster_id=cluster_id, **releases):
        pass
    options = {"source": source, "features": {}, "settings": releases["settings"]}
    logs.losses(NODE, 29, targets=(R420,), cluster_id=cluster_id, **options)
    writer = source if source.major >= 4 else known_releases(*cache.catalogue_folders)[-1]
    assert {one["release"] for one in asked} == {writer}
    assert [one.get("readers") for one in asked] == [(source, R420), (source, R420), (R420,)]
    assert {one["source"] for one in asked} == {source}
    assert [one["settings"] for one in asked] == [releases["settings"]] * 3
