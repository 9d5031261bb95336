"""Real metadata logs read without Java: what is found where, damage, and the records that count."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.formats.checkpoint_files import parse_epochs
from kafka_rollout.metadata_log.classes.replay import read_contents, write_plain
from kafka_rollout.metadata_log.disk.folder import (
    Checkpoint,
    MetadataFolder,
    log_range,
    node_log,
    open_folder,
    quorum_state,
    read_checkpoint,
    read_file,
    read_log,
)
from kafka_rollout.metadata_log.record_types import RecordType
from tests.paths import FIXTURES
from tests.unit.metadata_log.changes.test_trimmer import split


@pytest.fixture
def folder(tmp_path: Path) -> MetadataFolder:
    shutil.copytree(FIXTURES / "metadata-log-level-30", tmp_path / "node" / "metadata")
    return open_folder(tmp_path / "node" / "metadata")


def types(path: Path) -> list[int]:
    return [record.type for batch in read_file(path, last=False) for record in batch.records]


def test_the_log_is_found_from_the_directory_around_it_itself_and_the_nodes_folder(folder: MetadataFolder) -> None:
    for directory in (folder.root, folder.log, folder.root.parent):
        assert open_folder(directory) == folder
    renamed = shutil.copytree(folder.log, folder.root.parent / "copy-of-it")
    assert log_range(open_folder(renamed)) == log_range(folder) == (0, 57)


def test_a_directory_without_one_a_file_and_another_topics_partition_are_refused(
    folder: MetadataFolder, tmp_path: Path
) -> None:
    orders = tmp_path / "orders-0"
    orders.mkdir()
    shutil.copy(folder.segments[0], orders)
    for directory, why in (
        (tmp_path / "no", "does not exist"),
        (folder.segments[0], "is not a folder"),
        (orders, "holds no"),
    ):
        with pytest.raises(UserError, match=why):
            open_folder(directory)


def test_the_log_of_another_cluster_is_refused_and_so_is_one_of_which_nothing_is_known(folder: MetadataFolder) -> None:
    assert folder.cluster_id is not None
    assert open_folder(folder.root, cluster_id=folder.cluster_id) == folder
    with pytest.raises(UserError, match=f"of cluster {folder.cluster_id}, not of cluster other"):
        open_folder(folder.root, cluster_id="other")
    (folder.root / "meta.properties").unlink()
    with pytest.raises(UserError, match="of an unknown cluster"):
        open_folder(folder.root, cluster_id=folder.cluster_id)


@pytest.mark.parametrize("tail", [b"\0" * 100, b"\0\0\0\0\0\0\0\x39\0\0", "half a batch"])
def test_a_write_cut_short_at_the_logs_end_is_left_out(folder: MetadataFolder, tail: bytes | str) -> None:
    segment = folder.segments[0]
    if isinstance(tail, str):
        os.truncate(segment, segment.stat().st_size - 5)
        assert log_range(folder) == (0, 56)
    else:
        with segment.open("ab") as file:
            file.write(tail)
        assert log_range(folder) == (0, 57)


def test_damage_in_the_middle_is_told_with_the_file(folder: MetadataFolder) -> None:
    data = bytearray(folder.segments[0].read_bytes())
    data[1000] ^= 0xFF
    folder.segments[0].write_bytes(data)
    with pytest.raises(UserError, match=r"00\.log is damaged or not complete: The batch at offset \d+ is corrupt"):
        list(read_log(folder))


@pytest.mark.parametrize("lost", [1, 10, 60, 1000])
def test_a_snapshot_that_is_cut_off_is_told(folder: MetadataFolder, lost: int) -> None:
    path = folder.checkpoints[-1].path
    os.truncate(path, path.stat().st_size - lost)
    with pytest.raises(UserError, match="is damaged or not complete"):
        list(read_checkpoint(path))


def started(folder: MetadataFolder, snapshot: Checkpoint | None = None) -> int:
    return read_contents(folder, snapshot=snapshot).end_offset


def without_its_last_segment(folder: MetadataFolder) -> None:
    split(folder, 45)
    for path in folder.log.glob(f"{45:020}.*"):
        path.unlink()


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", f"{57:020}.snapshot", f"{45:020}.index"])
def test_a_log_that_lost_its_last_segment_is_told_by_the_files_beside_it(folder: MetadataFolder, name: str) -> None:
    stopped, index = folder.log / f"{57:020}.snapshot", folder.log / f"{45:020}.index"
    epochs = folder.log / "leader-epoch-checkpoint"
    without_its_last_segment(folder)
    for path in (stopped, index):
        path.write_bytes(b"") if path.name == name else path.unlink(missing_ok=True)
    assert name == epochs.name or f"by {name}" in lost(folder)
    for path in (stopped, index):
        path.unlink(missing_ok=True)
    epochs.write_text("0\n2\n1 0\n2 45\n")
    assert started(folder) == 45, "an epoch without a record begins at the end of the log"
    epochs.write_text("0\n2\n1 0\n2 46\n")
    assert "segments end at offset 45, and by leader-epoch-checkpoint the log reached offset 46" in lost(folder)
    epochs.write_text("0\n0\n")
    assert "leader-epoch-checkpoint is missing or empty, so it is unknown how far the log went" in lost(folder)


def lost(folder: MetadataFolder) -> str:
    with pytest.raises(UserError) as error:
        started(folder, folder.checkpoints[-1])
    return error.value.sentence


def test_a_snapshot_beyond_the_log_replaces_it_only_in_a_later_epoch(folder: MetadataFolder) -> None:
    newest = folder.checkpoints[-1].path
    beyond = newest.rename(newest.with_name(f"{60:020}-{1:010}.checkpoint"))
    assert f"end at offset 57, and by {beyond.name} the log reached offset 60" in lost(folder)
    beyond.rename(newest.with_name(f"{60:020}-{2:010}.checkpoint"))
    assert started(folder, folder.checkpoints[-1]) == 60, "Kafka fetched it, and removes the log when it starts"


def test_a_leader_has_a_record_of_its_epoch(folder: MetadataFolder) -> None:
    state = folder.log / "quorum-state"
    text = state.read_text()
    state.write_text(text.replace('"leaderEpoch":1', '"leaderEpoch":4'))
    assert "by quorum-state its node led epoch 4, of which it has no record" in lost(folder)
    state.write_text(text.replace('"leaderEpoch":1', '"leaderEpoch":4').replace('"leaderId":1', '"leaderId":2'))
    assert started(folder) == 57, "a follower can be behind"


def test_a_cut_off_batch_at_the_end_is_not_all_that_there_was(folder: MetadataFolder) -> None:
    os.truncate(folder.segments[0], folder.segments[0].stat().st_size - 5)
    assert "is damaged or not complete: its last batch is not whole: it is cut off after byte" in lost(folder)
    with pytest.raises(UserError) as error:
        started(folder, folder.checkpoints[-1])
    assert error.value.remedy.startswith("If its node was killed, or its host lost its power, start the node once")


def test_zeros_at_the_end_are_no_records(folder: MetadataFolder) -> None:
    with folder.segments[0].open("ab") as file:
        file.write(b"\0" * 100)
    assert started(folder) == 57


def test_every_bit_of_the_length_of_a_batch_is_seen(folder: MetadataFolder) -> None:
    (segment,) = folder.segments
    data, position = segment.read_bytes(), list(read_log(folder))[3].position
    for bit in range(32):
        changed = bytearray(data)
        changed[position + 8 + bit // 8] ^= 1 << bit % 8
        segment.write_bytes(changed)
        with pytest.raises(UserError, match="is damaged"):
            log_range(folder)


def test_an_epoch_that_falls_is_damage(folder: MetadataFolder) -> None:
    (segment,) = folder.segments
    data = bytearray(segment.read_bytes())
    data[list(read_log(folder))[3].position + 13] ^= 1
    segment.write_bytes(data)
    with pytest.raises(UserError, match="its epoch falls from 65537 to 1"):
        list(read_log(folder))


def test_a_segment_that_is_missing_is_a_gap(folder: MetadataFolder) -> None:
    split(folder, 16, 45)
    (folder.log / f"{16:020}.log").unlink()
    with pytest.raises(UserError, match="has a gap: offsets 16 to 44"):
        list(read_log(folder))


def test_a_log_that_begins_behind_its_snapshot_is_not_replayed(folder: MetadataFolder) -> None:
    split(folder, 45)
    (folder.log / f"{0:020}.log").unlink()
    with pytest.raises(UserError, match=r"begins at offset 45, and the newest snapshot, .*, ends at offset 37, so"):
        read_contents(folder, snapshot=folder.checkpoints[-1])
    with pytest.raises(UserError, match=r"begins at offset 45, and there is no snapshot, so the metadata before it is"):
        read_contents(folder, snapshot=None)


def test_markers_and_what_says_nothing_are_left_out_and_every_record_keeps_its_offset(
    folder: MetadataFolder, tmp_path: Path
) -> None:
    contents = read_contents(folder, snapshot=None)
    assert (contents.end_offset, contents.epoch, contents.dropped, contents.open_transaction) == (57, 1, (), None)
    offsets = write_plain(read_log(folder), tmp_path / "plain", markers=False)
    assert offsets[:4] == [2, 3, 4, 5]
    assert offsets == [r.offset for b in read_file(tmp_path / "plain", last=False) for r in b.records]
    left = set(types(tmp_path / "plain"))
    assert not left & {RecordType.NO_OP, RecordType.BEGIN_TRANSACTION, RecordType.END_TRANSACTION}
    write_plain(read_log(folder), tmp_path / "with", markers=True)
    assert types(tmp_path / "with")[0] == RecordType.BEGIN_TRANSACTION


@pytest.mark.parametrize("ending", [RecordType.ABORT_TRANSACTION, RecordType.NO_OP])
def test_a_transaction_that_was_aborted_or_never_ended_counts_for_nothing(
    folder: MetadataFolder, tmp_path: Path, ending: RecordType
) -> None:
    (segment,) = folder.segments
    data = bytearray(segment.read_bytes())
    end = next(b for b in read_log(folder) if b.records[0].type == RecordType.BEGIN_TRANSACTION)
    at = data.index(b"\x01\x18\x00", end.position)  # frame 1, EndTransactionRecord, version 0
    data[at + 1] = ending
    resealed(data, end.position)
    segment.write_bytes(data)
    contents = read_contents(folder, snapshot=None)
    offsets = write_plain(read_log(folder), tmp_path / "plain", dropped=contents.dropped, markers=False)
    if ending is RecordType.ABORT_TRANSACTION:
        assert (contents.dropped, contents.open_transaction) == ((range(1, 9),), None)
        assert offsets[0] == 10
    else:
        assert (contents.dropped, contents.open_transaction, offsets) == ((range(1, 57),), 1, [])


def resealed(data: bytearray, position: int) -> None:
    import crc32c

    size = 12 + int.from_bytes(data[position + 8 : position + 12])
    crc = crc32c.crc32c(bytes(data[position + 21 : position + size]))
    data[position + 17 : position + 21] = crc.to_bytes(4)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "name", [f"{1_000:020}.log", f"{1_000:020}-{7:010}.checkpoint", "quorum-state", "../meta.properties"]
)
@pytest.mark.parametrize("kind", ["FIFO", "folder"])
def test_what_is_no_file_but_has_the_name_of_one_is_refused(folder: MetadataFolder, name: str, kind: str) -> None:
    path = folder.log / name
    path.unlink(missing_ok=True)
    os.mkfifo(path) if kind == "FIFO" else path.mkdir()
    with pytest.raises(UserError, match=rf"{path.name} is a {kind}, not a file"):
        node_log(open_folder(folder.root), 1)


def test_a_snapshot_whose_name_is_beyond_every_offset_is_refused(folder: MetadataFolder) -> None:
    (folder.log / f"{'9' * 20}-{7:010}.checkpoint").write_bytes(b"")
    with pytest.raises(UserError, match=r"The offset in the name of .* is not valid"):
        open_folder(folder.root)


@pytest.mark.parametrize("text", [f"node.id={'1' * 5_000}", "node.id=\u00b2"])
def test_a_node_id_that_is_no_number_is_unknown(folder: MetadataFolder, text: str) -> None:
    (folder.root / "meta.properties").write_text(f"cluster.id=x\n{text}\n")
    assert open_folder(folder.root).node_id is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is not a JSON object"),
        ('\n{"data_version": 0}', "it is not a JSON object"),
        ("{}", "it has no data_version"),
        ('{"data_version": 0, "clusterId": "", "leaderId": 1}', "it has no leaderEpoch"),
        ('{"data_version": 1, "leaderId": 1, "leaderEpoch": 1, "votedId": -1}', "it has no votedDirectoryId"),
    ],
)
def test_a_quorum_state_at_which_a_node_stops_is_damaged(folder: MetadataFolder, text: str, why: str) -> None:
    (folder.log / "quorum-state").write_text(text)
    with pytest.raises(UserError, match=f"quorum-state is damaged or not complete: {why}"):
        quorum_state(folder)


def test_a_quorum_state_of_endless_digits_or_depth_is_damaged(folder: MetadataFolder) -> None:
    for text in ('{"leaderEpoch": ' + "1" * 5_000 + "}", "[" * 100_000):
        (folder.log / "quorum-state").write_text(text)
        with pytest.raises(UserError, match="quorum-state is damaged"):
            node_log(folder, 1)


@pytest.mark.parametrize("line", ["1" * 5_000 + " 0", "1", "one 0", "1 2 3"])
def test_a_damaged_checkpoint_of_epochs_is_named(line: str) -> None:
    with pytest.raises(UserError, match="leader-epoch-checkpoint is damaged"):
        parse_epochs(f"0\n1\n{line}\n")


def test_a_swap_of_a_segment_is_part_of_the_log_as_after_a_start(folder: MetadataFolder) -> None:
    split(folder, 45)
    before = [batch.base_offset for batch in read_log(folder)]
    for path in folder.log.glob(f"{0:020}.*"):
        path.rename(f"{path}.swap")
    assert log_range(open_folder(folder.root)) == (0, 57)
    assert [batch.base_offset for batch in read_log(folder)] == before
    (folder.log / f"{45:020}.log").unlink()
    assert open_folder(folder.root).log == folder.log, "also if every segment is a swap"
    assert log_range(folder) == (0, 45)
