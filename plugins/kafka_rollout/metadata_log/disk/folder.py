"""The metadata log on a node's disk: `__cluster_metadata-0` with its segments, snapshots, records and quorum.

All functions only read, and return whole batches with a correct CRC. The frame of a record (frame version, type,
version) is that of org.apache.kafka.server.common.serialization.AbstractApiMessageSerde. A log that is shorter than a
file beside it says is not complete: a copy, or a repair of the file system, can lack its newest segments.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.internal_topics import METADATA_LOG
from kafka_rollout.base.json_forms import parse_json
from kafka_rollout.base.outside_text import parse_number
from kafka_rollout.base.system.files import check_regular, open_below, open_regular, read_regular, reading
from kafka_rollout.formats.checkpoint_files import LEADER_EPOCHS, Epochs, parse_epochs
from kafka_rollout.formats.codecs import crc32c
from kafka_rollout.formats.files import server_properties
from kafka_rollout.formats.layouts import Layout, MessageSchema
from kafka_rollout.formats.log_files import MAYBE_SEGMENT, base_offset, segment_names
from kafka_rollout.formats.log_types import CONTROL, LogFormatError, RecordBatch, RecordSpan
from kafka_rollout.formats.messages import decode, zigzag_varint
from kafka_rollout.formats.record_batch import HEADER, LEAST_LENGTH, PREFIX, batches, check_crc, payload, records
from kafka_rollout.metadata_log.log_choice import INTERRUPTED, START_ONCE, NodeLog
from kafka_rollout.model.host_state import BOOTSTRAP

QUORUM_STATE = "quorum-state"
META = "meta.properties"
_LOCK = ".lock"
_LOCK_S = 3.0
_CHECKPOINT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_REACHED = re.compile(r"([0-9]{20})\.(?:(index|timeindex|txnindex)|snapshot)")
"""Files beside the segments that are named by an offset which the log has reached. Kafka removes them with its end
(LogLoader, ProducerStateManager.truncateAndReload). A clean stop leaves a `.snapshot` of the log's end."""
_EPOCH_AT, _ATTRIBUTES_AT = 12, 21  # partitionLeaderEpoch and attributes of a batch
_MAYBE_BATCH = re.compile(rb"(?s)(?=\0.{15}\x02)")  # base offset below 2 ** 56, and magic
_WHERE = "Use a node's metadata.log.dir (by default the first of its log.dirs), or a copy of its __cluster_metadata-0."


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A snapshot of the metadata log: the state before `end_offset`."""

    path: Path
    end_offset: int
    epoch: int

    @property
    def name(self) -> str:
        return self.path.name


def checkpoint_of(path: Path) -> Checkpoint | None:
    """Parse the name of the file; None if it is not that of a snapshot."""
    match = _CHECKPOINT.fullmatch(path.name)
    return None if match is None else Checkpoint(path=path, end_offset=int(match[1]), epoch=int(match[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFolder:
    """The folder of a node's metadata log."""

    log: Path
    root: Path
    """Its parent with meta.properties, bootstrap.checkpoint and .lock."""
    cluster_id: str | None
    """None without meta.properties, for example in a copy of the log alone."""
    node_id: int | None
    """None without meta.properties, for example in a copy of the log alone."""

    @property
    def segments(self) -> tuple[Path, ...]:
        """The segments of the log after a start of Kafka, also those that still have the suffix `.swap` (log_files).

        None if the newest snapshot is of a later epoch: Kafka fetched it, or `install` put it there, and it replaces
        the log also where that is longer (KafkaMetadataLog.truncateToLatestSnapshot).
        """
        found, newest = self.segment_files, max((one.epoch for one in self.checkpoints[-1:]), default=-1)
        return () if newest > _newest_epoch(self, found, newest) else found

    @property
    def segment_files(self) -> tuple[Path, ...]:
        """The segments that are there before a start."""
        names = segment_names(os.listdir(self.log), lambda name: _end_of(self.log / name))
        return tuple(self.log / name for name in names)

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Oldest first. One with end offset 0 has the voters with which a dynamic quorum was formatted."""
        found = [checkpoint_of(path) for path in sorted(self.log.iterdir())]
        return tuple(checkpoint for checkpoint in found if checkpoint is not None)

    @property
    def bootstrap(self) -> Path | None:
        path = self.root / BOOTSTRAP
        return path if path.is_file() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRecord:
    """One record."""

    offset: int
    frame: int
    type: int
    """−1 if the frame version is not 1; of the key for a control record."""
    version: int
    """−1 if the frame version is not 1; of the key for a control record."""
    value: bytes
    """With the frame, or the control message."""
    body_at: int

    @property
    def body(self) -> bytes:
        """The message after the frame."""
        return self.value[self.body_at :]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataBatch:
    """A batch of a segment or snapshot; `timestamp` in epoch milliseconds, `position` in its file."""

    position: int
    base_offset: int
    last_offset: int
    epoch: int
    timestamp: int
    is_control: bool
    records: tuple[MetadataRecord, ...]
    data: bytes


def open_folder(directory: Path, *, cluster_id: str | None = None) -> MetadataFolder:
    """Find the metadata log in a directory.

    Raises UserError if there is none, or if it belongs to another cluster than `cluster_id`.
    """
    with reading(directory):
        if not directory.is_dir():
            what = "is not a folder" if directory.exists() else "does not exist"
            raise UserError(f"{directory} {what}.", remedy=_WHERE)
        directory = directory.resolve()
        # A node's folder can have several log directories, one of them with the metadata log.
        below = [one for one in sorted(directory.glob(f"*/{METADATA_LOG}")) if _is_metadata_log(one)]
        log = next((one for one in (directory / METADATA_LOG, directory, *below) if _is_metadata_log(one)), None)
        if log in below[:1] and len(below) > 1:
            raise UserError(
                f"{directory} has {len(below)} metadata logs: {', '.join(str(one.parent) for one in below)}.",
                remedy="Name one of these directories.",
            )
        if log is None:
            raise UserError(f"{directory} holds no metadata log: it has no folder {METADATA_LOG}.", remedy=_WHERE)
        meta = log.parent / META
        properties = server_properties.parse(read_regular(meta)) if meta.exists() else {}
        _check_names(log)
    found = properties.get("cluster.id")
    if cluster_id is not None and found != cluster_id:
        of = f"of cluster {found}" if found else f"of an unknown cluster, because {META} is missing next to it"
        raise UserError(
            f"The metadata log in {log} is {of}, not of cluster {cluster_id}.",
            remedy=f"Use a directory of cluster {cluster_id}.",
        )
    return MetadataFolder(log=log, root=log.parent, cluster_id=found, node_id=server_properties.node_id_of(properties))


def _check_names(log: Path) -> None:
    """Raise UserError unless each segment and snapshot is a file with a valid offset in its name."""
    for path in log.iterdir():
        if match := MAYBE_SEGMENT.fullmatch(path.name) or _CHECKPOINT.fullmatch(path.name):
            with suppress(FileNotFoundError):  # a running node removes old ones
                check_regular(path, path.stat())
            if parse_number(match[1]) is None:
                raise UserError(
                    f"The offset in the name of {path} is not valid.", remedy="Remove the file, or use a copy."
                )


def _is_metadata_log(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    names = os.listdir(folder)
    has_log = any(MAYBE_SEGMENT.fullmatch(name) or _CHECKPOINT.fullmatch(name) for name in names)
    # Partitions of other topics have segments too, but no quorum-state and no snapshots.
    return has_log and (folder.name == METADATA_LOG or QUORUM_STATE in names or any(map(_CHECKPOINT.fullmatch, names)))


def log_range(folder: MetadataFolder) -> tuple[int, int]:
    """(start offset, end offset) of the log; the newest snapshot's end for both where there is no segment."""
    segments = folder.segments
    if not segments:
        end = folder.checkpoints[-1].end_offset
        return end, end
    return base_offset(segments[0].name), _end_of(segments[-1])


