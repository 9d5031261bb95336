"""Trim the metadata log of a stopped node, with a backup, and undo it.

The log is unchanged until the backup has its manifest. From then on a repeated call finishes an interrupted trim, and
`undo_trim` restores the log.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.base.internal_topics import METADATA_LOG
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.base.system.files import read_regular, sha256_of
from kafka_rollout.formats.checkpoint_files import LEADER_EPOCHS, parse_epochs, write_epochs
from kafka_rollout.formats.log_files import SWAP, base_offset
from kafka_rollout.metadata_log.changes.places import HERE, Backup, DiskChanges, back_up, changing, remove_remains
from kafka_rollout.metadata_log.classes.scanner import scan_metadata_log
from kafka_rollout.metadata_log.disk.folder import (
    MetadataFolder,
    log_range,
    open_folder,
    read_checkpoint,
    read_file,
)
from kafka_rollout.metadata_log.trim import (
    TrimPlan,
    TrimResult,
    cut_epochs,
    joined_epochs,
    plan_trim,
)
from kafka_rollout.model.host_state import BOOTSTRAP
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache

_BACKUP = "kafka-rollout-trim-"
_INDEXES = (".index", ".timeindex", ".txnindex")


class TrimState(StrEnum):
    TRIMMING = "trimming"
    TRIMMED = "trimmed"
    UNDOING = "undoing"


def plan_of(folder: MetadataFolder) -> TrimPlan | None:
    """Plan a trim before the newest snapshot; None if the log already begins there. Read-only."""
    checkpoints = folder.checkpoints
    if not checkpoints or checkpoints[-1].end_offset == 0:
        raise UserError(
            f"{folder.log} has no snapshot, so it cannot be trimmed.",
            remedy="Start the node until it writes one (metadata.log.max.snapshot.interval.ms).",
        )
    newest = checkpoints[-1]
    for _ in read_checkpoint(newest.path):
        pass  # raises for an incomplete file and for a damaged batch
    if not folder.segments:
        return None
    if unfinished := [path.name for path in folder.segments if path.name.endswith(SWAP)]:
        raise UserError(
            f"{folder.log} has an interrupted swap: {', '.join(unfinished)}.",
            remedy="Start the node once on the release that wrote the log: it finishes the swap. Then stop it again.",
        )
    start, end = log_range(folder)
    if not start <= newest.end_offset <= end:
        raise UserError(
            f"The snapshot {newest.name} ends outside of the log, which has offsets {start} to {end - 1}.",
            remedy="The log is incomplete. Start the node on the newer release until it has caught up.",
        )
    source = max(path for path in folder.segments if base_offset(path.name) <= newest.end_offset)
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
    files: DiskChanges = HERE,
    release: Release | None = None,
    cache: ReleaseCache | None = None,
) -> TrimResult:
    """Trim the log before the newest snapshot, or finish an interrupted trim.

    With a release, the remaining log is scanned first; raises RefusedError if the release could not read it. Raises
    UserError for a running node.
    """
    with files.stopped(folder), changing(folder.log):
        remove_remains(folder.log, _BACKUP, files)
        backup = Backup.newest(folder.log, _BACKUP)
        if backup is not None and backup.state == TrimState.UNDOING:
            raise UserError(
                f"The undo of the trim in {backup.folder} is not finished.",
                remedy=f"Run `kafka-rollout metadata trim --undo --log-dir {folder.root}`.",
            )
        if backup is None or backup.state == TrimState.TRIMMED or not _still_fits(folder, backup):
            plan = plan_of(folder)
            if plan is None:
                return TrimResult(sentence="No change needed: the log already begins at its newest snapshot.")
            if release is not None and cache is not None:
                _prove(folder, plan, release, cache)
            backup = _prepare(folder, plan, files)
        _carry_out(folder, backup, files)
    plan = _plan_in(backup)
    return TrimResult(
        plan=plan,
        backup=backup.folder,
        sentence=f"The log begins at offset {plan.start_offset} now, not at {plan.old_start_offset}. The snapshot "
        f"{plan.snapshot} contains the state before it. The backup is {backup.folder}.",
    )


def undo_trim(folder: MetadataFolder, *, files: DiskChanges = HERE) -> TrimResult:
    """Restore what the newest trim removed, or finish a restore.

    Raises UserError if the node has written to the cut segment since: then the newer release reads the log as it is,
    and nothing must be restored. Raises FatalError, and restores nothing, if a file of the backup was changed.
    """
    with files.stopped(folder), changing(folder.log):
        cleaned = remove_remains(folder.log, _BACKUP, files)
        backup = Backup.newest(folder.log, _BACKUP)
        if backup is None and cleaned:
            return TrimResult(sentence="The log is as it was before the trim.")
        if backup is None:
            raise UserError(f"{folder.log} has no trim to undo.", remedy="No action is needed.")
        plan = _plan_in(backup)
        segment = folder.log / plan.segment
        kept = f"The old segments are in {backup.folder}."
        if backup.state != TrimState.UNDOING:
            if plan.source and segment.exists() and sha256_of(segment) != backup.sha256[plan.segment]:
                raise UserError(
                    f"The node has written to {segment} since the trim.",
                    remedy=f"No action is needed: every release can read the log. {kept}",
                )
            if backup.state == TrimState.TRIMMED and not segment.exists():
                raise UserError(
                    f"Kafka has removed the segment at offset {plan.start_offset}, where the trim began the log.",
                    remedy=f"No action is needed: every release can read the log. {kept}",
                )
        backup.check(name for name in (*plan.removed, LEADER_EPOCHS) if name in backup.sha256)
        if backup.state != TrimState.UNDOING:
            backup = backup.record(TrimState.UNDOING, files)
        missing = (name for name in reversed(plan.removed) if not (folder.log / name).exists())
        files.copy_all((backup.folder / name, folder.log / name) for name in missing)
        epochs = folder.log / LEADER_EPOCHS
        if epochs.exists():
            old, now = (
                parse_epochs(read_regular(path).decode(), path) for path in (backup.folder / LEADER_EPOCHS, epochs)
            )
            files.write(epochs, write_epochs(joined_epochs(old, now)), like=epochs)
        files.sync(folder.log)
        if plan.source:
            cut = (plan.segment, *(plan.segment.replace(".log", suffix) for suffix in _INDEXES))
            files.remove_all(folder.log / name for name in cut)
        files.sync(folder.log)
        files.remove_folder(backup.folder)
    sentence = f"The log begins at offset {plan.old_start_offset} again, as before the trim."
    return TrimResult(plan=plan, sentence=sentence)


def _plan_in(backup: Backup) -> TrimPlan:
    return from_json(TrimPlan, backup.details["plan"])


def _still_fits(folder: MetadataFolder, backup: Backup) -> bool:
    """Whether an interrupted trim can continue: the cut segment exists, or its source still equals the copy.

    Otherwise a node was started in between and has written to the source, and the trim needs a new backup.
    """
    plan = _plan_in(backup)
    if plan.source is None or (folder.log / plan.segment).exists():
        return True
    source = folder.log / plan.source
    return source.exists() and sha256_of(source) == backup.sha256[plan.source]


def _prepare(folder: MetadataFolder, plan: TrimPlan, files: DiskChanges) -> Backup:
    place = folder.log / f"{_BACKUP}{plan.start_offset:020}"
    names = [*plan.removed, *([LEADER_EPOCHS] if (folder.log / LEADER_EPOCHS).exists() else [])]
    sha256 = back_up([folder.log / name for name in names], place, files)
    if plan.source:
        sha256[plan.segment] = sha256_of(folder.log / plan.source, plan.position)
    if LEADER_EPOCHS not in names:
        files.write(place / LEADER_EPOCHS, write_epochs(()), like=folder.segments[-1])
    backup = Backup(folder=place, state=TrimState.TRIMMING, sha256=sha256, details={"plan": to_json(plan)})
    return backup.record(TrimState.TRIMMING, files)


def _carry_out(folder: MetadataFolder, backup: Backup, files: DiskChanges) -> None:
    plan = _plan_in(backup)
    segment = folder.log / plan.segment
    if plan.source and not segment.exists():
        files.copy(backup.folder / plan.source, segment, position=plan.position)
        files.sync(folder.log)
    files.remove_all(folder.log / name for name in plan.removed)
    epochs = folder.log / LEADER_EPOCHS
    if epochs.exists():
        cut = cut_epochs(parse_epochs(read_regular(epochs).decode(), epochs), plan.start_offset)
        files.write(epochs, write_epochs(cut), like=epochs)
    files.sync(folder.log)
    backup.record(TrimState.TRIMMED, files)


def _prove(folder: MetadataFolder, plan: TrimPlan, release: Release, cache: ReleaseCache) -> None:
    with _preview(folder, plan) as left:
        first = scan_metadata_log(left, release, cache=cache).first_failure
    if first is not None:
        raise RefusedError(
            f"After a trim below {plan.snapshot}, {release} would still fail: {first.reason.rstrip('.')} "
            f"(offset {first.offset} of {first.file}).",
            remedy="Nothing was changed. Run `kafka-rollout metadata scan` for the remedies.",
        )


@contextmanager
def _preview(folder: MetadataFolder, plan: TrimPlan) -> Iterator[MetadataFolder]:
    """The log after the trim: links to the remaining files, and the cut segment."""
    with tempfile.TemporaryDirectory(prefix="kafka-rollout-") as name:
        log = Path(name) / METADATA_LOG
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
