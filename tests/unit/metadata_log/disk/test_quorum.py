"""What a stopped node's directory says of its log and of the quorum, on the kept log of a real node."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.metadata_log.changes.places import LocalPlaces
from kafka_rollout.metadata_log.disk.folder import (
    MetadataFolder,
    log_range,
    node_log,
    open_folder,
    read_log,
    read_start,
)
from kafka_rollout.metadata_log.log_choice import NodeLog, UnreadableLogError, choose_log
from kafka_rollout.metadata_log.node_logs.directories import DirectoryMetadataLogs
from kafka_rollout.model.topology import NodeSpec, Role
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.paths import FIXTURES

END = 57


@pytest.fixture
def folder(tmp_path: Path) -> MetadataFolder:
    shutil.copytree(FIXTURES / "metadata-log-level-30", tmp_path / "metadata")
    return open_folder(tmp_path / "metadata")


def log_of(root: Path, node_id: int, cluster_id: str) -> NodeLog:
    cache = ReleaseCache(root.parent / "cache", root.parent / "include")
    node = NodeSpec(node_id=node_id, name="kafka", roles=frozenset({Role.CONTROLLER}))
    return DirectoryMetadataLogs(cache, LocalPlaces(lambda _: root)).node_log(node, cluster_id=cluster_id)


def test_how_far_the_log_goes_and_who_votes_in_a_static_quorum(folder: MetadataFolder) -> None:
    found = node_log(folder, 1)
    assert (found.epoch, found.newest_epoch, found.end_offset) == (1, 1, END)
    assert (found.known_epoch, found.leader_id, found.voted_id, found.voters) == (1, 1, -1, {1})
    assert found.snapshots == {path.name for path in folder.log.glob("*.checkpoint")}


def test_an_epoch_of_a_leader_without_records_is_known(folder: MetadataFolder) -> None:
    (folder.log / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n7 57\n")
    assert (node_log(folder, 1).epoch, node_log(folder, 1).newest_epoch) == (1, 7)


def test_an_election_that_left_nothing_in_the_log_is_known_all_the_same(folder: MetadataFolder) -> None:
    state = json.loads((folder.log / "quorum-state").read_text())
    (folder.log / "quorum-state").write_text(json.dumps({**state, "leaderEpoch": 8, "leaderId": -1}))
    found = node_log(folder, 1)
    assert (found.epoch, found.known_epoch) == (1, 8)


def test_a_log_whose_last_batch_is_cut_off_is_not_compared(folder: MetadataFolder) -> None:
    os.truncate(folder.segments[-1], folder.segments[-1].stat().st_size - 3)
    with pytest.raises(UnreadableLogError, match="it is cut off after byte") as error:
        log_of(folder.root, 1, str(folder.cluster_id))
    with pytest.raises(RefusedError, match="its last batch is not whole") as refused:
        choose_log((), {1}, {1: f"node 1: {error.value.sentence}"})
    assert "start the node once on its release" in refused.value.remedy
    with pytest.raises(RefusedError) as refused:
        choose_log((), {1}, {1: "node 1: its host does not respond"})
    assert "start the node once" not in refused.value.remedy


def test_a_log_that_lost_its_end_is_not_compared(folder: MetadataFolder) -> None:
    (folder.log / "leader-epoch-checkpoint").write_text("0\n3\n1 0\n3 500\n4 9000\n")
    with pytest.raises(UnreadableLogError, match=r"end at offset 57, and by leader-epoch-checkpoint .* offset 9000"):
        log_of(folder.root, 1, str(folder.cluster_id))


def test_an_epoch_that_no_leader_had_does_not_decide(folder: MetadataFolder) -> None:
    last = list(read_log(folder))[-1]
    data = bytearray(folder.segments[-1].read_bytes())
    data[last.position + 12] ^= 1  # partitionLeaderEpoch
    folder.segments[-1].write_bytes(data)
    with pytest.raises(UserError, match="is of epoch 16777217, and leader-epoch-checkpoint ends with epoch 1"):
        node_log(folder, 1)


def test_a_snapshot_that_was_installed_is_a_log_that_ends_with_it(folder: MetadataFolder) -> None:
    for path in (*folder.segments, folder.log / "leader-epoch-checkpoint"):
        path.unlink()
    with pytest.raises(UserError, match="it has no segment"):
        node_log(folder, 1)
    newest = folder.checkpoints[-1].path
    newest.rename(newest.with_name(newest.name.replace("0000000001.", "0000000102.")))
    assert (node_log(folder, 1).epoch, node_log(folder, 1).end_offset) == (102, 37)


@pytest.mark.parametrize("lost", [(), ("leader-epoch-checkpoint",)])
def test_a_snapshot_of_a_later_epoch_replaces_a_log_that_is_longer(
    folder: MetadataFolder, lost: tuple[str, ...]
) -> None:
    """As after a kill between the rename of a fetched snapshot and the truncation of the log."""
    newest = folder.checkpoints[-1].path
    newest.rename(newest.with_name(newest.name.replace("0000000001.", "0000000101.")))
    for name in lost:
        (folder.log / name).unlink()
    assert [is_log for _, is_log in read_start(folder, folder.checkpoints[-1])].count(True) == 0
    found = node_log(folder, 1)
    assert (found.epoch, found.newest_epoch, found.end_offset) == (101, 101, 37)
    assert (log_range(folder), list(read_log(folder))) == ((37, 37), [])
    state = folder.log / "quorum-state"
    state.write_text(state.read_text().replace('"leaderEpoch":1', '"leaderEpoch":102'))  # the node led it
    with pytest.raises(UserError, match="damaged or not complete"):
        node_log(folder, 1)


def test_damage_a_missing_log_and_a_torn_quorum_state_are_told_from_the_log_of_another(
    folder: MetadataFolder, tmp_path: Path
) -> None:
    ours = str(folder.cluster_id)
    assert log_of(folder.root, 1, ours).end_offset == END
    with pytest.raises(UserError, match="not of cluster other") as another:
        log_of(folder.root, 1, "other")
    with pytest.raises(UserError, match="belongs to node 1, not to node 2") as anothers:
        log_of(folder.root, 2, ours)
    assert not {type(another.value), type(anothers.value)} & {UnreadableLogError}
    (tmp_path / "empty").mkdir()
    for root in (tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(UnreadableLogError):
            log_of(root, 1, ours)
    (folder.log / "quorum-state").write_text('{"leaderEpo')
    with pytest.raises(UnreadableLogError, match="is not a JSON object"):
        log_of(folder.root, 1, ours)
    shutil.copy(FIXTURES / "metadata-log-level-30" / "__cluster_metadata-0" / "quorum-state", folder.log)
    os.truncate(folder.checkpoints[-1].path, 700)
    with pytest.raises(UnreadableLogError, match="is damaged or not complete"):
        log_of(folder.root, 1, ours)
