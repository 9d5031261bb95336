"""Scan a metadata log on disk for a release: replay it with the release's jars, apply the rules of its controllers.

The release's classes check frames, types, versions and replay (MetadataRecordSerde, MetadataDelta),
bootstrap.checkpoint (BootstrapDirectory), the ranges of features (QuorumFeatures) and the version of quorum-state. The
catalogue, which is derived from the jars, has the offset at which a starting node begins (KafkaRaftClient) and the
types that a controller rejects although the classes parse them (QuorumController.replay).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from kafka_rollout.formats.layouts import MessageSchema
from kafka_rollout.formats.log_files import SWAP, base_offset
from kafka_rollout.formats.messages import decode
from kafka_rollout.metadata_log.classes.images import ImageClasses, ReplayError, image_classes
from kafka_rollout.metadata_log.classes.kafka_classes import supported_features
from kafka_rollout.metadata_log.classes.known_releases import known_releases, metadata_facts, metadata_schemas
from kafka_rollout.metadata_log.classes.replay import LogContents, load_log, read_contents, write_plain
from kafka_rollout.metadata_log.disk.folder import (
    QUORUM_STATE,
    Checkpoint,
    MetadataBatch,
    MetadataFolder,
    log_range,
    quorum_state,
    read_checkpoint,
    read_file,
    read_log,
)
from kafka_rollout.metadata_log.metadata_scan import (
    MetadataScan,
    RemedyFacts,
    ReplayFailure,
    feature_problem,
    first_of,
    record_classes,
    remedies,
)
from kafka_rollout.metadata_log.record_types import MetadataLogFacts, RecordType
from kafka_rollout.model.host_state import BOOTSTRAP
from kafka_rollout.releases.facts import KRAFT_VERSION, Release, VersionRange
from kafka_rollout.releases.jars.cache import ReleaseCache

BatchReader = Callable[[], Iterable[MetadataBatch]]
Where = Literal["log", "snapshot"]
_IMAGE_OF = "Kafka {release} replays the metadata, but a node that starts writes it again for its publishers, and fails"


@dataclass(slots=True, kw_only=True)
class _Replay:
    """The result for one file or the log: the records as Python decodes them, and the first failure, else the image."""

    counted: dict[tuple[int, int], tuple[int, int, int]] = field(default_factory=dict)
    """(type, version) → (count, first offset, last offset)."""
    refused: list[tuple[int, str]] = field(default_factory=list)
    """Offset and reason of those that controllers of the release reject."""
    failure: ReplayFailure | None = None
    image: Any = None


@dataclass(frozen=True, slots=True)
class ReplayCheck:
    """Replays logs with a release's classes and the catalogue's rules."""

    classes: ImageClasses
    facts: MetadataLogFacts
    supported: Mapping[str, VersionRange]
    feature_level: MessageSchema
    work: Path
    """A folder for copies."""

    @classmethod
    def of(cls, classes: ImageClasses, cache: ReleaseCache, work: Path) -> ReplayCheck:
        release = classes.release
        return cls(
            classes,
            metadata_facts(release, *cache.catalogue_folders),
            supported_features(classes.jvm),
            metadata_schemas(release, *cache.catalogue_folders)[RecordType.FEATURE_LEVEL],
            work,
        )

    @property
    def by_classes(self) -> str:
        return f"the classes of {self.facts.release}"

    def snapshot(self, path: Path) -> _Replay:
        return self.replay("snapshot", partial(read_checkpoint, path), lambda _: path.name, self.classes.empty())

    def log(self, folder: MetadataFolder, contents: LogContents, image: Any) -> _Replay:
        start = contents.from_offset

        def file(offset: int) -> str:
            return max(path.name for path in folder.segments if base_offset(path.name) <= offset)

        return self.replay(
            "log", partial(read_log, folder, start), file, image, from_offset=start, dropped=contents.dropped
        )

    def replay(
        self,
        where: Where,
        read: BatchReader,
        file: Callable[[int], str],
        image: Any,
        *,
        from_offset: int = 0,
        dropped: Iterable[range] = (),
    ) -> _Replay:
        def failure(offset: int, why: str, by: str) -> ReplayFailure:
            reason = f"{why[:1].upper()}{why[1:]}."
            return ReplayFailure(where=where, file=file(offset), offset=offset, reason=reason, decided_by=by)

        seen = self._outline(read(), from_offset)
        found: list[tuple[int, ReplayFailure]] = []
        markers = not self.facts.knows_transactions
        plain = self.work / "scan.plain"
        offsets = write_plain(
            read(), plain, from_offset=from_offset, dropped=() if markers else dropped, markers=markers
        )
        try:
            seen.image = self.classes.replay(image, plain, offsets=offsets)
        except ReplayError as error:
            why = next((f"{why}: " for offset, why in seen.refused if offset == error.offset), "")
            place = error.offset
            if error.parsing:
                place = next(b.base_offset for b in read() if b.base_offset <= error.offset <= b.last_offset)
            found.append((place, failure(error.offset, f"{why}{error.why.rstrip('.')}", self.by_classes)))
        for offset, why in seen.refused[:1]:
            rules = f"the rules of {self.facts.release}'s controllers (QuorumController, FeatureControlManager)"
            found.append((offset, failure(offset, why, rules)))
        seen.failure = first_of(found)
        return seen

    def _outline(self, batches: Iterable[MetadataBatch], from_offset: int) -> _Replay:
        seen = _Replay()
        for batch in batches:
            for record in batch.records:
                if batch.is_control or record.offset < from_offset:
                    continue
                key = record.type, record.version
                count, first, _ = seen.counted.get(key, (0, record.offset, 0))
                seen.counted[key] = (count + 1, first, record.offset)
                problem = self.facts.reason_not_read(record.type, record.version)
                if problem is None and record.type == RecordType.FEATURE_LEVEL:
                    value = decode(self.feature_level.layout(record.version), record.value, record.body_at).value
                    problem = feature_problem(value["name"], value["featureLevel"], self.supported, self.facts.release)
                if problem:
                    seen.refused.append((record.offset, problem))
        return seen


def scan_metadata_log(
    folder: MetadataFolder, release: Release, *, cache: ReleaseCache, settings: Mapping[str, str] | None = None
) -> MetadataScan:
    """Scan the log for a release. Read-only. `settings`: the node's configuration, for the times in the remedies.

    Raises UserError for damage and for a release that is not in the catalogue.
    """
    facts = metadata_facts(release, *cache.catalogue_folders)
    start, end = log_range(folder)
    checkpoints = folder.checkpoints
    newest = checkpoints[-1] if checkpoints and (facts.starts_from_snapshot or start > 0) else None
    contents = read_contents(folder, snapshot=newest)
    with tempfile.TemporaryDirectory(prefix="kafka-rollout-") as name, image_classes(cache, release) as classes:
        check = ReplayCheck.of(classes, cache, Path(name))
        failures = [*_check_other_files(folder, check, contents)]
        replays = [check.snapshot(newest.path)] if newest else []
        if not replays or replays[0].failure is None:
            replays.append(check.log(folder, contents, replays[0].image if replays else classes.empty()))
        failure = replays[-1].failure
        ways: tuple[str, ...] = ()
        way = None
        if failure is not None:
            failures.append(failure)
            way = _remedy_facts(folder, check, failure, replays[-1], cache)
            ways = remedies(release, way, settings or {})
        elif (why := classes.publish_problem(replays[-1].image)) is not None:
            failures.append(_image_failure(release, contents, check, why))
            ways = (
                f"A node of {release} would run with this metadata and serve nobody. Choose another release, for "
                "example a later patch release.",
            )
    if any(one.where == "bootstrap" for one in failures):
        ways += (
            f"Replace {folder.bootstrap} by one at a level that {release} supports, and keep a copy. Every start reads "
            "it, although only an empty log uses its levels.",
        )
    if any(one.where == "quorum-state" for one in failures):
        ways += (
            f"There is no remedy: {release} supports only static quorums, and a dynamic one cannot become static.",
        )
    return MetadataScan(
        release=release,
        directory=str(folder.log),
        start_offset=start,
        end_offset=end,
        starts_at=f"snapshot {newest.name}" if newest else f"offset {start}",
        failures=tuple(failures),
        records=record_classes(_sum_counts(replays), facts),
        remedies=ways,
        notes=_notes(folder, release, start, newest, contents),
        remedy_facts=way,
    )


def _image_failure(release: Release, contents: LogContents, check: ReplayCheck, why: str) -> ReplayFailure:
    """`why`: of ImageClasses.publish_problem."""
    return ReplayFailure(
        where="image",
        file="the image",
        offset=max(0, contents.end_offset - 1),
        reason=f"{_IMAGE_OF.format(release=release)}: {why.rstrip('.')}.",
        decided_by=check.by_classes,
    )


def _check_other_files(folder: MetadataFolder, check: ReplayCheck, contents: LogContents) -> Iterator[ReplayFailure]:
    """Check the other files that every start reads, and kraft.version, which is in control records."""
    if folder.bootstrap is not None:
        why = check.classes.bootstrap_problem(folder.root)
        if why:
            yield ReplayFailure(
                where="bootstrap",
                file=BOOTSTRAP,
                offset=0,
                reason=f"Every start reads it, and {check.facts.release} cannot: {why.rstrip('.')}.",
                decided_by=check.by_classes,
            )
    version = quorum_state(folder).get("data_version", 0)
    reason = None
    if version > check.classes.quorum_state_version():
        reason = f"Its data_version is {version}, and {check.facts.release} supports at most"
        reason += f" {check.classes.quorum_state_version()}: the quorum is dynamic (KIP-853)."
    elif contents.kraft.version not in check.supported.get(KRAFT_VERSION, VersionRange(0, 0)):
        reason = (
            f"kraft.version is {contents.kraft.version}, and {check.facts.release} does not support dynamic quorums."
        )
    if reason:
        yield ReplayFailure(
            where="quorum-state", file=QUORUM_STATE, offset=0, reason=reason, decided_by=check.by_classes
        )


def _remedy_facts(
    folder: MetadataFolder, check: ReplayCheck, failure: ReplayFailure, replay: _Replay, cache: ReleaseCache
) -> RemedyFacts:
    """Check whether the newest snapshot, or a new one of the log's end, can be replayed."""
    last = max([failure.offset, *(offset for offset, _ in replay.refused)]) if failure.where == "log" else None
    newest = folder.checkpoints[-1] if folder.checkpoints else None
    usable = (
        newest is not None
        and last is not None
        and newest.end_offset > last
        and check.snapshot(newest.path).failure is None
    )
    end_problem = None
    if not usable:
        with load_log(folder, cache, known_releases(*cache.catalogue_folders)[-1], check.work) as loaded:
            written = check.work / "end.checkpoint"
            loaded.classes.write_records(loaded.image, written, level=loaded.level)
        if (at_end := check.snapshot(written).failure) is not None:
            end_problem = at_end.reason
    timestamp = None
    if last is not None:
        segment = max(path for path in folder.segments if base_offset(path.name) <= last)
        timestamp = next(batch.timestamp for batch in read_file(segment, last=True))
    return RemedyFacts(
        directory=str(folder.log),
        last_failing=last,
        newest_snapshot=newest.end_offset if newest and usable else None,
        end_problem=end_problem,
        segment_timestamp=timestamp,
        starts_from_snapshot=check.facts.starts_from_snapshot,
    )


def _sum_counts(replays: Iterable[_Replay]) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Count over all replays. The offsets are those of the log; records only in the snapshot have numbers instead."""
    summed: dict[tuple[int, int], tuple[int, int, int]] = {}
    for replay in replays:
        for key, (count, first, last) in replay.counted.items():
            summed[key] = (count + summed.get(key, (0, 0, 0))[0], first, last)
    return summed


def _notes(
    folder: MetadataFolder, release: Release, start: int, newest: Checkpoint | None, contents: LogContents
) -> tuple[str, ...]:
    notes = []
    if newest and newest.end_offset > start:
        notes.append(
            f"{release} starts from the snapshot and does not read offsets {start} to {newest.end_offset - 1}."
        )
    if swapped := [path.name for path in folder.segments if path.name.endswith(SWAP)]:
        notes.append(f"{', '.join(swapped)}: an interrupted swap, which a start of the node completes.")
    if contents.open_transaction is not None:
        notes.append(f"A metadata transaction begins at offset {contents.open_transaction} and does not end.")
    return tuple(notes)
