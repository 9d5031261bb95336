"""Copies of an operator's files: rights while a copy is written and afterwards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.control.lock import calls_of
from kafka_rollout.metadata_log.changes.places import MANIFEST, DiskChanges, remove_remains
from kafka_rollout.metadata_log.disk.folder import MetadataFolder, stopped_node


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
            DiskChanges().copy(source, target)
    (draft,) = tmp_path.glob("copy.*")
    assert mode(draft) == 0o600
    assert not target.exists()

    DiskChanges().copy(source, target)
    assert (mode(target), target.read_text()) == (0o640, "ssl.keystore.password=x")
    assert not draft.exists()


def test_a_link_that_replaces_the_draft_does_not_get_the_rights_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, victim = tmp_path / "source", tmp_path / "target", tmp_path / "victim"
    source.write_text("content")
    source.chmod(0o644)
    victim.write_text("secret")
    victim.chmod(0o600)
    copy = shutil.copyfileobj

    def copy_and_replace_the_draft(*arguments: object) -> None:
        copy(*arguments)
        (draft,) = tmp_path.glob("target.*")
        draft.unlink()
        draft.symlink_to(victim)

    monkeypatch.setattr(shutil, "copyfileobj", copy_and_replace_the_draft)
    DiskChanges().copy(source, target)
    assert mode(victim) == 0o600


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_second_name_of_a_file_of_root_gives_its_mode_to_no_file(tmp_path: Path) -> None:
    program, log = tmp_path / "program", tmp_path / "log"
    program.write_text("of root")
    program.chmod(0o4755)
    log.mkdir()
    os.chown(log, 12345, 12346)
    os.link(program, log / "bootstrap.checkpoint")
    with pytest.raises(UserError, match="does not belong to the owner"):
        DiskChanges().write(log / "written", "other content", like=log / "bootstrap.checkpoint")
    assert not (log / "written").exists()


@pytest.mark.parametrize("link", ["source", "like"])
def test_a_link_is_not_copied_and_gives_its_rights_to_no_file(tmp_path: Path, link: str) -> None:
    (tmp_path / "secret").write_text("secret")
    for name in ("source", "like"):
        (tmp_path / name).write_text("content")
    (tmp_path / link).unlink()
    (tmp_path / link).symlink_to(tmp_path / "secret")
    with pytest.raises(UserError, match=f"{link} is a link, not a file"):
        DiskChanges().copy(tmp_path / "source", tmp_path / "target", like=tmp_path / "like")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("change", ["remove", "make_folder", "write"])
def test_a_folder_that_is_replaced_by_a_link_is_not_changed(tmp_path: Path, change: str) -> None:
    elsewhere, log = tmp_path / "elsewhere", tmp_path / "log"
    elsewhere.mkdir()
    (elsewhere / "00000000000000000000.log").write_text("other data")
    log.symlink_to(elsewhere)
    files, name = DiskChanges(), log / "00000000000000000000.log"
    changes = {
        "remove": lambda: files.remove(name),
        "make_folder": lambda: files.make_folder(log / "backup"),
        "write": lambda: files.write(log / "manifest.json", "{}", like=elsewhere / name.name),
    }
    with pytest.raises(OSError, match="Not a directory"):
        changes[change]()
    assert [path.name for path in elsewhere.iterdir()] == [name.name]


def test_the_lock_of_a_directory_is_not_created_through_a_link(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "created")
    folder = MetadataFolder(log=tmp_path / "__cluster_metadata-0", root=tmp_path, cluster_id=None, node_id=None)
    with pytest.raises(UserError, match=r"\.lock is a link, or not a file"), stopped_node(folder):
        pass
    assert not (tmp_path / "created").exists()


CHANGES: dict[str, Callable[[DiskChanges, Path], object]] = {
    "copy": lambda files, log: files.copy(log / "source", log / "target"),
    "copy_all": lambda files, log: files.copy_all([(log / "source", log / "target")]),
    "write": lambda files, log: files.write(log / "source", "new", like=log / "source"),
    "make_folder": lambda files, log: files.make_folder(log / "new"),
    "remove": lambda files, log: files.remove(log / "source"),
    "remove_all": lambda files, log: files.remove_all([log / "source"]),
    "remove_folder": lambda files, log: files.remove_folder(log / "backup"),
}
OTHERS = {"stopped", "free_bytes", "sync", "fence"}


def test_every_call_of_a_nodes_files_is_known_as_a_change_or_not() -> None:
    assert calls_of(DiskChanges) == CHANGES.keys() | OTHERS


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_a_nodes_files_is_refused_by_the_fence(tmp_path: Path, change: str) -> None:
    (tmp_path / "backup").mkdir()
    for path in (tmp_path / "source", tmp_path / "backup" / MANIFEST):
        path.write_text("old")

    def refuse() -> None:
        raise RefusedError("The lease is lost.")

    with pytest.raises(RefusedError, match="The lease is lost"):
        CHANGES[change](DiskChanges(fence=refuse), tmp_path)
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.suffix != ".kafka-rollout"}
    assert found == {"source", "backup", f"backup/{MANIFEST}"}
    assert (tmp_path / "source").read_text() == "old"


def test_only_folders_with_the_exact_name_of_a_backup_are_remains(tmp_path: Path) -> None:
    log = tmp_path / "__cluster_metadata-0"
    ours = "kafka-rollout-install-00000000000000000012-0000000007"
    for name in ("kafka-rollout-install-notes", f"{ours}-copy", ours):
        (log / name).mkdir(parents=True)
        (log / name / "file").write_text("")
    assert remove_remains(log, "kafka-rollout-install-", DiskChanges())
    assert sorted(path.name for path in log.iterdir()) == [f"{ours}-copy", "kafka-rollout-install-notes"]


def test_a_backup_that_has_a_folder_is_not_removed_with_it(tmp_path: Path) -> None:
    (tmp_path / "backup" / "of-the-operator").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        DiskChanges().remove_folder(tmp_path / "backup")
    assert (tmp_path / "backup" / "of-the-operator").exists()
