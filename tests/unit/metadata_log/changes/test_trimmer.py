"""Trims of a real metadata log (4.3.1, one node) without Java: what is left, the undo, and every point of death."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from kafka_rollout.base.errors import FatalError, UserError
from kafka_rollout.metadata_log.changes.places import DiskChanges
from kafka_rollout.metadata_log.changes.trimmer import trim, undo_trim
from kafka_rollout.metadata_log.disk.folder import MetadataFolder, log_range, open_folder, read_log
from kafka_rollout.metadata_log.trim import TrimResult
from tests.fakes.dying_files import DyingFiles, KilledError
from tests.paths import FIXTURES

SNAPSHOT = "00000000000000000037-0000000001.checkpoint"
START, END = 37, 57


@pytest.fixture
def folder(tmp_path: Path) -> MetadataFolder:
    shutil.copytree(FIXTURES / "metadata-log-level-30", tmp_path / "metadata")
    return open_folder(tmp_path / "metadata")


def contents(folder: MetadataFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.log.iterdir() if path.is_file()}


def whole(folder: MetadataFolder) -> dict[str, bytes]:
    return {str(path.relative_to(folder.root)): path.read_bytes() for path in folder.root.rglob("*") if path.is_file()}


def is_a_log_to_start_from(folder: MetadataFolder) -> bool:
    """No gap up to the old end, and a snapshot over what is not there: any release can start, old or new."""
    offsets = [offset for batch in read_log(folder) for offset in range(batch.base_offset, batch.last_offset + 1)]
    start, end = log_range(folder)
    names = [checkpoint.name for checkpoint in folder.checkpoints]
    return offsets == list(range(start, END)) and end == END and (start == 0 or (start <= START and SNAPSHOT in names))


def test_the_log_begins_at_the_snapshot_and_keeps_every_byte_behind_it(folder: MetadataFolder) -> None:
    before = contents(folder)
    behind = [batch.data for batch in read_log(folder, START)]
    result = trim(folder)
    assert log_range(folder) == (START, END)
    assert [batch.data for batch in read_log(folder)] == behind
    after = contents(folder)
    assert after.pop(f"{START:020}.log") == b"".join(behind)
    assert after.pop("leader-epoch-checkpoint").split() == [b"0", b"1", b"1", b"37"]
    assert after == {name: before[name] for name in after}
    assert set(before) - set(after) == {f"{0:020}.{kind}" for kind in ("log", "index", "timeindex")} | {
        "leader-epoch-checkpoint"
    }
    assert result.plan is not None
    assert trim(folder).sentence == "No change needed: the log already begins at its newest snapshot."


def test_undone_it_is_as_before_to_the_byte_and_nothing_is_left_behind(folder: MetadataFolder) -> None:
    before = whole(folder)
    trim(folder)
    undo_trim(folder)
    assert whole(folder) == before
    with pytest.raises(UserError, match="no trim"):
        undo_trim(folder)


@pytest.mark.parametrize("name", [f"{0:020}.log", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("begun", [False, True], ids=["at first", "continued"])
def test_a_changed_or_missing_file_of_the_backup_is_never_restored(
    folder: MetadataFolder, name: str, begun: bool
) -> None:
    backup = trim(folder).backup
    assert backup is not None
    if begun:
        with pytest.raises(KilledError):
            undo_trim(folder, files=DyingFiles(2, half=False))  # the manifest says that it is being undone
    before = (backup / name).read_bytes()
    for damaged in (before[:-1] + bytes([before[-1] ^ 1]), None):
        (backup / name).unlink() if damaged is None else (backup / name).write_bytes(damaged)
        held = whole(folder)
        with pytest.raises(FatalError, match=rf"{name} is missing or was changed.*This call changed nothing"):
            undo_trim(folder)
        assert whole(folder) == held
    (backup / name).write_bytes(before)
    undo_trim(folder)
    assert log_range(folder) == (0, END)


def states_after_death(
    call: Callable[[MetadataFolder, DiskChanges], TrimResult], folder: MetadataFolder, *, half: bool
) -> list[dict[str, bytes]]:
    """Die at every point in turn, each time from the same beginning, and call again: what is there then."""
    keep = folder.root.with_name("keep")
    shutil.copytree(folder.root, keep)
    states: list[dict[str, bytes]] = []
    while True:
        try:
            call(folder, DyingFiles(len(states), half=half))
        except KilledError:
            assert is_a_log_to_start_from(folder), f"after death {len(states)}"
            call(folder, DiskChanges())
            states.append(whole(folder))
        else:
            return states
        finally:
            shutil.rmtree(folder.root)
            shutil.copytree(keep, folder.root)


@pytest.mark.parametrize("half", [False, True], ids=["before a change", "half a file written"])
def test_killed_anywhere_in_a_trim_the_log_can_be_started_and_the_next_call_finishes(
    folder: MetadataFolder, half: bool
) -> None:
    shutil.copytree(folder.root, folder.root.with_name("expected"))
    expected = open_folder(folder.root.with_name("expected"))
    trim(expected)
    states = states_after_death(lambda where, files: trim(where, files=files), folder, half=half)
    assert len(states) > 15
    assert all(state == whole(expected) for state in states)


@pytest.mark.parametrize("half", [False, True], ids=["before a change", "half a file written"])
def test_killed_anywhere_while_it_is_undone_the_next_call_finishes(folder: MetadataFolder, half: bool) -> None:
    before = whole(folder)
    trim(folder)
    states = states_after_death(lambda where, files: undo_trim(where, files=files), folder, half=half)
    assert len(states) > 8
    assert all(state == before for state in states)


def test_killed_anywhere_in_a_trim_it_can_be_undone_as_well(folder: MetadataFolder) -> None:
    before = whole(folder)
    for at in count():
        try:
            trim(folder, files=DyingFiles(at, half=True))
        except KilledError:
            try:
                undo_trim(folder)
            except UserError as error:
                assert "no trim" in error.sentence  # noqa: PT017
            assert whole(folder) == before, f"after death {at}"
        else:
            break
    assert at > 15


def test_a_node_that_wrote_between_a_killed_trim_and_the_next_call_loses_nothing(folder: MetadataFolder) -> None:
    segment = folder.segments[-1]
    for at in range(8):  # dies before the cut segment is in place
        with pytest.raises(KilledError):
            trim(folder, files=DyingFiles(at, half=False))
    last = list(read_log(folder))[-1]
    written = END.to_bytes(8) + last.data[8:]
    with segment.open("ab") as file:
        file.write(written)
    trim(folder)
    assert log_range(folder) == (START, END + 1)
    assert list(read_log(folder))[-1].data == written


def test_what_a_node_wrote_after_the_trim_is_never_undone(folder: MetadataFolder) -> None:
    trim(folder)
    with folder.segments[-1].open("ab") as file:
        file.write(END.to_bytes(8) + list(read_log(folder))[-1].data[8:])
    held = whole(folder)
    with pytest.raises(UserError, match="has written to"):
        undo_trim(folder)
    assert whole(folder) == held


def test_a_snapshot_at_the_logs_very_end_leaves_an_empty_segment(folder: MetadataFolder) -> None:
    shutil.copy(folder.log / SNAPSHOT, folder.log / f"{END:020}-0000000001.checkpoint")
    trim(folder)
    assert (folder.log / f"{END:020}.log").read_bytes() == b""
    assert log_range(folder) == (END, END)
    assert [one.name for one in folder.checkpoints] == [f"{END:020}-0000000001.checkpoint"]


def test_of_several_segments_those_below_go_and_those_behind_are_not_touched(folder: MetadataFolder) -> None:
    split(folder, 16, 45)
    kept = folder.log / f"{45:020}.log"
    inode, before = kept.stat().st_ino, whole(folder)
    trim(folder)
    assert [path.name for path in folder.segments] == [f"{START:020}.log", f"{45:020}.log"]
    assert kept.stat().st_ino == inode
    undo_trim(folder)
    assert whole(folder) == before


def test_a_segment_that_begins_at_the_snapshot_is_not_cut(folder: MetadataFolder) -> None:
    split(folder, START)
    before, inode = whole(folder), folder.segments[-1].stat().st_ino
    trim(folder)
    assert [path.stat().st_ino for path in folder.segments] == [inode]
    undo_trim(folder)
    assert whole(folder) == before


def split(folder: MetadataFolder, *at: int) -> None:
    """The same log in more segments."""
    (segment,) = folder.segments
    pieces: dict[int, bytes] = {0: b""}
    for batch in read_log(folder):
        if batch.base_offset in at:
            pieces[batch.base_offset] = b""
        pieces[max(pieces)] += batch.data
    for base, data in pieces.items():
        segment.with_name(f"{base:020}.log").write_bytes(data)


def test_a_directory_in_use_is_refused_and_not_touched(folder: MetadataFolder) -> None:
    script = "import fcntl,sys;f=open(sys.argv[1],'w');fcntl.lockf(f,fcntl.LOCK_EX);print('held',flush=True);input()"
    command = [sys.executable, "-c", script, str(folder.root / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        before = whole(folder)
        with ThreadPoolExecutor() as pool:  # each waits for the lock for a while
            for refused in (pool.submit(trim, folder), pool.submit(undo_trim, folder)):
                with pytest.raises(UserError, match="is in use"):
                    refused.result()
        assert whole(folder) == before
        holder.communicate(b"\n")
    trim(folder)


def test_the_lock_is_held_while_it_works_and_its_file_goes_if_it_was_not_there(folder: MetadataFolder) -> None:
    lock = folder.root / ".lock"

    class Looking(DiskChanges):
        def remove(self, path: Path) -> None:
            script = "import fcntl,sys;fcntl.lockf(open(sys.argv[1],'w'),fcntl.LOCK_EX|fcntl.LOCK_NB)"
            tried = subprocess.run([sys.executable, "-c", script, str(lock)], check=False, capture_output=True)
            assert tried.returncode != 0
            super().remove(path)

    trim(folder, files=Looking())
    assert not lock.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_new_files_belong_to_the_owner_of_the_old(folder: MetadataFolder) -> None:
    for path in (folder.root, *folder.root.rglob("*")):
        os.chown(path, 12345, 12346)
    trim(folder)
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in folder.root.rglob("*")}
    assert owners == {(12345, 12346)}


def test_a_cut_off_snapshot_is_no_snapshot_to_trim_at(folder: MetadataFolder) -> None:
    path = folder.log / SNAPSHOT
    os.truncate(path, path.stat().st_size - 10)
    before = whole(folder)
    with pytest.raises(UserError, match="is damaged or not complete"):
        trim(folder)
    assert whole(folder) == before


def test_without_a_snapshot_there_is_nothing_to_cut_below(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "metadata-log-level-8", tmp_path / "metadata")
    with pytest.raises(UserError, match="has no snapshot"):
        trim(open_folder(tmp_path / "metadata"))
