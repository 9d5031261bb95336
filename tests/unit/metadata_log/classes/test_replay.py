"""Reading only what a log has after an earlier read, on the kept log of a real node."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.metadata_log.classes.replay import LogContents, read_contents, read_tail
from kafka_rollout.metadata_log.disk.folder import MetadataFolder, open_folder, read_log
from tests.paths import FIXTURES


@pytest.fixture
def folder(tmp_path: Path) -> MetadataFolder:
    shutil.copytree(FIXTURES / "metadata-log-level-30", tmp_path / "metadata")
    return open_folder(tmp_path / "metadata")


def whole(folder: MetadataFolder) -> LogContents:
    return read_contents(folder, snapshot=folder.checkpoints[-1])


def without_the_last_batches(folder: MetadataFolder, to: Path, batches: int) -> MetadataFolder:
    shutil.copytree(folder.root, to)
    earlier = open_folder(to)
    os.truncate(earlier.segments[-1], list(read_log(earlier))[-batches].position)
    for stopped in earlier.log.glob("*.snapshot"):  # of the stop after it
        stopped.unlink()
    return earlier


@pytest.mark.parametrize("batches", [1, 5])
def test_the_tail_after_an_earlier_look_ends_as_the_whole_log(
    folder: MetadataFolder, tmp_path: Path, batches: int
) -> None:
    before = whole(without_the_last_batches(folder, tmp_path / "earlier", batches))
    found = read_tail(folder, before)
    assert found is not None
    assert found.from_offset == before.end_offset < found.end_offset
    expected = whole(folder)
    assert replace(found, from_offset=expected.from_offset, snapshot=expected.snapshot) == expected


def test_a_log_that_was_not_written_to_has_an_empty_tail(folder: MetadataFolder) -> None:
    found = read_tail(folder, whole(folder))
    assert found is not None
    assert found.from_offset == found.end_offset == whole(folder).end_offset


def test_a_log_with_another_epoch_there_a_shorter_one_and_an_open_transaction_are_not_continued(
    folder: MetadataFolder, tmp_path: Path
) -> None:
    before = whole(folder)
    assert read_tail(folder, replace(before, epoch=before.epoch + 1)) is None
    assert read_tail(without_the_last_batches(folder, tmp_path / "shorter", 1), before) is None
    assert read_tail(folder, replace(before, open_transaction=50)) is None
    assert read_tail(folder, replace(before, from_offset=before.end_offset)) is None, "a snapshot alone"
