"""The records that a starting node replays, as plain files for the image classes of any release, and their image.

Left out are control records, NoOpRecords and, where the release supports metadata transactions (KIP-868), their
markers and the records of transactions that were aborted or never ended. MetadataDelta.replay throws on the markers,
because a running node handles them before (MetadataBatchLoader, OffsetControlManager).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.metadata_log.classes.images import ImageClasses, KRaft, ReplayError, image_classes
from kafka_rollout.metadata_log.disk.folder import (
    CONTROL_KRAFT_VERSION,
    CONTROL_VOTERS,
    Checkpoint,
    MetadataBatch,
    MetadataFolder,
    MetadataRecord,
    encode_batch,
    kraft_version_of,
    read_checkpoint,
    read_log,
    read_start,
)
from kafka_rollout.metadata_log.record_types import RecordType
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import METADATA_VERSION, Release, VersionRange
from kafka_rollout.releases.jars.cache import ReleaseCache

_NO_KRAFT = KRaft()
_MARKERS = (RecordType.BEGIN_TRANSACTION, RecordType.END_TRANSACTION, RecordType.ABORT_TRANSACTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContents:
    """Facts about a whole metadata log: its newest snapshot, if it is loaded, and the log after it."""

    snapshot: Checkpoint | None
    from_offset: int
    end_offset: int
    """Of the last batch or of the snapshot."""
    epoch: int
    """Of the last batch or of the snapshot."""
    timestamp: int = 0
    """Of the last batch or of the snapshot (epoch ms)."""
    kraft: KRaft = _NO_KRAFT
    dropped: tuple[range, ...] = ()
    """Offsets of records that are not replayed."""
    open_transaction: int | None = None
    """Offset of a BeginTransactionRecord without an end."""


def read_contents(folder: MetadataFolder, *, snapshot: Checkpoint | None) -> LogContents:
    """Read a snapshot and the log after it (None: the whole log)."""
    start = snapshot.end_offset if snapshot else 0
    epoch = snapshot.epoch if snapshot else 0
    before = LogContents(snapshot=snapshot, from_offset=start, end_offset=start, epoch=epoch)
    return _add(before, read_start(folder, snapshot))


def read_tail(folder: MetadataFolder, before: LogContents) -> LogContents | None:
    """Read what a log has after `before`; None if it does not continue it, or if a metadata transaction was open.

    Two logs with the same epoch at an offset are equal up to it (Raft's log matching property).
    """
    end = before.end_offset
    if before.open_transaction is not None or before.end_offset == before.from_offset:
        return None
    last = next(read_log(folder, end - 1, outline=True), None)
    if last is None or last.base_offset >= end or last.epoch != before.epoch:
        return None
    return _add(replace(before, from_offset=end, dropped=()), ((batch, True) for batch in read_log(folder, end)))


def _add(before: LogContents, batches: Iterable[tuple[MetadataBatch, bool]]) -> LogContents:
    """Add the facts of batches, each with whether it is from the log, from `before.from_offset` on."""
    start, end, epoch, timestamp = before.from_offset, before.end_offset, before.epoch, before.timestamp
    version, voters = before.kraft.version, before.kraft.voters
    begun: int | None = None
    dropped: list[range] = []
    for batch, is_log in batches:
        timestamp = max(timestamp, batch.timestamp)
        for record in batch.records:
            if batch.is_control:
                if record.type == CONTROL_KRAFT_VERSION:
                    version = kraft_version_of(record)
                elif record.type == CONTROL_VOTERS:
                    voters = record.value
            elif is_log and record.offset >= start:
                if record.type == RecordType.BEGIN_TRANSACTION:
                    begun = record.offset
                elif record.type == RecordType.ABORT_TRANSACTION and begun is not None:
                    dropped.append(range(begun, record.offset))
                    begun = None
                elif record.type == RecordType.END_TRANSACTION:
                    begun = None
        if is_log:
            end, epoch = batch.last_offset + 1, batch.epoch
    if begun is not None:
        dropped.append(range(begun, end))
    return replace(
        before,
        end_offset=end,
        epoch=epoch,
        timestamp=timestamp,
        kraft=KRaft(version, voters),
        dropped=tuple(dropped),
        open_transaction=begun,
    )


def write_plain(
    batches: Iterable[MetadataBatch], path: Path, *, from_offset: int = 0, dropped: Iterable[range] = (), markers: bool
) -> list[int]:
    """Write the records to replay from `from_offset` on; return their offsets. `markers`: keep transaction markers."""
    ranges = list(dropped)
    offsets: list[int] = []

    def is_replayed(record: MetadataRecord) -> bool:
        return (
            record.offset >= from_offset
            and (record.type, record.version) != (RecordType.NO_OP, 0)
            and (markers or record.type not in _MARKERS)
            and not any(record.offset in one for one in ranges)
        )

    with path.open("wb") as file:
        for batch in batches:
            if batch.is_control:
                continue
            kept = [record for record in batch.records if is_replayed(record)]
            if kept:
                file.write(batch.data if len(kept) == len(batch.records) else encode_batch(batch, kept))
                offsets += [record.offset for record in kept]
    return offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """A metadata log as an image of a release's classes (a Java object in `classes`)."""

    classes: ImageClasses
    contents: LogContents
    image: Any
    level: int
    """Its metadata.version."""
    levels: dict[int, str]
    """Level → name."""
    supported: VersionRange
    """The levels that the release supports."""


def replay_checkpoint(classes: ImageClasses, checkpoint: Path, work: Path) -> Any:
    plain = work / "read.plain"
    offsets = write_plain(read_checkpoint(checkpoint), plain, markers=False)
    return classes.replay(classes.empty(), plain, offsets=offsets)


@contextmanager
def load_log(folder: MetadataFolder, cache: ReleaseCache, release: Release, work: Path) -> Iterator[LoadedLog]:
    """Replay a log in a new Java process on the release's classes; see replay_log."""
    with image_classes(cache, release) as classes:
        yield replay_log(folder, classes, cache, work)


def replay_log(folder: MetadataFolder, classes: ImageClasses, cache: ReleaseCache, work: Path) -> LoadedLog:
    """Replay the newest snapshot and the log after it; `work` is a folder for copies.

    Raises UserError for a log without a metadata.version, RefusedError where the release cannot replay it.
    """
    checkpoints = folder.checkpoints
    contents = read_contents(folder, snapshot=checkpoints[-1] if checkpoints else None)
    snapshot = contents.snapshot
    with _replaying(folder, classes.release):
        image = replay_checkpoint(classes, snapshot.path, work) if snapshot else classes.empty()
        image = _replay_records(folder, contents, classes, image, work)
    level = classes.level_of(image)
    if level is None:
        raise UserError(
            f"The metadata log {folder.log} sets no metadata.version: no controller has written to it yet.",
            remedy="Use the log of a node that was in service.",
        )
    return LoadedLog(
        classes=classes,
        contents=contents,
        image=image,
        level=level,
        levels=classes.levels(),
        supported=load_catalogue(*cache.catalogue_folders).get(classes.release).features[METADATA_VERSION].supported,
    )


def load_tail(folder: MetadataFolder, before: LoadedLog, work: Path) -> LoadedLog | None:
    """Replay only the records that a log has after a loaded one; None if it does not continue the loaded one.

    Raises RefusedError where the release cannot replay a record.
    """
    contents = read_tail(folder, before.contents)
    if contents is None:
        return None
    with _replaying(folder, before.classes.release):
        image = _replay_records(folder, contents, before.classes, before.image, work)
    return replace(before, contents=contents, image=image, level=before.classes.level_of(image) or before.level)


def _replay_records(
    folder: MetadataFolder, contents: LogContents, classes: ImageClasses, image: Any, work: Path
) -> Any:
    plain, since = work / "log.plain", contents.from_offset
    offsets = write_plain(read_log(folder, since), plain, from_offset=since, dropped=contents.dropped, markers=False)
    return classes.replay(image, plain, offsets=offsets) if offsets else image


@contextmanager
def _replaying(folder: MetadataFolder, release: Release) -> Iterator[None]:
    try:
        yield
    except ReplayError as error:
        raise RefusedError(
            f"Kafka {release} cannot replay the metadata log {folder.log}: at offset {error.offset}, "
            f"{error.why.rstrip('.')}.",
            remedy="Use the release that wrote it, or a newer one. If that release cannot replay it either, the log is "
            "damaged: use the log of another node.",
        ) from error
