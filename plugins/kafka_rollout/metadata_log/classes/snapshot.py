"""The loss report of a metadata log, and a snapshot of it at a chosen metadata.version, by Kafka's own image classes.

Each snapshot is verified: the classes that wrote it load it again and must have the image that was written. The classes
of each release that will read it load it as a starting node does. What they do not keep of it, and ACLs about which
their authorizer decides otherwise, are losses. The snapshot has the kraft.version and the
voters of the log.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_rollout.base.errors import FatalError, RefusedError, UserError
from kafka_rollout.base.system.files import reading
from kafka_rollout.formats.messages import decode
from kafka_rollout.metadata_log.classes.authorizers import decide
from kafka_rollout.metadata_log.classes.images import ImageClasses, image_classes, java_errors
from kafka_rollout.metadata_log.classes.known_releases import metadata_schemas
from kafka_rollout.metadata_log.classes.replay import LoadedLog, load_log, load_tail, replay_checkpoint, replay_log
from kafka_rollout.metadata_log.classes.scanner import ReplayCheck
from kafka_rollout.metadata_log.disk.folder import MetadataFolder, MetadataRecord, damaged, read_checkpoint
from kafka_rollout.metadata_log.log_choice import WrittenSnapshot
from kafka_rollout.metadata_log.losses import (
    ACCESS,
    REGISTRATION_FLOOR,
    ImageRecord,
    Loss,
    LossReport,
    acl_of,
    compare,
    says_something,
)
from kafka_rollout.metadata_log.record_types import RecordType
from kafka_rollout.model.acls import compare_answers, describe_access, questions_of
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import KRAFT_VERSION, METADATA_VERSION, Release, VersionRange
from kafka_rollout.releases.jars.cache import ReleaseCache

FIRST_SNAPSHOT_WRITER = Release(4, 0, 0)  # see ImageClasses.write
_FIRST_WITH_IMAGE_WRITER = Release(3, 4, 0)
_LOWER = "Lower it online (kafka-rollout features set), or with the snapshot (--feature NAME=LEVEL, 0 removes it)."


def write_snapshot(
    folder: MetadataFolder,
    to_level: int,
    out: Path,
    *,
    cache: ReleaseCache,
    release: Release,
    readers: Sequence[Release] = (),
    features: Mapping[str, int] | None = None,
    epoch: int | None = None,
    source: Release | None = None,
    settings: Mapping[str, str] | None = None,
) -> WrittenSnapshot:
    """Write `<end offset>-<epoch>.checkpoint` to `out`, whole or not at all, with mode 0600; a new folder has 0700.

    `release` writes it, each of `readers` must be able to start from it. `features`: feature → lower level, 0 removes
    it; the losses include these changes. `epoch`: by default that of the log's end. `source`, `settings`: as in
    `loss_report`. Raises UserError for an unknown
    level or an existing file, RefusedError for a level below the floor, for features that need a higher one, and if the
    verification fails.
    """
    with (
        _folder_in(out.resolve(), folder) as work,
        _prepare(
            folder,
            to_level,
            work,
            cache=cache,
            release=release,
            readers=readers,
            features=features or {},
            source=source or release,
            settings=settings or {},
        ) as new,
    ):
        return new.write_end(new.loaded, work, epoch=epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotWriter:
    """A replayed log, and the running classes that write it at a lower level."""

    loaded: LoadedLog
    to_level: int
    features: Mapping[str, int]
    """Feature → lower level."""
    proofs: tuple[ImageClasses, ...]
    """The classes of the other releases that must load the snapshot."""
    cache: ReleaseCache
    source: Release
    """The release that runs the cluster."""
    settings: Mapping[str, str]
    """Of a node, for the authorizers."""

    def write(self, folder: MetadataFolder, out: Path, *, epoch: int, end_offset: int) -> WrittenSnapshot:
        """Write the end of a stopped node's log as `<end offset>-<epoch>.checkpoint` to `out`, as write_snapshot does.

        It replays only the records after the prepared log, or all of a log that does not continue it. `end_offset`: of
        the name, not before the end of the log.
        """
        with _folder_in(out.resolve(), folder) as work, java_errors(self.loaded.classes.release):
            loaded = load_tail(folder, self.loaded, work)
            if loaded is None:
                loaded = replay_log(folder, self.loaded.classes, self.cache, work)
            return self.write_end(loaded, work, epoch=epoch, end_offset=end_offset)

    def write_end(
        self, loaded: LoadedLog, work: Path, *, epoch: int | None, end_offset: int | None = None
    ) -> WrittenSnapshot:
        """Write and verify a snapshot in `work`, then link it into the folder above."""
        cache, to_level = self.cache, self.to_level
        lowered = _lower_features(loaded, self.features, cache)
        _check(lowered, to_level, cache)
        contents, release = loaded.contents, loaded.classes.release
        epoch = _epoch(contents.epoch, epoch)
        end_offset = contents.end_offset if end_offset is None else end_offset
        if end_offset < contents.end_offset:
            raise FatalError(f"The log ends at {contents.end_offset}: a snapshot cannot end at {end_offset}.")
        final = work.parent / f"{end_offset:020}-{epoch:010}.checkpoint"
        if final.exists():
            raise _exists(final)
        written = loaded.classes.write(
            lowered.image,
            work,
            level=to_level,
            end_offset=end_offset,
            epoch=epoch,
            timestamp=contents.timestamp,
            kraft=contents.kraft,
        )
        before, again, after = (work / f"{name}.checkpoint" for name in ("before", "again", "after"))
        loaded.classes.write_records(loaded.image, before, level=loaded.level)
        image = replay_checkpoint(loaded.classes, written, work)
        loaded.classes.write_records(image, again, level=to_level)
        loaded.classes.write_records(image, after, level=loaded.level)
        source = StoredRecords.read(written, release)
        _refuse_difference(source, StoredRecords.read(again, release), cache)
        losses = list(_losses(StoredRecords.read(before, release), StoredRecords.read(after, release), cache))
        running = next((proof for proof in self.proofs if proof.release == self.source), loaded.classes)
        for proof in self.proofs:
            losses += _unkept(source, to_level, contents.kraft.version, proof, cache, work)
            losses += _access_losses(source, running, proof, cache, self.settings)
        written.chmod(0o600)
        try:
            os.link(written, final)
        except FileExistsError:
            raise _exists(final) from None
        return WrittenSnapshot(
            path=final,
            from_level=loaded.level,
            to_level=to_level,
            features=self.features,
            kraft_version=contents.kraft.version,
            records=len(source.records),
            proved_by=(release, *(proof.release for proof in self.proofs)),
            losses=tuple(losses),
        )


@contextmanager
def prepared_snapshot(
    folder: MetadataFolder,
    to_level: int,
    *,
    cache: ReleaseCache,
    release: Release,
    readers: Sequence[Release],
    features: Mapping[str, int],
    source: Release | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SnapshotWriter]:
    """Prepare a snapshot of a log, which can be a copy of a running node's: replay, write, load with the readers.

    Keeps nothing of it but the replayed image. Raises as write_snapshot does.
    """
    with tempfile.TemporaryDirectory(prefix="kafka-rollout-") as name:
        draft = Path(name) / "draft"
        draft.mkdir()
        with _prepare(
            folder,
            to_level,
            draft.parent,
            cache=cache,
            release=release,
            readers=readers,
            features=features,
            source=source or release,
            settings=settings or {},
        ) as prepared:
            prepared.write_end(prepared.loaded, draft, epoch=None)
            yield prepared


@contextmanager
def _prepare(
    folder: MetadataFolder,
    to_level: int,
    work: Path,
    *,
    cache: ReleaseCache,
    release: Release,
    readers: Sequence[Release],
    features: Mapping[str, int],
    source: Release,
    settings: Mapping[str, str],
) -> Iterator[SnapshotWriter]:
    """Replay the log and start the classes of each reader. Raises UserError for an unknown one.

    The writer always loads what it wrote.
    """
    with load_log(folder, cache, release, work) as loaded, ExitStack() as opened:
        others = [reader for reader in dict.fromkeys(readers) if reader != release]
        for reader in others:
            load_catalogue(*cache.catalogue_folders).get(reader)
        proofs = tuple(opened.enter_context(image_classes(cache, reader)) for reader in others)
        yield SnapshotWriter(
            loaded=loaded,
            to_level=to_level,
            features=features,
            proofs=proofs,
            cache=cache,
            source=source,
            settings=settings,
        )


@contextmanager
def _folder_in(out: Path, folder: MetadataFolder) -> Iterator[Path]:
    """A temporary folder in `out`, so that a finished file can be linked there."""
    if out.is_relative_to(folder.root):
        raise UserError(f"{out} is in the directory that is read.", remedy="Use a folder outside of it.")
    with reading(out):
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(prefix=".kafka-rollout-", dir=out) as name:
            yield Path(name)


def _exists(final: Path) -> UserError:
    return UserError(f"{final} already exists.", remedy="Nothing is overwritten. Use another folder.")


def _check(loaded: LoadedLog, to_level: int, cache: ReleaseCache) -> None:
    _check_level(loaded, to_level)
    if to_level > loaded.level:
        raise UserError(
            f"The log is at metadata.version {loaded.level}: a snapshot at {to_level} would be an upgrade.",
            remedy=f"Choose {loaded.level} or lower.",
        )
    if to_level < loaded.level and (note := _floor_note(loaded, to_level)):
        raise RefusedError(note, remedy="Choose the level of the floor or a higher one.")
    if needs := _feature_needs(loaded, to_level, cache):
        raise RefusedError(needs[0], remedy=_LOWER)


def _epoch(of_the_log: int, asked: int | None) -> int:
    if asked is not None and asked < of_the_log:
        raise UserError(
            f"The log ends in epoch {of_the_log}: a snapshot of epoch {asked} would be older.",
            remedy=f"Choose {of_the_log} or higher.",
        )
    return of_the_log if asked is None else asked


def _lower_features(loaded: LoadedLog, features: Mapping[str, int], cache: ReleaseCache) -> LoadedLog:
    known = load_catalogue(*cache.catalogue_folders).get(loaded.classes.release).features
    finalized = dict(loaded.image.features().finalizedVersions())
    for name, level in features.items():
        if name in (METADATA_VERSION, KRAFT_VERSION) or name not in known:
            why = "has an option of its own" if name == METADATA_VERSION else "cannot be lowered by a snapshot"
            raise UserError(
                f"{name} {why if name in known else 'is not a feature of ' + str(loaded.classes.release)}.",
                remedy=f"The features here are {', '.join(sorted(finalized))}.",
            )
        if not 0 <= level <= finalized.get(name, 0):
            raise UserError(
                f"{name} is finalized at {finalized.get(name, 0)}: a snapshot cannot bring it to {level}.",
                remedy="A snapshot only lowers levels. Choose 0 to remove the feature.",
            )
    return replace(loaded, image=loaded.classes.with_features(loaded.image, features))


def _unkept(  # noqa: PLR0917
    source: StoredRecords,
    level: int,
    kraft_version: int,
    reader: ImageClasses,
    cache: ReleaseCache,
    work: Path,
) -> tuple[Loss, ...]:
    """Return what a release does not keep of a snapshot at a level: it loads it and writes it again.

    What its next snapshot lacks, no release reads after that. Raises RefusedError if the release cannot start from it.
    """
    target = reader.release
    with java_errors(target):
        check = ReplayCheck.of(reader, cache, work)
        if kraft_version not in check.supported.get(KRAFT_VERSION, VersionRange(0, 0)):
            raise RefusedError(
                f"kraft.version is {kraft_version}, and Kafka {target} does not support dynamic quorums (KIP-853).",
                remedy="A dynamic quorum cannot become static. Choose release 3.9 or later.",
            )
        loaded = check.snapshot(source.path)
        if loaded.failure is not None:
            raise RefusedError(
                f"Kafka {target} cannot start from a snapshot at metadata.version {level}: "
                f"{loaded.failure.reason.rstrip('.')}.",
                remedy=f"Nothing was written. {_LOWER}",
            )
        if target < _FIRST_WITH_IMAGE_WRITER:
            return ()
        path = work / f"read-by-{target}.checkpoint"
        reader.write_records(loaded.image, path, level=level)
        return _differences(source, StoredRecords.read(path, target), cache)


def _access_losses(
    source: StoredRecords, running: ImageClasses, reader: ImageClasses, cache: ReleaseCache, settings: Mapping[str, str]
) -> tuple[Loss, ...]:
    """Return the decisions about the ACLs of a snapshot that the authorizer of another release makes otherwise.

    `running`: the release that runs the cluster. `settings`: of a node, for the authorizers.
    """
    if running.release == reader.release:
        return ()
    acls = tuple(acl_of(record) for record in source.of_type(RecordType.ACCESS_CONTROL_ENTRY).decoded(cache))
    if not acls:
        return ()
    questions = questions_of(acls)
    before, after = (decide(classes.jvm, acls, questions, settings) for classes in (running, reader))
    return tuple(
        Loss(ACCESS, change.principal, describe_access(change, running.release, reader.release), change.decisions)
        for change in compare_answers(acls, questions, before, after)
    )


def _losses(before: StoredRecords, after: StoredRecords, cache: ReleaseCache) -> tuple[Loss, ...]:
    """Return what the second image lacks. Only records that differ are decoded: a large cluster has many."""
    one, other = before.but(after).decoded(cache), after.but(before).decoded(cache)
    if any(record.name == "PartitionRecord" for record in one):  # the names of their topics can be in equal records
        one, other = before.decoded(cache), after.decoded(cache)
    return compare(one, other)[0]


def _differences(source: StoredRecords, other: StoredRecords, cache: ReleaseCache) -> tuple[Loss, ...]:
    """Return what the image of another release lacks or has in addition, each as a loss of the source."""
    pair = source.but(other), other.but(source)
    first, second = ([one for one in image.decoded(cache) if says_something(one)] for image in pair)
    lost, more = compare(first, second)[0], compare(second, first)[0]
    known = {(loss.kind, loss.subject) for loss in lost}
    by = f"Kafka {other.release}"
    return (
        *(replace(loss, sentence=f"{loss.sentence} {by} does not keep it.") for loss in lost),
        *(
            replace(loss, sentence=f"{by} reads the {loss.kind} of {loss.subject} otherwise.")
            for loss in more
            if (loss.kind, loss.subject) not in known
        ),
    )


def _refuse_difference(source: StoredRecords, other: StoredRecords, cache: ReleaseCache) -> None:
    """Raise RefusedError unless the release that wrote a snapshot reads the same metadata from it."""
    if differences := _differences(source, other, cache):
        raise RefusedError(
            f"The image of the snapshot in Kafka {other.release} differs from the written one: "
            f"{differences[0].sentence}",
            remedy="Nothing was written. Report this as a bug of kafka-rollout.",
        )


def _check_level(loaded: LoadedLog, level: int) -> None:
    """Raises UserError for a metadata.version that the release does not support."""
    if level not in loaded.supported:
        low, high = loaded.supported.min, loaded.supported.max
        raise UserError(
            f"Kafka {loaded.classes.release} does not support metadata.version {level}.",
            remedy=f"Its levels are {low} ({loaded.levels[low]}) to {high} ({loaded.levels[high]}).",
        )


def loss_report(
    folder: MetadataFolder,
    to_level: int | None,
    *,
    cache: ReleaseCache,
    release: Release,
    readers: Sequence[Release] = (),
    features: Mapping[str, int] | None = None,
    source: Release | None = None,
    settings: Mapping[str, str] | None = None,
) -> LossReport:
    """Losses of the cluster's metadata at `to_level` (None: its own), by the classes of `release`. Read-only.

    `readers`: releases that will run on it; what they do not keep, or mean otherwise than `source`, which runs the
    cluster (default: `release`), is a loss too. `features`: the levels that are lowered before, by name. `settings`: of
    a node, for its authorizer. Raises RefusedError if a reader cannot start on the metadata.
    """
    others = tuple(reader for reader in dict.fromkeys(readers) if reader != release)
    with tempfile.TemporaryDirectory(prefix="kafka-rollout-") as name:
        work = Path(name)
        with load_log(folder, cache, release, work) as loaded:
            level = loaded.level if to_level is None else to_level
            _check_level(loaded, level)
            before, lower, after = (work / f"{name}.checkpoint" for name in ("before", "lower", "after"))
            loaded.classes.write_records(loaded.image, before, level=loaded.level)
            kafka_losses = loaded.classes.write_records(loaded.image, lower, level=level)
            # Written again at the old level, the image lacks what the lower level cannot store.
            loaded.classes.write_records(replay_checkpoint(loaded.classes, lower, work), after, level=loaded.level)
            notes = _notes(loaded, level, cache)
            images = (StoredRecords.read(path, release).decoded(cache) for path in (before, after))
            losses, default_only = compare(*images)
            if others:
                lowered = _lower_features(loaded, features or {}, cache)
                losses += _losses_of(lowered, level, others, source or release, cache, work, settings or {})
    return LossReport(
        from_level=loaded.level,
        to_level=level,
        from_name=loaded.levels[loaded.level],
        to_name=loaded.levels[level],
        release=str(release),
        readers=tuple(map(str, others)),
        below_floor=_floor_note(loaded, level) is not None,
        losses=tuple(dict.fromkeys(losses)),
        default_only=default_only,
        kafka_said=tuple(dict.fromkeys(kafka_losses)),
        notes=notes,
    )


def _losses_of(  # noqa: PLR0917
    loaded: LoadedLog,
    level: int,
    readers: Sequence[Release],
    source: Release,
    cache: ReleaseCache,
    work: Path,
    settings: Mapping[str, str],
) -> tuple[Loss, ...]:
    """Return what these releases do not keep of the image at a level, or mean otherwise than `source`."""
    path = work / "to-read.checkpoint"
    losses: list[Loss] = []
    loaded.classes.write_records(loaded.image, path, level=level)
    stored = StoredRecords.read(path, loaded.classes.release)
    with ExitStack() as opened:
        running = loaded.classes
        if source != running.release:
            running = opened.enter_context(image_classes(cache, source))
        for reader in readers:
            load_catalogue(*cache.catalogue_folders).get(reader)
            with image_classes(cache, reader) as classes:
                losses += _unkept(stored, level, loaded.contents.kraft.version, classes, cache, work)
                losses += _access_losses(stored, running, classes, cache, settings)
    return tuple(losses)


def _notes(loaded: LoadedLog, to_level: int, cache: ReleaseCache) -> tuple[str, ...]:
    notes = []
    if to_level > loaded.level:
        notes.append(f"The log is at level {loaded.level}: {to_level} is not a downgrade.")
    if note := _floor_note(loaded, to_level):
        notes.append(note)
    notes += _feature_needs(loaded, to_level, cache)
    if (begun := loaded.contents.open_transaction) is not None:
        notes.append(
            f"A metadata transaction begins at offset {begun} and does not end. Its records are ignored, because "
            "the next controller aborts it."
        )
    return tuple(notes)


def _floor_note(loaded: LoadedLog, to_level: int) -> str | None:
    """Return a sentence about KIP-1155's floor, if the level is below it."""
    floor = next((level for level, known in loaded.levels.items() if known == REGISTRATION_FLOOR), 0)
    if to_level >= floor:
        return None
    return (
        f"Level {to_level} ({loaded.levels[to_level]}) is below the floor {floor} ({REGISTRATION_FLOOR}). At "
        "this level controllers cannot register (KIP-919), so their supported features are unknown. A downgrade to it "
        "is not supported (KIP-1155), online or offline."
    )


def _feature_needs(loaded: LoadedLog, to_level: int, cache: ReleaseCache) -> list[str]:
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
    """The records of a snapshot as they are stored, without control records."""

    path: Path
    release: Release
    """Wrote it."""
    records: list[MetadataRecord]

    @classmethod
    def read(cls, path: Path, release: Release) -> StoredRecords:
        records = [record for batch in read_checkpoint(path) if not batch.is_control for record in batch.records]
        return cls(path=path, release=release, records=records)

    def but(self, other: StoredRecords) -> StoredRecords:
        """The records that the other snapshot does not have. Equal bytes are equal metadata."""
        known = {record.value for record in other.records}
        return replace(self, records=[record for record in self.records if record.value not in known])

    def of_type(self, kind: RecordType) -> StoredRecords:
        return replace(self, records=[record for record in self.records if record.type == kind])

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
