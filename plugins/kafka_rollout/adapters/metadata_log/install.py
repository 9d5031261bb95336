"""Install a snapshot on a stopped node in the place of its whole metadata log, with a backup and the way back.

The snapshot's epoch is above every epoch that the node knows, so the moment at which its file appears decides: before
it a start finds the old log, after it Kafka itself gives the old log up for the snapshot, as a follower does that
fetched one (KafkaMetadataLog.truncateToLatestSnapshot). What is removed afterwards is only what Kafka would remove.
`quorum-state` stays: it keeps the node from voting twice in an epoch. `bootstrap.checkpoint`, which every start reads,
is replaced by one that the older release can read.

The backup lies in the log's folder (metadata_backup.py). Called again, each call finishes what was begun.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Self

from kafka_rollout.adapters.metadata_log.backup import (
    Backup,
    Files,
    back_up,
    changing,
    remove_remains,
    sha256_of,
)
from kafka_rollout.adapters.metadata_log.folder import (
    BOOTSTRAP,
    QUORUM_STATE,
    MetadataFolder,
    checkpoint_of,
    read_checkpoint,
    read_log,
    stopped_node,
)
from kafka_rollout.adapters.metadata_log.quorum import quorum_state
from kafka_rollout.domain.metadata_log.records import RecordType
from kafka_rollout.domain.metadata_log.trim import LEADER_EPOCHS
from kafka_rollout.domain.model.errors import RefusedError, UserError
from kafka_rollout.domain.offline.log_choice import EPOCHS_ABOVE

_BACKUP = "kafka-rollout-install-"
_OF_THE_LOG = re.compile(r"\d{20}(-\d{10})?\.(log|index|timeindex|txnindex|snapshot|checkpoint)(\.\w+)?")


class State(StrEnum):
    INSTALLING = "installing"
    INSTALLED = "installed"
    UNDOING = "undoing"


class _Begun(Backup):
    """An installation that was begun."""

    __slots__ = ()

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

    def recorded(self, state: State, files: Files) -> Self:
        return self.record(state, files, like=self.folder / next(iter(self.sha256)))


def install(
    folder: MetadataFolder, snapshot: Path, *, bootstrap: Path | None = None, files: Files | None = None
) -> str:
    """Install a snapshot, or finish doing so; a sentence with what was done. `bootstrap`: what is to take the place of
    the node's bootstrap.checkpoint, if it has one.

    Raises UserError for a running node or a damaged snapshot, RefusedError for one that the node would give up for its
    log, and where another installation was begun and not finished.
    """
    files = files or Files()
    new = checkpoint_of(snapshot)
    if new is None:
        raise UserError(f"{snapshot} is not named as a snapshot.", remedy="Name one that `metadata snapshot` wrote.")
    for _ in read_checkpoint(snapshot, outline=True):
        pass  # complete, and every batch right
    sha256 = sha256_of(snapshot)
    with stopped_node(folder), changing(folder.log):
        remove_remains(folder.log, _BACKUP, files)
        begun = _Begun.newest(folder.log, _BACKUP)
        ours = begun is not None and (begun.snapshot, begun.snapshot_sha256) == (new.name, sha256)
        if begun is not None and (begun.state == State.UNDOING or (begun.state == State.INSTALLING and not ours)):
            what = "being taken back" if begun.state == State.UNDOING else "not finished"
            raise RefusedError(
                f"The installation of {begun.snapshot} in {folder.log} is {what}.",
                remedy=f"Finish that first: kafka-rollout metadata uninstall --log-dir {folder.root}.",
            )
        if begun is not None and ours and begun.state == State.INSTALLED:
            return f"{new.name} is installed in {folder.log} already; the backup is {begun.folder}."
        if begun is None or not ours:
            _refuse_behind(folder, new.epoch, new.name)
            begun = _prepare(folder, new.name, sha256, files)
        elif not _is_in_place(folder, begun):
            _refuse_moved_on(folder, begun)
        _carry_out(folder, begun, snapshot, bootstrap, files)
    return f"{new.name} is the whole metadata log in {folder.log} now; the backup is {begun.folder}."


def is_installed(folder: MetadataFolder) -> bool:
    """Whether there is anything to be taken back, or to be cleared away of a call that was cut short."""
    return any(folder.log.glob(f"{_BACKUP}*"))


def refuse_used(folder: MetadataFolder) -> None:
    """Raise RefusedError where the newest installation cannot be taken back any more: a broker has registered on it."""
    begun = _Begun.newest(folder.log, _BACKUP)
    if begun is not None and begun.state != State.UNDOING:
        _refuse_used(folder, begun)


def uninstall(folder: MetadataFolder, *, files: Files | None = None) -> str:
    """Put every file back as it was before the newest installation, or finish doing so; a sentence.

    Raises UserError where none is there, RefusedError where a broker has registered since, and FatalError for a backup
    that is not whole: then nothing was changed.
    """
    files = files or Files()
    with stopped_node(folder), changing(folder.log):
        cleaned = remove_remains(folder.log, _BACKUP, files)
        begun = _Begun.newest(folder.log, _BACKUP)
        if begun is None and cleaned:
            return f"{folder.log} is as it was before the installation."
        if begun is None:
            raise UserError(f"No installation in {folder.log} is there to be taken back.", remedy="Nothing to do.")
        if begun.state == State.INSTALLING and not _is_in_place(folder, begun):
            # Nothing of the log was changed, and a node that was started since may have written to it.
            _put_back(folder, begun, [BOOTSTRAP] if BOOTSTRAP in begun.sha256 else [], files)
        else:
            if begun.state != State.UNDOING:
                _refuse_used(folder, begun)
                begun.check(begun.sha256)
                begun = begun.recorded(State.UNDOING, files)
            _put_back(folder, begun, begun.sha256, files)
            for path in _files_of(folder):
                if path.name not in begun.sha256 and _is_replaced(path.name):
                    files.remove(path)
            files.sync(folder.log)
        files.sync(folder.root)
        files.remove_folder(begun.folder)
    return f"{folder.log} is as it was before {begun.snapshot} was installed."


def _prepare(folder: MetadataFolder, name: str, snapshot_sha256: str, files: Files) -> _Begun:
    backup = folder.log / f"{_BACKUP}{Path(name).stem}"
    sources = [*_files_of(folder), *([folder.bootstrap] if folder.bootstrap else [])]
    sha256 = back_up(sources, backup, files)
    details = {"snapshot": name, "snapshot_sha256": snapshot_sha256}
    begun = _Begun(folder=backup, state=State.INSTALLING, sha256=sha256, details=details)
    return begun.recorded(State.INSTALLING, files)


def _carry_out(folder: MetadataFolder, begun: _Begun, snapshot: Path, bootstrap: Path | None, files: Files) -> None:
    place = folder.root / BOOTSTRAP
    if bootstrap is not None and BOOTSTRAP in begun.sha256 and sha256_of(place) == begun.sha256[BOOTSTRAP]:
        files.copy(bootstrap, place, like=place)
        files.sync(folder.root)
    if not _is_in_place(folder, begun):
        files.copy(snapshot, folder.log / begun.snapshot, like=begun.folder / next(iter(begun.sha256)))
        files.sync(folder.log)
    for name, sha256 in begun.sha256.items():
        path = folder.log / name
        # What is not as it was copied is a started node's own.
        if _is_replaced(name) and path.exists() and sha256_of(path) == sha256:
            files.remove(path)
    files.sync(folder.log)
    begun.recorded(State.INSTALLED, files)


def _put_back(folder: MetadataFolder, begun: _Begun, names: Iterable[str], files: Files) -> None:
    for name in names:
        place = folder.root / name if name == BOOTSTRAP else folder.log / name
        if not place.exists() or sha256_of(place) != begun.sha256[name]:
            files.copy(begun.folder / name, place)
    files.sync(folder.log)


def _is_in_place(folder: MetadataFolder, begun: _Begun) -> bool:
    """The snapshot, or of a node that was started since, a later one."""
    return any(one.epoch >= begun.epoch for one in folder.checkpoints)


def _refuse_moved_on(folder: MetadataFolder, begun: _Begun) -> None:
    """The log must still be the one that was backed up: what a started node wrote since is not in the snapshot."""
    there = {path.name: sha256_of(path) for path in _files_of(folder) if _is_replaced(path.name)}
    if there != {name: sha256 for name, sha256 in begun.sha256.items() if _is_replaced(name)}:
        raise RefusedError(
            f"The node of {folder.log} was started since the installation of {begun.snapshot} began, and its log has "
            "changed.",
            remedy="Take it back on every node (kafka-rollout metadata uninstall), then begin anew.",
        )


def _refuse_behind(folder: MetadataFolder, epoch: int, name: str) -> None:
    """A node writes an epoch down (quorum-state) before anything of it is in its log: one that was started since the
    log was chosen knows a later epoch than was known then.
    """
    known = max([int(quorum_state(folder).get("leaderEpoch", 0)), *(one.epoch for one in folder.checkpoints)])
    if epoch < known + EPOCHS_ABOVE:
        raise RefusedError(
            f"The node of {folder.log} knows epoch {known}, and {name} is not {EPOCHS_ABOVE} above it: the node was "
            "started since the log was chosen, or the snapshot was not written for this.",
            remedy="Choose the log of all stopped nodes anew (metadata choose), and write the snapshot with its epoch.",
        )


def _refuse_used(folder: MetadataFolder, begun: _Begun) -> None:
    if not _is_in_place(folder, begun):
        return
    if not any(one.name == begun.snapshot for one in folder.checkpoints) or (
        folder.segments and int(folder.segments[0].stem) > begun.end_offset
    ):
        raise _too_late(folder, begun, "the log has moved on to a later snapshot")
    for batch in read_log(folder, begun.end_offset):
        # Old batches may lie behind the snapshot's end, of a log that was ahead of the chosen one.
        if batch.epoch >= begun.epoch and not batch.is_control:
            for record in batch.records:
                if record.type == RecordType.REGISTER_BROKER:
                    raise _too_late(folder, begun, f"a broker registered at offset {record.offset}")


def _too_late(folder: MetadataFolder, begun: _Begun, why: str) -> RefusedError:
    return RefusedError(
        f"The installation of {begun.snapshot} in {folder.log} cannot be taken back any more: {why}.",
        remedy=f"Go forward: upgrade again. What was there before is in {begun.folder}.",
    )


def _files_of(folder: MetadataFolder) -> list[Path]:
    """The log's files, quorum-state first, in the order of their names."""
    found = sorted(path for path in folder.log.iterdir() if path.is_file())
    return sorted(found, key=lambda path: path.name != QUORUM_STATE)


def _is_replaced(name: str) -> bool:
    """What makes up the log, with what Kafka has marked for deletion or not finished."""
    return name == LEADER_EPOCHS or _OF_THE_LOG.fullmatch(name) is not None
