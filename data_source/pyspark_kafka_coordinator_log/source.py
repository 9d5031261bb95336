"""Reads coordinator logs as rows, in batches and as a stream.

The logs are found, cut and read by the functions of the scan (kafka_rollout_spark.source).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_rollout.coordinator_logs.reading.records import Kinds
    from kafka_rollout.coordinator_logs.scan import Damage
    from kafka_rollout.formats.log_types import ReplicaRange
    from kafka_rollout_spark.source import LogSource, LogsToRead, Range
    from pyspark_kafka_coordinator_log.options import Options

NAME = "kafka_coordinator_log"
_SPLIT_SIZE = {"bytes": 8 << 20, "offsets": 100_000}  # several seconds of decoding
Offsets = Mapping[str, Mapping[str, int]]
"""Topic → partition → offset of the next record."""


class DefaultSource(DataSource):
    """The data source; PySpark finds it by this name."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        from pyspark_kafka_coordinator_log.options import Options
        from pyspark_kafka_coordinator_log.schema import read_schema

        Options.parse(self.options)
        return read_schema()

    def reader(self, schema: StructType) -> LogReader:
        return LogReader(Reading.of(self.options, schema))

    def streamReader(self, schema: StructType) -> LogStreamReader:
        reading = Reading.of(self.options, schema)
        if reading.options.all_replicas:
            from kafka_rollout.base.errors import UserError

            raise UserError("A stream reads the leader of each partition alone.", remedy="Omit the option replicas.")
        return LogStreamReader(reading)


class LogSplit(InputPartition):
    """What one task reads."""

    def __init__(
        self,
        ranges: tuple[Range, ...],
        source: LogSource,
        names: Mapping[tuple[str, int, int], str],
        damage: tuple[Damage, ...] = (),
    ) -> None:
        super().__init__(None)
        self.ranges, self.source, self.names, self.damage = ranges, source, names, damage


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What driver and tasks need; picklable."""

    options: Options
    schema: StructType
    kinds: Mapping[str, Kinds]
    """Coordinator log → its record kinds, as all releases of the catalogue read them."""

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType) -> Reading:
        from kafka_rollout.base.errors import UserError
        from kafka_rollout.base.system.settings import Settings
        from kafka_rollout.coordinator_logs.reading.records import kinds_of_log
        from kafka_rollout.formats.documents.definitions import load_schemas
        from pyspark_kafka_coordinator_log.options import Options
        from pyspark_kafka_coordinator_log.schema import COLUMNS

        parsed = Options.parse(options)
        if schema.names != [*COLUMNS]:
            raise UserError("The data source cannot have another schema.", remedy="Omit schema() and use select().")
        schemas = load_schemas(*Settings.from_environment().catalogue_folders)
        releases = sorted(schemas.releases, reverse=True)
        topics = sorted({topic for _, topic in schemas.by_log})
        parsed.check_topics(topics)
        kinds = {topic: kinds_of_log(schemas, releases, topic) for topic in topics}
        return cls(options=parsed, schema=schema, kinds=kinds)

    def find(self) -> LogsToRead:
        """The present content of the logs."""
        from pathlib import Path

        from kafka_rollout.base.errors import UserError
        from kafka_rollout_spark.remote import is_url, logs_at_urls
        from kafka_rollout_spark.source import live_logs, logs_in_directories

        options, known = self.options, sorted(self.kinds)
        if options.servers:
            found = live_logs(
                cluster=options.servers,
                bootstrap_servers=options.servers,
                security=options.properties,
                topics=options.topics,
                known=known,
            )
        else:
            topics, are_urls = options.topics or tuple(known), {is_url(place) for place in options.places}
            if are_urls == {True}:
                found = logs_at_urls(cluster="", urls=options.places, topics=topics)
            elif are_urls == {False}:
                found = logs_in_directories(cluster="", directories=[*map(Path, options.places)], topics=topics)
            else:
                raise UserError("Paths and URLs cannot be read together.", remedy="Write the paths as file:// URLs.")
        if options.all_replicas:
            return found
        leaders = found.of(0)
        chosen = {log: name for log, name in found.names.items() if log[2] == 0}
        damage = tuple(one for one in found.damage if one.file in chosen.values())  # none of brokers: of followers
        return replace(leaders, names=chosen, damage=damage)

    def splits(self, logs: LogsToRead, ranges: Sequence[Range]) -> list[InputPartition]:
        from kafka_rollout_spark.source import plan_splits, size_of

        found: list[InputPartition] = []
        if ranges:
            count = -(-sum(map(size_of, ranges)) // _SPLIT_SIZE[logs.unit]) or 1
            found += (LogSplit(split, logs.source, logs.names) for split in plan_splits(ranges, count))
        return found

    def read(self, split: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        from pyspark_kafka_coordinator_log.batches import Batches

        if not isinstance(split, LogSplit):  # Spark's, of a log without records
            return
        batches = Batches(to_arrow_schema(self.schema, timezone="UTC"), self.kinds, split.names)
        damage: list[pa.RecordBatch] = []
        yield from batches.of(split.source.read(split.ranges, damage))
        yield from map(batches.of_rows, damage)
        if split.damage:
            yield batches.of_damage(
                [(one.topic, one.partition, one.replica or one.file, None, one.sentence) for one in split.damage]
            )


class LogReader(DataSourceReader):
    """Reads the logs as they are when the query is planned."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def partitions(self) -> list[InputPartition]:
        logs = self._reading.find()
        found = self._reading.splits(logs, logs.ranges)
        return [*found, LogSplit((), logs.source, logs.names, logs.damage)] if logs.damage else found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reading.read(partition)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads by offset. A new partition is read from its start."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._last: Offsets | None = None  # of a query with the trigger availableNow

    def initialOffset(self) -> dict[str, Any]:
        logs = self._reading.find().logs
        latest = self._reading.options.start == "latest"
        return _offsets({(log.topic, log.partition): log.end if latest else log.start for log in logs})

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        logs = {(log.topic, log.partition): log for log in self._reading.find().logs}
        begin = {place: _at(start, place, log.start) for place, log in logs.items()}
        end = {place: max(begin[place], log.end) for place, log in logs.items()}
        if self._last is not None:
            end = {place: max(begin[place], min(end[place], _at(self._last, place, begin[place]))) for place in end}
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        known = {(topic, int(number)): offset for topic, of in start.items() for number, offset in of.items()}
        return _offsets({**known, **end})

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._reading.options.most
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = _offsets({(log.topic, log.partition): log.end for log in self._reading.find().logs})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        logs = self._reading.find()
        found = self._reading.splits(logs, between(logs.ranges, start, end))
        first = {(log.topic, log.partition): log.start for log in logs.logs}
        damage = [
            one
            for one in logs.damage  # what is missing in a copy, in the batch with the start of the log
            for place in [(one.topic, one.partition)]
            if _at(start, place, 0) <= first.get(place, 0)
        ]
        return [*found, LogSplit((), logs.source, logs.names, tuple(damage))] if damage else found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reading.read(partition)


