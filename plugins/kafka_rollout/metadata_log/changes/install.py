"""Replace the whole metadata log of a stopped node by a snapshot, with a backup, and undo it.

The epoch of the snapshot is higher than every epoch that the node knows. If the node starts before the snapshot file
appears, it uses the old log. If it starts later, Kafka itself replaces the old log by the snapshot, as a follower does
that fetched one (KafkaMetadataLog.truncateToLatestSnapshot). The files removed afterwards are those that Kafka would
remove. `quorum-state` stays, so that the node does not vote twice in an epoch. `bootstrap.checkpoint`, which every
start reads, is replaced by one at a lower level, because an older release fails on a level above its own. Kafka applies
its levels only to an empty log, so a change of this file does not change the cluster's state.

One controller of a live downgrade can start as a candidate instead of waiting for an election timeout: quorum-state
then contains its vote for itself in the epoch after the snapshot's (QuorumState.initialize, CandidateState). No node
has voted in that epoch, because it is higher than every epoch that a node knows.

The backup is in the folder of the log (places.py). A repeated call finishes an interrupted one. A node keeps the
backups of earlier downgrades: a run undoes the installation of its own snapshot alone, by the name of the snapshot.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.base.system.files import read_regular, sha256_of
from kafka_rollout.formats.checkpoint_files import LEADER_EPOCHS
from kafka_rollout.formats.files import server_properties
from kafka_rollout.formats.layouts import ZERO_UUID
from kafka_rollout.formats.log_files import base_offset
from kafka_rollout.metadata_log.changes.places import HERE, Backup, DiskChanges, back_up, changing, remove_remains
from kafka_rollout.metadata_log.classes.images import image_classes
from kafka_rollout.metadata_log.classes.known_releases import known_releases
from kafka_rollout.metadata_log.disk.folder import (
    CONTROL_VOTERS,
    META,
    QUORUM_STATE,
    MetadataFolder,
    checkpoint_of,
    decode_voters,
    leader_epochs,
    quorum_state,
    read_checkpoint,
    read_file,
    read_log,
)
from kafka_rollout.metadata_log.log_choice import EPOCHS_ABOVE
from kafka_rollout.metadata_log.record_types import RecordType
from kafka_rollout.model.host_state import BOOTSTRAP
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.releases.jars.cache import ReleaseCache

_BACKUP = "kafka-rollout-install-"
_BOOTSTRAP_BACKUP = "kafka-rollout-bootstrap-"
_OF_THE_LOG = re.compile(r"\d{20}(-\d{10})?\.(log|index|timeindex|txnindex|snapshot|checkpoint)(\.\w+)?")


class InstallState(StrEnum):
    INSTALLING = "installing"
    INSTALLED = "installed"
    UNDOING = "undoing"


class _Backup(Backup):
    __slots__ = ()

    @classmethod
    def of(cls, log: Path, snapshot: str) -> _Backup | None:
        """Return the backup of the installation of a snapshot. `snapshot`: the name of its file."""
        return next((one for one in cls.all(log, _BACKUP) if one.snapshot == snapshot), None)

    @property
    def snapshot(self) -> str:
        return str(self.details["snapshot"])

    @property
    def snapshot_sha256(self) -> str:
        return str(self.details["snapshot_sha256"])

    @property
    def end_offset(self) -> int:
        return int(self.snapshot.partition("-")[0])

    @property
    def epoch(self) -> int:
        return int(Path(self.snapshot).stem.partition("-")[2])


def install(
    folder: MetadataFolder,
    snapshot: Path,
    *,
    bootstrap: Path | None = None,
    candidate: bool = False,
    files: DiskChanges = HERE,
) -> str:
    """Install a snapshot, or finish an installation; return a sentence with the result.

    `bootstrap`: the file that replaces the node's bootstrap.checkpoint, if it has one. `candidate`: the node, which is
    a voter, starts as a candidate; only for one node of the quorum. Raises UserError for a running node or a damaged
    snapshot. Raises RefusedError for a snapshot that is too old for the node's log, and if another
    installation is not finished.
    """
    new = checkpoint_of(snapshot)
    if new is None:
        raise UserError(
            f"{snapshot} is not named like a snapshot.",
            remedy="Use a file that `kafka-rollout metadata snapshot` wrote.",
        )
    controls = [
        record
        for batch in read_checkpoint(snapshot, outline=True)  # raises for an incomplete file and for a damaged batch
        for record in batch.records
    ]
    sha256 = sha256_of(snapshot)
    with files.stopped(folder), changing(folder.log):
        remove_remains(folder.log, _BACKUP, files)
        backup = _Backup.of(folder.log, new.name)
        ours = backup is not None and backup.snapshot_sha256 == sha256
        for one in _Backup.all(folder.log, _BACKUP):
            is_ours = ours and one.snapshot == new.name
            if one.state == InstallState.UNDOING or (one.state == InstallState.INSTALLING and not is_ours):
                what = "being undone" if one.state == InstallState.UNDOING else "not finished"
                raise RefusedError(
                    f"The installation of {one.snapshot} in {folder.log} is {what}.",
                    remedy=f"Run `kafka-rollout metadata install --undo --log-dir {folder.root}`.",
                )
        if backup is not None and ours and backup.state == InstallState.INSTALLED:
            return f"{new.name} is already installed in {folder.log}; the backup is {backup.folder}."
        if backup is None or not ours:
            _refuse_behind(folder, new.epoch, new.name)
            backup = _prepare(folder, new.name, sha256, files)
        elif not _is_in_place(folder, backup):
            _refuse_moved_on(folder, backup)
        _carry_out(folder, backup, snapshot, bootstrap, files)
        if candidate:
            voters = [record.value for record in controls if record.type == CONTROL_VOTERS]
            _vote_for_itself(folder, new.epoch + 1, voters, files)
        backup.record(InstallState.INSTALLED, files)
    return f"{new.name} is now the whole metadata log in {folder.log}; the backup is {backup.folder}."


def is_installed(folder: MetadataFolder, snapshot: str) -> bool:
    """Whether there is an installation of a snapshot to undo, or files of an interrupted call to remove.

    `snapshot`: the name of its file.
    """
    return (folder.log / _backup_name(snapshot)).exists()


def refuse_used(folder: MetadataFolder, snapshot: str) -> None:
    """Raise RefusedError if the installation of a snapshot can no longer be undone: a broker has registered on it."""
    backup = _Backup.of(folder.log, snapshot)
    if backup is not None and backup.state != InstallState.UNDOING:
        _refuse_used(folder, backup)


def uninstall(
    folder: MetadataFolder, snapshot: str | None = None, *, files: DiskChanges = HERE, keep_epoch: bool = False
) -> str:
    """Restore every file of the time before an installation, or finish it; return a sentence.

    `snapshot`: the name of the file that was installed; None: the newest one, as an operator asks for it. `keep_epoch`:
    quorum-state stays. A node that runs can know its epoch, and would not accept an earlier one. Then a leader must not
    have been elected on the snapshot, because running brokers fetch it from the leader.
    Raises UserError without an installation, RefusedError if a broker has registered since or, with `keep_epoch`, if a
    leader was elected, and FatalError, before any change, for a damaged backup.
    """
    with files.stopped(folder), changing(folder.log):
        cleaned = remove_remains(folder.log, _BACKUP, files)
        newest = _Backup.newest(folder.log, _BACKUP)
        backup = newest if snapshot is None else _Backup.of(folder.log, snapshot)
        if backup is None and cleaned:
            return f"The files in {folder.log} are those of the time before the installation."
        if backup is None:
            raise UserError(f"{folder.log} has no installation to undo.", remedy="No action is needed.")
        if backup.state == InstallState.INSTALLING and not _is_in_place(folder, backup):
            # The log is unchanged by us; a node that was started since can have written to it.
            _restore_files(folder, backup, [BOOTSTRAP] if BOOTSTRAP in backup.sha256 else [], files)
        else:
            if backup.state != InstallState.UNDOING:
                _refuse_used(folder, backup)
                if keep_epoch:
                    _refuse_elected(folder, backup)
                backup.check(backup.sha256)
                backup = backup.record(InstallState.UNDOING, files)
            kept = {QUORUM_STATE} if keep_epoch else set()
            _restore_files(folder, backup, [name for name in backup.sha256 if name not in kept], files)
            new = [path for path in _files_of(folder) if path.name not in backup.sha256]
            files.remove_all(path for path in new if _is_replaced(path.name))
            files.sync(folder.log)
        files.sync(folder.root)
        files.remove_folder(backup.folder)
    return f"The installation of {backup.snapshot} in {folder.log} was undone: all its files are restored."


def _backup_name(snapshot: str) -> str:
    return f"{_BACKUP}{Path(snapshot).stem}"


def _prepare(folder: MetadataFolder, name: str, snapshot_sha256: str, files: DiskChanges) -> _Backup:
    place = folder.log / _backup_name(name)
    sources = [*_files_of(folder), *([folder.bootstrap] if folder.bootstrap else [])]
    sha256 = back_up(sources, place, files)
    details = {"snapshot": name, "snapshot_sha256": snapshot_sha256}
    backup = _Backup(folder=place, state=InstallState.INSTALLING, sha256=sha256, details=details)
    return backup.record(InstallState.INSTALLING, files)


def _carry_out(
    folder: MetadataFolder, backup: _Backup, snapshot: Path, bootstrap: Path | None, files: DiskChanges
) -> None:
    place = folder.root / BOOTSTRAP
    if bootstrap is not None and BOOTSTRAP in backup.sha256 and sha256_of(place) == backup.sha256[BOOTSTRAP]:
        files.copy(bootstrap, place, like=place)
        files.sync(folder.root)
    if not _is_in_place(folder, backup):
        files.copy(snapshot, folder.log / backup.snapshot, like=backup.example)
        files.sync(folder.log)
    old = ((folder.log / name, sha256) for name, sha256 in backup.sha256.items() if _is_replaced(name))
    # A file that differs from its copy was written by a node that was started since.
    files.remove_all(path for path, sha256 in old if path.exists() and sha256_of(path) == sha256)
    files.sync(folder.log)


def _vote_for_itself(folder: MetadataFolder, epoch: int, voters: list[bytes], files: DiskChanges) -> None:
    """Store the vote of a voter for itself in an epoch, unless it knows the epoch.

    `voters`: VotersRecords of the snapshot; none for a static quorum. A dynamic quorum has voters with a directory id,
    and Kafka does not start a candidate with another one.
    """
    state, path = quorum_state(folder), folder.log / QUORUM_STATE
    vote: dict[str, object] = {"leaderId": -1, "leaderEpoch": epoch, "votedId": folder.node_id}
    if voters:
        meta = server_properties.parse(read_regular(folder.root / META))
        known = {voter["voterId"]: voter["voterDirectoryId"] for voter in decode_voters(voters[-1])}
        vote["votedDirectoryId"] = meta.get("directory.id", "")
        if known.get(folder.node_id) != vote["votedDirectoryId"]:
            return
    if state.get("data_version") != (1 if voters else 0) or int(state.get("leaderEpoch", 0)) >= epoch:
        return
    files.write(path, json.dumps({**state, **vote}), like=path)
    files.sync(folder.log)


def raise_epoch(folder: MetadataFolder, epoch: int, *, files: DiskChanges = HERE) -> None:
    """Store an epoch without a vote in the quorum-state of a stopped controller, unless it knows this or a later epoch.

    The controller then takes part only in elections of later epochs. Raises RefusedError without a quorum-state.
    """
    with files.stopped(folder), changing(folder.log):
        state, path = quorum_state(folder), folder.log / QUORUM_STATE
        if not state:
            raise RefusedError(
                f"{folder.log} has no {QUORUM_STATE}, so its node cannot get a later epoch.",
                remedy="Start this controller after the others have a leader.",
            )
        if int(state.get("leaderEpoch", 0)) >= epoch:
            return
        unvoted: dict[str, object] = {"leaderId": -1, "leaderEpoch": epoch, "votedId": -1}
        if "votedDirectoryId" in state:
            unvoted["votedDirectoryId"] = ZERO_UUID  # ReplicaKey.NO_DIRECTORY_ID
        files.write(path, json.dumps({**state, **unvoted}), like=path)
        files.sync(folder.log)


def _restore_files(folder: MetadataFolder, backup: _Backup, names: Iterable[str], files: DiskChanges) -> None:
    places = {name: (folder.root if name == BOOTSTRAP else folder.log) / name for name in names}
    files.copy_all(
        (backup.folder / name, place)
        for name, place in places.items()
        if not place.exists() or sha256_of(place) != backup.sha256[name]
    )
    files.sync(folder.log)


def _is_in_place(folder: MetadataFolder, backup: _Backup) -> bool:
    """Whether the snapshot exists, or a later one of a node that was started since."""
    return any(one.epoch >= backup.epoch for one in folder.checkpoints)


def _refuse_moved_on(folder: MetadataFolder, backup: _Backup) -> None:
    """Raise RefusedError if the log has changed since the backup: the snapshot lacks the new records."""
    there = {path.name: sha256_of(path) for path in _files_of(folder) if _is_replaced(path.name)}
    if there != {name: sha256 for name, sha256 in backup.sha256.items() if _is_replaced(name)}:
        raise RefusedError(
            f"The node of {folder.log} was started after the installation of {backup.snapshot} began, and its log has "
            "changed.",
            remedy="Undo it on every node (`kafka-rollout metadata install --undo`), then repeat the installation.",
        )


def _refuse_behind(folder: MetadataFolder, epoch: int, name: str) -> None:
    """Raise RefusedError if the node knows a later epoch: it was started after the choice of the log.

    A node writes each epoch to quorum-state before it writes a record of this epoch.
    """
    known = max([int(quorum_state(folder).get("leaderEpoch", 0)), *(one.epoch for one in folder.checkpoints)])
    if epoch < known + EPOCHS_ABOVE:
        raise RefusedError(
            f"The node of {folder.log} knows epoch {known}, and {name} is less than {EPOCHS_ABOVE} above it. The node "
            "was started after the log was chosen, or the snapshot was written for another purpose.",
            remedy="Write the snapshot again, from the logs of all stopped nodes (`kafka-rollout metadata snapshot`).",
        )


def _refuse_used(folder: MetadataFolder, backup: _Backup) -> None:
    if not _is_in_place(folder, backup):
        return
    if not any(one.name == backup.snapshot for one in folder.checkpoints) or (
        folder.segments and base_offset(folder.segments[0].name) > backup.end_offset
    ):
        raise _too_late(folder, backup, "the log already begins at a later snapshot")
    for batch in read_log(folder, backup.end_offset):
        # After the snapshot's end there can be old batches, of a log that was longer than the chosen one.
        if batch.epoch >= backup.epoch and not batch.is_control:
            for record in batch.records:
                if record.type == RecordType.REGISTER_BROKER:
                    raise _too_late(folder, backup, f"a broker registered at offset {record.offset}")


def _refuse_elected(folder: MetadataFolder, backup: _Backup) -> None:
    """Raise RefusedError if the log has an epoch above the snapshot's: a leader writes it before it answers a fetch."""
    later = [batch.epoch for batch in read_log(folder, outline=True) if batch.epoch > backup.epoch]
    later += [epoch for epoch, _ in leader_epochs(folder) if epoch > backup.epoch]
    if later:
        raise _too_late(folder, backup, f"a leader was elected on it in epoch {min(later)}")


