"""A snapshot installed in the place of a real metadata log (4.3.1, one node) without Java: what is left, the undo,
and every point of death.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from kafka_rollout.base.errors import FatalError, RefusedError, UserError
from kafka_rollout.metadata_log.changes.install import install, is_installed, refuse_used, uninstall
from kafka_rollout.metadata_log.changes.places import HERE, DiskChanges
from kafka_rollout.metadata_log.disk.folder import MetadataFolder, log_range, open_folder, read_log
from kafka_rollout.metadata_log.log_choice import EPOCHS_ABOVE
from tests.fakes.dying_files import DyingFiles, KilledError
from tests.paths import FIXTURES

OLD_SNAPSHOT = f"{37:020}-{1:010}.checkpoint"
END, EPOCH = 57, 1 + EPOCHS_ABOVE
NEW = f"{END:020}-{EPOCH:010}.checkpoint"
KEPT = {"quorum-state", "partition.metadata"}


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture
def folder(tmp_path: Path) -> MetadataFolder:
    shutil.copytree(FIXTURES / "metadata-log-level-30", tmp_path / "metadata")
    return open_folder(tmp_path / "metadata")


@pytest.fixture
def snapshot(tmp_path: Path, folder: MetadataFolder) -> Path:
    """Any whole snapshot will do for what is only moved."""
    path = tmp_path / NEW
    shutil.copy(folder.log / OLD_SNAPSHOT, path)
    return path


@pytest.fixture
def bootstrap(tmp_path: Path) -> Path:
    path = tmp_path / "lower-bootstrap"
    path.write_bytes(b"what the older release can read")
    return path


def whole(folder: MetadataFolder) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder.root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.root.rglob("*")
        if path.is_file()
    }


def log_files(folder: MetadataFolder) -> set[str]:
    return {path.name for path in folder.log.iterdir() if path.is_file()}


def registration(offset: int, epoch: int) -> bytes:
    """A batch with a RegisterBrokerRecord, as the fixture's broker wrote it, elsewhere: the CRC covers neither."""
    folder = open_folder(FIXTURES / "metadata-log-level-30")
    batch = next(b for b in read_log(folder) if any(r.type == 0 for r in b.records) and not b.is_control)
    return offset.to_bytes(8) + batch.data[8:12] + epoch.to_bytes(4) + batch.data[16:]


def test_the_snapshot_is_the_whole_log_and_the_bootstrap_file_is_the_lower_one(
    folder: MetadataFolder, snapshot: Path, bootstrap: Path
) -> None:
    before = whole(folder)
    said = install(folder, snapshot, bootstrap=bootstrap)
    assert NEW in said
    assert log_files(folder) == {*KEPT, NEW}
    assert (folder.log / NEW).read_bytes() == snapshot.read_bytes()
    assert (folder.root / "bootstrap.checkpoint").read_bytes() == bootstrap.read_bytes()
    assert log_range(folder) == (END, END)
    held = whole(folder)
    assert "already" in install(folder, snapshot, bootstrap=bootstrap)
    assert whole(folder) == held
    backup = folder.log / f"kafka-rollout-install-{Path(NEW).stem}"
    for name, content in before.items():
        if name != "meta.properties":
            assert (backup / Path(name).name).read_bytes() == content[0]


