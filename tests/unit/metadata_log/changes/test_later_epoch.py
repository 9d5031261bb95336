"""The epoch that a stopped controller gets before it starts with its old log again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.metadata_log.changes.install import raise_epoch
from kafka_rollout.metadata_log.disk.folder import MetadataFolder, open_folder
from tests.paths import FIXTURES


@pytest.fixture
def folder(tmp_path: Path) -> MetadataFolder:
    shutil.copytree(FIXTURES / "metadata-log-level-30", tmp_path / "metadata")
    return open_folder(tmp_path / "metadata")


def state(folder: MetadataFolder) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder.log / "quorum-state").read_text())
    return found


def test_a_vote_of_an_earlier_epoch_does_not_count_in_the_later_one(folder: MetadataFolder) -> None:
    (folder.log / "quorum-state").write_text(json.dumps({**state(folder), "leaderId": -1, "votedId": 3}))
    raise_epoch(folder, 106)
    assert (state(folder)["leaderEpoch"], state(folder)["leaderId"], state(folder)["votedId"]) == (106, -1, -1)


def test_a_later_epoch_is_not_lowered(folder: MetadataFolder) -> None:
    before = {**state(folder), "leaderEpoch": 107}
    (folder.log / "quorum-state").write_text(json.dumps(before))
    raise_epoch(folder, 106)
    assert state(folder) == before


def test_a_controller_without_quorum_state_is_refused(folder: MetadataFolder) -> None:
    (folder.log / "quorum-state").unlink()
    with pytest.raises(RefusedError, match="has no quorum-state"):
        raise_epoch(folder, 106)