def _too_late(folder: MetadataFolder, backup: _Backup, why: str) -> RefusedError:
    return RefusedError(
        f"The installation of {backup.snapshot} in {folder.log} can no longer be undone: {why}.",
        remedy=f"Upgrade again. The earlier files are in {backup.folder}.",
    )


def _files_of(folder: MetadataFolder) -> list[Path]:
    """The log's files, quorum-state first, in the order of their names."""
    found = sorted(path for path in folder.log.iterdir() if path.is_file())
    return sorted(found, key=lambda path: path.name != QUORUM_STATE)


def _is_replaced(name: str) -> bool:
    """Whether the file belongs to the log, including files that Kafka marked for deletion or did not finish."""
    return name == LEADER_EPOCHS or _OF_THE_LOG.fullmatch(name) is not None


def lower_bootstrap(
    folder: MetadataFolder, out: Path, *, level: int, target: Release, cache: ReleaseCache
) -> Path | None:
    """Write the node's bootstrap.checkpoint, with no level above `level` and the target's, to a file in `out`.

    Returns the file; None if the node has no bootstrap.checkpoint. Nodes with the same records share one file. Raises
    RefusedError if the classes of the target cannot read it.
    """
    if folder.bootstrap is None:
        return None
    final = out / f"bootstrap-{_records_sha256(folder.bootstrap)[:16]}-{level}-{target}.checkpoint"
    if final.exists():
        return final
    with tempfile.TemporaryDirectory(prefix=".kafka-rollout-", dir=out) as name:
        old, new = Path(name) / "old", Path(name) / "new"
        old.mkdir()
        new.mkdir()
        shutil.copy(folder.bootstrap, old / BOOTSTRAP)
        known = load_catalogue(*cache.catalogue_folders).get(target).features
        highest = {**{one.name: one.supported.max for one in known.values()}, METADATA_VERSION: level}
        with image_classes(cache, known_releases(*cache.catalogue_folders)[-1]) as classes:
            changed = classes.lower_bootstrap(old, new, highest)
        if not changed:
            shutil.copy(old / BOOTSTRAP, new / BOOTSTRAP)
        with image_classes(cache, target) as classes:
            why = classes.bootstrap_problem(new)
        if why is not None:
            raise RefusedError(
                f"Kafka {target} cannot read {folder.bootstrap} at level {level}: {why.rstrip('.')}.",
                remedy="Nothing was changed. Report this as a bug of kafka-rollout.",
            )
        (new / BOOTSTRAP).chmod(0o600)
        (new / BOOTSTRAP).rename(final)
    return final