def _newest_epoch(folder: MetadataFolder, segments: Sequence[Path], enough: int) -> int:
    """Return the newest epoch of a log, of its batches only if no epoch of leader-epoch-checkpoint is `enough`."""
    newest = max((epoch for epoch, _ in leader_epochs(folder)), default=-1)
    for path in reversed(segments):
        if newest >= enough:
            break
        if found := [batch.epoch for batch in read_file(path, last=path == segments[-1], outline=True)]:
            return max(newest, *found)
    return newest


def _end_of(segment: Path) -> int:
    end = base_offset(segment.name)
    for batch in _batches(segment, last=True):
        end = batch.last_offset + 1
    return end


def read_log(
    folder: MetadataFolder, from_offset: int = 0, *, outline: bool = False, whole: bool = False
) -> Iterator[MetadataBatch]:
    """The batches of the log that end at or after `from_offset`, in order; raises UserError for a gap or damage.

    `outline`: as in `read_file`. A cut-off batch at the end of the last segment is left out, or damage (`whole`).
    """
    segments = folder.segments
    expected: int | None = None
    epoch = -1
    for number, path in enumerate(segments):
        if number + 1 < len(segments) and base_offset(segments[number + 1].name) <= from_offset:
            continue
        for batch in read_file(path, last=number + 1 == len(segments), outline=outline, whole=whole):
            if expected is not None and batch.base_offset < expected:
                continue  # an interrupted trim leaves a segment whose end is also in the next one
            if batch.epoch < epoch:  # no CRC covers it
                raise damaged(path, f"at offset {batch.base_offset} its epoch falls from {epoch} to {batch.epoch}")
            epoch = batch.epoch
            if expected is not None and batch.base_offset > expected:
                raise UserError(
                    f"The metadata log {folder.log} has a gap: offsets {expected} to {batch.base_offset - 1} are "
                    "missing.",
                    remedy="Use the log of another node.",
                )
            expected = batch.last_offset + 1
            if batch.last_offset >= from_offset:
                yield batch


