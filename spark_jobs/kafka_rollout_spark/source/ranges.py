"""What a scan reads, taken once when it begins: the logs of a live cluster, or those in log directories."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafka_rollout.adapters.coordinator_logs.deleted_groups import Bounded
from kafka_rollout.adapters.coordinator_logs.directories import find_logs
from kafka_rollout.adapters.coordinator_logs.segments import Piece
from kafka_rollout.adapters.kafka.fetch import FetchSource
from kafka_rollout.domain.coordinator_logs.cleaning import CleaningConfig
from kafka_rollout.domain.coordinator_logs.scan import LogCopy, LogRange
from kafka_rollout.domain.model.errors import UserError
from kafka_rollout_spark.decode.chunks import Chunk
from kafka_rollout_spark.source.files import SegmentFiles, segment_chunks
from kafka_rollout_spark.source.live import LiveLogs, cut, fetched_chunks, security_of
from kafka_rollout_spark.source.splits import SHARES, LogSource, Shares, share_out, size, to_option

_NOT_SEEN = "this user may not see the brokers' settings: 3.8 and 3.9 are judged by their default group coordinator"
_BYTES_PER_OFFSET = 100  # a guess: a committed offset in a batch with a few others
_PIECE_BYTES = 64 * 1024 * 1024
_SHARES_PER_CORE = 4  # so that a core that is done early takes another share
_SHARE = {"bytes": 512 * 1024 * 1024, "offsets": 8_000_000}  # about so large where that makes more: progress shows


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsToRead:
    """`unit`: what the pieces' sizes count, bytes of files or offsets. `log_bytes`: how much it is, or a guess.
    `new_group_coordinator`: as in ScanResult. `note`: what a person should know of it, a sentence.
    """

    cluster: str
    ranges: tuple[LogRange, ...]
    pieces: tuple[LogRange | Piece, ...]
    source: type[LogSource]
    unit: str
    log_bytes: int
    options: Mapping[str, str] = field(default_factory=dict)
    copies: tuple[LogCopy, ...] = ()
    cleaning: Mapping[str, CleaningConfig] = field(default_factory=dict)
    new_group_coordinator: bool = False
    note: str = ""

    @property
    def size(self) -> int:
        return sum(size(piece) for piece in self.pieces)

    def chunks(self, topic: str, partition: int, *, since: int = 0) -> Iterator[Chunk]:
        """What a source's tasks read of one partition, read here; at least what lies behind `since`."""
        pieces = [piece for piece in self.pieces if _place(piece) == (topic, partition)]
        if self.source is SegmentFiles:
            yield from segment_chunks([piece for piece in pieces if isinstance(piece, Piece)], [])
            return
        ranges = [piece for piece in pieces if isinstance(piece, LogRange) and piece.end > since]
        ranges = [replace(piece, start=max(piece.start, since)) for piece in ranges]
        security = security_of(self.options.get("security.file"))
        with FetchSource(self.options["bootstrap.servers"], security) as source:
            yield from fetched_chunks(source, ranges)

    def whole(self, topic: str, partition: int) -> Iterator[Bounded]:
        for chunk in self.chunks(topic, partition):
            yield chunk.data, chunk.start, chunk.end

    def shares(self, cores: int) -> Shares:
        """As many for every core: one share more would have a core work alone at the end."""
        return share_out(self.pieces, cores * max(_SHARES_PER_CORE, round(self.size / cores / _SHARE[self.unit])))

    def options_for(self, cores: int) -> dict[str, str]:
        return {**self.options, SHARES: to_option(self.shares(cores))}


def _place(piece: LogRange | Piece) -> tuple[str, int]:
    log = piece if isinstance(piece, LogRange) else piece.log
    return log.topic, log.partition


def live_logs(
    *, cluster: str, bootstrap_servers: str, security_file: Path | None, topics: Sequence[str], known: Sequence[str]
) -> LogsToRead:
    """Where the logs of a cluster begin and end now. `topics` empty: every log of `known` that the cluster has."""
    with FetchSource(bootstrap_servers, security_of(str(security_file) if security_file else None)) as source:
        ranges = source.ranges(topics or known)
        cleaning = source.cleaning(sorted({log.topic for log in ranges}))
        new_group_coordinator = source.starts_new_group_coordinator()
    if missing := sorted(set(topics) - {r.topic for r in ranges}):
        raise UserError(
            f"Cluster {cluster} has no topic {', '.join(missing)}.",
            remedy="Leave --topic out to scan the logs that exist.",
        )
    options = {"bootstrap.servers": bootstrap_servers}
    if security_file:
        options["security.file"] = str(security_file)
    return LogsToRead(
        cluster=cluster,
        ranges=ranges,
        pieces=cut(ranges),
        source=LiveLogs,
        unit="offsets",
        log_bytes=_BYTES_PER_OFFSET * sum(size(log) for log in ranges),
        options=options,
        cleaning=cleaning,
        new_group_coordinator=bool(new_group_coordinator),
        note="" if new_group_coordinator is not None else _NOT_SEEN,
    )


def logs_in_directories(
    *, cluster: str, directories: Sequence[Path], topics: Collection[str], new_group_coordinator: bool = False
) -> LogsToRead:
    """What the directories hold now of the logs named."""
    found = find_logs(directories, topics)
    return LogsToRead(
        cluster=cluster,
        ranges=found.ranges,
        pieces=found.pieces(_PIECE_BYTES),
        source=SegmentFiles,
        unit="bytes",
        log_bytes=found.log_bytes,
        copies=found.copies,
        new_group_coordinator=new_group_coordinator,
    )
