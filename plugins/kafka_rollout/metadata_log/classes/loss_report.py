"""The loss report of a metadata log on disk, by Kafka's own image classes. Writes only copies."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.kafka.formats.messages import decode
from kafka_rollout.metadata_log.classes.images import ImageClasses, ReplayError, image_classes
from kafka_rollout.metadata_log.classes.known_releases import metadata_schemas
from kafka_rollout.metadata_log.classes.replay import LogContents, read_contents, read_tail, write_plain
from kafka_rollout.metadata_log.disk.folder import (
    MetadataFolder,
    MetadataRecord,
    damaged,
    read_checkpoint,
    read_log,
)
from kafka_rollout.metadata_log.losses import REGISTRATION_FLOOR, ImageRecord, LossReport, compare
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import METADATA_VERSION, Release, VersionRange
from kafka_rollout.releases.jars.cache import ReleaseCache


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """A metadata log as an image of a release's classes (a Java object in `classes`).

    `level`: its metadata.version; `levels`: level → name; `supported`: the levels that the release supports.
    """

    classes: ImageClasses
    contents: LogContents
    image: Any
    level: int
    levels: dict[int, str]
    supported: VersionRange


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
            remedy="Use the release that wrote it, or a newer one.",
        ) from error


def check_level(loaded: LoadedLog, level: int) -> None:
    """Raises UserError for a metadata.version that the release does not support."""
    if level not in loaded.supported:
        low, high = loaded.supported.min, loaded.supported.max
        raise UserError(
            f"Kafka {loaded.classes.release} does not support metadata.version {level}.",
            remedy=f"Its levels are {low} ({loaded.levels[low]}) to {high} ({loaded.levels[high]}).",
        )


def loss_report(folder: MetadataFolder, to_level: int, *, cache: ReleaseCache, release: Release) -> LossReport:
    """Losses of the cluster's metadata at `to_level`, by the classes of `release`. Read-only."""
    with tempfile.TemporaryDirectory(prefix="kafka-rollout-") as name:
        work = Path(name)
        with load_log(folder, cache, release, work) as loaded:
            check_level(loaded, to_level)
            before, lower, after = (work / f"{name}.checkpoint" for name in ("before", "lower", "after"))
            loaded.classes.write_records(loaded.image, before, level=loaded.level)
            kafka_losses = loaded.classes.write_records(loaded.image, lower, level=to_level)
            # Written again at the old level, the image lacks what the lower level cannot store.
            loaded.classes.write_records(replay_checkpoint(loaded.classes, lower, work), after, level=loaded.level)
            notes = _notes(loaded, to_level, cache)
            images = (StoredRecords.read(path, release).decoded(cache) for path in (before, after))
            losses, default_only = compare(*images)
    return LossReport(
        from_level=loaded.level,
        to_level=to_level,
        from_name=loaded.levels[loaded.level],
        to_name=loaded.levels[to_level],
        release=str(release),
        below_floor=floor_note(loaded, to_level) is not None,
        losses=losses,
        default_only=default_only,
        kafka_said=tuple(dict.fromkeys(kafka_losses)),
        notes=notes,
    )


def _notes(loaded: LoadedLog, to_level: int, cache: ReleaseCache) -> tuple[str, ...]:
    notes = []
    if to_level > loaded.level:
        notes.append(f"The log is at level {loaded.level}: {to_level} is not a downgrade.")
    if note := floor_note(loaded, to_level):
        notes.append(note)
    notes += feature_needs(loaded, to_level, cache)
    if (begun := loaded.contents.open_transaction) is not None:
        notes.append(
            f"A metadata transaction begins at offset {begun} and does not end. Its records are ignored, because "
            "the next controller aborts it."
        )
    return tuple(notes)


def floor_note(loaded: LoadedLog, to_level: int) -> str | None:
    """Return a sentence about KIP-1155's floor, if the level is below it."""
    floor = next((level for level, known in loaded.levels.items() if known == REGISTRATION_FLOOR), 0)
    if to_level >= floor:
        return None
    return (
        f"Level {to_level} ({loaded.levels[to_level]}) is below the floor {floor} ({REGISTRATION_FLOOR}). At "
        "this level controllers cannot register (KIP-919), so their supported features are unknown. A downgrade to it "
        "is not supported (KIP-1155), online or offline."
    )


def feature_needs(loaded: LoadedLog, to_level: int, cache: ReleaseCache) -> list[str]:
    """Return a sentence for each feature whose finalized level needs a higher level of another feature."""
    features = load_catalogue(*cache.catalogue_folders).get(loaded.classes.release).features
    finalized = {**dict(loaded.image.features().finalizedVersions()), METADATA_VERSION: to_level}
    return [
        f"{name} {level} needs {other} {needs}, so it must be lowered first."
        for name, level in sorted(finalized.items())
        if name in features
        for other, needs in features[name].dependencies.get(level, {}).items()
        if finalized.get(other, 0) < needs
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecords:
    """The records of a snapshot as they are stored, without control records. `release`: wrote it."""

    path: Path
    release: Release
    records: list[MetadataRecord]

    @classmethod
    def read(cls, path: Path, release: Release) -> StoredRecords:
        records = [record for batch in read_checkpoint(path) if not batch.is_control for record in batch.records]
        return cls(path=path, release=release, records=records)

    def but(self, other: StoredRecords) -> StoredRecords:
        """The records that the other snapshot does not have. Equal bytes are equal metadata."""
        known = {record.value for record in other.records}
        return replace(self, records=[record for record in self.records if record.value not in known])

    def decoded(self, cache: ReleaseCache) -> list[ImageRecord]:
        """Decode the records by the definitions of the release."""
        schemas = metadata_schemas(self.release, *cache.catalogue_folders)
        found = []
        for record in self.records:
            schema = schemas.get(record.type)
            if schema is None or record.version not in schema.valid_versions:
                raise damaged(self.path, f"it has a record of type {record.type}, version {record.version}")
            layout = schema.layout(record.version)
            found.append(ImageRecord(schema.name, decode(layout, record.value, record.body_at).value))
        return found