def test_taken_back_every_byte_is_as_before(folder: MetadataFolder, snapshot: Path, bootstrap: Path) -> None:
    before = whole(folder)
    install(folder, snapshot, bootstrap=bootstrap)
    uninstall(folder)
    assert whole(folder) == before
    with pytest.raises(UserError, match="no installation"):
        uninstall(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_bootstrap_file_of_root_in_the_nodes_folder_is_replaced_and_stays_roots(
    folder: MetadataFolder, snapshot: Path, bootstrap: Path
) -> None:
    """As root leaves it that formats a directory for the node's user."""
    for path in (folder.root, *folder.root.rglob("*")):
        os.chown(path, 12345, 12346)
    os.chown(folder.root / "bootstrap.checkpoint", 0, 0)
    install(folder, snapshot, bootstrap=bootstrap)
    assert (folder.root / "bootstrap.checkpoint").read_bytes() == bootstrap.read_bytes()
    assert (folder.root / "bootstrap.checkpoint").stat().st_uid == 0
    assert (folder.log / NEW).stat().st_uid == 12345


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_nothing_is_written_into_a_folder_of_root_for_another_user(
    folder: MetadataFolder, snapshot: Path, bootstrap: Path
) -> None:
    for path in folder.root.rglob("*"):
        os.chown(path, 12345, 12346)
    os.chown(folder.root, 0, 0)
    before = whole(folder)
    with pytest.raises(UserError, match="does not belong to the owner"):
        install(folder, snapshot, bootstrap=bootstrap)
    assert (folder.root / "bootstrap.checkpoint").read_bytes() == before["bootstrap.checkpoint"][0]


def quorum_state(folder: MetadataFolder) -> dict[str, object]:
    return dict(json.loads((folder.log / "quorum-state").read_text()))


def test_a_candidate_has_voted_for_itself_in_the_epoch_after_the_snapshots(
    folder: MetadataFolder, snapshot: Path
) -> None:
    before = quorum_state(folder)
    install(folder, snapshot, candidate=True)
    voted = {"leaderId": -1, "leaderEpoch": EPOCH + 1, "votedId": 1}
    assert quorum_state(folder) == {**before, **voted}
    uninstall(folder, keep_epoch=True)
    assert quorum_state(folder) == {**before, **voted}, "the vote is not forgotten"


def test_a_candidate_that_was_killed_at_any_change_votes_once(folder: MetadataFolder, snapshot: Path) -> None:
    """It was started in between, and leads: a repeated installation must not turn the leader into a candidate."""

    def installs_again() -> None:
        if quorum_state(folder)["leaderEpoch"] == EPOCH + 1:
            (folder.log / "quorum-state").write_text(json.dumps({**quorum_state(folder), "leaderId": 1}))
        install(folder, snapshot, candidate=True)

    seen = set()
    for state in deaths(
        folder, lambda files: install(folder, snapshot, candidate=True, files=files), installs_again, half=False
    ):
        (content, _) = state["__cluster_metadata-0/quorum-state"]
        seen.add(json.loads(content)["leaderId"])
        assert json.loads(content)["leaderEpoch"] == EPOCH + 1
    assert seen == {-1, 1}


DYNAMIC = {"data_version": 1, "leaderId": 1, "leaderEpoch": 1, "votedId": -1, "votedDirectoryId": "A" * 22}


@pytest.mark.parametrize("state", [DYNAMIC, {}], ids=["of a dynamic quorum", "none"])
def test_a_state_of_another_quorum_than_the_snapshots_stays(
    folder: MetadataFolder, snapshot: Path, state: dict[str, int]
) -> None:
    (folder.log / "quorum-state").unlink()
    if state:
        (folder.log / "quorum-state").write_text(json.dumps(state))
    install(folder, snapshot, candidate=True)
    assert (folder.log / "quorum-state").exists() == bool(state)
    assert not state or quorum_state(folder) == state


def deaths(
    folder: MetadataFolder, call: Callable[[DiskChanges], object], then: Callable[[], object], *, half: bool
) -> list[dict[str, tuple[bytes, int]]]:
    """Die at every change of the disk in turn, each time from the same beginning; what is there after `then`."""
    keep = folder.root.with_name("keep")
    shutil.copytree(folder.root, keep)
    states: list[dict[str, tuple[bytes, int]]] = []
    for at in count():
        try:
            call(DyingFiles(at, half=half))
            return states
        except KilledError:
            is_a_log_to_start_from(folder)
            then()
            states.append(whole(folder))
        finally:
            shutil.rmtree(folder.root)
            shutil.copytree(keep, folder.root)
    raise AssertionError


def is_a_log_to_start_from(folder: MetadataFolder) -> None:
    """The old log without a gap, or the new snapshot, which Kafka prefers to any log of an older epoch."""
    if not (folder.log / NEW).exists():
        assert next(batch.base_offset for batch in read_log(folder)) == 0
        assert log_range(folder) == (0, END)


@pytest.mark.parametrize("half", [False, True], ids=["before a change", "half a file written"])
def test_killed_anywhere_in_an_installation_the_next_call_finishes_it(
    folder: MetadataFolder, snapshot: Path, bootstrap: Path, half: bool
) -> None:
    shutil.copytree(folder.root, folder.root.with_name("expected"))
    expected = open_folder(folder.root.with_name("expected"))
    install(expected, snapshot, bootstrap=bootstrap)

    def again(files: DiskChanges = HERE) -> None:
        install(folder, snapshot, bootstrap=bootstrap, files=files)

    states = deaths(folder, again, again, half=half)
    assert len(states) > 15
    wanted = {name: content for name, (content, _) in whole(expected).items()}
    assert all({name: content for name, (content, _) in state.items()} == wanted for state in states)


@pytest.mark.parametrize("half", [False, True], ids=["before a change", "half a file written"])
def test_killed_anywhere_in_an_installation_it_can_be_taken_back(
    folder: MetadataFolder, snapshot: Path, bootstrap: Path, half: bool
) -> None:
    before = whole(folder)

    def back() -> None:
        try:
            uninstall(folder)
        except UserError as error:
            assert "no installation" in error.sentence  # noqa: PT017 - died before there was a backup

    states = deaths(folder, lambda files: install(folder, snapshot, bootstrap=bootstrap, files=files), back, half=half)
    assert len(states) > 15
    assert all(state == before for state in states)


@pytest.mark.parametrize("half", [False, True], ids=["before a change", "half a file written"])
def test_killed_anywhere_while_it_is_taken_back_the_next_call_finishes(
    folder: MetadataFolder, snapshot: Path, bootstrap: Path, half: bool
) -> None:
    before = whole(folder)
    install(folder, snapshot, bootstrap=bootstrap)
    states = deaths(folder, lambda files: uninstall(folder, files=files), lambda: uninstall(folder), half=half)
    assert len(states) > 10
    assert all(state == before for state in states)


def test_what_controllers_wrote_on_the_new_level_is_given_up_when_it_is_taken_back(
    folder: MetadataFolder, snapshot: Path, bootstrap: Path
) -> None:
    before = whole(folder)
    install(folder, snapshot, bootstrap=bootstrap)
    no_op = list(read_log(open_folder(FIXTURES / "metadata-log-level-30")))[-1]
    written = END.to_bytes(8) + no_op.data[8:12] + EPOCH.to_bytes(4) + no_op.data[16:]
    (folder.log / f"{END:020}.log").write_bytes(written)
    (folder.log / f"{END:020}.index").write_bytes(b"")
    (folder.log / "leader-epoch-checkpoint").write_text(f"0\n1\n{EPOCH} {END}\n")
    (folder.log / "quorum-state").write_text('{"leaderEpoch": 9}')
    uninstall(folder)
    assert whole(folder) == before


def test_once_a_broker_has_registered_it_is_not_taken_back(folder: MetadataFolder, snapshot: Path) -> None:
    install(folder, snapshot)
    (folder.log / f"{END:020}.log").write_bytes(registration(END, EPOCH))
    held = whole(folder)
    for call in (uninstall, refuse_used):
        with pytest.raises(RefusedError, match=f"a broker registered at offset {END}"):
            call(folder, NEW)
    assert whole(folder) == held


@pytest.mark.parametrize("end", [END + 30, END - 7], ids=["of a later offset", "of an earlier offset"])
def test_the_backup_of_an_earlier_downgrade_is_not_that_of_a_later_snapshot(
    folder: MetadataFolder, snapshot: Path, tmp_path: Path, end: int
) -> None:
    """An undo of a live downgrade makes the log shorter than its snapshot, so a later snapshot can end before it."""
    later = tmp_path / f"{end:020}-{EPOCH + 2 * EPOCHS_ABOVE:010}.checkpoint"
    shutil.copy(snapshot, later)
    install(folder, snapshot)
    (folder.log / f"{END:020}.log").write_bytes(registration(END, EPOCH))
    with pytest.raises(RefusedError):
        refuse_used(folder, NEW)
    held = whole(folder)
    refuse_used(folder, later.name)
    assert not is_installed(folder, later.name), "nothing is undone, and the node starts on its log"
    with pytest.raises(UserError, match="no installation"):
        uninstall(folder, later.name)
    assert whole(folder) == held
    install(folder, later)
    assert "already" in install(folder, later)
    uninstall(folder, later.name)
    assert whole(folder) == held


def test_a_log_that_has_moved_on_to_a_later_snapshot_is_not_taken_back(folder: MetadataFolder, snapshot: Path) -> None:
    install(folder, snapshot)
    (folder.log / NEW).rename(folder.log / f"{90:020}-{EPOCH + 1:010}.checkpoint")
    with pytest.raises(RefusedError, match="already begins at a later snapshot"):
        uninstall(folder)


def killed_before_the_snapshot_is_in_place(folder: MetadataFolder, snapshot: Path, bootstrap: Path) -> None:
    class Dying(DiskChanges):
        def copy(self, source: Path, target: Path, *, position: int = 0, like: Path | None = None) -> None:
            if target == folder.log / NEW:
                raise KilledError
            super().copy(source, target, position=position, like=like)

    with pytest.raises(KilledError):
        install(folder, snapshot, bootstrap=bootstrap, files=Dying())


def test_what_a_node_wrote_between_a_killed_installation_and_the_next_call_is_never_dropped(
    folder: MetadataFolder, snapshot: Path, bootstrap: Path
) -> None:
    before = whole(folder)["bootstrap.checkpoint"]
    killed_before_the_snapshot_is_in_place(folder, snapshot, bootstrap)
    with folder.segments[-1].open("ab") as file:
        file.write(registration(END, 1))
    with pytest.raises(RefusedError, match="was started after"):
        install(folder, snapshot, bootstrap=bootstrap)
    uninstall(folder)
    assert log_range(folder) == (0, END + 1)
    assert whole(folder)["bootstrap.checkpoint"] == before


@pytest.mark.parametrize("epoch", [1, EPOCH - 1])
def test_a_node_that_knows_an_epoch_too_near_to_the_snapshots_was_started_since_and_is_refused(
    folder: MetadataFolder, snapshot: Path, epoch: int
) -> None:
    before = whole(folder)
    with pytest.raises(RefusedError, match="knows epoch 1"):
        install(folder, snapshot.rename(snapshot.with_name(f"{END:020}-{epoch:010}.checkpoint")))
    assert whole(folder) == before


def test_another_snapshot_waits_until_the_begun_installation_is_finished_or_taken_back(
    folder: MetadataFolder, snapshot: Path, bootstrap: Path
) -> None:
    killed_before_the_snapshot_is_in_place(folder, snapshot, bootstrap)
    other = Path(shutil.copy(snapshot, snapshot.with_name(f"{END:020}-{EPOCH + 1:010}.checkpoint")))
    with pytest.raises(RefusedError, match="is not finished"):
        install(folder, other)
    uninstall(folder)
    install(folder, other)
    assert [one.name for one in folder.checkpoints] == [other.name]


def test_a_second_installation_is_taken_back_to_the_first(folder: MetadataFolder, snapshot: Path) -> None:
    install(folder, snapshot)
    first = {name: content for name, content in whole(folder).items() if "kafka-rollout" not in name}
    other = Path(shutil.copy(snapshot, snapshot.with_name(f"{END:020}-{2 * EPOCH:010}.checkpoint")))
    install(folder, other)
    uninstall(folder)
    assert {name: content for name, content in whole(folder).items() if "kafka-rollout" not in name} == first


def test_a_cut_off_snapshot_or_a_damaged_backup_changes_nothing(folder: MetadataFolder, snapshot: Path) -> None:
    before = whole(folder)
    content = snapshot.read_bytes()
    os.truncate(snapshot, len(content) - 10)
    with pytest.raises(UserError, match="is damaged or not complete"):
        install(folder, snapshot)
    assert whole(folder) == before
    snapshot.write_bytes(content)
    install(folder, snapshot)
    (damaged,) = folder.log.glob("kafka-rollout-install-*/quorum-state")
    damaged.write_text("{}")
    held = whole(folder)
    with pytest.raises(FatalError, match="is missing or was changed after the backup"):
        uninstall(folder)
    assert whole(folder) == held


def killed_with_the_snapshot_in_place(folder: MetadataFolder, snapshot: Path) -> None:
    class Dying(DiskChanges):
        def remove(self, path: Path) -> None:
            raise KilledError

    with pytest.raises(KilledError):
        install(folder, snapshot, files=Dying())


def test_what_a_started_node_wrote_on_the_snapshot_stays_when_the_installation_is_finished(
    folder: MetadataFolder, snapshot: Path
) -> None:
    killed_with_the_snapshot_in_place(folder, snapshot)
    theirs = {f"{END:020}.log": registration(END, EPOCH), "leader-epoch-checkpoint": f"0\n1\n{EPOCH} {END}\n".encode()}
    for name, content in theirs.items():
        (folder.log / name).write_bytes(content)
    install(folder, snapshot)
    assert log_files(folder) == {*KEPT, NEW, *theirs}
    assert {name: (folder.log / name).read_bytes() for name in theirs} == theirs


def test_a_later_snapshot_of_a_started_node_is_not_pushed_aside_by_the_installed_one(
    folder: MetadataFolder, snapshot: Path
) -> None:
    killed_with_the_snapshot_in_place(folder, snapshot)
    later = f"{90:020}-{EPOCH + 1:010}.checkpoint"
    (folder.log / NEW).rename(folder.log / later)
    install(folder, snapshot)
    assert log_files(folder) == {*KEPT, later}


def test_an_installation_on_which_a_leader_was_elected_stays_while_brokers_run(
    folder: MetadataFolder, snapshot: Path
) -> None:
    """Running brokers fetch the snapshot from the leader, and exit if their log is cut below it."""
    install(folder, snapshot, bootstrap=None)
    (folder.log / "leader-epoch-checkpoint").write_text(f"0\n1\n{EPOCH + 1} {END}\n")
    with pytest.raises(RefusedError, match=f"a leader was elected on it in epoch {EPOCH + 1}"):
        uninstall(folder, keep_epoch=True)
    assert (folder.log / NEW).exists()
