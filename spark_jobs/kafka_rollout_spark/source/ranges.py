"""What a scan reads, found once when it begins: the logs of a running cluster, or those in log directories."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafka_rollout.base.errors import UserError
from kafka_rollout.coordinator_logs.reading.directories import find_logs
from kafka_rollout.coordinator_logs.reading.second_reading import Bounded
from kafka_rollout.coordinator_logs.scan import LogCopy
from kafka_rollout.kafka.cleaning import CleaningConfig
from kafka_rollout.kafka.client.security.carried_security import CarriedSecurity
from kafka_rollout.kafka.formats.log_types import LogRange
from kafka_rollout_spark.rows import LogBytes
from kafka_rollout_spark.source.files import SegmentFiles
from kafka_rollout_spark.source.splits import LogSource, Range, Split, plan_splits, size_of

_NOT_PERMITTED = (
    "this user may not read the brokers' settings; 3.8 and 3.9 are evaluated with their default group coordinator"
)
_BYTES_PER_OFFSET = 100  # estimate: a committed offset in a batch with a few others
_RANGE_BYTES = 64 * 1024 * 1024
_SPLITS_PER_CORE = 4  # a core that finishes early takes another split
_SPLIT_SIZE = {"bytes": 512 * 1024 * 1024, "offsets": 8_000_000}  # of large logs, so that progress is visible
_SMALL_BYTES = 8 * 1024 * 1024  # its rows fit the driver, even if every record has a group of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsToRead:
    """`ranges`: what to read of the `logs`; their sizes count `unit`, bytes of files or offsets. `log_bytes`: the size
    or an estimate. `new_group_coordinator`: as in ScanResult. `note`: a sentence for the operator.
    """

    cluster: str
    logs: tuple[LogRange, ...]
    ranges: tuple[Range, ...]
    source: LogSource
    unit: str
    log_bytes: int
    copies: tuple[LogCopy, ...] = ()
    cleaning: Mapping[str, CleaningConfig] = field(default_factory=dict)
    new_group_coordinator: bool = False
    note: str = ""

    @property
    def size(self) -> int:
        return sum(map(size_of, self.ranges))

    @property
    def is_small(self) -> bool:
        """Whether the driver can merge all rows."""
        return self.log_bytes <= _SMALL_BYTES

    def splits(self, cores: int) -> tuple[Split, ...]:
        """The same number for every core: with one more, one core would work alone at the end."""
        per_core = 1 if self.is_small else max(_SPLITS_PER_CORE, round(self.size / cores / _SPLIT_SIZE[self.unit]))
        return plan_splits(self.ranges, cores * per_core)

    def read(self, topic: str, partition: int, *, since: int = 0) -> Iterator[LogBytes]:
        """One partition, read in this process; at least the records from offset `since`."""
        ranges = []
        for part in self.ranges:
            log = part if isinstance(part, LogRange) else part.log
            if (log.topic, log.partition) == (topic, partition) and log.end > since:
                ranges.append(replace(part, start=max(part.start, since)) if isinstance(part, LogRange) else part)
        return self.source.read(ranges, [])

    def read_whole(self, topic: str, partition: int) -> Iterator[Bounded]:
        for block in self.read(topic, partition):
            yield block.data, block.start, block.end


def live_logs(
    *,
    cluster: str,
    bootstrap_servers: str,
    security: Path | CarriedSecurity | None,
    topics: Sequence[str],
    known: Sequence[str],
) -> LogsToRead:
    """The current start and end of a cluster's logs. `topics` empty: every log of `known` that the cluster has.

    `security`: what the tasks get, as in LiveLogs.
    """
    from kafka_rollout_spark.source.live import LiveLogs, cut_logs

    live = LiveLogs(bootstrap_servers, security)
    with live.connect() as source:
        logs = source.ranges(topics or known)
        cleaning = source.cleaning(sorted({log.topic for log in logs}))
        new_group_coordinator = source.starts_new_group_coordinator()
    if missing := sorted(set(topics) - {log.topic for log in logs}):
        raise UserError(
            f"Cluster {cluster} has no topic {', '.join(missing)}.",
            remedy="Omit --topic to scan the logs that exist.",
        )
    return LogsToRead(
        cluster=cluster,
        logs=logs,
        ranges=cut_logs(logs),
        source=live,
        unit="offsets",
        log_bytes=_BYTES_PER_OFFSET * sum(map(size_of, logs)),
        cleaning=cleaning,
        new_group_coordinator=bool(new_group_coordinator),
        note="" if new_group_coordinator is not None else _NOT_PERMITTED,
    )


def logs_in_directories(*, cluster: str, directories: Sequence[Path], topics: Collection[str]) -> LogsToRead:
    """The current content of the directories for these topics."""
    found = find_logs(directories, topics)
    return LogsToRead(
        cluster=cluster,
        logs=found.ranges,
        ranges=found.cut(_RANGE_BYTES),
        source=SegmentFiles(),
        unit="bytes",
        log_bytes=found.log_bytes,
        copies=found.copies,
    )