def between(ranges: Sequence[Range], start: Offsets, end: Offsets) -> tuple[Range, ...]:
    """Return the parts of the ranges with offsets from `start` to `end`.

    A segment is left out if the next one begins at or before `start`, or if it begins at or after `end`.
    """
    from kafka_rollout.coordinator_logs.reading.directories import SegmentRange

    following: dict[tuple[Any, int], int] = {}
    segments = sorted(
        {(part.log, part.segment.base_offset) for part in ranges if isinstance(part, SegmentRange)}, reverse=True
    )
    after: tuple[Any, int] | None = None
    for log, base in segments:
        following[log, base] = after[1] if after is not None and after[0] == log else log.end
        after = log, base
    found: list[Range] = []
    for part in ranges:
        log = part.log if isinstance(part, SegmentRange) else part
        first, last = _at(start, (log.topic, log.partition), 0), _at(end, (log.topic, log.partition), 0)
        cut = _cut(log, first, last)
        if cut is None:
            continue
        if not isinstance(part, SegmentRange):
            found.append(cut)
        elif part.segment.base_offset < last and following[log, part.segment.base_offset] > first:
            found.append(replace(part, log=cut))
    return tuple(found)


def _cut(log: ReplicaRange, first: int, last: int) -> ReplicaRange | None:
    begin, end = max(log.start, first), min(log.end, last)
    return replace(log, start=begin, end=end) if begin < end else None


def limited(
    begin: Mapping[tuple[str, int], int], end: Mapping[tuple[str, int], int], most: int
) -> dict[tuple[str, int], int]:
    """Return ends with about `most` offsets in all, and at least one, by the sizes of the partitions."""
    sizes = {place: end[place] - begin[place] for place in end}
    total = sum(sizes.values())
    if total <= most:
        return dict(end)
    return {place: begin[place] + -(-size * most // total) for place, size in sizes.items()}


def _offsets(found: Mapping[tuple[str, int], int]) -> dict[str, Any]:
    offsets: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(found.items()):
        offsets.setdefault(topic, {})[str(partition)] = offset
    return offsets


def _at(offsets: Offsets, place: tuple[str, int], default: int) -> int:
    return offsets.get(place[0], {}).get(str(place[1]), default)