def read_checkpoint(path: Path, *, outline: bool = False) -> Iterator[MetadataBatch]:
    """The batches of a snapshot; raises UserError if its footer is missing, because it is incomplete then."""
    complete = False
    for batch in read_file(path, last=False, outline=outline):
        complete = batch.is_control and any(record.type == CONTROL_FOOTER for record in batch.records)
        yield batch
    if not complete:
        raise damaged(path, "its last record is not a footer")


def read_start(
    folder: MetadataFolder, snapshot: Checkpoint | None, *, outline: bool = False
) -> Iterator[tuple[MetadataBatch, bool]]:
    """The batches that a starting node reads, each with whether it is from the log: a snapshot and the log after it.

    None: the log from its start. `outline`: as in `read_file`. Raises UserError if the log begins later, and at its end
    if it is cut off or shorter than it was.
    """
    start, newest = 0, folder.checkpoints[-1:]
    if snapshot:
        yield from ((batch, False) for batch in read_checkpoint(snapshot.path, outline=outline))
        start = snapshot.end_offset
    # Before the segments: a running node writes on.
    state, epochs, reached = quorum_state(folder), leader_epochs(folder), _reached(folder)
    has_files, segments = bool(folder.segment_files), folder.segments
    end = base_offset(segments[-1].name) if segments else 0
    epoch = max((one for one, _ in epochs), default=-1)
    for batch in read_log(folder, min(start, end), outline=outline, whole=True):
        end, epoch = batch.last_offset + 1, max(epoch, batch.epoch)
        if end <= start:
            continue
        if batch.base_offset > start:
            lacks = (
                f"the newest snapshot, {snapshot.name}, ends at offset {start}" if snapshot else "there is no snapshot"
            )
            raise UserError(
                f"The metadata log {folder.log} begins at offset {batch.base_offset}, and {lacks}, so the metadata "
                "before it is missing.",
                remedy="A node cannot start on this log. Use the log of another node.",
            )
        start = end
        yield batch, True
    leader = int(state.get("leaderId", -1))
    led = int(state.get("leaderEpoch", -1)) if leader >= 0 and (not has_files or leader == folder.node_id) else -1
    if newest and newest[0].epoch > max(epoch, led):
        return  # it replaces the log
    if why := _lacking(end if segments else None, reached | {one.name: one.end_offset for one in newest}, epochs):
        raise damaged(folder.log, why)
    if led > epoch:
        raise damaged(folder.log, f"by {QUORUM_STATE} its node led epoch {led}, of which it has no record")


