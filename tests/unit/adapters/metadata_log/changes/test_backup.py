"""Copies of an operator's files: rights while a copy is written and afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafka_rollout.adapters.metadata_log.changes.backup import Files


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_an_unfinished_copy_is_private_and_a_finished_one_has_the_rights_of_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "server.properties", tmp_path / "copy"
    source.write_text("ssl.keystore.password=x")
    source.chmod(0o640)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfileobj", full)
        with pytest.raises(OSError, match="No space left"):
            Files().copy(source, target)
    (draft,) = tmp_path.glob("copy.*")
    assert mode(draft) == 0o600
    assert not target.exists()

    Files().copy(source, target)
    assert (mode(target), target.read_text()) == (0o640, "ssl.keystore.password=x")
    assert not draft.exists()
