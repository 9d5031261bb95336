"""Trim the metadata log of a stopped node, with a backup and the way back.

The backup is a folder inside the log's own folder, which Kafka does not look into (beside it a folder whose name is no
partition's would stop a broker): copies of every file that goes or changes, and `trim.json`, which appears when all of
them are there and on disk. Until then nothing of the log has changed; from then on the same call finishes what was
begun, and `undo_trim` takes it back.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from kafka_rollout.adapters.metadata_log import (
    BOOTSTRAP,
    TOPIC_FOLDER,
    MetadataFolder,
    log_range,
    open_folder,
    read_checkpoint,
    read_file,
    stopped_node,
)
from kafka_rollout.adapters.metadata_scanner import scan_metadata_log
from kafka_rollout.adapters.release_cache import ReleaseCache
from kafka_rollout.domain.errors import FatalError, RefusedError, UserError
from kafka_rollout.domain.metadata_trim import (
    LEADER_EPOCHS,
    TrimPlan,
    TrimResult,
    cut_epochs,
    joined_epochs,
    parse_epochs,
    plan_trim,
    write_epochs,
)
from kafka_rollout.domain.releases import Release

_BACKUP = "kafka-rollout-trim-"
_MANIFEST = "trim.json"
_DRAFT = ".kafka-rollout"
_INDEXES = (".index", ".timeindex", ".txnindex")


class State(StrEnum):
    TRIMMING = "trimming"
    TRIMMED = "trimmed"
    UNDOING = "undoing"


class Files:
    """Every change of the disk that a trim makes; tests put one in its place that dies on the way."""

    def copy(self, source: Path, target: Path, *, position: int = 0) -> None:
        """Whole or not at all, on disk, with the owner and rights of the source."""
        draft = target.with_name(target.name + _DRAFT)
        with source.open("rb") as read, draft.open("wb") as write:
            read.seek(position)
            shutil.copyfileobj(read, write, 1 << 20)
            write.flush()
            os.fsync(write.fileno())
        self._like(source, draft)
        draft.rename(target)

    def write(self, target: Path, text: str, *, like: Path) -> None:
        draft = target.with_name(target.name + _DRAFT)
        with draft.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self._like(like, draft)
        draft.rename(target)

    def make_folder(self, path: Path) -> None:
        path.mkdir()
        self._like(path.parent, path)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Its manifest first: a backup without one counts for nothing."""
        (path / _MANIFEST).unlink(missing_ok=True)
        self.sync(path)
        shutil.rmtree(path)

    def sync(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _like(self, source: Path, target: Path) -> None:
        shutil.copystat(source, target)
        of = source.stat()
        if (target.stat().st_uid, target.stat().st_gid) != (of.st_uid, of.st_gid):
            os.chown(target, of.st_uid, of.st_gid)


def plan_of(folder: MetadataFolder) -> TrimPlan | None:
    """What a trim below the newest snapshot would do; None where the log begins there already. Only reads."""
    checkpoints = folder.checkpoints
    if not checkpoints or checkpoints[-1].end_offset == 0:
        raise UserError(
            f"{folder.log} holds no snapshot to cut below.",
            remedy="Let a running node write one (metadata.log.max.snapshot.interval.ms).",
        )
    newest = checkpoints[-1]
    for _ in read_checkpoint(newest.path):
        pass  # complete, and every batch right
    if not folder.segments:
        return None
    start, end = log_range(folder)
    if not start <= newest.end_offset <= end:
        raise UserError(
            f"The snapshot {newest.name} ends outside of the log, which holds offsets {start} to {end - 1}.",
            remedy="This node's log is not whole: let it start on the newer release and catch up.",
        )
    source = max(path for path in folder.segments if int(path.stem) <= newest.end_offset)
    cut = (source.name, source.stat().st_size, end)
    if newest.end_offset < end:
        batches = read_file(source, last=source == folder.segments[-1])
        batch = next(batch for batch in batches if batch.last_offset >= newest.end_offset)
        cut = (source.name, batch.position, batch.base_offset)
    names = [path.name for path in folder.log.iterdir() if path.is_file()]
    return plan_trim(names, newest.name, cut=cut, end_offset=end)


def trim(
    folder: MetadataFolder,
    *,
    files: Files | None = None,
    release: Release | None = None,
    cache: ReleaseCache | None = None,
) -> TrimResult:
    """Trim the log below the newest snapshot, or finish a trim that was cut short.

    With a release, what will be left is scanned first, and RefusedError raised where that would not help. Raises
    UserError for a running node.
    """
    files = files or Files()
    with stopped_node(folder), _changing(folder):
        _clean(folder, files)
        begun = _begun(folder)
        if begun is not None and begun.state is State.UNDOING:
            raise UserError(
                f"The trim in {begun.folder} is being taken back.", remedy="Finish that first: metadata trim --undo."
            )
        if begun is None or begun.state is State.TRIMMED or not _still_fits(folder, begun):
            plan = plan_of(folder)
            if plan is None:
                return TrimResult(plan=None, backup=None, sentence="The log begins at its newest snapshot already.")
            if release is not None and cache is not None:
                _prove(folder, plan, release, cache)
            begun = _prepare(folder, plan, files)
        _carry_out(folder, begun, files)
    plan = begun.plan
    return TrimResult(
        plan=plan,
        backup=begun.folder,
        sentence=f"The log begins at offset {plan.start_offset} now, not at {plan.old_start_offset}; the snapshot "
        f"{plan.snapshot} holds what lies before. The backup is {begun.folder}.",
    )


def undo_trim(folder: MetadataFolder, *, files: Files | None = None) -> TrimResult:
    """Put back what the newest trim removed, or finish doing so; raises UserError where the node has written to the
    cut segment since: then the newer release reads the log as it is, and nothing has to be put back.
    """
    files = files or Files()
    with stopped_node(folder), _changing(folder):
        cleaned = _clean(folder, files)
        begun = _begun(folder)
        if begun is None and cleaned:
            return TrimResult(plan=None, backup=None, sentence="The log is as it was before the trim.")
        if begun is None:
            raise UserError(f"No trim of {folder.log} is there to be taken back.", remedy="Nothing has to be done.")
        plan = begun.plan
        segment = folder.log / plan.segment
        if begun.state is not State.UNDOING:
            if plan.source and segment.exists() and _sha256(segment) != begun.sha256[plan.segment]:
                raise UserError(
                    f"The node has written to {segment} since the trim.",
                    remedy=f"Leave it: every release reads the log as it is. The old segments are in {begun.folder}.",
                )
            if begun.state is State.TRIMMED and not segment.exists():
                raise UserError(
                    f"The log has moved on since the trim at offset {plan.start_offset}: its segment is gone.",
                    remedy=f"Leave it: every release reads the log as it is. The old segments are in {begun.folder}.",
                )
            begun = _record(begun, State.UNDOING, files)
        for name in reversed(plan.removed):
            if not (folder.log / name).exists():
                files.copy(begun.folder / name, folder.log / name)
        epochs = folder.log / LEADER_EPOCHS
        if epochs.exists():
            old, now = (parse_epochs(path.read_text()) for path in (begun.folder / LEADER_EPOCHS, epochs))
            files.write(epochs, write_epochs(joined_epochs(old, now)), like=epochs)
        files.sync(folder.log)
        if plan.source:
            for name in (plan.segment, *(plan.segment.replace(".log", suffix) for suffix in _INDEXES)):
                files.remove(folder.log / name)
        files.sync(folder.log)
        files.remove_folder(begun.folder)
    return TrimResult(
        plan=plan, backup=None, sentence=f"The log begins at offset {plan.old_start_offset} again, as before the trim."
    )


# --- the backup ---


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    folder: Path
    plan: TrimPlan
    state: State
    sha256: dict[str, str]


def _begun(folder: MetadataFolder) -> _Begun | None:
    """The newest trim with a whole backup."""
    manifests = sorted(folder.log.glob(f"{_BACKUP}*/{_MANIFEST}"))
    if not manifests:
        return None
    data = json.loads(manifests[-1].read_text())
    return _Begun(
        folder=manifests[-1].parent,
        plan=TrimPlan.from_dict(data["plan"]),
        state=State(data["state"]),
        sha256=data["sha256"],
    )


def _clean(folder: MetadataFolder, files: Files) -> bool:
    """Remove what a call that was cut short left behind and that counts for nothing; whether there was any."""
    drafts = list(folder.log.glob(f"*{_DRAFT}"))
    backups = [path for path in folder.log.glob(f"{_BACKUP}*") if not (path / _MANIFEST).exists()]
    for path in drafts:
        files.remove(path)
    for path in backups:
        files.remove_folder(path)
    return bool(drafts or backups)


@contextmanager
def _changing(folder: MetadataFolder) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FatalError(
            f"{error.filename or folder.log}: {error.strerror}.",
            remedy="Put that right and call again: it goes on where it was.",
        ) from error


def _record(begun: _Begun, state: State, files: Files) -> _Begun:
    begun = _Begun(folder=begun.folder, plan=begun.plan, state=state, sha256=begun.sha256)
    data: dict[str, Any] = {"state": state, "plan": begun.plan.to_dict(), "sha256": begun.sha256}
    files.write(begun.folder / _MANIFEST, json.dumps(data, indent=1), like=begun.folder / LEADER_EPOCHS)
    files.sync(begun.folder)
    return begun


def _still_fits(folder: MetadataFolder, begun: _Begun) -> bool:
    """Whether a trim that was cut short can go on: the cut segment is in place, or its source is as it was copied.

    Else a node was started in between and has written to the source: the backup is old, and the trim begins anew.
    """
    plan = begun.plan
    if plan.source is None or (folder.log / plan.segment).exists():
        return True
    source = folder.log / plan.source
    return source.exists() and _sha256(source) == begun.sha256[plan.source]


def _prepare(folder: MetadataFolder, plan: TrimPlan, files: Files) -> _Begun:
    backup = folder.log / f"{_BACKUP}{plan.start_offset:020}"
    names = [*plan.removed, *([LEADER_EPOCHS] if (folder.log / LEADER_EPOCHS).exists() else [])]
    _check_space(folder, names)
    if backup.exists():
        files.remove_folder(backup)
    files.make_folder(backup)
    for name in names:
        files.copy(folder.log / name, backup / name)
    sha256 = {name: _sha256(backup / name) for name in names}
    for name, digest in sha256.items():
        if digest != _sha256(folder.log / name):
            raise UserError(f"The copy of {folder.log / name} is not what it was copied from.", remedy="See the disk.")
    if plan.source:
        sha256[plan.segment] = _sha256(folder.log / plan.source, plan.position)
    if LEADER_EPOCHS not in names:
        files.write(backup / LEADER_EPOCHS, write_epochs(()), like=folder.segments[-1])
    begun = _Begun(folder=backup, plan=plan, state=State.TRIMMING, sha256=sha256)
    return _record(begun, State.TRIMMING, files)


def _carry_out(folder: MetadataFolder, begun: _Begun, files: Files) -> None:
    plan = begun.plan
    segment = folder.log / plan.segment
    if plan.source and not segment.exists():
        files.copy(begun.folder / plan.source, segment, position=plan.position)
        files.sync(folder.log)
    for name in plan.removed:
        files.remove(folder.log / name)
    epochs = folder.log / LEADER_EPOCHS
    if epochs.exists():
        cut = cut_epochs(parse_epochs(epochs.read_text()), plan.start_offset)
        files.write(epochs, write_epochs(cut), like=epochs)
    files.sync(folder.log)
    _record(begun, State.TRIMMED, files)


def _check_space(folder: MetadataFolder, names: list[str]) -> None:
    needed = 2 * sum((folder.log / name).stat().st_size for name in names)
    free = shutil.disk_usage(folder.log).free
    if needed > free:
        raise RefusedError(
            f"The backup beside {folder.log} needs up to {needed >> 20} MiB, and {free >> 20} MiB are free.",
            remedy="Make room first.",
        )


def _sha256(path: Path, position: int = 0) -> str:
    with path.open("rb") as file:
        file.seek(position)
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- the proof ---


def _prove(folder: MetadataFolder, plan: TrimPlan, release: Release, cache: ReleaseCache) -> None:
    with _preview(folder, plan) as left:
        first = scan_metadata_log(left, release, cache=cache).first_failure
    if first is not None:
        raise RefusedError(
            f"After a trim below {plan.snapshot}, {release} would still fail: {first.reason.rstrip('.')} "
            f"(offset {first.offset} of {first.file}).",
            remedy="Nothing was changed. See `metadata scan` for the way out.",
        )


@contextmanager
def _preview(folder: MetadataFolder, plan: TrimPlan) -> Iterator[MetadataFolder]:
    """The log as the trim would leave it: links to what stays, and the cut segment."""
    with tempfile.TemporaryDirectory(prefix="kafka-rollout-") as name:
        log = Path(name) / TOPIC_FOLDER
        log.mkdir()
        for path in folder.log.iterdir():
            if path.is_file() and path.name not in plan.removed:
                (log / path.name).symlink_to(path)
        if plan.source:
            with (folder.log / plan.source).open("rb") as read, (log / plan.segment).open("wb") as write:
                read.seek(plan.position)
                shutil.copyfileobj(read, write)
        if folder.bootstrap:
            (Path(name) / BOOTSTRAP).symlink_to(folder.bootstrap)
        yield open_folder(Path(name))
