"""Kafka's own image classes (MetadataDelta, MetadataImage) of one release: replay records, write an image.

Input and output are files, and the loops run in Java: a call from Python takes a fraction of a millisecond, and a
metadata log can have a million records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from kafka_rollout.base.errors import FatalError, RolloutError, UserError
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.jvm import Jvm, java_class, root_cause, run_jvm

_IMAGE = "org.apache.kafka.image"
_COMMON = "org.apache.kafka.server.common"
_READER = "org.apache.kafka.metadata.util.BatchFileReader"
_SERDE = "org.apache.kafka.metadata.MetadataRecordSerde"
_CONTROL_RECORDS = tuple(f"org.apache.kafka.common.record.{at}ControlRecordUtils" for at in ("internal.", ""))
_BOOTSTRAP = "org.apache.kafka.metadata.bootstrap"
_CONSUMER = "java.util.function.Consumer"
_REWRITER = f"{_IMAGE}.writer.ImageReWriter"
_RAFT_SNAPSHOT_WRITER = f"{_IMAGE}.writer.RaftSnapshotWriter"
_BUILDER = "org.apache.kafka.snapshot.RecordsSnapshotWriter$Builder"
# An image of a large cluster needs more than the default heap; it is a limit, not a reservation.
_BATCH_RECORDS = 1024  # SnapshotGenerator's, and as many bytes at least in a batch
_BATCH_BYTES = 8 << 20  # KafkaRaftClient.MAX_BATCH_SIZE_BYTES


class ReplayError(RolloutError):
    """The release cannot replay the record at `offset`. `why`: its own error message; `parsing`: it cannot parse it."""

    def __init__(self, offset: int, why: str, *, parsing: bool) -> None:
        super().__init__(f"The record at offset {offset} cannot be replayed: {why.rstrip('.')}.")
        self.offset = offset
        self.why = why
        self.parsing = parsing


@dataclass(frozen=True, slots=True)
class KRaft:
    """Facts that are only in control records: kraft.version and, from 1 on, the voters (bytes of a VotersRecord)."""

    version: int = 0
    voters: bytes | None = None


@dataclass(frozen=True, slots=True)
class ImageClasses:
    """The classes of `release`, in the Java process of `jvm`."""

    jvm: Jvm
    release: Release

    def empty(self) -> Any:
        return self.jvm.static(f"{_IMAGE}.MetadataImage").EMPTY

    def replay(self, image: Any, path: Path, *, offsets: list[int]) -> Any:
        """Return the image after the records of a file without control records. `offsets`: of these records, in order.

        Raises ReplayError for the first record that the release cannot parse or replay.
        """
        delta = self._delta(image)
        # A latch, because py4j turns every java.lang.Number into a Python one.
        counter = self.jvm.packages.java.util.concurrent.CountDownLatch(len(offsets))
        reader = self.jvm.instance(f"{_READER}$Builder").setPath(str(path)).build()
        try:
            for_each = self._interface_method("java.util.Iterator", "forEachRemaining", _CONSUMER)
            self.jvm.call(for_each, reader, self._each_batch(self._each_record(delta, counter)))
            return self._apply(delta)
        except Py4JJavaError as error:
            done = len(offsets) - counter.getCount()
            parsed = re.search(r"record at offset (\d+)", str(error.java_exception.toString()) + _messages(error))
            offset = int(parsed[1]) if parsed else offsets[min(done, len(offsets) - 1)]
            raise ReplayError(offset, sentence_of(error), parsing=parsed is not None) from error
        finally:
            reader.close()

    def levels(self) -> dict[int, str]:
        """metadata.version level → name, for every level of the release."""
        versions = self.jvm.static(f"{_COMMON}.MetadataVersion").values()
        return {version.featureLevel(): version.version() for version in versions if version.featureLevel() > 0}

    def level_of(self, image: Any) -> int | None:
        """The image's metadata.version; None if no record has set it."""
        version = image.features().metadataVersion()
        if version.getClass().getSimpleName() == "Optional":  # from 4.0 on
            version = version.orElse(None)
        return None if version is None else int(version.featureLevel())

    def with_features(self, image: Any, levels: Mapping[str, int]) -> Any:
        """The image with other finalized levels (0: not finalized); not for metadata.version."""
        if not levels:
            return image
        delta = self._delta(image)
        for name, level in levels.items():
            delta.replay(self._feature_level(name, level))
        return self._apply(delta)

    def write(
        self, image: Any, folder: Path, *, level: int, end_offset: int, epoch: int, timestamp: int, kraft: KRaft
    ) -> Path:
        """Write the image at a level as a snapshot into a folder; return its path.

        Kafka's FileRawSnapshotWriter writes a temporary file and renames it when everything is on disk. Needs 4.0 or
        later.
        """
        packages = self.jvm.packages
        snapshot_id = self.jvm.moved(f"{_COMMON}.OffsetAndEpoch", "org.apache.kafka.raft.OffsetAndEpoch")
        raw = packages.org.apache.kafka.snapshot.FileRawSnapshotWriter.create(
            self._path(folder), snapshot_id(end_offset, epoch)
        )
        builder = self.jvm.instance(_BUILDER).setLastContainedLogTimestamp(timestamp).setRawSnapshotWriter(raw)
        builder = builder.setMaxBatchSizeBytes(_BATCH_BYTES).setKraftVersion(
            self.jvm.static(f"{_COMMON}.KRaftVersion").fromFeatureLevel(kraft.version)
        )
        builder = builder.setVoterSet(packages.java.util.Optional.ofNullable(self._voters(kraft)))
        writer = self.jvm.static(_RAFT_SNAPSHOT_WRITER)(builder.build(self.jvm.static(_SERDE)()), _BATCH_RECORDS)
        try:
            image.write(writer, self._options(image, level, packages.java.util.ArrayList()))
        finally:
            writer.close(False)
        return folder / f"{end_offset:020}-{epoch:010}.checkpoint"

    def write_records(self, image: Any, path: Path, *, level: int) -> tuple[str, ...]:
        """Write the image's records at a level into a file like a snapshot, but without voters, to compare images.

        Returns the losses that Kafka reported. Raises UserError for 3.3, which has no such writer.
        """
        packages = self.jvm.packages
        if self.jvm.find_class(f"{_IMAGE}.writer.ImageWriterOptions") is None:
            raise UserError(
                f"The image classes of Kafka {self.release} cannot write at another level.",
                remedy="Use 3.4.0 or later.",
            )
        records = self.jvm.static(f"{_IMAGE}.writer.RecordListWriter")()
        losses = packages.java.util.ArrayList()
        image.write(records, self._options(image, level, losses))
        self._write_file(records.records(), path)
        return tuple(str(loss.loss()) for loss in losses)

    def publish_problem(self, image: Any) -> str | None:
        """Return why a node cannot give the image to its publishers when it starts; None if it can.

        MetadataLoader.initializeNewPublishers writes the whole image at its own level, and any loss is an error. The
        node serves nobody then. None for 3.3, which does not write it, and for an image without a level.
        """
        level = self.level_of(image)
        if level is None or self.jvm.find_class(_REWRITER) is None:
            return None
        delta = self._delta(self.empty())
        try:
            image.write(self.jvm.static(_REWRITER)(delta), self._options(image, level, None))
        except Py4JJavaError as error:
            return sentence_of(error)
        return None

    def _write_file(self, records: Any, path: Path) -> None:
        """Write an Iterable of ApiMessageAndVersion with the header and footer of a snapshot."""
        writer = self.jvm.packages.org.apache.kafka.metadata.util.BatchFileWriter.open(self._path(path))
        try:
            append = self._interface_method(
                "org.apache.kafka.metadata.util.BatchFileWriter", "append", f"{_COMMON}.ApiMessageAndVersion"
            )
            each = self._consumer(self._lookup().unreflect(append).bindTo(writer))
            self.jvm.call(self._interface_method("java.lang.Iterable", "forEach", _CONSUMER), records, each)
        finally:
            writer.close()

    def _options(self, image: Any, level: int, losses: Any) -> Any:
        """ImageWriterOptions at a level. `losses`: a java.util.List that gets every loss; None: a loss is an error."""
        version = self.jvm.static(f"{_COMMON}.MetadataVersion").fromFeatureLevel(level)
        builder = self.jvm.static(f"{_IMAGE}.writer.ImageWriterOptions").Builder
        java = self.jvm.packages.java.lang.Class.forName(f"{_IMAGE}.writer.ImageWriterOptions$Builder")
        takes_image = any(f"{_IMAGE}.MetadataImage" in _types(one) for one in java.getConstructors())
        options = builder(image) if takes_image else builder()
        options = options.setMetadataVersion(version)
        if losses is not None:
            add = self._interface_method("java.util.List", "add", "java.lang.Object")
            options = options.setLossHandler(self._consumer(self._lookup().unreflect(add).bindTo(losses)))
        knows_elr = any(one.getName() == "setEligibleLeaderReplicasEnabled" for one in java.getMethods())
        if knows_elr and not version.isElrSupported():
            # Kafka's writer fails on members of an ELR below the level that supports them; with this it drops them.
            options = options.setEligibleLeaderReplicasEnabled(False)
        return options.build()

    def _path(self, path: Path) -> Any:
        packages = self.jvm.packages
        return packages.java.nio.file.Path.of(str(path), self.jvm.array(packages.java.lang.String, []))

    def bootstrap_problem(self, folder: Path) -> str | None:
        """The reason why the release cannot read a directory's bootstrap.checkpoint, which it reads at every start."""
        try:
            self._read_bootstrap(folder)
        except Py4JJavaError as error:
            return sentence_of(error)
        return None

    def lower_bootstrap(self, folder: Path, out: Path, highest: Mapping[str, int]) -> bool:
        """Write the bootstrap.checkpoint of `folder` to the folder `out` with lower levels; return whether any changed.

        `highest`: feature → highest level; other features are removed.
        """
        kept = self.jvm.packages.java.util.ArrayList()
        changed = False
        for record in self.jvm.iterate(self._read_bootstrap(folder).records().iterator()):
            message = record.message()
            if message.getClass().getSimpleName() != "FeatureLevelRecord":
                kept.add(record)
                continue
            name, level = message.name(), int(message.featureLevel())
            lower = min(level, highest.get(name, 0))
            changed = changed or lower != level
            if lower > 0:
                versioned = self.jvm.static(f"{_COMMON}.ApiMessageAndVersion")
                kept.add(versioned(self._feature_level(name, lower), record.version()))
        self._write_file(kept, out / "bootstrap.checkpoint")
        return changed

    def _read_bootstrap(self, folder: Path) -> Any:
        """The BootstrapMetadata of a directory, which BootstrapDirectory reads until 4.3."""
        packages = self.jvm.packages
        directory = self.jvm.find_class(f"{_BOOTSTRAP}.BootstrapDirectory")
        if directory is None:
            return self.jvm.static(f"{_BOOTSTRAP}.BootstrapMetadata").fromDirectory(self._path(folder))
        (constructor,) = directory.getConstructors()
        # Before 4.0 it needs a level for the case that the file is missing.
        arguments = [str(folder), packages.java.util.Optional.empty()][: constructor.getParameterCount()]
        return constructor.newInstance(self.jvm.array(packages.java.lang.Object, arguments)).read()

    def _feature_level(self, name: str, level: int) -> Any:
        record = self.jvm.packages.org.apache.kafka.common.metadata.FeatureLevelRecord()
        return record.setName(name).setFeatureLevel(level)

    def quorum_state_version(self) -> int:
        """The highest data_version of the quorum-state file that the release reads."""
        return int(self.jvm.static("org.apache.kafka.raft.generated.QuorumStateData").HIGHEST_SUPPORTED_VERSION)

    # --- reflection through py4j ---

    def _delta(self, image: Any) -> Any:
        if self.jvm.find_class(f"{_IMAGE}.MetadataDelta$Builder"):
            return self.jvm.instance(f"{_IMAGE}.MetadataDelta$Builder").setImage(image).build()
        return self.jvm.static(f"{_IMAGE}.MetadataDelta")(image)  # 3.3

    def _apply(self, delta: Any) -> Any:
        if self.jvm.find_class(f"{_IMAGE}.MetadataProvenance"):
            return delta.apply(self.jvm.static(f"{_IMAGE}.MetadataProvenance").EMPTY)
        return delta.apply()  # 3.3

    def _each_record(self, delta: Any, counter: Any) -> Any:
        """A Consumer of ApiMessageAndVersion that replays each record and counts it."""
        packages, lookup = self.jvm.packages, self._lookup()
        replay = next(
            method
            for method in delta.getClass().getMethods()
            if method.getName() == "replay" and "org.apache.kafka.common.protocol.ApiMessage" in _types(method)
        )
        handle = lookup.unreflect(replay).bindTo(delta)
        handles = packages.java.lang.invoke.MethodHandles
        if replay.getParameterCount() == 3:  # 3.3: offset and epoch come first; only error messages use them
            zeros = self.jvm.array(packages.java.lang.Object, [1 << 40, 0])
            handle = handles.insertArguments(handle, 0, zeros)
        handle = self._of(handle, f"{_COMMON}.ApiMessageAndVersion", "message")
        count = lookup.unreflect(self._interface_method("java.util.concurrent.CountDownLatch", "countDown"))
        return self._consumer(handles.filterReturnValue(handle, count.bindTo(counter)))

    def _each_batch(self, each_record: Any) -> Any:
        """A Consumer of BatchFileReader's batches that passes on all records of each."""
        for_each = self._lookup().unreflect(self._interface_method("java.lang.Iterable", "forEach", _CONSUMER))
        handles = self.jvm.packages.java.lang.invoke.MethodHandles
        handle = handles.insertArguments(for_each, 1, self.jvm.array(self.jvm.packages.java.lang.Object, [each_record]))
        handle = self._of(handle, "org.apache.kafka.raft.Batch", "records")
        return self._consumer(self._of(handle, f"{_READER}$BatchAndType", "batch"))

    def _of(self, handle: Any, name: str, getter: str) -> Any:
        """The same function, applied to the result of a getter."""
        packages = self.jvm.packages
        get = self._lookup().unreflect(self._interface_method(name, getter))
        handle = handle.asType(handle.type().changeParameterType(0, get.type().returnType()))
        filters = self.jvm.array(packages.java.lang.invoke.MethodHandle, [get])
        return packages.java.lang.invoke.MethodHandles.filterArguments(handle, 0, filters)

    def _consumer(self, handle: Any) -> Any:
        packages = self.jvm.packages
        consumer = packages.java.lang.Class.forName(_CONSUMER)
        return packages.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(consumer, handle)

    def _lookup(self) -> Any:
        return self.jvm.packages.java.lang.invoke.MethodHandles.publicLookup()

    def _interface_method(self, name: str, method: str, *parameters: str) -> Any:
        for_name = self.jvm.packages.java.lang.Class.forName
        types = self.jvm.array(self.jvm.packages.java.lang.Class, [for_name(one) for one in parameters])
        return for_name(name).getMethod(method, types)

    def _voters(self, kraft: KRaft) -> Any:
        if kraft.voters is None:
            return None
        buffer = self.jvm.packages.java.nio.ByteBuffer.wrap(bytearray(kraft.voters))
        record = self.jvm.moved(*_CONTROL_RECORDS).deserializeVotersRecord(buffer)
        return self.jvm.packages.org.apache.kafka.raft.VoterSet.fromVotersRecord(record)


@contextmanager
def image_classes(cache: ReleaseCache, release: Release) -> Iterator[ImageClasses]:
    """Start the classes of a release. Raises FatalError for an exception in Java."""
    with run_jvm(cache.libs(release)) as jvm, java_errors(release):
        yield ImageClasses(jvm, release)


@contextmanager
def java_errors(release: Release) -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        raise FatalError(f"Kafka {release}'s classes failed: {sentence_of(error).rstrip('.')}.") from error
    except Py4JError as error:
        raise FatalError(
            f"The Java process on Kafka {release}'s classes exited before it responded: {error}.",
            remedy="Check the free memory of the machine, then repeat the command.",
        ) from error


def sentence_of(error: Py4JJavaError) -> str:
    """Kafka's own message, without the prefix of Scala's `require`."""
    message = root_cause(error).getMessage()
    return str(message).removeprefix("requirement failed: ") if message else java_class(error)


def _types(method: Any) -> list[str]:
    return [parameter.getName() for parameter in method.getParameterTypes()]


def _messages(error: Py4JJavaError) -> str:
    cause, messages = error.java_exception, ""
    while cause is not None:
        messages += f" {cause.getMessage()}"
        cause = cause.getCause()
    return messages