def _records_sha256(path: Path) -> str:
    """Digest without the timestamps, which differ on every node."""
    digest = hashlib.sha256()
    for batch in read_file(path, last=False):
        for record in batch.records:
            if not batch.is_control:
                digest.update(len(record.value).to_bytes(4) + record.value)
    return digest.hexdigest()


def replace_bootstrap(
    folder: MetadataFolder, *, level: int, target: Release, cache: ReleaseCache, files: DiskChanges = HERE
) -> Path | None:
    """Replace a stopped node's bootstrap.checkpoint by a lowered one, whole or not at all.

    Returns the copy of the old file, in a folder inside the folder of the log; None if no level had to be lowered.
    """
    if folder.bootstrap is None:
        return None
    with files.stopped(folder), tempfile.TemporaryDirectory(prefix="kafka-rollout-") as name:
        lowered = lower_bootstrap(folder, Path(name), level=level, target=target, cache=cache)
        digest = sha256_of(folder.bootstrap)
        if lowered is None or sha256_of(lowered) == digest:
            return None
        with changing(folder.root):
            backup = folder.log / f"{_BOOTSTRAP_BACKUP}{digest[:16]}" / BOOTSTRAP
            if not backup.parent.exists():
                files.make_folder(backup.parent)
            if not backup.exists():
                files.copy(folder.bootstrap, backup)
            files.copy(lowered, folder.bootstrap, like=folder.bootstrap)
            files.sync(folder.root)
    return backup