def _lacking(end: int | None, reached: Mapping[str, int], epochs: Epochs) -> str:
    """Return what shows that records after `end` are missing; empty for nothing. None: there is no segment.

    `reached`: file → offset. Kafka shortens the leader epochs with their log (LeaderEpochFileCache.truncateFromEnd). An
    epoch without a record begins at the end of the log.
    """
    if end is None:
        return "it has no segment" if reached or epochs else ""
    if not epochs and end > 0:
        return f"{LEADER_EPOCHS} is missing or empty, so it is unknown how far the log went"
    later = dict(reached)
    if epochs:
        later[LEADER_EPOCHS] = epochs[-1][1]
    name = max(later, key=lambda name: later[name], default="")
    if name and later[name] > end:
        return f"its segments end at offset {end}, and by {name} the log reached offset {later[name]}"
    return ""


def _reached(folder: MetadataFolder) -> dict[str, int]:
    """Return file name → offset that the log has reached by this name. An index has a segment, with a record."""
    names = set(os.listdir(folder.log))
    bases = {match[1] for match in map(MAYBE_SEGMENT.fullmatch, names) if match is not None}
    found = [match for match in map(_REACHED.fullmatch, names) if match is not None and match[1] not in bases]
    return {match[0]: int(match[1]) + (match[2] is not None) for match in found}


CONTROL_FOOTER, CONTROL_KRAFT_VERSION, CONTROL_VOTERS = 4, 5, 6  # org.apache.kafka.common.record.ControlRecordType


def kraft_version_of(record: MetadataRecord) -> int:
    """kraft.version in a control record of type CONTROL_KRAFT_VERSION: two int16, the version of the record first."""
    return int.from_bytes(record.value[2:4], signed=True)


def read_file(path: Path, *, last: bool, outline: bool = False, whole: bool = False) -> Iterator[MetadataBatch]:
    """The batches of one file. `last`: a cut-off batch at its end is not damage, but an interrupted write.

    `whole`: it is damage nevertheless, because the bytes of a copy can be missing; zeros are not. `outline`: decode
    only control batches, the others get no records; many times faster.
    """
    for batch in _batches(path, last=last, whole=whole):
        try:
            found: tuple[MetadataRecord, ...] = ()
            if batch.is_control or not outline:
                data = payload(batch)
                found = tuple(_record(span, data, batch.is_control) for span in records(batch, data))
        except LogFormatError as error:
            raise damaged(path, error.sentence) from error
        content = bytes(batch.data)
        yield MetadataBatch(
            position=batch.position,
            base_offset=batch.base_offset,
            last_offset=batch.last_offset,
            epoch=int.from_bytes(content[_EPOCH_AT : _EPOCH_AT + 4], signed=True),
            timestamp=batch.base_timestamp,
            is_control=batch.is_control,
            records=found,
            data=content,
        )


