from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.system.own_folders import (
    MARKER,
    new_own_folder,
    read_own_folder,
    remove_drawn_folder,
    remove_own_folder,
    taking,
)


def test_an_own_folder_is_removed_with_links_but_not_what_they_name(tmp_path: Path) -> None:
    made, other = tmp_path / "made", tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("mine")
    with new_own_folder(made):
        (made / "a" / "b").mkdir(parents=True)
        (made / "link").symlink_to(other)
        (made / "file").write_text("")
    remove_own_folder(made)
    assert not made.exists()
    assert (other / "file").exists()


@pytest.mark.parametrize("marker", [None, "", "{}", '{"inode": 1, "token": "a", "boot_id": "", "machine_id": ""}'])
def test_a_folder_without_its_own_marker_stays(tmp_path: Path, marker: str | None) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "file").write_text("mine")
    if marker is not None:
        (tmp_path / "one" / MARKER).write_text(marker)
    with pytest.raises(RefusedError):
        remove_own_folder(tmp_path / "one")
    assert (tmp_path / "one" / "file").exists()


def test_a_link_to_an_own_folder_stays(tmp_path: Path) -> None:
    with new_own_folder(tmp_path / "made"):
        pass
    (tmp_path / "link").symlink_to(tmp_path / "made")
    with pytest.raises(RefusedError, match="is a link"):
        remove_own_folder(tmp_path / "link")
    assert (tmp_path / "made" / MARKER).exists()


def test_its_lock_shows_whether_it_is_used(tmp_path: Path) -> None:
    with new_own_folder(tmp_path / "made") as made, taking(made) as is_taken:
        assert not is_taken
    with taking(read_own_folder(tmp_path / "made")) as is_taken:
        assert is_taken


def test_a_file_system_without_locks_does_not_show_whether_a_folder_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    with (
        new_own_folder(tmp_path / "made") as made,
        pytest.raises(RefusedError, match="No locks available"),
        taking(made),
    ):
        pytest.fail("it can be in use")


@pytest.mark.parametrize("name", ["tables", "notes-2026", "20260101T000000.000Z-0123456"])
def test_a_folder_of_documents_needs_its_drawn_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(RefusedError):
        remove_drawn_folder(tmp_path / name)
    assert (tmp_path / name).exists()
