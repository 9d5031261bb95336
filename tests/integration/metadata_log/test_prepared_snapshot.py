"""A snapshot that was prepared from an earlier state of a log is the snapshot of the whole log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafka_rollout.base.errors import FatalError
from kafka_rollout.metadata_log.classes import snapshot as snapshots
from kafka_rollout.metadata_log.classes.snapshot import prepared_snapshot, write_snapshot
from kafka_rollout.metadata_log.disk.folder import open_folder, read_checkpoint
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.paths import FIXTURES
from tests.unit.metadata_log.classes.test_replay import without_the_last_batches

pytestmark = pytest.mark.integration

NEW, OLD = Release(4, 3, 1), Release(4, 2, 1)


def records(path: Path) -> list[bytes]:
    return [record.value for batch in read_checkpoint(path) if not batch.is_control for record in batch.records]


def test_the_prepared_snapshot_has_the_records_written_since_and_the_name_of_the_caller(
    release_cache: ReleaseCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(FIXTURES / "metadata-log-level-30", tmp_path / "metadata")
    folder = open_folder(tmp_path / "metadata")
    earlier = without_the_last_batches(folder, tmp_path / "earlier", 8)
    expected = write_snapshot(folder, 29, tmp_path / "whole", cache=release_cache, release=NEW, readers=(NEW, OLD))
    with prepared_snapshot(earlier, 29, cache=release_cache, release=NEW, readers=(NEW, OLD), features={}) as prepared:
        with monkeypatch.context() as patched:
            patched.setattr(snapshots, "replay_log", None)  # only the tail is replayed
            written = prepared.write(folder, tmp_path / "out", epoch=101, end_offset=1057)
        with pytest.raises(FatalError, match="The log ends at 57: a snapshot cannot end at 40"):
            prepared.write(folder, tmp_path / "out", epoch=101, end_offset=40)
        # A log that does not continue the prepared one is replayed from its start.
        again = prepared.write(
            without_the_last_batches(earlier, tmp_path / "shorter", 1), tmp_path / "out", epoch=102, end_offset=1057
        )
    assert written.path.name == "00000000000000001057-0000000101.checkpoint"
    assert (written.proved_by, written.losses) == ((NEW, OLD), expected.losses)
    assert records(written.path) == records(expected.path)
    assert again.records <= written.records