def _batches(path: Path, *, last: bool, whole: bool = False) -> Iterator[RecordBatch]:
    with reading(path), os.fdopen(open_regular(path), "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    end = reach = 0
    next_offset = base_offset(path.name) if MAYBE_SEGMENT.fullmatch(path.name) else 0
    why = ""
    try:
        for batch in batches(view):
            reach = batch.position + batch.size
            check_crc(batch)
            end, next_offset = reach, batch.last_offset + 1
            yield batch
        reach = len(view)
    except LogFormatError as error:
        why = error.sentence
    rest = view[end:]
    if not rest or (last and not any(rest)):  # zeros are of the file system
        return
    # A crash during a write leaves a cut-off last batch.
    is_interrupted = last and reach >= len(view) and not _has_batch(rest[1:], next_offset)
    if whole or not is_interrupted:
        why = why or f"it is cut off after byte {end}"
        raise damaged(path, f"{INTERRUPTED}: {why}" if is_interrupted else why, is_interrupted=is_interrupted)


def _has_batch(data: memoryview, offset: int) -> bool:
    """Whether a whole batch after `offset` begins in `data`: what is before it was not cut off by a crash. The length
    of a batch is not covered by its CRC."""
    for at in (match.start() for match in _MAYBE_BATCH.finditer(data)):
        found, length = PREFIX.unpack_from(data, at)
        size = PREFIX.size + length
        if found > offset and LEAST_LENGTH[2] <= length and at + size <= len(data):
            crc = int.from_bytes(data[at + _ATTRIBUTES_AT - 4 : at + _ATTRIBUTES_AT])
            if crc32c(data[at + _ATTRIBUTES_AT : at + size]) == crc:
                return True
    return False


def _record(span: RecordSpan, data: bytes, is_control: bool) -> MetadataRecord:
    value = data[span.value_at : span.value_at + max(0, span.value_length)]
    if is_control:
        kind = int.from_bytes(data[span.key_at + 2 : span.key_at + 4], signed=True)
        return MetadataRecord(offset=span.offset, frame=0, type=kind, version=0, value=value, body_at=0)
    frame, at = _unsigned(value, 0)
    if frame != 1:
        return MetadataRecord(offset=span.offset, frame=frame, type=-1, version=-1, value=value, body_at=at)
    kind, at = _unsigned(value, at)
    version, at = _unsigned(value, at)
    return MetadataRecord(offset=span.offset, frame=frame, type=kind, version=version, value=value, body_at=at)


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 28:
            raise LogFormatError("A record ends within its frame.")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def encode_batch(batch: MetadataBatch, kept: Sequence[MetadataRecord]) -> bytes:
    """Return the batch with other records, each at its offset, without compression."""
    body = b"".join(_encoded(batch, record) for record in kept)
    size, delta = HEADER.size - _EPOCH_AT + len(body), batch.last_offset - batch.base_offset
    attributes, times = (CONTROL if batch.is_control else 0), (batch.timestamp, batch.timestamp)
    header = HEADER.pack(batch.base_offset, size, batch.epoch, 2, 0, attributes, delta, *times, -1, -1, -1, len(kept))
    crc = crc32c(header[_ATTRIBUTES_AT:] + body)
    return header[: _ATTRIBUTES_AT - 4] + crc.to_bytes(4) + header[_ATTRIBUTES_AT:] + body


def _encoded(batch: MetadataBatch, record: MetadataRecord) -> bytes:
    key = bytes(2) + record.type.to_bytes(2) if batch.is_control else None
    fields = b"\0\0" + zigzag_varint(record.offset - batch.base_offset)
    fields += zigzag_varint(-1) if key is None else zigzag_varint(len(key)) + key
    fields += zigzag_varint(len(record.value)) + record.value + b"\0"
    return zigzag_varint(len(fields)) + fields


def damaged(path: Path, why: str, *, is_interrupted: bool = False) -> UserError:
    """`is_interrupted`: by a crash during a write, so that the start of its node removes the damage."""
    return UserError(
        f"{path} is damaged or not complete: {why.rstrip('.')}.",
        remedy=f"{START_ONCE} Or copy it again, or use that of another node."
        if is_interrupted
        else "Copy it again, or use that of another node.",
    )


@contextmanager
def stopped_node(folder: MetadataFolder) -> Iterator[None]:
    """Hold the lock of the node's directory, so that the node cannot start during the block.

    Raises UserError while the node or another call holds it. Kafka locks `.lock` by java.nio's FileLock, which is a
    POSIX record lock.
    """
    path = folder.root / _LOCK
    existed = path.exists()
    with reading(path):
        descriptor = open_below(folder.root, _LOCK, flags=os.O_RDWR | os.O_CREAT)
    try:
        # The kernel releases the locks of a process a moment after the process has exited.
        deadline = time.monotonic() + _LOCK_S
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline:
                raise UserError(
                    f"The directory {folder.root} is in use: a running node holds its lock.",
                    remedy="Stop the node first.",
                )
            time.sleep(0.1)
        try:
            yield
        finally:
            if not existed:
                path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _field(name: str, kind: str, *fields: dict[str, object]) -> dict[str, object]:
    return {"name": name, "type": kind, "versions": "0+", **({"fields": list(fields)} if fields else {})}


# The voters of a static quorum are in quorum-state, those of a dynamic one in control records (KIP-853):
# common/message/VotersRecord.json of kafka-clients, the same since 3.9; 0 is its only version.
_ENDPOINT = (_field("Name", "string"), _field("Host", "string"), _field("Port", "uint16"))
_RANGE = (_field("MinSupportedVersion", "int16"), _field("MaxSupportedVersion", "int16"))
_VOTER = (
    _field("VoterId", "int32"),
    _field("VoterDirectoryId", "uuid"),
    _field("Endpoints", "[]Endpoint", *_ENDPOINT),
    _field("KRaftVersionFeature", "KRaftVersionFeature", *_RANGE),
)
_VOTERS_RECORD = {
    "type": "data",
    "name": "VotersRecord",
    "validVersions": "0",
    "flexibleVersions": "0+",
    "fields": [_field("Version", "int16"), _field("Voters", "[]Voter", *_VOTER)],
}


def node_log(folder: MetadataFolder, node_id: int) -> NodeLog:
    """Read the newest snapshot and the log after it, without decoding records; raises UserError for damage."""
    checkpoints = folder.checkpoints
    newest = checkpoints[-1] if checkpoints else None
    epoch, end = (newest.epoch, newest.end_offset) if newest else (0, 0)
    state = quorum_state(folder)
    voters = frozenset(int(voter["voterId"]) for voter in state.get("currentVoters") or ())
    directories: dict[int, str] = {}
    newest_epoch, in_log = epoch, -1
    for batch, is_log in read_start(folder, newest, outline=True):
        if is_log:
            epoch, end = batch.epoch, batch.last_offset + 1
            in_log = max(in_log, epoch)
        for record in batch.records:
            if record.type == CONTROL_VOTERS:
                directories = {one["voterId"]: one["voterDirectoryId"] for one in decode_voters(record.value)}
                voters = frozenset(directories)
    known = max((one for one, _ in leader_epochs(folder)), default=-1)
    if in_log > known >= 0:  # Kafka writes an epoch there first, and no CRC covers that of a batch
        raise damaged(folder.log, f"its last batch is of epoch {in_log}, and {LEADER_EPOCHS} ends with epoch {known}")
    newest_epoch = max(newest_epoch, in_log, known)
    return NodeLog(
        node_id=node_id,
        epoch=epoch,
        end_offset=end,
        known_epoch=int(state.get("leaderEpoch", 0)),
        voters=voters,
        newest_epoch=newest_epoch,
        leader_id=int(state.get("leaderId", -1)),
        voted_id=int(state.get("votedId", -1)),
        snapshots=frozenset(path.name for path in folder.log.iterdir() if ".checkpoint" in path.name),
        directory_id=_directory_id(folder),
        voter_directories=directories,
    )


def _directory_id(folder: MetadataFolder) -> str:
    path = folder.root / META
    return server_properties.parse(read_regular(path)).get("directory.id", "") if path.exists() else ""


def leader_epochs(folder: MetadataFolder) -> Epochs:
    """(epoch, start offset) of leader-epoch-checkpoint; empty without the file. Raises UserError for a damaged one."""
    path = folder.log / LEADER_EPOCHS
    if not path.exists():
        return ()
    with reading(path):
        return parse_epochs(read_regular(path).decode(errors="replace"), path)


_QUORUM_FIELDS = {
    0: ("clusterId", "leaderId", "leaderEpoch", "votedId", "appliedOffset", "currentVoters"),
    1: ("leaderId", "leaderEpoch", "votedId", "votedDirectoryId"),
}
"""data_version → fields without which QuorumStateDataJsonConverter fails (QuorumStateData.json of 3.3 to 4.4)."""


def quorum_state(folder: MetadataFolder) -> dict[str, Any]:
    """Read the quorum-state file as strictly as FileQuorumStateStore; empty where there is none.

    Kafka reads its first line. Raises UserError for a text that no release reads. Fields of an unknown data_version are
    not checked.
    """
    path = folder.log / QUORUM_STATE
    if not path.exists():
        return {}
    with reading(path):
        line = next(iter(read_regular(path).splitlines()), b"")
    try:
        found = parse_json(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise damaged(path, "it is not a JSON object")
    version = found.get("data_version")
    if not isinstance(version, int):
        raise damaged(path, "it has no data_version")
    if missing := [name for name in _QUORUM_FIELDS.get(version, ()) if name not in found]:
        raise damaged(path, f"it has no {missing[0]}")
    return found


def decode_voters(record: bytes) -> list[dict[str, Any]]:
    """The voters in a VotersRecord, with the names of its definition."""
    return list(decode(voters_layout(), record).value["voters"])


def voters_layout() -> Layout:
    return MessageSchema.parse(json.dumps(_VOTERS_RECORD)).layout(0)
