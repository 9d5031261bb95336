"""What the retention of a topic leaves in a partition, and until when.

Only a lower bound is known from outside. It is evidence: a log start above it was not moved by retention.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kafka_rollout.base.internal_topics import SHARE_TOPIC
from kafka_rollout.model.configs import ConfigSource, Setting

_POLICY, _MS, _BYTES = "cleanup.policy", "retention.ms", "retention.bytes"
_TIERED, _LOCAL_MS = "remote.storage.enable", "local.retention.ms"
_LIKE_RETENTION = "-2"  # local.retention.ms: as retention.ms
_REPARTITION = "-repartition"
NAMES = (_POLICY, _MS, _BYTES, _TIERED, _LOCAL_MS)
"""The settings of a topic from which `retention_of` reads."""
_BROKER_POLICY, _BROKER_BYTES = "log.cleanup.policy", "log.retention.bytes"
_TIMES = {"log.retention.ms": 1, "log.retention.minutes": 60_000, "log.retention.hours": 3_600_000}  # the first counts
BROKER_NAMES = frozenset({_BROKER_POLICY, _BROKER_BYTES, *_TIMES})
"""The settings of a broker from which `broker_retention` reads."""
_OF_CLIENTS = frozenset({ConfigSource.TOPIC, ConfigSource.ALL_BROKERS})


class Bound(StrEnum):
    """The offset from which retention keeps all records, as it is asked of the leader."""

    START = "start"
    """The log start: retention removes nothing."""
    TIME = "time"
    """The first record that is younger than half of retention.ms."""
    LOCAL = "local"
    """The first record of the leader's local log: half of what was in remote storage alone is younger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRecords:
    """The records of a partition that retention keeps until a time."""

    start: int
    """The log start offset when this was read."""
    from_offset: int
    """A log start above this offset was not moved by retention."""
    until: float | None = None
    """Epoch seconds; None: retention never removes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The settings of a topic that decide what is removed at the start of its logs."""

    policy: frozenset[str]
    ms: int
    size: int
    tiered: bool
    local_ms: int
    of_clients: frozenset[tuple[str, str]] = field(default=frozenset(), compare=False)
    """Setting and value of those that clients set of the topic or of all brokers. The others are those of the broker
    that was asked: of its file, of itself, or the defaults of its release."""

    @property
    def bound(self) -> Bound | None:
        """Return which bound is known; None: none is.

        A limit in bytes can remove records of any age, and compaction the newest records of a segment (LogCleaner), so
        that a segment becomes older than its records were. Without `delete` the log start does not move
        (UnifiedLog.deleteOldSegments).
        """
        if self.policy == {"compact"} or (self.policy == {"delete"} and self.ms < 0 and self.size < 0):
            return Bound.START
        if self.policy != {"delete"} or self.size >= 0:
            return None
        if not self.tiered:
            return Bound.TIME
        return Bound.LOCAL if self.local_ms < self.ms else None

    @property
    def margin_ms(self) -> int:
        """Milliseconds for which the bound stays true."""
        return (self.ms - self.local_ms if self.tiered else self.ms) // 2

    def keeps_less_than(self, other: Retention) -> bool:
        """Return whether a broker can delete records with this retention that it keeps with the other one."""

        def is_less(limit: int, others: int) -> bool:
            return limit >= 0 and (others < 0 or limit < others)

        deletes_now = "delete" in self.policy and "delete" not in other.policy
        is_lower = is_less(self.ms, other.ms) or is_less(self.size, other.size)
        return deletes_now or ("delete" in self.policy and is_lower)

    def __str__(self) -> str:
        values = {_POLICY: ",".join(sorted(self.policy)), _MS: self.ms, _BYTES: self.size}
        return ", ".join(f"{name}={value}" for name, value in values.items())


def retention_of(settings: Mapping[str, Setting]) -> Retention | None:
    """Return the retention of a topic by its effective settings; None: a value is missing."""
    values = {name: setting.value for name, setting in settings.items() if setting.value is not None}
    if not {_POLICY, _MS, _BYTES} <= values.keys():
        return None
    local = values.get(_LOCAL_MS, _LIKE_RETENTION)
    return Retention(
        policy=frozenset(one.strip() for one in values[_POLICY].split(",")),
        ms=int(values[_MS]),
        size=int(values[_BYTES]),
        tiered=values.get(_TIERED) == "true",
        local_ms=int(values[_MS] if local == _LIKE_RETENTION else local),
        of_clients=frozenset(
            (name, value) for name, value in values.items() if name in NAMES and settings[name].source in _OF_CLIENTS
        ),
    )


def broker_retention(settings: Mapping[str, Setting]) -> Retention | None:
    """Return the retention of topics without own settings by the effective settings of a broker; None: a value is
    missing. Source: KafkaConfig.logRetentionTimeMillis.
    """
    values = {name: setting.value for name, setting in settings.items() if setting.value is not None}
    times = [int(values[name]) * unit for name, unit in _TIMES.items() if name in values]
    if not times or not {_BROKER_POLICY, _BROKER_BYTES} <= values.keys():
        return None
    ms = max(-1, times[0])
    return Retention(
        policy=frozenset(one.strip() for one in values[_BROKER_POLICY].split(",")),
        ms=ms,
        size=int(values[_BROKER_BYTES]),
        tiered=False,
        local_ms=ms,
    )


def is_purged(partition: str, start: int, groups: Mapping[str, Mapping[str, int]]) -> bool:
    """Return whether a client removes records of this partition by DeleteRecords up to an offset, as it always does.

    `groups`: group → partition → committed offset.
    """
    purges = purging_groups(partition, groups)
    return purges is None or any(start <= groups[group].get(partition, -1) for group in purges)


def purging_groups(partition: str, groups: Iterable[str]) -> tuple[str, ...] | None:
    """Return the groups whose clients remove what they have read of this partition by DeleteRecords; None: its
    coordinator does.

    Kafka Streams removes what it has read of a repartition topic (`repartition.purge.interval.ms`), whose name begins
    with the application id, its group. The share coordinator removes what its log repeats (ShareCoordinatorService).
    """
    topic = partition.rpartition("-")[0]
    if topic == SHARE_TOPIC:
        return None
    return tuple(one for one in groups if topic.startswith(f"{one}-")) if topic.endswith(_REPARTITION) else ()
